package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// The paths that the others are compared with.
const (
	pathRouting = "routing"       // the gateway's kernel routes, nothing else
	pathDNAT    = "iptables-dnat" // the kernel translates
)

// DSRPaths describes the paths of [DSR] in the order of their rows: name, tab, what it is.
func DSRPaths() []string { return describe(dsrPaths()) }

// DSRLoads describes the loads of [DSR] in the order they run.
func DSRLoads() []string { return describe(dsrLoads()) }

// ValidateDSR says what cannot be meant for [DSR].
func (c *GridConfig) ValidateDSR() error { return c.validateDSR(dsrPaths(), dsrLoads()) }

func (c *GridConfig) validateDSR(paths []*path, loads []*load) error {
	if c.Duration < time.Second/10 || c.Duration > time.Minute || c.Duration%(time.Second/10) != 0 {
		return fmt.Errorf("%v for each load: want 0.1 to 60 seconds, in whole tenths", c.Duration)
	}
	if c.Duration%time.Second != 0 && slices.ContainsFunc(loads, func(l *load) bool { return l.name == loadIperf3 && wanted(c.Loads, l.name) }) {
		return fmt.Errorf("%v for each load: %s wants whole seconds", c.Duration, loadIperf3)
	}
	return c.validate(paths, loads)
}

// DSR measures each load over each path through the kernel, in network namespaces of its own, and counts the whole machine's
// processor time. Routing is always measured. It returns one result for each load, path and family; what fails is a result with
// an error in it. When ctx ends nothing is returned. Nothing is left behind either way.
func DSR(ctx context.Context, config GridConfig) ([]*measure.Result, error) {
	if err := config.ValidateDSR(); err != nil {
		return nil, err
	}
	return dsrGrid(scenarioDSR, config, dsrPaths(), []string{pathRouting}, dsrLoads()).run(ctx)
}

// dsrGrid chooses the paths, those that are always measured among them, and the cells.
func dsrGrid(scenario string, config GridConfig, paths []*path, always []string, loads []*load) *grid {
	g := &grid{config: config, scenario: scenario, running: programs.NewGroup()}
	g.found, g.figures, g.complete = dsrFound, dsrFigures, dsrComplete
	for _, p := range paths {
		if slices.Contains(always, p.name) || wanted(config.Paths, p.name) {
			g.paths = append(g.paths, p)
		}
	}
	// All paths of one load and family follow each other: what is compared lies close in time.
	for _, l := range loads {
		for _, family := range Families() {
			if !wanted(config.Loads, l.name) || !wanted(config.Families, family) {
				continue
			}
			for _, p := range g.paths {
				g.cells = append(g.cells, &cell{path: p, load: l, family: family})
			}
		}
	}
	return g
}

func dsrPaths() []*path {
	return []*path{
		dsrPath(path{name: pathRouting, about: "the kernel routes; no VIP"}, nil),
		dsrPath(path{name: pathDNAT, about: "the kernel translates the VIP: iptables, connection tracking", tools: []string{"iptables", "ip6tables"}, vip: true}, setupIptables),
		dsrPath(path{name: "nft-dnat", about: "the same by nftables", tools: []string{"nft"}, vip: true}, setupNft),
		weirPath("nat", "tcx", "Weir translates the VIP, on the TCX hook"),
		weirPath("nat", "xdp", "the same on the XDP hook"),
		weirPath("l2dsr", "tcx", "Weir changes the MAC address only, on the TCX hook; the VIP is on the backend's loopback"),
		weirPath("l2dsr", "xdp", "the same on the XDP hook"),
		weirPath("l3dsr", "tcx", "Weir tunnels by IP-in-IP, and weir lb decap opens it at the backend, on the TCX hook"),
		weirPath("l3dsr", "xdp", "the same on the XDP hook"),
	}
}

// dsrPath is a path in the network of netlab.DSR.
func dsrPath(p path, setup func(ctx context.Context, g *grid, p *path) error) *path {
	p.topology, p.clients, p.servers = netlab.DSR(), "zone0", "zone1"
	p.topology.Name, p.address = "bench-dsr", vipAddress
	p.open = func(ctx context.Context, g *grid, p *path) error {
		if err := g.serve(ctx, p); err != nil || setup == nil {
			return err
		}
		return setup(ctx, g, p)
	}
	return &p
}

