package gateway_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// cutConn sends what is written in pieces, or all of several writes at once.
type cutConn struct {
	*net.TCPConn
	piece int // bytes; 0: hold
	held  []byte
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.piece == 0 {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	for at := 0; at < len(b); at += c.piece {
		if _, err := c.TCPConn.Write(b[at:min(at+c.piece, len(b))]); err != nil {
			return at, err
		}
	}
	return len(b), nil
}

func dialTCP(t *testing.T, server netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// However the network cuts the records of a client, its messages are handled; in TLS 1.2 and 1.3.
func TestTLSRecordsCut(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.TLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
	peer := listenUDP(t, peerAddress)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, piece := range []int{1, 7, 1000} {
			cut := &cutConn{TCPConn: dialTCP(t, server), piece: piece}
			client := newClient(t, framedConn{tls.Client(cut, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})})
			client.allocate()
			client.bind(0x4001, addrOf(peer))
			long := string(bytes.Repeat([]byte("long"), 10000)) // several records
			for _, payload := range []string{"four", long, "", "last"} {
				client.send(0x4001, payload)
			}
			buf := make([]byte, 1<<16)
			_ = peer.SetReadDeadline(time.Now().Add(20 * time.Second))
			n, from, err := peer.ReadFromUDPAddrPort(buf)
			if err != nil || string(buf[:n]) != "four" {
				t.Fatalf("%d bytes a write: %q, %v", piece, buf[:n], err)
			}
			if n, err = peer.Read(buf); err != nil || string(buf[:n]) != long {
				t.Fatalf("%d bytes a write: %d bytes, %v", piece, n, err)
			}
			for _, want := range []string{"", "last"} {
				if n, err := peer.Read(buf); err != nil || string(buf[:n]) != want {
					t.Fatalf("%d bytes a write: %q, %v; want %q", piece, buf[:n], err, want)
				}
			}
			if _, err := peer.WriteToUDPAddrPort([]byte(long), from); err != nil {
				t.Fatal(err)
			}
			client.wantChannelData(0x4001, long)
			_ = client.conn.Close()
		}
	}
	netlabtest.Eventually(t, "nothing is left", func() bool { return g.Stats().Listeners[0].Connections == 0 })
}

// A request that comes in one piece with the end of the client's handshake is answered: no more bytes follow that would announce it.
func TestTLSRequestWithFinished(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	start(t, streamConfig(gateway.TLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 1})
	cut := &cutConn{TCPConn: dialTCP(t, server), piece: 1 << 16}
	conn := tls.Client(&holdAfterHello{cutConn: cut}, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := conn.Handshake(); err != nil { // the client's Finished is held
		t.Fatal(err)
	}
	request := stun.MustBuild(stun.TransactionID, stun.BindingRequest)
	if _, err := conn.Write(request.Raw); err != nil {
		t.Fatal(err)
	}
	if _, err := cut.TCPConn.Write(cut.held); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, 20)
	if _, err := io.ReadFull(conn, head); err != nil || !bytes.Equal(head[8:], request.TransactionID[:]) {
		t.Errorf("%x, %v", head, err)
	}
}

// holdAfterHello sends the first write, the hello, and holds the others.
type holdAfterHello struct{ *cutConn }

func (c *holdAfterHello) Write(b []byte) (int, error) {
	n, err := c.cutConn.Write(b)
	c.piece = 0
	return n, err
}

// User data that a client over TLS does not read is dropped before it is encrypted: what was taken arrives whole and in order
// when it reads again, and other clients are served meanwhile.
func TestTLSSlowClient(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.TLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 1})
	gate := &gatedConn{Conn: framedConn{connectStream(t, server, true)}}
	slow, peer := newClient(t, gate), listenUDP(t, peerAddress)
	slow.allocate()
	slow.bind(0x4001, addrOf(peer))
	gate.Lock()
	payload := make([]byte, 1200)
	for sent := uint32(0); g.Stats().Reasons["queue_full"] < 100; sent++ {
		binary.BigEndian.PutUint32(payload, sent)
		if _, err := peer.WriteToUDPAddrPort(payload, slow.relays[0]); err != nil {
			t.Fatal(err)
		}
	}
	binding(t, connectStream(t, server, true))
	gate.Unlock()
	last := -1
	for range 100 {
		b := slow.receive()
		if n := int(binary.BigEndian.Uint32(b[4:])); len(b) != 1204 || n <= last {
			t.Fatalf("%d bytes, number %d after %d", len(b), n, last)
		} else {
			last = n
		}
	}
	slow.must(stun.MethodRefresh, lifetime(600))
}

// gatedConn is read, but for what is being read already, only while no program holds its lock.
type gatedConn struct {
	net.Conn
	sync.Mutex
}

func (c *gatedConn) Read(b []byte) (int, error) {
	c.Lock()
	c.Unlock() //nolint:staticcheck // a gate
	return c.Conn.Read(b)
}
