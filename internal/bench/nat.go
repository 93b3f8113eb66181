package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// NATConfig is a comparison of what forwards UDP.
type NATConfig struct {
	Run
	Clients  int
	Requests int // of one path in one round
	Rounds   int
	Payload  int      // bytes
	Workers  int      // of weir nat; 0: its default
	Network  string   // loopback, or veth: client, path and server on hosts of their own, which needs root; empty: loopback
	With     []string // peers to compare with in the same run, of NATPeers
	CfNAT    string   // path of the jar for the peer cf-nat, which it adds; empty: $WEIR_CF_NAT
}

// Validate says what cannot be meant.
func (c *NATConfig) Validate() error {
	switch {
	case c.Clients < 1 || c.Clients > 10000:
		return fmt.Errorf("%d clients: want 1 to 10000", c.Clients)
	case c.Requests < c.Clients || c.Requests > 100_000_000:
		return fmt.Errorf("%d requests: want at least one for each of %d clients", c.Requests, c.Clients)
	case c.Rounds < 1 || c.Rounds > 1000:
		return fmt.Errorf("%d rounds: want 1 to 1000", c.Rounds)
	case c.Payload < 8 || c.Payload > 60000:
		return fmt.Errorf("payload of %d bytes: want 8 to 60000", c.Payload)
	case c.Network != "" && c.Network != networkLoopback && c.Network != networkVeth:
		return fmt.Errorf("network %q: write loopback or veth", c.Network)
	case c.CfNAT != "":
		return nil // java says what is wrong with it
	}
	return checkPeers(c.With, NATPeers()...)
}

// NATPeers names the programs that [NAT] can compare with; socat and iptables take part where they are installed.
func NATPeers() []string { return []string{peerCfNAT} }

// jar is cf-nat's; empty without the peer.
func (c *NATConfig) jar() (string, error) {
	if c.CfNAT != "" || len(c.With) == 0 {
		return c.CfNAT, nil
	}
	return findPeer(peerCfNAT)
}

// NATResult is the outcome.
type NATResult = v1.NATBench

// natFigures is one way to the echo, with what its rounds found.
type natFigures struct {
	v1.NATBenchRow
	rates, proxy, total []float64
	latency             *measure.Timeline
	measured            time.Duration // of all rounds so far
}

func newNATFigures(name string) *natFigures {
	return &natFigures{NATBenchRow: v1.NATBenchRow{Name: name}, latency: measure.NewTimeline(time.Second)}
}

// straightPath is the name of the path without anything in it.
const straightPath = "straight"

type natPath struct {
	result  *natFigures
	network string // natPlain and its siblings; the others need root
	entry   netip.AddrPort
	proxy   *exec.Cmd // nil: none
	start   func(entry, echo netip.AddrPort) *exec.Cmd
	setup   func(ctx context.Context, entry, echo netip.AddrPort) error
	client  *netlab.Host // where the load runs; nil: the host's own network
	echo    *exec.Cmd
}

// natBench is one comparison under way.
type natBench struct {
	*programs.Stage
	config NATConfig
	ports  []netip.AddrPort // of the echo server and of the paths
	echoes map[string]*exec.Cmd
	paths  []*natPath
}

// NAT runs the comparison.
func NAT(ctx context.Context, config NATConfig) (result NATResult, err error) {
	if err := config.Validate(); err != nil {
		return result, err
	}
	result = NATResult{
		Clients: config.Clients, Requests: config.Requests, Rounds: config.Rounds, Payload: config.Payload,
		Cores: runtime.NumCPU(), Kernel: procstat.KernelRelease(), Network: "loopback of the host",
	}
	var topology *netlab.Topology
	switch err := netlab.Privileged(); {
	case err == nil && config.Network == networkVeth:
		topology = natTopology(config.Network)
		result.Network = "client, router and server in namespaces, veth between them"
	case err == nil:
		topology = natTopology(config.Network)
		result.Network = "loopback of a namespace, iptables and offload in one of their own each"
	case config.Network == networkVeth:
		return result, fmt.Errorf("network veth: %w", err)
	}
	b := &natBench{config: config, echoes: map[string]*exec.Cmd{}}
	if b.Stage, err = programs.OpenStage(config.Binary, topology); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.open(ctx); err != nil {
		return result, err
	}
	err = takeTurns(ctx, config.Rounds, b.paths, func(round int, p *natPath) error {
		if p.result.Skipped != "" {
			return nil
		}
		config.progress(float64(round)/float64(config.Rounds), "round %d of %d: %s", round+1, config.Rounds, p.result.Name)
		if err := b.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.result.Name, err)
		}
		return nil
	})
	if err != nil {
		return result, err
	}
	result.Paths = b.summary()
	return result, nil
}

