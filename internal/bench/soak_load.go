package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// soakLoad is one kind of clients. run works until ctx has ended.
type soakLoad struct {
	name  string
	about string
	run   func(ctx context.Context) soakCounts
}

// soakCounts is what a load came to. Figures are what only it counts.
type soakCounts struct {
	answered, lost uint64
	figures        []measure.Figure
	failed         error // it could not go on
}

func (s *soak) times(n int) int { return max(1, int(math.Round(float64(n)*s.config.Load))) }

// every is the interval of something that the default load does once in d.
func (s *soak) every(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.config.Load)
}

// loads are the kinds of clients.
func (s *soak) loads() []soakLoad {
	all := []soakLoad{
		{"moving", "CID clients that change address and port every 10 s", s.moving},
		{"handshakes", "new DTLS clients; half of them vanish without a word", s.handshakes},
		{"calls", "TURN clients that stay", s.calls},
		{"turn-churn", "new TURN allocations; half of them are abandoned", s.turnChurn},
		{"udp", "UDP flows through weir nat, some that stay and new ones", s.flows(s.network.udp, false)},
	}
	if s.network.service.IsValid() {
		all = append(all,
			soakLoad{"udp-ebpf", "UDP flows through the kernel data path", s.flows(s.network.service, false)},
			soakLoad{"tcp-ebpf", "TCP connections through the kernel data path, closed by FIN or RST", s.flows(s.network.service, true)})
	}
	return all
}

// startLoads begins all of them. end ends them and returns their counts in order.
func (s *soak) startLoads(ctx context.Context) (loads []soakLoad, end func() []soakCounts, err error) {
	ctx, cancel := context.WithCancel(ctx)
	loads = s.loads()
	counts := make([]soakCounts, len(loads))
	var running sync.WaitGroup
	for i, load := range loads {
		running.Go(func() { counts[i] = load.run(ctx) })
	}
	return loads, func() []soakCounts {
		cancel()
		running.Wait()
		return counts
	}, nil
}

// flows is a load of flows of one protocol.
func (s *soak) flows(to netip.AddrPort, stream bool) func(context.Context) soakCounts {
	return func(ctx context.Context) soakCounts {
		load := &flowLoad{
			host: s.network.clients, sources: s.network.sources, to: to, stream: stream,
			keep: s.times(10), interval: 2 * time.Second, opening: s.every(time.Second / 3), requests: 3,
		}
		if err := load.start(ctx); err != nil {
			return soakCounts{failed: err}
		}
		<-ctx.Done()
		c := load.stop()
		return soakCounts{
			answered: c.Answered, lost: uint64(c.Lost) + c.Refused,
			figures: []measure.Figure{
				{Name: "new flows", Value: float64(c.Opened)},
				{Name: "new flows lost", Value: float64(c.Refused)},
				{Name: "established", Value: float64(c.Established)},
				{Name: "established lost", Value: float64(c.Lost)},
				{Name: "repeated", Value: float64(c.Repeated)},
			},
		}
	}
}

// coapBench is `weir coap bench` as a process. Its output is JSON.
func coapBench(binary, uri string, clients int, args ...string) *exec.Cmd {
	args = append([]string{"coap", "bench", uri, "--clients", strconv.Itoa(clients), "--workers", "1", "--allow-errors", "--json"}, args...)
	return exec.Command(binary, args...) //nolint:gosec // our own binary
}

// coapResult runs it in a namespace until it ends by itself, or is interrupted because ctx has ended.
func coapResult(ctx context.Context, running *programs.Group, host *netlab.Host, cmd *exec.Cmd) (stats v1.CoAPBenchStats, err error) {
	var out bytes.Buffer
	output := &programs.LastLines{}
	cmd.Stdout, cmd.Stderr = &out, output
	if err := running.Start(host, cmd); err != nil {
		return stats, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(os.Interrupt) }) // it may have ended
	err = cmd.Wait()
	stop()
	running.Forget(cmd)
	var result struct {
		Stats v1.CoAPBenchStats `json:"stats"`
	}
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &result)
	}
	if err != nil {
		return stats, fmt.Errorf("weir coap bench: %w%s", err, output.LastOutput())
	}
	return result.Stats, nil
}

