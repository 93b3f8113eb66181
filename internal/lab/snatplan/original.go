package snatplan

import "time"

// tester is one client process of the original tester.
//
// It opens its connections one after another with blocking connects and stops at the first error. Only then do its
// heartbeats start: one byte on every socket each period. A socket that the server has closed answers the first write
// with a reset, and the second one kills the process. Whoever runs it starts it again, later each time.
type tester struct {
	open     int64
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

func (sim *simulation) beginOriginal() {
	sim.testers = make([]tester, sim.s.Replicas)
	for r := range sim.testers {
		sim.queue.push(event{at: uint64(sim.random.Int64N(int64(startSpread))), what: start, replica: uint32(r)})
	}
	sim.queue.push(event{at: uint64(time.Second), what: tick})
}

func (sim *simulation) original(e event) {
	t := &sim.testers[e.replica]
	switch e.what {
	case start:
		*t = tester{restarts: t.restarts, started: sim.now, seen: sim.now}
		sim.step(e.replica, t)
	case step:
		sim.step(e.replica, t)
	case beat:
		sim.beat(e.replica, t)
	case tick:
		sim.validate()
		sim.queue.push(event{at: sim.now + uint64(time.Second), what: tick})
	}
}

func (t *tester) dst(replica uint32, destinations int) uint16 {
	return uint16(int(replica) % destinations)
}

// step is one connect call, or the next SYN of one that blocks.
func (sim *simulation) step(replica uint32, t *tester) {
	dst := t.dst(replica, sim.s.Destinations)
	if t.tries == 0 {
		sim.run.Attempts++
		if !sim.acquire(replica, dst, 0, sim.local) {
			sim.run.Errors++
			sim.rampOver(replica, t)
			return
		}
		sim.waiting++
	}
	if t.tries < synTries && sim.acquire(replica, dst, sim.local, len(sim.counters)) {
		sim.waiting--
		sim.countOpened(t.tries)
		t.tries, t.seen = 0, sim.now
		if t.open++; t.open == sim.s.Connections {
			sim.rampOver(replica, t)
			return
		}
		sim.queue.push(event{at: sim.now + uint64(1e9/sim.s.Traffic.Rate), what: step, replica: replica})
		return
	}
	if t.tries >= synTries {
		sim.waiting--
		sim.run.TimedOut++
		sim.giveBack(replica, dst, 0, sim.local)
		sim.rampOver(replica, t)
		return
	}
	sim.queue.push(event{at: sim.now + uint64(time.Second)<<t.tries, what: step, replica: replica})
	t.tries++
}

// rampOver begins the heartbeats; without a single connection the process ends instead.
func (sim *simulation) rampOver(replica uint32, t *tester) {
	t.tries = 0
	if t.open == 0 {
		sim.die(replica, t)
		return
	}
	t.beating = true
	sim.beat(replica, t)
}

func (sim *simulation) beat(replica uint32, t *tester) {
	if t.evicted {
		if t.beats++; t.beats == 2 {
			sim.die(replica, t)
			return
		}
	} else {
		t.seen = sim.now
	}
	sim.queue.push(event{at: sim.now + uint64(sim.s.Traffic.Heartbeat), what: beat, replica: replica})
}

func (sim *simulation) die(replica uint32, t *tester) {
	sim.run.Restarts++
	for range t.open {
		sim.letGo(replica, t.dst(replica, sim.s.Destinations), byFIN)
	}
	if !t.evicted {
		sim.held -= t.open
	}
	if sim.now-t.started > uint64(restartReset) {
		t.restarts = 0
	}
	wait := uint64(time.Second)
	if t.restarts > 0 {
		wait = min(uint64(restartFirst)<<min(t.restarts-1, 10), uint64(restartMost))
	}
	*t = tester{restarts: t.restarts + 1}
	sim.queue.push(event{at: sim.now + wait, what: start, replica: replica})
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
		if t := &sim.testers[r]; t.open > 0 && !t.evicted && t.seen < previous {
			t.evicted, t.beats = true, 0
			sim.held -= t.open
			sim.run.Evicted += t.open
		}
	}
}
