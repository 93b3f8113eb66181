package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// Config says what to show. Zero values mean the defaults.
type Config struct {
	Binary   string        // the weir binary whose processes run
	Clients  int           // default 200
	Nodes    int           // 2 to 16, default 3
	Duration time.Duration // of the load, at least 6 s; default 30 s
	Seed     uint64        // of the load; 0 draws one
	Interval time.Duration // pause of a client with a connection ID between response and next request, at most 1 s; default none
	Out      io.Writer     // the live view, redrawn on a terminal
}

// Validate says what cannot be shown and what could be.
func (c Config) Validate() error {
	switch {
	case c.Clients < 1 || c.Clients > 10000:
		return fmt.Errorf("--clients %d: give 1 to 10000", c.Clients)
	case c.Nodes < 2 || c.Nodes > 16:
		return fmt.Errorf("--nodes %d: give 2 to 16; with one node no record can land on a wrong one", c.Nodes)
	case c.Duration < 6*time.Second || c.Duration > time.Hour:
		return fmt.Errorf("--duration %s: give 6s to 1h, so that each disturbance has a second to show", c.Duration)
	case c.Interval < 0 || c.Interval > time.Second:
		return fmt.Errorf("--interval %s: give 0 to 1s, so that each client sends between two disturbances", c.Interval)
	}
	return nil
}

// Run shows it. The error says what could not be started or written; a run that ended
// but proved nothing has Result.OK false and no error. Cancelling ctx stops everything
// and returns the context's error. Nothing it started is left when it returns.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	cfg.Clients, cfg.Nodes = cmp.Or(cfg.Clients, 200), cmp.Or(cfg.Nodes, 3)
	cfg.Duration = cmp.Or(cfg.Duration, 30*time.Second)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer dir.Remove()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group := programs.NewGroup()
	defer group.End()
	s, err := launch(ctx, cfg, group, dir.Path)
	for tries := 1; tries < 5 && err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error()); tries++ {
		s.stop() // another program was faster on one of the ports
		s, err = launch(ctx, cfg, group, dir.Path)
	}
	defer func() { s.stop() }()
	if err != nil {
		return nil, err
	}
	for _, d := range s.all() {
		go func() {
			select {
			case <-d.Ended():
				cancel(d.Failure()) // a run with a dead process is over, not slow
			case <-ctx.Done():
			}
		}()
	}
	return s.load(ctx, cfg)
}

// system is everything that runs.
type system struct {
	nat     *programs.Daemon
	nodes   []*programs.Daemon
	address string   // of the balancer
	backend []string // addresses of the nodes behind it
	before  tick     // the last answers of the nodes
	plain   *plainLoad
	clients int
}

func (s *system) all() []*programs.Daemon {
	if s.nat == nil {
		return s.nodes
	}
	return append(slices.Clone(s.nodes), s.nat)
}

// stop ends all processes side by side.
func (s *system) stop() {
	var wg sync.WaitGroup
	for _, d := range s.all() {
		wg.Go(func() { _ = d.Stop() }) // what became of it while it was needed is known
	}
	wg.Wait()
}

// launch starts the nodes, then the balancer. On error what runs is in the system all the same, for stop.
func launch(ctx context.Context, cfg Config, group *programs.Group, dir string) (*system, error) {
	s := &system{}
	ports, err := programs.FreeUDP(2*cfg.Nodes + 1)
	if err != nil {
		return s, err
	}
	for node := range cfg.Nodes {
		s.backend = append(s.backend, ports[2*node].String())
		var members []string
		for i := range cfg.Nodes {
			public := "---"
			if i == node {
				public = s.backend[node]
			}
			members = append(members, fmt.Sprintf("%s;%v;%d", public, ports[2*i+1], i+1))
		}
		d, err := programs.StartDaemon(ctx, group, nil, cfg.Binary, dir, fmt.Sprintf("node%d", node+1), "coap", "server", "--no-supervisor", "--dtls-only", "--workers", "1", "--dtls-cluster", strings.Join(members, ","))
		if d != nil {
			s.nodes = append(s.nodes, d)
		}
		if err != nil {
			return s, err
		}
	}
	s.address = ports[2*cfg.Nodes].String()
	s.before = tick{sessions: make([]int, cfg.Nodes), forwarded: make([]uint64, cfg.Nodes)}
	s.nat, err = programs.StartDaemon(ctx, group, nil, cfg.Binary, dir, "nat", append([]string{"nat", s.address, "--"}, s.backend...)...)
	return s, err
}

