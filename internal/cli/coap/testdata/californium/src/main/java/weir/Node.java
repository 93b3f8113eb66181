package weir;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.Principal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.elements.DtlsEndpointContext;
import org.eclipse.californium.elements.EndpointContext;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.scandium.DtlsClusterConnector;
import org.eclipse.californium.scandium.DtlsManagedClusterConnector;
import org.eclipse.californium.scandium.config.DtlsClusterConnectorConfig;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.PskSecretResult;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;
import org.eclipse.californium.scandium.util.SecretUtil;

/**
 * A node of a Californium CID cluster: with static membership, or, with --group, with the managed connector and dynamic membership.
 *
 * Arguments: public-port management-port node-id [other-id host:port]..., or in place of the others: --group host:port[,host:port]...
 * length-of-pings secret(- without security) mac|no-mac. Further nodes, of other clusters, follow after AND. Prints READY; ends with
 * standard input.
 */
public class Node {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		DtlsConfig.register();
		List<String> all = Arrays.asList(args);
		while (all.contains("AND")) {
			int and = all.indexOf("AND");
			start(all.subList(0, and).toArray(new String[0]));
			all = all.subList(and + 1, all.size());
		}
		start(all.toArray(new String[0]));
		System.out.println("READY");
		BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		while (lines.readLine() != null) {
			continue;
		}
		System.exit(0);
	}

	private static void start(String[] args) {
		int id = Integer.parseInt(args[2]);
		Configuration config = Configuration.createStandardWithoutFile();
		config.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.SERVER_ONLY);
		config.set(DtlsConfig.DTLS_RECEIVER_THREAD_COUNT, 1);
		config.set(DtlsConfig.DTLS_CONNECTOR_THREAD_COUNT, 1);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, 6);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_NODE_ID, id);

		DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(config);
		dtls.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
		AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
		keys.setKey("cali.cluster", ".fornium".getBytes(StandardCharsets.UTF_8));
		dtls.setAdvancedPskStore(keys);
		DtlsClusterConnectorConfig.Builder cluster = DtlsClusterConnectorConfig.builder()
				.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1]))).setBackwardMessage(Boolean.TRUE);
		DtlsClusterConnector connector = args.length > 3 && args[3].equals("--group") ? managed(args, id, dtls.build(), cluster)
				: new DtlsClusterConnector(dtls.build(), cluster.build(), listed(args));
		CoapServer server = new CoapServer(config);
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setConnector(connector).build());
		server.add(new MyContext(id));
		server.start();
	}

	/** Static membership: the nodes of the arguments. */
	private static DtlsClusterConnector.ClusterNodesProvider listed(String[] args) {
		final Map<Integer, InetSocketAddress> others = new HashMap<>();
		for (int i = 3; i + 1 < args.length; i += 2) {
			others.put(Integer.valueOf(args[i]), address(args[i + 1]));
		}
		return new DtlsClusterConnector.ClusterNodesProvider() {

			@Override
			public InetSocketAddress getClusterNode(int nodeId) {
				return others.get(nodeId);
			}

			@Override
			public boolean available(InetSocketAddress destination) {
				return true;
			}
		};
	}

	/** Dynamic membership over Scandium's management connector. */
	private static DtlsClusterConnector managed(String[] args, int id, DtlsConnectorConfig dtls, DtlsClusterConnectorConfig.Builder cluster) {
		List<InetSocketAddress> group = new ArrayList<>();
		for (String address : args[4].split(",")) {
			group.add(address(address));
		}
		if (!args[6].equals("-")) {
			cluster.setSecure("dtls-mgmt", SecretUtil.create(args[6].getBytes(StandardCharsets.UTF_8), PskSecretResult.ALGORITHM_PSK));
			cluster.setClusterMac(args[7].equals("mac"));
		}
		DtlsManagedClusterConnector connector = new DtlsManagedClusterConnector(dtls, cluster.build());
		Members members = new Members(id, Integer.parseInt(args[5]), group);
		connector.setClusterNodesProvider(members);
		members.start(connector.getClusterManagementConnector());
		return connector;
	}

	private static InetSocketAddress address(String text) {
		int colon = text.lastIndexOf(':');
		return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
	}

	/** As in the extended plugtest server, as far as the test asks. */
	private static class MyContext extends CoapResource {

		private final int id;

		private MyContext(int id) {
			super("mycontext");
			this.id = id;
		}

		@Override
		public void handleGET(CoapExchange exchange) {
			EndpointContext context = exchange.advanced().getRequest().getSourceContext();
			StringBuilder text = new StringBuilder();
			text.append("ip: ").append(context.getPeerAddress().getAddress().getHostAddress());
			text.append("\nport: ").append(context.getPeerAddress().getPort());
			text.append("\nnode-id: ").append(id);
			Principal principal = context.getPeerIdentity();
			text.append("\npeer: ").append(principal == null ? "" : principal.getName());
			text.append("\nread-cid: ").append(context.getString(DtlsEndpointContext.KEY_READ_CONNECTION_ID));
			text.append("\nvia: ").append(context.getString(DtlsEndpointContext.KEY_VIA_ROUTER));
			exchange.respond(ResponseCode.CONTENT, text.toString());
		}
	}
}
