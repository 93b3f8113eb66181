package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// FailoverConfig says how many flows there are when one of two balancers is powered off.
type FailoverConfig struct {
	Run
	Flows   int           // of TCP and UDP together, half of each
	Rate    float64       // requests a second of all flows together
	BFD     time.Duration // between two packets of BFD; three missing ones are a dead path
	Paths   []string      // names of FailoverPaths; empty: all
	Changes []string      // names of FailoverChanges; empty: all
}

// Validate says what cannot be meant.
func (c *FailoverConfig) Validate() error {
	switch {
	case c.Flows < 2 || c.Flows%2 != 0 || c.Flows > 1_000_000:
		return fmt.Errorf("--flows %d: give an even number, 2 to 1000000", c.Flows)
	case !(c.Rate >= 10 && c.Rate <= 1e6):
		return fmt.Errorf("--rate %g: give 10 to 1000000 requests a second", c.Rate)
	case c.BFD < 10*time.Millisecond || c.BFD > 10*time.Second:
		return fmt.Errorf("--bfd %v: give 10ms to 10s", c.BFD)
	}
	if room := failoverRoom(); c.Flows > room {
		return fmt.Errorf("--flows %d: this process may open files for %d; raise ulimit -n", c.Flows, room)
	}
	if err := knownNames("path", c.Paths, namesOf(failoverPaths())); err != nil {
		return err
	}
	return knownNames("change", c.Changes, namesOf(failoverChanges()))
}

// failoverRoom is how many flows this process has files for: one at each end of a TCP connection, one for UDP.
func failoverRoom() int {
	const others = 1000
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return (int(min(limit.Max, 4<<20)) - others) * 2 / 3 &^ 1
}

// failoverPath is how two balancers work.
type failoverPath struct {
	name, about string
	mode        string                                      // of Weir's service; empty: the kernel's connection tracking
	more        string                                      // lines of its service
	sync        bool                                        // the balancers share the state of flows
	cid         bool                                        // datagrams have connection ids
	keeps       func(change string) (stream, datagram bool) // whether each TCP or UDP flow is to survive; nil: nothing is claimed
}

func (p failoverPath) describe() (name, about string) { return p.name, p.about }

// translates reports whether one balancer alone has all flows.
func (p *failoverPath) translates() bool { return p.mode == "nat" || p.mode == "" }

func failoverPaths() []failoverPath {
	snat := "  snat: {addresses: [" + failoverSNAT + "]}\n"
	return []failoverPath{
		{name: "weir-dsr", about: "mode l2dsr as by default, the router spreads flows over both balancers", mode: "l2dsr", keeps: func(change string) (bool, bool) {
			return change != changeAdded, change != changeAdded
		}},
		{
			name: "weir-dsr-tables", about: "the same with generations: 2, two earlier Maglev tables", mode: "l2dsr", more: "  generations: 2\n",
			keeps: func(change string) (bool, bool) { return true, change == changeNone },
		},
		{name: "weir-dsr-maglev", about: "the same with generations: 0, plain Maglev", mode: "l2dsr", more: "  generations: 0\n"},
		{
			name: "weir-cid", about: "mode l2dsr, steered by connection ids of DTLS 1.2; TCP as weir-dsr", mode: "l2dsr", cid: true,
			more:  "  cid: {protocols: [dtls12], layouts: [{length: 4, owner: {offset: 0, bits: 8}}]}\n",
			keeps: func(change string) (bool, bool) { return change != changeAdded, true },
		},
		{
			name: "weir-nat-sync", about: "mode nat with snat; one balancer has all flows, and shares their state (sync)", mode: "nat", more: snat, sync: true,
			keeps: func(string) (bool, bool) { return true, true },
		},
		{name: "weir-nat", about: "mode nat with snat, without sync", mode: "nat", more: snat},
		{name: "iptables-dnat", about: "the kernel translates by connection tracking, which is not synchronised; BIRD announces"},
	}
}

// FailoverPaths describes the paths: name, tab, what it is.
func FailoverPaths() []string { return describe(failoverPaths()) }

// failoverChange is what happens to the backends before the power-off.
type failoverChange struct{ name, about string }

func (c failoverChange) describe() (name, about string) { return c.name, c.about }

// The names of the changes.
const (
	changeNone     = "none"
	changeAdded    = "added"
	changeReturned = "returned"
)

func failoverChanges() []failoverChange {
	return []failoverChange{
		{changeNone, "the backends stay as they are"},
		{changeAdded, "a backend is added once the flows have begun"},
		{changeReturned, "a backend is away for a second before the flows begin"},
	}
}

// FailoverChanges describes them: name, tab, what it is.
func FailoverChanges() []string { return describe(failoverChanges()) }

