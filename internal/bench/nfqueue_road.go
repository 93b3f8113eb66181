package bench

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// The roads of the scenario nfqueue.
const (
	pathDirect = "direct" // the kernel routes to the VIP, nothing else
	pathQueue  = "queue"  // one queue
	pathQueues = "queues" // one for each core
	pathFast   = "fast"   // what the TCX program can decide never sees the queue

	pathNfqlb       = "nfqlb"        // nfqlb in weir's place, one queue
	pathNfqlbQueues = "nfqlb-queues" // one for each core
)

// nfqRoad is one way from the client to the VIP.
type nfqRoad struct {
	name, about string
	queues      int // 0: no balancer
	spread      bool
	fast        bool
	peer        string // whose road it is; empty: weir's
	compare     string // the road of a peer with the same queues
	tools       []string
}

func nfqRoads() []nfqRoad {
	tools, cores := []string{"iptables", "ip6tables"}, max(2, min(runtime.NumCPU(), 16))
	peerTools := append([]string{"ip", "mount", "sysctl", "unshare"}, tools...)
	return []nfqRoad{
		{name: pathDirect, about: "the kernel routes to the VIP; no rule"},
		{name: pathNfqlb, about: "nfqlb in weir's place, one queue (--with nfqlb)", queues: 1, peer: peerNfqlb, tools: peerTools},
		{name: pathNfqlbQueues, about: "the same, one queue for each core", queues: cores, spread: true, peer: peerNfqlb, tools: peerTools},
		{name: pathQueue, about: "Weir decides every packet, one queue", queues: 1, compare: pathNfqlb, tools: tools},
		{name: pathQueues, about: "one queue for each core (at least two); loads of several sources only", queues: cores, spread: true, compare: pathNfqlbQueues, tools: tools},
		{name: pathFast, about: "the TCX program marks what it can, the queue gets the rest (--fast on)", queues: 1, fast: true, compare: pathNfqlb, tools: tools},
	}
}

// NFQueueRoads names Weir's roads and direct in the order of their rows.
func NFQueueRoads() []string {
	var names []string
	for _, road := range nfqRoads() {
		if road.peer == "" {
			names = append(names, road.name)
		}
	}
	return names
}

// wanted says whether a run measures a road.
func (r *nfqRoad) wanted(c *NFQueueConfig) bool {
	if r.peer != "" {
		return slices.Contains(c.With, r.peer)
	}
	return r.name == pathDirect || len(c.Roads) == 0 || slices.Contains(c.Roads, r.name)
}

// DescribeNFQueueRoads is NFQueueRoads, each followed by a tab and what it is.
func DescribeNFQueueRoads() []string {
	var lines []string
	for _, road := range nfqRoads() {
		lines = append(lines, road.name+"\t"+road.about)
	}
	return lines
}

type nfqNetKey struct {
	road, offload string
	dsr           bool
}

// nfqNet is a road in a network of its own: rules and offloads of one would change what every other costs.
type nfqNet struct {
	road    nfqRoad
	offload string
	dsr     bool

	lab    *netlab.Lab
	weir   *programs.Daemon
	peer   *nfqPeer // in weir's place
	source int      // of the last run that wanted a fresh one
	serves map[string]bool
	first  map[int]queueRow // queues after setting up
	failed error            // of setup
	absent string           // why this weir does not have the road
}

func (n *nfqNet) name() string {
	text := n.road.name + ", offload " + n.offload
	if n.dsr {
		text += ", two hops"
	}
	return text
}

func (n *nfqNet) balancer() *netlab.Host { return n.lab.Namespace("balancer") }

func (n *nfqNet) died() error {
	switch {
	case n.weir != nil:
		return n.weir.Failure()
	case n.peer != nil:
		return n.peer.failure(n)
	}
	return nil
}

// balanced says whether a balancer was started.
func (n *nfqNet) balanced() bool { return n.weir != nil || n.peer != nil }

