package replica

import (
	"testing"
	"time"
)

// until runs until something holds.
func (w *world) until(what string, limit time.Duration, done func() bool) {
	w.t.Helper()
	for end := w.now + limit; !done(); w.run(step) {
		if w.now >= end {
			w.fail("not within %v: %s", limit, what)
		}
	}
}

// replicated reports whether each session has a copy that would be restored.
func (w *world) replicated() bool {
	for _, p := range w.up {
		if p != nil && (p.line.buddy == (Process{}) || p.Unacknowledged() > 0) {
			return false
		}
	}
	return true
}

func (w *world) count() (sessions int) {
	for _, p := range w.up {
		if p != nil {
			sessions += len(p.sessions)
		}
	}
	return sessions
}

// settled asserts what holds once nothing has failed for a while: each session that is not lost is at one process, which may seal.
func (w *world) settled() {
	w.quiet = true // limits that are on their way arrive
	w.run(2 * time.Second)
	w.quiet = false
	at := map[string]*process{}
	for _, p := range w.up {
		for _, number := range p.numbers {
			s := p.sessions[number]
			if at[s.id] != nil {
				w.fail("session %s is at %v and %v", s.id, at[s.id].self, p.self)
			}
			if at[s.id] = p; !s.leaving && (s.next >= s.limit || p.clock >= p.SealUntil()) {
				w.fail("process %v cannot seal in session %s: next %d, limit %d, %v of %v", p.self, s.id, s.next, s.limit, p.clock, p.SealUntil())
			}
		}
		if n, _ := p.Len(); n != len(p.sessions) {
			w.fail("process %v has %d sessions, and says %d", p.self, len(p.sessions), n)
		}
		copies := 0
		for _, st := range p.streams {
			copies += len(st.copies)
		}
		if copies != p.copies {
			w.fail("process %v has %d copies, and counts %d", p.self, copies, p.copies)
		}
	}
}

// Each node is killed in turn, with a little loss: every session that had a copy is served by the buddy, soon, by no other, and once.
func TestCrash(t *testing.T) {
	w := newWorld(t, 5, Lease)
	w.loss, w.exclusive = 0.02, true
	for _, p := range w.up {
		for range 25 {
			w.handshake(p)
		}
	}
	for i := range w.up {
		w.until("the sessions have copies", 10*time.Second, w.replicated)
		before := w.counts.restored
		dead := w.stop(i)
		w.until("all sessions are there again", Hold+2*time.Second, func() bool { return w.count() == 25*nodes })
		if got := w.counts.restored - before; got != len(dead.sessions) {
			t.Fatalf("%d of %d sessions restored", got, len(dead.sessions))
		}
		w.start(i, nil)
	}
	w.run(3 * time.Second)
	w.settled()
	if len(w.lost) > 0 || w.counts.timeStops > 0 {
		t.Fatalf("lost %v, stopped by time %d times", w.lost, w.counts.timeStops)
	}
}

// An owner that is cut off from its buddy and from the engine lives on: it stops before its buddy begins, and drops its sessions when it
// learns of it.
func TestPartitionedOwner(t *testing.T) {
	w := newWorld(t, 6, Lease)
	w.exclusive = true
	for range 20 {
		w.handshake(w.up[0])
	}
	w.until("the sessions have copies", 10*time.Second, w.replicated)
	old := w.up[0]
	w.isolate(0, true)
	w.until("the buddy has them", Hold+time.Second, func() bool { return w.count() == 40 })
	if stopped := w.counts.timeStops; stopped == 0 || old.clock < old.SealUntil() {
		t.Fatalf("the owner goes on: stopped %d times", stopped)
	}
	w.run(5 * time.Second)
	w.isolate(0, false)
	w.until("the owner learns of it", 2*time.Second, func() bool { return w.up[0] != old })
	w.run(2 * time.Second)
	w.settled()
	if w.count() != 20 {
		t.Errorf("%d sessions", w.count())
	}
}

func (w *world) isolate(i int, cut bool) {
	w.engineCut[i] = cut
	for k := range nodes {
		w.cut[i][k], w.cut[k][i] = cut, cut
	}
}

// Without the engine, owners go on; an owner whose buddy is gone too stops, because it is not certain that it is.
func TestWithoutEngine(t *testing.T) {
	w := newWorld(t, 8, Lease)
	for range 20 {
		w.handshake(w.up[0])
	}
	w.until("the sessions have copies", 10*time.Second, w.replicated)
	w.engineCut = [nodes]bool{true, true, true, true}
	w.run(3 * Hold)
	if w.counts.timeStops > 0 || w.counts.limitStops > 0 {
		t.Fatal("an owner has stopped, though its buddy answers")
	}
	w.stop(int(w.up[0].line.buddy.Node))
	w.run(2 * Hold)
	if w.counts.timeStops == 0 {
		t.Fatal("an owner goes on, though its buddy may have asked to take over")
	}
	w.engineCut = [nodes]bool{}
	w.until("it has another buddy", 2*time.Second, func() bool { return w.up[0].clock < w.up[0].SealUntil() })
	if w.count() != 20 {
		t.Errorf("%d sessions", w.count())
	}
}

