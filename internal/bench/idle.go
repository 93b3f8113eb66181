package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// IdleConfig says how many sessions are idle when a node crashes.
type IdleConfig struct {
	Run
	Sessions int           // of all nodes
	Nodes    int           // one of which crashes
	Within   time.Duration // after the crash each client of that node sends a request, evenly within this time
	Down     time.Duration // from the crash until the node is started again
	Paths    []string      // names of IdlePaths; empty: all, without replicated where Etcd is empty
	Etcd     string        // program of etcd, for replicated
}

// Validate says what cannot be meant.
func (c *IdleConfig) Validate() error {
	switch {
	case c.Nodes < 2 || c.Nodes > 9:
		return fmt.Errorf("--nodes %d: give 2 to 9", c.Nodes)
	case c.Sessions < c.Nodes || c.Sessions > 1_000_000 || c.Sessions/c.Nodes > 60_000:
		return fmt.Errorf("--sessions %d: give %d to 1000000, at most 60000 for each node", c.Sessions, c.Nodes)
	case c.Within < 100*time.Millisecond || c.Within > time.Hour:
		return fmt.Errorf("--within %v: give 100ms to 1h", c.Within)
	case c.Down < 0 || c.Down > time.Hour:
		return fmt.Errorf("--down %v: give 0s to 1h", c.Down)
	}
	if slices.Contains(c.Paths, pathReplicated) && c.Etcd == "" {
		return fmt.Errorf("--only %s: the nodes need an etcd: give --replicate its program", pathReplicated)
	}
	return knownNames("path", c.Paths, namesOf(idlePaths()))
}

// paths are those of the configuration.
func (c *IdleConfig) paths() []idlePath {
	return slices.DeleteFunc(idlePaths(), func(p idlePath) bool { return !wanted(c.Paths, p.name) || p.copies && c.Etcd == "" })
}

const pathReplicated = "replicated"

// idlePath is what of a node ends, and who goes on with its sessions.
type idlePath struct {
	name, about string
	keeps       bool // sessions are to survive: no new handshakes
	copies      bool // nodes replicate their sessions
	crash       func(c *chaos, n *chaosNode) error
	restart     func(c *chaos, n *chaosNode) error // nil: it starts by itself
	moves       bool                               // the balancer sends the node's clients to the other nodes
}

func (p idlePath) describe() (name, about string) { return p.name, p.about }

func idlePaths() []idlePath {
	return []idlePath{
		{name: "process", about: "kill -9 of the node's serving process: the supervisor's memory has the sessions", keeps: true, crash: (*chaos).kill},
		{
			name: "memory", about: "kill -9 of the node with its supervisor: the sessions are gone, and their clients wait for their time-outs and make new ones at other nodes",
			crash: (*chaos).crash, restart: (*chaos).restart, moves: true,
		},
		{
			name: pathReplicated, about: "kill -9 of the node with its supervisor, where nodes replicate their sessions (--replicate): another node goes on with them",
			keeps: true, copies: true, crash: (*chaos).crash, restart: (*chaos).restart, moves: true,
		},
	}
}

// IdlePaths describes them: name, tab, what it is.
func IdlePaths() []string { return describe(idlePaths()) }

// IdleCrash lets a node of a cluster crash whose sessions are idle, and measures until when its clients are served again. It returns a result for each path.
func IdleCrash(ctx context.Context, config IdleConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	paths := config.paths()
	for i, path := range paths {
		own := config
		own.Progress = func(done float64, what string) {
			config.progress((float64(i)+done)/float64(len(paths)), "%s: %s", path.name, what)
		}
		result, err := measureIdle(ctx, &own, path)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			result = idleResult(&own, path, time.Now())
			result.Parameters[paramFailed] = err.Error()
		}
		results = append(results, result)
	}
	return results, nil
}

