package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// floodsTopology has clients and attacker on links of their own, a middle host that forwards or balances, and a server. What answers
// the spoofed addresses is routed to the attacker, which ignores it.
//
//	clients 10.82.1.2 to .5 ─── veth0 middle veth1 ─── server 10.82.2.2
//	attacker 10.82.3.2 ──────── veth2   VIP 10.82.9.1
//	spoofed 198.18.0.0/15
func floodsTopology(vipAtServer, marks bool) netlab.Topology {
	middle := netlab.Namespace{
		Name: "middle", Forward: true,
		Routes: []netlab.Route{{To: floodsSpoofed, Via: netip.MustParseAddr("10.82.3.2")}},
		Sysctls: []netlab.Sysctl{
			{Key: "net.ipv4.conf.all.rp_filter", Value: "0"},
			{Key: "net.ipv4.conf.veth0.rp_filter", Value: "0"},
			{Key: "net.ipv4.conf.veth1.rp_filter", Value: "0"},
			{Key: "net.ipv4.conf.veth2.rp_filter", Value: "0"},
		},
	}
	server := netlab.Namespace{Name: "server", Routes: netlab.Default("10.82.2.1"), Sysctls: []netlab.Sysctl{
		// What the server's own reassembly forgets is no matter of what is measured.
		{Key: "net.ipv4.ipfrag_high_thresh", Value: "4294967296"}, {Key: "net.ipv4.ipfrag_time", Value: "1"},
	}}
	if marks {
		middle.Rules = []netlab.Rule{{Mark: floodsMark, Table: floodsMark}}
		middle.Routes = append(middle.Routes, netlab.Route{To: netip.MustParsePrefix("0.0.0.0/0"), Via: floodsServer, Table: floodsMark})
	}
	vip := []netip.Prefix{netip.PrefixFrom(floodsVIP, 32)}
	if vipAtServer {
		server.Loopback = vip
	} else {
		middle.Loopback = vip
	}
	return netlab.Topology{
		Name: "benchfloods",
		Namespaces: []netlab.Namespace{
			{Name: "clients", Routes: netlab.Default("10.82.1.1")}, {Name: "attacker", Routes: netlab.Default("10.82.3.1")}, middle, server,
		},
		Links: []netlab.Link{
			netlab.Cable("clients eth0 10.82.1.2/24 10.82.1.3/24 10.82.1.4/24 10.82.1.5/24", "middle veth0 10.82.1.1/24"),
			netlab.Cable("middle veth1 10.82.2.1/24", "server eth0 10.82.2.2/24"),
			netlab.Cable("attacker eth0 10.82.3.2/24", "middle veth2 10.82.3.1/24"),
		},
	}
}

var (
	floodsSpoofed = netip.MustParsePrefix("198.18.0.0/15")
	floodsVIP     = netip.MustParseAddr("10.82.9.1")
	floodsServer  = netip.MustParseAddr("10.82.2.2")
	floodsSources = []netip.Addr{netip.MustParseAddr("10.82.1.2"), netip.MustParseAddr("10.82.1.3"), netip.MustParseAddr("10.82.1.4"), netip.MustParseAddr("10.82.1.5")}
)

const (
	floodsPort     = 7000
	floodsMark     = 101
	floodsSessions = 1000 // of a DTLS server
	floodsFlows    = 2000 // entries of a balancer's flow table
	floodsEntries  = 10000
	floodsProbes   = 9180
)

// Kinds of real clients.
const (
	clientsDTLS   = "dtls"
	clientsFlows  = "flows"
	clientsTurn   = "turn"
	clientsProbes = "probes"
)

// floodTarget is what is flooded.
type floodTarget struct {
	name, about string
	peer        bool   // somebody else's: without aims
	group       string // of targets that stand the same floods
	clients     string // kind of its real clients
	streams     bool   // carries TCP as well
	fragments   bool   // sees fragments
	apart       bool   // has a queue for fragments alone: a flood of them costs no whole packet
	vipAtServer bool
	marks       bool
	// certificates: the flood makes the server use its certificate, and the signatures that this costs are counted.
	certificates bool
	tools        []string
	available    func() error // nil: always
	start        func(*floodRun, context.Context) error
}

