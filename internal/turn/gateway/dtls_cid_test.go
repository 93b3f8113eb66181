package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// movingClient is a DTLS client with a connection id whose address changes, as behind a NAT that forgets.
type movingClient struct {
	net.Conn // the first socket
	t        testing.TB
	server   netip.AddrPort
	session  *dtls.Session
	messages chan []byte
	closed   chan struct{}

	mu     sync.Mutex
	socket *net.UDPConn
	done   chan struct{} // closed when the goroutine of socket has ended
}

func newMovingClient(t testing.TB, server netip.AddrPort, routable bool) *movingClient {
	t.Helper()
	c := &movingClient{t: t, server: server, socket: listenUDP(t, "127.0.0.1"), messages: make(chan []byte, 1000), closed: make(chan struct{})}
	c.Conn = c.socket
	var trust atomic.Pointer[handshake.Credentials]
	trust.Store(&handshake.Credentials{TrustAll: true})
	var err error
	c.session, err = dtls.Shake(t.Context(), handshake.ClientConfig{
		Config: handshake.Config{Suites: record.CertificateSuites(), Credentials: &trust}, OfferCID: true, OfferRoutability: routable,
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.session.Result(); !r.HasCID || r.Routability != routable || len(r.Association.WriteCID()) == 0 {
		t.Fatalf("connection id %v of %d bytes, routability %v", r.HasCID, len(r.Association.WriteCID()), r.Routability)
	}
	_ = c.socket.SetReadDeadline(time.Time{})
	c.receive(c.socket)
	return c
}

// Send implements dtls.Wire.
func (c *movingClient) Send(datagram []byte) { _, _ = c.at().WriteToUDPAddrPort(datagram, c.server) }

// Receive implements dtls.Wire.
func (c *movingClient) Receive(deadline time.Time, handle func([]byte)) error {
	_ = c.socket.SetReadDeadline(deadline)
	b := make([]byte, 1<<16)
	n, err := c.socket.Read(b)
	if err == nil {
		handle(b[:n])
	}
	return err
}

func (c *movingClient) at() *net.UDPConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socket
}

// move goes on from another socket and returns the earlier one, which no program reads any more.
func (c *movingClient) move() *net.UDPConn {
	old, done := c.socket, c.done
	_ = old.SetReadDeadline(time.Now())
	<-done
	_ = old.SetReadDeadline(time.Time{})
	next := listenUDP(c.t, "127.0.0.1")
	c.mu.Lock()
	c.socket = next
	c.mu.Unlock()
	c.receive(next)
	return old
}

// receive reads a socket in a goroutine of its own.
func (c *movingClient) receive(from *net.UDPConn) {
	done := make(chan struct{})
	c.done = done
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			_ = c.session.Open(b[:n], func(m []byte) { c.messages <- bytes.Clone(m) }, c.Send)
		}
	}()
}

