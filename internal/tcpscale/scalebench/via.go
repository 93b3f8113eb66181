package scalebench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/limits"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// ViaConfig is a path through the lab.
type ViaConfig struct {
	Path     string
	Backends int
	Binary   string        // weir
	Flows    int           // entries of the balancer's table; 0: enough
	Away     time.Duration // how long a balancer that is restarted stays away
	Events   []Plan
	Say      func(string) // what happens, for people
}

// Validate says what cannot be meant.
func (v *ViaConfig) Validate(hold time.Duration) error {
	if _, err := findPath(v.Path); err != nil {
		return err
	}
	gone := 0
	for _, p := range v.Events {
		if p.ofBackend() {
			gone++
		}
		if p.At < 0 || p.At >= hold {
			return fmt.Errorf("%s at %v: not within the hold of %v", p.Kind, p.At, hold)
		}
	}
	switch {
	case v.Backends < 1 || v.Backends > 200:
		return fmt.Errorf("%d backends: 1 to 200", v.Backends)
	case gone >= v.Backends:
		return fmt.Errorf("%d backends go: at least %d are needed", gone, gone+1)
	case v.Flows < 0:
		return fmt.Errorf("%d flows: at least 1", v.Flows)
	}
	return nil
}

// busy is the machine's processor time without other programs, in percent of one core; NaN: not measured.
func busy(v *Via) float64 {
	if v.Machine == nil || v.Others == nil {
		return math.NaN()
	}
	return *v.Machine - *v.Others
}

// leave is how many backends the plan takes away.
func (v *ViaConfig) leave() (n int) {
	for _, p := range v.Events {
		if p.ofBackend() {
			n++
		}
	}
	return n
}

// backend is a server in a namespace of its own.
type backend struct {
	name  string
	mu    sync.Mutex
	group *tcpscale.ServerGroup
	away  bool // its connections are no one's any more
}

// end ends the server: what it holds does not count from then on, but while it drains.
func (b *backend) end(how func(*tcpscale.ServerGroup)) {
	how(b.group)
	b.cut()
}

func (b *backend) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = true
}

func (b *backend) report() (r tcpscale.Report, counts bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.group.Report(), !b.away
}

// stage is a lab with a path, its servers and its balancer.
type stage struct {
	*programs.Stage
	via      *ViaConfig
	files    uint64
	backends []*backend
	balancer balancer
	clients  *tcpscale.Group
	began    time.Time // zero of the time axis
	shares   []v1.TCPShares
}

func (s *stage) say(text string) {
	if s.via.Say != nil {
		s.via.Say(text)
	}
}

// server is what all backends that are there count.
func (s *stage) server() tcpscale.Report {
	var there []tcpscale.Report
	for _, b := range s.backends {
		if r, counts := b.report(); counts {
			there = append(there, r)
		}
	}
	return tcpscale.MergeReports(there)
}

// RunVia is [Run] through a lab of network namespaces: clients, the path's balancer, and servers behind it. It needs root.
func RunVia(ctx context.Context, c Config, v ViaConfig) (result *Result, err error) {
	if err := v.Validate(c.Hold); err != nil {
		return nil, err
	}
	r, err := findPath(v.Path)
	if err != nil {
		return nil, err
	}
	if err := netlab.Privileged(); err != nil {
		return nil, fmt.Errorf("the lab needs root: %w", err)
	}
	if missing := r.missing(); len(missing) > 0 {
		return nil, fmt.Errorf("path %s: %s not in the PATH; install: apt-get install nftables iptables", r.name, strings.Join(missing, ", "))
	}
	files, err := tcpscale.RaiseFiles()
	if err != nil {
		return nil, err
	}
	n, load := c.Client.Connections, procstat.LoadAverage()
	if c.ClientWorkers == 0 {
		c.ClientWorkers = tcpscale.WorkersFor(n, files)
	}
	targets := 1
	if r.name == PathDirect {
		targets = v.Backends
	}
	c.Client.Sources = sources(n, c.ClientWorkers)
	findings := examine(&r, n, targets, len(c.Client.Sources))
	if !limits.Fits(findings) {
		return nil, &UnfitError{findings}
	}
	lab := topology(v.Backends)
	opened, err := programs.OpenStage(v.Binary, &lab)
	if err != nil {
		return nil, err
	}
	s := &stage{Stage: opened, via: &v, files: files}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if err := s.open(ctx, c, r, files); err != nil {
		return nil, err
	}
	if result, err = s.run(ctx, c); err != nil {
		return nil, err
	}
	result.Findings, result.Via.Sources = findings, len(c.Client.Sources)
	result.Command, result.LoadBefore = c.Command, load
	return result, nil
}

