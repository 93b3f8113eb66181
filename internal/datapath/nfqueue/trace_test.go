package nfqueue

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// traced takes what a trace has.
func traced(t *Trace) (list []Traced) {
	for {
		select {
		case e := <-t.Events():
			list = append(list, e)
		default:
			return list
		}
	}
}

// Each filter shows the packets it names, and no other.
func TestTraceFilters(t *testing.T) {
	const (
		first  = "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100"
		second = "udp 10.0.9.1:5000 > 192.0.2.1:5684 payload=100"
		six    = "udp [2001:db8:1::1]:5000 > [2001:db8::1]:5684 payload=10"
		other  = "udp 10.0.0.1:5000 > 192.0.2.77:5684 payload=10"
	)
	for _, c := range []struct {
		name   string
		filter TraceFilter
		want   []string // sources
	}{
		{"all", TraceFilter{}, []string{"10.0.0.1:5000", "10.0.9.1:5000", "[2001:db8:1::1]:5000", "10.0.0.1:5000", ""}},
		{"service", TraceFilter{Service: "pool"}, []string{"10.0.0.1:5000", "10.0.9.1:5000", "[2001:db8:1::1]:5000"}},
		{"reason", TraceFilter{Reasons: []lb.Reason{lb.ReasonNotService}}, []string{"10.0.0.1:5000"}},
		{"malformed", TraceFilter{Reasons: []lb.Reason{lb.ReasonMalformed}}, []string{""}},
		{"source", TraceFilter{Prefix: netip.MustParsePrefix("10.0.9.7/24")}, []string{"10.0.9.1:5000"}},
		{"source is not host", TraceFilter{Prefix: netip.MustParsePrefix("192.0.2.77/32")}, nil},
		{"host", TraceFilter{Prefix: netip.MustParsePrefix("192.0.2.77/32"), Both: true}, []string{"10.0.0.1:5000"}},
		{"both", TraceFilter{Service: "pool", Prefix: netip.MustParsePrefix("2001:db8::/64"), Both: true}, []string{"[2001:db8:1::1]:5000"}},
	} {
		var now clock
		d, q := one(t, threeBackends, now.Now)
		trace, err := d.Trace(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{first, second, six, other} {
			q.push(ip(t, line)[0], 0)
		}
		q.push([]byte{0x45, 1, 2}, 0)
		step(t, d)
		got := traced(trace)
		for i := range min(len(got), len(c.want)) {
			source := ""
			if got[i].Flow.Proto != 0 {
				source = got[i].Flow.Source().String()
			}
			if source != c.want[i] {
				t.Errorf("%s: packet %d is from %q, want %q", c.name, i, source, c.want[i])
			}
		}
		if len(got) != len(c.want) || trace.Missed() != 0 {
			t.Errorf("%s: %d packets, %d missed; want %d", c.name, len(got), trace.Missed(), len(c.want))
		}
		trace.Close()
	}
}

// A packet shows with all that became of it, a held fragment twice.
func TestTraceTellsTheDecision(t *testing.T) {
	var now clock
	d, q := one(t, threeBackends, now.Now)
	trace, err := d.Trace(TraceFilter{})
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	begun := time.Now()
	now.set(time.Hour)
	pieces := ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=2000 id=7 frag=1400")
	for i, piece := range [][]byte{pieces[1], pieces[0]} {
		q.mu.Lock()
		q.pushLocked(Packet{Length: len(piece), Data: piece, Interface: uint32(i + 4)})
		q.mu.Unlock()
	}
	step(t, d)
	got := traced(trace)
	if len(got) != 3 {
		t.Fatalf("%d packets: %+v", len(got), got)
	}
	verdict := q.verdict(1)
	for i, want := range []struct {
		action lb.Action
		on     uint32
		length int
		head   int
	}{
		{lb.Hold, 4, len(pieces[1]), TraceBytes},
		{lb.Forward, 5, len(pieces[0]), TraceBytes},
		{lb.Forward, 4, len(pieces[1]), heldBytes},
	} {
		e := got[i]
		if e.Reason.Action() != want.action || e.Interface != want.on || e.Length != want.length || e.Captured != want.head || e.Service != "pool" && want.action == lb.Forward {
			t.Errorf("packet %d: %+v", i, e)
		}
		if want.action == lb.Forward && (e.Mark != verdict.Mark || e.Mark == 0 || e.Backend == "") {
			t.Errorf("packet %d: mark %d backend %q, the verdict's mark is %d", i, e.Mark, e.Backend, verdict.Mark)
		}
		if e.Time.Before(begun.Add(time.Hour-time.Minute)) || string(e.Head[:20]) != string([][]byte{pieces[1], pieces[0], pieces[1]}[i][:20]) {
			t.Errorf("packet %d: at %s, head %x", i, e.Time, e.Head[:20])
		}
	}
	if !got[1].New || got[2].New {
		t.Error("the first fragment opens the flow")
	}
}

// There is one trace at a time, and none is left by one that ended.
func TestTraceOneAtATime(t *testing.T) {
	var now clock
	d, q := one(t, threeBackends, now.Now)
	if _, err := d.Trace(TraceFilter{Service: "nobody"}); err == nil || errors.Is(err, ErrTraced) {
		t.Errorf("a service that there is not: %v", err)
	}
	first, err := d.Trace(TraceFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Trace(TraceFilter{}); !errors.Is(err, ErrTraced) {
		t.Errorf("a second trace: %v", err)
	}
	first.Close()
	second, err := d.Trace(TraceFilter{})
	if err != nil {
		t.Fatal(err)
	}
	first.Close() // ends nothing that is not its own
	if _, err := d.Trace(TraceFilter{}); !errors.Is(err, ErrTraced) {
		t.Errorf("with the second: %v", err)
	}
	q.push(ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100")[0], 0)
	step(t, d)
	if a, b := len(traced(first)), len(traced(second)); a != 0 || b != 1 {
		t.Errorf("the ended trace got %d packets, the present one %d", a, b)
	}
	second.Close()
	step(t, d)
	if d.workers[0].trace != nil {
		t.Error("the worker keeps a trace that ended")
	}
}

// A reader that takes nothing costs no one anything: what has no room is counted, each packet has its verdict, nothing is
// allocated.
func TestTraceIsBounded(t *testing.T) {
	var now clock
	d, _ := openMemory(t, Config{Now: now.Now, Batch: 64}, 1)
	if err := d.Apply(compile(t, threeBackends)); err != nil {
		t.Fatal(err)
	}
	trace, err := d.Trace(TraceFilter{Service: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	w := d.workers[0]
	w.queue = &silentQueue{}
	data := ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100")[0]
	id := uint32(0)
	iterate := func() {
		for i := range w.packets {
			id++
			w.packets[i] = Packet{ID: id, Data: data, Length: len(data)}
		}
		if err := w.iterate(len(w.packets)); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(40, iterate); n != 0 { // with room
		t.Errorf("%.2f allocations for a batch that a trace shows", n)
	}
	if trace.Missed() != 0 {
		t.Errorf("%d missed while there was room", trace.Missed())
	}
	if n := testing.AllocsPerRun(100, iterate); n != 0 { // without
		t.Errorf("%.2f allocations for a batch that a trace misses", n)
	}
	got := len(traced(trace))
	if got != traceRoom || uint64(got)+trace.Missed() != uint64(id) {
		t.Errorf("%d packets shown and %d missed of %d", got, trace.Missed(), id)
	}
}
