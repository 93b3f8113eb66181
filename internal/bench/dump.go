package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// DumpConfig says which tables to list while datagrams go through them.
type DumpConfig struct {
	Run
	Flows    int           // answered flows in the table
	Rate     float64       // datagrams a second over these flows
	Duration time.Duration // of a phase
	Only     []string      // targets; none: all
}

// DumpTargets names the data paths.
func DumpTargets() []string { return []string{"nat-xdp", "nat-tcx", "nfqueue", "udp"} }

// Validate says what cannot be meant.
func (c *DumpConfig) Validate() error {
	switch {
	case c.Flows < 1000 || c.Flows > maximumKnown:
		return fmt.Errorf("--flows %d: give 1000 to %d", c.Flows, maximumKnown)
	case !(c.Rate >= minimumDumpRate && c.Rate <= 10e6):
		return fmt.Errorf("--rate %g: give %d to 10000000 datagrams a second", c.Rate, minimumDumpRate)
	case c.Duration < time.Second/2 || c.Duration > 10*time.Minute:
		return fmt.Errorf("--duration %v: give 500ms to 10m for each phase", c.Duration)
	}
	for _, name := range c.Only {
		if !slices.Contains(DumpTargets(), name) {
			return fmt.Errorf("--only %q: there are %s", name, strings.Join(DumpTargets(), ", "))
		}
	}
	return nil
}

const (
	minimumDumpRate = 100
	// A data path that loses datagrams without a dump is tried with this share of the rate, down to a sixtieth.
	dumpSlower   = 0.7
	dumpAttempts = 12
	// dumpDebt is short: a sender that was held up shall not test how long queues are.
	dumpDebt  = 5 * time.Millisecond
	dumpFills = 8 // how many times the flows are sent for all to be answered
)

// Names of the figures of a [Dump] result.
const (
	figureFlows       = "flows"        // in the table, proven
	figureDumps       = "dumps"        // lists that were written in full
	figureListed      = "listed"       // flows of the shortest of them
	figureDumpTime    = "dump time"    // mean
	figureScrapes     = "scrapes"      // of /metrics meanwhile
	figureQuietSent   = "quiet sent"   // datagrams of the phase without dumps
	figureQuietLost   = "quiet lost"   // of these
	figureDumpingSent = "dumping sent" // datagrams of the phase with dumps
	figureDumpingLost = "dumping lost" // of these
)

// dumpRun is one data path.
type dumpRun struct {
	floodRun
	config DumpConfig
	known  int // flows that are sent
	sink   int // the server's socket; the kernel drops and counts what arrives at it
}

// Dump fills the table of each data path with flows, sends datagrams through them, and lists them meanwhile. It needs root.
// When ctx ends it returns what was measured so far.
func Dump(ctx context.Context, config DumpConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := privileged(); err != nil {
		return nil, err
	}
	var targets []floodTarget
	for _, t := range floodTargets() {
		if slices.Contains(DumpTargets(), t.name) && (len(config.Only) == 0 || slices.Contains(config.Only, t.name)) {
			targets = append(targets, t)
		}
	}
	for i, target := range targets {
		config.progress(float64(i)/float64(len(targets)), "%s", target.name)
		result := &measure.Result{
			Scenario: scenarioDump, Path: target.name, Machine: machine(), Started: time.Now(),
			Parameters: map[string]string{paramLoad: scenarioDump, paramFamily: "ipv4"},
		}
		results = append(results, result)
		if why := target.absent(); why != nil {
			result.Parameters[paramVerdict] = "skipped: " + why.Error()
			continue
		}
		if err := runDump(ctx, config, target, result); err != nil {
			if ctx.Err() != nil {
				return results[:len(results)-1], nil
			}
			result.Parameters[paramFailed] = err.Error()
		}
	}
	return results, nil
}

// runDump builds the network of one data path, fills its table, and measures.
func runDump(ctx context.Context, config DumpConfig, target floodTarget, result *measure.Result) (err error) {
	r := &dumpRun{config: config, floodRun: floodRun{
		floodCell: floodCell{target: target}, config: FloodsConfig{Run: config.Run, Duration: config.Duration},
	}}
	topology := floodsTopology(target.vipAtServer, target.marks)
	flows := config.Flows
	if target.name == "udp" { // each of its flows has a socket of its own
		flows = min(flows, udpDumpFlows())
		topology.Namespaces[1].Sysctls = append(topology.Namespaces[1].Sysctls, netlab.Sysctl{Key: "net.ipv4.ip_local_port_range", Value: "1024 65535"})
	}
	r.flows = 2 * flows // every flow shall find a place in its set of places, and none make room for another
	what, _, _ := strings.Cut(target.about, ",")
	result.Parameters[paramAbout] = fmt.Sprintf("%s, room for %d flows", what, r.flows)
	if r.Stage, err = programs.OpenStage(config.Binary, &topology); err != nil {
		return err
	}
	r.Running.Swift = true
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := target.start(&r.floodRun, ctx); err != nil {
		return err
	}
	proven, err := r.fill(ctx, flows)
	if err != nil {
		return err
	}
	return r.measure(ctx, flows, proven, result)
}

