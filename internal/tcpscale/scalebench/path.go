package scalebench

import (
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// Paths by which a benchmark's connections go from clients to servers.
const (
	PathLoopback = "loopback" // no lab
	PathDirect   = "direct"   // what the others are compared with
)

// path is a way through the balancer's namespace.
type path struct {
	name, about string
	tools       []string
	mode        string   // of Weir's service; empty: no weir on it
	run         []string // of `weir lb run`, besides file and pins
	queues      bool     // has netfilter queues, with rules by `weir lb rules`
	unmarked    bool     // and only what has no mark goes there
	replies     bool     // what backends answer on is served too
	tracked     bool     // by the kernel's connection tracking
	rules       func(backends int) (program string, lines [][]string, script string)
}

func paths() []path {
	queues := fmt.Sprintf("0:%d", max(2, min(runtime.NumCPU(), 16))-1)
	return []path{
		{name: PathDirect, about: "the lab's kernel routes to the backends' own addresses; no VIP"},
		{name: "tcx", about: "Weir's kernel data path translates the VIP, on the TCX hook", mode: "nat", run: []string{"--datapath", "ebpf", "--hook", "tcx"}, replies: true},
		{name: "xdp", about: "the same on the XDP hook", mode: "nat", run: []string{"--datapath", "ebpf", "--hook", "xdp"}, replies: true},
		{name: "l2dsr", about: "Weir changes the MAC address only, on the TCX hook; the VIP is on the backends", mode: "l2dsr", run: []string{"--datapath", "ebpf", "--hook", "tcx"}},
		{name: "nfqueue", about: "Weir decides every packet to the VIP in netfilter queues; routing by mark", mode: "mark", tools: []string{"iptables", "ip6tables"}, run: []string{"--datapath", "nfqueue", "--queue", queues}, queues: true},
		{name: "nfqueue-fast", about: "the TCX program marks what it can, the queues get the rest", mode: "mark", tools: []string{"iptables", "ip6tables"}, run: []string{"--datapath", "nfqueue", "--fast", "on", "--keep=false", "--interface", leftDevice, "--queue", queues}, queues: true, unmarked: true},
		{name: "nft-dnat", about: "the kernel translates the VIP: nftables, connection tracking", tools: []string{"nft"}, tracked: true, rules: nftRules},
		{name: "iptables-dnat", about: "the same by iptables", tools: []string{"iptables"}, tracked: true, rules: iptablesRules},
	}
}

func findPath(name string) (path, error) {
	all := paths()
	if i := slices.IndexFunc(all, func(r path) bool { return r.name == name }); i >= 0 {
		return all[i], nil
	}
	return path{}, fmt.Errorf("no path %q; there are %s", name, strings.Join(Paths(), ", "))
}

// Paths names what --via takes.
func Paths() []string {
	names := []string{PathLoopback}
	for _, r := range paths() {
		names = append(names, r.name)
	}
	return names
}

// DescribePaths is Paths, each followed by a tab and what it is.
func DescribePaths() []string {
	lines := []string{PathLoopback + "\tthis machine's loopback; no balancer"}
	for _, r := range paths() {
		lines = append(lines, r.name+"\t"+r.about)
	}
	return lines
}

func (r *path) missing() []string {
	return slices.DeleteFunc(slices.Clone(r.tools), func(program string) bool { _, err := exec.LookPath(program); return err == nil })
}

// The lab's names and addresses.
const (
	leftDevice = "left"
	port       = 10000
	firstPort  = 1024 // of the client's range, which ends at 65535
)

func vip() netip.AddrPort { return netip.MustParseAddrPort("10.96.0.1:10000") }

func backendName(i int) string { return fmt.Sprintf("backend%d", i+1) }

func backendDevice(i int) string { return fmt.Sprintf("b%d", i+1) }

func backendAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 62, byte(i + 1), 2}) }

// sourceAddress is one of the client's, all of 10.70.0.0/16.
func sourceAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 70, byte(i / 250), byte(1 + i%250)})
}

