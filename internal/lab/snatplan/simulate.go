package snatplan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Run is the result of a simulation. Counts are connections.
type Run struct {
	Name          string     `json:"name,omitempty"`
	Seed          uint64     `json:"seed"`
	Virtual       float64    `json:"virtual_s"`
	Events        int64      `json:"events"`
	Attempts      int64      `json:"attempts"`          // connects, SYN retries not counted
	Opened        int64      `json:"opened"`            // that succeeded
	Delayed       int64      `json:"delayed"`           // of these, only after a SYN retry
	TimedOut      int64      `json:"timed_out"`         // 127 s of silence
	Errors        int64      `json:"errors"`            // refused at once by the client's own machine
	Closed        int64      `json:"closed"`            // ended, by whatever
	Evicted       int64      `json:"evicted"`           // original: closed by the server for silence
	Restarts      int64      `json:"restarts"`          // original: client processes that died
	Peak          int64      `json:"peak"`              // most held at one time
	Lowest        int64      `json:"lowest"`            // least held in the last half
	Mean          float64    `json:"mean"`              // held in the last half
	Last          int64      `json:"last"`              // held at the end
	OpenPerSecond float64    `json:"opened_per_second"` // over the last half
	WaitedFor     []int64    `json:"opened_by_syn"`     // opened by the first SYN, the second, …
	Stages        []StageRun `json:"stages"`
	Series        Series     `json:"series"`
}

// Series is what was sampled, all of one length.
type Series struct {
	Second  []float64 `json:"second"`
	Held    []int64   `json:"held"`
	Waiting []int64   `json:"waiting"` // connects without an answer yet
	Busy    []int64   `json:"busy"`    // ports in use or held down at the stage that refused most
	Opened  []int64   `json:"opened"`  // so far
	Failed  []int64   `json:"failed"`  // so far, time-outs and errors
}

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
	queue    queue
	now      uint64
	random   *rand.Rand
	counters []counter
	local    int            // counters[:local] are the client's own machine's
	groups   []holdGroup    // hold-downs, one event each
	byEnd    [endings][]int // groups of each way to end
	left     []int64        // keep: connections that a replica has not tried yet
	testers  []tester
	server   testServer
	held     int64
	waiting  int64
	half     int64 // opened in the first half
	run      Run
	sample   uint64
	next     uint64
}

// holdGroup is the stages that free their ports together.
type holdGroup struct {
	after  uint64
	stages []int
	how    ending
}

// Simulate runs a scenario, valid and with its defaults, in virtual time. progress, if not nil, is called now and then
// with the share that is done. The error is the context's, or says that the scenario is too large for a simulation.
func Simulate(ctx context.Context, s Scenario, progress func(done float64)) (Run, error) {
	sim, err := newSimulation(s)
	if err != nil {
		return Run{}, err
	}
	end := uint64(s.Traffic.Duration)
	for sim.queue.size > 0 && sim.now < end {
		e := sim.queue.pop()
		for e.at >= sim.next && sim.next <= end {
			sim.take(sim.next)
		}
		if e.at > end {
			break
		}
		sim.now = e.at
		sim.run.Events++
		if sim.run.Events&(1<<16-1) == 0 {
			if err := ctx.Err(); err != nil {
				return Run{}, err
			}
			if progress != nil {
				progress(float64(e.at) / float64(end))
			}
			if sim.run.Events > maxEvents {
				return Run{}, fmt.Errorf("simulate: more than %d events at %v of virtual time; shorten duration or lower rate", int64(maxEvents), time.Duration(e.at))
			}
		}
		sim.handle(e)
	}
	for sim.next <= end {
		sim.take(sim.next)
	}
	return sim.finish(), nil
}

func newSimulation(s Scenario) (*simulation, error) {
	sim := &simulation{s: s, random: rand.New(rand.NewPCG(s.Traffic.Seed, 0x5eed)), sample: max(uint64(s.Traffic.Duration)/maxSamples, 1), run: Run{WaitedFor: make([]int64, synTries)}}
	cells := int64(0)
	for _, st := range s.stages() {
		if st.perKey >= unbounded || st.kind == AcceptQueue {
			continue // bounds nothing that is held
		}
		if n := st.owners * int64(s.Destinations); st.byDest && st.level <= nodeLevel {
			cells += n
		} else {
			cells += st.owners
		}
		if cells > maxCells {
			return nil, fmt.Errorf("simulate: replicas or nodes times destinations are more than %d; simulate a share of them", maxCells)
		}
		sim.counters = append(sim.counters, newCounter(s, st))
	}
	sim.order()
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
}

func (sim *simulation) holdGroups() {
	for how := range endings {
		found := map[time.Duration]int{}
		for i := range sim.counters {
			after := sim.counters[i].hold(how)
			at, ok := found[after]
			if !ok {
				at = len(sim.groups)
				found[after] = at
				sim.groups = append(sim.groups, holdGroup{after: uint64(after), how: how})
				sim.byEnd[how] = append(sim.byEnd[how], at)
			}
			sim.groups[at].stages = append(sim.groups[at].stages, i)
		}
	}
}

// begin schedules what starts everything.
func (sim *simulation) begin() {
	t := sim.s.Traffic
	switch t.Policy {
	case Open:
		sim.queue.push(event{at: sim.gap(), what: arrive})
		if t.Burst > 0 {
			sim.queue.push(event{at: uint64(t.BurstEvery), what: burst})
		}
	case Original:
		sim.beginOriginal()
	default:
		sim.left = make([]int64, sim.s.Replicas)
		for r := range sim.left {
			sim.left[r] = sim.s.Connections
			sim.queue.push(event{at: uint64(float64(r) / float64(len(sim.left)) * 1e9 / t.Rate), what: slot, replica: uint32(r)})
		}
	}
}

// gap is the time to the next arrival of policy open.
func (sim *simulation) gap() uint64 {
	return uint64(sim.random.ExpFloat64() * 1e9 / sim.s.Traffic.Rate)
}

func (sim *simulation) handle(e event) {
	switch e.what {
	case arrive:
		sim.queue.push(event{at: sim.now + sim.gap(), what: arrive})
		sim.arrival()
	case burst:
		sim.queue.push(event{at: sim.now + uint64(sim.s.Traffic.BurstEvery), what: burst})
		for range sim.s.Traffic.Burst {
			sim.arrival()
		}
	case slot:
		sim.slot(e)
	case connect:
		sim.connect(e.replica, e.dst)
	case retry:
		sim.syn(e)
	case ends:
		sim.close(e.replica, e.dst, ending(e.arg))
		if sim.s.Traffic.Policy == Keep {
			sim.queue.push(event{at: sim.now + uint64(reconnectLost), what: connect, replica: e.replica, dst: e.dst})
		}
	case release:
		sim.release(e)
	case grow:
		sim.counters[e.arg].double(int(e.replica))
	default:
		sim.original(e)
	}
}

func (sim *simulation) arrival() {
	sim.connect(uint32(sim.random.IntN(sim.s.Replicas)), uint16(sim.random.IntN(sim.s.Destinations)))
}

func (sim *simulation) slot(e event) {
	sim.left[e.replica]--
	if left := sim.left[e.replica]; left > 0 {
		sim.queue.push(event{at: sim.now + uint64(1e9/sim.s.Traffic.Rate), what: slot, replica: e.replica})
	}
	dst := (int64(e.replica) + sim.left[e.replica]) % int64(sim.s.Destinations)
	sim.connect(e.replica, uint16(dst))
}