// floodTargets are in the order of their rows.
func floodTargets() []floodTarget {
	kernel := func(mode, hook string) floodTarget {
		return floodTarget{
			name: mode + "-" + hook, group: groupBalancer, clients: clientsFlows, streams: true, fragments: true, vipAtServer: mode == "l2dsr",
			about: "weir lb run --datapath ebpf --hook " + hook + ", mode " + mode + ", limits.flows 2000",
			start: func(r *floodRun, ctx context.Context) error { return r.startKernel(ctx, mode, hook, "") },
		}
	}
	return []floodTarget{
		{name: "coap", group: groupDTLS, clients: clientsDTLS, about: "weir coap server, one worker, 1000 sessions", start: (*floodRun).startCoap},
		{
			name: "coap-x509", group: groupCertificates, clients: clientsDTLS, certificates: true, about: "the same with a certificate, which the flood wants",
			start: (*floodRun).startCoapCertificate,
		},
		{name: peerScandium, group: groupDTLS, clients: clientsDTLS, peer: true, about: "Californium's DTLS server, 1000 connections", available: scandiumFound, start: (*floodRun).startScandium},
		{name: "udp", group: groupBalancer, clients: clientsFlows, about: "weir nat, 10000 entries", start: (*floodRun).startNAT},
		{
			name: "nfqueue", group: groupBalancer, clients: clientsFlows, streams: true, fragments: true, vipAtServer: true, marks: true, tools: []string{"iptables"},
			about: "weir lb run --datapath nfqueue, mode mark, limits.flows 2000", start: func(r *floodRun, ctx context.Context) error { return r.startNFQueue(ctx, "off") },
		},
		{
			name: "nfqueue-fast", group: groupBalancer, clients: clientsFlows, streams: true, fragments: true, vipAtServer: true, marks: true, tools: []string{"iptables"},
			about: "the same with --fast on: a TCX program marks what it can before the queue", start: func(r *floodRun, ctx context.Context) error {
				return r.startNFQueue(ctx, "on", "--interface", "veth0,veth2")
			},
		},
		{
			name: "nfqueue-split", group: groupBalancer, clients: clientsFlows, fragments: true, apart: true, vipAtServer: true, marks: true, tools: []string{"iptables"},
			about: "weir lb run --datapath nfqueue --queue 0:1, mode mark, fragments in a queue of their own", start: func(r *floodRun, ctx context.Context) error { return r.startNFQueue(ctx, "off", "--queue", "0:1") },
		},
		kernel("nat", "xdp"), kernel("nat", "tcx"), kernel("l2dsr", "xdp"), kernel("l2dsr", "tcx"),
		{
			name: "cid-xdp", group: groupSteered, clients: clientsDTLS, about: "weir lb run --datapath ebpf --hook xdp, mode nat, by connection id, limits.flows 2000",
			start: func(r *floodRun, ctx context.Context) error { return r.startSteered(ctx, "xdp") },
		},
		{
			name: targetConntrack, group: groupBalancer, clients: clientsFlows, streams: true, fragments: true, peer: true, tools: []string{"iptables"},
			about: "iptables DNAT; its table is the machine's nf_conntrack_max", start: (*floodRun).startConntrack,
		},
		{name: "turn", group: groupTURN, clients: clientsTurn, about: "weir turn gateway", start: (*floodRun).startGateway},
		{name: "coturn", group: groupTURN, clients: clientsTurn, peer: true, tools: []string{"turnserver"}, about: "turnserver", start: (*floodRun).startCoturn},
		{name: "admin-lb", group: groupAdmin, clients: clientsProbes, about: "probes of weir lb run", start: (*floodRun).startAdminLB},
		{name: "admin-coap", group: groupAdmin, clients: clientsProbes, about: "probes of weir coap server", start: (*floodRun).startAdminCoap},
		{name: "admin-nat", group: groupAdmin, clients: clientsProbes, about: "probes of weir nat", start: (*floodRun).startAdminNAT},
		{name: "admin-turn", group: groupAdmin, clients: clientsProbes, about: "probes of weir turn gateway", start: (*floodRun).startAdminTURN},
	}
}

const targetConntrack = "conntrack"

// Groups of targets.
const (
	groupDTLS = "dtls"
	// groupCertificates has the floods that begin handshakes.
	groupCertificates = "certificates"
	groupBalancer     = "balancer"
	groupSteered      = "steered"
	groupTURN         = "turn"
	groupAdmin        = "admin"
)

// part starts our own binary in a namespace and waits until it is at work. It is what is measured.
func (r *floodRun) part(ctx context.Context, namespace, name string, args ...string) error {
	return r.measured(ctx)(r.Daemon(ctx, namespace, name, args...))
}

// measured waits until a daemon is at work and has it measured.
func (r *floodRun) measured(ctx context.Context) func(*programs.Daemon, error) error {
	return func(d *programs.Daemon, err error) error {
		if d != nil {
			r.pids = append(r.pids, d.PID())
		}
		return ready(ctx)(d, err)
	}
}

// program starts another program. It is what is measured.
func (r *floodRun) program(namespace string, cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	cmd.WaitDelay = time.Second // a child of a killed supervisor keeps the pipes open, until the network goes
	if err := r.Running.Start(r.Lab.Namespace(namespace), cmd); err != nil {
		return err
	}
	r.pids = append(r.pids, cmd.Process.Pid)
	return nil
}