// uri is what CoAP clients request. The answers are long enough to fill the nodes' stores of answers (16 MiB) in the first part
// of an hour.
func (s *soak) uri() string { return "coaps://" + s.network.coap.String() + "/benchmark?rlen=500" }

// moving is the load of clients with connection ids.
func (s *soak) moving(ctx context.Context) soakCounts {
	args := []string{"--requests", "1000000000", "--interval", "1s", "--rebind-every", "10s", "--no-stop", "--quiet"}
	for _, source := range s.network.sources {
		args = append(args, "--from", source.String())
	}
	stats, err := coapResult(ctx, s.Running, s.network.clients, coapBench(s.config.Binary, s.uri(), s.times(20), args...))
	return soakCounts{
		answered: stats.Requests, lost: stats.Lost + stats.Failed + stats.LostSessions + stats.Rehandshakes + stats.HandshakeErrors, failed: err,
		figures: []measure.Figure{
			{Name: "moves", Value: float64(stats.Rebinds)},
			{Name: "lost sessions", Value: float64(stats.LostSessions)},
			{Name: "re-handshakes", Value: float64(stats.Rehandshakes)},
			{Name: "requests lost", Value: float64(stats.Lost + stats.Failed)},
			{Name: "retransmissions", Value: float64(stats.Retransmissions)},
		},
	}
}

// repeatedly calls do at intervals until ctx has ended or do fails.
func repeatedly(ctx context.Context, every time.Duration, do func(round int) error) error {
	next := time.Now()
	for round := 0; ; round++ {
		if err := do(round); err != nil {
			return err
		}
		if next = next.Add(every); next.Before(time.Now()) {
			next = time.Now()
		}
		if programs.Sleep(ctx, time.Until(next)) != nil {
			return nil
		}
	}
}

// handshakes is the load of new DTLS clients: every second group vanishes and leaves its sessions behind.
func (s *soak) handshakes(ctx context.Context) soakCounts {
	var sum v1.CoAPBenchStats
	var vanished uint64
	const group = 8
	err := repeatedly(ctx, s.every(4*time.Second), func(round int) error {
		if round%2 == 0 {
			stats, err := coapResult(ctx, s.Running, s.network.clients, coapBench(s.config.Binary, s.uri(), group, "--requests", "2", "--interval", "100ms", "--quiet"))
			if ctx.Err() == nil { // else it was interrupted
				metrics.Add(&sum, &stats)
				return err
			}
			return nil
		}
		ready, err := s.vanish(ctx, coapBench(s.config.Binary, s.uri(), group, "--requests", "1000000", "--interval", "1s"))
		switch {
		case ctx.Err() != nil:
		case ready:
			vanished += group
		default:
			sum.HandshakeErrors += group
		}
		return err
	})
	return soakCounts{
		answered: sum.Handshakes + vanished, lost: sum.HandshakeErrors + sum.Lost + sum.Failed + sum.LostSessions, failed: err,
		figures: []measure.Figure{
			{Name: "handshakes", Value: float64(sum.Handshakes + vanished)},
			{Name: "handshakes failed", Value: float64(sum.HandshakeErrors)},
			{Name: "vanished", Value: float64(vanished)},
			{Name: "requests lost", Value: float64(sum.Lost + sum.Failed)},
		},
	}
}

const benchStarted = "Benchmark started."