// shortest is the least time worth a point in a plot.
const shortest = 500 * time.Millisecond

// load runs the clients, disturbs them on schedule and judges what came of it.
func (s *system) load(ctx context.Context, cfg Config) (r *Result, err error) {
	r = &Result{Demo: v1.Demo{Clients: cfg.Clients, Nodes: cfg.Nodes, Seed: cfg.Seed}, planned: cfg.Duration}
	v := &view{live: terminal.NewLive(cfg.Out), total: cfg.Duration}
	defer v.live.Keep()
	plan := schedule(cfg.Duration)
	var before uint64
	second := func(snap client.Snapshot) {
		if snap.Period < shortest || snap.Elapsed > cfg.Duration+shortest {
			return // the rest of a second, and the last answers, say nothing about a rate
		}
		t, _ := s.tick(ctx, snap) // a node that stays silent is found at the end
		t.forwardRate = float64(total(t.forwarded)-before) / max(snap.Period.Seconds(), 0.001)
		before = total(t.forwarded)
		r.ticks = append(r.ticks, t)
		v.tick(t)
	}
	live := func(snap client.Snapshot) {
		second(snap) // without the event that follows it
		for len(plan) > 0 && snap.Elapsed >= plan[0].at {
			r.attribute(snap.Total.LostSessions, s.plain.stats().LostSessions)
			e := s.disturb(ctx, plan[0].kind, snap.Elapsed)
			r.Events = append(r.Events, e)
			v.event(e)
			plan = plan[1:]
		}
	}
	plain := plainClients(cfg.Clients)
	s.clients = cfg.Clients + plain
	fmt.Fprintf(v.live, "%4d clients with connection IDs\n%4d clients without\n→ weir nat %s → %d nodes\n", cfg.Clients, plain, s.address, cfg.Nodes)
	load := client.BenchConfig{
		URI: "coaps://" + s.address + "/benchmark?rlen=40", Clients: cfg.Clients, Duration: cfg.Duration,
		NoStop: true, Sockets: client.SocketsEach, Workers: 1, Seed: cfg.Seed, Pause: cfg.Interval,
	}
	without := load
	without.Clients, without.NoCID, without.AckTimeout, without.Pause, without.LiveEvery = plain, true, plainAckTimeout, plainPause, plainLook
	without.Duration = 2 * time.Hour // until it is stopped
	if s.plain, err = startPlain(ctx, without); err != nil {
		return nil, fmt.Errorf("clients without connection ids: %w", err)
	}
	defer s.plain.stop() //nolint:errcheck // its result is taken below
	bench, err := client.Bench(ctx, load, live)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(plan) > 0 {
		return nil, errors.New("the load ended before every disturbance; this is a defect of the demo")
	}
	if err := s.finish(ctx, r, bench); err != nil {
		return nil, err
	}
	v.end(r)
	return r, nil
}

// plainLook is how old the counters of the clients without connection ids may be.
const plainLook = 100 * time.Millisecond

// attribute books what has been lost since the last event to it.
func (r *Result) attribute(lost, plain uint64) {
	if len(r.Events) == 0 {
		return
	}
	last := &r.Events[len(r.Events)-1]
	last.Lost, last.LostPlain = lost, plain
	for _, e := range r.Events[:len(r.Events)-1] {
		last.Lost -= min(e.Lost, last.Lost)
		last.LostPlain -= min(e.LostPlain, last.LostPlain)
	}
}

