package udpnat_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestDatagramsPassWhole(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	c := f.client()
	for _, size := range []int{0, 1, 2048, 2049, 9000, 65506} {
		c.exchange(string(bytes.Repeat([]byte{'x'}, size)))
	}
	longest := bytes.Repeat([]byte{'y'}, 65507)
	c.send(longest)
	if got, err := c.receive(); err != nil || !bytes.Equal(got, longest) {
		t.Fatalf("of 65507 bytes %d came back, %v", len(got), err)
	}
}

// Each client has one address of its own in the eyes of the backend, until the entry is cleared.
func TestEntryIsAnAddress(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	a, b := f.client(), f.client()
	a.exchange("a")
	first := f.backends[0].lastFrom()
	b.exchange("b")
	if f.backends[0].lastFrom() == first {
		t.Fatal("two clients share an address")
	}
	for i := range 5 {
		a.exchange(text(i))
		if f.backends[0].lastFrom() != first {
			t.Fatal("the address changed")
		}
	}
	entries := f.datapath.Entries(10)
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2", len(entries))
	}
	found := false
	for _, e := range entries {
		if e.Outgoing == first {
			found = e.Client.Port() == uint16(a.conn.LocalAddr().(*net.UDPAddr).Port) && e.VIP == f.vip && e.Backend.Backend == f.backends[0].name
		}
	}
	if !found {
		t.Fatalf("entries %+v do not show client a behind %v", entries, first)
	}
	if got := f.do("clear"); got != "2 - NAT entries dropped." {
		t.Fatalf("clear said %q", got)
	}
	a.exchange("again")
	if f.backends[0].lastFrom() == first {
		t.Fatal("the address outlived the entry")
	}
}

func TestWildcardAndIPv6(t *testing.T) {
	port := netlabtest.UDPPort(t)
	f := start(t, udpnat.Config{}, 1, func(s *lb.Spec) {
		s.Services[0].VIPs = udpnat.ListenSpec(netip.AddrPortFrom(netip.Addr{}, port))
	})
	for _, host := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		c := newClient(t, netip.AddrPortFrom(netip.MustParseAddr(host), port)) // receives only from the address it sent to
		c.exchange("from " + host)
		c.exchange("again " + host)
	}
	if n := f.datapath.Stats().Entries; n != 3 {
		t.Fatalf("%d entries, want 3", n)
	}
}

// A stranger's datagrams reach no one and stop nothing, whatever the mode.
func TestStrangersAreHarmless(t *testing.T) {
	for _, mode := range []struct {
		name   string
		config udpnat.Config
		counts bool
	}{
		{"connected", udpnat.Config{Workers: 1}, false},
		{"unconnected", udpnat.Config{Workers: 1, Unconnected: true}, true},
		{"reverse", udpnat.Config{Workers: 1, Reverse: true}, true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			f := start(t, mode.config, 2)
			a, b := f.client(), f.client()
			a.exchange("a secret of client a")
			b.exchange("b")
			stranger, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer stranger.Close()
			const strays = 20
			for _, e := range f.datapath.Entries(10) {
				for i := range strays {
					_, _ = stranger.WriteToUDPAddrPort(make([]byte, i*100), e.Outgoing)
				}
			}
			if mode.counts {
				f.eventually("strays counted", func() bool { return f.counters().WrongRouted == 2*strays })
			}
			for i := range 5 {
				a.exchange("a" + text(i)) // ask fails on any other byte than its own
				b.exchange("b" + text(i))
			}
			a.nothing()
			b.nothing()
			if n := f.counters().Moved; n != 0 {
				t.Fatalf("%d entries moved to a stranger", n)
			}
		})
	}
}

// other answers the client of the last datagram of one backend from another one's socket.
func replyFromOther(from, of *backend, payload string) {
	_, _ = from.conn.WriteToUDPAddrPort([]byte(payload), of.lastFrom())
}