func (r *floodRun) respond(at netip.AddrPort) error {
	answers, err := openResponder(r.Lab.Namespace("server"), at, "server")
	if err == nil {
		r.answers = answers
		r.Undo = append(r.Undo, func() error { answers.close(); return nil })
	}
	return err
}

func (r *floodRun) startCoap(ctx context.Context) error {
	return r.coapServer(ctx)
}

// coapServer runs the server with more options.
func (r *floodRun) coapServer(ctx context.Context, more ...string) error {
	r.entry = netip.AddrPortFrom(floodsServer, floodsPort)
	args := []string{"coap", "server", "--no-supervisor", "--workers", "1", "--max-sessions", strconv.Itoa(r.bound(floodsSessions)), "--dtls-only", "--dtls", r.entry.String()}
	return r.part(ctx, "server", "coap", append(args, more...)...)
}

// startCoapCertificate runs the server with a certificate of its own. The real clients have pre-shared keys, so that each signature
// is one of the flood.
func (r *floodRun) startCoapCertificate(ctx context.Context) error {
	folder := filepath.Join(r.Dir, "certificates")
	if text, err := exec.CommandContext(ctx, r.config.Binary, "coap", "certs", folder).CombinedOutput(); err != nil { //nolint:gosec // our own binary
		return fmt.Errorf("certificates of the server: %w: %s", err, text)
	}
	return r.coapServer(ctx, "--demo-credentials", "--certificate", filepath.Join(folder, "server.pem"), "--private-key", filepath.Join(folder, "server-key.pem"))
}

// startSteered runs a node behind the kernel data path, which finds it by the connection id.
func (r *floodRun) startSteered(ctx context.Context, hook string) error {
	err := r.part(ctx, "server", "coap", "coap", "server", "--no-supervisor", "--workers", "1", "--node-id", "1", "--dtls-only", "--dtls", netip.AddrPortFrom(floodsServer, floodsPort).String())
	if err != nil {
		return err
	}
	return r.startKernel(ctx, "nat", hook, "  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}\n")
}

// startKernel runs the kernel data path.
func (r *floodRun) startKernel(ctx context.Context, mode, hook, cid string) error {
	r.entry = netip.AddrPortFrom(floodsVIP, floodsPort)
	nodes, vips := "", []string{vipOf(floodsVIP, "udp", floodsPort)}
	if cid != "" {
		nodes = ", nodes: [1]"
	} else {
		vips = append(vips, vipOf(floodsVIP, "tcp", floodsPort))
		at := r.entry
		if mode == "nat" {
			at = netip.AddrPortFrom(floodsServer, floodsPort)
		}
		if err := r.respond(at); err != nil {
			return err
		}
	}
	text := serviceConfig(mode, r.bound(floodsFlows), cid, vips, fmt.Sprintf("name: server, address: %q%s", floodsServer, nodes))
	return r.measured(ctx)(r.Kernel(ctx, "middle", "floods", text, "veth0,veth1,veth2", "--hook", hook))
}

func (r *floodRun) startNAT(ctx context.Context) error {
	server := netip.AddrPortFrom(floodsServer, floodsPort)
	if err := r.respond(server); err != nil {
		return err
	}
	r.entry = netip.AddrPortFrom(floodsVIP, floodsPort)
	return r.part(ctx, "middle", "nat", "nat", r.entry.String(), "--quiet", "--max-entries", strconv.Itoa(r.bound(floodsEntries)), "--", server.String())
}

func (r *floodRun) startNFQueue(ctx context.Context, fast string, args ...string) error {
	r.entry = netip.AddrPortFrom(floodsVIP, floodsPort)
	if err := r.respond(r.entry); err != nil {
		return err
	}
	if slices.Contains(args, "0:1") { // fragments have a queue of their own
		if err := r.queue(ctx, 1, "-m", "u32", "--u32", "4&0x3FFF=1:0x3FFF"); err != nil {
			return err
		}
	}
	if err := r.queue(ctx, 0); err != nil {
		return err
	}
	config := filepath.Join(r.Dir, "weir.yaml")
	vips := []string{vipOf(floodsVIP, "udp", "any"), vipOf(floodsVIP, "tcp", "any")}
	text := serviceConfig("mark", r.bound(floodsFlows), "", vips, fmt.Sprintf("name: server, mark: %d", floodsMark))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	args = append([]string{"lb", "run", "-c", config, "--datapath", "nfqueue", "--keep=false", "--fast", fast}, args...)
	return r.part(ctx, "middle", "lb", args...)
}

// queue sends packets to a netfilter queue, as far as they have no mark yet.
func (r *floodRun) queue(ctx context.Context, number int, match ...string) error {
	for _, device := range []string{"veth0", "veth2"} {
		args := append([]string{"-w", "-t", "mangle", "-A", "PREROUTING", "-i", device, "-d", floodsVIP.String(), "-m", "mark", "--mark", "0"}, match...)
		if _, err := r.Lab.Namespace("middle").Exec(ctx, "iptables", append(args, "-j", "NFQUEUE", "--queue-num", strconv.Itoa(number))...); err != nil {
			return err
		}
	}
	return nil
}

