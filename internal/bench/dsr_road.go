package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// The roads that the others are compared with.
const (
	pathRouting = "routing"       // the gateway's kernel routes, nothing else
	pathDNAT    = "iptables-dnat" // the kernel translates
)

// dsrRoad is one way from the client to the backend, in a network of its own: connection tracking and XDP programs change
// what every other road through the same gateway costs.
type dsrRoad struct {
	name, about string
	tools       []string
	vip         bool // clients send to the VIP, not to the backend's own address
	vipAtServer bool // the backend answers from the VIP: direct server return
	prepare     func(*netlab.Topology)
	setup       func(ctx context.Context, b *dsrBench, road *dsrRoad) error

	cid bool // its clients send connection ids

	lab     *netlab.Lab
	sink    *sink // of the scenario live
	daemons []*programs.Daemon
	undo    func() error // nil: nothing outlives lab and daemons
	failed  error        // of setup
}

func dsrRoads() []dsrRoad {
	return []dsrRoad{
		{name: pathRouting, about: "the kernel routes; no VIP"},
		{name: pathDNAT, about: "the kernel translates the VIP: iptables, connection tracking", tools: []string{"iptables", "ip6tables"}, vip: true, setup: setupIptables},
		{name: "nft-dnat", about: "the same by nftables", tools: []string{"nft"}, vip: true, setup: setupNft},
		weirRoad("nat", "tcx", "Weir translates the VIP, on the TCX hook"),
		weirRoad("nat", "xdp", "the same on the XDP hook"),
		weirRoad("l2dsr", "tcx", "Weir changes the MAC address only, on the TCX hook; the VIP is on the backend's loopback"),
		weirRoad("l2dsr", "xdp", "the same on the XDP hook"),
		weirRoad("l3dsr", "tcx", "Weir tunnels by IP-in-IP, and weir lb decap opens it at the backend, on the TCX hook"),
		weirRoad("l3dsr", "xdp", "the same on the XDP hook"),
	}
}

// DSRRoads names the roads in the order of their rows.
func DSRRoads() []string {
	var names []string
	for _, road := range dsrRoads() {
		names = append(names, road.name)
	}
	return names
}

// DescribeDSRRoads is DSRRoads, each followed by a tab and what it is.
func DescribeDSRRoads() []string {
	var lines []string
	for _, road := range dsrRoads() {
		lines = append(lines, road.name+"\t"+road.about)
	}
	return lines
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

// died is the error of a daemon that ended by itself.
func (r *dsrRoad) died() error {
	for _, d := range r.daemons {
		if err := d.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// target is where clients send to.
func (r *dsrRoad) target(family string) netip.Addr {
	if r.vip {
		return vipAddress(family)
	}
	return serverAddress(family)
}

// server is where the backend's servers listen.
func (r *dsrRoad) server(family string) netip.Addr {
	if r.vipAtServer {
		return vipAddress(family)
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

func setupIptables(ctx context.Context, _ *dsrBench, road *dsrRoad) error {
	var errs []error
	for _, family := range DSRFamilies() {
		program := "iptables"
		if family == "ipv6" {
			program = "ip6tables"
		}
		for _, p := range dsrPorts() {
			_, err := road.lab.Namespace("gateway").Exec(ctx, program, "-w", "-t", "nat", "-A", "PREROUTING", "-d", vipAddress(family).String(),
				"-p", p.protocol, "--dport", fmt.Sprint(p.port), "-j", "DNAT", "--to-destination", serverAddress(family).String())
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func setupNft(ctx context.Context, b *dsrBench, road *dsrRoad) error {
	var rules strings.Builder
	for _, family := range DSRFamilies() {
		ip := "ip"
		if family == "ipv6" {
			ip = "ip6"
		}
		fmt.Fprintf(&rules, "table %s weirbench {\n chain pre {\n  type nat hook prerouting priority dstnat\n", ip)
		for _, p := range dsrPorts() {
			fmt.Fprintf(&rules, "  %s daddr %v %s dport %d dnat to %v\n", ip, vipAddress(family), p.protocol, p.port, serverAddress(family))
		}
		rules.WriteString(" }\n}\n")
	}
	said := &programs.LastLines{}
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(rules.String()), said, said
	if err := b.running.Run(road.lab.Namespace("gateway"), cmd); err != nil {
		return fmt.Errorf("nft: %w%s", err, said.Said())
	}
	return nil
}
