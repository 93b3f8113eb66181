package udpnat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// TestRootOffloadKeepsBehaviour runs the tests of this package with the kernel in front.
func TestRootOffloadKeepsBehaviour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	inOwnNetwork(t, "-test.run=^Test", "-test.skip=^TestRoot|"+skipped(map[string]string{
		"TestNoAllocations":           "counts what user space allocates",
		"TestFloodOfSpoofedDatagrams": "calls the worker without a socket, and takes half of the time",
	}))
}

// What the kernel forwards is counted like what user space forwards, and by itself.
func TestRootOffloadCounts(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	f := start(t, udpnat.Config{Workers: 1}, 1)
	c := f.client()
	f.inKernel(c)
	before := f.datapath.Stats()
	const n = 100
	for range n {
		c.exchange("counted")
	}
	after := f.datapath.Stats()
	b, a := before.Counters, after.Counters
	sent := a.Received - b.Received // more than n where the kernel dropped some
	if sent < n || a.Forwarded-b.Forwarded != sent || a.ForwardedBytes-b.ForwardedBytes != 7*sent ||
		a.Backwarded-b.Backwarded < n || a.BackwardedBytes-b.BackwardedBytes != 8*(a.Backwarded-b.Backwarded) {
		t.Errorf("counted %+v\nafter %+v", a, b)
	}
	if a.OffloadForwarded-b.OffloadForwarded < n-2 || a.OffloadBackwarded-b.OffloadBackwarded < n-2 {
		t.Errorf("of %d exchanges the kernel forwarded %d and %d", n, a.OffloadForwarded-b.OffloadForwarded, a.OffloadBackwarded-b.OffloadBackwarded)
	}
	if got := after.Reasons["conntrack"] - before.Reasons["conntrack"]; got != sent {
		t.Errorf("reason conntrack counted %d times, want %d", got, sent)
	}
	target := after.Backends[0].Target
	if got := after.Targets[target].Packets - before.Targets[target].Packets; got != sent {
		t.Errorf("%d datagrams counted for the backend, want %d", got, sent)
	}
	if form := after.JSON(); form.Offload == nil || form.Offload.Flows != 1 || len(form.Offload.Interfaces) != 1 || form.Offload.Interfaces[0].Name != "lo" {
		t.Errorf("offload %+v", form.Offload)
	}
	if e := f.datapath.Entries(1); !e[0].InKernel {
		t.Error("the entry is not shown as in the kernel")
	}
	if text := f.do("stats"); !strings.Contains(text, "in the kernel, forwarded") {
		t.Error(text)
	}
}

// A direction with faults is user space's, whatever the kernel forwards; without faults it is the kernel's again.
func TestRootOffloadLeavesFaults(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	f := start(t, udpnat.Config{Workers: 1}, 1)
	c := f.client()
	f.inKernel(c)
	f.do("faults loss-forward=100")
	before, seen := f.counters(), f.backends[0].count()
	f.sendNumbered(c, 10)
	if s := f.counters(); s.LostForward-before.LostForward != 10 || s.OffloadForwarded != before.OffloadForwarded || f.backends[0].count() != seen {
		t.Fatalf("%+v\nbefore %+v", s, before)
	}
	f.do("faults loss-forward=0 loss-backward=100")
	f.sendNumbered(c, 10)
	f.eventually("all replies are lost", func() bool { return f.counters().LostBackward-before.LostBackward == 10 })
	c.nothing()
	if s := f.counters(); s.OffloadForwarded == before.OffloadForwarded || s.OffloadBackwarded != before.OffloadBackwarded {
		t.Fatalf("only replies are disturbed: %+v\nbefore %+v", s, before)
	}
	f.do("faults loss-backward=0")
	f.inKernel(c)
}

// An entry lives as long as the kernel forwards its datagrams, and times out like any other afterwards.
func TestRootOffloadTimesOut(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	begun := time.Now()
	now := func() time.Duration { return time.Hour + time.Since(begun) }
	f := start(t, udpnat.Config{Workers: 1, Now: now}, 1, func(s *lb.Spec) { s.Services[0].Timeouts.UDP = lb.Timeout(time.Second) })
	c := f.client()
	f.inKernel(c)
	outgoing := f.outgoing(c)
	before := f.counters()
	for time.Since(begun) < 3*time.Second {
		c.exchange("keeps it alive")
		time.Sleep(20 * time.Millisecond) // the rate of the traffic, which is still five times what user space may see of it
	}
	s := f.counters()
	if f.outgoing(c) != outgoing || s.Expired > 0 || s.Forwarded-s.OffloadForwarded > before.Forwarded-before.OffloadForwarded+20 {
		t.Fatalf("the entry ended, or user space kept it: %+v\nbefore %+v", s, before)
	}
	f.eventually("it times out", func() bool { return f.counters().Expired == 1 })
	if stats := f.datapath.Stats(); stats.Entries != 0 || stats.Offload.Flows != 0 {
		t.Fatalf("%d entries, %+v", stats.Entries, stats.Offload)
	}
	f.inKernel(c)
}

