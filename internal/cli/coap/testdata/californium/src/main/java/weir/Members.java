package weir;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.eclipse.californium.elements.AddressEndpointContext;
import org.eclipse.californium.elements.Connector;
import org.eclipse.californium.elements.RawData;
import org.eclipse.californium.elements.RawDataChannel;
import org.eclipse.californium.scandium.DtlsClusterConnector;

/**
 * The dynamic membership of a Californium node: pings and pongs over the management connector, as in cf-cluster, which is not on Maven
 * Central. The first ping of an address makes Scandium begin a handshake.
 */
class Members implements DtlsClusterConnector.ClusterNodesProvider, RawDataChannel {

	private static final byte PING = 61;
	private static final byte PONG = 60;

	private final int id;
	private final int length; // of pings and pongs: 5 as in Californium 2.5, 6 since 3.0
	private final List<InetSocketAddress> group;
	private final Map<Integer, InetSocketAddress> nodes = new ConcurrentHashMap<>();
	private volatile Connector connector;

	Members(int id, int length, List<InetSocketAddress> group) {
		this.id = id;
		this.length = length;
		this.group = group;
	}

	void start(Connector management) {
		connector = management;
		management.setRawDataReceiver(this);
		Executors.newSingleThreadScheduledExecutor(run -> {
			Thread thread = new Thread(run, "members");
			thread.setDaemon(true);
			return thread;
		}).scheduleWithFixedDelay(() -> group.forEach(address -> send(PING, address)), 500, 2000, TimeUnit.MILLISECONDS);
	}

	private void send(byte type, InetSocketAddress to) {
		ByteBuffer message = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN).put(type).putInt(id);
		connector.send(RawData.outbound(message.array(), new AddressEndpointContext(to), null, false));
	}

	@Override
	public void receiveData(RawData data) {
		byte[] message = data.getBytes();
		if (message.length < length || message[0] != PING && message[0] != PONG) {
			return;
		}
		nodes.put(ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN).getInt(1), data.getInetSocketAddress());
		if (message[0] == PING) {
			send(PONG, data.getInetSocketAddress());
		}
	}

	@Override
	public InetSocketAddress getClusterNode(int nodeId) {
		return nodes.get(nodeId);
	}

	@Override
	public boolean available(InetSocketAddress destination) {
		return nodes.containsValue(destination);
	}
}
