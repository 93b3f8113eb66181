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

// The paths of the scenario nfqueue.
const (
	pathDirect = "direct" // the kernel routes to the VIP, nothing else
	pathQueue  = "queue"  // one queue
	pathQueues = "queues" // one for each core
	pathFast   = "fast"   // what the TCX program can decide never sees the queue

	pathNfqlb       = "nfqlb"        // nfqlb in weir's place, one queue
	pathNfqlbQueues = "nfqlb-queues" // one for each core
)

// nfqPath is what a path through netfilter queues has besides.
type nfqPath struct {
	queues  int  // 0: no balancer
	spread  bool // for loads of several sources
	fast    bool
	of      string // the peer whose path it is; empty: weir's
	compare string // the path of a peer with the same queues

	offload string
	weir    *programs.Daemon
	peer    *nfqPeer         // in weir's place
	source  int              // of the last run that wanted a fresh one
	first   map[int]queueRow // queues after setting up
}

func nfqPaths() []*path {
	tools, cores := []string{"iptables", "ip6tables"}, max(2, min(runtime.NumCPU(), 16))
	peerTools := append([]string{"ip", "mount", "sysctl", "unshare"}, tools...)
	return []*path{
		{name: pathDirect, about: "the kernel routes to the VIP; no rule"},
		{name: pathNfqlb, about: "nfqlb in weir's place, one queue (--with nfqlb)", tools: peerTools, nfq: nfqPath{queues: 1, of: peerNfqlb}},
		{name: pathNfqlbQueues, about: "the same, one queue for each core", tools: peerTools, nfq: nfqPath{queues: cores, spread: true, of: peerNfqlb}},
		{name: pathQueue, about: "Weir decides every packet, one queue", tools: tools, nfq: nfqPath{queues: 1, compare: pathNfqlb}},
		{name: pathQueues, about: "one queue for each core (at least two); loads of several sources only", tools: tools, nfq: nfqPath{queues: cores, spread: true, compare: pathNfqlbQueues}},
		{name: pathFast, about: "the TCX program marks what it can, the queue gets the rest (--fast on)", tools: tools, nfq: nfqPath{queues: 1, fast: true, compare: pathNfqlb}},
	}
}

// NFQueuePaths describes the paths in the order of their rows: name, tab, what it is.
func NFQueuePaths() []string { return describe(nfqPaths()) }

// wanted says whether a run measures the path of that name.
func (n *nfqPath) wanted(name string, c *NFQueueConfig) bool {
	if n.of != "" {
		return slices.Contains(c.With, n.of)
	}
	return name == pathDirect || wanted(c.Paths, name)
}

// inNetwork completes a path in a network of netlab.NFQueue or, for two hops, netlab.NFQueueDSR.
func (p *path) inNetwork(offload string, twoHops bool) {
	p.clients, p.servers, p.open, p.vip, p.vipAtServer = "client", "server", openNFQ, true, true
	p.nfq.offload, p.variant, p.topology = offload, ", offload "+offload, netlab.NFQueue()
	if twoHops {
		p.variant, p.topology = p.variant+", two hops", netlab.NFQueueDSR()
	}
	p.topology.Name = "bench-nfq"
	p.address = nfqVIP
	p.tools = append([]string{"ethtool"}, p.tools...)
	for i := range p.topology.Namespaces {
		switch ns := &p.topology.Namespaces[i]; ns.Name {
		case "balancer": // the way of direct, and of what the rules let through
			ns.Routes = append(ns.Routes,
				netlab.Via("10.96.0.1/32", "10.62.0.2"),
				netlab.Via("fd96::1/128", "fd62::2"))
		case "server": // a lost fragment must not clog reassembly until the ids wrap
			ns.Sysctls = append(ns.Sysctls, netlab.Sysctl{Key: "net.ipv4.ipfrag_high_thresh", Value: "268435456"}, netlab.Sysctl{Key: "net.ipv4.ipfrag_time", Value: "1"},
				netlab.Sysctl{Key: "net.ipv6.ip6frag_high_thresh", Value: "268435456"}, netlab.Sysctl{Key: "net.ipv6.ip6frag_time", Value: "1"})
		}
	}
}

func (n *nfqPath) balancer(p *path) *netlab.Host { return p.Lab.Namespace("balancer") }

// balanced says whether a balancer was started.
func (n *nfqPath) balanced() bool { return n.weir != nil || n.peer != nil }

