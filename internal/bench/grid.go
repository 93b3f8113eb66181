package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// GridConfig says what of a scenario of paths and loads to measure.
type GridConfig struct {
	Run
	Rounds   int           // 1 to 100
	Duration time.Duration // of one load over one path in one round
	Paths    []string      // names of the scenario's paths; empty: all. Those that the others are compared with are always measured
	Loads    []string      // names of its loads; empty: all
	Families []string      // ipv4, ipv6
}

// Families names the address families in the order they are measured.
func Families() []string { return []string{"ipv4", "ipv6"} }

func (c *GridConfig) seconds() string {
	return strconv.FormatFloat(c.Duration.Seconds(), 'f', -1, 64)
}

// validate says what cannot be meant, of a scenario with these paths and loads.
func (c *GridConfig) validate(paths []*path, loads []*load) error {
	if c.Rounds < 1 || c.Rounds > 100 {
		return fmt.Errorf("%d rounds: want 1 to 100", c.Rounds)
	}
	return errors.Join(knownNames("path", c.Paths, namesOf(paths)), knownNames("load", c.Loads, namesOf(loads)), knownNames("family", c.Families, Families()))
}

func knownNames(what string, given, known []string) error {
	for _, name := range given {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no %s %q; there are %s", what, name, strings.Join(known, ", "))
		}
	}
	return nil
}