func TestReverseUpdate(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 2)
	c := f.client()
	owner := c.exchange("who")
	other := 1 - owner
	replyFromOther(f.backends[other], f.backends[owner], "early") // off: reaches nobody
	if got := c.exchange("still"); got != owner {
		t.Fatalf("moved to %d while off", got)
	}
	if got := f.do("reverse on"); got != "reverse address update enabled." {
		t.Fatal(got)
	}
	before := f.backends[owner].lastFrom()
	if got := c.exchange("still"); got != owner {
		t.Fatalf("moved to %d by the switch", got)
	}
	if f.backends[owner].lastFrom() != before {
		t.Fatal("the switch changed the outgoing address")
	}
	replyFromOther(f.backends[other], f.backends[owner], "from the other")
	got, err := c.receive()
	if err != nil || string(got) != "from the other" {
		t.Fatalf("got %q, %v", got, err)
	}
	if got := c.exchange("now"); got != other {
		t.Fatalf("asked %d, want the one that answered", got)
	}
	if s := f.counters(); s.WrongRouted != 1 || s.Moved != 1 {
		t.Fatalf("counters %+v", s)
	}
	// A backend that is down is no longer one of ours.
	if err := f.intent.SetOverrides(lb.FromOperator, map[lb.Target]lb.Override{{Service: "nat", Backend: f.backends[owner].name}: lb.OverrideDown}); err != nil {
		t.Fatal(err)
	}
	replyFromOther(f.backends[owner], f.backends[other], "from one that is down")
	f.eventually("counted", func() bool { return f.counters().WrongRouted == 2 })
	c.nothing()
	f.do("reverse off")
	if got := c.exchange("off"); got != other {
		t.Fatalf("asked %d after switching off", got)
	}
}

func TestEntryTimeout(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	idle, busy := f.client(), f.client()
	idle.exchange("x")
	busy.exchange("y")
	f.advance(20 * time.Second)
	busy.exchange("y")
	f.advance(15 * time.Second)
	f.eventually("the idle entry times out", func() bool { return f.datapath.Stats().Entries == 1 })
	if s := f.counters(); s.Expired != 1 {
		t.Fatalf("counters %+v", s)
	}
	if e := f.datapath.Entries(2); e[0].Client.Port() != uint16(busy.conn.LocalAddr().(*net.UDPAddr).Port) {
		t.Fatal("the wrong one timed out")
	}
	idle.exchange("back")
}

func TestEntryTimeoutNever(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1, func(s *lb.Spec) { s.Services[0].Timeouts.UDP = lb.Timeout(lb.Never) })
	f.client().exchange("x")
	f.advance(1000 * time.Hour)
	f.advance(time.Hour)
	if s := f.datapath.Stats(); s.Entries != 1 {
		t.Fatalf("%d entries", s.Entries)
	}
}

func TestEntryLimit(t *testing.T) {
	f := start(t, udpnat.Config{MaxEntries: 3}, 1)
	var kept []*client
	for range 3 {
		c := f.client()
		c.exchange("x")
		kept = append(kept, c)
	}
	if s := f.datapath.Stats(); s.Proven != 2 || s.Entries != 3 {
		t.Fatalf("%d of %d entries are proven; one of three shall be in reserve", s.Proven, s.Entries)
	}
	for i := range 20 {
		f.client().exchange(text(i)) // in the place of the one before
	}
	if s := f.datapath.Stats(); s.Proven != 2 || s.Entries > 3+2 || s.Counters.Evicted < 16 || s.Counters.EntriesFull != 0 {
		t.Fatalf("%+v", s)
	}
	moved := 0
	for _, c := range kept {
		before := f.counters().Opened
		c.exchange("still")
		moved += int(f.counters().Opened - before)
	}
	if moved > 1 {
		t.Errorf("%d of the two proven entries were evicted", moved-1)
	}
}

// A table of one entry has no reserve: its answered flow stays, and new ones are dropped and counted.
func TestEntryLimitOfOne(t *testing.T) {
	f := start(t, udpnat.Config{MaxEntries: 1, Workers: 1}, 1)
	kept, late := f.client(), f.client()
	kept.exchange("x")
	late.send([]byte("no room"))
	f.eventually("the second is dropped", func() bool { return f.counters().EntriesFull == 1 })
	late.nothing()
	kept.exchange("still")
	if r := f.datapath.Stats().Reasons["flow_table_full"]; r != 1 {
		t.Fatalf("reason counted %d times", r)
	}
	f.do("clear 1")
	late.exchange("now")
}

// Where one worker has nothing to evict, it goes beyond the bound by one, and the other worker evicts for it.
func TestWorkersShareTheBound(t *testing.T) {
	f := start(t, udpnat.Config{MaxEntries: 8, Workers: 2}, 1)
	f.backends[0].mute.Store(true)
	for i := range 40 {
		f.client().send([]byte(text(i)))
	}
	f.eventually("the flood is steered", func() bool { return f.counters().Received == 40 })
	f.backends[0].mute.Store(false)
	for i := range 30 {
		f.client().exchange(text(i))
	}
	// A worker that was not scheduled evicts late: until then the other one refuses a datagram, which its client repeats.
	if s := f.datapath.Stats(); s.Entries > 8+2 || s.Proven > 7 || s.Counters.EntriesFull > s.Counters.Received-70 {
		t.Errorf("%+v", s)
	}
}

