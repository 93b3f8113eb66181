package udpnat

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// flood is a NAT with one worker whose time the test sets, between clients on the loopback network, whose datagrams the
// test makes up, and two backends.
type flood struct {
	t        *testing.T
	now      time.Duration
	d        *Datapath
	w        *worker
	vip      netip.AddrPort
	backends map[netip.AddrPort]*net.UDPConn
	owner    [3]netip.AddrPort // of sessions, by node id
}

func newFlood(t *testing.T, entries int) *flood {
	f := &flood{t: t, vip: netlabtest.UDPAddress(t), backends: map[netip.AddrPort]*net.UDPConn{}}
	var err error
	if f.d, err = Open(Config{Workers: 1, MaxEntries: entries, BackendTimeout: Never, Now: func() time.Duration { return f.now }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.d.Close() })
	service := lb.ServiceSpec{
		Name: "nat", VIPs: ListenSpec(f.vip), Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(30 * time.Second)},
		CID: &lb.CIDSpec{Protocols: []lb.CIDProtocol{lb.CIDProtocol(cid.DTLS12)}, Layouts: []lb.LayoutSpec{{Length: 6, Owner: &lb.BitsSpec{Bits: 8}}}},
	}
	for node := range uint32(2) {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetReadBuffer(4 << 20)
		at := netip.MustParseAddrPort(conn.LocalAddr().String())
		f.backends[at], f.owner[node+1] = conn, at
		b := BackendSpec(fmt.Sprintf("b%d", node+1), at)
		b.Nodes = []uint32{node + 1}
		service.Backends = append(service.Backends, b)
	}
	snapshot, err := lb.Compile(lb.Spec{MaglevSize: 251, Services: []lb.ServiceSpec{service}}, nil, Caps())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.d.Apply(snapshot); err != nil {
		t.Fatal(err)
	}
	f.w = f.d.workers[0]
	return f
}

// clientAddress is one of 4 million addresses that all are this host's.
func clientAddress(network byte, n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, network, byte(n >> 8), byte(n)}), uint16(5000+n>>16))
}

// send steers one datagram of a client and returns the entry it has then, nil if it has none.
func (f *flood) send(client netip.AddrPort, payload string) *entry {
	f.w.fromClient(f.w.listeners[0], client, f.vip.Addr(), []byte(payload), f.now)
	return f.w.table.byKey[flow.NewKey(client, f.vip, flow.ProtoUDP)]
}

// arrives reads what a backend got up to this payload, and says where it came from.
func (f *flood) arrives(e *entry, payload string) netip.AddrPort {
	f.t.Helper()
	conn, buffer := f.backends[e.dest.addr], make([]byte, 1500)
	_ = conn.SetReadDeadline(time.Now().Add(15 * time.Second))
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			f.t.Fatalf("the backend did not get %q: %v", payload, err)
		}
		if string(buffer[:n]) == payload {
			return from
		}
	}
}

// reply is the backend's answer to what came from there; the entry must be the client's still.
func (f *flood) reply(e *entry, from netip.AddrPort) {
	f.t.Helper()
	if _, err := f.backends[e.dest.addr].WriteToUDPAddrPort([]byte("reply"), from); err != nil {
		f.t.Fatal(err)
	}
	before := f.w.counters.Backwarded
	for end := time.Now().Add(15 * time.Second); f.w.counters.Backwarded == before; runtime.Gosched() {
		if f.w.readEntry(e, f.now); time.Now().After(end) {
			f.t.Fatal("the reply did not come")
		}
	}
	f.w.flush()
}

