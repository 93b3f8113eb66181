package weir;

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.PublicKey;
import java.util.concurrent.TimeUnit;

import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.CoAP.Type;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.SslContextUtil;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.CertificateType;
import org.eclipse.californium.scandium.dtls.cipher.CipherSuite;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedSinglePskStore;
import org.eclipse.californium.scandium.dtls.x509.SingleCertificateProvider;
import org.eclipse.californium.scandium.dtls.x509.StaticNewAdvancedCertificateVerifier;

/**
 * A Californium client that a test drives over standard input: one line per request, "METHOD URI [PAYLOAD-LENGTH]", answered by one line,
 * "CODE RTT-MS PAYLOAD" with line feeds written as \n, or "ERROR ...". One DTLS session and one socket for all requests.
 *
 * Arguments: cid-length identity secret cipher-suite [X509|RPK own.pem root.pem]. A negative cid-length offers no connection id. own.pem
 * has the certificate chain and its private key, of which RPK uses the key. The line "RESUME" makes the next request resume its session.
 */
public class Client {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		DtlsConfig.register();
		Configuration config = Configuration.createStandardWithoutFile();
		config.set(CoapConfig.ACK_TIMEOUT, 2, TimeUnit.SECONDS);
		config.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.CLIENT_ONLY);
		config.set(DtlsConfig.DTLS_RECEIVER_THREAD_COUNT, 1);
		config.set(DtlsConfig.DTLS_CONNECTOR_THREAD_COUNT, 1);
		int cidLength = Integer.parseInt(args[0]);
		config.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, cidLength < 0 ? null : Integer.valueOf(cidLength));

		DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(config);
		dtls.setAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
		dtls.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, CipherSuite.getTypeByName(args[3]));
		if (args.length > 4) {
			certificates(dtls, args);
		} else {
			dtls.setAdvancedPskStore(new AdvancedSinglePskStore(args[1], args[2].getBytes(StandardCharsets.UTF_8)));
		}
		DTLSConnector connector = new DTLSConnector(dtls.build());
		CoapEndpoint endpoint = CoapEndpoint.builder().setConfiguration(config).setConnector(connector).build();
		endpoint.start();

		BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		System.out.println("READY");
		for (String line = lines.readLine(); line != null; line = lines.readLine()) {
			if (line.equals("RESUME")) {
				connector.forceResumeAllSessions();
				continue;
			}
			System.out.println(answer(endpoint, line.trim().split(" ")));
		}
		endpoint.destroy();
		System.exit(0);
	}

	private static void certificates(DtlsConnectorConfig.Builder dtls, String[] args) throws Exception {
		SslContextUtil.Credentials own;
		try (InputStream in = new FileInputStream(args[5])) {
			own = SslContextUtil.loadPemCredentials(in);
		}
		StaticNewAdvancedCertificateVerifier.Builder trust = StaticNewAdvancedCertificateVerifier.builder();
		if (args[4].equals("RPK")) {
			PublicKey key = own.getCertificateChain()[0].getPublicKey();
			dtls.setCertificateIdentityProvider(new SingleCertificateProvider(own.getPrivateKey(), key));
			trust.setTrustAllRPKs();
		} else {
			dtls.setCertificateIdentityProvider(
					new SingleCertificateProvider(own.getPrivateKey(), own.getCertificateChain(), CertificateType.X_509));
			trust.setTrustedCertificates(SslContextUtil.loadTrustedCertificates(args[6]));
		}
		dtls.setAdvancedCertificateVerifier(trust.build());
	}

	private static String answer(CoapEndpoint endpoint, String[] words) {
		CoapClient client = new CoapClient(words[1]);
		client.setEndpoint(endpoint);
		client.setTimeout(60000L);
		Request request = words[0].equals("POST") ? Request.newPost() : Request.newGet();
		request.setType(Type.CON);
		request.setURI(words[1]);
		if (words.length > 2) {
			request.setPayload(new byte[Integer.parseInt(words[2])]);
		}
		try {
			CoapResponse response = client.advanced(request);
			if (response == null) {
				return "ERROR timeout";
			}
			String payload = response.getResponseText().replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n");
			return response.getCode().text + " " + response.advanced().getApplicationRttNanos() / 1000000L + " " + payload;
		} catch (Exception e) {
			return "ERROR " + e;
		} finally {
			client.shutdown();
		}
	}
}
