package weir;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.spec.ECGenParameterSpec;
import java.util.Arrays;
import java.util.Timer;
import java.util.TimerTask;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.coap.CoAP.Type;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.core.server.resources.Resource;
import org.eclipse.californium.elements.config.CertificateAuthenticationMode;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;
import org.eclipse.californium.scandium.dtls.x509.SingleCertificateProvider;
import org.eclipse.californium.scandium.dtls.x509.StaticNewAdvancedCertificateVerifier;

/**
 * The resources of the ETSI CoAP plugtests on Californium, for weir coap check: over UDP, and over DTLS on the next port with the list's
 * pre-shared key and a raw public key. What messages look like, blocks and observation are the library's.
 *
 * Arguments: address port. Prints READY; runs until its standard input ends.
 */
public class Plugtest {

	private interface Handler {

		void handle(CoapExchange exchange);
	}

	/** A resource of functions; a method without one is 4.05. */
	private static class Any extends CoapResource {

		private Handler get, put, post, delete;

		private Any(String name) {
			super(name);
		}

		private Any get(Handler h) {
			get = h;
			return this;
		}

		private Any put(Handler h) {
			put = h;
			return this;
		}

		private Any post(Handler h) {
			post = h;
			return this;
		}

		private Any delete(Handler h) {
			delete = h;
			return this;
		}

		private Any attribute(String name, String... values) {
			for (String value : values) {
				getAttributes().addAttribute(name, value);
			}
			return this;
		}

		private static void run(Handler h, CoapExchange exchange) {
			if (h == null) {
				exchange.respond(ResponseCode.METHOD_NOT_ALLOWED);
			} else {
				h.handle(exchange);
			}
		}

		@Override
		public void handleGET(CoapExchange exchange) {
			run(get, exchange);
		}

		@Override
		public void handlePUT(CoapExchange exchange) {
			run(put, exchange);
		}

		@Override
		public void handlePOST(CoapExchange exchange) {
			run(post, exchange);
		}

		@Override
		public void handleDELETE(CoapExchange exchange) {
			run(delete, exchange);
		}
	}

	private static Any fixed(String name, String text) {
		return new Any(name).get(x -> x.respond(ResponseCode.CONTENT, text, 0));
	}

	private static Handler code(ResponseCode code) {
		return x -> x.respond(code);
	}

	/** A body that is put, with its entity tag. */
	private static class Body {

		private byte[] bytes;

		private byte[] tag() {
			return new byte[] { (byte) Arrays.hashCode(bytes), (byte) (Arrays.hashCode(bytes) >> 8) };
		}
	}

	private static Any stored(String name, byte[] first) {
		Body body = new Body();
		body.bytes = first;
		return new Any(name).get(x -> x.respond(ResponseCode.CONTENT, body.bytes, 0)).put(x -> {
			body.bytes = x.getRequestPayload();
			x.respond(ResponseCode.CHANGED);
		});
	}

	private static Any validate() {
		Body body = new Body();
		body.bytes = "first".getBytes(StandardCharsets.UTF_8);
		return new Any("validate").get(x -> {
			x.setETag(body.tag());
			if (x.getRequestOptions().containsETag(body.tag())) {
				x.respond(ResponseCode.VALID);
			} else {
				x.respond(ResponseCode.CONTENT, body.bytes, 0);
			}
		}).put(x -> {
			if (x.getRequestOptions().getIfMatchCount() > 0 && !x.getRequestOptions().isIfMatch(body.tag())) {
				x.respond(ResponseCode.PRECONDITION_FAILED);
				return;
			}
			body.bytes = x.getRequestPayload();
			x.respond(ResponseCode.CHANGED);
		});
	}

	private static Any create() {
		Body body = new Body();
		return new Any("create1").put(x -> {
			if (x.getRequestOptions().hasIfNoneMatch() && body.bytes != null) {
				x.respond(ResponseCode.PRECONDITION_FAILED);
				return;
			}
			ResponseCode code = body.bytes == null ? ResponseCode.CREATED : ResponseCode.CHANGED;
			body.bytes = x.getRequestPayload();
			x.respond(code);
		}).delete(x -> {
			body.bytes = null;
			x.respond(ResponseCode.DELETED);
		});
	}

	private static Any largeCreate() {
		Any parent = new Any("large-create");
		return parent.post(x -> {
			String name = Integer.toString(parent.getChildren().size() + 1);
			Any child = stored(name, x.getRequestPayload());
			parent.add(child.delete(y -> {
				child.delete();
				y.respond(ResponseCode.DELETED);
			}));
			x.setLocationPath("large-create/" + name);
			x.respond(ResponseCode.CREATED);
		});
	}

