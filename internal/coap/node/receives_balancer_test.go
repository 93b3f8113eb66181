package node

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coap "github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// oneWay is how long a datagram takes in virtual time.
const oneWay = 20 * time.Millisecond

// balanced is a client's socket, a balancer with real sockets, and a server behind it, all three with the clock of one synctest bubble:
//
//	client.Receive ─► balanced.Write ─ oneWay ─► UDP ─► udpnat.Datapath ─► UDP ─► offline server
//	               ◄─ net.Pipe ─────── oneWay ◄─ UDP ◄─ udpnat.Datapath ◄─ UDP ◄──────┘
//
// A datagram passes the balancer while time stands still: a goroutine that waits for a socket, or for a channel made outside of the
// bubble, keeps it from going on.
type balanced struct {
	net.Conn                 // the client's end of a pipe, with virtual deadlines
	balancer net.Conn        // its end of the pipe
	socket   coap.RawLink    // to the balancer
	clock    *atomic.Int64   // of the balancer
	query    chan<- struct{} // made outside of the bubble, as what follows
	counters <-chan udpnat.Counters
	backend  *net.UDPConn
	server   *offline
	start    time.Time
	busy     chan struct{} // held by the datagram that is on the way
}

// Write sends a datagram on its way.
func (b *balanced) Write(datagram []byte) (int, error) {
	datagram = bytes.Clone(datagram)
	go func() {
		time.Sleep(oneWay)
		b.busy <- struct{}{}
		answer := b.carry(datagram)
		<-b.busy
		if answer != nil {
			time.Sleep(oneWay)
			_, _ = b.balancer.Write(answer) // an error: the test has ended
		}
	}()
	return len(datagram), nil
}

// Close ends the connection.
func (b *balanced) Close() error {
	return errors.Join(b.Conn.Close(), b.balancer.Close(), b.socket.Close())
}

// carry takes a datagram to the server, and its answer back to the client's socket; nil: the balancer has lost one of them.
func (b *balanced) carry(datagram []byte) []byte {
	now := time.Since(b.start)
	b.clock.Store(int64(now))
	before := b.count()
	if _, err := b.socket.Write(datagram); err != nil {
		b.server.t.Error(err)
		return nil
	}
	after := b.count()
	for after.Received == before.Received {
		after = b.count()
	}
	if after.LostForward > before.LostForward {
		return nil
	}
	buffer := make([]byte, 2048)
	n, from, err := b.backend.ReadFromUDPAddrPort(buffer)
	if err != nil {
		b.server.t.Error(err)
		return nil
	}
	b.server.now = time.Second + now
	answers := b.server.send(buffer[:n], from)
	if len(answers) != 1 {
		b.server.t.Errorf("%d answers to %x", len(answers), datagram)
		return nil
	}
	if _, err := b.backend.WriteToUDPAddrPort(answers[0], from); err != nil {
		b.server.t.Error(err)
		return nil
	}
	for before = after; after.Backwarded+after.LostBackward == before.Backwarded+before.LostBackward; {
		after = b.count()
	}
	if after.LostBackward > before.LostBackward {
		return nil
	}
	if n, err = b.socket.Read(buffer); err != nil {
		b.server.t.Error(err)
		return nil
	}
	return buffer[:n]
}

func (b *balanced) count() udpnat.Counters {
	b.query <- struct{}{}
	return <-b.counters
}

// openBalancer runs a balancer as weir nat does, with one worker and the clock, in front of a socket.
func openBalancer(t *testing.T, clock *atomic.Int64, faults udpnat.Faults) (nat *udpnat.Datapath, vip netip.AddrPort, backend *net.UDPConn) {
	t.Helper()
	backend, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	nat, err = udpnat.Open(udpnat.Config{Workers: 1, Faults: faults, Now: func() time.Duration { return time.Duration(clock.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	vip = netlabtest.UDPAddress(t)
	snapshot, err := lb.Compile(lb.Spec{MaglevSize: 251, Services: []lb.ServiceSpec{{
		Name: "nat", VIPs: udpnat.ListenSpec(vip), Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(30 * time.Second)},
		Backends: []lb.BackendSpec{udpnat.BackendSpec("server", backend.LocalAddr().(*net.UDPAddr).AddrPort())},
	}}}, nil, udpnat.Caps())
	if err == nil {
		err = nat.Apply(snapshot)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- nat.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		nat.Close()     //nolint:errcheck // nothing depends on it
		backend.Close() //nolint:errcheck // nothing depends on it
	})
	return nat, vip, backend
}

// Ten minutes of virtual time, a request every second, through the balancer of weir nat, which loses 5 % each way: what the receive test
// counts as lost requests and as lost responses is what the balancer has dropped, each way and in each minute's sum.
func TestReceiveThroughALossyBalancerInVirtualTime(t *testing.T) {
	var clock atomic.Int64
	nat, vip, backend := openBalancer(t, &clock, udpnat.Faults{Seed: 7, LossForward: 5, LossBackward: 5})
	query, counters := make(chan struct{}), make(chan udpnat.Counters)
	defer close(query)
	go func() {
		for range query {
			counters <- nat.Stats().Counters
		}
	}()
	server := newOffline(t, false, nil)
	ledger := coap.NewLedger("device", time.Minute)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := coap.Receive(t.Context(), coap.ReceiveConfig{
			URI: "coap://" + vip.String() + "/requests", Count: 600,
			Under: func(socket coap.RawLink) coap.RawLink {
				client, balancer := net.Pipe()
				return &balanced{
					Conn: client, balancer: balancer, socket: socket, clock: &clock, query: query, counters: counters,
					backend: backend, server: server, start: start, busy: make(chan struct{}, 1),
				}
			},
		}, ledger, func(*coap.Ledger) {})
		if took := time.Since(start); err != nil || took < 599*time.Second || took > 700*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
	c, want := ledger.Totals, nat.Stats().Counters
	t.Logf("%+v", c)
	if c.Sent < 600 || c.Sent != want.Received || c.LostRequests != want.LostForward || c.LostResponses != want.LostBackward || c.Unknown != 0 || len(ledger.Open) != 0 ||
		c.Sent != c.Answered+c.LostRequests+c.LostResponses {
		t.Errorf("%+v, the balancer received %d and lost %d there and %d back", c, want.Received, want.LostForward, want.LostBackward)
	}
	if c.LostRequests < 10 || c.LostResponses < 10 {
		t.Errorf("too few losses to distinguish: %+v", c)
	}
	if n := len(ledger.Buckets); n < 10 || n > 12 {
		t.Errorf("%d minutes", n)
	}
	const rtt = float64(2 * oneWay / time.Millisecond)
	for _, b := range ledger.Buckets {
		if b.RTTMax != rtt || b.RTTSum != rtt*float64(b.Answered) {
			t.Errorf("round-trip times of the minute at %v are not %v ms: %+v", b.Start, rtt, b)
		}
	}
	if want.Opened != 1 || want.Expired != 0 {
		t.Errorf("%d entries opened, %d expired, want one that stays", want.Opened, want.Expired)
	}
	clock.Add(int64(31 * time.Second)) // the balancer's time-outs are of the same clock
	netlabtest.Eventually(t, "the entry expires", func() bool { return nat.Stats().Counters.Expired == 1 }, func() string { s := nat.Stats(); return s.Info() })
}