// topology is that of all paths:
//
//	clients eth0 ──── left balancer b1 ──── eth0 backend1     10.62.1.2, VIP 10.96.0.1 on lo
//	10.70.0.0/16      10.61.0.1     b2 ──── eth0 backend2     10.62.2.2, VIP 10.96.0.1 on lo
func topology(backends int) netlab.Topology {
	loose := func(devices ...string) (all []netlab.Sysctl) {
		for _, dev := range append(devices, "all") {
			all = append(all, netlab.Sysctl{Key: "net.ipv4.conf." + dev + ".rp_filter", Value: "0"})
		}
		return all
	}
	t := netlab.Topology{
		Name: "tcpvia",
		Namespaces: []netlab.Namespace{
			{
				Name: "clients",
				Routes: []netlab.Route{
					netlab.Via("0.0.0.0/0", "10.61.0.1"),
					{To: netip.MustParsePrefix("10.70.0.0/16"), Dev: "lo", Local: true},
				},
				Sysctls: append(loose("eth0"), netlab.Sysctl{Key: "net.ipv4.ip_local_port_range", Value: fmt.Sprintf("%d 65535", firstPort)}),
			},
			{
				Name: "balancer", Forward: true,
				Routes:  []netlab.Route{netlab.Via("10.70.0.0/16", "10.61.0.2")},
				Sysctls: loose(leftDevice),
			},
		},
		Links: []netlab.Link{netlab.Cable("clients eth0 10.61.0.2/24", "balancer "+leftDevice+" 10.61.0.1/24")},
	}
	for i := range backends {
		gateway := fmt.Sprintf("10.62.%d.1", i+1)
		t.Namespaces = append(t.Namespaces, netlab.Namespace{
			Name: backendName(i), Loopback: []netip.Prefix{netip.PrefixFrom(vip().Addr(), 32)},
			Routes: netlab.Default(gateway),
			Sysctls: append(loose("eth0"), netlab.Sysctl{Key: "net.core.somaxconn", Value: fmt.Sprint(backlog)},
				netlab.Sysctl{Key: "net.ipv4.tcp_max_syn_backlog", Value: fmt.Sprint(backlog)}),
		})
		t.Namespaces[1].Sysctls = append(t.Namespaces[1].Sysctls, loose(backendDevice(i))...)
		t.Links = append(t.Links, netlab.Cable(fmt.Sprintf("balancer %s %s/24", backendDevice(i), gateway), fmt.Sprintf("%s eth0 %v/24", backendName(i), backendAddress(i))))
	}
	return t
}

// backlog is of the servers' queues.
const backlog = 16384

// weirConfig is the balancer's file.
func (r *path) weirConfig(backends, flows int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "hash_key: 5d0f2c4a6b8e1937c5d0f2c4a6b8e193\nlimits: {flows: %d}\nservices:\n- name: %s\n  mode: %s\n", flows, service, r.mode)
	fmt.Fprintf(&b, "  vips:\n  - {address: %v, protocol: tcp, port: %d}\n", vip().Addr(), port)
	b.WriteString("  health: {type: tcp, port: 10000, interval: 1s, timeout: 900ms, rise: 1, fall: 3}\n  backends:\n")
	for i := range backends {
		mark := ""
		if r.mode == "mark" {
			mark = fmt.Sprintf(", mark: %d", 101+i)
		}
		fmt.Fprintf(&b, "  - {name: %s, address: %v%s}\n", backendName(i), backendAddress(i), mark)
	}
	return b.String()
}

// service is its name in the file.
const service = "bench"

func nftRules(backends int) (program string, lines [][]string, script string) {
	var targets []string
	for i := range backends {
		targets = append(targets, fmt.Sprintf("%d : %v", i, backendAddress(i)))
	}
	return "nft", [][]string{{"-f", "-"}}, fmt.Sprintf("table ip weirbench {\n chain pre {\n  type nat hook prerouting priority dstnat\n  ip daddr %v tcp dport %d dnat to numgen inc mod %d map { %s }\n }\n}\n",
		vip().Addr(), port, backends, strings.Join(targets, ", "))
}

func iptablesRules(backends int) (program string, lines [][]string, script string) {
	for i := range backends {
		line := []string{"-w", "-t", "nat", "-A", "PREROUTING", "-d", vip().Addr().String(), "-p", "tcp", "--dport", fmt.Sprint(port)}
		if left := backends - i; left > 1 { // of those that the rules before have left over
			line = append(line, "-m", "statistic", "--mode", "nth", "--every", fmt.Sprint(left), "--packet", "0")
		}
		lines = append(lines, append(line, "-j", "DNAT", "--to-destination", backendAddress(i).String()))
	}
	return "iptables", lines, ""
}
