package weir;

import java.net.InetSocketAddress;

import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.config.TcpConfig;
import org.eclipse.californium.elements.tcp.netty.TcpServerConnector;

/**
 * As Peer, over UDP and TCP (RFC 8323).
 *
 * Arguments: address port. Prints READY; runs until its standard input ends.
 */
public class PlainServer {

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		TcpConfig.register();
		Configuration config = Configuration.createStandardWithoutFile();
		InetSocketAddress address = new InetSocketAddress(args[0], Integer.parseInt(args[1]));
		CoapServer server = new CoapServer(config);
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setInetSocketAddress(address).build());
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setConnector(new TcpServerConnector(address, config)).build());
		server.add(new Peer.Large(), new Peer.Ticking(), new Peer.Slow());
		server.start();
		System.out.println("READY");
		while (System.in.read() >= 0) {
			// until its end
		}
		System.exit(0);
	}
}
