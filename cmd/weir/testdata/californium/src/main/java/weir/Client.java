package weir;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.CoAP.Type;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.cipher.CipherSuite;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedSinglePskStore;

/**
 * A Californium client that a test drives over standard input: one line per request, "METHOD URI [PAYLOAD-LENGTH]", answered by one line,
 * "CODE RTT-MS PAYLOAD" with line feeds written as \n, or "ERROR ...". One DTLS session and one socket for all requests.
 *
 * Arguments: cid-length identity secret cipher-suite. A negative cid-length offers no connection id.
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
		dtls.setAdvancedPskStore(new AdvancedSinglePskStore(args[1], args[2].getBytes(StandardCharsets.UTF_8)));
		dtls.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, CipherSuite.getTypeByName(args[3]));
		CoapEndpoint endpoint = CoapEndpoint.builder().setConfiguration(config).setConnector(new DTLSConnector(dtls.build())).build();
		endpoint.start();

		BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		System.out.println("READY");
		for (String line = lines.readLine(); line != null; line = lines.readLine()) {
			System.out.println(answer(endpoint, line.trim().split(" ")));
		}
		endpoint.destroy();
		System.exit(0);
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
