package weir;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import javax.crypto.SecretKey;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.ConnectionId;
import org.eclipse.californium.scandium.dtls.HandshakeResultHandler;
import org.eclipse.californium.scandium.dtls.PskPublicInformation;
import org.eclipse.californium.scandium.dtls.PskSecretResult;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedPskStore;
import org.eclipse.californium.scandium.util.SecretUtil;
import org.eclipse.californium.scandium.util.ServerNames;

/**
 * A single DTLS server with connection ids, for `weir bench run floods`: one secret for every identity.
 *
 * Arguments: address port max-connections. Prints READY; runs until it is killed.
 */
public class Server {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		DtlsConfig.register();
		Configuration config = Configuration.createStandardWithoutFile();
		config.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.SERVER_ONLY);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, 6);
		config.set(DtlsConfig.DTLS_MAX_CONNECTIONS, Integer.parseInt(args[2]));
		DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(config);
		dtls.setAddress(new InetSocketAddress(args[0], Integer.parseInt(args[1])));
		dtls.setAdvancedPskStore(new OneSecret(".fornium".getBytes(StandardCharsets.UTF_8)));
		CoapServer server = new CoapServer(config);
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setConnector(new DTLSConnector(dtls.build())).build());
		server.add(new Benchmark());
		server.start();
		System.out.println("READY");
		Thread.currentThread().join();
	}

	/** Answers 40 bytes. */
	private static class Benchmark extends CoapResource {

		private Benchmark() {
			super("benchmark");
		}

		@Override
		public void handlePOST(CoapExchange exchange) {
			byte[] payload = new byte[40];
			Arrays.fill(payload, (byte) '*');
			exchange.respond(ResponseCode.CHANGED, payload);
		}
	}

	private static class OneSecret implements AdvancedPskStore {

		private final byte[] secret;

		private OneSecret(byte[] secret) {
			this.secret = secret;
		}

		@Override
		public boolean hasEcdhePskSupported() {
			return true;
		}

		@Override
		public PskSecretResult requestPskSecretResult(ConnectionId cid, ServerNames names, PskPublicInformation identity, String hmac,
				SecretKey other, byte[] seed, boolean extended) {
			return new PskSecretResult(cid, identity, SecretUtil.create(secret, "PSK"));
		}

		@Override
		public PskPublicInformation getIdentity(InetSocketAddress peer, ServerNames names) {
			return null;
		}

		@Override
		public void setResultHandler(HandshakeResultHandler handler) {
			// every result is returned at once
		}
	}
}