// open starts the echo servers and every path.
func (b *natBench) open(ctx context.Context) (err error) {
	if b.ports, err = freePorts(b.Host(natPlain), 7); err != nil {
		return err
	}
	self := b.config.Binary
	weir := func(extra ...string) func(entry, echo netip.AddrPort) *exec.Cmd {
		return func(entry, echo netip.AddrPort) *exec.Cmd {
			args := append([]string{"nat", entry.String(), "--", echo.String(), "--quiet", "--nat-timeout", "0", "--admin", ""}, extra...)
			if b.config.Workers > 0 {
				args = append(args, "--workers", strconv.Itoa(b.config.Workers))
			}
			return exec.Command(self, args...)
		}
	}
	b.paths = []*natPath{
		{result: newNATFigures(straightPath)},
		{result: newNATFigures("weir nat"), start: weir("--offload", "none")},
		{result: newNATFigures("weir nat --reverse"), start: weir("--offload", "none", "--reverse")},
		{result: newNATFigures("weir nat, offload"), network: natOffload, start: weir("--offload", "tcx")},
		{result: newNATFigures("socat"), start: func(entry, echo netip.AddrPort) *exec.Cmd {
			return exec.Command("socat", "-T", "600",
				fmt.Sprintf("UDP4-LISTEN:%d,bind=%s,fork,reuseaddr", entry.Port(), entry.Addr()), "UDP4:"+echo.String())
		}},
		{result: newNATFigures("iptables DNAT"), network: natDNAT, setup: b.dnat},
	}
	jar, err := b.config.jar()
	if err != nil {
		return err
	}
	if jar != "" {
		b.paths = append(b.paths, &natPath{
			result: newNATFigures("cf-nat " + filepath.Base(jar)),
			start: func(entry, echo netip.AddrPort) *exec.Cmd {
				return exec.Command("java", "-jar", jar, entry.String(), "--", echo.String())
			},
		})
	}
	for i, p := range b.paths {
		if err := b.prepare(ctx, p, b.ports[i].Port()); err != nil {
			return fmt.Errorf("%s: %w", p.result.Name, err)
		}
	}
	return nil
}

// prepare starts a path and the echo server of its network. The straight one's entry is the echo server.
func (b *natBench) prepare(ctx context.Context, p *natPath, port uint16) (err error) {
	p.network = cmp.Or(p.network, natPlain)
	if p.network != natPlain && b.Lab == nil {
		p.result.Skipped = "needs root"
		return nil
	}
	hosts := b.hosts(p.network)
	echo := b.echoAt(hosts)
	p.client, p.entry = hosts.client, netip.AddrPortFrom(hosts.entry, port)
	if p.echo, err = b.echoIn(p.network, hosts); err != nil {
		return err
	}
	switch {
	case p.setup != nil:
		return p.setup(ctx, p.entry, echo)
	case p.start != nil:
		p.proxy = p.start(p.entry, echo)
		if _, err := exec.LookPath(p.proxy.Path); err != nil {
			p.result.Skipped = filepath.Base(p.proxy.Path) + " is not installed"
			return nil
		}
		return b.Running.Start(hosts.nat, p.proxy)
	}
	p.entry = echo
	return nil
}

// measure runs the load over one path and notes what it cost.
func (b *natBench) measure(ctx context.Context, p *natPath) error {
	load := udpLoad{
		To: p.entry, Clients: b.config.Clients, Requests: b.config.Requests, Payload: b.config.Payload,
		Timeout: 400 * time.Millisecond, Warmup: 5, Latency: p.result.latency, Before: p.result.measured,
	}
	var proxy, echo [2]time.Duration
	note := func(i int) func() error {
		return func() (err error) {
			if echo[i], err = procstat.CPU(p.echo.Process.Pid); err != nil {
				return err
			}
			if p.proxy != nil {
				proxy[i], err = treeCPU(p.proxy.Process.Pid)
			}
			return err
		}
	}
	var result udpLoadResult
	run := func() (err error) {
		result, err = load.Run(ctx, note(0), note(1))
		return err
	}
	if err := within(p.client, run); err != nil {
		return err
	}
	n := float64(result.Requests)
	spent := proxy[1] - proxy[0]
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	r := p.result
	r.Lost += result.Lost
	r.measured += result.Elapsed
	r.rates = append(r.rates, n/result.Elapsed.Seconds())
	r.proxy = append(r.proxy, micros(spent)/n/2)
	r.total = append(r.total, micros(spent+echo[1]-echo[0]+result.CPU)/n)
	return nil
}

func (b *natBench) summary() []v1.NATBenchRow {
	var paths []v1.NATBenchRow
	straight := 0.0
	for _, p := range b.paths {
		r := p.result
		if r.Skipped == "" {
			r.Rate, r.ProxyCPU, r.TotalCPU = median(r.rates), median(r.proxy), median(r.total)
			r.ProxyMin, r.ProxyMax = slices.Min(r.proxy), slices.Max(r.proxy)
			r.PerRequest = r.ProxyCPU * 2
			samples, latency := r.latency.End(r.measured)
			r.Samples, r.Latency = measure.SamplesForm(samples), latency.Form()
			if r.Name == straightPath {
				straight = r.TotalCPU
			}
			r.AddedCPU = (r.TotalCPU - straight) / 2
		}
		paths = append(paths, r.NATBenchRow)
	}
	return paths
}

// treeCPU is the time of a process and its living children: socat has one for each client.
func treeCPU(pid int) (time.Duration, error) {
	sum, err := procstat.CPU(pid)
	for _, child := range procstat.Descendants(pid) {
		if cpu, err := procstat.CPU(child); err == nil { // it may have ended since
			sum += cpu
		}
	}
	return sum, err
}