// Every change of an entry's backend or socket ends what the kernel forwards for it.
func TestRootOffloadFollowsChanges(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	f := start(t, udpnat.Config{Workers: 1}, 2)
	c := f.onBackend(0)
	f.inKernel(c)
	down := map[lb.Target]lb.Override{{Service: "nat", Backend: f.backends[0].name}: lb.OverrideDown}
	if err := f.intent.SetOverrides(lb.FromOperator, down); err != nil {
		t.Fatal(err)
	}
	if got := c.exchange("after down"); got != 1 {
		t.Fatalf("backend %d answers, which is down", got)
	}
	f.inKernel(c)
	for _, command := range []string{"clear", "reassign"} {
		outgoing := f.outgoing(c)
		f.do(command)
		before := f.backends[1].count()
		if got := c.exchange("after " + command); got != 1 || f.backends[1].count() == before {
			t.Fatalf("%s: backend %d answers", command, got)
		}
		if f.outgoing(c) == outgoing || f.backends[1].lastFrom().String() != f.outgoing(c) {
			t.Errorf("%s: outgoing address %s, before %s, the backend saw %s", command, f.outgoing(c), outgoing, f.backends[1].lastFrom())
		}
		f.inKernel(c)
	}
	f.do("reverse on")
	if err := f.intent.SetOverrides(lb.FromOperator, map[lb.Target]lb.Override{{Service: "nat", Backend: f.backends[0].name}: lb.NoOverride}); err != nil {
		t.Fatal(err)
	}
	f.inKernel(c)
	replyFromOther(f.backends[0], f.backends[1], "from the other")
	if got, err := c.receive(); err != nil || string(got) != "from the other" {
		t.Fatalf("got %q, %v", got, err)
	}
	if got := c.exchange("now"); got != 0 {
		t.Fatalf("asked %d, want the one that answered", got)
	}
	f.inKernel(c)
}

// The watch sees what the kernel forwards: a backend that is silent, or whose port is closed, turns stale and its clients move.
func TestRootOffloadWatchesBackends(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	for name, end := range map[string]func(*backend){
		"silent":  func(b *backend) { b.mute.Store(true) },
		"refused": func(b *backend) { b.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, udpnat.Config{Workers: 1}, 2)
			c := f.onBackend(0)
			f.inKernel(c)
			end(f.backends[0])
			f.eventually("stale", func() bool {
				c.send([]byte("anyone"))
				f.advance(100 * time.Millisecond)
				return f.state(f.backends[0]) == udpnat.Stale
			})
			f.eventually("out of the snapshot", func() bool { return f.datapath.Stats().Generation == 2 })
			c.repeated = "anyone"
			if got := c.exchange("who is there"); got != 1 {
				t.Fatalf("backend %d answered", got)
			}
			f.inKernel(c)
			if refused := f.counters().Refused; (refused > 0) != (name == "refused") {
				t.Errorf("%d refusals", refused)
			}
		})
	}
}

// The kernel's table is bounded and holds answered flows only: a flood takes no place there, and what does not fit is forwarded
// by user space.
func TestRootOffloadIsBounded(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	table, err := kernelnat.Open(kernelnat.Config{MaxFlows: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	f := start(t, udpnat.Config{Workers: 1, MaxEntries: 100, Offload: table}, 1)
	first := f.client()
	f.inKernel(first)
	f.backends[0].mute.Store(true)
	for i := range 300 {
		f.client().send([]byte(text(i)))
	}
	f.eventually("the backend has read the flood", func() bool {
		s := f.counters()
		return s.Evicted >= 200 && uint64(f.backends[0].count()) == s.Forwarded
	})
	f.backends[0].mute.Store(false)
	if flows := table.Report().Flows; flows != 1 {
		t.Errorf("%d flows in the kernel, want the answered one", flows)
	}
	f.inKernel(first)
	var clients []*client
	for range 20 {
		c := f.client()
		for range 4 {
			c.exchange("answered")
		}
		clients = append(clients, c)
	}
	report := table.Report()
	if report.Flows != 16 || report.Refused["full"] == 0 {
		t.Errorf("%+v\n%s", report, f.do("stats"))
	}
	for _, c := range append(clients, first) {
		c.exchange("still served")
	}
	f.inKernel(first)
}

// Where user space has to look into what clients send, the kernel forwards replies only.
func TestRootOffloadSeesContents(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	f := start(t, udpnat.Config{Workers: 1, DTLSFilter: true}, 1)
	c := f.client()
	record := string([]byte{23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 7, 7})
	for range 20 {
		c.exchange(record)
	}
	if s := f.counters(); s.OffloadForwarded != 0 || s.OffloadBackwarded == 0 {
		t.Errorf("with a filter: %+v", s)
	}
	f.sendNumbered(c, 10)
	if s := f.counters(); s.Filtered != 10 {
		t.Errorf("%d filtered, want 10", s.Filtered)
	}
}

// A client that is gone sends an ICMP error for every reply that the kernel forwards: its flow is not entered again for each.
func TestRootOffloadRestsAfterErrors(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	f := start(t, udpnat.Config{Workers: 1}, 1) // the clock stands still
	c := f.client()
	f.inKernel(c)
	outgoing := f.backends[0].lastFrom()
	c.conn.Close()
	for i := range 20 {
		before := f.counters().Backwarded
		if _, err := f.backends[0].conn.WriteToUDPAddrPort([]byte(text(i)), outgoing); err != nil {
			t.Fatal(err)
		}
		f.eventually("the reply is forwarded", func() bool { return f.counters().Backwarded > before })
	}
	// A datagram of a flow that failed is stale once: then the flow is user space's.
	s := f.datapath.Stats()
	if s.Offload.Flows != 0 || s.Offload.Packets["backward"] > 5 || s.Offload.Packets["stale"] > 5 {
		t.Errorf("%+v", s.Offload)
	}
	f.advance(2 * time.Second)
	f.eventually("it is entered again, and fails again", func() bool {
		_, err := f.backends[0].conn.WriteToUDPAddrPort([]byte("push"), outgoing)
		return err == nil && f.datapath.Stats().Offload.Packets["stale"] > s.Offload.Packets["stale"]
	})
}
