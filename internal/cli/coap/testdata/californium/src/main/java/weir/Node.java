package weir;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.Principal;
import java.util.HashMap;
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
import org.eclipse.californium.scandium.config.DtlsClusterConnectorConfig;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;

/**
 * A node of a Californium CID cluster with static membership and no security on the management link.
 *
 * Arguments: public-port management-port node-id [other-id host:port]... Prints READY; ends with standard input.
 */
public class Node {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		DtlsConfig.register();
		int id = Integer.parseInt(args[2]);
		Configuration config = Configuration.createStandardWithoutFile();
		config.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.SERVER_ONLY);
		config.set(DtlsConfig.DTLS_RECEIVER_THREAD_COUNT, 1);
		config.set(DtlsConfig.DTLS_CONNECTOR_THREAD_COUNT, 1);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, 6);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_NODE_ID, id);

		final Map<Integer, InetSocketAddress> others = new HashMap<>();
		for (int i = 3; i + 1 < args.length; i += 2) {
			int colon = args[i + 1].lastIndexOf(':');
			others.put(Integer.valueOf(args[i]), new InetSocketAddress(args[i + 1].substring(0, colon), Integer.parseInt(args[i + 1].substring(colon + 1))));
		}
		DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(config);
		dtls.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
		AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
		keys.setKey("cali.cluster", ".fornium".getBytes(StandardCharsets.UTF_8));
		dtls.setAdvancedPskStore(keys);
		DtlsClusterConnectorConfig cluster = DtlsClusterConnectorConfig.builder()
				.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1]))).setBackwardMessage(Boolean.TRUE).build();
		DtlsClusterConnector connector = new DtlsClusterConnector(dtls.build(), cluster, new DtlsClusterConnector.ClusterNodesProvider() {

			@Override
			public InetSocketAddress getClusterNode(int nodeId) {
				return others.get(nodeId);
			}

			@Override
			public boolean available(InetSocketAddress destination) {
				return true;
			}
		});
		CoapServer server = new CoapServer(config);
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setConnector(connector).build());
		server.add(new MyContext(id));
		server.start();
		System.out.println("READY");
		BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		while (lines.readLine() != null) {
			continue;
		}
		System.exit(0);
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
