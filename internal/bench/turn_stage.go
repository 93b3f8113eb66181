package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// turnStage is the network and the programs of a run.
type turnStage struct {
	*programs.Stage
	config  TurnConfig
	started time.Time
	// Where the parts run; nil: the host's own network.
	clients, servers, sinks *netlab.Host
	network                 string

	server, relay, source, sinkAddr netip.Addr
	iperf                           *turnIperf // nil: the built-in generator
	weir                            *programs.Daemon
	offload                         string // what the gateway says of it
	paths                           []*turnPath
	cats                            []*exec.Cmd
}

// turnPath is one way from the clients to the sink.
type turnPath struct {
	name    string
	sink    netip.AddrPort
	server  netip.AddrPort   // TURN server; invalid: plain UDP
	to      []netip.AddrPort // plain UDP: where client i sends
	parts   []turnPart
	traffic *generator
	warmed  bool
}

// turnPart is a process, or several of one kind, whose processor time is reported.
type turnPart struct {
	name string
	pids []int
}

const (
	turnUser, turnPassword, turnRealm = "user1", "passwd1", "weir"

	partGateway, partCat, partGenerator = "gateway", "cat", "generator" // a peer's part has the peer's name
)

// turnTopology has the clients, the servers and the sinks on hosts of their own, joined by veths, or all on one host.
func turnTopology(veth bool) *netlab.Topology {
	if !veth {
		return &netlab.Topology{Name: "benchturn", Namespaces: []netlab.Namespace{{Name: "all"}}}
	}
	return &netlab.Topology{
		Name: "benchturn",
		Namespaces: []netlab.Namespace{
			{Name: "clients", Routes: []netlab.Route{netlab.Via("10.78.2.0/24", "10.78.1.1")}}, {Name: "servers", Forward: true}, {Name: "sinks", Routes: []netlab.Route{netlab.Via("10.78.1.0/24", "10.78.2.1")}},
		},
		Links: []netlab.Link{
			netlab.Cable("clients c0 10.78.1.2/24", "servers s0 10.78.1.1/24"),
			netlab.Cable("servers s1 10.78.2.1/24", "sinks f0 10.78.2.2/24"),
		},
	}
}

// open builds the network and starts servers and turncats.
func (s *turnStage) open(ctx context.Context) error {
	s.useNetwork()
	if s.config.Cluster != nil {
		return s.openCluster(ctx)
	}
	s.Running.Swift = s.Lab != nil
	ports, err := freePorts(s.servers, 1+len(s.config.peers()))
	if err != nil {
		return err
	}
	if s.config.generator() == generatorIperf {
		if s.iperf, err = s.startIperf(ctx); err != nil {
			return err
		}
	}
	direct := &turnPath{name: pathTurnDirect}
	if direct.sink, err = s.sinkPort(); err != nil {
		return err
	}
	s.paths = append(s.paths, direct)
	gateway := netip.AddrPortFrom(s.server, ports[0].Port())
	if err := s.startGateway(ctx, gateway); err != nil {
		return err
	}
	if err := s.addServer(ctx, pathTurnWeir, gateway, turnPart{partGateway, []int{s.weir.PID()}}); err != nil {
		return err
	}
	for i, name := range s.config.peers() {
		at := netip.AddrPortFrom(s.server, ports[1+i].Port())
		pid, err := s.startPeer(ctx, name, at)
		if err != nil {
			return err
		}
		if err := s.addServer(ctx, name, at, turnPart{name, []int{pid}}); err != nil {
			return err
		}
	}
	return nil
}

// useNetwork chooses where things run. The offload needs interfaces that packets come in on and leave by.
func (s *turnStage) useNetwork() {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	s.server, s.relay, s.source, s.sinkAddr, s.network = loopback, loopback, loopback, loopback, "loopback of the host"
	if s.Lab == nil {
		return
	}
	if !s.config.veth() {
		all := s.Host("all")
		s.clients, s.servers, s.sinks, s.network = all, all, all, "loopback of a network namespace"
		return
	}
	s.clients, s.servers, s.sinks = s.Host("clients"), s.Host("servers"), s.Host("sinks")
	s.server, s.relay, s.source = netip.MustParseAddr("10.78.1.1"), netip.MustParseAddr("10.78.2.1"), netip.MustParseAddr("10.78.1.2")
	s.sinkAddr, s.network = netip.MustParseAddr("10.78.2.2"), "three network namespaces joined by veths; direct is routed by the kernel"
}

