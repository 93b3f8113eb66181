package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// CoapConfig says how to measure what a CoAP/DTLS request costs its servers.
type CoapConfig struct {
	Run
	Clients  int           // default 2000
	Warmup   time.Duration // under load before the window; default 2 s
	Duration time.Duration // the window; default 8 s
	Paths    []string      // names of CoapPaths or MovedPaths; default all CoapPaths
	With     []string      // peers to compare with in the same run, of CoapPeers
	Interval time.Duration // of the requests of a client; 0: the next one follows the answer
}

// coapPath is one way from the clients to their servers.
type coapPath struct {
	name      string
	plain     bool
	nodes     int
	balanced  bool // a weir nat stands between
	rebalance bool // its clients get a random node once they have their sessions
	moved     bool // in namespaces, with root: its clients change their source addresses and ports four times
	kernel    bool // of moved: weir lb run --datapath ebpf stands between
	peer      bool // another project's server over DTLS
}

func (p coapPath) describe() (name, about string) { return p.name, "" }

func coapPaths() []coapPath {
	return []coapPath{
		{name: "plain", plain: true, nodes: 1},
		{name: "direct", nodes: 1},
		{name: "cluster", nodes: 3, balanced: true},
		{name: "cluster-wrong-node", nodes: 3, balanced: true, rebalance: true},
		{name: "moved-nat", nodes: 3, balanced: true, moved: true},
		{name: "moved-ebpf", nodes: 3, moved: true, kernel: true},
		{name: peerScandium, peer: true},
	}
}

// CoapPaths names what can be measured, in the order it is: one node over plain UDP; one node over DTLS; three nodes behind a
// weir nat, every record at its owner; the same with the clients spread again, so that two of three records arrive at another
// node than their owner's.
func CoapPaths() []string {
	return namesOf(slices.DeleteFunc(coapPaths(), func(p coapPath) bool { return p.moved || p.peer }))
}

// MovedPaths names the paths whose clients change their source addresses and ports at least three times: behind weir nat, which
// takes each for a new client, so nodes forward; and behind weir lb run --datapath ebpf, which reads the node in the
// connection id.
func MovedPaths() []string {
	return namesOf(slices.DeleteFunc(coapPaths(), func(p coapPath) bool { return !p.moved }))
}

// Names of the figures of a [Coap] result.
const (
	figureServer    = "server CPU per request" // µs, all nodes together
	figureForwarded = "forwarded"              // share of the requests that another node got first
	figureMemory    = "server memory"          // bytes, largest resident set, all nodes together
	figureRetrans   = "retransmissions"        // of the clients, whole run
	figureSessions  = "lost sessions"          // of the clients, whole run; those begun again as well
	figureRebinds   = "changed ports"          // of the clients, whole run
	figureMoves     = "changed addresses"      // of the clients, whole run; the port changed as well
	figureForeign   = "forwarded records"      // between nodes, whole run
)

// Validate says what cannot be meant.
func (c *CoapConfig) Validate() error {
	switch {
	case c.Clients < 1 || c.Clients > 20000:
		return fmt.Errorf("--clients: %d is not between 1 and 20000", c.Clients)
	case c.Duration < time.Second || c.Warmup < 100*time.Millisecond:
		return fmt.Errorf("--duration of %v and --warmup of %v: give at least 1s and 100ms", c.Duration, c.Warmup)
	case c.Interval < 0 || c.Interval > c.Duration:
		return fmt.Errorf("--interval %v: give 0 to the --duration, %v", c.Interval, c.Duration)
	}
	return checkPeers(c.With, CoapPeers()...)
}

