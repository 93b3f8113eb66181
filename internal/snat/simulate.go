package snat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// synTries is how often a SYN is sent: at 0, 1, 3, 7, 15, 31, 63 s, and the kernel gives up at 127 s.
const synTries = 7

// reconnect is how long a client that keeps its connections waits after a failure, and after a loss.
const (
	reconnectFailed = 10 * time.Second
	reconnectLost   = time.Second
)

const (
	maxCells   = 1 << 24
	maxEvents  = 2_000_000_000
	maxSamples = 600
)

// simulation is one run.
type simulation struct {
	s        Scenario
	timeline timeline
	now      uint64
	arriveAt uint64 // open: the next connection comes, or never
	closeAt  uint64 // lifetimes that vary: the next connection ends, or never
	random   *rand.Rand
	counters []counter
	taken    []*cell // scratch of acquire
	local    int     // counters[:local] are the client's own machine's
	groups   []holdGroup
	atOnce   [endings][]int // groups of each way to end without a hold-down
	holds    [endings]bool  // others have one
	to       logs
	live     []conn  // lifetimes that vary: connections that will end
	draw     uint64  // which of them ends next
	warm     conn    // that one, or one next to it
	left     []int64 // keep: connections that a replica has not tried yet
	turn     uint32  // of the next connection at the servers
	turns    uint32  // after which they begin again
	testers  []tester
	server   testServer
	held     int64
	waiting  int64
	half     int64 // opened in the first half
	run      Run
	sample   uint64
	next     uint64
}

// logs are the timeline's: what was written to each comes up later.
type logs struct {
	closed  [endings]int  // hold-downs
	slots   int           // the next slot of a replica
	retries [synTries]int // the next SYN
	failed  int           // another try after a failure
	lost    int           // or a loss
	opened  int           // lifetimes that are all the same
	bursts  int
	grown   []int // per counter
	steps   int   // of the original tester: the next connect
	waits   [synTries]int
	beats   int
	ticks   int
	starts  [restarts]int // one per time to the restart
}

// holdGroup is the stages to which something happens together.
type holdGroup struct {
	forget []int // they notice that a connection is no more
	free   []int // their ports are free again
}

// Simulate runs a scenario, valid and with its defaults, in virtual time. progress, if not nil, is called now and then
// with the share that is done. The error is the context's, or says that the scenario is too large for a simulation.
func Simulate(ctx context.Context, s Scenario, progress func(done float64)) (Run, error) {
	sim, err := newSimulation(s)
	if err != nil {
		return Run{}, err
	}
	end := uint64(s.Traffic.Duration)
	for {
		at := min(sim.timeline.next(), sim.arriveAt, sim.closeAt)
		if at == never {
			break
		}
		for at >= sim.next && sim.next <= end {
			sim.take(sim.next)
		}
		if at > end {
			break
		}
		sim.now = at
		sim.run.Events++
		if sim.run.Events&(1<<16-1) == 0 {
			if err := ctx.Err(); err != nil {
				return Run{}, err
			}
			if progress != nil {
				progress(float64(at) / float64(end))
			}
			if sim.run.Events > maxEvents {
				return Run{}, fmt.Errorf("simulate: more than %d events at %v of virtual time; shorten duration or lower rate", int64(maxEvents), time.Duration(at))
			}
		}
		switch at {
		case sim.arriveAt:
			sim.arriveAt += sim.gap()
			sim.arrival()
		case sim.closeAt:
			sim.close()
		default:
			sim.handle(sim.timeline.pop())
		}
	}
	for sim.next <= end {
		sim.take(sim.next)
	}
	return sim.finish(), nil
}

func newSimulation(s Scenario) (*simulation, error) {
	sim := &simulation{
		s: s, random: rand.New(rand.NewPCG(s.Traffic.Seed, 0x5eed)), arriveAt: never, closeAt: never, sample: max(uint64(s.Traffic.Duration)/maxSamples, 1),
		run: Run{WaitedFor: make([]int64, synTries)},
	}
	cells := int64(0)
	for _, st := range s.stages() {
		if st.perKey >= unbounded || st.kind == AcceptQueue {
			continue // bounds nothing that is held
		}
		if cells += s.cellsOf(st); cells > maxCells {
			return nil, fmt.Errorf("simulate: replicas or nodes times destinations, or server nodes times servers, are more than %d; simulate a share of them", maxCells)
		}
		sim.counters = append(sim.counters, newCounter(s, st))
	}
	sim.order()
	sim.addLogs()
	sim.holdGroups()
	sim.begin()
	return sim, nil
}

// order puts the client's own stages first: they are taken by the first SYN, the others only when it gets through.
func (sim *simulation) order() {
	var own, others []counter
	for _, c := range sim.counters {
		if c.level == replicaLevel {
			own = append(own, c)
		} else {
			others = append(others, c)
		}
	}
	sim.local = len(own)
	sim.counters = append(own, others...)
	sim.taken = make([]*cell, len(sim.counters))
}