func record(t *testing.T, node byte, n int) string {
	b, err := hex.DecodeString(fmt.Sprintf("19fefd0001%012x%02x0a0b0c0d0e0004%08x", n, node, n))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The review's flood of spoofed datagrams, and ten times that, for two seconds of virtual time. Entries and rates are a
// tenth, so that each entry has the same time to be answered: 10,000 entries and 12,000 or 120,000 datagrams per second.
// Round trips to the backends take 40 ms.
func TestFloodOfSpoofedDatagrams(t *testing.T) {
	for _, perSecond := range []int{1_200, 12_000} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			const entries, old, rtt, length = 1000, 30, 40, 2000 // ms
			f := newFlood(t, entries)
			payload := func(n int) string { return fmt.Sprintf("client %d", n) }
			for i := range old {
				e := f.send(clientAddress(1, i), payload(i))
				f.reply(e, f.arrives(e, payload(i)))
			}
			type pending struct {
				client netip.AddrPort
				from   netip.AddrPort
				moved  bool
			}
			due := map[int][]pending{}
			tried, answered, moved, kept := 0, 0, 0, 0
			for ms := range length + rtt + 1 {
				f.now = time.Second + time.Duration(ms)*time.Millisecond
				for _, p := range due[ms] {
					e := f.w.table.byKey[flow.NewKey(p.client, f.vip, flow.ProtoUDP)]
					if e == nil {
						continue
					}
					f.reply(e, p.from)
					if p.moved {
						kept++
					} else {
						answered++
					}
				}
				if ms >= length {
					continue
				}
				for i := range perSecond / 1000 {
					f.send(clientAddress(2, ms*perSecond/1000+i), "flood")
				}
				if perSecond%1000 != 0 && ms%5 == 0 {
					f.send(clientAddress(3, ms), "flood")
				}
				if ms%10 == 0 { // a new client
					client := clientAddress(4, ms)
					tried++
					if e := f.send(client, payload(ms)); e != nil {
						due[ms+rtt] = append(due[ms+rtt], pending{client: client, from: f.arrives(e, payload(ms))})
					}
				}
				if ms%10 == 5 { // a session from another address
					client, node := clientAddress(5, ms), byte(1+ms%20/10)
					moved++
					e := f.send(client, record(t, node, ms))
					if e == nil || e.dest.addr != f.owner[node] {
						t.Fatalf("at %d ms: the moved session of node %d has entry %+v", ms, node, e)
					}
					due[ms+rtt] = append(due[ms+rtt], pending{client: client, from: f.arrives(e, record(t, node, ms)), moved: true})
				}
				f.w.runDue(f.now)
			}
			if answered*100 < tried*95 {
				t.Errorf("%d of %d new clients were answered", answered, tried)
			}
			if kept != moved {
				t.Errorf("%d of %d moved sessions were answered", kept, moved)
			}
			opened := f.w.counters.Opened
			for i := range old {
				e := f.send(clientAddress(1, i), payload(i))
				f.reply(e, f.arrives(e, payload(i)))
			}
			if n := f.w.counters.Opened - opened; n != 0 {
				t.Errorf("%d of %d old flows lost their entry", n, old)
			}
			s := f.d.Stats()
			if s.Entries > entries || s.Counters.EntriesFull != 0 || s.Counters.Evicted == 0 {
				t.Errorf("%d entries of %d, %d refused, %d evicted", s.Entries, entries, s.Counters.EntriesFull, s.Counters.Evicted)
			}
			t.Logf("new %d of %d, moved %d of %d, evicted %d", answered, tried, kept, moved, s.Counters.Evicted)
		})
	}
}

// A flood on a table full of proven entries causes a walk for expired ones every 10 ms, not with each datagram: the walk
// finds what has expired, so an entry whose time is over is replaced at the next walk and no earlier.
func TestFloodWalksAtALimitedRate(t *testing.T) {
	const idle = 30 * time.Second
	f := newFlood(t, 1)
	e := f.send(clientAddress(1, 0), "old")
	f.reply(e, f.arrives(e, "old"))
	for _, step := range []struct {
		at       time.Duration
		admitted bool
	}{
		{idle - 5*time.Millisecond, false},
		{idle + time.Millisecond, false},
		{idle + 4*time.Millisecond, false},
		{idle + 5*time.Millisecond, true},
	} {
		f.now = step.at
		if e := f.send(clientAddress(2, 0), "new"); (e != nil) != step.admitted {
			t.Errorf("after %v: admitted is %t", step.at, e != nil)
		}
	}
}

// The list of a table with more entries than one step looks at is complete, in order, and each step is bounded.
func TestEntriesInSteps(t *testing.T) {
	const n = 3*entriesPerStep + 10
	f := newFlood(t, 2*n)
	for i := range n {
		f.now = time.Duration(i) * time.Second / 100
		f.send(clientAddress(1, i), "x")
	}
	if f.w.close(f.w.table.byKey[flow.NewKey(clientAddress(1, 300), f.vip, flow.ProtoUDP)]); f.w.table.tokens.Size() != n {
		t.Fatalf("%d slots", f.w.table.tokens.Size())
	}
	list := f.d.Entries(2 * n)
	seen := map[netip.AddrPort]bool{}
	for i, e := range list {
		if seen[e.Client] || i > 0 && e.Idle > list[i-1].Idle || !e.Outgoing.IsValid() {
			t.Fatalf("entry %d: %+v", i, e)
		}
		seen[e.Client] = true
	}
	if len(list) != n-1 || seen[clientAddress(1, 300)] {
		t.Errorf("%d entries listed of %d", len(list), n-1)
	}
	if steps := f.d.pause.Count(); steps != 4 {
		t.Errorf("%d pauses of a list of 4 steps", steps)
	}
	if few := f.d.Entries(5); len(few) != 5 || few[0] != list[0] {
		t.Errorf("the first five: %+v", few)
	}
}