// While clocks have about the same rate, and no process is stopped in the middle, one process at a time serves a session, whatever fails.
func TestOneOwnerAtATime(t *testing.T) {
	var sum counts
	for seed := range uint64(15) {
		w := newWorld(t, 1000+seed, short<<(seed%3*2))
		w.exclusive, w.ends = true, true
		w.disturb(8)
		sum.add(&w.counts)
	}
	if sum.restored == 0 || sum.timeStops == 0 || sum.events[Fenced] == 0 {
		t.Errorf("the model does not get there: %+v", sum)
	}
}

// Everything fails: messages and the engine's answers are lost, repeated, delayed and reordered, nodes are killed with and without
// their memory, cut off from each other and from the engine, stopped in the middle of a seal, and their clocks are stepped. No sequence
// number of a session is sealed twice, and no copy is restored twice.
func TestModel(t *testing.T) {
	var sum counts
	for seed := range uint64(40) {
		w := newWorld(t, seed, short<<(seed%3*2))
		w.ends = true
		if seed%4 == 0 {
			w.copies = 15 // of the processes that start later
		}
		w.disturb(11)
		sum.add(&w.counts)
	}
	for kind, n := range sum.events {
		if n == 0 {
			t.Errorf("no event of kind %d in any run", kind)
		}
	}
	for name, n := range map[string]int{
		"copies restored":                              sum.restored,
		"sessions moved or ended":                      sum.moved,
		"stops at a limit":                             sum.limitStops,
		"stops by time":                                sum.timeStops,
		"seals of an owner whose successor has sealed": sum.overlaps,
		"seals of an owner that was taken over":        sum.outlived,
		"seals after a stop":                           sum.stoppedSeals,
		"refused copies":                               sum.refused,
		"late batches":                                 sum.late,
		"batches of an ended stream":                   sum.leftBehind,
		"clocks stepped back":                          sum.backward,
		"clocks stepped forward":                       sum.forward,
		"take-overs that came too late":                sum.contested,
		"restarts with memory":                         sum.kept,
		"restarts with memory after a while":           sum.resumedLate,
		"restarts with memory after a take-over":       sum.tooLate,
	} {
		if n < 5 {
			t.Errorf("%s: %d: the model does not get there", name, n)
		}
	}
	t.Logf("%+v", sum)
}

func (c *counts) add(o *counts) {
	for i := range c.events {
		c.events[i] += o.events[i]
	}
	for _, p := range [][2]*int{
		{&c.restored, &o.restored},
		{&c.moved, &o.moved},
		{&c.limitStops, &o.limitStops},
		{&c.timeStops, &o.timeStops},
		{&c.overlaps, &o.overlaps},
		{&c.outlived, &o.outlived},
		{&c.stoppedSeals, &o.stoppedSeals},
		{&c.refused, &o.refused},
		{&c.unfresh, &o.unfresh},
		{&c.late, &o.late},
		{&c.leftBehind, &o.leftBehind},
		{&c.backward, &o.backward},
		{&c.forward, &o.forward},
		{&c.contested, &o.contested},
		{&c.kept, &o.kept},
		{&c.resumedLate, &o.resumedLate},
		{&c.tooLate, &o.tooLate},
	} {
		*p[0] += *p[1]
	}
}

// disturb makes things fail; kinds says how many kinds of failures of the list there are.
func (w *world) disturb(kinds int) {
	for range 30 {
		i, k := w.random.IntN(nodes), w.random.IntN(nodes)
		p := w.up[i]
		switch kind := w.random.IntN(kinds); {
		case kind == 0 && p != nil:
			w.crash(i)
		case kind == 1 && p != nil:
			w.kept++
			w.start(i, w.stop(i))
		case kind == 2:
			cut := !w.cut[i][k]
			w.cut[i][k], w.cut[k][i] = cut, cut
		case kind == 3:
			w.isolate(i, w.random.IntN(3) > 0)
		case kind == 4:
			w.engineCut[i] = !w.engineCut[i]
		case kind == 5:
			w.loss, w.delay = w.random.Float64()/3, time.Duration(1+w.random.Int64N(int64(time.Second)))
		case kind == 6:
			w.loss, w.delay = 0, 5*time.Millisecond
		case kind == 7:
			w.restart()
		case kind == 8 && p != nil:
			p.frozen = w.now + time.Duration(w.random.Int64N(int64(3*Hold)))
			for range min(len(p.numbers), 5) {
				p.inHand = append(p.inHand, p.numbers[w.random.IntN(len(p.numbers))])
			}
		case kind == 9 && p != nil:
			w.stepClock(p)
		case kind == 10 && p != nil:
			w.left[i] = w.stop(i)
		case kind == 10 && w.left[i] != nil:
			w.resumedLate++
			w.start(i, w.left[i])
		}
		for _, p := range w.up {
			if p != nil && p.frozen <= w.now {
				for range w.random.IntN(8) {
					w.handshake(p)
				}
			}
		}
		w.run(time.Duration(w.random.Int64N(int64(3 * time.Second))))
	}
	w.loss, w.delay, w.cut, w.engineCut = 0, step, [nodes][nodes]bool{}, [nodes]bool{}
	for _, p := range w.up {
		if p != nil {
			p.frozen = min(p.frozen, w.now)
			p.clock = max(p.clock, p.now) // as a clock that was stepped back is, in the end
		}
	}
	w.restart()
	w.run(3*Hold + retryAfter)
	w.settled()
}