// Out of descriptors, an entry without an answer gives way, and it is counted; one that was answered does not.
func TestDescriptorsRunOut(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	old, busy := f.client(), f.client()
	late, later := f.client(), f.client()
	f.backends[0].mute.Store(true)
	old.send([]byte("old"))
	f.eventually("the backend has it", func() bool { return f.backends[0].count() == 1 })
	f.backends[0].mute.Store(false)
	busy.exchange("busy")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	low := limit
	low.Cur = min(limit.Cur, 600)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var hoard []*os.File // every descriptor there is
	defer func() {
		for _, file := range hoard {
			file.Close()
		}
	}()
	for {
		file, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		hoard = append(hoard, file)
	}
	late.exchange("late") // in the place of the old one
	if s := f.counters(); s.Evicted != 1 || s.Exhausted != 1 {
		t.Fatalf("counters %+v", s)
	}
	later.exchange("later") // in the place of the late one: of two places one is in reserve
	if s := f.counters(); s.Evicted != 2 || s.Exhausted != 2 || s.SendErrors != 0 {
		t.Fatalf("counters %+v", s)
	}
	opened := f.counters().Opened
	busy.exchange("the busy one goes on")
	if f.counters().Opened != opened {
		t.Fatal("the entry that was answered gave way")
	}
	hoard[0].Close()
	hoard = hoard[1:]
	late.exchange("now")
	busy.exchange("still")
}

// A thousand clients at once: each gets its own bytes back, all backends take part, no client changes backend.
func TestThousandClients(t *testing.T) {
	f := start(t, udpnat.Config{}, 3)
	const clients, rounds = 1000, 4
	var group sync.WaitGroup
	var mu sync.Mutex
	used := map[int]int{}
	for i := range clients {
		c := f.client()
		group.Go(func() {
			first := -1
			for r := range rounds {
				payload := fmt.Sprintf("client %d round %d", i, r)
				answer, err := c.retry([]byte(payload))
				if err != nil || string(answer[1:]) != payload {
					t.Errorf("asked %q, got %q, %v", payload, answer, err)
					return
				}
				if first < 0 {
					first = int(answer[0])
				}
				if int(answer[0]) != first {
					t.Errorf("client %d moved from %d to %d", i, first, answer[0])
				}
			}
			mu.Lock()
			used[first]++
			mu.Unlock()
		})
	}
	group.Wait()
	for i := range f.backends {
		if used[i] < clients/6 {
			t.Errorf("backend %d got %d of %d clients", i, used[i], clients)
		}
	}
	if s := f.datapath.Stats(); s.Entries != clients || s.Counters.Opened != clients {
		t.Errorf("%d entries, %d opened", s.Entries, s.Counters.Opened)
	}
}

func TestAffinitySource(t *testing.T) {
	f := start(t, udpnat.Config{}, 5, func(s *lb.Spec) { a := lb.BySource; s.Services[0].Affinity = &a })
	want := f.client().exchange("x")
	for range 20 {
		if got := f.client().exchange("x"); got != want {
			t.Fatalf("one address went to %d and %d", want, got)
		}
	}
}

// By CID each record goes to the node that owns it, from whatever address, and the entry follows.
func TestAffinityCID(t *testing.T) {
	f := start(t, udpnat.Config{}, 3, func(s *lb.Spec) {
		var dtls lb.CIDProtocol
		if err := dtls.UnmarshalText([]byte("dtls12")); err != nil {
			t.Fatal(err)
		}
		s.Services[0].CID = &lb.CIDSpec{Protocols: []lb.CIDProtocol{dtls}, Layouts: []lb.LayoutSpec{{Length: 6, Owner: &lb.BitsSpec{Bits: 8}}}}
		for i := range s.Services[0].Backends {
			s.Services[0].Backends[i].Nodes = []uint32{uint32(i + 1)}
		}
	})
	c := f.client()
	for i := range 12 {
		node := i % 3
		record := []byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, byte(i), byte(node + 1), 1, 2, 3, 4, 5, 0, 3, 7, 7, 7}
		if got := c.exchange(string(record)); got != node {
			t.Fatalf("node id %d went to backend %d", node+1, got)
		}
		if got := f.client().exchange(string(record)); got != node {
			t.Fatalf("from a new address: node id %d went to backend %d", node+1, got)
		}
	}
}