// Failover powers one of two balancers off, for each path and each change of the backends, and counts which flows are lost. It needs root.
func Failover(ctx context.Context, config FailoverConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := privileged(); err != nil {
		return nil, err
	}
	var cells []*failover
	for _, path := range failoverPaths() {
		for _, change := range failoverChanges() {
			if wanted(config.Paths, path.name) && wanted(config.Changes, change.name) {
				cells = append(cells, &failover{config: config, path: path, change: change.name})
			}
		}
	}
	for i, c := range cells {
		c.config.Progress = func(done float64, what string) {
			config.progress((float64(i)+done)/float64(len(cells)), "%s, %s: %s", c.path.name, c.change, what)
		}
		result, err := c.measure(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			result = c.result(time.Now())
			result.Parameters[paramFailed] = err.Error()
			if errors.Is(err, errNoTool) {
				delete(result.Parameters, paramFailed)
				result.Parameters[paramAbsent] = err.Error()
			}
		}
		results = append(results, result)
	}
	return results, nil
}

// failover is one measurement: a path and a change.
type failover struct {
	*programs.Stage
	config    FailoverConfig
	path      failoverPath
	change    string
	balancers [2]*programs.Daemon // of Weir
	files     [2]string           // their configurations
	load      *failoverLoad
	atFirst   int // flows in the table of the balancer that is powered off; -1: not known
}

// measure builds the network, opens the flows and powers a balancer off.
func (c *failover) measure(ctx context.Context) (result *measure.Result, err error) {
	if err := needTools(c.tools()); err != nil {
		return nil, err
	}
	if c.Stage, err = programs.OpenStage(c.config.Binary, failoverTopology()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	c.config.progress(0, "two balancers")
	responders, err := c.serve()
	for _, r := range responders {
		defer r.close()
	}
	if err != nil {
		return nil, err
	}
	if err := c.balance(ctx); err != nil {
		return nil, err
	}
	if c.change == changeReturned {
		if err := c.away(ctx); err != nil {
			return nil, err
		}
	}
	c.load = &failoverLoad{config: &c.config, cid: c.path.cid}
	defer c.load.close()
	c.config.progress(0.1, "%d flows", c.config.Flows)
	if err := c.load.open(ctx, c.Host("client1")); err != nil {
		return nil, err
	}
	if c.change == changeAdded {
		if err := c.backends(ctx, failoverBackends+1); err != nil {
			return nil, err
		}
	}
	return c.powerOff(ctx)
}

// away takes a backend out of the configuration for a second.
func (c *failover) away(ctx context.Context) error {
	if err := c.backends(ctx, failoverBackends-1); err != nil {
		return err
	}
	if err := programs.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return c.backends(ctx, failoverBackends)
}

// powerOff lets all flows send, powers the first balancer off, and waits until each flow has sent again and had time for an answer.
func (c *failover) powerOff(ctx context.Context) (*measure.Result, error) {
	c.config.progress(0.4, "all flows send")
	stop := c.load.start(ctx)
	defer stop()
	if err := c.load.cycle(ctx); err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	lost, moved := c.load.mark()
	if moved > 0 {
		return nil, fmt.Errorf("%d flows were lost before the power-off", moved)
	}
	c.config.progress(0.6, "power-off")
	started := time.Now()
	if err := c.off(); err != nil {
		return nil, err
	}
	if err := programs.Sleep(ctx, 10*c.config.BFD); err != nil { // the router uses the other one by now
		return nil, err
	}
	if err := c.load.cycle(ctx); err != nil {
		return nil, err
	}
	stop()
	if err := c.load.rest(ctx); err != nil {
		return nil, err
	}
	if err := c.alive(); err != nil {
		return nil, err
	}
	result := c.result(started)
	c.fill(result, c.load.judge(started), lost)
	return result, nil
}

// alive is the error of the balancer that was to go on.
func (c *failover) alive() error {
	if c.balancers[1] == nil {
		return nil
	}
	return c.balancers[1].Failure()
}

// tools are the programs that the path needs.
func (c *failover) tools() []string {
	tools := []string{"bird", "birdc", "bridge", "ip"}
	if c.path.mode == "" {
		tools = append(tools, "iptables")
	}
	return tools
}

// ready waits until the second balancer has the state of all flows, where it is shared, and counts those of the first.
func (c *failover) ready(ctx context.Context) error {
	c.atFirst = -1
	if c.balancers[0] == nil {
		return nil
	}
	if err := until(ctx, programs.ReadyTimeout, func() error { return c.routed(ctx) }); err != nil {
		return err
	}
	if c.path.sync {
		if err := until(ctx, programs.ReadyTimeout, func() error { return c.synchronised(ctx) }); err != nil {
			return err
		}
	}
	flows, err := c.tracked(ctx, 0)
	c.atFirst = flows
	return err
}

// backendNames are those of the first n backends.
func backendNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("backend%d", i+1))
	}
	return slices.Clip(names)
}
