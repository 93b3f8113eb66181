package membership

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompileRefuses(t *testing.T) {
	many := make([]netip.AddrPort, MaxGroup+1)
	for want, spec := range map[string]Spec{
		"two nodes have the id 1":                 {Self: 1, Fixed: []Node{{1, address(1)}}},
		"two nodes have the id 2":                 {Self: 1, Fixed: []Node{{2, address(1)}, {2, address(2)}}},
		"have the same address":                   {Self: 1, Fixed: []Node{{2, address(1)}, {3, address(1)}}},
		"256 does not fit in one byte":            {Self: 256},
		"300 does not fit in one byte":            {Fixed: []Node{{300, address(1)}}},
		"257 addresses to search at, at most 256": {Group: many},
	} {
		if _, err := Compile(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// kinds are the events of an output.
func kinds(out Output) (all []Kind) {
	for _, e := range out.Events {
		all = append(all, e.Kind)
	}
	return all
}

func compile(t *testing.T, s Spec) *Table {
	t.Helper()
	table, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// A group of exactly one other node is searched for, found and kept. (In Californium from 3.3 on it is not: there such a group believes
// itself complete.)
func TestGroupOfOne(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2)}})
	for now := 100 * time.Millisecond; now < 9*time.Second; now += TickEvery {
		if out := table.Tick(now); !slices.Equal(out.Ping, []netip.AddrPort{address(2)}) || table.State() != StateStart {
			t.Fatalf("at %v: pings %v, state %d", now, out.Ping, table.State())
		}
	}
	answer, out := table.Received(address(2), 2, StateStart, true, false, 9*time.Second)
	if !answer || !slices.Equal(kinds(out), []Kind{Joined}) {
		t.Fatalf("answer %t, %v", answer, out)
	}
	if out := table.Tick(10 * time.Second); !slices.Equal(kinds(out), []Kind{Complete}) || table.State() != StateUp || len(out.Ping) != 1 {
		t.Fatalf("%+v, state %d", out, table.State())
	}
	table.Received(address(2), 2, StateUp, true, false, 11*time.Second)
	table.Tick(12 * time.Second)
	if table.State() != StateInitialized {
		t.Errorf("state %d", table.State())
	}
	if out := table.Tick(14 * time.Second); len(out.Ping) != 0 {
		t.Errorf("pinged a node that answered 3 s ago: %v", out.Ping)
	}
	if out := table.Tick(16 * time.Second); len(out.Ping) != 1 {
		t.Errorf("a node silent for 5 s is not pinged: %v", out.Ping)
	}
	if out := table.Tick(22 * time.Second); !slices.Equal(kinds(out), []Kind{Left}) || len(out.Ping) != 1 || table.Members()[0].Known {
		t.Errorf("silent for 11 s: %+v", out)
	}
}

// A node that is back at another address has its id again two seconds after it says so, and its old address is left.
func TestMovesWithinSeconds(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2), address(3)}})
	table.Tick(0)
	table.Received(address(2), 7, StateUp, true, false, time.Second)
	_, out := table.Received(address(3), 7, StateUp, false, false, 3*time.Second)
	if !slices.Equal(out.Ping, []netip.AddrPort{address(2)}) || len(out.Events) != 0 {
		t.Fatalf("the holder is not pinged: %+v", out)
	}
	if table.Tick(4 * time.Second); table.byID[7].addr != address(2) {
		t.Fatal("replaced without time to answer")
	}
	out = table.Tick(6 * time.Second)
	if len(out.Events) != 1 || out.Events[0] != (Event{Kind: Moved, ID: 7, Addr: address(3), Other: address(2)}) {
		t.Fatalf("%+v", out.Events)
	}
}

// Two nodes with one id: the first keeps it while it answers, and one line says so, however often both announce it.
func TestDuplicateIsReportedOnce(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2), address(3)}})
	count := map[Kind]int{}
	note := func(out Output) {
		for _, k := range kinds(out) {
			count[k]++
		}
	}
	for now := time.Duration(0); now < 10*time.Minute; now += time.Second {
		for _, from := range []int{2, 3} {
			_, out := table.Received(address(from), 7, StateUp, true, false, now)
			note(out)
		}
		_, out := table.Received(address(3), 1, StateUp, false, false, now) // and our own id, too
		note(out)
		if now%TickEvery == 0 {
			note(table.Tick(now))
		}
	}
	if count[Duplicate] != 1 || count[OwnID] != 1 || count[Joined] != 1 || count[Moved] != 0 || table.byID[7].addr != address(2) {
		t.Errorf("events %v, node 7 at %s", count, table.byID[7].addr)
	}
}

