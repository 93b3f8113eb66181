package gateway_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// framedConn reads one whole message of a stream at a time, and not a byte more.
type framedConn struct{ net.Conn }

func (c framedConn) Read(b []byte) (int, error) {
	if _, err := io.ReadFull(c.Conn, b[:4]); err != nil {
		return 0, net.ErrClosed
	}
	size := 20 + int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>6 == 1 {
		size = 4 + (int(binary.BigEndian.Uint16(b[2:]))+3)&^3
	}
	if _, err := io.ReadFull(c.Conn, b[4:size]); err != nil {
		return 0, net.ErrClosed
	}
	return size, nil
}

var tcpTransport = raw(stun.AttrRequestedTransport, 6, 0, 0, 0)

// dialRelay has a peer connect to the relay address, and returns the connection with the id that the client gets.
func dialRelay(t *testing.T, control *turnClient, relay netip.AddrPort) (conn net.Conn, id []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", relay.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m := &stun.Message{Raw: control.receive()}
	if err := m.Decode(); err != nil || m.Type != stun.NewType(stun.MethodConnectionAttempt, stun.ClassIndication) {
		t.Fatalf("%v: %v", m, err)
	}
	return conn, connectionID(t, m)
}

func connectionID(t testing.TB, m *stun.Message) []byte {
	t.Helper()
	id, err := m.Get(stun.AttrConnectionID)
	if err != nil || len(id) != 4 {
		t.Fatalf("no connection id in %v", m)
	}
	return id
}

// bindData makes a data connection (RFC 6062 §4.3); early is sent with the request, before its answer.
func (c *turnClient) bindData(server netip.AddrPort, id []byte, early string) *net.TCPConn {
	c.t.Helper()
	return c.bindOver(connectStream(c.t, server, false), id, early).(*net.TCPConn)
}

func (c *turnClient) bindOver(conn net.Conn, id []byte, early string) net.Conn {
	c.t.Helper()
	buf := make([]byte, 4096)
	for range 3 {
		m, err := stun.Build(stun.TransactionID, stun.NewType(stun.MethodConnectionBind, stun.ClassRequest), raw(stun.AttrConnectionID, id...),
			stun.NewUsername(c.user), stun.NewRealm(c.realm), stun.NewNonce(c.nonce), stun.NewLongTermIntegrity(c.user, c.realm, c.pass))
		if err != nil {
			c.t.Fatal(err)
		}
		if _, err := conn.Write(append(m.Raw, early...)); err != nil {
			c.t.Fatal(err)
		}
		n, err := framedConn{conn}.Read(buf)
		answer := &stun.Message{Raw: buf[:n]}
		if err != nil || answer.Decode() != nil {
			c.t.Fatalf("ConnectionBind: %v", err)
		}
		var nonce stun.Nonce
		switch code := codeOf(answer); {
		case code == 0:
			return conn
		case code != 438 || nonce.GetFrom(answer) != nil:
			c.t.Fatalf("ConnectionBind was answered %d", code)
		}
		c.nonce = nonce.String()
	}
	c.t.Fatal("ConnectionBind: no nonce is good")
	return nil
}

// relayTCP makes a client with a TCP relay that 127.0.0.1 may reach.
func relayTCP(t *testing.T) (*gateway.Gateway, netip.AddrPort, *turnClient, netip.AddrPort) {
	return relayOver(t, gateway.TCP)
}

func relayOver(t *testing.T, protocol gateway.Protocol) (*gateway.Gateway, netip.AddrPort, *turnClient, netip.AddrPort) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(protocol, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
	control := newClient(t, framedConn{connectStream(t, server, protocol == gateway.TLS)})
	answer := control.must(stun.MethodAllocate, tcpTransport)
	var relay stun.XORMappedAddress
	if err := relay.GetFromAs(answer, stun.AttrXORRelayedAddress); err != nil {
		t.Fatal(err)
	}
	control.must(stun.MethodCreatePermission, peerAttr(netip.MustParseAddrPort("127.0.0.1:0")))
	return g, server, control, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(relay.Port))
}

