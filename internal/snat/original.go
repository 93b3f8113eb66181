package snat

import (
	"cmp"
	"slices"
	"time"
)

// tester is one client process of the original tester.
//
// It opens its connections one after another with blocking connects and stops at the first error. Only then do its
// heartbeats start: one byte on every socket each period. A socket that the server has closed answers the first write
// with a reset, and the second one kills the process. Whoever runs it starts it again, later each time.
type tester struct {
	open     []conn
	opening  conn
	tries    uint8
	beating  bool
	evicted  bool  // the server closed its sockets, which it has not noticed
	beats    uint8 // heartbeats since then
	restarts int
	started  uint64
	seen     uint64 // last byte or accept at the server
}

// testServer closes, when the count has stood still and its period is over, every socket that was silent since the
// previous time.
type testServer struct {
	last      int64
	validated uint64
}

const (
	restartFirst = 10 * time.Second // Kubernetes: at once, then 10 s, doubled up to 5 min, forgotten after 10 min of life
	restartMost  = 5 * time.Minute
	restartReset = 10 * time.Minute
	startSpread  = time.Minute // replicas do not start in the same moment
)

// restarts is how many different times to a restart there are: 1, 10, 20, 40, 80, 160 and 300 s.
const restarts = 7

func (sim *simulation) beginOriginal() {
	t, all := sim.s.Traffic, &sim.timeline
	sim.testers = make([]tester, sim.s.Replicas)
	sim.to.steps = all.every(uint64(1e9/t.Rate), step, 0)
	for i := range sim.to.waits {
		sim.to.waits[i] = all.every(uint64(time.Second)<<i, step, 0)
	}
	sim.to.beats, sim.to.ticks = all.every(uint64(t.Heartbeat), beat, 0), all.every(uint64(time.Second), tick, 0)
	sim.to.starts[0] = all.every(uint64(time.Second), start, 0)
	for i := 1; i < restarts; i++ {
		sim.to.starts[i] = all.every(uint64(min(restartFirst<<(i-1), restartMost)), start, 0)
	}
	first := make([]entry, sim.s.Replicas)
	for r := range first {
		first[r] = entry{uint64(sim.random.Int64N(int64(startSpread))), newConn(r, 0)}
	}
	slices.SortFunc(first, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.conn, b.conn)) })
	to := all.every(0, start, 0)
	for _, e := range first {
		all.append(to, e.at, e.conn)
	}
	all.append(sim.to.ticks, 0, 0)
}

func (sim *simulation) original(c conn, w what) {
	r := c.replica()
	t := &sim.testers[r]
	switch w {
	case start:
		*t = tester{open: t.open[:0], restarts: t.restarts, started: sim.now, seen: sim.now}
		sim.step(r, t)
	case step:
		sim.step(r, t)
	case beat:
		sim.beat(r, t)
	case tick:
		sim.validate()
		sim.timeline.append(sim.to.ticks, sim.now, 0)
	}
}

// step is one connect call, or the next SYN of one that blocks.
func (sim *simulation) step(r int, t *tester) {
	if t.tries == 0 {
		sim.run.Attempts++
		c := newConn(r, r%sim.s.Destinations)
		if !sim.acquire(c, 0, sim.local) {
			sim.run.Errors++
			sim.rampOver(r, t)
			return
		}
		t.opening = c.through(sim.pickServer())
		sim.waiting++
	}
	switch {
	case t.tries < synTries && sim.acquire(t.opening, sim.local, len(sim.counters)):
		sim.waiting--
		sim.countOpened(t.tries)
		t.tries, t.seen = 0, sim.now
		if t.open = append(t.open, t.opening); int64(len(t.open)) == sim.s.Connections {
			sim.rampOver(r, t)
			return
		}
		sim.timeline.append(sim.to.steps, sim.now, newConn(r, 0))
	case t.tries >= synTries:
		sim.waiting--
		sim.run.TimedOut++
		sim.giveBack(t.opening)
		sim.rampOver(r, t)
	default:
		sim.timeline.append(sim.to.waits[t.tries], sim.now, newConn(r, 0))
		t.tries++
	}
}

// rampOver begins the heartbeats; without a single connection the process ends instead.
func (sim *simulation) rampOver(r int, t *tester) {
	t.tries = 0
	if len(t.open) == 0 {
		sim.die(r, t)
		return
	}
	t.beating = true
	sim.beat(r, t)
}

// beat writes to every socket. Those that the server closed answer with RST, which every stage on the way sees.
func (sim *simulation) beat(r int, t *tester) {
	if t.evicted {
		if t.beats++; t.beats == 2 {
			sim.die(r, t)
			return
		}
		for _, c := range t.open {
			sim.letGo(c, byRST)
		}
		t.open = t.open[:0]
	} else {
		t.seen = sim.now
	}
	sim.timeline.append(sim.to.beats, sim.now, newConn(r, 0))
}

// die ends a process that has no connections any more.
func (sim *simulation) die(r int, t *tester) {
	sim.run.Restarts++
	if sim.now-t.started > uint64(restartReset) {
		t.restarts = 0
	}
	wait := min(t.restarts, len(sim.to.starts)-1)
	*t = tester{open: t.open[:0], restarts: t.restarts + 1}
	sim.timeline.append(sim.to.starts[wait], sim.now, newConn(r, 0))
}

// validate is the server's loop once a second. What it holds is what its page shows.
func (sim *simulation) validate() {
	v := &sim.server
	still := sim.held == v.last
	v.last = sim.held
	if !still || sim.now-v.validated < uint64(sim.s.Traffic.Validate) {
		return
	}
	previous := v.validated
	v.validated = sim.now
	for r := range sim.testers {
		if t := &sim.testers[r]; len(t.open) > 0 && !t.evicted && t.seen < previous {
			t.evicted, t.beats = true, 0
			sim.held -= int64(len(t.open))
			sim.run.Evicted += int64(len(t.open))
		}
	}
}