// A stopped process gives no node up, and says once for how long it was stopped.
func TestClockJump(t *testing.T) {
	table := compile(t, Spec{Self: 1, Fixed: []Node{{2, address(2)}}, Group: []netip.AddrPort{address(3)}})
	table.Tick(0)
	for i, from := range []int{2, 3} {
		table.Received(address(from), uint32(2+i), StateUp, true, false, time.Second)
	}
	table.Tick(2 * time.Second)
	// What has waited in the socket comes before the tick.
	_, out := table.Received(address(2), 2, StateUp, false, false, time.Hour)
	if got := kinds(out); !slices.Equal(got, []Kind{ClockJump}) || out.Events[0].For != time.Hour-2*time.Second {
		t.Fatalf("%+v", out.Events)
	}
	if out := table.Tick(time.Hour); len(out.Events) != 0 {
		t.Fatalf("%+v", out.Events)
	}
	for _, m := range table.Members() {
		if !m.Up {
			t.Errorf("%s is given up", m.Addr)
		}
	}
	if out := table.Tick(time.Hour - 10*time.Minute); !slices.Equal(kinds(out), []Kind{Backwards}) {
		t.Errorf("%+v", out.Events)
	}
	out = table.Tick(time.Hour - 10*time.Minute + TickEvery)
	if len(out.Events) != 0 {
		t.Errorf("%+v", out.Events)
	}
}

// Our own address may be among those at which nodes are searched for.
func TestOwnAddressInTheGroup(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(1), address(2)}})
	table.Tick(0)
	if answer, out := table.Received(address(1), 1, StateStart, false, true, 0); answer || len(out.Events) != 0 {
		t.Fatalf("answered %t, %+v", answer, out)
	}
	table.Received(address(2), 2, StateUp, true, false, time.Second)
	table.Tick(2 * time.Second)
	if len(table.Members()) != 1 || table.State() == StateStart {
		t.Errorf("%+v, state %d", table.Members(), table.State())
	}
}

// Another id at a node's address: believed after the address has answered a ping with it, and no sooner.
// A cluster whose addresses are discovered is not complete before they are known, then when all of them answer; one that never does keeps
// it back for ten seconds at most, and is searched for further on.
func TestDiscovered(t *testing.T) {
	table := compile(t, Spec{Self: 1, Discovered: true})
	now := time.Duration(0)
	tick := func() (out Output) {
		now += TickEvery
		return table.Tick(now)
	}
	for range 10 {
		if tick(); table.State() != StateStart {
			t.Fatalf("complete at %v without an address", now)
		}
	}
	table.SetGroup([]netip.AddrPort{address(2), address(3)})
	known := now
	if out := tick(); !slices.Equal(out.Ping, []netip.AddrPort{address(2), address(3)}) {
		t.Fatalf("%v", out.Ping)
	}
	table.Received(address(2), 2, StateStart, true, false, now)
	for table.State() == StateStart && now < time.Minute {
		tick()
		table.Alive(address(2), now)
	}
	if now-known != Discover {
		t.Errorf("complete %v after the addresses were known", now-known)
	}
	searched := 0
	for range 10 {
		if slices.Contains(tick().Ping, address(3)) {
			searched++
		}
		table.Alive(address(2), now)
	}
	if searched != 2 {
		t.Errorf("searched for %d times in 20 s", searched)
	}

	alone := compile(t, Spec{Self: 1, Discovered: true})
	alone.SetGroup(nil)
	if out := alone.Tick(TickEvery); !slices.Equal(kinds(out), []Kind{Complete}) {
		t.Errorf("a node alone: %v", kinds(out))
	}
}