// addLogs makes a log for everything that comes a constant time after something else.
func (sim *simulation) addLogs() {
	t, all := sim.s.Traffic, &sim.timeline
	gap := uint64(1e9 / t.Rate)
	for i := range sim.to.retries {
		sim.to.retries[i] = all.every(uint64(time.Second)<<i, retry, uint8(i+1))
	}
	sim.to.slots = all.every(gap, slot, 0)
	sim.to.failed, sim.to.lost = all.every(uint64(reconnectFailed), connect, 0), all.every(uint64(reconnectLost), connect, 0)
	sim.to.opened = all.every(uint64(t.Lifetime), ends, 0)
	sim.to.bursts = all.every(uint64(t.BurstEvery), burst, 0)
	sim.to.grown = make([]int, len(sim.counters))
	for i := range sim.counters {
		if g := sim.counters[i].growing; g != nil {
			sim.to.grown[i] = all.every(uint64(g.delay), grow, uint8(i))
		}
	}
}

func (sim *simulation) holdGroups() {
	for how := range endings {
		sim.to.closed[how] = sim.timeline.newLog()
		found := map[time.Duration]int{}
		for i := range sim.counters {
			after := sim.counters[i].hold(how)
			at, ok := found[after]
			if !ok {
				at = len(sim.groups)
				found[after] = at
				sim.groups = append(sim.groups, holdGroup{})
				if after == 0 {
					sim.atOnce[how] = append(sim.atOnce[how], at)
				} else {
					sim.holds[how] = true
					sim.timeline.newCursor(sim.to.closed[how], uint64(after), release, uint8(at))
				}
			}
			sim.groups[at].add(i, how == abandoned, sim.counters[i].rest == 0 || how != abandoned)
			if rest := sim.counters[i].rest; how == abandoned && rest > 0 {
				sim.holds[how] = true
				sim.timeline.newCursor(sim.to.closed[how], uint64(after+rest), release, uint8(len(sim.groups)))
				sim.groups = append(sim.groups, holdGroup{})
				sim.groups[len(sim.groups)-1].add(i, false, true)
			}
		}
	}
}

func (g *holdGroup) add(stage int, forget, free bool) {
	if forget {
		g.forget = append(g.forget, stage)
	}
	if free {
		g.free = append(g.free, stage)
	}
}

// begin schedules what starts everything.
func (sim *simulation) begin() {
	t := sim.s.Traffic
	switch t.Policy {
	case Open:
		sim.arriveAt = sim.gap()
		if t.Burst > 0 {
			sim.timeline.append(sim.to.bursts, 0, 0)
		}
	case Original:
		sim.beginOriginal()
	default:
		first := sim.timeline.every(0, slot, 0)
		sim.left = make([]int64, sim.s.Replicas)
		for r := range sim.left {
			sim.left[r] = sim.s.Connections
			sim.timeline.append(first, uint64(float64(r)/float64(len(sim.left))*1e9/t.Rate), newConn(r, 0))
		}
	}
	if t.Lifetime > 0 && t.Spread != "fixed" {
		sim.live = make([]conn, 0, min(sim.s.Plan().Holds*9/8+1024, 1<<24))
	}
	sim.draw = sim.random.Uint64()
	sim.turns = 1<<viaBits - 1
	if pairs := uint32(min(int64(sim.s.ServerNodes)*int64(sim.s.Servers), int64(sim.turns))); pairs > 1 {
		sim.turns -= sim.turns % pairs
	} else {
		sim.turns = 1
	}
}

// gap is the time to the next arrival of policy open.
func (sim *simulation) gap() uint64 {
	return uint64(sim.random.ExpFloat64() * 1e9 / sim.s.Traffic.Rate)
}

func (sim *simulation) handle(c conn, l *cursor) {
	switch l.what {
	case burst:
		sim.timeline.append(sim.to.bursts, sim.now, 0)
		for range sim.s.Traffic.Burst {
			sim.arrival()
		}
	case slot:
		sim.slot(c)
	case connect:
		sim.connect(c)
	case retry:
		sim.syn(c, l.arg)
	case ends:
		sim.ended(c)
	case release:
		sim.release(c, l.arg)
	case grow:
		sim.counters[l.arg].double(c.replica())
	default:
		sim.original(c, l.what)
	}
}

func (sim *simulation) arrival() {
	sim.connect(newConn(sim.random.IntN(sim.s.Replicas), sim.random.IntN(sim.s.Destinations)))
}

func (sim *simulation) slot(c conn) {
	r := c.replica()
	sim.left[r]--
	if sim.left[r] > 0 {
		sim.timeline.append(sim.to.slots, sim.now, newConn(r, 0))
	}
	sim.connect(newConn(r, int((int64(r)+sim.left[r])%int64(sim.s.Destinations))))
}