// sources are the clients' addresses: so many that no connect walks past half a range of ports, and enough of each worker
// for a hash of addresses to spread over queues.
func sources(connections, workers int) []netip.Addr {
	const enough = (65536 - firstPort) * 4 / 10
	each := (connections + workers - 1) / workers
	n := workers * max((each+enough-1)/enough, (16+workers-1)/workers)
	var all []netip.Addr
	for i := range min(n, tcpscale.MaxSources) {
		all = append(all, sourceAddress(i))
	}
	return all
}

// examine is the doctor's word on the lab that is to come.
func examine(r *path, connections, targets, sources int) []finding.Finding {
	state := limits.Read()
	state.PortLow, state.PortHigh, state.ReservedPorts = firstPort, 65535, 0
	state.SomaxConn, state.SynBacklog = backlog, backlog
	if !r.tracked {
		state.ConntrackMax = 0 // no program tracks there
	}
	return limits.Examine(state, limits.Want{Connections: connections, BothEnds: true, Targets: targets, Sources: sources, Conntracked: r.tracked})
}

// open starts servers and balancer, and sees that a connection comes through.
func (s *stage) open(ctx context.Context, c Config, r path, files uint64) error {
	share := c.Client.Connections / (s.via.Backends - s.via.leave())
	workers := c.ServerWorkers
	if workers == 0 {
		workers = tcpscale.WorkersFor(share+share/5+100, files) // hashes do not spread quite evenly, twice
	}
	for i := range s.via.Backends {
		launcher := tcpscale.Launcher{Command: c.Launcher.Command, Do: s.Lab.Namespace(backendName(i)).Do}
		group, err := tcpscale.StartServer(launcher, tcpscale.ServerConfig{
			Listen: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), port)}, ID: backendName(i), Backlog: backlog,
		}, workers)
		if err != nil {
			return fmt.Errorf("%s: %w", backendName(i), err)
		}
		s.backends = append(s.backends, &backend{name: backendName(i), group: group})
	}
	flows := s.via.Flows
	if flows == 0 {
		flows = max(2*c.Client.Connections, 16384)
		if r.queues {
			flows *= 2 // each queue has a part, and gets what the hash of addresses sends it
		}
	}
	s.balancer = balancer{path: r, config: *s.via, stage: s.Stage}
	if err := s.balancer.open(ctx, flows); err != nil {
		return err
	}
	return s.through(ctx)
}

// targets is where clients connect to.
func (s *stage) targets() (all []netip.AddrPort) {
	if s.balancer.path.name != PathDirect {
		return []netip.AddrPort{vip()}
	}
	for i := range s.backends {
		all = append(all, netip.AddrPortFrom(backendAddress(i), port))
	}
	return all
}

// through connects until it succeeds: next hops may still be looked up.
func (s *stage) through(ctx context.Context) (err error) {
	for end := time.Now().Add(programs.ReadyTimeout); time.Now().Before(end); {
		for range 2 * s.via.Backends { // so that most next hops are seen
			err = s.Lab.Namespace("clients").Do(func() error {
				dialer := net.Dialer{Timeout: 2 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(sourceAddress(0), 0))}
				conn, err := dialer.DialContext(ctx, "tcp", s.targets()[0].String())
				if err != nil {
					return err
				}
				return conn.Close()
			})
			if err != nil {
				break
			}
		}
		if err == nil {
			return nil
		}
		if died := errors.Join(ctx.Err(), s.balancer.failure()); died != nil {
			return died
		}
		if err := programs.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("no connection by way of %s: %w", s.via.Path, err)
}

// run ramps, holds with events, and takes the figures.
func (s *stage) run(ctx context.Context, c Config) (*Result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.Client.Targets = s.targets()
	clock := &viaMeter{stage: s}
	there := tcpscale.Launcher{Command: c.Launcher.Command, Do: s.Lab.Namespace("clients").Do}
	m := measuring{
		before: readMemory(), server: s.server, tick: c.Tick, ends: c.Ends,
		conditions: func() []Condition { return conditions(there, "the lab's", s.files) },
	}
	e := &events{stage: s, plan: s.via.Events}
	happened := make(chan error, 1)
	begun := false
	run := tcpscale.ClientRun{
		Launcher: there, Config: c.Client, Workers: c.ClientWorkers, For: c.Hold, Plateau: c.Plateau, Server: s.server,
		Started: func(group *tcpscale.Group) { s.clients, s.began = group, time.Now() },
		Late:    func() time.Duration { return e.late(time.Now()) },
	}
	holding, over := context.WithCancel(ctx)
	defer over()
	run.Tick = func(r tcpscale.Report) {
		if r.History == nil {
			s.remember(&r)
		}
		if err := s.balancer.failure(); err != nil && !begun {
			stop(err)
		}
		if !begun && !r.FullAt.IsZero() && r.History == nil {
			begun = true
			go func() {
				err := e.run(holding, r.FullAt)
				if err != nil {
					stop(err)
				}
				happened <- err
			}()
		}
		idle := s.idle(r.FullAt)
		m.paused = !idle
		m.look(r)
		clock.look(ctx, &r, idle, !r.FullAt.IsZero() && time.Since(r.FullAt) > c.Hold+e.late(time.Now())-2*time.Second)
	}
	report, err := run.Run(ctx)
	over()
	if begun {
		err = errors.Join(err, <-happened)
	}
	if err = errors.Join(err, unlessCanceled(context.Cause(ctx)), s.died()); err != nil {
		return nil, err
	}
	result := m.result(&report)
	result.Connections, result.Conditions = c.Client.Connections, m.found
	result.Via = &Via{Path: s.via.Path, Backends: s.via.Backends, Events: e.done, Shares: s.shares, Unexplained: account(e.done, &report)}
	clock.fill(result.Via)
	result.interrupt(ctx, s.began)
	result.judge()
	return result, nil
}