// pid is the balancer's process, 0 without one.
func (n *nfqNet) pid() int {
	switch {
	case n.weir != nil:
		return n.weir.PID()
	case n.peer != nil:
		return n.peer.cmd.Process.Pid
	}
	return 0
}

// program names the balancer.
func (n *nfqNet) program() string {
	if n.road.peer != "" {
		return n.road.peer
	}
	return "weir"
}

// Addresses of netlab.NFQueue.
func nfqVIP(family string) netip.Addr { return pick(family, "10.96.0.1", "fd96::1") }

// nfqSources are the client's addresses: the first one alone, then those for several sources.
func nfqSources(family string) []netip.Addr {
	sources := []netip.Addr{pick(family, "10.61.0.2", "fd61::2")}
	for host := 101; host <= 108; host++ {
		sources = append(sources, pick(family, fmt.Sprintf("10.61.0.%d", host), fmt.Sprintf("fd61::%d", host)))
	}
	return sources
}

const (
	echoPort = 7007
	nfqReady = 10 * time.Second
)

// open builds the network, starts the servers and the balancer, and sees that datagrams of every source arrive and come back.
func (b *nfqBench) open(ctx context.Context, net *nfqNet) (err error) {
	topology := netlab.NFQueue()
	if net.dsr {
		topology = netlab.NFQueueDSR()
	}
	topology.Name = "bench-nfq"
	for i := range topology.Namespaces {
		switch ns := &topology.Namespaces[i]; ns.Name {
		case "balancer": // the way of direct, and of what the rules let through
			ns.Routes = append(ns.Routes,
				netlab.Route{To: netip.MustParsePrefix("10.96.0.1/32"), Via: netip.MustParseAddr("10.62.0.2")},
				netlab.Route{To: netip.MustParsePrefix("fd96::1/128"), Via: netip.MustParseAddr("fd62::2")})
		case "server": // a lost fragment must not clog reassembly until the ids wrap
			ns.Sysctls = append(ns.Sysctls, netlab.Sysctl{Key: "net.ipv4.ipfrag_high_thresh", Value: "268435456"}, netlab.Sysctl{Key: "net.ipv4.ipfrag_time", Value: "1"},
				netlab.Sysctl{Key: "net.ipv6.ip6frag_high_thresh", Value: "268435456"}, netlab.Sysctl{Key: "net.ipv6.ip6frag_time", Value: "1"})
		}
	}
	if net.lab, err = netlab.Up(topology); err != nil {
		return err
	}
	if net.offload == "off" {
		for _, link := range topology.Links {
			for _, end := range []netlab.End{link.A, link.B} {
				if _, err := net.lab.Namespace(end.Namespace).Exec(ctx, "ethtool", "-K", end.Name, "gro", "off", "gso", "off", "tso", "off"); err != nil {
					return err
				}
			}
		}
	}
	if net.road.queues > 0 {
		if err := queueRules(ctx, net, "left"); err != nil {
			return err
		}
		start := b.startWeir
		if net.road.peer != "" {
			start = b.startNfqlb
		}
		if err := start(ctx, net); err != nil {
			return err
		}
	}
	started := map[string]bool{}
	for _, cell := range b.cells {
		if cell.net != net {
			continue
		}
		if !started[cell.family] {
			started[cell.family] = true
			if err := b.startEcho(net, cell.family); err != nil {
				return err
			}
			if _, err := b.pingPong(ctx, net, cell.family, nfqSources(cell.family), 3, nfqReady); err != nil {
				return err
			}
		}
		if serve := cell.load.serve; serve != nil && !started[cell.load.name+cell.family] {
			started[cell.load.name+cell.family] = true
			if err := serve(ctx, b, net, cell.family); err != nil {
				return err
			}
		}
	}
	if net.road.queues == 0 {
		return nil
	}
	if net.first, err = readQueues(net.balancer()); err != nil {
		return err
	}
	return net.carries()
}

// carries sees that the packets so far took the road, and not a way past it.
func (n *nfqNet) carries() error {
	seen := uint32(0)
	for _, row := range n.first {
		seen += row.sequence
	}
	switch {
	case !n.road.fast && seen == 0:
		return errors.New("datagrams arrive past the queue")
	case n.road.fast && seen > 0:
		return fmt.Errorf("%d datagrams were queued in spite of the fast path", seen)
	}
	return nil
}

