package gateway_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// connectStream connects over TCP, or TLS where secure, without asking who the server is.
func connectStream(t testing.TB, server netip.AddrPort, secure bool) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if !secure {
		return conn
	}
	encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := encrypted.Handshake(); err != nil {
		t.Fatal(err)
	}
	return encrypted
}

// ended waits until the other side closes the connection.
func ended(t testing.TB, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("the server keeps the connection")
		}
	}
}

// TestStreamJunk: what is no TURN ends the connection, is counted by its reason, and others are served meanwhile.
func TestStreamJunk(t *testing.T) {
	for _, protocol := range []gateway.Protocol{gateway.TCP, gateway.TLS} {
		server := netlabtest.UDPAddress(t)
		g := start(t, streamConfig(protocol, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
		secure := protocol == gateway.TLS
		good := connectStream(t, server, secure)
		binding(t, good)
		for reason, junk := range map[string]string{
			"stream_not_turn":   "\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03\x03",
			"stream_long_frame": "GET /index.html HTTP/1.1\r\n\r\n",
		} {
			conn := connectStream(t, server, secure)
			if _, err := conn.Write([]byte(junk)); err != nil {
				t.Fatal(err)
			}
			ended(t, conn)
			netlabtest.Eventually(t, reason, func() bool { return g.Stats().Reasons[reason] == 1 })
		}
		if secure { // and below TLS
			conn := connectStream(t, server, false)
			_, _ = conn.Write(bytes.Repeat([]byte("no TLS either\n"), 100))
			ended(t, conn)
			netlabtest.Eventually(t, "the handshake fails", func() bool { return g.Stats().Reasons["handshake_failed"] == 1 })
		}
		binding(t, good)
		_ = good.Close()
		netlabtest.Eventually(t, "nothing is left", func() bool { return g.Stats().Listeners[0].Connections == 0 })
	}
}

// TestHandshakeFlood: clients that begin a handshake and leave it there cannot keep others out, nor be more than allowed.
func TestHandshakeFlood(t *testing.T) {
	const limit, flood = 16, 200
	server := netlabtest.UDPAddress(t)
	c := streamConfig(gateway.TLS, "127.0.0.1", server.Port())
	c.Limits.Handshakes = limit
	g := start(t, c, gateway.Options{Workers: 2})
	established := connectStream(t, server, true)
	for i := range flood {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%8))} // few prefixes with many each
		conn, err := net.DialTCP("tcp", from, net.TCPAddrFromAddrPort(server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	netlabtest.Eventually(t, "the flood is turned away", func() bool {
		s := g.Stats()
		return s.Reasons["handshake_refused"]+s.Reasons["handshake_evicted"] >= flood-limit
	})
	netlabtest.Eventually(t, "no more connections are left than allowed", func() bool { return g.Stats().Listeners[0].Connections <= limit+1 })
	binding(t, established)
	binding(t, connectStream(t, server, true)) // a new one, from an address of its own
}

// TestDTLSFlood: hellos without cookies leave nothing behind, those with one no more than the limit, while others are served.
func TestDTLSFlood(t *testing.T) {
	const limit, sources = 8, 64
	server := netlabtest.UDPAddress(t)
	c := streamConfig(gateway.DTLS, "127.0.0.1", server.Port())
	c.Limits.Handshakes = limit
	g := start(t, c, gateway.Options{Workers: 2})
	from := listenUDP(t, "127.0.0.1")
	established := dialDTLS(t, from, server)
	binding(t, established)
	hellos := captureHello(t)
	flood := listenUDP(t, "127.0.0.2")
	buf := make([]byte, 2048)
	for range 5000 {
		if _, err := flood.WriteToUDPAddrPort(hellos, server); err != nil {
			t.Fatal(err)
		}
		_ = flood.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := flood.Read(buf); err == nil && n > len(hellos) {
			t.Fatalf("an answer of %d bytes to %d", n, len(hellos))
		}
	}
	if s := g.Stats(); s.Listeners[0].Connections != 1 || s.Reasons["dtls_cookie_sent"] < 1000 {
		t.Errorf("%d connections after a flood without cookies, counted %v", s.Listeners[0].Connections, s.Reasons)
	}
	var clients sync.WaitGroup
	for i := range sources { // with cookies: the client stops after its second hello
		clients.Go(func() {
			address := netip.AddrFrom4([4]byte{127, 0, 2, byte(1 + i%4)}).String()
			conn := listenUDP(t, address)
			half, _ := dtls.ClientWithOptions(&halfClient{PacketConn: conn}, net.UDPAddrFromAddrPort(server), dtls.WithInsecureSkipVerify(true))
			_ = half.Handshake()
		})
	}
	netlabtest.Eventually(t, "the flood is turned away", func() bool {
		s := g.Stats()
		return s.Reasons["handshake_refused"]+s.Reasons["handshake_evicted"] >= sources-limit
	})
	clients.Wait()
	netlabtest.Eventually(t, "no more connections are left than allowed", func() bool { return g.Stats().Listeners[0].Connections <= limit+1 })
	binding(t, established)
	binding(t, dialDTLS(t, listenUDP(t, "127.0.0.1"), server))
}

// captureHello returns the first datagram of a DTLS client.
func captureHello(t *testing.T) []byte {
	client, server := listenUDP(t, "127.0.0.1"), listenUDP(t, "127.0.0.1")
	conn, err := dtls.ClientWithOptions(client, server.LocalAddr(), dtls.WithInsecureSkipVerify(true))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = conn.Handshake() }()
	buf := make([]byte, 2048)
	n, err := server.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	<-done
	return buf[:n]
}

// halfClient is the socket of a client that leaves when it has shown its cookie.
type halfClient struct{ net.PacketConn }

func (c *halfClient) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := c.PacketConn.WriteTo(b, to)
	const session = 13 + 12 + 34 // where a ClientHello has the length of its session id, then that of its cookie
	if len(b) > session+1+int(b[session]) && b[session+1+int(b[session])] > 0 {
		_ = c.PacketConn.Close()
	}
	return n, err
}