func TestRenamed(t *testing.T) {
	for _, pong := range []bool{false, true} {
		table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2)}})
		table.Tick(0)
		table.Received(address(2), 7, StateUp, true, false, time.Second)
		if _, out := table.Received(address(2), 8, StateUp, false, false, 2*time.Second); len(out.Ping) != 1 {
			t.Fatalf("the address is not pinged: %+v", out)
		}
		table.Received(address(2), 8, StateUp, pong, false, 3*time.Second)
		out := table.Tick(4 * time.Second)
		if got := table.byID[8] != nil; got != pong || slices.Contains(kinds(out), Renamed) != pong {
			t.Errorf("pong %t: renamed %t, %+v", pong, got, out)
		}
	}
}

// An address that has turned out to be another node's meanwhile does not get the id that it once claimed.
func TestRivalIsAnotherNode(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2), address(3)}})
	table.Tick(0)
	table.Received(address(2), 7, StateUp, true, false, time.Second)
	table.Received(address(3), 7, StateUp, false, false, 2*time.Second) // forged
	table.Received(address(3), 3, StateUp, true, false, 3*time.Second)
	table.Tick(4 * time.Second)
	if table.byID[3] == nil || table.byID[7].addr != address(2) {
		t.Errorf("%+v", table.Members())
	}
}

// A node that has lost all others searches for them at every tick, one that lacks some every ten seconds.
func TestSearch(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2), address(3)}})
	pings := func(from, to time.Duration, answers bool) (n int) {
		for now := from; now < to; now += TickEvery {
			for _, addr := range table.Tick(now).Ping {
				if addr == address(3) {
					n++
				}
			}
			if answers {
				table.Received(address(2), 2, StateUp, false, false, now)
			}
		}
		return n
	}
	pings(0, 20*time.Second, true)
	if n := pings(20*time.Second, 60*time.Second, true); n != 4 {
		t.Errorf("%d pings in 40 s to an address without a node", n)
	}
	pings(60*time.Second, 80*time.Second, false)
	if n := pings(80*time.Second, 100*time.Second, false); n != 10 {
		t.Errorf("%d pings in 20 s of a node that is alone", n)
	}
}

// With Open the number of addresses is bounded, which is reported once, and those without a node are forgotten.
func TestFull(t *testing.T) {
	table := compile(t, Spec{Self: 255, Open: true})
	table.Tick(0)
	var events []Kind
	for i := range 2000 {
		addr := netip.AddrPortFrom(address(0).Addr(), uint16(i+1))
		_, out := table.Received(addr, uint32(i%255), StateUp, false, false, time.Second)
		events = append(events, kinds(out)...)
	}
	if n := len(table.Members()); n != MaxNodes+MaxGroup {
		t.Fatalf("%d addresses", n)
	}
	if n := strings.Count(fmt.Sprint(events), fmt.Sprint(Full)); n != 1 {
		t.Errorf("reported %d times", n)
	}
	for now := 2 * time.Second; now < 30*time.Second; now += TickEvery {
		table.Tick(now)
	}
	if n := len(table.Members()); n != 0 {
		t.Errorf("%d addresses are left", n)
	}
}

// FuzzTable: no sequence of messages breaks what holds always.
func FuzzTable(f *testing.F) {
	f.Add([]byte{2, 7, 0, 3, 7, 1, 0, 0, 9, 3, 7, 1, 0, 0, 40}, false)
	f.Add([]byte{2, 5, 0, 2, 6, 1, 0, 0, 9, 2, 6, 1, 0, 0, 200}, true)
	f.Fuzz(func(t *testing.T, b []byte, open bool) {
		w := newWorld(t, open)
		for ; len(b) >= 3; b = b[3:] {
			if b[0] == 0 {
				w.now += time.Duration(b[2]) * 100 * time.Millisecond
				w.take(w.table.Tick(w.now))
			} else {
				w.message(address(int(b[0])), uint32(b[1]), b[2]&1 == 1)
			}
			w.check()
		}
	})
}

