package bench

import (
	"bufio"
	"bytes"
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

// nfqLoad is one way to load a road.
type nfqLoad struct {
	name  string // kind, with its rate
	kind  string
	title string
	unit  string // of its rate: Gbit/s, kpps or µs
	// datagrams: segmentation offload is no matter. spread: of several sources. dsr: in the network of two hops.
	datagrams, spread, dsr bool
	tools                  []string
	serve                  func(ctx context.Context, b *nfqBench, net *nfqNet, family string) error
	run                    func(ctx context.Context, b *nfqBench, cell *nfqCell) (nfqRun, error)
}

// nfqRun is what one load over one road found in one round.
type nfqRun struct {
	elapsed        time.Duration
	bytes, packets uint64
	sent           uint64 // datagrams
	latency        *RoundTrips
}

const (
	udpPort      = 9001
	iperfPayload = 1470 // bytes: what iperf sends
	fragmented   = 2400 // bytes: two fragments
	smallPayload = 64   // bytes
	pacedRate    = 100_000
)

func (b *nfqBench) loads() []nfqLoad {
	iperf := []string{"iperf"}
	loads := []nfqLoad{
		{kind: loadTCP, title: "TCP, one stream", unit: "Gbit/s", tools: iperf, serve: serveNFQ, run: tcpLoad("-P", "1")},
		{kind: loadTCP8, title: "TCP, 8 streams of one source", unit: "Gbit/s", tools: iperf, serve: serveNFQ, run: tcpLoad("-P", "8")},
		{kind: loadTCPSources, title: "TCP, 8 streams of 8 sources", unit: "Gbit/s", spread: true, tools: iperf, serve: serveNFQ, run: tcpLoad("-P", "8", "--incr-srcip")},
	}
	for _, bandwidth := range b.config.Bandwidths {
		rate := int(bandwidth / 8 / iperfPayload)
		text := strconv.FormatFloat(bandwidth/1e9, 'g', 4, 64) + "G"
		loads = append(loads, nfqLoad{
			name: loadBandwidth + "-" + text, kind: loadBandwidth, title: fmt.Sprintf("UDP, %d bytes at %sbit/s", iperfPayload, text), unit: "Gbit/s",
			datagrams: true, run: datagramLoad(iperfPayload, rate, oneSource),
		})
	}
	for _, rate := range b.config.Fragmented {
		loads = append(loads, nfqLoad{
			name: fmt.Sprintf("%s-%d", loadFragments, rate), kind: loadFragments, title: fmt.Sprintf("UDP, %d bytes in 2 fragments, %d datagrams/s, two hops", fragmented, rate),
			unit: "kpps", datagrams: true, dsr: true, run: datagramLoad(fragmented, rate, freshSource),
		})
	}
	loads = append(loads,
		nfqLoad{kind: loadFlood, title: fmt.Sprintf("UDP, %d bytes of 8 sources, one sending thread", smallPayload), unit: "kpps", datagrams: true, spread: true, run: datagramLoad(smallPayload, 0, allSources)},
		nfqLoad{kind: loadPaced, title: fmt.Sprintf("UDP, %d bytes of 8 sources, %d datagrams/s", smallPayload, pacedRate), unit: "kpps", datagrams: true, spread: true, run: datagramLoad(smallPayload, pacedRate, allSources)},
		nfqLoad{kind: loadPingPong, title: "UDP ping-pong, one at a time", unit: "µs", datagrams: true, run: pingPongLoad},
	)
	for i := range loads {
		if loads[i].name == "" {
			loads[i].name = loads[i].kind
		}
	}
	return loads
}

// NFQueueLoads names the kinds of loads in the order they run.
func NFQueueLoads() []string {
	return []string{loadTCP, loadTCP8, loadTCPSources, loadBandwidth, loadFragments, loadFlood, loadPaced, loadPingPong}
}

// DescribeNFQueueLoads is NFQueueLoads, each followed by a tab and what it is.
func DescribeNFQueueLoads() []string {
	b := &nfqBench{config: NFQueueConfig{Bandwidths: []float64{2e9}, Fragmented: []int{15000}}}
	var lines []string
	for _, load := range b.loads() {
		lines = append(lines, load.kind+"\t"+load.title)
	}
	return lines
}

// serveNFQ starts the one server of all TCP loads.
func serveNFQ(ctx context.Context, b *nfqBench, net *nfqNet, family string) error {
	at := nfqVIP(family).String()
	if net.serves[family] {
		return nil
	}
	args := []string{"-s", "-p", strconv.Itoa(iperf2Port), "-B", at}
	if family == "ipv6" {
		args = append(args, "-V")
	}
	said := &programs.LastLines{}
	cmd := exec.Command("iperf", args...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := b.running.Start(net.lab.Namespace("server"), cmd); err != nil {
		return err
	}
	for range 500 {
		if listening(cmd.Process.Pid, iperf2Port, family == "ipv6") {
			net.serves[family] = true
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("iperf does not listen on port %d%s", iperf2Port, said.Said())
}

// tcpLoad is iperf with those arguments, from the client's first address or, for several, from the second on.
func tcpLoad(more ...string) func(context.Context, *nfqBench, *nfqCell) (nfqRun, error) {
	return func(ctx context.Context, b *nfqBench, cell *nfqCell) (nfqRun, error) {
		source := nfqSources(cell.family)[0]
		if cell.load.spread {
			source = nfqSources(cell.family)[1]
		}
		args := append([]string{"-c", nfqVIP(cell.family).String(), "-p", strconv.Itoa(iperf2Port), "-t", b.config.seconds(), "-y", "C", "-B", source.String()}, more...)
		if cell.family == "ipv6" {
			args = append(args, "-V")
		}
		out, err := b.client(ctx, cell.net, exec.Command("iperf", args...))
		if err != nil {
			return nfqRun{}, err
		}
		return parseIperfStreams(out)
	}
}

// parseIperfStreams sums the streams of iperf's comma-separated report. Their sum, whose number is -1, is left out.
func parseIperfStreams(out []byte) (nfqRun, error) {
	var sum nfqRun
	for line := range bytes.Lines(bytes.TrimSpace(out)) {
		if fields := bytes.Split(line, []byte(",")); len(fields) > 5 && string(fields[5]) == "-1" {
			continue
		}
		stream, err := parseIperf2(line)
		if err != nil {
			return sum, err
		}
		sum.bytes += stream.bytes
		sum.elapsed = max(sum.elapsed, stream.elapsed)
	}
	if sum.bytes == 0 {
		return sum, fmt.Errorf("iperf reported nothing: %q", excerpt(out))
	}
	return sum, nil
}

func oneSource(_ *nfqNet, family string) []netip.Addr  { return nfqSources(family)[:1] }
func allSources(_ *nfqNet, family string) []netip.Addr { return nfqSources(family)[1:] }

// freshSource is another one for each run: the server may still wait for fragments of the last one's.
func freshSource(net *nfqNet, family string) []netip.Addr {
	sources := nfqSources(family)
	net.source++
	at := net.source % len(sources)
	return sources[at : at+1]
}

// datagramLoad sends datagrams, rate a second or as many as can be, and counts those that arrive whole.
func datagramLoad(size, rate int, sources func(*nfqNet, string) []netip.Addr) func(context.Context, *nfqBench, *nfqCell) (nfqRun, error) {
	return func(ctx context.Context, b *nfqBench, cell *nfqCell) (run nfqRun, err error) {
		to := netip.AddrPortFrom(nfqVIP(cell.family), udpPort)
		finish, err := b.sink(ctx, cell.net, to, size)
		if err != nil {
			return run, err
		}
		out, err := b.client(ctx, cell.net, b.traffic("send", "--to", to.String(), "--source", joinAddrs(sources(cell.net, cell.family)),
			"--size", strconv.Itoa(size), "--rate", strconv.Itoa(rate), "--duration", b.config.Duration.String()))
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
		return nfqRun{elapsed: seconds(sent.Elapsed), packets: received.Received, bytes: received.Received * uint64(size), sent: sent.Sent}, nil
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
func (b *nfqBench) traffic(args ...string) *exec.Cmd {
	return exec.Command(b.config.Binary, append([]string{"bench", "traffic"}, args...)...) //nolint:gosec // our own binary
}

// sink starts a sink and waits until it listens. finish ends it and returns what it counted.
func (b *nfqBench) sink(ctx context.Context, net *nfqNet, at netip.AddrPort, size int) (finish func() (DatagramsReceived, error), err error) {
	cmd := b.traffic("sink", "--at", at.String(), "--size", strconv.Itoa(size))
	said := &programs.LastLines{}
	cmd.Stderr = said
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.running.Start(net.lab.Namespace("server"), cmd); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(output)
	finish = func() (got DatagramsReceived, err error) {
		_ = input.Close() // the end of its input is its end
		text, _ := io.ReadAll(lines)
		waited := cmd.Wait()
		b.running.Forget(cmd)
		if err := json.Unmarshal(text, &got); err != nil || waited != nil {
			return got, fmt.Errorf("the sink: %w%s", errors.Join(waited, err), said.Said())
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

func pingPongLoad(ctx context.Context, b *nfqBench, cell *nfqCell) (nfqRun, error) {
	trips, err := b.pingPong(ctx, cell.net, cell.family, nfqSources(cell.family)[:1], 0, b.config.Duration)
	if err == nil && trips.Count == 0 {
		err = errors.New("no datagram was answered")
	}
	return nfqRun{elapsed: b.config.Duration, packets: uint64(trips.Count), sent: uint64(trips.Count + trips.Lost), latency: &trips}, err
}

func (b *nfqBench) pingPong(ctx context.Context, net *nfqNet, family string, sources []netip.Addr, count int, duration time.Duration) (trips RoundTrips, err error) {
	out, err := b.client(ctx, net, b.traffic("ping", "--to", netip.AddrPortFrom(nfqVIP(family), echoPort).String(), "--source", joinAddrs(sources),
		"--count", strconv.Itoa(count), "--duration", duration.String()))
	if err != nil {
		return trips, err
	}
	if err := json.Unmarshal(out, &trips); err != nil {
		return trips, fmt.Errorf("report of ping-pong: %w: %q", err, excerpt(out))
	}
	return trips, nil
}

func (c *NFQueueConfig) seconds() string {
	return strconv.FormatFloat(c.Duration.Seconds(), 'f', -1, 64)
}

// client runs a program in the client's namespace and returns what it printed.
func (b *nfqBench) client(ctx context.Context, net *nfqNet, cmd *exec.Cmd) ([]byte, error) {
	bound := max(b.config.Duration, nfqReady) + 15*time.Second // connecting included, on a busy machine
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var out bytes.Buffer
	said := &programs.LastLines{}
	cmd.Stdout, cmd.Stderr = &out, said
	if err := b.running.Start(net.lab.Namespace("client"), cmd); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(bounded, func() { _ = cmd.Process.Kill() }) // it may have ended
	err := cmd.Wait()
	stop()
	b.running.Forget(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%s was stuck for %v%s", cmd.Args[0], bound, said.Said())
	case err != nil:
		return nil, fmt.Errorf("%s: %w%s", cmd.Args[0], err, said.Said())
	}
	return out.Bytes(), nil
}