// startConntrack lets the kernel translate. Its table is the machine's: nf_conntrack_max cannot be written in a namespace.
func (r *floodRun) startConntrack(ctx context.Context) error {
	server := netip.AddrPortFrom(floodsServer, floodsPort)
	r.entry = netip.AddrPortFrom(floodsVIP, floodsPort)
	if err := r.respond(server); err != nil {
		return err
	}
	for _, protocol := range []string{"udp", "tcp"} {
		if _, err := r.Lab.Namespace("middle").Exec(ctx, "iptables", "-w", "-t", "nat", "-A", "PREROUTING", "-p", protocol, "-d", floodsVIP.String(),
			"--dport", strconv.Itoa(floodsPort), "-j", "DNAT", "--to-destination", server.String()); err != nil {
			return err
		}
	}
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	r.note("table of " + strings.TrimSpace(string(text)) + " entries")
	return err
}

func (r *floodRun) startGateway(ctx context.Context) error {
	r.entry = netip.AddrPortFrom(floodsServer, floodsPort)
	err := r.part(ctx, "server", "turn", "turn", "gateway", fmt.Sprintf("turn://%s:%s@%v?transport=udp", turnUser, turnPassword, r.entry),
		"--workers", "1", "--peers", "10.82.0.0/16", "--drain-timeout", "1s")
	if err != nil {
		return err
	}
	child, err := servingProcess(ctx, r.Daemons[len(r.Daemons)-1])
	r.pids = append(r.pids, child)
	return err
}

func (r *floodRun) startCoturn(ctx context.Context) error {
	r.entry = netip.AddrPortFrom(floodsServer, floodsPort)
	cmd := exec.Command("turnserver", append(coturnArgs(r.entry, floodsServer, r.Dir), "--no-tcp", "--no-dtls")...) //nolint:gosec // addresses of ours
	if err := r.program("server", cmd); err != nil {
		return err
	}
	return r.until(ctx, "coturn", func() error {
		t, err := r.allocate("clients", 1)
		if err == nil {
			t.end(false)
		}
		return err
	})
}

func (r *floodRun) startScandium(ctx context.Context) error {
	r.entry = netip.AddrPortFrom(floodsServer, floodsPort)
	cmd, err := scandiumServer(r.entry, r.bound(floodsSessions))
	if err != nil {
		return err
	}
	if err := r.program("server", cmd); err != nil {
		return err
	}
	return r.until(ctx, "scandium", scandiumReady(&r.output))
}

// until repeats what must succeed before the run begins.
func (r *floodRun) until(ctx context.Context, name string, ready func() error) error {
	if err := until(ctx, programs.ReadyTimeout, ready); err != nil {
		return fmt.Errorf("%s: %w%s", name, err, r.output.LastOutput())
	}
	return nil
}

func (r *floodRun) startAdminLB(ctx context.Context) error {
	config := filepath.Join(r.Dir, "weir.yaml")
	text := fmt.Sprintf("services:\n- name: floods\n  vips:\n  - {address: %q, protocol: udp, port: %d}\n  backends:\n  - {name: server, address: %q, port: 9}\n", floodsServer, floodsPort, floodsServer)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	return r.probed(ctx, "lb", "run", "-c", config, "--datapath", "udp")
}

func (r *floodRun) startAdminCoap(ctx context.Context) error {
	return r.probed(ctx, "coap", "server", "--no-supervisor", "--workers", "1", "--dtls-only", "--dtls", netip.AddrPortFrom(floodsServer, floodsPort).String())
}

func (r *floodRun) startAdminNAT(ctx context.Context) error {
	return r.probed(ctx, "nat", netip.AddrPortFrom(floodsServer, floodsPort).String(), "--quiet", "--", "10.82.2.1:9")
}

func (r *floodRun) startAdminTURN(ctx context.Context) error {
	return r.probed(ctx, "turn", "gateway", fmt.Sprintf("turn://%s:%s@%s:%d", turnUser, turnPassword, floodsServer, floodsPort), "--workers", "1")
}

// probed starts a part with its probes on TCP.
func (r *floodRun) probed(ctx context.Context, args ...string) error {
	r.entry = netip.AddrPortFrom(floodsServer, floodsProbes)
	cmd := exec.Command(r.config.Binary, append(slices.Clone(args), "--admin", "", "--metrics", r.entry.String())...) //nolint:gosec // our own binary
	if err := r.program("server", cmd); err != nil {
		return err
	}
	return r.until(ctx, args[0], func() error { return r.probe(ctx, "server") })
}