// TestCertificateSwap: a reload shows another certificate to new connections, over TLS and DTLS, and open ones go on. A bad
// one is refused with its reason and changes nothing.
func TestCertificateSwap(t *testing.T) {
	for _, protocol := range []gateway.Protocol{gateway.TLS, gateway.DTLS} {
		server := netlabtest.UDPAddress(t)
		c := streamConfig(protocol, "127.0.0.1", server.Port())
		c.Listeners[0].SelfSigned = false
		c.Listeners[0].CertificatePEM, c.Listeners[0].KeyPEM = makeCertificate(t, "first", time.Hour)
		g := start(t, c, gateway.Options{Workers: 2})
		connect := func() (net.Conn, string) {
			if protocol == gateway.TLS {
				conn := connectStream(t, server, true)
				return conn, conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
			}
			conn := dialDTLS(t, listenUDP(t, "127.0.0.1"), server)
			state, _ := conn.ConnectionState()
			leaf, err := x509.ParseCertificate(state.PeerCertificates[0])
			if err != nil {
				t.Fatal(err)
			}
			return conn, leaf.Subject.CommonName
		}
		open, name := connect()
		if name != "first" {
			t.Fatalf("%s shows %q", protocol, name)
		}
		binding(t, open)
		bad := c
		bad.Listeners = append([]gateway.ListenerConfig(nil), c.Listeners...)
		bad.Listeners[0].CertificatePEM, bad.Listeners[0].KeyPEM = makeCertificate(t, "late", -time.Hour)
		if _, err := g.Apply(bad); err == nil {
			t.Error("a certificate that has ended was taken")
		}
		c.Listeners = append([]gateway.ListenerConfig(nil), c.Listeners...)
		c.Listeners[0].CertificatePEM, c.Listeners[0].KeyPEM = makeCertificate(t, "second", time.Hour)
		if _, err := g.Apply(c); err != nil {
			t.Fatal(err)
		}
		if _, name := connect(); name != "second" {
			t.Errorf("%s shows %q after the reload", protocol, name)
		}
		binding(t, open)
	}
}

// makeCertificate makes one that holds from two hours ago for another lifetime from now, as PEM.
func makeCertificate(t *testing.T, name string, lifetime time.Duration) (chain, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(lifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
