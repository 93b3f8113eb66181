package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// NATConfig is a comparison of what forwards UDP.
type NATConfig struct {
	Binary   string // our own, for weir nat and the echo
	Clients  int
	Requests int // of one road in one round
	Rounds   int
	Payload  int       // bytes
	Workers  int       // of weir nat; 0: its default
	With     []string  // peers to compare with in the same run, of NATPeers
	CfNAT    string    // path of the jar for the peer cf-nat, which it adds; empty: $WEIR_CF_NAT
	Out      io.Writer // progress
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
	case c.CfNAT != "":
		return nil // java says what is wrong with it
	}
	return checkPeers(c.With, NATPeers()...)
}

// NATPeers names the programs that [NAT] can compare with; socat and iptables take part where they are installed.
func NATPeers() []string { return []string{PeerCfNAT} }

// jar is cf-nat's; empty without the peer.
func (c *NATConfig) jar() (string, error) {
	if c.CfNAT != "" || len(c.With) == 0 {
		return c.CfNAT, nil
	}
	return findPeer(PeerCfNAT)
}

// NATResult is the outcome, one NATRoad for each way to the echo.
type NATResult struct {
	Clients  int       `json:"clients"`
	Requests int       `json:"requests"` // of one road in one round
	Rounds   int       `json:"rounds"`
	Payload  int       `json:"payload_bytes"`
	Cores    int       `json:"cores"`
	Kernel   string    `json:"kernel"`
	Network  string    `json:"network"` // loopback of a namespace, or of the host
	Roads    []NATRoad `json:"roads"`
}

// NATRoad is one way to the echo. Costs are medians over the rounds in microseconds; a request is one datagram each way.
type NATRoad struct {
	Name       string  `json:"name"`
	Skipped    string  `json:"skipped,omitempty"`         // why it did not run
	Rate       float64 `json:"requests_per_s"`            //
	Lost       int     `json:"lost"`                      // requests sent again, in all rounds
	ProxyCPU   float64 `json:"proxy_us_per_datagram"`     // of the road's own processes; 0 for kernel roads
	ProxyMin   float64 `json:"proxy_us_per_datagram_min"` //
	ProxyMax   float64 `json:"proxy_us_per_datagram_max"` //
	PerRequest float64 `json:"proxy_ms_per_1000_requests"`
	TotalCPU   float64 `json:"total_us_per_request"`  // load, road and echo together
	AddedCPU   float64 `json:"added_us_per_datagram"` // more than the straight road, per datagram

	rates, proxy, total []float64
}

// straightRoad is the name of the road without anything in it.
const straightRoad = "straight"

type natRoad struct {
	result *NATRoad
	entry  netip.AddrPort
	proxy  *exec.Cmd // nil: none
	start  func(entry, echo netip.AddrPort) *exec.Cmd
	setup  func(ctx context.Context, entry, echo netip.AddrPort) error
	host   *netlab.Host // where load and echo run; nil: the host's own network
	echo   *exec.Cmd
}

// natBench is one comparison under way.
type natBench struct {
	config  NATConfig
	host    *netlab.Host // nil: the host's own network
	dnatted *netlab.Host // with the rule: connection tracking costs every road of its namespace
	echo    netip.AddrPort
	echoCmd *exec.Cmd
	roads   []*natRoad
	running *programs.Group
}

// NAT runs the comparison.
func NAT(ctx context.Context, config NATConfig) (result NATResult, err error) {
	if err := config.Validate(); err != nil {
		return result, err
	}
	b := &natBench{config: config, running: programs.NewGroup()}
	result = NATResult{
		Clients: config.Clients, Requests: config.Requests, Rounds: config.Rounds, Payload: config.Payload,
		Cores: runtime.NumCPU(), Kernel: kernelRelease(), Network: "loopback of the host",
	}
	if netlab.Privileged() == nil {
		lab, err := netlab.Up(netlab.Topology{Name: "benchnat", Namespaces: []netlab.Namespace{{Name: "all"}, {Name: "dnat"}}})
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, lab.Down()) }()
		b.host, b.dnatted = lab.Namespace("all"), lab.Namespace("dnat")
		result.Network = "loopback of a namespace, iptables in one of its own"
	}
	defer b.running.End()
	if err := b.open(ctx); err != nil {
		return result, err
	}
	err = takeTurns(ctx, config.Rounds, b.roads, func(round int, road *natRoad) error {
		if road.result.Skipped != "" {
			return nil
		}
		fmt.Fprintf(config.Out, "round %d of %d: %s\n", round+1, config.Rounds, road.result.Name)
		if err := b.measure(ctx, road); err != nil {
			return fmt.Errorf("%s: %w", road.result.Name, err)
		}
		return nil
	})
	if err != nil {
		return result, err
	}
	result.Roads = b.summary()
	return result, nil
}

