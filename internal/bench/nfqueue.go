package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// NFQueueConfig says what of the scenario nfqueue to measure.
type NFQueueConfig struct {
	Run
	Rounds     int           // 1 to 100
	Duration   time.Duration // of one load over one road in one round; whole tenths of a second, 0.1 s to 60 s
	Roads      []string      // names of NFQueueRoads; empty: all. Direct is always measured
	With       []string      // peers to compare with in the same run, of NFQueuePeers
	Loads      []string      // names of NFQueueLoads; empty: all
	Families   []string      // ipv4, ipv6; empty: ipv4
	Offloads   []string      // on, off; empty: both
	Bandwidths []float64     // of the load udp, bit/s of payload; empty: 2 and 4 Gbit/s
	Fragmented []int         // of the load fragments, datagrams a second; empty: 15,000 and 40,000
}

// NFQueueOffloads names the settings of the interfaces in the order they are measured.
func NFQueueOffloads() []string { return []string{"on", "off"} }

// Validate says what cannot be meant.
func (c *NFQueueConfig) Validate() error {
	switch {
	case c.Rounds < 1 || c.Rounds > 100:
		return fmt.Errorf("%d rounds: want 1 to 100", c.Rounds)
	case c.Duration < time.Second/10 || c.Duration > time.Minute || c.Duration%(time.Second/10) != 0:
		return fmt.Errorf("%v for each load: want 0.1 to 60 seconds, in whole tenths", c.Duration)
	}
	for _, bandwidth := range c.Bandwidths {
		if !(bandwidth >= 1e6 && bandwidth <= 1e12) {
			return fmt.Errorf("bandwidth %v bit/s: want 1M to 1000G", bandwidth)
		}
	}
	for _, rate := range c.Fragmented {
		if rate < 1 || rate > 10_000_000 {
			return fmt.Errorf("%d fragmented datagrams a second: want 1 to 10000000", rate)
		}
	}
	return errors.Join(knownNames("road", c.Roads, NFQueueRoads()), knownNames("load", c.Loads, NFQueueLoads()),
		knownNames("family", c.Families, DSRFamilies()), knownNames("offload", c.Offloads, NFQueueOffloads()),
		checkPeers(c.With, NFQueuePeers()...))
}

func (c *NFQueueConfig) setDefaults() {
	if len(c.Families) == 0 {
		c.Families = []string{"ipv4"}
	}
	if len(c.Offloads) == 0 {
		c.Offloads = NFQueueOffloads()
	}
	if len(c.Bandwidths) == 0 {
		c.Bandwidths = []float64{2e9, 4e9}
	}
	if len(c.Fragmented) == 0 {
		c.Fragmented = []int{15000, 40000}
	}
}

// nfqCell is one load of one family over one road, with what each round found; NaN where a round found nothing.
type nfqCell struct {
	net    *nfqNet
	load   *nfqLoad
	family string

	elapsed    time.Duration
	rates      []float64 // Gbit/s, kpps or µs
	offered    []float64 // of datagrams: what was sent, as rates
	delivered  []float64 // of datagrams: percent of those sent
	busy       []float64 // percent of the machine, without other programs
	others     []float64 // cores that other programs kept busy meanwhile
	cost       []float64 // µs of the balancer's processor time for a packet of its queues
	bytes      uint64
	packets    uint64
	lost       uint64
	best, p99  []float64 // µs, of ping-pong
	spent      procstat.Machine
	balancer   time.Duration
	queued     uint64 // packets that the queues numbered
	queueDrops uint64
	userDrops  uint64
	queues     map[int]uint64 // of queued, by queue
	failed     error
}

// nfqBench is a run under way.
type nfqBench struct {
	config  NFQueueConfig
	dir     string // configurations and admin sockets
	nets    []*nfqNet
	cells   []*nfqCell
	running *programs.Group
}

