package weir;

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.PublicKey;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapHandler;
import org.eclipse.californium.core.CoapObserveRelation;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.CoAP.Code;
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
 * "OBSERVE URI COUNT" counts the states until there are so many: "2.05 0 3 states".
 *
 * Arguments: cid-length identity secret cipher-suite [X509|RPK own.pem root.pem]. A negative cid-length offers no connection id, UDP in its
 * place is without DTLS. own.pem
 * has the certificate chain and its private key, of which RPK uses the key. The line "RESUME" makes the next request resume its session.
 *
 * "SESSION ARGUMENT..." begins with another socket and other arguments, and is answered by READY: a test of many sessions starts one process.
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
		String[] present = args;
		while (present != null) {
			DTLSConnector connector = present[0].equals("UDP") ? null : connector(config, present);
			CoapEndpoint.Builder endpoint = CoapEndpoint.builder().setConfiguration(config);
			if (connector != null) {
				endpoint.setConnector(connector);
			}
			present = serve(endpoint.build(), connector);
		}
		System.exit(0);
	}

	private static DTLSConnector connector(Configuration config, String[] args) throws Exception {
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
		return new DTLSConnector(dtls.build());
	}

	private static final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

	/**
	 * Answers the lines of standard input until its end, or until SESSION, whose arguments it returns; connector is null where there is no
	 * session.
	 */
	static String[] serve(CoapEndpoint endpoint, DTLSConnector connector) throws Exception {
		endpoint.start();
		System.out.println("READY");
		for (String line = lines.readLine(); line != null; line = lines.readLine()) {
			if (line.startsWith("SESSION ")) {
				endpoint.destroy();
				return line.substring("SESSION ".length()).split(" ", -1);
			}
			if (line.equals("RESUME")) {
				connector.forceResumeAllSessions();
				continue;
			}
			System.out.println(answer(endpoint, line.trim().split(" ")));
		}
		endpoint.destroy();
		return null;
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
		boolean observe = words[0].equals("OBSERVE");
		Request request = new Request(observe ? Code.GET : Code.valueOf(words[0]));
		request.setType(Type.CON);
		request.setURI(words[1]);
		if (words.length > 2 && !observe) {
			byte[] payload = new byte[Integer.parseInt(words[2])];
			Arrays.fill(payload, (byte) 'x');
			request.setPayload(payload);
			request.getOptions().setContentFormat(0);
		}
		try {
			if (observe) {
				return states(client, request, Integer.parseInt(words[2]));
			}
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

	/** Observes until so many different states have come. */
	private static String states(CoapClient client, Request request, int count) throws Exception {
		final Set<Integer> seen = ConcurrentHashMap.newKeySet();
		final CountDownLatch enough = new CountDownLatch(count);
		request.setObserve();
		CoapObserveRelation relation = client.observe(request, new CoapHandler() {

			@Override
			public void onLoad(CoapResponse response) {
				if (response.getOptions().hasObserve() && seen.add(response.getOptions().getObserve())) {
					enough.countDown();
				}
			}

			@Override
			public void onError() {
				// the wait ends
			}
		});
		enough.await(30, TimeUnit.SECONDS);
		relation.proactiveCancel();
		return "2.05 0 " + Math.min(count, seen.size()) + " states";
	}
}
