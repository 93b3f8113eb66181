package udpnat_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// onBackend returns a client whose flow is on backend i.
func (f *fixture) onBackend(i int) *client {
	f.t.Helper()
	for range 200 {
		c := f.client()
		if c.exchange("where") == i {
			return c
		}
	}
	f.t.Fatalf("no client got to backend %d", i)
	return nil
}

// unanswered sends n datagrams to a mute backend, each until it got there.
func (f *fixture) unanswered(c *client, b *backend, n int) {
	f.t.Helper()
	f.datapath.Stats() // with an offload, what was sent before the last count of answers is taken as answered
	for i := range n {
		before := b.count()
		var again time.Time
		f.eventually("it got there", func() bool {
			if now := time.Now(); now.After(again) {
				c.send([]byte(text(i)))
				again = now.Add(testTimeout / 4) // dropped by the kernel, where others flood the machine
			}
			return b.count() > before
		})
	}
}

// A silent backend turns stale within seconds; its clients move with their next datagram.
func TestSilentBackendIsLeft(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	c := f.onBackend(0)
	stays := f.onBackend(1)
	f.backends[0].mute.Store(true)
	f.unanswered(c, f.backends[0], 3)
	f.advance(1900 * time.Millisecond)
	if f.state(f.backends[0]) != udpnat.Active {
		t.Fatal("stale too early")
	}
	f.advance(200 * time.Millisecond)
	f.eventually("stale", func() bool { return f.state(f.backends[0]) == udpnat.Stale })
	f.eventually("out of the snapshot", func() bool { return f.do("info") != "" && f.datapath.Stats().Generation == 2 })
	if got := c.exchange("anyone"); got != 1 {
		t.Fatalf("backend %d answered", got)
	}
	stays.exchange("undisturbed")
	for range 20 {
		if f.client().exchange("new") != 1 {
			t.Fatal("a new client got to the stale one")
		}
	}
	info := f.do("")
	if !strings.Contains(info, "1 destinations, 1 stale destinations.") || !strings.Contains(info, "Stale destination: "+f.backends[0].name) {
		t.Fatalf("info:\n%s", info)
	}
	if n := f.counters().BackendTimeouts; n != 1 {
		t.Fatalf("counted %d", n)
	}
}

// Fewer datagrams than the limit wait for the whole time-out, and any reply stops the clock.
func TestFewUnansweredWaitLonger(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	c := f.onBackend(0)
	f.backends[0].mute.Store(true)
	f.unanswered(c, f.backends[0], 1)
	f.advance(14 * time.Second)
	if f.state(f.backends[0]) != udpnat.Active {
		t.Fatal("stale after one datagram and 14 s")
	}
	f.backends[0].mute.Store(false)
	c.exchange("stops the clock")
	f.advance(14 * time.Second)
	f.backends[0].mute.Store(true)
	f.unanswered(c, f.backends[0], 1)
	f.advance(16 * time.Second)
	f.eventually("stale", func() bool { return f.state(f.backends[0]) == udpnat.Stale })
}

func TestStaleIsProbedAndRevived(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	dead := f.backends[0]
	c := f.onBackend(0)
	dead.mute.Store(true)
	f.unanswered(c, dead, 3)
	f.advance(3 * time.Second)
	f.eventually("stale", func() bool { return f.state(dead) == udpnat.Stale })
	f.eventually("applied", func() bool { return f.datapath.Stats().Generation == 2 })
	c.exchange("moved")

	f.advance(15 * time.Second)
	f.eventually("probing", func() bool { return f.state(dead) == udpnat.Probing })
	before := dead.count()
	probe := f.client()
	probe.send([]byte("the next new flow tries it"))
	f.eventually("pending", func() bool { return f.state(dead) == udpnat.Pending && dead.count() == before+1 })
	if f.client().exchange("others do not") != 1 || c.exchange("old ones do not") != 1 {
		t.Fatal("sent to a pending backend")
	}
	f.advance(3 * time.Second)
	f.eventually("silent, stale again", func() bool { return f.state(dead) == udpnat.Stale })
	if probe.exchange("the probing client is let go") != 1 {
		t.Fatal("black-holed")
	}

	f.advance(15 * time.Second)
	f.eventually("probing", func() bool { return f.state(dead) == udpnat.Probing })
	dead.mute.Store(false)
	second := f.client()
	if second.exchange("it answers") != 0 {
		t.Fatal("not tried")
	}
	f.eventually("active", func() bool { return f.state(dead) == udpnat.Active })
	f.eventually("back in the snapshot", func() bool { return f.datapath.Stats().Generation == 3 })
	if second.exchange("and keeps the client") != 0 {
		t.Fatal("the reviving flow moved")
	}
	f.onBackend(0)
	if c.exchange("those that moved stay") != 1 {
		t.Fatal("moved back")
	}
}