// measureIdle makes the sessions, lets the node crash and waits for the last of its clients.
func measureIdle(ctx context.Context, config *IdleConfig, path idlePath) (result *measure.Result, err error) {
	c := &chaos{ctx: ctx, config: ChaosConfig{Run: config.Run, Nodes: config.Nodes}, audit: newNonces(), links: newNonces()}
	if path.copies {
		c.config.Etcd = config.Etcd
	}
	if c.Stage, err = programs.OpenStage(config.Binary, chaosTopology(config.Nodes)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	each := config.Sessions / config.Nodes
	room := strconv.Itoa(2*each + 1024) // for those of the node that crashes, all at one other node
	if err := c.startCluster(func(*chaosNode) []string { return []string{"--max-sessions", room} }); err != nil {
		return nil, err
	}
	var load *coapLoad
	for i := range config.Nodes { // the last one's clients are those of the node that crashes
		n := c.nodes[len(c.nodes)-1-i]
		config.progress(float64(i)/float64(config.Nodes+1), "%d sessions at %s", each, n.name)
		within := 24 * time.Hour
		if i == config.Nodes-1 {
			within = config.Within
		}
		if load, err = c.sleepers(n, each, within); err != nil {
			return nil, err
		}
		defer load.stop()
	}
	node := c.nodes[0]
	if path.copies {
		config.progress(float64(config.Nodes)/float64(config.Nodes+1), "copies of the sessions of %s", node.name)
		if err := copied(ctx, node.daemon, node.name, each); err != nil {
			return nil, err
		}
	}
	config.progress(float64(config.Nodes)/float64(config.Nodes+1), "node1 crashes")
	crashed := time.Now()
	if err := path.happen(c, node, crashed, config.Down); err != nil {
		return nil, err
	}
	if err := awaitServed(ctx, config, load, each); err != nil {
		return nil, err
	}
	result = idleResult(config, path, crashed)
	fillIdle(result, path, crashed, each, load.taken())
	return result, nil
}

// happen lets the node crash, sends its clients to the others, and starts it again.
func (p *idlePath) happen(c *chaos, node *chaosNode, now time.Time, down time.Duration) error {
	if err := p.crash(c, node); err != nil {
		return err
	}
	if p.moves {
		for _, other := range c.nodes[1:] {
			if _, err := c.nat.Console(c.ctx, "add "+other.public); err != nil {
				return err
			}
		}
		if _, err := c.nat.Console(c.ctx, "remove "+node.public); err != nil {
			return err
		}
	}
	if p.restart == nil {
		return nil
	}
	if err := programs.Sleep(c.ctx, time.Until(now.Add(down))); err != nil {
		return err
	}
	return p.restart(c, node)
}

// sleepers makes the sessions of a node, behind a balancer of their own, and waits until all are there. They send a request each within a time from then on.
func (c *chaos) sleepers(n *chaosNode, sessions int, within time.Duration) (load *coapLoad, err error) {
	at := fmt.Sprintf("10.84.0.1:%d", chaosService+n.number)
	if c.nat, err = c.Daemon(c.ctx, chaosBalancer, "nat"+strconv.Itoa(n.number), "nat", at, "--quiet", "--workers", "1", "--", n.public); err != nil {
		return nil, err
	}
	load, err = startCoapLoad(c.Stage, "clients", "coaps://"+at+"/benchmark?rlen=40", "--clients", strconv.Itoa(sessions), "--sockets", "shared", "--workers", "1",
		"--interval", "48h", "--first-within", within.String(), "--duration", "47h", "--progress", "json")
	if err != nil {
		return nil, err
	}
	if err := load.started(c.ctx); err != nil {
		load.stop()
		return nil, err
	}
	// A node counts its sessions a moment after their clients have them.
	err = until(c.ctx, 10*time.Second, func() error {
		var status v1.CoAPStatus
		if err := n.daemon.Get(c.ctx, "/status", &status); err != nil {
			return err
		}
		have := uint64(0)
		for i := range status.Listeners {
			have += status.Listeners[i].Engine.Sessions
		}
		if have < uint64(sessions) {
			return fmt.Errorf("%s has %d of %d sessions: the machine is too slow to make them within the clients' minute", n.name, have, sessions)
		}
		return nil
	})
	if err != nil {
		load.stop()
		return nil, err
	}
	return load, nil
}

// idleLimit bounds the wait for the last client behind the time within which all send: EXCHANGE_LIFETIME is 247 s, a request is lost after 93 s at the latest.
const idleLimit = 4 * time.Minute

func awaitServed(ctx context.Context, config *IdleConfig, load *coapLoad, clients int) error {
	err := until(ctx, config.Within+idleLimit, func() error {
		served := uint64(0)
		if taken := load.taken(); len(taken) > 0 {
			served = taken[len(taken)-1].Total.Requests
		}
		if served < uint64(clients) {
			config.progress(1-1/float64(config.Nodes+1)*(1-float64(served)/float64(clients)), "%d of %d clients are served again", served, clients)
			return errors.New("not all clients are served again")
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed := load.failure(); failed != nil {
		return failed
	}
	_ = err // how many were served is a figure
	return nil
}

// servedAfter is when a share of the clients had been served, since the crash; NaN: never. Each client counts once: it sends no second request.
func servedAfter(share float64, crashed time.Time, clients int, samples []v1.CoAPBenchSample) float64 {
	want := uint64(math.Ceil(share * float64(clients)))
	for i := range samples {
		if samples[i].Total.Requests >= want {
			return samples[i].At.Sub(crashed).Seconds()
		}
	}
	return math.NaN()
}
