package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Paths of [Turn]; a peer's are called after it. A server alone gets ChannelData from the generator; with "cat" the generator sends plain UDP to a turncat
// for each client.
const (
	pathTurnDirect  = "direct"
	pathTurnWeir    = "weir"
	pathTurnWeirCat = pathTurnWeir + pathTurnCat
	pathTurnCluster = "kubernetes"

	pathTurnCat = " cat" // behind the server's name
)

// Paths of TurnConfig.Path and generators of TurnConfig.Generator.
const (
	TurnPathCat     = "cat"
	turnPathChannel = "direct-channel"

	GeneratorAuto    = "auto"
	generatorIperf   = "iperf"
	GeneratorBuiltin = "builtin"

	NetworkAuto     = "auto" // loopback, with an offload veth
	networkLoopback = "loopback"
	networkVeth     = "veth"

	TransportUDP  = "udp"
	TransportTCP  = "tcp"
	TransportDTLS = "dtls"

	DirectionUp   = "up"
	DirectionDown = "down"

	withNone = "none" // of TurnConfig.With: no peer

	PlatformLocal      = "local"
	PlatformKubernetes = "k8s"
)

// TurnConfig is one run of `weir turn bench`.
type TurnConfig struct {
	Run
	Clients   int // turncats, or clients of the generator
	Duration  time.Duration
	Size      int          // bytes of a datagram
	Bandwidth float64      // bits/s of user data for each client
	Platform  string       // local, k8s
	Cluster   *TurnCluster // of platform k8s
	Path      string
	With      []string // peers to compare with in the same run, of TurnPeers; none, or [withNone]: no comparison
	Generator string
	Offload   string // mode of the gateway: none, auto, tcx, xdp
	Network   string // auto, loopback, veth
	Transport string // of the clients to the TURN server: udp, tcp, dtls
	Direction string // up: clients to sink; down needs Path direct-channel
	Workers   int    // of the gateway; 0: its default
	Burst     int    // datagrams that a client of the built-in generator sends in a row; 0: 8 without turncats, else 1
	NoGSO     bool   // the built-in generator sends every datagram by itself

	Sweep   bool
	Sizes   []int
	Rates   []float64     // datagrams a second of all the clients at which costs are compared
	Rounds  int           // of each rate
	Probe   time.Duration // length of a try of the search
	MaxRate float64       // datagrams a second at which the search stops
}

// TurnSizes are the packet sizes that STUNner's guide recommends to measure, in bytes.
func TurnSizes() []int { return []int{64, 128, 256, 512, 1024, 1200} }

// TurnPeers names the servers that [Turn] can compare with.
func TurnPeers() []string { return []string{peerCoturn, peerStunner} }

// peers are those of With.
func (c *TurnConfig) peers() []string {
	if slices.Equal(c.With, []string{withNone}) {
		return nil
	}
	return c.With
}

// Limits of TurnConfig.
const (
	minTurnSize = 40 // the generator's header and trailer
	maxTurnSize = 1472
)

// Validate says what cannot be meant.
func (c *TurnConfig) Validate() error {
	in := func(what, value string, of ...string) error {
		if slices.Contains(of, value) {
			return nil
		}
		return fmt.Errorf("%s %q: write %s", what, value, strings.Join(of, ", "))
	}
	errs := errors.Join(in("platform", c.Platform, PlatformLocal, PlatformKubernetes), in("road", c.Path, TurnPathCat, turnPathChannel),
		in("generator", c.Generator, GeneratorAuto, generatorIperf, GeneratorBuiltin), in("offload", c.Offload, "none", "auto", "tcx", "xdp"),
		in("network", c.Network, NetworkAuto, networkLoopback, networkVeth), in("transport", c.Transport, TransportUDP, TransportTCP, TransportDTLS),
		in("direction", c.Direction, DirectionUp, DirectionDown))
	if errs != nil {
		return errs
	}
	sizes := c.Sizes
	if !c.Sweep {
		sizes = []int{c.Size}
	}
	for _, size := range sizes {
		if size < minTurnSize || size > maxTurnSize {
			return fmt.Errorf("packets of %d bytes: want %d to %d", size, minTurnSize, maxTurnSize)
		}
	}
	switch {
	case c.Clients < 1 || c.Clients > 1000:
		return fmt.Errorf("%d clients: want 1 to 1000", c.Clients)
	case c.Duration < 100*time.Millisecond || c.Duration > time.Hour:
		return fmt.Errorf("%v: want 0.1 s to an hour", c.Duration)
	case c.Bandwidth < 1000 || c.Bandwidth > 100e9:
		return fmt.Errorf("%.0f bits/s: want 1k to 100G", c.Bandwidth)
	case c.Burst < 0 || c.Burst > 64 || c.Workers < 0 || c.Workers > 1024:
		return fmt.Errorf("bursts of %d, %d workers: want up to 64 and up to 1024", c.Burst, c.Workers)
	case c.Path == turnPathChannel && c.Generator == generatorIperf:
		return errors.New("iperf has no TURN: --road direct-channel needs --generator builtin")
	case c.Direction == DirectionDown && c.Path != turnPathChannel:
		return errors.New("direction down is of the built-in generator alone: it needs --road direct-channel")
	case c.Platform == PlatformKubernetes && (c.Path != TurnPathCat || c.Sweep || len(c.peers()) > 0 || c.Generator == GeneratorBuiltin || c.Offload != "none" || c.Network != NetworkAuto || c.Workers > 0):
		return errors.New("platform k8s measures the gateway that runs in the cluster, with turncats and iperf: it excludes --road direct-channel, --sweep, --with, --generator builtin, --offload, --network and --workers")
	case c.Sweep && (len(sizes) == 0 || c.Rounds < 1 || c.Probe < 100*time.Millisecond || c.MaxRate < 1000):
		return fmt.Errorf("sweep of %d sizes, %d rounds, tries of %v, up to %.0f packets/s: want at least 1, 1, 100ms, 1000", len(sizes), c.Rounds, c.Probe, c.MaxRate)
	case c.veth() && netlab.Privileged() != nil:
		return fmt.Errorf("offload %s on network %s needs root", c.Offload, c.Network)
	case c.Offload != "none" && !c.veth():
		return fmt.Errorf("offload %s needs interfaces that packets come in on: write --network veth", c.Offload)
	}
	for _, rate := range c.Rates {
		if rate < 100 || rate > 10e6 {
			return fmt.Errorf("rate of %v packets/s: want 100 to 10M", rate)
		}
	}
	return c.missing()
}

