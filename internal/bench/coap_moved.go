package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// movedRoads are in a lab of namespaces, with root: the clients of three nodes change their source addresses and ports while
// they run.
func movedRoads() []coapRoad {
	return []coapRoad{
		{name: "moved-nat", nodes: 3, balanced: true, moved: true},
		{name: "moved-ebpf", nodes: 3, moved: true, kernel: true},
	}
}

// MovedRoads names the roads whose clients change their source addresses and ports at least three times: behind weir nat, which
// takes each for a new client, so nodes forward; and behind weir lb run --datapath ebpf, which reads the node in the
// connection id.
func MovedRoads() []string {
	var names []string
	for _, r := range movedRoads() {
		names = append(names, r.name)
	}
	return names
}

const (
	movedVIP        = "10.9.0.1"
	movedPort       = 5784
	movedManagement = 5884
)

// movedTopology is a client, a balancer and three nodes, each on a link of its own. The VIP is where clients' packets end: at
// the balancer, or on the loopback of every node (L2-DSR).
//
//	client 10.1.0.2 to .6 ──── balancer ──┬── node1 10.2.1.2
//	                                      ├── node2 10.2.2.2
//	                                      └── node3 10.2.3.2
func (r coapRoad) movedTopology() netlab.Topology {
	through := func(gateway string) []netlab.Route {
		return []netlab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr(gateway)}}
	}
	balancer := netlab.Namespace{Name: "balancer", Forward: true}
	if !r.kernel {
		balancer.Loopback = netlab.Prefixes(movedVIP + "/32")
	}
	t := netlab.Topology{
		Name:       strings.ReplaceAll(r.name, "moved", "mv"),
		Namespaces: []netlab.Namespace{balancer, {Name: "client", Routes: through("10.1.0.1")}},
		Links: []netlab.Link{{
			A: netlab.End{Namespace: "client", Name: "eth0", Addresses: movedSources("/24")},
			B: netlab.End{Namespace: "balancer", Name: "veth0", Addresses: netlab.Prefixes("10.1.0.1/24")},
		}},
	}
	for i := 1; i <= r.nodes; i++ {
		node := netlab.Namespace{Name: fmt.Sprintf("node%d", i), Routes: through(fmt.Sprintf("10.2.%d.1", i))}
		if r.kernel {
			node.Loopback = netlab.Prefixes(movedVIP + "/32")
		}
		t.Namespaces = append(t.Namespaces, node)
		t.Links = append(t.Links, netlab.Link{
			A: netlab.End{Namespace: node.Name, Name: "eth0", Addresses: netlab.Prefixes(nodeAddress(i) + "/24")},
			B: netlab.End{Namespace: "balancer", Name: fmt.Sprintf("veth%d", i), Addresses: netlab.Prefixes(fmt.Sprintf("10.2.%d.1/24", i))},
		})
	}
	return t
}

// movedSources are the clients' addresses: one to begin with and one for each change, so that nobody comes back.
func movedSources(length string) []netip.Prefix {
	return netlab.Prefixes("10.1.0.2"+length, "10.1.0.3"+length, "10.1.0.4"+length, "10.1.0.5"+length, "10.1.0.6"+length)
}

func nodeAddress(i int) string { return fmt.Sprintf("10.2.%d.2", i) }

// runMoved measures a road in its lab.
func (r coapRoad) runMoved(ctx context.Context, cfg CoapConfig) (result *measure.Result, err error) {
	if err := netlab.Privileged(); err != nil {
		return nil, fmt.Errorf("needs root: %w", err)
	}
	temporary, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	dir := temporary.Path
	lab, err := netlab.Up(r.movedTopology())
	if err != nil {
		return nil, err
	}
	running := programs.NewGroup()
	var daemons []*programs.Daemon
	defer func() {
		for i := len(daemons); i > 0; i-- {
			err = errors.Join(err, daemons[i-1].Stop())
		}
		running.End()
		err = errors.Join(err, lab.Down())
	}()
	start := func(host, name string, args ...string) (*programs.Daemon, error) {
		d, err := programs.StartDaemon(ctx, running, lab.Namespace(host), cfg.Binary, dir, name, args...)
		if d != nil {
			daemons = append(daemons, d)
		}
		return d, err
	}
	var public, all []string // of each node: address, and address;management
	for i := 1; i <= r.nodes; i++ {
		address := fmt.Sprintf("%s:%d", nodeAddress(i), movedPort)
		if r.kernel {
			address = fmt.Sprintf("%s:%d", movedVIP, movedPort)
		}
		public = append(public, address)
		all = append(all, address, fmt.Sprintf("%s:%d", nodeAddress(i), movedManagement))
	}
	var nodes []*programs.Daemon
	for i := range r.nodes {
		node, err := start(fmt.Sprintf("node%d", i+1), fmt.Sprintf("node%d", i+1), "coap", "server", "--workers", "1", "--dtls-cluster", clusterFlag(all, i))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	vip := fmt.Sprintf("%s:%d", movedVIP, movedPort)
	var nat *programs.Daemon
	if !r.kernel {
		if nat, err = start("balancer", "nat", append([]string{"nat", vip, "--"}, public...)...); err != nil {
			return nil, err
		}
	} else {
		stop, err := r.startKernel(ctx, dir, cfg, lab, running)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	return r.load(ctx, cfg, lab.Namespace("client"), "coaps://"+vip+"/benchmark?rlen=40", nodes, nat)
}

// startKernel runs the kernel data path; stop removes what outlives its process.
func (r coapRoad) startKernel(ctx context.Context, dir string, cfg CoapConfig, lab *netlab.Lab, running *programs.Group) (stop func() error, err error) {
	config, pins := filepath.Join(dir, "weir.yaml"), programs.PinPath(r.name)
	if err := os.WriteFile(config, []byte(r.kernelConfig()), 0o600); err != nil {
		return nil, err
	}
	interfaces := []string{"veth0"}
	for i := 1; i <= r.nodes; i++ {
		interfaces = append(interfaces, fmt.Sprintf("veth%d", i))
	}
	var process *programs.Daemon
	stop = func() error {
		said := &programs.LastLines{}
		cmd := exec.Command(cfg.Binary, "lb", "stop", "--pin-path", pins) //nolint:gosec // our own binary
		cmd.Stdout, cmd.Stderr = said, said
		if err := running.Run(lab.Namespace("balancer"), cmd); err != nil {
			return fmt.Errorf("weir lb stop: %w%s", err, said.Said())
		}
		if process != nil { // it is told to end
			<-process.Ended()
		}
		return nil
	}
	process, err = programs.StartDaemon(ctx, running, lab.Namespace("balancer"), cfg.Binary, dir, "lb",
		"lb", "run", "-c", config, "--datapath", "ebpf", "--interface", strings.Join(interfaces, ","), "--pin-path", pins)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// kernelConfig steers by the node id in the first byte of the connection ids.
func (r coapRoad) kernelConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, `services:
- name: coaps
  mode: l2dsr
  vips:
  - {address: %q, protocol: udp, port: %d}
  cid:
    protocols: [dtls12]
    layouts:
    - {length: 6, owner: {offset: 0, bits: 8}}
  backends:
`, movedVIP, movedPort)
	for i := 1; i <= r.nodes; i++ {
		fmt.Fprintf(&b, "  - {name: node%d, address: %q, nodes: [%d]}\n", i, nodeAddress(i), i)
	}
	return b.String()
}