// Addresses of netlab.DSR.
func clientAddress(family string) netip.Addr { return pick(family, "10.0.0.2", "2001:db8::2") }
func vipAddress(family string) netip.Addr    { return pick(family, "10.0.0.1", "2001:db8::1") }
func serverAddress(family string) netip.Addr { return pick(family, "10.2.0.2", "2001:db8::2:2") }

func pick(family, four, six string) netip.Addr {
	if family == "ipv6" {
		return netip.MustParseAddr(six)
	}
	return netip.MustParseAddr(four)
}

// target is where clients send to.
func (p *path) target(family string) netip.Addr {
	if p.vip {
		return p.address(family)
	}
	return serverAddress(family)
}

// listens is where the backend's servers listen.
func (p *path) listens(family string) netip.Addr {
	if p.vipAtServer {
		return p.address(family)
	}
	return serverAddress(family)
}

// dsrPorts are the services of the loads.
func dsrPorts() []struct {
	protocol string
	port     int
} {
	return []struct {
		protocol string
		port     int
	}{{"tcp", iperf2Port}, {"tcp", iperf3Port}, {"udp", floodPort}}
}

// iptables is the program of a family.
func iptables(family string) string {
	if family == "ipv6" {
		return "ip6tables"
	}
	return "iptables"
}

func setupIptables(ctx context.Context, _ *grid, p *path) error {
	var errs []error
	for _, family := range Families() {
		for _, service := range dsrPorts() {
			_, err := p.Lab.Namespace("gateway").Exec(ctx, iptables(family), "-w", "-t", "nat", "-A", "PREROUTING", "-d", vipAddress(family).String(),
				"-p", service.protocol, "--dport", fmt.Sprint(service.port), "-j", "DNAT", "--to-destination", serverAddress(family).String())
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func setupNft(ctx context.Context, _ *grid, p *path) error {
	var rules strings.Builder
	for _, family := range Families() {
		ip := "ip"
		if family == "ipv6" {
			ip = "ip6"
		}
		fmt.Fprintf(&rules, "table %s weirbench {\n chain pre {\n  type nat hook prerouting priority dstnat\n", ip)
		for _, service := range dsrPorts() {
			fmt.Fprintf(&rules, "  %s daddr %v %s dport %d dnat to %v\n", ip, vipAddress(family), service.protocol, service.port, serverAddress(family))
		}
		rules.WriteString(" }\n}\n")
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules.String())
	_, err := p.Output(ctx, "gateway", cmd)
	return err
}

const modeCID = "cid"

// weirPath is Weir's kernel data path in one mode on one hook of both interfaces of the gateway.
// Mode "cid" is l2dsr by connection ids.
func weirPath(mode, hook, about string) *path {
	p := dsrPath(path{name: "weir-" + mode + "-" + hook, about: about, vip: true, vipAtServer: mode != "nat", cid: mode == modeCID}, func(ctx context.Context, _ *grid, p *path) error {
		err := ready(ctx)(p.Kernel(ctx, "gateway", p.name, weirConfig(mode), "veth0,veth2", "--hook", hook))
		if err != nil || mode != "l3dsr" {
			return err
		}
		return ready(ctx)(p.Daemon(ctx, "zone1", p.name+"-zone1", "lb", "decap", "--hook", hook, "--interface", "veth3", "--from", "10.2.0.1,2001:db8::2:1"))
	})
	for i := range p.topology.Links {
		if mode == "l3dsr" && p.topology.Links[i].A.Name == "veth2" { // room for the outer header on the way to the backend, as a network that uses it has
			p.topology.Links[i].MTU = 1600
		}
	}
	return p
}

// weirConfig is one service of that mode for all loads and both families.
func weirConfig(mode string) string {
	steered, nodes := "", ""
	if mode == modeCID {
		mode, nodes = "l2dsr", fmt.Sprintf(", nodes: [%d]", floodOwner)
		steered = fmt.Sprintf("  cid: {protocols: [dtls12], layouts: [{length: %d, owner: {offset: 0, bits: 8}}]}\n", floodCID)
	}
	var vips []string
	for _, family := range Families() {
		for _, p := range dsrPorts() {
			if steered == "" || p.protocol == "udp" {
				vips = append(vips, vipOf(vipAddress(family), p.protocol, p.port))
			}
		}
	}
	return serviceConfig(mode, 0, steered, vips, fmt.Sprintf("name: zone1, address: %q, address2: %q%s", serverAddress("ipv4"), serverAddress("ipv6"), nodes))
}