// missing names programs that were requested and are not installed.
func (c *TurnConfig) missing() error {
	var missing error
	if c.Generator == generatorIperf || c.Platform == PlatformKubernetes {
		missing = needTools([]string{"iperf"})
	}
	return errors.Join(missing, checkPeers(c.peers(), TurnPeers()...))
}

// generator is the one to use. A sweep's tries are short and its loads have no use for iperf's reports.
func (c *TurnConfig) generator() string {
	if c.Generator != GeneratorAuto {
		return c.Generator
	}
	if c.Platform == PlatformKubernetes {
		return generatorIperf
	}
	if c.Path == turnPathChannel || c.Sweep || needTools([]string{"iperf"}) != nil {
		return GeneratorBuiltin
	}
	return generatorIperf
}

// size is the largest packet of the run.
func (c *TurnConfig) size() int {
	if c.Sweep {
		return slices.Max(c.Sizes)
	}
	return c.Size
}

// burst is how many datagrams of a client come in a row.
func (c *TurnConfig) burst() int {
	switch {
	case c.Burst > 0:
		return c.Burst
	case c.Path == turnPathChannel:
		return 8
	}
	return 1
}

// veth says whether clients, servers and sink are on hosts of their own.
func (c *TurnConfig) veth() bool {
	return c.Network == networkVeth || c.Network == NetworkAuto && c.Offload != "none"
}

// segment says whether the generator sends bursts as one segmented send. Over a veth they would stay one packet, as nothing
// does that comes over a wire.
func (c *TurnConfig) segment() bool { return !c.NoGSO && !c.veth() }

// rate is the datagrams a second of all the clients that Bandwidth makes.
func (c *TurnConfig) rate() float64 {
	return c.Bandwidth / 8 / float64(c.Size) * float64(c.Clients)
}

// Turn runs what the configuration requests. When ctx ends, so does everything that was started.
func Turn(ctx context.Context, config TurnConfig) (runs []*TurnRun, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	var topology *netlab.Topology
	if config.Cluster == nil && netlab.Privileged() == nil {
		topology = turnTopology(config.veth())
	}
	s := &turnStage{config: config, started: time.Now()}
	if s.Stage, err = programs.OpenStage(config.Binary, topology); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	config.progress(0, "starting servers")
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if config.Sweep {
		return s.sweep(ctx)
	}
	return s.single(ctx)
}

// single runs the one load over each path.
func (s *turnStage) single(ctx context.Context) (runs []*TurnRun, err error) {
	total := float64(len(s.paths))
	for i, path := range s.paths {
		s.config.progress(float64(i)/total, "%s: warming up", path.name)
		if err := s.warm(ctx, path); err != nil {
			return nil, fmt.Errorf("%s: %w", path.name, err)
		}
		stop := s.tick(float64(i)/total, 1/total, s.config.Duration, path.name)
		phase, err := s.run(ctx, path, turnLoad{rate: s.config.rate(), size: s.config.Size, duration: s.config.Duration})
		stop()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.name, err)
		}
		runs = append(runs, s.result(scenarioTurn, path, phase))
	}
	return runs, nil
}

// tick keeps progress moving during a load.
func (s *turnStage) tick(from, share float64, d time.Duration, what string) (stop func()) {
	if d < 2*time.Second {
		s.config.progress(from, "%s", what)
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for begun := time.Now(); ; {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				part := min(now.Sub(begun).Seconds()/d.Seconds(), 1)
				s.config.progress(from+share*part, "%s: %.0f of %.0f s", what, part*d.Seconds(), d.Seconds())
			}
		}
	}()
	return func() { close(done); <-ended }
}