// A fixed node that announces another id, or whose id another address announces: nothing changes, and one event says so with both.
func TestFixedNodesStay(t *testing.T) {
	table := compile(t, Spec{Self: 1, Fixed: []Node{{2, address(2)}}, Group: []netip.AddrPort{address(3)}})
	table.Tick(0)
	if _, out := table.Received(address(2), 2, StateUp, true, false, time.Second); len(out.Events) != 1 || out.Events[0] != (Event{Kind: Joined, ID: 2, Addr: address(2)}) {
		t.Fatalf("%+v", out.Events)
	}
	for i := range 3 {
		now := time.Duration(i+2) * time.Second
		answer, out := table.Received(address(2), 9, StateUp, true, false, now)
		if answer || i == 0 && !slices.Equal(out.Events, []Event{{Kind: Mistaken, ID: 9, Was: 2, Addr: address(2)}}) || i > 0 && len(out.Events) != 0 {
			t.Errorf("answered %t, %+v", answer, out.Events)
		}
	}
	if !table.Holds(address(2), 2) || table.Holds(address(2), 9) || table.Holds(address(3), 0) || table.Holds(address(4), 0) {
		t.Errorf("%+v", table.Members())
	}

	table = compile(t, Spec{Self: 1, Fixed: []Node{{2, address(2)}}, Group: []netip.AddrPort{address(3)}})
	table.Tick(0)
	for i := range 3 {
		answer, out := table.Received(address(3), 2, StateUp, true, false, time.Duration(i+1)*time.Second)
		if !answer || i == 0 && !slices.Equal(out.Events, []Event{{Kind: Duplicate, ID: 2, Addr: address(2), Other: address(3)}}) || i > 0 && len(out.Events)+len(out.Ping) != 0 {
			t.Errorf("answered %t, %+v", answer, out)
		}
	}
	if !table.Holds(address(2), 2) {
		t.Errorf("%+v", table.Members())
	}
}

// A node of the group that goes on to announce two ids: the first one stays, and one event says so.
func TestTwoIDsAtOneAddress(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2)}})
	table.Tick(0)
	var events []Event
	for i := range 20 {
		_, out := table.Received(address(2), uint32(7+i%2), StateUp, true, false, time.Duration(i)*time.Second/4)
		events = append(events, out.Events...)
	}
	if want := []Event{{Kind: Joined, ID: 7, Addr: address(2)}, {Kind: Mistaken, ID: 8, Was: 7, Addr: address(2)}}; !slices.Equal(events, want) || !table.Holds(address(2), 7) {
		t.Errorf("%+v", events)
	}
}

// A frame of a node is a sign of life as good as a pong, but no stranger's, and none of an address without a node.
func TestAlive(t *testing.T) {
	table := compile(t, Spec{Self: 1, Fixed: []Node{{2, address(2)}}, Group: []netip.AddrPort{address(3)}})
	table.Tick(0)
	if out := table.Alive(address(2), time.Second); !slices.Equal(out.Events, []Event{{Kind: Joined, ID: 2, Addr: address(2)}}) {
		t.Errorf("%+v", out.Events)
	}
	if out := table.Alive(address(2), 3*time.Second); len(out.Events) != 0 {
		t.Errorf("%+v", out.Events)
	}
	for _, from := range []int{3, 4} {
		if out := table.Alive(address(from), 3*time.Second); len(out.Events) != 0 {
			t.Errorf("%+v", out.Events)
		}
	}
	want := []Member{
		{Addr: address(2), ID: 2, Known: true, Answered: true, Up: true},
		{Addr: address(3), Silent: 3 * time.Second},
	}
	if got := table.Members(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// What is no node's message changes nothing: an id that does not fit, an address that is not listed, our own.
func TestReceivedRefuses(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2)}})
	table.Tick(0)
	generation := table.Generation()
	for _, c := range []struct {
		from int
		id   uint32
		self bool
	}{{2, MaxNodes, false}, {3, 7, false}, {2, 7, true}, {4, 1, true}} {
		if answer, out := table.Received(address(c.from), c.id, StateUp, true, c.self, time.Second); answer || len(out.Events)+len(out.Ping) != 0 {
			t.Errorf("%+v: answered %t, %+v", c, answer, out)
		}
	}
	if table.Generation() != generation || table.Allowed(address(3)) || !table.Allowed(address(2)) {
		t.Errorf("%+v", table.Members())
	}
}

