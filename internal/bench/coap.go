package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// CoapConfig says how to measure what a CoAP/DTLS request costs its servers.
type CoapConfig struct {
	Binary   string        // weir itself
	Clients  int           // default 2000
	Warmup   time.Duration // under load before the window; default 2 s
	Duration time.Duration // the window; default 8 s
	Roads    []string      // names of CoapRoads or MovedRoads; default all CoapRoads
	Progress func(string)  // told what begins; may be nil
}

// coapRoad is one way from the clients to their servers.
type coapRoad struct {
	name      string
	plain     bool
	nodes     int
	balanced  bool // a weir nat stands between
	rebalance bool // its clients get a random node once they have their sessions
	moved     bool // in a lab of namespaces, its clients change their source addresses and ports four times
	kernel    bool // of moved: weir lb run --datapath ebpf stands between
}

func coapRoads() []coapRoad {
	return []coapRoad{
		{name: "plain", plain: true, nodes: 1},
		{name: "direct", nodes: 1},
		{name: "cluster", nodes: 3, balanced: true},
		{name: "cluster-wrong-node", nodes: 3, balanced: true, rebalance: true},
	}
}

// CoapRoads names what can be measured, in the order it is: one node over plain UDP; one node over DTLS; three nodes behind a
// weir nat, every record at its owner; the same with the clients spread anew, so that two of three records arrive at another
// node than their owner's.
func CoapRoads() []string {
	var names []string
	for _, r := range coapRoads() {
		names = append(names, r.name)
	}
	return names
}

// Names of the figures of a [Coap] result.
const (
	FigureServer    = "server CPU per request" // µs, all nodes together
	FigureForwarded = "forwarded"              // share of the requests that another node got first
	FigureMemory    = "server memory"          // bytes, largest resident set, all nodes together
	FigureRetrans   = "retransmissions"        // of the clients, whole run
	FigureSessions  = "lost sessions"          // of the clients, whole run; those begun anew as well
	FigureRebinds   = "changed ports"          // of the clients, whole run
	FigureMoves     = "changed addresses"      // of the clients, whole run; the port changed as well
	FigureForeign   = "forwarded records"      // between nodes, whole run
)