// pid is the balancer's process, 0 without one.
func (n *nfqPath) pid() int {
	switch {
	case n.weir != nil:
		return n.weir.PID()
	case n.peer != nil:
		return n.peer.cmd.Process.Pid
	}
	return 0
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

// openNFQ starts the balancer and the servers, and sees that datagrams of every source arrive and come back.
func openNFQ(ctx context.Context, g *grid, p *path) (err error) {
	if p.nfq.offload == "off" {
		for _, link := range p.topology.Links {
			for _, end := range []netlab.End{link.A, link.B} {
				if _, err := p.Lab.Namespace(end.Namespace).Exec(ctx, "ethtool", "-K", end.Name, "gro", "off", "gso", "off", "tso", "off"); err != nil {
					return err
				}
			}
		}
	}
	if p.nfq.queues > 0 {
		if err := queueRules(ctx, p, "left"); err != nil {
			return err
		}
		start := g.startWeir
		if p.nfq.of != "" {
			start = g.startNfqlb
		}
		if err := start(ctx, p); err != nil {
			return err
		}
	}
	answered := map[string]bool{}
	for _, c := range g.cells {
		if c.path != p || answered[c.family] {
			continue
		}
		answered[c.family] = true
		if err := g.startEcho(p, c.family); err != nil {
			return err
		}
		if _, err := g.pingPong(ctx, p, c.family, nfqSources(c.family), 3, nfqReady); err != nil {
			return err
		}
	}
	if err := g.serve(ctx, p); err != nil || p.nfq.queues == 0 {
		return err
	}
	if p.nfq.first, err = readQueues(p.nfq.balancer(p)); err != nil {
		return err
	}
	return p.nfq.carries()
}

// carries says whether the packets so far went through the queue, or past it where that is what the path is for.
func (n *nfqPath) carries() error {
	seen := uint32(0)
	for _, row := range n.first {
		seen += row.sequence
	}
	switch {
	case !n.fast && seen == 0:
		return errors.New("datagrams arrive past the queue")
	case n.fast && seen > 0:
		return fmt.Errorf("%d datagrams were queued in spite of the fast path", seen)
	}
	return nil
}

// queueRules leads what comes in by an interface and goes to the VIP to the path's queues.
func queueRules(ctx context.Context, p *path, device string) error {
	for _, family := range Families() {
		target := []string{"--queue-num", "0"}
		if p.nfq.queues > 1 {
			target = []string{"--queue-balance", "0:" + strconv.Itoa(p.nfq.queues-1)}
		}
		rule := []string{"-w", "-t", "mangle", "-A", "PREROUTING", "-i", device, "-d", nfqVIP(family).String(), "-m", "mark", "--mark", "0", "-j", "NFQUEUE"}
		if _, err := p.nfq.balancer(p).Exec(ctx, iptables(family), append(rule, target...)...); err != nil {
			return err
		}
	}
	return nil
}

// startWeir starts weir as the balancer.
func (g *grid) startWeir(ctx context.Context, p *path) error {
	config := filepath.Join(g.dir, "nfqueue.yaml")
	if err := os.WriteFile(config, []byte(netlab.Config("nfqueue")), 0o600); err != nil {
		return err
	}
	run := []string{"lb", "run", "-c", config, "--datapath", "nfqueue", "--queue", "0:" + strconv.Itoa(p.nfq.queues-1)}
	if p.nfq.fast {
		run = append(run, "--fast", "on", "--interface", "left", "--keep=false")
	}
	d, err := p.Daemon(ctx, "balancer", strings.NewReplacer(", ", "-", " ", "-").Replace(p.title()), run...)
	p.nfq.weir = d
	if d != nil && err != nil && strings.Contains(d.LastOutput(), "unknown flag: --fast") {
		p.absent = "this weir has no --fast"
	}
	return ready(ctx)(d, err)
}

// startEcho starts what answers ping-pong, at the VIP.
func (g *grid) startEcho(p *path, family string) error {
	cmd := exec.Command(g.config.Binary, "bench", "udp-echo", netip.AddrPortFrom(nfqVIP(family), echoPort).String()) //nolint:gosec // our own binary
	return g.running.Start(p.Lab.Namespace(p.servers), cmd)
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

// queueDrops is how many packets found a namespace's queues, or their sockets' buffers, full.
func queueDrops(host *netlab.Host) (dropped uint64, err error) {
	rows, err := readQueues(host)
	for _, row := range rows {
		dropped += uint64(row.queueDrops) + uint64(row.userDrops)
	}
	return dropped, err
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