func wanted(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

// named is what a list of names and a help text are made of.
type named interface{ describe() (name, about string) }

// namesOf names each once, in order.
func namesOf[T named](all []T) (names []string) {
	for _, item := range all {
		if name, _ := item.describe(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// describe is the names, each followed by a tab and what it is.
func describe[T named](all []T) (lines []string) {
	for _, item := range all {
		name, about := item.describe()
		lines = append(lines, name+"\t"+about)
	}
	return lines
}

// path is one way from the clients to the servers, in a network of its own: rules, connection tracking and programs of one would
// change what every other costs.
type path struct {
	name, about string
	tools       []string
	open        func(ctx context.Context, g *grid, p *path) error // builds the path in its network, which is up
	topology    netlab.Topology
	clients     string // namespace of the clients
	servers     string // namespace of the servers
	variant     string // besides the name: what else distinguishes the network; may be empty

	address          func(family string) netip.Addr // of the VIP
	vip, vipAtServer bool                           // of dsr: clients send to the VIP; the backend answers from it (direct server return)
	cid              bool                           // its clients send connection ids
	sink             *sink                          // where its frames end; nil: at the servers
	nfq              nfqPath

	*programs.Stage
	served map[string]bool
	failed error  // it could not be set up, or has ended
	absent string // why this weir does not have it
}

func (p *path) describe() (name, about string) { return p.name, p.about }

// title names the path's network.
func (p *path) title() string { return p.name + p.variant }

// failure is the error of a program of the path that ended by itself.
func (p *path) failure() error {
	if p.nfq.peer != nil {
		return p.nfq.peer.failure(p)
	}
	return p.Failure()
}

// load is one way to load a path.
type load struct {
	name, about string
	kind        string // by which it is requested; empty: its name
	title, unit string // of its rate; unit: Gbit/s, Mpps, kpps or µs
	tools       []string
	server      string // what serve starts; loads of one server share it
	serve       func(ctx context.Context, g *grid, p *path, family string) error
	run         func(ctx context.Context, g *grid, c *cell) (round, error)
	nfq         nfqLoad
}

func (l *load) describe() (name, about string) {
	if l.kind != "" {
		return l.kind, l.about
	}
	return l.name, l.about
}

// round is what one load over one path found in one round.
type round struct {
	elapsed              time.Duration
	bytes, packets, sent uint64 // bytes for streams, packets for datagrams; sent: datagrams, 0 if not counted
	trips                *RoundTrips
}

// spent is what a round cost.
type spent struct {
	window   time.Duration
	machine  procstat.Machine
	balancer time.Duration
	queues   map[int]queueRow // differences
}

// cell is one load of one family over one path, with what each round found.
type cell struct {
	path    *path
	load    *load
	family  string
	rounds  []map[string]float64 // by name; what a round did not find is not in it
	elapsed time.Duration
	bytes   uint64
	packets uint64
	lost    uint64
	spent   spent
	failed  error

	queued                map[int]uint64 // packets that each queue numbered
	queueDrops, userDrops uint64
}

// ok says whether it has figures.
func (c *cell) ok() bool { return c.failed == nil && c.path.absent == "" }

// values are what the rounds found of one name, NaN where one found nothing.
func (c *cell) values(name string) []float64 {
	var all []float64
	for _, found := range c.rounds {
		all = append(all, orNaN(found, name))
	}
	return all
}

// grid is a run of paths and loads under way.
type grid struct {
	config   GridConfig
	scenario string
	dir      string // configurations and admin sockets
	paths    []*path
	cells    []*cell
	running  *programs.Group
	found    func(c *cell, r round, s spent) map[string]float64 // what a round noted
	figures  func(c *cell) []figure                             // what is reported of the rounds
	complete func(c *cell, result *measure.Result)              // adds what only this scenario reports
}

// run measures each load over each path, in network namespaces of its own, and returns one result for each cell. What fails, or is
// not there, is a result that says so, and the others go on. When ctx ends nothing is returned. Nothing is left behind either
// way.
func (g *grid) run(ctx context.Context) (results []*measure.Result, err error) {
	if err := errors.Join(privileged(), needTools(g.tools())); err != nil {
		return nil, err
	}
	temporary, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	g.dir = temporary.Path
	defer func() { err = errors.Join(err, g.close(ctx)) }()
	started := time.Now()
	for i, p := range g.paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g.config.progress(0, "setting up %s (%d of %d)", p.title(), i+1, len(g.paths))
		if err := g.open(ctx, p); err != nil && p.absent == "" {
			p.failed = fmt.Errorf("set up: %w", err)
		}
	}
	steps, done := g.config.Rounds*len(g.cells), 0
	err = takeTurns(ctx, g.config.Rounds, g.cells, func(number int, c *cell) error {
		g.config.progress(float64(done)/float64(steps), "round %d of %d: %s, %s, %s", number+1, g.config.Rounds, c.path.title(), c.load.name, c.family)
		done++
		g.step(ctx, c)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return g.results(started), nil
}

// step is one round of a cell. One that cannot be measured leaves a gap, so that the rounds of all cells are in step.
func (g *grid) step(ctx context.Context, c *cell) {
	if c.failed == nil {
		c.failed = c.path.failed
	}
	if c.failed == nil && c.path.absent == "" {
		if c.failed = g.measure(ctx, c); c.failed != nil {
			c.path.failed = c.path.failure() // no need to try its other loads
		}
		c.failed = errors.Join(c.failed, c.path.failed)
	}
	if c.failed != nil || c.path.absent != "" {
		g.note(c, round{}, spent{})
	}
}

func (g *grid) tools() (programs []string) {
	for _, p := range g.paths {
		programs = append(programs, p.tools...)
	}
	for _, c := range g.cells {
		programs = append(programs, c.load.tools...)
	}
	return programs
}

// open builds a path's network and the path.
func (g *grid) open(ctx context.Context, p *path) error {
	lab, err := netlab.Up(p.topology)
	if err != nil {
		return err
	}
	p.Stage = &programs.Stage{Binary: g.config.Binary, Dir: g.dir, Lab: lab, Running: g.running}
	return p.open(ctx, g, p)
}

// serve starts the servers that a path's loads need, each once.
func (g *grid) serve(ctx context.Context, p *path) error {
	p.served = map[string]bool{}
	for _, c := range g.cells {
		if key := c.load.server + c.family; c.path == p && c.load.serve != nil && !p.served[key] {
			p.served[key] = true
			if err := c.load.serve(ctx, g, p, c.family); err != nil {
				return err
			}
		}
	}
	return nil
}

// ready waits until a daemon is at work.
func ready(ctx context.Context) func(*programs.Daemon, error) error {
	return func(d *programs.Daemon, err error) error {
		if err != nil {
			return err
		}
		return d.Ready(ctx)
	}
}

// close ends what open started. That a balancer ended with us when we were interrupted is no error of its own.
func (g *grid) close(ctx context.Context) error {
	var errs []error
	for _, p := range g.paths {
		if p.Stage != nil {
			errs = append(errs, p.Stop())
		}
	}
	if ctx.Err() != nil {
		errs = nil
	}
	g.running.End()
	for _, p := range g.paths {
		if p.Stage != nil {
			errs = append(errs, p.Lab.Down())
		}
	}
	return errors.Join(errs...)
}

// measure is one round of a cell.
func (g *grid) measure(ctx context.Context, c *cell) error {
	before, err := g.look(c.path)
	if err != nil {
		return err
	}
	start := time.Now()
	r, err := c.load.run(ctx, g, c)
	if err != nil {
		return err
	}
	window := time.Since(start)
	after, err := g.look(c.path)
	if err != nil {
		return err
	}
	if r.bytes+r.packets == 0 && r.trips == nil {
		return errors.New("nothing arrived")
	}
	g.note(c, r, after.since(before, window))
	return nil
}

// look reads the counters that a round is measured by.
func (g *grid) look(p *path) (now spent, err error) {
	if pid := p.nfq.pid(); pid != 0 {
		if now.balancer, err = procstat.CPU(pid); err != nil {
			return now, err
		}
		if now.queues, err = readQueues(p.nfq.balancer(p)); err != nil {
			return now, err
		}
	}
	now.machine, err = g.running.Machine()
	return now, err
}

// since is what was spent since an earlier look.
func (s spent) since(before spent, window time.Duration) spent {
	now := spent{window: window, balancer: s.balancer - before.balancer, machine: metrics.Since(&s.machine, &before.machine), queues: map[int]queueRow{}}
	for number, row := range s.queues {
		now.queues[number] = row.since(before.queues[number])
	}
	return now
}

// note adds a round to a cell; one without anything leaves a gap.
func (g *grid) note(c *cell, r round, s spent) {
	c.rounds = append(c.rounds, g.found(c, r, s))
	c.elapsed += r.elapsed
	c.bytes += r.bytes
	c.packets += r.packets
	c.lost += r.sent - min(r.sent, r.packets)
	c.spent.balancer += s.balancer
	metrics.Add(&c.spent.machine, &s.machine)
	for number, row := range s.queues {
		if c.queued == nil {
			c.queued = map[int]uint64{}
		}
		c.queued[number] += uint64(row.sequence)
		c.queueDrops += uint64(row.queueDrops)
		c.userDrops += uint64(row.userDrops)
	}
}
