package engine

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/udpio"
)

// late is a pair whose other end is set once its socket is open.
type late struct {
	mu sync.Mutex
	pair
}

func (l *late) Foreign(w *Worker, owner uint32, d []byte, from netip.AddrPort, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pair.Foreign(w, owner, d, from, now)
}

func (l *late) set(other netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = other
}

func openNode(t *testing.T, owner uint32, workers int, c Cluster) *Engine {
	t.Helper()
	return openNodeAt(t, "127.0.0.1:0", owner, workers, c)
}

func openNodeAt(t *testing.T, listen string, owner uint32, workers int, c Cluster) *Engine {
	t.Helper()
	e, err := Open(Config{
		Listen: netip.MustParseAddrPort(listen), Link: netip.MustParseAddrPort("127.0.0.1:0"),
		Workers: workers, CIDs: ByteOwnerCIDs(6, owner), Cluster: c, NewHandler: func(*Worker) Handler { return new(mirror) },
		PSK: func([]byte) ([]byte, bool) { return []byte("key"), true },
	})
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, e.Run)
	return e
}

// connectUDP makes a session over a socket.
func connectUDP(t *testing.T, conn *net.UDPConn, to netip.AddrPort) *device {
	t.Helper()
	c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: true})
	if err != nil {
		t.Fatal(err)
	}
	d := &device{scratch: new(record.Scratch)}
	send := func(b []byte) {
		if _, err := conn.WriteToUDPAddrPort(b, to); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(0, send)
	b := make([]byte, 2048)
	for {
		if done, err := c.Done(); err != nil {
			t.Fatal(err)
		} else if done {
			d.a = c.Result().Association
			return d
		}
		if err := conn.SetReadDeadline(time.Now().Add(4 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b)
		if err != nil { // dropped by the kernel, where others flood the machine: until the client gives up
			c.Timeout(d.scratch, 0, send)
			continue
		}
		c.Receive(d.scratch, b[:n], 0, send)
	}
}

// Two nodes of real sockets, the link with segmentation both ways: records that
// reach the wrong node are answered through it, of whatever length.
func TestForwardingOverSockets(t *testing.T) {
	for _, workers := range []int{1, 3} {
		one, two := &late{pair: pair{owner: 2}}, &late{pair: pair{owner: 1}}
		nodeOne, nodeTwo := openNode(t, 1, workers, one), openNode(t, 2, workers, two)
		one.set(nodeTwo.LinkAddr())
		two.set(nodeOne.LinkAddr())
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var devices []*device
		for range 5 {
			devices = append(devices, connectUDP(t, conn, nodeTwo.Addr()))
		}
		b := make([]byte, 4096)
		for round := range 30 {
			for _, d := range devices {
				if _, err := conn.WriteToUDPAddrPort(d.seal(bytes.Repeat([]byte{byte(round)}, 1+37*round)), nodeOne.Addr()); err != nil {
					t.Fatal(err)
				}
			}
			for range devices {
				if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				n, from, err := conn.ReadFromUDPAddrPort(b)
				if err != nil {
					t.Fatalf("round %d: %v; %+v; %+v", round, err, nodeOne.Stats(), nodeTwo.Stats())
				}
				if from != nodeOne.Addr() {
					t.Fatalf("an answer from %v", from)
				}
				got := 0
				for _, d := range devices {
					if d.open(bytes.Clone(b[:n])) == string(bytes.Repeat([]byte{byte(round)}, 1+37*round)) {
						got++
					}
				}
				if got != 1 {
					t.Fatalf("round %d: an answer of %d bytes is for %d devices", round, n, got)
				}
			}
		}
		// Frames find the worker of their session without its help.
		if s := nodeTwo.Stats(); s.HandedOver != 0 || s.Injected == 0 {
			t.Errorf("%d workers: %d of %d frames handed over", workers, s.HandedOver, s.Injected)
		}
	}
}

// On a wildcard socket the answer that comes back through the router leaves from
// the address that the client has sent to, as with a balancer's address on lo.
func TestRouterAnswersFromTheAddressRequested(t *testing.T) {
	for _, workers := range []int{1, 3} {
		one, two := &late{pair: pair{owner: 2}}, &late{pair: pair{owner: 1}}
		nodeOne, nodeTwo := openNodeAt(t, "0.0.0.0:0", 1, workers, one), openNode(t, 2, workers, two)
		one.set(nodeTwo.LinkAddr())
		two.set(nodeOne.LinkAddr())
		first, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		d := connectUDP(t, first, nodeTwo.Addr())
		b := make([]byte, 2048)
		for _, target := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
			// Connected: it receives from no other address.
			conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(target), nodeOne.Addr().Port())))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(d.seal([]byte("hello"))); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(b)
			if err != nil || d.open(b[:n]) != "hello" {
				t.Fatalf("%d workers, asked at %s: %v; %+v", workers, target, err, nodeOne.Stats())
			}
		}
	}
}

// oneWay forwards, but answers itself.
type oneWay struct{ late }

func (o *oneWay) Return(*Worker, []byte, int, []byte, netip.AddrPort, netip.AddrPort) (int, bool) {
	return 0, false
}

