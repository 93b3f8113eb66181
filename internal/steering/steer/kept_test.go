package steer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
)

const keptSpec = `maglev_size: 251
services:
- name: s
  mode: mark
  vips: [{address: 192.0.2.1, protocol: udp, port: 1000-2000}, {address: 192.0.2.1, protocol: tcp, port: 80}]
  backends: [{name: a, mark: 1}, {name: b, mark: 2}, {name: c, mark: 3}]
`

// memory is a journal that a next process reads.
type memory map[int]steer.KeptFlow

func (m memory) Keep(number int, f steer.KeptFlow) { m[number] = f }
func (m memory) Forget(number int)                 { delete(m, number) }

// restored gives what is kept to a new Engine, and counts what became of it.
func restored(m memory, e *steer.Engine, now time.Duration) (counts [steer.NumRestored]int) {
	for _, f := range m {
		counts[e.Restore(&f, now)]++
	}
	return counts
}

func send(t *testing.T, e *steer.Engine, line string, now time.Duration) steer.Decision {
	t.Helper()
	d, err := packet.ParseText(line)
	if err != nil {
		t.Fatal(err)
	}
	var p packet.Packet
	if err := packet.Parse(d.Packets[0], &p); err != nil {
		t.Fatal(err)
	}
	return e.Packet(&p, now)
}

// Flows that were opened under other backends keep theirs in the next process: those of the configuration alone.
func TestFlowsAreRestored(t *testing.T) {
	without := strings.Replace(keptSpec, ", {name: c, mark: 3}", "", 1)
	m := memory{}
	first := steer.New(compile(t, without), steer.Options{Journal: m})
	line := func(i int) string { return fmt.Sprintf("udp 10.0.0.1:%d > 192.0.2.1:1500 01", 5000+i) }
	owner := map[int]string{}
	const n = 300
	for i := range n {
		send(t, first, line(i), time.Second)
		owner[i] = send(t, first, line(i), 2*time.Second).Backend.Name
	}
	first.SetSnapshot(compile(t, keptSpec)) // a third backend: the table changes, flows stay
	for i := range n {
		if d := send(t, first, line(i), 3*time.Second); d.Backend.Name != owner[i] || d.Reason != lb.ReasonConntrack {
			t.Fatalf("flow %d moved before the restart", i)
		}
	}
	if len(m) != n {
		t.Fatalf("%d flows are kept, %d there are", len(m), n)
	}
	moved := func(spec string, options steer.Options) (moved int, counts [steer.NumRestored]int) {
		e := steer.New(compile(t, spec), options)
		counts = restored(m, e, 4*time.Second)
		for i := range n {
			if d := send(t, e, line(i), 4*time.Second); d.Backend == nil || d.Backend.Name != owner[i] {
				moved++
			}
		}
		return moved, counts
	}
	if got, counts := moved(keptSpec, steer.Options{}); got != 0 || counts[steer.RestoredFlow] != n {
		t.Errorf("%d flows moved, %v", got, counts)
	}
	// Without this the test shows nothing: a third of the flows would go to c.
	if e := steer.New(compile(t, keptSpec), steer.Options{}); true {
		lost := 0
		for i := range n {
			if send(t, e, line(i), 4*time.Second).Backend.Name != owner[i] {
				lost++
			}
		}
		if lost < n/5 {
			t.Errorf("only %d flows go elsewhere without what is kept", lost)
		}
	}
	// A backend with another mark is another one, a service without the VIP has no flows of it, and a table of ten takes ten.
	if _, counts := moved(strings.Replace(keptSpec, "mark: 1", "mark: 9", 1), steer.Options{}); counts[steer.RestoreGone] == 0 || counts[steer.RestoredFlow]+counts[steer.RestoreGone] != n {
		t.Errorf("another mark: %v", counts)
	}
	if _, counts := moved(strings.Replace(keptSpec, "port: 1000-2000", "port: 1000-1400", 1), steer.Options{}); counts[steer.RestoreGone] != n {
		t.Errorf("without the VIP: %v", counts)
	}
	if _, counts := moved(keptSpec, steer.Options{MaxFlows: 10}); counts[steer.RestoredFlow] != 10 || counts[steer.RestoreNoRoom] != n-10 {
		t.Errorf("a small table: %v", counts)
	}
	e := steer.New(compile(t, keptSpec), steer.Options{})
	if counts := restored(m, e, 48*time.Hour); counts[steer.RestoreExpired] != n {
		t.Errorf("two days later: %v", counts)
	}
	if got := e.Restore(&steer.KeptFlow{State: 77}, 0); got != steer.RestoreBad {
		t.Errorf("no state: %v", got)
	}
}

// The journal follows an entry: its state of TCP, whether it is proven, its end. A restored entry is as proven as it was, and is kept again.
func TestJournalFollowsEntries(t *testing.T) {
	m := memory{}
	e := steer.New(compile(t, keptSpec), steer.Options{Journal: m})
	one := func() steer.KeptFlow {
		t.Helper()
		if len(m) != 1 {
			t.Fatalf("%d entries", len(m))
		}
		for _, f := range m {
			return f
		}
		panic("none")
	}
	const flowText = "tcp 10.0.0.1:5000 > 192.0.2.1:80 "
	send(t, e, flowText+"flags=syn", 0)
	if f := one(); f.Proven || f.Until != e.Snapshot().Services[0].Timeouts.TCPOpening {
		t.Errorf("opening: %+v", f)
	}
	send(t, e, flowText+"flags=ack", time.Second)
	open := one()
	if !open.Proven || open.Until != time.Second+e.Snapshot().Services[0].Timeout(lb.TCP) {
		t.Errorf("established: %+v", open)
	}
	next := memory{}
	after := steer.New(compile(t, keptSpec), steer.Options{Journal: next})
	if got := after.Restore(&open, 2*time.Second); got != steer.RestoredFlow || after.Tables().ProvenFlows != 1 {
		t.Errorf("%v, %d proven", got, after.Tables().ProvenFlows)
	}
	if got := after.Restore(&open, 2*time.Second); got != steer.RestoreNoRoom {
		t.Errorf("restored twice: %v", got)
	}
	if len(next) != 1 || next[0] != open {
		t.Errorf("kept again: %+v, was %+v", next, open)
	}
	send(t, e, flowText+"flags=fin,ack", 3*time.Second)
	if f := one(); f.State == open.State || f.Until >= open.Until {
		t.Errorf("closing: %+v", f)
	}
	if e.Expire(time.Hour, -1); len(m) != 0 {
		t.Errorf("%d entries are kept after their time", len(m))
	}
}