// No program listens: the network says so, and a connected socket receives the error at once.
func TestRefusalIsSilence(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	c := f.onBackend(0)
	f.backends[0].conn.Close()
	f.eventually("the client moves without the clock", func() bool {
		c.send([]byte("x"))
		return f.state(f.backends[0]) == udpnat.Stale
	})
	f.eventually("answered by the other", func() bool { return f.datapath.Stats().Generation == 2 })
	c.send([]byte("x"))
	if got, err := c.receive(); err != nil || got[0] != 1 {
		t.Fatalf("got %q, %v", got, err)
	}
	if f.counters().Refused == 0 {
		t.Fatal("not counted")
	}
}

// What a stranger sends and no server answers proves nothing about the server; the stranger itself may try another one.
func TestJunkTakesNoBackendDown(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	first := f.onBackend(0)
	f.backends[0].mute.Store(true) // to junk
	var junk []*client
	before, forwarded := f.backends[0].count(), f.counters().Forwarded
	for range 40 {
		c := f.client()
		for i := range 3 {
			c.send([]byte(text(i)))
		}
		junk = append(junk, c)
	}
	f.eventually("sent", func() bool { return f.counters().Forwarded == forwarded+120 })
	f.eventually("junk got there", func() bool { return f.backends[0].count() >= before+3 })
	f.advance(5 * time.Second)
	f.advance(5 * time.Second)
	if f.state(f.backends[0]) != udpnat.Active || f.counters().BackendTimeouts != 0 {
		t.Fatal("junk took a backend down")
	}
	answers := 0
	for _, c := range junk {
		c.send([]byte("once more"))
		for {
			got, err := c.receive()
			if err != nil {
				t.Fatalf("a client without answers stayed where no program answers: %v", err)
			}
			if string(got[1:]) == "once more" {
				answers++
				break
			}
		}
	}
	if answers != len(junk) {
		t.Fatalf("%d of %d", answers, len(junk))
	}
	f.backends[0].mute.Store(false)
	if first.exchange("undisturbed") != 0 {
		t.Fatal("an old client moved")
	}
}

func TestLastBackendStays(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	c := f.client()
	c.exchange("x")
	f.backends[0].mute.Store(true)
	f.unanswered(c, f.backends[0], 5)
	f.advance(time.Hour)
	f.advance(20 * time.Second)
	f.backends[0].mute.Store(false)
	c.exchange("still there")
	if f.state(f.backends[0]) != udpnat.Active || f.counters().BackendTimeouts != 0 {
		t.Fatal("the last one turned stale")
	}
}

// silence makes backend i stale, and has it taken out.
func (f *fixture) silence(i int) {
	f.t.Helper()
	b, generation := f.backends[i], f.datapath.Stats().Generation
	c := f.onBackend(i)
	b.mute.Store(true)
	f.unanswered(c, b, 3)
	f.advance(3 * time.Second)
	f.eventually("out of the snapshot", func() bool { return f.datapath.Stats().Generation == generation+1 })
	c.exchange("moved")
}

// with changes the spec in force.
func (f *fixture) with(change func(*lb.Spec)) {
	f.t.Helper()
	spec, _ := f.intent.Spec()
	spec.Services = slices.Clone(spec.Services)
	spec.Services[0].Backends = slices.Clone(spec.Services[0].Backends)
	change(&spec)
	if err := f.intent.SetSpec(spec); err != nil {
		f.t.Fatal(err)
	}
}

// A stale backend that gets another address is not held to what the old one left unanswered.
func TestNewAddressIsNotStale(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	f.silence(0)
	moved := newBackend(t, 2)
	f.with(func(s *lb.Spec) {
		name := s.Services[0].Backends[0].Name
		s.Services[0].Backends[0] = udpnat.BackendSpec(name, moved.addr)
	})
	f.eventually("the new address is in use", func() bool { return f.client().exchange("new") == 2 })
	f.advance(16 * time.Second)
	f.advance(time.Second)
	for range 20 {
		f.client().exchange("nobody tries the old address")
	}
}

// A backend that left the configuration while it was silent comes back like any other.
func TestStaleBackendLeavesAndReturns(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	f.silence(0)
	generation := f.datapath.Stats().Generation
	var gone lb.BackendSpec
	f.with(func(s *lb.Spec) {
		gone = s.Services[0].Backends[0]
		s.Services[0].Backends = s.Services[0].Backends[1:]
	})
	f.eventually("its override lifted", func() bool { return f.datapath.Stats().Generation == generation+2 })
	f.backends[0].mute.Store(false)
	f.with(func(s *lb.Spec) { s.Services[0].Backends = append(s.Services[0].Backends, gone) })
	f.onBackend(0)
}