func (s *system) finish(ctx context.Context, r *Result, bench client.BenchResult) error {
	last, err := s.tick(ctx, client.Snapshot{})
	if err != nil {
		return err // what was forwarded is not known: no verdict
	}
	// What the last event has done to the clients without connection ids shows when they have given up.
	select {
	case <-time.After(time.Duration(r.Events[len(r.Events)-1].At*float64(time.Second)) + plainGivesUp + shortest - bench.Elapsed):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.Plain, err = s.plain.stop(); err != nil {
		return fmt.Errorf("clients without connection ids: %w", err)
	}
	r.Plain.Clients = plainClients(r.Clients)
	stats := bench.Stats
	r.Established = stats.Handshakes
	r.attribute(stats.LostSessions, r.Plain.Lost)
	r.Requests, r.Retransmissions = stats.Requests, stats.Retransmissions
	r.Lost, r.Rehandshakes, r.Errors = stats.LostSessions, stats.Rehandshakes, stats.Errors
	r.Seconds = bench.Elapsed.Seconds()
	r.Rate = float64(stats.Requests) / max(r.Seconds, 0.001)
	r.P50, r.P99, r.Max = measure.Millis(bench.RTT.Quantile(0.5)), measure.Millis(bench.RTT.Quantile(0.99)), measure.Millis(bench.RTT.Max())
	r.Forwarded, r.rtt = total(last.forwarded), bench.RTT
	if n := len(r.ticks); n > 0 {
		r.Sessions = r.ticks[n-1].sessions // by now the clients have closed theirs
	}
	r.Drained = s.before.drained
	r.judge()
	return nil
}

// disturb does one thing through the balancer's console, as an operator would.
func (s *system) disturb(ctx context.Context, k kind, at time.Duration) v1.DemoEvent {
	last := len(s.backend)
	e := v1.DemoEvent{At: at.Seconds(), Kind: string(k), Label: k.words(s.clients, last)}
	line := string(k)
	if k == drain {
		line += " " + s.backend[last-1]
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	answer, err := s.nat.Console(ctx, line)
	if err != nil {
		e.Error = err.Error()
		return e
	}
	var dropped int
	if n, _ := fmt.Sscanf(answer, "%d - NAT entries dropped", &dropped); n == 1 {
		e.Label = k.words(dropped, last)
	}
	if k == drain {
		s.before.drained = last
	}
	return e
}

// tick queries every node. One that is too busy to answer counts as before and is in the error.
func (s *system) tick(ctx context.Context, snap client.Snapshot) (tick, error) {
	t := tick{
		at: snap.Elapsed.Seconds(), p50: snap.P50, p99: snap.P99,
		rate:            float64(snap.Interval.Requests) / max(snap.Period.Seconds(), 0.001),
		retransmissions: snap.Total.Retransmissions, errors: snap.Total.Errors,
		lost: snap.Total.LostSessions, drained: s.before.drained,
	}
	plain := s.plain.stats()
	t.plainLost, t.plainMade, t.plainRequests = plain.LostSessions, plain.Handshakes, plain.Requests
	var errs []error
	var nat v1.NATStatus
	if err := s.nat.Get(ctx, "/status", &nat); err != nil {
		errs = append(errs, fmt.Errorf("status of %w", err))
	}
	t.clients = make([]int, len(s.backend))
	for _, b := range nat.NAT.Backends {
		if i := slices.Index(s.backend, b.Addr.String()); i >= 0 {
			t.clients[i] = int(b.Entries)
		}
	}
	for i, n := range s.nodes {
		var status v1.CoAPStatus
		if err := n.Get(ctx, "/status", &status); err != nil {
			errs = append(errs, fmt.Errorf("status of %w", err))
			t.sessions, t.forwarded = append(t.sessions, s.before.sessions[i]), append(t.forwarded, s.before.forwarded[i])
			continue
		}
		sessions, forwarded := uint64(0), uint64(0)
		for _, l := range status.Listeners {
			sessions += l.Engine.Sessions
			if l.Cluster != nil {
				forwarded += l.Cluster.Forwarded
			}
		}
		t.sessions, t.forwarded = append(t.sessions, int(sessions)), append(t.forwarded, forwarded)
	}
	s.before = t
	return t, errors.Join(errs...)
}

func total(values []uint64) (sum uint64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// WriteHTML writes the page of the run.
func (r *Result) WriteHTML(w io.Writer) error { return r.report(time.Now(), r.method()).WriteHTML(w) }

// method says how the run was made.
func (r *Result) method() string {
	return fmt.Sprintf("%s\nload average: %s before, %s after\nThe same choices again: weir demo --clients %d --nodes %d --duration %s --seed %d\n%d weir coap server processes with one worker each, one weir nat process\n"+
		"Clients with connection IDs: RFC 7252 timers; each sends its next request when it has the answer.\n"+
		"Clients without: ACK_TIMEOUT %s, so that they notice a lost session within %.1f s instead of 93 s; a request every %s.\n%s/%s, %d cores, %s",
		r.Command, r.LoadBefore, r.LoadAfter, r.Clients, r.Nodes, r.planned, r.Seed, r.Nodes, plainAckTimeout, plainGivesUp.Seconds(), plainPause, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}