// Coap measures each road in turn, in processes of cfg.Binary on loopback, and returns a result for each. CPU time, requests
// and forwarded records are differences over the window, read from the kernel and from the nodes; round-trip times are the
// clients', over the whole run.
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
	if len(cfg.Roads) == 0 {
		cfg.Roads = CoapRoads()
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	var results []*measure.Result
	for _, name := range cfg.Roads {
		road, ok := findCoapRoad(name)
		if !ok {
			return results, fmt.Errorf("road %q is not known; use %s", name, strings.Join(CoapRoads(), ", "))
		}
		cfg.Progress(fmt.Sprintf("%s: %d clients, %v", road.name, cfg.Clients, cfg.Warmup+cfg.Duration))
		result, err := road.run(ctx, cfg)
		if err != nil {
			return results, fmt.Errorf("%s: %w", road.name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

func findCoapRoad(name string) (coapRoad, bool) {
	for _, r := range append(coapRoads(), movedRoads()...) {
		if r.name == name {
			return r, true
		}
	}
	return coapRoad{}, false
}

func (r coapRoad) run(ctx context.Context, cfg CoapConfig) (result *measure.Result, err error) {
	if r.moved {
		return r.runMoved(ctx, cfg)
	}
	temporary, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	dir := temporary.Path
	var daemons []*programs.Daemon
	defer func() {
		for _, d := range daemons {
			err = errors.Join(err, d.Stop())
		}
	}()
	start := func(name string, args ...string) (*programs.Daemon, error) {
		d, err := programs.StartDaemon(ctx, programs.NewGroup(), nil, cfg.Binary, dir, name, args...)
		if d != nil {
			daemons = append(daemons, d)
		}
		return d, err
	}
	nodes, target, err := r.servers(start)
	if err != nil {
		return nil, err
	}
	var nat *programs.Daemon
	if r.balanced {
		free, err := programs.FreeUDP(1)
		if err != nil {
			return nil, err
		}
		vip := free[0].String()
		if nat, err = start("nat", append([]string{"nat", vip, "--"}, target...)...); err != nil {
			return nil, err
		}
		target = []string{vip}
	}
	uri := "coaps://" + target[0] + "/benchmark?rlen=40"
	if r.plain {
		uri = "coap://" + target[0] + "/benchmark?rlen=40"
	}
	return r.load(ctx, cfg, nil, uri, nodes, nat)
}

// servers starts the nodes and returns their public addresses.
func (r coapRoad) servers(start func(string, ...string) (*programs.Daemon, error)) ([]*programs.Daemon, []string, error) {
	free, err := programs.FreeUDP(2 * r.nodes)
	if err != nil {
		return nil, nil, err
	}
	addresses := make([]string, len(free))
	for i := range free {
		addresses[i] = free[i].String()
	}
	var nodes []*programs.Daemon
	for i := range r.nodes {
		// One worker for each node: several nodes share the machine's few cores.
		args := []string{"coap", "server", "--workers", "1"}
		switch {
		case r.plain:
			args = append(args, "--listen", addresses[0], "--dtls", addresses[1])
		case r.nodes == 1:
			args = append(args, "--dtls-only", "--dtls", addresses[0])
		default:
			args = append(args, "--dtls-cluster", clusterFlag(addresses, i))
		}
		node, err := start(fmt.Sprintf("node%d", i+1), args...)
		if err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, node)
	}
	var public []string
	for i := range r.nodes {
		public = append(public, addresses[2*i])
	}
	return nodes, public, nil
}

// clusterFlag is the --dtls-cluster of node own (from 0); addresses are public, management, public, ...
func clusterFlag(addresses []string, own int) string {
	var all []string
	for i := 0; i < len(addresses); i += 2 {
		public := "---"
		if i/2 == own {
			public = addresses[i]
		}
		all = append(all, fmt.Sprintf("%s;%s;%d", public, addresses[i+1], i/2+1))
	}
	return strings.Join(all, ",")
}

// load runs the clients, in a namespace unless host is nil, and takes the window out of their run.
func (r coapRoad) load(ctx context.Context, cfg CoapConfig, host *netlab.Host, uri string, nodes []*programs.Daemon, nat *programs.Daemon) (*measure.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Warmup+cfg.Duration+3*time.Minute)
	defer cancel()
	args := []string{"coap", "bench", uri, "--clients", strconv.Itoa(cfg.Clients), "--requests", "1000000000", "--no-stop", "--allow-errors", "--json"}
	if r.moved {
		// Four changes, so that also a client has three whose datagram was lost when one was due. A fifth would come after the end.
		args = append(args, "--rebind-every", ((cfg.Warmup + cfg.Duration) * 2 / 9).String())
		for _, source := range movedSources("/32") {
			args = append(args, "--from", source.Addr().String())
		}
	}
	clients := exec.CommandContext(ctx, cfg.Binary, args...) //nolint:gosec // our own binary
	var out bytes.Buffer
	clients.Stdout = &out
	clients.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	clients.Cancel = func() error { return clients.Process.Signal(os.Interrupt) }
	clients.WaitDelay = 10 * time.Second
	progress, err := clients.StderrPipe()
	if err != nil {
		return nil, err
	}
	started, start := time.Now(), clients.Start
	if host != nil {
		start = func() error { return host.Start(clients) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	var last string
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		if last = lines.Text(); last == "Benchmark started." {
			break
		}
	}
	if last != "Benchmark started." {
		return nil, errors.Join(fmt.Errorf("the clients did not start: %s", last), clients.Wait())
	}
	drained := make(chan struct{})
	go func() { // the pipe must not fill up
		defer close(drained)
		for lines.Scan() {
		}
	}()
	before, after, err := r.window(ctx, cfg, nodes, nat, clients.Process.Pid)
	clients.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended; Wait tells
	<-drained
	if waited := clients.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("clients: %w", waited)
	}
	if err != nil {
		return nil, err
	}
	return r.result(cfg, started, before, after, out.Bytes())
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

func (r coapRoad) window(ctx context.Context, cfg CoapConfig, nodes []*programs.Daemon, nat *programs.Daemon, clients int) (before, after sample, err error) {
	if r.rebalance {
		if err := nat.Console(ctx, "rebalance"); err != nil {
			return before, after, err
		}
		if err := sleep(ctx, afterRebalance); err != nil {
			return before, after, err
		}
	}
	if err := sleep(ctx, cfg.Warmup); err != nil {
		return before, after, err
	}
	if before, err = takeSample(ctx, nodes, nat, clients); err != nil {
		return before, after, err
	}
	if err := sleep(ctx, cfg.Duration); err != nil {
		return before, after, err
	}
	after, err = takeSample(ctx, nodes, nat, clients)
	return before, after, err
}

func takeSample(ctx context.Context, nodes []*programs.Daemon, nat *programs.Daemon, clients int) (s sample, err error) {
	s.at = time.Now()
	for _, n := range nodes {
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
	if nat != nil {
		if s.nat, err = procstat.CPU(nat.PID()); err != nil {
			return s, err
		}
	}
	s.clients, err = procstat.CPU(clients)
	return s, err
}

func (r coapRoad) result(cfg CoapConfig, started time.Time, before, after sample, clients []byte) (*measure.Result, error) {
	var load struct {
		Result *measure.Result `json:"result"`
		Stats  struct {
			Retransmissions uint64 `json:"retransmissions"`
			LostSessions    uint64 `json:"lost_sessions"`
			Rehandshakes    uint64 `json:"rehandshakes"`
			Lost            uint64 `json:"lost"`
			Rebinds         uint64 `json:"rebinds"`
			Moves           uint64 `json:"moves"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(clients, &load); err != nil || load.Result == nil {
		return nil, fmt.Errorf("result of the clients: %w", errors.Join(err, errors.New(string(clients[:min(len(clients), 200)]))))
	}
	requests := after.requests - before.requests
	if requests == 0 {
		return nil, errors.New("no requests in the window")
	}
	perRequest := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(requests) }
	result := &measure.Result{
		Scenario: "coap", Road: r.name, Started: started, Elapsed: after.at.Sub(before.at), Requests: requests, Errors: load.Result.Errors,
		Parameters: map[string]string{"clients": strconv.Itoa(cfg.Clients), "nodes": strconv.Itoa(r.nodes), "workers": "1"},
		Bytes:      40 * requests, Latency: load.Result.Latency,
		Processes: []measure.Process{
			{Name: "servers", CPU: after.cpu - before.cpu, PeakBytes: after.memory},
			{Name: "clients", CPU: after.clients - before.clients},
		},
		Figures: []measure.Figure{
			{Name: FigureServer, Value: perRequest(after.cpu - before.cpu), Unit: "us"},
			{Name: FigureForwarded, Value: float64(after.forwarded-before.forwarded) / float64(requests), Unit: "share"},
			{Name: FigureMemory, Value: float64(after.memory), Unit: "bytes"},
			{Name: FigureRetrans, Value: float64(load.Stats.Retransmissions)},
			{Name: FigureSessions, Value: float64(load.Stats.LostSessions + load.Stats.Rehandshakes)},
		},
	}
	if r.moved {
		result.Figures = append(result.Figures,
			measure.Figure{Name: FigureRebinds, Value: float64(load.Stats.Rebinds)},
			measure.Figure{Name: FigureMoves, Value: float64(load.Stats.Moves)},
			measure.Figure{Name: FigureForeign, Value: float64(after.forwarded)})
	}
	if r.balanced {
		result.Processes = append(result.Processes, measure.Process{Name: "balancer", CPU: after.nat - before.nat})
	}
	return result, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