// udpDumpFlows is how many flows weir nat can hold here: as many as it has descriptors and, with one backend, ports for.
func udpDumpFlows() int {
	const others = 2000 // and the few flows more that fill sends
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Max > 60000+others {
		return 60000
	}
	return int(limit.Max) - others
}

// metrics are the daemon's.
func (r *dumpRun) metrics(ctx context.Context) (map[string]float64, error) {
	return r.Daemons[0].Metrics(ctx)
}

// fill has at least so many flows answered, and returns how many the data path holds for proven. It sends a few more flows: in the
// kernel's table, whose sets have twelve places, some flows may not find one, and a list may leave out what is about to change.
// Each try sends at half the rate of the one before, down to a pass of ten seconds: where the server is not scheduled, its queue
// overflows, and the flows that come last in a pass would be lost in each.
func (r *dumpRun) fill(ctx context.Context, flows int) (proven float64, err error) {
	r.known = flows + flows/64
	attack := Attack{Kind: attackKnown, Flows: r.known, Rate: 30000, Debt: dumpDebt, Frames: uint64(r.known), Duration: time.Minute}
	for range dumpFills {
		attack.Rate = max(attack.Rate, float64(r.known)/10)
		if _, err := r.attack(ctx, attack); err != nil {
			return 0, err
		}
		metrics, err := r.metrics(ctx)
		if err != nil {
			return 0, err
		}
		if proven = metrics["weir_table_proven"]; proven >= float64(flows) {
			return proven, nil
		}
		attack.Rate /= 2
	}
	return proven, fmt.Errorf("only %.0f of %d flows were answered when %d had been sent %d times", proven, flows, r.known, dumpFills)
}

// dumpPhase is what became of the datagrams of a while.
type dumpPhase struct {
	sent, lost uint64
	reached    float64
	where      []string // they were lost
}

// send sends through the flows for a while.
func (r *dumpRun) send(ctx context.Context, rate float64) (p dumpPhase, err error) {
	before, err := r.lossesNow()
	if err != nil {
		return p, err
	}
	start, err := arrived(r.sink)
	if err != nil {
		return p, err
	}
	sent, err := r.attack(ctx, Attack{Kind: attackKnown, Flows: r.known, Rate: rate, Debt: dumpDebt})
	if err != nil {
		return p, err
	}
	if err := programs.Sleep(ctx, 300*time.Millisecond); err != nil { // what waits in a queue still counts
		return p, err
	}
	end, err := arrived(r.sink)
	if err != nil {
		return p, err
	}
	after, err := r.lossesNow()
	if err != nil {
		return p, err
	}
	p.sent, p.reached = sent.Sent, sent.Reached(attackKnown)
	p.lost = p.sent - min(p.sent, uint64(end-start)) // the kernel's counter has 32 bits and wraps
	if p.lost > 0 {
		p.where = lossText(since(before, after), p.lost)
	}
	return p, nil
}