// vanish starts clients and kills them once all of them have their sessions. It says whether they got them.
func (s *soak) vanish(ctx context.Context, cmd *exec.Cmd) (ready bool, err error) {
	progress, err := cmd.StderrPipe()
	if err != nil {
		return false, err
	}
	if err := s.Running.Start(s.network.clients, cmd); err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	for lines := bufio.NewScanner(progress); !ready && lines.Scan(); {
		ready = lines.Text() == benchStarted
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	s.Running.Forget(cmd)
	return ready, nil
}

// allocate starts clients of the TURN gateway, which relays to a sink in the servers' network.
func (s *soak) allocate(clients int) (*generator, error) {
	args := turnClients(s.network.turn, clients, netip.AddrPortFrom(s.network.sink, 0), s.network.server)
	return startGenerator(context.Background(), s.Running, s.network.clients, s.config.Binary, append(args, "--source", s.network.sources[0].String())...)
}

// turnClients are the arguments for clients of a TURN server, and a sink in a namespace; nil: in theirs.
func turnClients(server netip.AddrPort, clients int, sink netip.AddrPort, in *netlab.Host) []string {
	args := []string{
		"--server", server.String(), "--user", turnUser, "--password", turnPassword, "--clients", strconv.Itoa(clients), "--size", "200", "--sink", sink.String(),
	}
	if in != nil {
		args = append(args, "--sink-netns", in.NetNS())
	}
	return args
}

// turnCounts is what the reports of phases add up to. Of those that are lost, overflowed found the clients' and the sink's own sockets
// full, and late ones arrived after their phase was over.
type turnCounts struct{ sent, lost, refused, overflowed, late uint64 }

// turnSilence is how long a relayed datagram may be under way: on a busy machine no process runs for longer than a moment at times.
const turnSilence = 4 * time.Second

// send sends for a while and adds up the report. It lasts to its end.
func (c *turnCounts) send(t *generator, rate float64, d time.Duration) error {
	report, err := t.phase(context.Background(), trafficPhase{Rate: rate, Duration: d, Direction: DirectionUp, Silence: turnSilence})
	if err != nil {
		return err
	}
	for _, flow := range report.Up.Connections {
		c.sent += flow.Sent
		c.lost += flow.Lost
	}
	c.refused += uint64(len(report.Problems))
	c.overflowed += report.Overflowed
	c.late += report.Late
	return nil
}

const (
	figureDatagrams     = "datagrams"
	figureDatagramsLost = "datagrams lost"
)

func (c turnCounts) figures() []measure.Figure {
	return []measure.Figure{
		{Name: figureDatagrams, Value: float64(c.sent)},
		{Name: figureDatagramsLost, Value: float64(c.lost)},
		{Name: "found the generator's sockets full", Value: float64(c.overflowed)},
		{Name: "of these late", Value: float64(c.late)},
		{Name: "refused refreshes", Value: float64(c.refused)},
	}
}

// calls is the load of TURN clients that stay.
func (s *soak) calls(ctx context.Context) soakCounts {
	t, err := s.allocate(s.times(5))
	if err != nil {
		return soakCounts{failed: err}
	}
	var sum turnCounts
	for ctx.Err() == nil && err == nil {
		err = sum.send(t, 20*s.config.Load, 2*time.Second)
	}
	t.end(false)
	return soakCounts{answered: sum.sent - sum.lost, lost: sum.lost + sum.refused, failed: err, figures: sum.figures()}
}

// turnChurn is the load of new TURN clients: every second group abandons its allocations.
func (s *soak) turnChurn(ctx context.Context) soakCounts {
	const group = 3
	var sum turnCounts
	var opened, failed, met uint64
	err := repeatedly(ctx, s.every(6*time.Second), func(round int) error {
		t, err := s.allocate(group)
		switch {
		case err == nil:
		case strings.Contains(err.Error(), "437 "): // a port whose last client has abandoned an allocation that still lives (RFC 8656 section 7.2)
			met += group
			return nil
		default:
			failed += group
			return nil
		}
		opened += group
		err = sum.send(t, 30, time.Second)
		t.end(round%2 == 1)
		return err
	})
	return soakCounts{
		answered: sum.sent - sum.lost, lost: sum.lost + sum.refused + failed, failed: err,
		figures: append(sum.figures(), measure.Figure{Name: "allocations", Value: float64(opened)}, measure.Figure{Name: "allocations refused", Value: float64(failed)},
			measure.Figure{Name: "met an abandoned one (437)", Value: float64(met)}),
	}
}