// An owner that answers directly does so from the address that the client knows it by.
func TestOwnerAnswersFromTheAddressItIsKnownBy(t *testing.T) {
	one, two := &oneWay{late{pair: pair{owner: 2}}}, &oneWay{late{pair: pair{owner: 1}}}
	nodeOne, nodeTwo := openNode(t, 1, 1, one), openNodeAt(t, "0.0.0.0:0", 2, 1, two)
	one.set(nodeTwo.LinkAddr())
	two.set(nodeOne.LinkAddr())
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	known := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), nodeTwo.Addr().Port())
	d := connectUDP(t, conn, known)
	if _, err := conn.WriteToUDPAddrPort(d.seal([]byte("hello")), nodeOne.Addr()); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2048)
	n, from, err := conn.ReadFromUDPAddrPort(b)
	if err != nil || d.open(b[:n]) != "hello" || from != known {
		t.Fatalf("%v, from %v, want %v; %+v", err, from, known, nodeTwo.Stats())
	}
}

func TestNoAllocationPerNote(t *testing.T) {
	r := newReturns()
	local := netip.MustParseAddr("192.0.2.1")
	r.note(addr(1), local)
	if n := testing.AllocsPerRun(100, func() { r.note(addr(1), local); r.local(addr(1)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if got := r.local(addr(2)); got.IsValid() {
		t.Errorf("an unknown client is answered from %v", got)
	}
	for i := range 10 * returnSlots { // newer ones take the place of older ones
		r.note(addr(i), local)
	}
	if got := r.local(addr(10*returnSlots - 1)); got != local {
		t.Errorf("the newest is answered from %v", got)
	}
}

// Records that reach the wrong worker are handed over: here the kernel's hash
// and the connection id's hint disagree, for the handshake's port is another.
func TestManyWorkersManyPorts(t *testing.T) {
	e := openNode(t, 1, 4, &pair{owner: 2})
	for range 10 {
		first, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		d := connectUDP(t, first, e.Addr())
		b := make([]byte, 1<<16)
		for round := range 5 {
			conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(e.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			// A record in clear before it: no steering program finds the connection id.
			request := bytes.Repeat([]byte("hello"), 1+800*round) // up to all that a datagram may hold
			hidden := append(record.AppendPlain(nil, record.ChangeCipherSpec, 9, []byte{1}), d.seal(request)...)
			if _, err := conn.Write(hidden); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(b)
			if err != nil || d.open(b[:n]) != string(request) {
				t.Fatalf("%d bytes: %v; %+v", len(request), err, e.Stats())
			}
			conn.Close()
		}
	}
}

// What the kernel drops is counted, on the link as well.
func TestKernelDropsOfTheLink(t *testing.T) {
	e, err := Open(Config{
		Listen: netip.MustParseAddrPort("127.0.0.1:0"), Link: netip.MustParseAddrPort("127.0.0.1:0"),
		Workers: 1, CIDs: ByteOwnerCIDs(6, 1), Cluster: &pair{owner: 2}, NewHandler: func(*Worker) Handler { return new(mirror) },
		PSK: func([]byte) ([]byte, bool) { return nil, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	defer e.Run(ended) //nolint:errcheck // closes the sockets
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(e.LinkAddr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 4 * socketBuffer / 8192 { // each takes more than its length of the buffer
		if _, err := conn.Write(make([]byte, 8192)); err != nil {
			t.Fatal(err)
		}
	}
	l := e.loops[0]
	// The counter travels with datagrams that find room afterwards.
	for range 200 {
		if err := l.read(); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("one more")); err != nil {
			t.Fatal(err)
		}
	}
	l.publish()
	if e.Stats().KernelDrops == 0 {
		t.Error("no drops counted")
	}
}

// arrives waits until the quiet socket has something: on a busy machine loopback delivers after the send has returned.
func arrives(t *testing.T, l *loop, busyLink bool) {
	t.Helper()
	poller, err := udpio.NewPoller(1)
	if err != nil {
		t.Fatal(err)
	}
	defer poller.Close()
	quiet := l.link
	if busyLink {
		quiet = l.public
	}
	if err := poller.AddConn(quiet, 1); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		n, _, err := poller.Wait(make([]uint64, 1), 20*time.Second)
		if err != nil || n == 0 && time.Now().After(end) {
			t.Fatalf("nothing came to the quiet socket: %v", err)
		}
		if n > 0 {
			return
		}
	}
}

// A socket that always has more to read does not keep the other one waiting.
func TestNeitherSocketStarvesTheOther(t *testing.T) {
	for _, busyLink := range []bool{false, true} {
		e, err := Open(Config{
			Listen: netip.MustParseAddrPort("127.0.0.1:0"), Link: netip.MustParseAddrPort("127.0.0.1:0"),
			Workers: 1, CIDs: ByteOwnerCIDs(6, 1), Cluster: &pair{owner: 2}, NewHandler: func(*Worker) Handler { return new(mirror) },
			PSK: func([]byte) ([]byte, bool) { return nil, false },
		})
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		defer e.Run(ended) //nolint:errcheck // closes the sockets
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		busy, quiet := e.Addr(), e.LinkAddr()
		if busyLink {
			busy, quiet = quiet, busy
		}
		send := func(n int, to netip.AddrPort) {
			for range n {
				if _, err := conn.WriteToUDPAddrPort([]byte("some junk that is no frame"), to); err != nil {
					t.Fatal(err)
				}
			}
		}
		l := e.loops[0]
		answered := func() bool {
			if busyLink {
				return l.worker.stats.Datagrams > 0
			}
			return l.link.Stats().Received > 0
		}
		send(200, busy)
		if err := l.read(); err != nil {
			t.Fatal(err)
		}
		send(1, quiet)
		arrives(t, l, busyLink)
		for round := 0; !answered(); round++ {
			if round == 20 {
				t.Fatalf("busy link %t: the other socket was not read in %d rounds", busyLink, round)
			}
			send(64, busy)
			if err := l.read(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