// addServer adds the path through a server, behind turncats if asked.
func (s *turnStage) addServer(ctx context.Context, name string, at netip.AddrPort, server turnPart) error {
	path := &turnPath{name: name, server: at, parts: []turnPart{server}}
	var err error
	if path.sink, err = s.sinkPort(); err != nil {
		return err
	}
	if s.config.Path == TurnPathCat {
		path.name, path.server = name+pathTurnCat, netip.AddrPort{}
		var options []string
		if s.config.Transport == TransportDTLS {
			options = []string{"--insecure"}
		}
		if err := s.addCats(ctx, path, name, fmt.Sprintf("turn://%s:%s@%s?transport=%s", turnUser, turnPassword, at, s.config.Transport), options); err != nil {
			return err
		}
	}
	s.paths = append(s.paths, path)
	return nil
}

// addCats puts a turncat for each client in front of a server.
func (s *turnStage) addCats(ctx context.Context, path *turnPath, name, server string, options []string) error {
	ports, err := freePorts(s.clients, s.config.Clients)
	if err != nil {
		return err
	}
	cats := turnPart{name: partCat}
	for i, port := range ports {
		listen := netip.AddrPortFrom(s.source, port.Port())
		pid, err := s.startCat(ctx, fmt.Sprintf("%s-%d", name, i), listen, path.sink, server, options)
		if err != nil {
			return err
		}
		cats.pids = append(cats.pids, pid)
		path.to = append(path.to, listen)
	}
	path.parts = append(path.parts, cats)
	return nil
}

// sinkPort is an address for a path's sink. There is one iperf server; turncats have one peer each.
func (s *turnStage) sinkPort() (netip.AddrPort, error) {
	if s.iperf != nil {
		return s.iperf.at, nil
	}
	ports, err := freePorts(s.sinks, 1)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(s.sinkAddr, ports[0].Port()), nil
}

// startGateway runs `weir turn gateway` with a file that lets clients reach the sink's network only.
func (s *turnStage) startGateway(ctx context.Context, at netip.AddrPort) error {
	file := filepath.Join(s.Dir, "gateway.yaml")
	certificate := ""
	if s.config.Transport == TransportDTLS {
		certificate = ", self_signed: true"
	}
	text := fmt.Sprintf(`realm: %s
auth: {mode: static, users: [{name: %s, password: %s}]}
listeners:
  - {name: clients, protocol: %s, address: %s, port: %d, relay: [%s], routes: [sinks]%s}
clusters:
  - {name: sinks, endpoints: [%s]}
limits: {unauthenticated: 100000, unauthenticated_total: 100000}
offload: {mode: %s}
`, turnRealm, turnUser, turnPassword, s.config.Transport, at.Addr(), at.Port(), s.relay, certificate, s.peers(), s.config.Offload)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	args := []string{"turn", "gateway", "-c", file, "--no-supervisor"}
	if s.config.Workers > 0 {
		args = append(args, "--workers", strconv.Itoa(s.config.Workers))
	}
	var err error
	if s.weir, err = programs.StartDaemon(ctx, s.Running, s.servers, s.config.Binary, s.Dir, "gateway", args...); err != nil {
		return err
	}
	if err := s.weir.Ready(ctx); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	s.offload = "none"
	var status map[string]any
	if err := s.weir.Get(ctx, "/status", &status); err != nil {
		return err
	}
	if mode := findOffload(status); mode != "" {
		s.offload = mode
	}
	return nil
}