// NFQueue measures each load over each road and returns one result for each pair, family and setting of the offloads. What
// fails, or is not there, is a result that says so, and the others go on. When ctx ends nothing is returned. Nothing is
// left behind either way.
func NFQueue(ctx context.Context, config NFQueueConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := netlab.Privileged(); err != nil {
		return nil, fmt.Errorf("needs root: %w", err)
	}
	config.setDefaults()
	b := &nfqBench{config: config, running: programs.NewGroup()}
	b.running.Swift = true
	b.choose()
	if err := needTools(b.tools()); err != nil {
		return nil, err
	}
	temporary, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	b.dir = temporary.Path
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	started := time.Now()
	for i, net := range b.nets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.config.progress(0, "setting up %s (%d of %d)", net.name(), i+1, len(b.nets))
		if err := b.open(ctx, net); err != nil && net.absent == "" {
			net.failed = fmt.Errorf("set up: %w", err)
		}
	}
	steps, done := config.Rounds*len(b.cells), 0
	err = takeTurns(ctx, config.Rounds, b.cells, func(round int, cell *nfqCell) error {
		b.config.progress(float64(done)/float64(steps), "round %d of %d: %s, %s, %s", round+1, config.Rounds, cell.net.name(), cell.load.name, cell.family)
		done++
		if cell.failed == nil {
			cell.failed = cell.net.failed
		}
		if cell.failed == nil && cell.net.absent == "" {
			if cell.failed = b.measure(ctx, cell); cell.failed != nil {
				cell.net.failed = cell.net.died() // no need to try its other loads
			}
			cell.failed = errors.Join(cell.failed, cell.net.failed)
		}
		if cell.failed != nil || cell.net.absent != "" { // keep the rounds of all cells in step
			cell.note(nfqRun{}, nfqSpent{})
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return b.results(started), nil
}

// choose makes the networks and cells that were asked for.
func (b *nfqBench) choose() {
	c := &b.config
	wanted := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	nets := map[nfqNetKey]*nfqNet{}
	loads := b.loads()
	// All roads of one load and setting follow each other: what is compared lies close in time.
	for i := range loads {
		load := &loads[i]
		if !wanted(c.Loads, load.kind) {
			continue
		}
		for _, offload := range NFQueueOffloads() {
			if !wanted(c.Offloads, offload) || load.datagrams && offload != c.Offloads[len(c.Offloads)-1] {
				continue // segmentation offload is no matter of datagrams: once is enough
			}
			for _, family := range DSRFamilies() {
				if !wanted(c.Families, family) {
					continue
				}
				for _, road := range nfqRoads() {
					if !road.wanted(c) || road.spread && !load.spread {
						continue
					}
					key := nfqNetKey{road.name, offload, load.dsr}
					if nets[key] == nil {
						nets[key] = &nfqNet{road: road, offload: offload, dsr: load.dsr, serves: map[string]bool{}}
						b.nets = append(b.nets, nets[key])
					}
					b.cells = append(b.cells, &nfqCell{net: nets[key], load: load, family: family})
				}
			}
		}
	}
}

func (b *nfqBench) tools() []string {
	programs := []string{"ethtool"}
	for _, net := range b.nets {
		programs = append(programs, net.road.tools...)
	}
	for _, cell := range b.cells {
		programs = append(programs, cell.load.tools...)
	}
	return programs
}

// close ends what open started. That a balancer ended with us when we were interrupted is no error of its own.
func (b *nfqBench) close(ctx context.Context) error {
	var errs []error
	for _, net := range b.nets {
		if net.weir != nil {
			if err := net.weir.Stop(); net.failed == nil && net.absent == "" { // else it is told already
				errs = append(errs, err)
			}
		}
	}
	if ctx.Err() != nil {
		errs = nil
	}
	b.running.End()
	for _, net := range b.nets {
		if net.lab != nil {
			errs = append(errs, net.lab.Down())
		}
	}
	return errors.Join(errs...)
}

// nfqSpent is what a run cost.
type nfqSpent struct {
	window   time.Duration
	machine  procstat.Machine
	balancer time.Duration
	queues   map[int]queueRow // differences
}

func (b *nfqBench) measure(ctx context.Context, cell *nfqCell) error {
	before, err := b.look(cell.net)
	if err != nil {
		return err
	}
	start := time.Now()
	run, err := cell.load.run(ctx, b, cell)
	if err != nil {
		return err
	}
	window := time.Since(start)
	after, err := b.look(cell.net)
	if err != nil {
		return err
	}
	if run.bytes+run.packets == 0 && run.latency == nil {
		return errors.New("nothing arrived")
	}
	spent := nfqSpent{window: window, balancer: after.balancer - before.balancer, queues: map[int]queueRow{}}
	spent.machine = procstat.Machine{
		Busy: after.machine.Busy - before.machine.Busy, Others: after.machine.Others - before.machine.Others,
		Ours: after.machine.Ours - before.machine.Ours,
	}
	for number, row := range after.queues {
		spent.queues[number] = row.since(before.queues[number])
	}
	cell.note(run, spent)
	return nil
}

// look reads the counters that a run is measured by.
func (b *nfqBench) look(net *nfqNet) (nfqSpent, error) {
	var now nfqSpent
	var err error
	if pid := net.pid(); pid != 0 {
		if now.balancer, err = procstat.CPU(pid); err != nil {
			return now, err
		}
		if now.queues, err = readQueues(net.balancer()); err != nil {
			return now, err
		}
	}
	now.machine, err = b.running.Machine()
	return now, err
}