// A node that is lost is searched for at the next tick, with every other address without a node; the fixed one that is lost stays, and is
// pinged at every tick.
func TestLostNodesAreSearchedFor(t *testing.T) {
	table := compile(t, Spec{Self: 1, Fixed: []Node{{2, address(2)}, {6, address(6)}}, Group: []netip.AddrPort{address(3), address(4), address(5)}})
	for i, from := range []int{2, 3, 5} {
		table.Received(address(from), []uint32{2, 3, 5}[i], StateUp, true, false, 0)
	}
	for now := time.Duration(0); now < 30*time.Second; now += TickEvery {
		table.Received(address(5), 5, StateUp, false, false, now) // stays
		out := table.Tick(now)
		pinged := func(i int) bool { return slices.Contains(out.Ping, address(i)) }
		switch {
		case now == 0 && (!pinged(4) || !pinged(6) || pinged(3)), now == 4*time.Second && !pinged(2), pinged(5):
			t.Errorf("at %v: %v", now, out.Ping)
		case now == Refresh+Expiration+TickEvery:
			want := []Event{{Kind: Silent, ID: 2, Addr: address(2), For: now}, {Kind: Left, ID: 3, Addr: address(3), For: now}}
			if !slices.Equal(out.Events, want) || !pinged(2) || !pinged(3) || !pinged(4) || !pinged(6) {
				t.Errorf("at %v: %v, %+v", now, out.Ping, out.Events)
			}
		case now > Refresh+Expiration+TickEvery && (!pinged(2) || len(out.Events) != 0):
			t.Errorf("at %v: %v, %+v", now, out.Ping, out.Events)
		}
	}
}

// One node that says the cluster has been complete is enough for one that has found all addresses.
func TestInitializedSpreads(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2), address(3)}})
	table.Tick(0)
	table.Received(address(2), 2, StateInitialized, true, false, time.Second)
	if table.Tick(2 * time.Second); table.State() != StateStart {
		t.Errorf("state %d without node 3", table.State())
	}
	table.Received(address(3), 3, StateStart, true, false, 3*time.Second)
	if table.Tick(4 * time.Second); table.State() != StateInitialized {
		t.Errorf("state %d", table.State())
	}
}

// As many nodes and addresses as there may be are taken.
func TestCompileTakesTheMost(t *testing.T) {
	s := Spec{Self: 255}
	for i := range MaxNodes - 1 {
		s.Fixed = append(s.Fixed, Node{uint32(i), netip.AddrPortFrom(address(9).Addr(), uint16(i+1))})
	}
	for i := range MaxGroup {
		s.Group = append(s.Group, netip.AddrPortFrom(address(8).Addr(), uint16(i+1)))
	}
	if got := len(compile(t, s).Members()); got != MaxNodes-1+MaxGroup {
		t.Errorf("%d addresses", got)
	}
}

// An address that claims a node's id and is then no longer listed does not get the id.
func TestClaimOfAnAddressThatIsRemoved(t *testing.T) {
	table := compile(t, Spec{Self: 1, Group: []netip.AddrPort{address(2), address(3)}})
	table.Tick(0)
	table.Received(address(2), 7, StateUp, true, false, time.Second)
	table.Received(address(3), 7, StateUp, false, false, 2*time.Second)
	generation := table.Generation()
	table.SetGroup([]netip.AddrPort{address(2)})
	if table.Generation() == generation {
		t.Error("the removal of an address is not reported")
	}
	if table.Tick(4 * time.Second); len(table.Members()) != 1 || !table.Holds(address(2), 7) {
		t.Errorf("%+v", table.Members())
	}
}

// With Open an address that claims the id of another node is remembered for ten seconds, and a message of it, too, shows that the clock
// has jumped.
func TestGuestWithoutAnID(t *testing.T) {
	table := compile(t, Spec{Self: 1, Fixed: []Node{{2, address(2)}}, Open: true})
	table.Tick(0)
	table.Tick(2 * time.Second)
	now := 2 * time.Hour
	if _, out := table.Received(address(3), MaxNodes, StateUp, false, false, now); !slices.Equal(kinds(out), []Kind{ClockJump}) {
		t.Errorf("%+v", out.Events)
	}
	for range 20 { // so that times are well beyond ten seconds
		now += TickEvery
		table.Tick(now)
	}
	table.Received(address(3), 2, StateUp, false, false, now)
	for i := range 7 {
		if got := len(table.Members()); got != 2 && i < 6 || got != 1 && i == 6 {
			t.Errorf("%d addresses after %d ticks", got, i)
		}
		now += TickEvery
		table.Tick(now)
	}
}