// Read implements net.Conn.
func (c *movingClient) Read(b []byte) (int, error) {
	select {
	case m := <-c.messages:
		return copy(b, m), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Write implements net.Conn.
func (c *movingClient) Write(m []byte) (int, error) {
	b := make([]byte, dtls.HeadRoom+len(m)+dtls.TailRoom)
	copy(b[dtls.HeadRoom:], m)
	sealed, err := c.session.Seal(b, len(m))
	if err == nil {
		c.Send(sealed)
	}
	return len(m), err
}

// Close implements net.Conn.
func (c *movingClient) Close() error {
	close(c.closed)
	if b, err := c.session.CloseNotify(); err == nil {
		c.Send(b)
	}
	return nil
}

// TestDTLSClientMoves: the allocation of a client with a connection id goes on at its new address, and another client may have the
// old one.
func TestDTLSClientMoves(t *testing.T) {
	for _, routable := range []bool{true, false} {
		t.Run(fmt.Sprint("routable ", routable), func(t *testing.T) {
			server := netlabtest.UDPAddress(t)
			g := start(t, streamConfig(gateway.DTLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
			moving := newMovingClient(t, server, routable)
			c := newClient(t, moving)
			c.allocate()
			peer := listenUDP(t, "127.0.0.1")
			c.must(stun.MethodChannelBind, channelNumber(0x4001), peerAttr(addrOf(peer)))
			for range 3 {
				there := exchangeData(t, c, peer)
				old := moving.move()
				exchangeData(t, c, peer)
				other := newClient(t, endedConn{dialDTLS(t, old, server)})
				other.allocate()
				if again := exchangeData(t, c, peer); again != there {
					t.Fatalf("the relay address was %v and is %v", there, again)
				}
				c.must(stun.MethodRefresh, lifetime(600))
				var mapped stun.XORMappedAddress
				answer := c.exchange(stun.MustBuild(stun.TransactionID, stun.BindingRequest))
				if err := mapped.GetFrom(answer); err != nil || mapped.Port != int(addrOf(moving.at()).Port()) {
					t.Fatalf("the client is at %v, the gateway says %v: %v", addrOf(moving.at()), mapped, err)
				}
			}
			if s := g.Stats(); s.Totals.Allocations != 4 || s.Totals.Opened != 4 || s.Reasons["dtls_replaced"] != 0 {
				t.Errorf("%+v", s.Totals)
			}
		})
	}
}

// endedConn has one error for every end of a connection.
type endedConn struct{ net.Conn }

func (c endedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = net.ErrClosed
	}
	return n, err
}

// TestDTLSMovedClientIsNotAmplified: until a client has shown that it receives at its new address, it gets three times what came from
// there; a request with its nonce shows it.
func TestDTLSMovedClientIsNotAmplified(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.DTLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
	moving := newMovingClient(t, server, false)
	c := newClient(t, moving)
	c.allocate()
	peer := listenUDP(t, "127.0.0.1")
	c.must(stun.MethodChannelBind, channelNumber(0x4001), peerAttr(addrOf(peer)))
	moving.move()
	relay := exchangeData(t, c, peer)
	const long = 50
	for range long {
		_, _ = peer.WriteToUDPAddrPort(make([]byte, 1000), relay)
	}
	netlabtest.Eventually(t, "the long datagrams are withheld", func() bool { return g.Stats().Reasons["dtls_unproven"] == long })
	c.must(stun.MethodRefresh, lifetime(600))
	_, _ = peer.WriteToUDPAddrPort(make([]byte, 1000), relay)
	select {
	case got := <-c.got:
		if len(got) != 1004 {
			t.Errorf("got %d bytes", len(got))
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing comes although the address is proven")
	}
	if s := g.Stats(); s.Reasons["dtls_unproven"] != long {
		t.Errorf("counted %v", s.Reasons)
	}
}

// exchangeData sends ChannelData up and down and returns the relay address that the peer sees.
func exchangeData(t *testing.T, c *turnClient, peer *net.UDPConn) netip.AddrPort {
	t.Helper()
	_, _ = c.conn.Write([]byte{0x40, 1, 0, 5, 'h', 'e', 'l', 'l', 'o'})
	_ = peer.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, 100)
	n, from, err := peer.ReadFromUDPAddrPort(b)
	if err != nil || string(b[:n]) != "hello" {
		t.Fatalf("the peer got %q: %v", b[:n], err)
	}
	_, _ = peer.WriteToUDPAddrPort([]byte("there"), from)
	select {
	case got := <-c.got:
		if string(got) != "\x40\x01\x00\x05there\x00\x00\x00" {
			t.Fatalf("the client got %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came back")
	}
	return from
}

// TestDTLSRefusedInFragments: a client whose hello comes in fragments and has no suite in common with the gateway is refused and
// counted. Others are served.
func TestDTLSRefusedInFragments(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.DTLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 1})
	socket, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		t.Fatal(err)
	}
	_, err = dtls.Dial(t.Context(), socket, handshake.ClientConfig{
		Config:   handshake.Config{Suites: []record.Suite{record.PSKWithAES128CCM8}, MTU: 128},
		Identity: []byte("device"), Key: []byte("key"), OfferCID: true, CID: make([]byte, 32),
	})
	var alert handshake.AlertError
	if !errors.As(err, &alert) || alert != 40 {
		t.Errorf("%v", err)
	}
	newClient(t, newMovingClient(t, server, true)).allocate()
	if n := g.Stats().Reasons["handshake_failed"]; n != 1 {
		t.Errorf("%d refused; %v", n, g.Stats().Reasons)
	}
}