// Coap measures each path in turn, in processes of cfg.Binary on loopback, and returns a result for each. CPU time, requests
// and forwarded records are differences over the window, read from the kernel and from the nodes; those of a
// peer are counted by its clients, who report every 0.1 s. Round-trip times are the
// clients', over the whole run: samples count from its start.
func Coap(ctx context.Context, cfg CoapConfig) ([]*measure.Result, error) {
	if cfg.Clients == 0 {
		cfg.Clients = 2000
	}
	if cfg.Warmup == 0 {
		cfg.Warmup = 2 * time.Second
	}
	if cfg.Duration == 0 {
		cfg.Duration = 8 * time.Second
	}
	if len(cfg.Paths) == 0 {
		cfg.Paths = CoapPaths()
	}
	var results []*measure.Result
	paths := slices.Concat(cfg.Paths, cfg.With)
	for i, name := range paths {
		at := slices.IndexFunc(coapPaths(), func(p coapPath) bool { return p.name == name })
		if at < 0 {
			return results, fmt.Errorf("path %q is not known; use %s", name, strings.Join(CoapPaths(), ", "))
		}
		cfg.progress(float64(i)/float64(len(paths)), "%s: %d clients, %v", name, cfg.Clients, cfg.Warmup+cfg.Duration)
		result, err := coapPaths()[at].run(ctx, cfg)
		if err != nil {
			return results, fmt.Errorf("%s: %w", name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// run measures one path.
func (p coapPath) run(ctx context.Context, cfg CoapConfig) (result *measure.Result, err error) {
	var topology *netlab.Topology
	if p.moved {
		if err := privileged(); err != nil {
			return nil, err
		}
		topology = p.movedTopology()
	}
	s, err := programs.OpenStage(cfg.Binary, topology)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	addresses, err := p.addresses()
	if err != nil {
		return nil, err
	}
	target := addresses[len(addresses)-1]
	for i := range p.nodes {
		// One worker for each node: several nodes share the machine's few cores.
		args := []string{"coap", "server", "--no-supervisor", "--workers", "1"}
		switch {
		case p.plain:
			args = append(args, "--listen", addresses[0].String(), "--dtls", addresses[1].String())
		case p.nodes == 1:
			args = append(args, "--dtls-only", "--dtls", addresses[0].String())
		default:
			args = append(args, "--dtls-cluster", clusterFlag(addresses[:2*p.nodes], i))
		}
		name := fmt.Sprintf("node%d", i+1)
		if _, err := s.Daemon(ctx, name, name, args...); err != nil {
			return nil, err
		}
	}
	servers := &coapServers{nodes: s.Daemons}
	switch {
	case p.balanced:
		args := []string{"nat", target.String(), "--"}
		for i := range p.nodes {
			args = append(args, addresses[2*i].String())
		}
		servers.nat, err = s.Daemon(ctx, "balancer", "nat", args...)
	case p.kernel:
		_, err = s.Kernel(ctx, "balancer", p.name, p.kernelConfig(), p.kernelInterfaces())
	case p.peer:
		servers.peer, err = p.startPeer(ctx, s, target, cfg.Clients)
	default:
		target = addresses[0]
	}
	if err != nil {
		return nil, err
	}
	scheme := "coaps"
	if p.plain {
		scheme = "coap"
	}
	return p.load(ctx, cfg, s, fmt.Sprintf("%s://%v/benchmark?rlen=40", scheme, target), servers)
}

// addresses are public and management of each node, then the VIP.
func (p coapPath) addresses() ([]netip.AddrPort, error) {
	if p.moved {
		return p.movedAddresses(), nil
	}
	return freePorts(nil, 2*p.nodes+1)
}

// clusterFlag is the --dtls-cluster of node own (from 0); addresses are public, management, public, ...
func clusterFlag(addresses []netip.AddrPort, own int) string {
	var all []string
	for i := 0; i < len(addresses); i += 2 {
		public := "---"
		if i/2 == own {
			public = addresses[i].String()
		}
		all = append(all, fmt.Sprintf("%s;%v;%d", public, addresses[i+1], i/2+1))
	}
	return strings.Join(all, ",")
}

// load runs the clients and takes the window out of their run.
func (p coapPath) load(ctx context.Context, cfg CoapConfig, s *programs.Stage, uri string, servers *coapServers) (*measure.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Warmup+cfg.Duration+3*time.Minute)
	defer cancel()
	args := []string{"--clients", strconv.Itoa(cfg.Clients), "--requests", "1000000000"}
	if cfg.Interval > 0 {
		args = append(args, "--interval", cfg.Interval.String())
	}
	if p.moved {
		// Four changes, so that also a client has three whose datagram was lost when one was due. A fifth would come after the end.
		args = append(args, "--rebind-every", ((cfg.Warmup + cfg.Duration) * 2 / 9).String())
		for _, source := range movedSources("/32") {
			args = append(args, "--from", source.Addr().String())
		}
	}
	if servers.peer != nil {
		args = append(args, "--progress", "json")
	}
	started := time.Now()
	l, err := startCoapLoad(s, "client", uri, args...)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	servers.load = l
	if err := l.started(ctx); err != nil {
		return nil, err
	}
	before, after, err := p.window(ctx, cfg, servers)
	if err != nil {
		return nil, err
	}
	total, err := l.end(ctx)
	if err != nil {
		return nil, err
	}
	return p.result(cfg, started, before, after, &total)
}

// coapServers are the processes of a path.
type coapServers struct {
	nodes []*programs.Daemon // Weir's
	nat   *programs.Daemon   // nil: none
	peer  *exec.Cmd          // nil: the nodes serve
	load  *coapLoad          // its clients
}

// sample is the state of all servers at one moment.
type sample struct {
	at                  time.Time
	requests, forwarded uint64
	cpu, nat, clients   time.Duration
	memory              uint64
}

// afterRebalance is when a client that moved is under way again: the answer to what it had asked before came from the old node
// and is lost, and it asks again after ACK_TIMEOUT times ACK_RANDOM_FACTOR at most (RFC 7252 section 4.8).
const afterRebalance = 3 * time.Second

func (p coapPath) window(ctx context.Context, cfg CoapConfig, servers *coapServers) (before, after sample, err error) {
	if p.rebalance {
		if _, err := servers.nat.Console(ctx, "rebalance"); err != nil {
			return before, after, err
		}
		if err := programs.Sleep(ctx, afterRebalance); err != nil {
			return before, after, err
		}
	}
	if err := programs.Sleep(ctx, cfg.Warmup); err != nil {
		return before, after, err
	}
	if before, err = servers.sample(ctx); err != nil {
		return before, after, err
	}
	if err := programs.Sleep(ctx, cfg.Duration); err != nil {
		return before, after, err
	}
	after, err = servers.sample(ctx)
	return before, after, err
}

// sample takes what they have done and spent so far.
func (c *coapServers) sample(ctx context.Context) (s sample, err error) {
	if c.peer != nil {
		if s.requests, err = c.load.answered(ctx); err != nil {
			return s, err
		}
		usage, err := procstat.Of(c.peer.Process.Pid)
		if err != nil {
			return s, fmt.Errorf("the server: %w", err)
		}
		s.cpu, s.memory = usage.CPU, usage.PeakBytes
	}
	s.at = time.Now()
	for _, n := range c.nodes {
		var status struct {
			Listeners []struct {
				Engine struct {
					Requests uint64 `json:"requests"`
				} `json:"engine"`
				Cluster struct {
					Forwarded uint64 `json:"forwarded"`
				} `json:"cluster"`
			} `json:"listeners"`
		}
		if err := n.Get(ctx, "/status", &status); err != nil {
			return s, err
		}
		usage, err := procstat.Of(n.PID())
		if err != nil {
			return s, err
		}
		s.cpu += usage.CPU
		s.memory += usage.PeakBytes
		for _, l := range status.Listeners {
			s.requests += l.Engine.Requests
			s.forwarded += l.Cluster.Forwarded
		}
	}
	if c.nat != nil {
		if s.nat, err = procstat.CPU(c.nat.PID()); err != nil {
			return s, err
		}
	}
	s.clients, err = procstat.CPU(c.load.cmd.Process.Pid)
	return s, err
}

func (p coapPath) result(cfg CoapConfig, started time.Time, before, after sample, load *v1.CoAPBench) (*measure.Result, error) {
	latency, err := measure.LatencyOf(load.Result.Latency)
	if err != nil {
		return nil, fmt.Errorf("result of the clients: %w", err)
	}
	requests := after.requests - before.requests
	if requests == 0 {
		return nil, errors.New("no requests in the window")
	}
	perRequest := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(requests) }
	result := &measure.Result{
		Scenario: scenarioCoap, Path: p.name, Machine: machine(), Started: started, Elapsed: after.at.Sub(before.at), Requests: requests, Errors: load.Result.Errors,
		Parameters: map[string]string{"clients": strconv.Itoa(cfg.Clients), "nodes": strconv.Itoa(max(p.nodes, 1)), "workers": "1"},
		Bytes:      40 * requests, Latency: latency, Samples: measure.SamplesOf(load.Result.Samples),
		Processes: []measure.Process{
			{Name: "servers", CPU: after.cpu - before.cpu, PeakBytes: after.memory},
			{Name: "clients", CPU: after.clients - before.clients},
		},
		Figures: []measure.Figure{
			{Name: figureServer, Value: perRequest(after.cpu - before.cpu), Unit: "us"},
			{Name: figureForwarded, Value: float64(after.forwarded-before.forwarded) / float64(requests), Unit: "share"},
			{Name: figureMemory, Value: float64(after.memory), Unit: "bytes"},
			{Name: figureRetrans, Value: float64(load.Stats.Retransmissions)},
			{Name: figureSessions, Value: float64(load.Stats.LostSessions + load.Stats.Rehandshakes)},
		},
	}
	if p.peer {
		result.Parameters["workers"], result.Parameters[paramPeer] = "its own", "yes"
	}
	if p.moved {
		result.Figures = append(result.Figures,
			measure.Figure{Name: figureRebinds, Value: float64(load.Stats.Rebinds)},
			measure.Figure{Name: figureMoves, Value: float64(load.Stats.Moves)},
			measure.Figure{Name: figureForeign, Value: float64(after.forwarded)})
	}
	if p.balanced {
		result.Processes = append(result.Processes, measure.Process{Name: "balancer", CPU: after.nat - before.nat})
	}
	return result, nil
}