// stepClock moves a clock that ought to be monotonic.
func (w *world) stepClock(p *process) {
	by := time.Duration(w.random.Int64N(int64(20*time.Second))) - 10*time.Second
	if by < 0 { // and if it is cut off, it goes on at the same time as its successor
		w.backward++
		w.isolate(int(p.self.Node), true)
	} else {
		w.forward++
	}
	p.clock += by
}

func (w *world) crash(i int) {
	for _, s := range w.stop(i).sessions {
		w.lost[s.id] = "its node has crashed" // unless its buddy has it
	}
}

// restart starts what is down.
func (w *world) restart() {
	for i, p := range w.up {
		switch {
		case p != nil:
		case w.left[i] != nil:
			w.resumedLate++
			w.start(i, w.left[i])
		default:
			w.start(i, nil)
		}
	}
}

// Every process is restarted with its memory, all at the same moment: no session stops, none is taken over, and all have copies again soon.
func TestRestart(t *testing.T) {
	w := newWorld(t, 9, Lease)
	w.loss, w.exclusive = 0.02, true
	for _, p := range w.up {
		for range 25 {
			w.handshake(p)
		}
	}
	for range 4 {
		w.until("the sessions have copies", 10*time.Second, w.replicated)
		for i := range w.up {
			w.left[i] = w.stop(i)
		}
		w.run(time.Second)
		w.restart()
		w.run(Hold)
		if stops := w.counts.timeStops + w.counts.limitStops; w.count() != 25*nodes || stops > 0 || w.counts.restored > 0 {
			t.Fatalf("%d sessions, stopped %d times, %d taken over", w.count(), stops, w.counts.restored)
		}
	}
	w.settled()
	if w.events[Resumed] != 4*nodes {
		t.Errorf("%d processes went on", w.events[Resumed])
	}
}

// A process that is restarted with its memory while the engine does not answer goes on as long as its buddy answers. Limits do not rise, and no session leaves, until the engine
// is back. If the buddy has taken the sessions over meanwhile, they are dropped.
func TestRestartWithoutEngine(t *testing.T) {
	w := newWorld(t, 10, Lease)
	for range 25 {
		w.handshake(w.up[0])
	}
	w.until("the sessions have copies", 10*time.Second, w.replicated)
	for range 5 { // so that the next process gives other numbers to the rest
		first := w.up[0].numbers[0]
		w.up[0].sessions[first].leaving = true
		w.take(w.up[0], w.up[0].Remove(first))
		w.until("a session is gone", time.Second, func() bool { return w.up[0].sessions[first] == nil })
	}
	w.until("those that have moved have copies", 10*time.Second, w.replicated)
	w.engineCut[0] = true
	w.start(0, w.stop(0))
	w.run(3 * Hold)
	p := w.up[0]
	if w.counts.timeStops+w.counts.limitStops+w.events[Resumed] > 0 {
		t.Fatalf("%+v", w.counts)
	}
	if o := p.Remove(p.numbers[0]); len(o.Removed) > 0 {
		t.Fatal("a session leaves, of which the buddy has a copy")
	}
	w.left[0] = w.stop(0)
	w.until("the buddy has the sessions", Hold+time.Second, func() bool { return w.counts.restored == 20 })
	w.start(0, w.left[0])
	w.run(5 * time.Second)
	if p := w.up[0]; p.clock < p.SealUntil() {
		t.Error("a process that may have been taken over goes on")
	}
	w.engineCut[0] = false
	w.until("they are dropped", 3*time.Second, func() bool { return len(w.up[0].sessions) == 0 })
	w.settled()
}

// A time of another clock entitles to nothing.
func TestResumeWithAnotherClock(t *testing.T) {
	for until, want := range map[time.Duration]bool{-time.Hour: false, 0: false, 1: true, Hold - margin: true, Hold - margin + 1: false, time.Hour: false} {
		n := New(Config{Self: Process{1, 2}, Sessions: 1})
		n.Resume(Resume{Term: 5, Buddy: Process{2, 3}, SealUntil: time.Minute + until, Now: time.Minute})
		if got := time.Minute < n.SealUntil(); got != want {
			t.Errorf("%v: may seal: %v", until, got)
		}
	}
}
