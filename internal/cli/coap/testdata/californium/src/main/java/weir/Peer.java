package weir;

import java.io.FileInputStream;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Timer;
import java.util.TimerTask;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.elements.config.CertificateAuthenticationMode;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.SslContextUtil;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.CertificateType;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;
import org.eclipse.californium.scandium.dtls.x509.SingleCertificateProvider;
import org.eclipse.californium.scandium.dtls.x509.StaticNewAdvancedCertificateVerifier;

/**
 * A DTLS server with certificates, raw public keys and pre-shared keys, for Weir's client: /large answers 3,000 bytes and takes what is
 * put, /obs changes five times a second.
 *
 * Arguments: address port own.pem root.pem. Prints READY; runs until its standard input ends.
 */
public class Peer {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		DtlsConfig.register();
		Configuration config = Configuration.createStandardWithoutFile();
		config.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.SERVER_ONLY);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, 6);
		config.set(DtlsConfig.DTLS_RECOMMENDED_CIPHER_SUITES_ONLY, false);
		config.set(DtlsConfig.DTLS_CLIENT_AUTHENTICATION_MODE, CertificateAuthenticationMode.NEEDED);
		DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(config);
		dtls.setAddress(new InetSocketAddress(args[0], Integer.parseInt(args[1])));
		AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
		keys.setKey("device", "secret".getBytes(StandardCharsets.UTF_8));
		dtls.setAdvancedPskStore(keys);
		SslContextUtil.Credentials own;
		try (InputStream in = new FileInputStream(args[2])) {
			own = SslContextUtil.loadPemCredentials(in);
		}
		dtls.setCertificateIdentityProvider(new SingleCertificateProvider(own.getPrivateKey(), own.getCertificateChain(),
				CertificateType.X_509, CertificateType.RAW_PUBLIC_KEY));
		dtls.setAdvancedCertificateVerifier(StaticNewAdvancedCertificateVerifier.builder().setTrustAllRPKs()
				.setTrustedCertificates(SslContextUtil.loadTrustedCertificates(args[3])).build());
		CoapServer server = new CoapServer(config);
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setConnector(new DTLSConnector(dtls.build())).build());
		server.add(new Large(), new Ticking());
		server.start();
		System.out.println("READY");
		while (System.in.read() >= 0) {
			// until its end
		}
		System.exit(0);
	}

	static class Large extends CoapResource {

		private byte[] body = new byte[3000];

		Large() {
			super("large");
			Arrays.fill(body, (byte) 'x');
		}

		@Override
		public void handleGET(CoapExchange exchange) {
			exchange.respond(ResponseCode.CONTENT, body);
		}

		@Override
		public void handlePUT(CoapExchange exchange) {
			body = exchange.getRequestPayload();
			exchange.respond(ResponseCode.CHANGED);
		}
	}

	static class Ticking extends CoapResource {

		private int state;

		Ticking() {
			super("obs");
			setObservable(true);
			getAttributes().setObservable();
			new Timer(true).schedule(new TimerTask() {

				@Override
				public void run() {
					state++;
					changed();
				}
			}, 200, 200);
		}

		@Override
		public void handleGET(CoapExchange exchange) {
			exchange.respond(ResponseCode.CONTENT, "state " + state);
		}
	}

	/** Answers separately. */
	static class Slow extends CoapResource {

		Slow() {
			super("slow");
		}

		@Override
		public void handleGET(CoapExchange exchange) {
			exchange.accept();
			exchange.respond("done");
		}
	}
}