// Where no one ever answers (log and telemetry by UDP) silence says nothing: no backend is taken out, and a flow that
// looked for one that answers comes to rest.
func TestOneWayServiceKeepsItsBackends(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 3)
	var clients []*client
	for _, b := range f.backends {
		b.mute.Store(true)
	}
	for range 12 {
		clients = append(clients, f.client())
	}
	sent := uint64(0)
	round := func() {
		for range 4 {
			for _, c := range clients {
				c.send([]byte("line"))
				sent++
			}
		}
		f.eventually("sent", func() bool { return f.counters().Forwarded == sent })
		f.advance(5 * time.Second)
	}
	for range 12 {
		round()
	}
	for _, b := range f.backends {
		if f.state(b) != udpnat.Active {
			t.Fatalf("%s is %v", b.name, f.state(b))
		}
	}
	assignments := func() map[netip.AddrPort]netip.AddrPort {
		all := map[netip.AddrPort]netip.AddrPort{}
		for _, e := range f.datapath.Entries(100) {
			all[e.Client] = e.Addr
		}
		return all
	}
	before := assignments()
	round()
	round()
	if after := assignments(); len(after) != len(clients) || !maps.Equal(before, after) {
		t.Fatalf("flows still move: %v, then %v", before, after)
	}
}

// A backend that the kernel will not send to is silent too, and not a hole for its share of the clients.
func TestUnreachableBackendIsLeft(t *testing.T) {
	nowhere := netip.MustParseAddrPort("255.255.255.255:9") // refused by the kernel without SO_BROADCAST
	for _, unconnected := range []bool{false, true} {
		f := start(t, udpnat.Config{Workers: 1, Unconnected: unconnected}, 1, func(s *lb.Spec) {
			s.Services[0].Backends = append(s.Services[0].Backends, udpnat.BackendSpec("nowhere", nowhere))
		})
		f.eventually("taken out", func() bool {
			f.client().send([]byte("x"))
			return f.datapath.Stats().Generation == 2
		})
		for range 20 {
			f.client().exchange("all go to the other one")
		}
		f.advance(16 * time.Second)
		probing := func(b udpnat.Backend) bool { return b.Name == "nowhere" && b.State == udpnat.Probing }
		f.eventually("probing", func() bool { return slices.ContainsFunc(f.datapath.Stats().Backends, probing) })
		f.client().send([]byte("it is tried again, once"))
		f.eventually("tried", func() bool { return !slices.ContainsFunc(f.datapath.Stats().Backends, probing) })
		for range 20 {
			f.client().exchange("but is no hole")
		}
	}
}

// Replies alone keep a flow where it is: a draining backend may notify for long before the client sends again.
func TestRepliesKeepTheFlow(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	c := f.onBackend(0)
	f.do("drain " + f.backends[0].name)
	for i := range 4 {
		f.advance(20 * time.Second)
		if _, err := f.backends[0].conn.WriteToUDPAddrPort([]byte(text(i)), f.backends[0].lastFrom()); err != nil {
			t.Fatal(err)
		}
		if got, err := c.receive(); err != nil || string(got) != text(i) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if got := c.exchange("still yours?"); got != 0 {
		t.Fatalf("backend %d has the flow now", got)
	}
}

func TestWatchOff(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, BackendTimeout: udpnat.Never}, 2)
	c := f.onBackend(0)
	f.backends[0].mute.Store(true)
	f.unanswered(c, f.backends[0], 5)
	f.advance(20 * time.Second)
	f.advance(5 * time.Second)
	f.backends[0].mute.Store(false)
	if c.exchange("x") != 0 {
		t.Fatal("moved")
	}
}

// Rebalance makes stale backends active, gives everyone a new choice and says how many took another one.
func TestRebalance(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	var clients []*client
	for range 40 {
		clients = append(clients, f.client())
	}
	clients = append(clients, f.onBackend(0))
	for _, c := range clients {
		c.exchange("x")
	}
	dead := f.backends[0]
	dead.mute.Store(true)
	f.unanswered(clients[40], dead, 3)
	f.advance(3 * time.Second)
	f.eventually("stale", func() bool { return f.datapath.Stats().Generation == 2 })
	for _, c := range clients {
		if c.exchange("all on one") != 1 {
			t.Fatal("not moved")
		}
	}
	dead.mute.Store(false)
	answer := f.do("rebalance")
	if !strings.HasPrefix(answer, "reassigned ") || !strings.HasSuffix(answer, " destinations of "+itoa(f.datapath.Stats().Entries)+".") {
		t.Fatal(answer)
	}
	moved := 0
	for _, c := range clients {
		moved += 1 - c.exchange("where")
	}
	if moved < 5 || moved > 36 {
		t.Fatalf("%d of %d clients on the backend that is back", moved, len(clients))
	}
}
