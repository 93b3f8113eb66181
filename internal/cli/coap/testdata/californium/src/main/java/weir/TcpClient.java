package weir;

import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.config.TcpConfig;
import org.eclipse.californium.elements.tcp.netty.TcpClientConnector;

/** As Client, over TCP (RFC 8323). */
public class TcpClient {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		TcpConfig.register();
		Configuration config = Configuration.createStandardWithoutFile();
		Client.serve(CoapEndpoint.builder().setConfiguration(config).setConnector(new TcpClientConnector(config)).build(), null);
		System.exit(0);
	}
}