// findOffload reads what a status says of the offload, wherever it stands.
func findOffload(status map[string]any) string {
	if text, ok := status["offload"].(string); ok {
		return text
	}
	if object, ok := status["offload"].(map[string]any); ok {
		text, err := json.Marshal(object)
		if err == nil {
			return string(text)
		}
	}
	for _, value := range status {
		if inner, ok := value.(map[string]any); ok {
			if text := findOffload(inner); text != "" {
				return text
			}
		}
	}
	return ""
}

// startCat runs one turncat.
func (s *turnStage) startCat(ctx context.Context, name string, listen, peer netip.AddrPort, server string, options []string) (pid int, err error) {
	cmd := exec.Command(s.config.Binary, append([]string{"turn", "cat", "udp://" + listen.String(), server, "udp://" + peer.String(), "--quiet"}, options...)...) //nolint:gosec // our own binary
	if err := s.startQuiet(s.clients, "cat-"+name, cmd); err != nil {
		return 0, err
	}
	s.cats = append(s.cats, cmd)
	return cmd.Process.Pid, s.listens(ctx, cmd.Process.Pid, listen)
}

// listens waits until a UDP socket of turncat's network has the address. It only looks: binding it to see whether that fails
// would take it from turncat.
func (s *turnStage) listens(ctx context.Context, pid int, at netip.AddrPort) error {
	in4 := at.Addr().As4()
	want := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(in4[:]), at.Port())
	for end := time.Now().Add(programs.ReadyTimeout); time.Now().Before(end); {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", pid))
		if err != nil { // a process that has ended has no network
			return fmt.Errorf("turncat ended%s", s.lastOutput())
		}
		for line := range strings.Lines(string(table)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == want {
				return nil
			}
		}
		if err := programs.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("turncat does not listen on %v%s", at, s.lastOutput())
}

// startQuiet starts a program whose output is only of interest when something goes wrong.
func (s *turnStage) startQuiet(host *netlab.Host, name string, cmd *exec.Cmd) error {
	log, err := os.Create(s.log(name))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return s.Running.Start(host, cmd)
}

func (s *turnStage) log(name string) string {
	return filepath.Join(s.Dir, strings.ReplaceAll(name, " ", "-")+".log")
}

// lastOutput is the end of what the programs wrote, for an error.
func (s *turnStage) lastOutput() string {
	files, _ := filepath.Glob(filepath.Join(s.Dir, "*.log")) // the pattern is right
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || len(strings.TrimSpace(string(text))) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&all, "\n%s: %s", strings.TrimSuffix(filepath.Base(file), ".log"), strings.Join(lines[max(len(lines)-3, 0):], "\n  "))
	}
	return all.String()
}

// answersSTUN waits until a server answers a binding request (RFC 8489).
func (s *turnStage) answersSTUN(ctx context.Context, at netip.AddrPort, name string) error {
	err := until(ctx, 20*time.Second, func() error { return within(s.servers, func() error { return bindingRequest(at) }) })
	if err != nil {
		return fmt.Errorf("%s does not answer at %v: %w%s", name, at, err, s.lastOutput())
	}
	return nil
}

// spent is the processor time of a path's parts.
func (s *turnStage) spent(path *turnPath) ([]measure.Process, error) {
	var list []measure.Process
	parts := path.parts
	if path.traffic != nil {
		parts = append(parts[:len(parts):len(parts)], turnPart{partGenerator, []int{path.traffic.cmd.Process.Pid}})
	}
	for _, part := range parts {
		process := measure.Process{Name: part.name}
		for _, pid := range part.pids {
			usage, err := procstat.Of(pid)
			if err != nil {
				return nil, fmt.Errorf("%s has ended: %w%s", part.name, err, s.lastOutput())
			}
			process.CPU += usage.CPU
			process.PeakBytes += usage.PeakBytes
		}
		list = append(list, process)
	}
	return list, nil
}

func (s *turnStage) close() error {
	for _, path := range s.paths {
		if path.traffic != nil {
			path.traffic.end(false)
		}
	}
	if s.weir != nil {
		s.weir.Kill() // an interrupt would let it drain
	}
	if s.config.Cluster != nil {
		s.releaseAll()
	}
	return s.Stage.Close()
}