// unlessCanceled leaves out the error of a context that was cancelled without a cause.
func unlessCanceled(cause error) error {
	if errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

// idle says whether nothing has been done to the path yet.
func (s *stage) idle(full time.Time) bool {
	for _, p := range s.via.Events {
		if !full.IsZero() && time.Since(full) > p.At-500*time.Millisecond {
			return false
		}
	}
	return true
}

// died is why a part of the stage ended by itself.
func (s *stage) died() error {
	for _, b := range s.backends {
		if _, counts := b.report(); counts && b.group.Err() != nil {
			return fmt.Errorf("%s: %w", b.name, b.group.Err())
		}
	}
	return s.balancer.failure()
}

func (s *stage) remember(r *tcpscale.Report) {
	point := v1.TCPShares{Seconds: time.Since(s.began).Seconds(), Connections: map[string]int{}}
	for _, p := range tcpscale.Shares(r) {
		point.Connections[p.ID] = p.Connections
	}
	s.shares = append(s.shares, point)
}

// close ends everything.
func (s *stage) close(ctx context.Context) error {
	err := s.balancer.close(ctx)
	for _, b := range s.backends {
		b.group.Close()
	}
	return errors.Join(err, s.Stage.Close())
}

// viaMeter takes the figures of balancer and machine during the hold, until the first event.
type viaMeter struct {
	stage       *stage
	first, last struct {
		at                              time.Time
		busy, others, softirq, balancer time.Duration
	}
	counters *Balancer
}

// look is called every second. What only the running program knows is read when the hold is about to end.
func (m *viaMeter) look(ctx context.Context, r *tcpscale.Report, idle, ending bool) {
	if r.FullAt.IsZero() || r.History != nil || time.Since(r.FullAt) < 2*time.Second {
		return
	}
	if ending {
		if b, err := m.stage.balancer.look(ctx); err == nil {
			m.counters = &b
		}
		return
	}
	if !idle {
		return
	}
	machine, err := procstat.ReadMachine(m.ours())
	if err != nil {
		return // figures that are not to be had are 0
	}
	now := &m.last
	if m.first.at.IsZero() {
		now = &m.first
	}
	now.at, now.busy, now.others, now.balancer = time.Now(), machine.Busy, machine.Others, m.stage.balancer.cpu()
	now.softirq = time.Duration(procstat.Field("/proc/stat", "cpu", 7)) * 10 * time.Millisecond
}

// ours are the processes of the run.
func (m *viaMeter) ours() func(pid, group int) bool {
	pids := map[int]bool{os.Getpid(): true}
	for _, pid := range m.stage.clients.PIDs() {
		pids[pid] = true
	}
	for _, b := range m.stage.backends {
		for _, pid := range b.group.PIDs() {
			pids[pid] = true
		}
	}
	if d := m.stage.balancer.daemon(); d != nil {
		pids[d.PID()] = true
	}
	return func(pid, group int) bool { return pids[pid] || pids[group] }
}

func (m *viaMeter) fill(v *Via) {
	v.Balancer = m.counters
	span := m.last.at.Sub(m.first.at).Seconds()
	if span <= 0 {
		return
	}
	percent := func(a, b time.Duration) *float64 { return measured(100 * (b - a).Seconds() / span) }
	v.Machine, v.Others, v.Softirq = percent(m.first.busy, m.last.busy), percent(m.first.others, m.last.others), percent(m.first.softirq, m.last.softirq)
	if v.Balancer != nil {
		v.Balancer.CPU = percent(m.first.balancer, m.last.balancer)
	}
}