// exchangeHalfClosed sends data both ways, each end closing its direction when it has sent all.
func exchangeHalfClosed(t *testing.T, a, b *net.TCPConn, early string) {
	t.Helper()
	up, down := make([]byte, 1<<20), make([]byte, 1<<20)
	for i := range up {
		up[i], down[i] = byte(rand.Int()), byte(rand.Int())
	}
	_ = a.SetDeadline(time.Now().Add(20 * time.Second))
	_ = b.SetDeadline(time.Now().Add(20 * time.Second))
	failed := make(chan error, 1)
	go func() {
		_, err := a.Write(up)
		failed <- errors.Join(err, a.CloseWrite())
	}()
	got, err := io.ReadAll(b) // ends with a's half
	if err != nil || !bytes.Equal(got, append([]byte(early), up...)) {
		t.Fatalf("%d bytes of %d came to the peer: %v", len(got), len(early)+len(up), err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := b.Write(down)
		failed <- errors.Join(err, b.CloseWrite())
	}()
	if got, err = io.ReadAll(a); err != nil || !bytes.Equal(got, down) {
		t.Fatalf("%d bytes of %d came back: %v", len(got), len(down), err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// TestTCPRelayPassive: a peer connects to the relay address; the client is notified, binds, and both ends exchange a megabyte
// each with half-closes. A peer without a permission is reset.
func TestTCPRelayPassive(t *testing.T) {
	g, server, control, relay := relayTCP(t)
	conn, id := dialRelay(t, control, relay)
	data := control.bindData(server, id, "")
	exchangeHalfClosed(t, data, conn.(*net.TCPConn), "")
	netlabtest.Eventually(t, "the data connection ends with both halves", func() bool { return g.Stats().Listeners[0].Connections == 1 })
	if s := g.Stats(); s.Totals.Up.Bytes != 1<<20 || s.Totals.Down.Bytes != 1<<20 {
		t.Errorf("counted %+v", s.Totals)
	}
	stranger, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", relay.String())
	if err == nil { // else the reset was faster
		_ = stranger.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = stranger.Read(make([]byte, 1))
		_ = stranger.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a peer without permission: %v", err)
	}
	netlabtest.Eventually(t, "and is counted", func() bool { return g.Stats().Reasons["no_permission"] == 1 })
}

// A route that is gone for a moment ends no connection: what either side sends meanwhile waits, and arrives when the route is back.
// The peer's end comes through then as well.
func TestTCPRelayOutlivesARouteThatIsGone(t *testing.T) {
	g, server, control, relay := relayTCP(t)
	conn, id := dialRelay(t, control, relay)
	data := control.bindData(server, id, "")
	write := func(to net.Conn, text string) {
		t.Helper()
		if _, err := io.WriteString(to, text); err != nil {
			t.Fatal(err)
		}
	}
	read := func(from net.Conn, want string) {
		t.Helper()
		got := make([]byte, len(want))
		_ = from.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
			t.Fatalf("%q arrived, %v; want %q", got, err, want)
		}
	}
	write(data, "before")
	read(conn, "before")
	with := streamConfig(gateway.TCP, "127.0.0.1", server.Port())
	without := streamConfig(gateway.TCP, "127.0.0.1", server.Port())
	for i := range without.Clusters {
		without.Clusters[i].Endpoints = []string{"10.0.0.1"}
	}
	if change := apply(t, g, without); change.Connections != 1 {
		t.Errorf("%+v", change)
	}
	write(data, "held up")
	write(conn, "held down")
	for _, end := range []net.Conn{conn, data} {
		_ = end.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // nothing is to come, for however long
		if n, err := end.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v while the route is gone", n, err)
		}
	}
	if change := apply(t, g, with); change.Resumed < 1 {
		t.Errorf("%+v", change)
	}
	read(conn, "held up")
	read(data, "held down")
	_ = conn.Close()
	ended(t, data)
}

// TestTCPRelayActive: Connect reaches the peer from the relay address; data that comes with the bind request is not lost; a
// second Connect to the same peer is refused; the end of the allocation ends its data connections.
func TestTCPRelayActive(t *testing.T) {
	g, server, control, relay := relayTCP(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	peer := listener.Addr().(*net.TCPAddr).AddrPort()
	id := connectionID(t, control.must(stun.MethodConnect, peerAttr(peer)))
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if from := conn.RemoteAddr().(*net.TCPAddr).AddrPort(); from != relay {
		t.Errorf("the peer sees %v, want the relay address %v", from, relay)
	}
	if code := codeOf(control.request(stun.MethodConnect, peerAttr(peer))); code != 446 {
		t.Errorf("a second Connect was answered %d, want 446", code)
	}
	data := control.bindData(server, id, "early")
	got := make([]byte, 5)
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "early" {
		t.Errorf("the peer got %q: %v", got, err)
	}
	_ = listener.Close()
	if code := codeOf(control.request(stun.MethodConnect, peerAttr(netip.AddrPortFrom(peer.Addr(), netlabtest.UDPPort(t))))); code != 447 {
		t.Errorf("a Connect to no one was answered %d, want 447", code)
	}
	control.must(stun.MethodRefresh, lifetime(0))
	ended(t, data)
	ended(t, conn)
	netlabtest.Eventually(t, "only the control connection is left", func() bool { return g.Stats().Listeners[0].Connections == 1 })
	control.must(stun.MethodAllocate, tcpTransport) // which may go on
}

// A ConnectionBind that is refused leaves its connection as it was, whether the id is known or not, and with it all that came
// before and after the request; the limits still count it.
func TestTCPRelayBindRefused(t *testing.T) {
	g, server, control, relay := relayTCP(t)
	peer, id := dialRelay(t, control, relay)
	for name, id := range map[string][]byte{"unknown": {1, 2, 3, 4}, "known": id} {
		conn := connectStream(t, server, false)
		bind := stun.MustBuild(stun.TransactionID, stun.NewType(stun.MethodConnectionBind, stun.ClassRequest), raw(stun.AttrConnectionID, id...)).Raw
		before, after := stun.MustBuild(stun.TransactionID, stun.BindingRequest).Raw, stun.MustBuild(stun.TransactionID, stun.BindingRequest).Raw
		if _, err := conn.Write(append(append(append([]byte(nil), before...), bind...), after[:7]...)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		next := func(want []byte) int {
			t.Helper()
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			n, err := framedConn{conn}.Read(buf)
			answer := &stun.Message{Raw: buf[:n]}
			if err != nil || answer.Decode() != nil || !bytes.Equal(answer.TransactionID[:], want[8:20]) {
				t.Fatalf("%s: answer %v, %v", name, answer, err)
			}
			return codeOf(answer)
		}
		if code := next(before); code != 0 {
			t.Errorf("%s: the message before was answered %d", name, code)
		}
		if code := next(bind); code == 0 {
			t.Errorf("%s: bound without credentials", name)
		}
		if _, err := conn.Write(after[7:]); err != nil {
			t.Fatal(err)
		}
		if code := next(after); code != 0 {
			t.Errorf("%s: the message after was answered %d", name, code)
		}
		if n := g.Stats().Listeners[0].Connections; n != 2 {
			t.Errorf("%s: %d connections are counted", name, n)
		}
		_ = conn.Close()
		netlabtest.Eventually(t, "it is gone", func() bool { return g.Stats().Listeners[0].Connections == 1 })
	}
	exchangeHalfClosed(t, control.bindData(server, id, ""), peer.(*net.TCPConn), "") // of the peer's, as ever
}

// A data connection over TLS carries a megabyte each way, the bytes that came with its request first.
func TestTCPRelayOverTLS(t *testing.T) {
	g, server, control, relay := relayOver(t, gateway.TLS)
	conn, id := dialRelay(t, control, relay)
	data := control.bindOver(connectStream(t, server, true), id, "early")
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(rand.Int())
	}
	for _, way := range [][2]net.Conn{{data, conn}, {conn, data}} {
		go func() { _, _ = way[0].Write(want) }()
		expect := want
		if way[0] == data {
			expect = append([]byte("early"), want...)
		}
		got := make([]byte, len(expect))
		_ = way[1].SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, expect) {
			t.Fatalf("%v", err)
		}
	}
	_ = data.Close()
	ended(t, conn)
	_ = conn.Close()
	netlabtest.Eventually(t, "only the control connection is left", func() bool { return g.Stats().Listeners[0].Connections == 1 })
}