// lossesNow is what the kernel counts as lost on the way, and the queues of netfilter.
func (r *dumpRun) lossesNow() (all netLosses, err error) {
	all = netLosses{}
	for _, name := range []string{"attacker", "middle", "server"} {
		l, err := readNetLosses(r.Lab.Namespace(name))
		if err != nil {
			return nil, err
		}
		for place, n := range l {
			if place != lossNoPort { // the answers to the spoofed addresses are not for a socket
				all[place] += n
			}
		}
	}
	if r.target.marks {
		if all["full queue of netfilter"], err = queueDrops(r.Lab.Namespace("middle")); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lossText says where datagrams were lost, and how many of them nothing explains.
func lossText(places netLosses, lost uint64) (text []string) {
	explained := uint64(0)
	for _, place := range slices.Sorted(maps.Keys(places)) {
		explained += places[place]
		text = append(text, fmt.Sprintf("%s %d", place, places[place]))
	}
	if explained < lost {
		text = append(text, fmt.Sprintf("unexplained %d", lost-explained))
	}
	return text
}

// measure finds the rate that the data path carries without a dump, and lists the flows at that rate.
func (r *dumpRun) measure(ctx context.Context, flows int, proven float64, result *measure.Result) error {
	raw, err := r.answers.udp.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) { r.sink = int(fd); err = dropAll(r.sink) }); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	rate := r.config.Rate
	var quiet dumpPhase
	for attempt := 0; ; attempt++ {
		if quiet, err = r.send(ctx, rate); err != nil {
			return err
		}
		if quiet.lost == 0 {
			break
		}
		if attempt == dumpAttempts || rate*dumpSlower < minimumDumpRate {
			return fmt.Errorf("without a dump %d of %d datagrams were lost at %.0f/s: %s", quiet.lost, quiet.sent, rate, strings.Join(quiet.where, ", "))
		}
		r.note(fmt.Sprintf("at %.0f/s it lost %d of %d without a dump (%s)", rate, quiet.lost, quiet.sent, strings.Join(quiet.where, ", ")))
		rate *= dumpSlower
	}
	started := time.Now()
	dumping, dumps, err := r.sendDumping(ctx, rate)
	if err != nil {
		return err
	}
	result.Elapsed, result.Requests, result.Errors = time.Since(started), dumping.sent-dumping.lost, dumping.lost
	result.Figures = []measure.Figure{
		{Name: figureAsked, Value: r.config.Rate, Unit: "/s"},
		{Name: figureReached, Value: dumping.reached, Unit: "/s"},
		{Name: figureFlows, Value: proven},
		{Name: figureListed, Value: float64(dumps.listed)},
		{Name: figureDumps, Value: float64(dumps.done)},
		{Name: figureDumpTime, Value: dumps.mean().Seconds(), Unit: "s"},
		{Name: figureScrapes, Value: float64(dumps.scrapes)},
		{Name: figureQuietSent, Value: float64(quiet.sent)},
		{Name: figureQuietLost, Value: float64(quiet.lost)},
		{Name: figureDumpingSent, Value: float64(dumping.sent)},
		{Name: figureDumpingLost, Value: float64(dumping.lost)},
	}
	if err := r.Running.Slow(); err != nil {
		r.note("other work may have delayed it: " + err.Error())
	}
	r.judge(result, flows, dumping, dumps)
	return nil
}

// dumpCounts is what was listed during a phase.
type dumpCounts struct {
	done, listed, scrapes int
	took                  time.Duration
}

func (c *dumpCounts) mean() time.Duration { return c.took / time.Duration(max(c.done, 1)) }

// sendDumping sends, and lists all flows again and again meanwhile, as an operator does, and reads the metrics twice a second.
func (r *dumpRun) sendDumping(ctx context.Context, rate float64) (p dumpPhase, c dumpCounts, err error) {
	var sending atomic.Bool
	sending.Store(true)
	err = during(func() (err error) {
		defer sending.Store(false)
		p, err = r.send(ctx, rate)
		return err
	}, func() error {
		for sending.Load() && ctx.Err() == nil {
			begin := time.Now()
			n, err := r.list(ctx)
			if err != nil {
				return err
			}
			if !sending.Load() && c.done > 0 { // no datagrams were sent meanwhile
				return nil
			}
			if c.done == 0 || n < c.listed {
				c.listed = n
			}
			c.done++
			c.took += time.Since(begin)
		}
		return nil
	}, func() error {
		for sending.Load() && ctx.Err() == nil {
			if _, err := r.metrics(ctx); err != nil {
				return err
			}
			c.scrapes++
			_ = programs.Sleep(ctx, 500*time.Millisecond) // its end is seen above
		}
		return nil
	})
	return p, c, err
}

// braces counts the objects of JSON that is written to it.
type braces int

func (b *braces) Write(p []byte) (int, error) {
	*b += braces(bytes.Count(p, []byte{'{'}))
	return len(p), nil
}

// list runs weir lb flows, and says how many flows it printed.
func (r *dumpRun) list(ctx context.Context) (int, error) {
	var out braces
	output := &programs.LastLines{}
	cmd := exec.CommandContext(ctx, r.config.Binary, "lb", "flows", "--json", "--limit", strconv.Itoa(maximumKnown), //nolint:gosec // our own binary
		"--admin", r.Daemons[0].Admin())
	cmd.Stdout, cmd.Stderr = &out, output
	if err := r.Running.Run(nil, cmd); err != nil {
		return 0, fmt.Errorf("weir lb flows: %w%s", err, output.LastOutput())
	}
	return int(out) - 1, nil // the list is an object, too
}