	/** Changes every second; what was put is its value for the next one. */
	private static Any observed(String name, Type type, int length, Timer timer) {
		Body body = new Body();
		Any one = new Any(name);
		one.setObservable(true);
		one.setObserveType(type);
		one.getAttributes().setObservable();
		one.attribute("rt", "observe");
		timer.schedule(new TimerTask() {

			@Override
			public void run() {
				one.changed();
				body.bytes = null;
			}
		}, 1000, 1000);
		return one.get(x -> {
			byte[] now = Arrays.copyOf(Long.toString(System.nanoTime()).getBytes(StandardCharsets.UTF_8), length);
			x.respond(ResponseCode.CONTENT, body.bytes != null ? body.bytes : now, 0);
		}).put(x -> {
			if (x.getRequestOptions().getContentFormat() != 0) {
				one.clearAndNotifyObserveRelations(ResponseCode.NOT_ACCEPTABLE);
			} else {
				body.bytes = x.getRequestPayload();
				one.changed();
			}
			x.respond(ResponseCode.CHANGED);
		}).delete(x -> {
			one.clearAndNotifyObserveRelations(ResponseCode.NOT_FOUND);
			x.respond(ResponseCode.DELETED);
		});
	}

	public static void main(String[] args) throws Exception {
		CoapConfig.register();
		DtlsConfig.register();
		Configuration config = Configuration.createStandardWithoutFile();
		config.set(CoapConfig.MAX_MESSAGE_SIZE, 64);
		config.set(CoapConfig.PREFERRED_BLOCK_SIZE, 64);
		config.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.SERVER_ONLY);
		config.set(DtlsConfig.DTLS_CLIENT_AUTHENTICATION_MODE, CertificateAuthenticationMode.WANTED);
		int port = Integer.parseInt(args[1]);
		CoapServer server = new CoapServer(config);
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setInetSocketAddress(new InetSocketAddress(args[0], port)).build());
		DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(config).setAddress(new InetSocketAddress(args[0], port + 1));
		AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
		keys.setKey("password", "sesame".getBytes(StandardCharsets.UTF_8));
		dtls.setAdvancedPskStore(keys);
		KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
		generator.initialize(new ECGenParameterSpec("secp256r1"));
		KeyPair own = generator.generateKeyPair();
		dtls.setCertificateIdentityProvider(new SingleCertificateProvider(own.getPrivate(), own.getPublic()));
		dtls.setAdvancedCertificateVerifier(StaticNewAdvancedCertificateVerifier.builder().setTrustAllRPKs().build());
		server.addEndpoint(CoapEndpoint.builder().setConfiguration(config).setConnector(new DTLSConnector(dtls.build())).build());
		Timer timer = new Timer(true);
		StringBuilder large = new StringBuilder();
		for (int i = 0; i < 20; i++) {
			large.append(String.format("line %2d of a representation in blocks ------------------------\n", i));
		}
		byte[] lines = large.toString().getBytes(StandardCharsets.UTF_8);
		Any observed = observed("obs", Type.CON, 16, timer);
		Any test = fixed("test", "test").put(code(ResponseCode.CHANGED)).delete(code(ResponseCode.DELETED)).post(x -> {
			x.setLocationPath("location1/location2/location3");
			x.respond(ResponseCode.CREATED);
		});
		Any segments = new Any("seg1");
		Any second = new Any("seg2");
		second.add(fixed("seg3", "long path"));
		segments.add(second);
		Any path = new Any("path").attribute("ct", "40").get(x -> x.respond(ResponseCode.CONTENT, "</path/sub1>,</path/sub2>", 40));
		path.add(fixed("sub1", "/path/sub1"));
		path.add(fixed("sub2", "/path/sub2"));
		Any separate = new Any("separate").get(x -> {
			x.accept();
			timer.schedule(new TimerTask() {

				@Override
				public void run() {
					x.respond(ResponseCode.CONTENT, "later", 0);
				}
			}, 1000);
		});
		for (Resource one : new Resource[] { test, segments, path, separate, observed, fixed("query", "query"),
				fixed("large", large.toString()).attribute("sz", "1280"), stored("large-update", lines), validate(), create(), largeCreate(),
				new Any("large-post").post(x -> x.respond(ResponseCode.CHANGED, x.getRequestText().toUpperCase(), 0)),
				new Any("location-query").post(x -> {
					x.setLocationQuery("first=1&second=2");
					x.respond(ResponseCode.CREATED);
				}), new Any("multi-format").get(x -> {
					boolean xml = x.getRequestOptions().isAccept(41);
					x.respond(ResponseCode.CONTENT, xml ? "<test/>" : "test", xml ? 41 : 0);
				}), new Any("link1").attribute("rt", "Type1", "Type2").attribute("if", "If1"),
				new Any("link2").attribute("rt", "Type2", "Type3").attribute("if", "If2"),
				new Any("link3").attribute("rt", "Type1", "Type3").attribute("if", "foo"), observed("obs-non", Type.NON, 16, timer),
				observed("obs-large", Type.CON, 160, timer), observed("obs-pumping", Type.CON, 130, timer),
				new Any("obs-reset").post(x -> {
					observed.clearObserveRelations();
					x.respond(ResponseCode.CHANGED);
				}) }) {
			server.add(one);
		}
		server.start();
		System.out.println("READY");
		while (System.in.read() >= 0) {
			// until its end
		}
		System.exit(0);
	}
}