// Ten thousand random datagrams at the VIP and at every outgoing port: no panic, tables bounded, service goes on.
func TestRandomDatagrams(t *testing.T) {
	f := start(t, udpnat.Config{MaxEntries: 50, Reverse: true}, 2)
	c := f.client()
	c.exchange("before")
	rng := rand.New(rand.NewPCG(1, 2))
	entries := f.datapath.Entries(1)
	strangers := make([]*net.UDPConn, 60)
	for i := range strangers {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		strangers[i] = conn
	}
	payload := make([]byte, 1500)
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	for i := range 10000 {
		start := rng.IntN(1000)
		b := payload[start : start+rng.IntN(500)]
		to := f.vip
		if i%2 == 0 {
			to = entries[0].Outgoing
		}
		_, _ = strangers[i/2%len(strangers)].WriteToUDPAddrPort(b, to)
	}
	f.eventually("traffic is counted", func() bool { return f.counters().WrongRouted > 0 && f.counters().Evicted > 0 })
	if s := f.datapath.Stats(); s.Entries > 50+2 {
		t.Fatalf("%d entries of at most 50, and one for each worker for a moment", s.Entries)
	}
	// The kernel drops what comes while the flood still fills a queue, so the client asks again, as any would.
	f.eventually("the client of before is served", func() bool {
		c.send([]byte("after"))
		_ = c.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		answer := make([]byte, 16)
		n, err := c.conn.Read(answer)
		return err == nil && n > 0 && string(answer[1:n]) == "after"
	})
}

func TestApply(t *testing.T) {
	f := start(t, udpnat.Config{}, 1)
	c := f.client()
	c.exchange("x")
	second := netlabtest.UDPAddress(t)
	spec, _ := f.intent.Spec()
	spec.Services = []lb.ServiceSpec{spec.Services[0]}
	spec.Services[0].VIPs = append(udpnat.ListenSpec(f.vip), udpnat.ListenSpec(second)...)
	if err := f.intent.SetSpec(spec); err != nil {
		t.Fatal(err)
	}
	d := newClient(t, second)
	d.exchange("second VIP")
	c.exchange("the first goes on")
	if n := f.counters().Opened; n != 2 {
		t.Fatalf("%d entries opened, want 2: an apply must keep entries", n)
	}

	taken := netlabtest.UDPAddress(t)
	other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(taken))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	bad := spec
	bad.Services = []lb.ServiceSpec{spec.Services[0]}
	bad.Services[0].VIPs = append(udpnat.ListenSpec(netlabtest.UDPAddress(t)), udpnat.ListenSpec(taken)...)
	if err := f.intent.SetSpec(bad); err == nil {
		t.Fatal("took a port in use")
	}
	c.exchange("the last good one stays")
	d.exchange("the last good one stays")

	spec.Services[0].VIPs = udpnat.ListenSpec(second)
	if err := f.intent.SetSpec(spec); err != nil {
		t.Fatal(err)
	}
	if s := f.datapath.Stats(); s.Entries != 1 || len(s.Listeners) != 1 || s.Listeners[0] != second {
		t.Fatalf("%d entries, listeners %v", s.Entries, s.Listeners)
	}
	d.exchange("the kept VIP goes on")
}

func TestRunAndCloseInOrder(t *testing.T) {
	d, err := udpnat.Open(udpnat.Config{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- d.Run(ctx) }()
	go func() { done <- d.Run(ctx) }()
	if err := <-done; err == nil {
		t.Error("ran twice")
	}
	if d.Close() == nil {
		t.Error("closed while it ran")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error("a second Close:", err)
	}
	if err := d.Run(context.Background()); err == nil {
		t.Error("ran after Close")
	}
	if d.Apply(&lb.Snapshot{}) == nil {
		t.Error("applied after Close")
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []udpnat.Config{
		{Workers: -1},
		{MaxEntries: -1},
		{BackendTimeout: -5},
		{UnansweredAfter: -1},
		{Faults: udpnat.Faults{LossForward: 101}},
		{Faults: udpnat.Faults{SizeLimit: -1}},
		{Faults: udpnat.Faults{ReorderDelay: time.Hour}},
	} {
		if d, err := udpnat.Open(c); err == nil {
			_ = d.Close()
			t.Errorf("opened %+v", c)
		}
	}
}