// open starts the echo and every road.
func (b *natBench) open(ctx context.Context) error {
	ports, err := b.freePorts(6)
	if err != nil {
		return err
	}
	b.echo = ports[0]
	self := b.config.Binary
	b.echoCmd = exec.Command(self, "bench", "udp-echo", b.echo.String())
	if err := b.running.Start(b.host, b.echoCmd); err != nil {
		return err
	}
	weir := func(extra ...string) func(entry, echo netip.AddrPort) *exec.Cmd {
		return func(entry, echo netip.AddrPort) *exec.Cmd {
			args := append([]string{"nat", entry.String(), "--", echo.String(), "--quiet", "--nat-timeout", "0", "--admin", ""}, extra...)
			if b.config.Workers > 0 {
				args = append(args, "--workers", strconv.Itoa(b.config.Workers))
			}
			return exec.Command(self, args...)
		}
	}
	b.roads = []*natRoad{
		{result: &NATRoad{Name: straightRoad}, entry: b.echo},
		{result: &NATRoad{Name: "weir nat"}, entry: ports[1], start: weir()},
		{result: &NATRoad{Name: "weir nat --reverse"}, entry: ports[2], start: weir("--reverse")},
		{result: &NATRoad{Name: "socat"}, entry: ports[3], start: func(entry, echo netip.AddrPort) *exec.Cmd {
			return exec.Command("socat", "-T", "600",
				fmt.Sprintf("UDP4-LISTEN:%d,bind=%s,fork,reuseaddr", entry.Port(), entry.Addr()), "UDP4:"+echo.String())
		}},
		{result: &NATRoad{Name: "iptables DNAT"}, entry: ports[4], setup: b.dnat},
	}
	jar, err := b.config.jar()
	if err != nil {
		return err
	}
	if jar != "" {
		b.roads = append(b.roads, &natRoad{
			result: &NATRoad{Name: "cf-nat " + filepath.Base(jar)}, entry: ports[5],
			start: func(entry, echo netip.AddrPort) *exec.Cmd {
				return exec.Command("java", "-jar", jar, entry.String(), "--", echo.String())
			},
		})
	}
	for _, road := range b.roads {
		if err := b.prepare(ctx, road); err != nil {
			return fmt.Errorf("%s: %w", road.result.Name, err)
		}
	}
	return nil
}

func (b *natBench) prepare(ctx context.Context, road *natRoad) error {
	road.host, road.echo = b.host, b.echoCmd
	switch {
	case road.setup != nil:
		if b.host == nil {
			road.result.Skipped = "needs root"
			return nil
		}
		road.host, road.echo = b.dnatted, exec.Command(b.config.Binary, "bench", "udp-echo", b.echo.String())
		if err := b.running.Start(road.host, road.echo); err != nil {
			return err
		}
		return road.setup(ctx, road.entry, b.echo)
	case road.start != nil:
		road.proxy = road.start(road.entry, b.echo)
		if _, err := exec.LookPath(road.proxy.Path); err != nil {
			road.result.Skipped = filepath.Base(road.proxy.Path) + " is not installed"
			return nil
		}
		return b.running.Start(b.host, road.proxy)
	}
	return nil
}

// dnat makes the kernel translate what is sent to entry.
func (b *natBench) dnat(ctx context.Context, entry, echo netip.AddrPort) error {
	_, err := b.dnatted.Exec(ctx, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-d", entry.Addr().String(),
		"--dport", strconv.Itoa(int(entry.Port())), "-j", "DNAT", "--to-destination", echo.String())
	return err
}

// measure runs the load over one road and notes what it cost.
func (b *natBench) measure(ctx context.Context, road *natRoad) error {
	load := UDPLoad{
		To: road.entry, Clients: b.config.Clients, Requests: b.config.Requests, Payload: b.config.Payload,
		Timeout: 400 * time.Millisecond, Warmup: 5,
	}
	var proxy, echo [2]time.Duration
	note := func(i int) func() error {
		return func() (err error) {
			if echo[i], err = procstat.CPU(road.echo.Process.Pid); err != nil {
				return err
			}
			if road.proxy != nil {
				proxy[i], err = treeCPU(road.proxy.Process.Pid)
			}
			return err
		}
	}
	var result UDPLoadResult
	run := func() (err error) {
		result, err = load.Run(ctx, note(0), note(1))
		return err
	}
	var err error
	if road.host != nil {
		err = road.host.Do(run)
	} else {
		err = run()
	}
	if err != nil {
		return err
	}
	n := float64(result.Requests)
	spent := proxy[1] - proxy[0]
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	r := road.result
	r.Lost += result.Lost
	r.rates = append(r.rates, n/result.Elapsed.Seconds())
	r.proxy = append(r.proxy, micros(spent)/n/2)
	r.total = append(r.total, micros(spent+echo[1]-echo[0]+result.CPU)/n)
	return nil
}

func (b *natBench) summary() []NATRoad {
	var roads []NATRoad
	straight := 0.0
	for _, road := range b.roads {
		r := road.result
		if r.Skipped == "" {
			r.Rate, r.ProxyCPU, r.TotalCPU = median(r.rates), median(r.proxy), median(r.total)
			r.ProxyMin, r.ProxyMax = slices.Min(r.proxy), slices.Max(r.proxy)
			r.PerRequest = r.ProxyCPU * 2
			if r.Name == straightRoad {
				straight = r.TotalCPU
			}
			r.AddedCPU = (r.TotalCPU - straight) / 2
		}
		roads = append(roads, *r)
	}
	return roads
}

// treeCPU is the time of a process and its living children: socat has one for each client.
func treeCPU(pid int) (time.Duration, error) {
	sum, err := procstat.CPU(pid)
	if err != nil {
		return 0, err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return sum, nil // a kernel without the file; only socat has children
	}
	for _, child := range strings.Fields(string(children)) {
		id, err := strconv.Atoi(child)
		if err != nil {
			continue
		}
		if cpu, err := procstat.CPU(id); err == nil { // it may have ended since
			sum += cpu
		}
	}
	return sum, nil
}

// freePorts looks for UDP ports on 127.0.0.1 of the run's network.
func (b *natBench) freePorts(n int) (ports []netip.AddrPort, err error) {
	find := func() (err error) {
		ports, err = programs.FreeUDP(n)
		return err
	}
	if b.host != nil {
		err = b.host.Do(find)
	} else {
		err = find()
	}
	return ports, err
}