// queueRules leads what comes in by an interface and goes to the VIP to the road's queues.
func queueRules(ctx context.Context, net *nfqNet, device string) error {
	for _, family := range DSRFamilies() {
		program := "iptables"
		if family == "ipv6" {
			program = "ip6tables"
		}
		target := []string{"--queue-num", "0"}
		if net.road.queues > 1 {
			target = []string{"--queue-balance", "0:" + strconv.Itoa(net.road.queues-1)}
		}
		rule := []string{"-w", "-t", "mangle", "-A", "PREROUTING", "-i", device, "-d", nfqVIP(family).String(), "-m", "mark", "--mark", "0", "-j", "NFQUEUE"}
		if _, err := net.balancer().Exec(ctx, program, append(rule, target...)...); err != nil {
			return err
		}
	}
	return nil
}

// startWeir starts weir as the balancer.
func (b *nfqBench) startWeir(ctx context.Context, net *nfqNet) error {
	config := filepath.Join(b.dir, "nfqueue.yaml")
	if err := os.WriteFile(config, []byte(netlab.Config("nfqueue")), 0o600); err != nil {
		return err
	}
	run := []string{"lb", "run", "-c", config, "--datapath", "nfqueue", "--queue", "0:" + strconv.Itoa(net.road.queues-1)}
	name := fmt.Sprintf("%s-%s-%t", net.road.name, net.offload, net.dsr)
	if net.road.fast {
		run = append(run, "--fast", "on", "--interface", "left")
	}
	d, err := programs.StartDaemon(ctx, b.running, net.balancer(), b.config.Binary, b.dir, name, run...)
	net.weir = d
	if err != nil {
		if d != nil && strings.Contains(d.Said(), "unknown flag: --fast") {
			net.absent = "this weir has no --fast"
		}
		return err
	}
	return d.Ready(ctx)
}

// startEcho starts what answers ping-pong, at the VIP.
func (b *nfqBench) startEcho(net *nfqNet, family string) error {
	cmd := exec.Command(b.config.Binary, "bench", "udp-echo", netip.AddrPortFrom(nfqVIP(family), echoPort).String()) //nolint:gosec // our own binary
	return b.running.Start(net.lab.Namespace("server"), cmd)
}

// queueRow is a line of /proc/net/netfilter/nfnetlink_queue.
type queueRow struct {
	waiting               uint32
	queueDrops, userDrops uint32
	sequence              uint32 // number of the last packet
}

// since is what happened since an earlier look; the kernel's counters wrap.
func (r queueRow) since(before queueRow) queueRow {
	return queueRow{r.waiting, r.queueDrops - before.queueDrops, r.userDrops - before.userDrops, r.sequence - before.sequence}
}

// readQueues reads a namespace's queues by their numbers.
func readQueues(host *netlab.Host) (map[int]queueRow, error) {
	var rows map[int]queueRow
	err := host.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_queue")
		if err != nil {
			return fmt.Errorf("statistics of queues: %w", err)
		}
		rows, err = parseQueues(string(text))
		return err
	})
	return rows, err
}

// parseQueues reads lines of: queue, port id, waiting, copy mode, copy range, queue drops, user drops, sequence, 1.
func parseQueues(text string) (map[int]queueRow, error) {
	rows := map[int]queueRow{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("statistics of queues: %d fields in %q", len(fields), excerpt([]byte(line)))
		}
		var numbers [8]uint32
		for i := range numbers {
			n, err := strconv.ParseUint(fields[i], 10, 32)
			if err != nil {
				return nil, fmt.Errorf("statistics of queues: %w in %q", err, excerpt([]byte(line)))
			}
			numbers[i] = uint32(n)
		}
		rows[int(numbers[0])] = queueRow{numbers[2], numbers[5], numbers[6], numbers[7]}
	}
	return rows, nil
}
