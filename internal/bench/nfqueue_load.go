package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Kinds of loads of the scenario nfqueue.
const (
	loadTCP        = "tcp"          // one stream
	loadTCP8       = "tcp8"         // eight of one source
	loadTCPSources = "tcp8-sources" // eight, each of a source of its own
	loadBandwidth  = "udp"          // 1,470 bytes at given bandwidths
	loadFragments  = "fragments"    // 2,400 bytes at given rates, over two hops
	loadFlood      = "flood"        // 64 bytes, as many as there can be
	loadPaced      = "paced"        // 64 bytes, 100,000 a second
	loadPingPong   = "pingpong"     // round trips
)

// nfqLoad is what a load of this scenario has besides.
type nfqLoad struct {
	datagrams bool // segmentation offload is no matter
	spread    bool // of several sources
	twoHops   bool // in the network of two hops
}

const (
	udpPort      = 9001
	iperfPayload = 1470 // bytes: what iperf sends
	fragmented   = 2400 // bytes: two fragments
	smallPayload = 64   // bytes
	pacedRate    = 100_000
)

func (c *NFQueueConfig) loads() []*load {
	tcp := func(kind, title string, spread bool, args ...string) *load {
		return &load{
			kind: kind, title: title, unit: "Gbit/s", tools: []string{"iperf"}, server: "iperf2", serve: serveIperf2, nfq: nfqLoad{spread: spread},
			run: func(ctx context.Context, g *grid, c *cell) (round, error) {
				source := nfqSources(c.family)[0]
				if spread {
					source = nfqSources(c.family)[1]
				}
				return g.iperf2(ctx, c, c.path.target(c.family), append([]string{"-B", source.String()}, args...)...)
			},
		}
	}
	loads := []*load{
		tcp(loadTCP, "TCP, one stream", false, "-P", "1"),
		tcp(loadTCP8, "TCP, 8 streams of one source", false, "-P", "8"),
		tcp(loadTCPSources, "TCP, 8 streams of 8 sources", true, "-P", "8", "--incr-srcip"),
	}
	for _, bandwidth := range c.Bandwidths {
		rate := int(bandwidth / 8 / iperfPayload)
		text := strconv.FormatFloat(bandwidth/1e9, 'g', 4, 64) + "G"
		loads = append(loads, &load{
			name: loadBandwidth + "-" + text, kind: loadBandwidth, title: fmt.Sprintf("UDP, %d bytes at %sbit/s", iperfPayload, text), unit: "Gbit/s",
			run: datagramLoad(iperfPayload, rate, oneSource),
		})
	}
	for _, rate := range c.Fragmented {
		loads = append(loads, &load{
			name: fmt.Sprintf("%s-%d", loadFragments, rate), kind: loadFragments, title: fmt.Sprintf("UDP, %d bytes in 2 fragments, %d datagrams/s, two hops", fragmented, rate),
			unit: "kpps", nfq: nfqLoad{twoHops: true}, run: datagramLoad(fragmented, rate, freshSource),
		})
	}
	loads = append(loads,
		&load{kind: loadFlood, title: fmt.Sprintf("UDP, %d bytes of 8 sources, one sending thread", smallPayload), unit: "kpps", nfq: nfqLoad{spread: true}, run: datagramLoad(smallPayload, 0, allSources)},
		&load{kind: loadPaced, title: fmt.Sprintf("UDP, %d bytes of 8 sources, %d datagrams/s", smallPayload, pacedRate), unit: "kpps", nfq: nfqLoad{spread: true}, run: datagramLoad(smallPayload, pacedRate, allSources)},
		&load{kind: loadPingPong, title: "UDP ping-pong, one at a time", unit: "µs", run: pingPongLoad},
	)
	for _, l := range loads {
		l.name, l.about, l.nfq.datagrams = cmp.Or(l.name, l.kind), l.title, l.server == ""
	}
	return loads
}

// NFQueueLoads describes the kinds of loads in the order they run: name, tab, what it is.
func NFQueueLoads() []string {
	c := NFQueueConfig{Bandwidths: []float64{2e9}, Fragmented: []int{15000}}
	return describe(c.loads())
}

func oneSource(_ *path, family string) []netip.Addr  { return nfqSources(family)[:1] }
func allSources(_ *path, family string) []netip.Addr { return nfqSources(family)[1:] }

// freshSource is another one for each run: the server may still wait for fragments of the last one's.
func freshSource(p *path, family string) []netip.Addr {
	sources := nfqSources(family)
	p.nfq.source++
	at := p.nfq.source % len(sources)
	return sources[at : at+1]
}

// datagramLoad sends datagrams, rate a second or as many as can be, and counts those that arrive whole.
func datagramLoad(size, rate int, sources func(*path, string) []netip.Addr) func(context.Context, *grid, *cell) (round, error) {
	return func(ctx context.Context, g *grid, c *cell) (run round, err error) {
		to := netip.AddrPortFrom(nfqVIP(c.family), udpPort)
		finish, err := g.sink(ctx, c.path, to, size)
		if err != nil {
			return run, err
		}
		out, err := g.client(ctx, c.path, g.traffic("send", "--to", to.String(), "--source", joinAddrs(sources(c.path, c.family)),
			"--size", strconv.Itoa(size), "--rate", strconv.Itoa(rate), "--duration", g.config.Duration.String()))
		received, bad := finish()
		if err := errors.Join(err, bad); err != nil {
			return run, err
		}
		var sent DatagramsSent
		if err := json.Unmarshal(out, &sent); err != nil {
			return run, fmt.Errorf("report of the sender: %w: %q", err, excerpt(out))
		}
		if received.WrongSize > 0 {
			return run, fmt.Errorf("%d datagrams arrived with another size than %d bytes", received.WrongSize, size)
		}
		if received.Received > sent.Sent {
			return run, fmt.Errorf("%d datagrams arrived of %d sent", received.Received, sent.Sent)
		}
		return round{elapsed: seconds(sent.Elapsed), packets: received.Received, bytes: received.Received * uint64(size), sent: sent.Sent}, nil
	}
}

func joinAddrs(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// traffic is our own binary as a sender, sink or ping.
func (g *grid) traffic(args ...string) *exec.Cmd {
	return exec.Command(g.config.Binary, append([]string{"bench", "traffic"}, args...)...) //nolint:gosec // our own binary
}

// sink starts a sink and waits until it listens. finish ends it and returns what it counted.
func (g *grid) sink(ctx context.Context, p *path, at netip.AddrPort, size int) (finish func() (DatagramsReceived, error), err error) {
	cmd := g.traffic("sink", "--at", at.String(), "--size", strconv.Itoa(size))
	last := &programs.LastLines{}
	cmd.Stderr = last
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.running.Start(p.Lab.Namespace(p.servers), cmd); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(output)
	finish = func() (got DatagramsReceived, err error) {
		_ = input.Close() // the end of its input is its end
		text, _ := io.ReadAll(lines)
		waited := cmd.Wait()
		g.running.Forget(cmd)
		if err := json.Unmarshal(text, &got); err != nil || waited != nil {
			return got, fmt.Errorf("the sink: %w%s", errors.Join(waited, err), last.LastOutput())
		}
		return got, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = input.Close() })
	defer stop()
	if line, err := lines.ReadString('\n'); err != nil || line != SinkReady+"\n" {
		_, ended := finish()
		return nil, fmt.Errorf("the sink did not start: %w", errors.Join(ctx.Err(), ended))
	}
	return finish, nil
}

// SinkReady is what a sink process says once it listens.
const SinkReady = "ready"

func pingPongLoad(ctx context.Context, g *grid, c *cell) (round, error) {
	trips, err := g.pingPong(ctx, c.path, c.family, nfqSources(c.family)[:1], 0, g.config.Duration)
	if err == nil && trips.Count == 0 {
		err = errors.New("no datagram was answered")
	}
	return round{elapsed: g.config.Duration, packets: uint64(trips.Count), sent: uint64(trips.Count + trips.Lost), trips: &trips}, err
}

func (g *grid) pingPong(ctx context.Context, p *path, family string, sources []netip.Addr, count int, duration time.Duration) (trips RoundTrips, err error) {
	out, err := g.client(ctx, p, g.traffic("ping", "--to", netip.AddrPortFrom(nfqVIP(family), echoPort).String(), "--source", joinAddrs(sources),
		"--count", strconv.Itoa(count), "--duration", duration.String()))
	if err != nil {
		return trips, err
	}
	if err := json.Unmarshal(out, &trips); err != nil {
		return trips, fmt.Errorf("report of ping-pong: %w: %q", err, excerpt(out))
	}
	return trips, nil
}
