package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// turnLoad is one load of all the clients.
type turnLoad struct {
	rate     float64 // datagrams a second of all of them
	size     int     // bytes
	duration time.Duration
}

// turnPhase is what a load came to.
type turnPhase struct {
	load       turnLoad
	rows       []v1.TurnBenchConnection
	sum        v1.TurnBenchConnection
	latency    *measure.Latency // nil with iperf
	samples    []measure.Sample // of each second; none with iperf
	overflowed uint64           // at the sink: not the server's loss
	processes  []measure.Process
	machine    procstat.Machine // what all of it took
	window     time.Duration    // between the two readings of machine: the load, its start and its end
}

// shortfall is the share of what was requested that did not arrive, what the generator could not send included.
func (p *turnPhase) shortfall() float64 {
	offered := p.load.rate * p.load.duration.Seconds()
	received := float64(p.sum.Total - min(p.sum.Lost, p.sum.Total))
	sent := float64(p.sum.Total)
	if sent < 0.97*offered { // a sender that was held up for a moment is no loss
		return 1 - received/offered
	}
	return turnLoss(&p.sum)
}

// startTraffic starts the generator for a path; it has one allocation for each client when it returns.
func (s *turnStage) startTraffic(ctx context.Context, path *turnPath) error {
	args := []string{
		"--sink", path.sink.String(), "--source", s.source.String(),
		"--clients", strconv.Itoa(s.config.Clients), "--size", strconv.Itoa(s.config.size()), "--burst", strconv.Itoa(s.config.burst()),
	}
	if path.server.IsValid() {
		args = append(args, "--server", path.server.String(), "--user", turnUser, "--password", turnPassword)
		if s.config.Transport == TransportTCP {
			args = append(args, "--tcp")
		}
		if s.config.Transport == TransportDTLS {
			args = append(args, "--dtls")
		}
	}
	for _, to := range path.to {
		args = append(args, "--to", to.String())
	}
	if s.sinks != s.clients {
		args = append(args, "--sink-netns", s.sinks.NetNS())
	}
	if !s.config.segment() {
		args = append(args, "--no-segment")
	}
	var err error
	path.traffic, err = startGenerator(ctx, s.Running, s.clients, s.config.Binary, args...)
	if err != nil {
		return fmt.Errorf("%w%s", err, s.lastOutput())
	}
	return nil
}

// runBuiltin runs one load by the generator of a path.
func (s *turnStage) runBuiltin(ctx context.Context, path *turnPath, load turnLoad) (phase turnPhase, err error) {
	phase.load = load
	report, err := path.traffic.phase(ctx, trafficPhase{Rate: load.rate, Duration: load.duration, Size: load.size, Direction: s.config.Direction})
	if err != nil {
		return phase, err
	}
	if len(report.Problems) > 0 {
		return phase, errors.New(report.Problems[0])
	}
	flow := &report.Up
	if s.config.Direction == DirectionDown {
		flow = &report.Down
	}
	for _, c := range flow.Connections {
		if c.Damaged > 0 {
			return phase, fmt.Errorf("%d datagrams of connection %d arrived damaged", c.Damaged, c.ID)
		}
		phase.rows = append(phase.rows, turnRowOf(&c))
	}
	phase.sum, phase.latency, phase.overflowed = turnSum(phase.rows), flow.Latency, report.Overflowed
	phase.samples = measure.SamplesOf(flow.Samples)
	return phase, nil
}

func turnRowOf(c *v1.TurnLoadConnection) v1.TurnBenchConnection {
	row := v1.TurnBenchConnection{ID: c.ID + 1, Seconds: c.Elapsed.Seconds(), Bytes: float64(c.Bytes), Jitter: measure.Millis(c.Jitter), Lost: c.Lost, Total: c.Sent, Reordered: c.Reordered}
	if row.Seconds > 0 {
		row.Bandwidth, row.Rate = row.Bytes*8/row.Seconds, float64(c.Received)/row.Seconds
	}
	if c.Latency.Count > 0 {
		row.Latency = true
		row.Average, row.Min = measure.Millis(c.Latency.Mean), measure.Millis(c.Latency.Min)
		row.Max, row.Stdev = measure.Millis(c.Latency.Max), measure.Millis(c.Latency.Stdev)
	}
	return row
}

// warm opens the path: allocations, neighbours, caches.
func (s *turnStage) warm(ctx context.Context, path *turnPath) error {
	if path.warmed {
		return nil
	}
	path.warmed = true
	if s.iperf != nil {
		return s.iperf.warm(ctx, s, path)
	}
	if err := s.startTraffic(ctx, path); err != nil {
		return err
	}
	_, err := s.runBuiltin(ctx, path, turnLoad{rate: 2000, size: minTurnSize, duration: 200 * time.Millisecond})
	return err
}

// run runs one load over a path, and notes what everybody spent on it.
func (s *turnStage) run(ctx context.Context, path *turnPath, load turnLoad) (phase turnPhase, err error) {
	before, err := s.spent(path)
	if err != nil {
		return phase, err
	}
	machine, err := s.Running.Machine()
	if err != nil {
		return phase, err
	}
	started := time.Now()
	if s.iperf != nil {
		phase, err = s.iperf.run(ctx, s, path, load)
	} else {
		phase, err = s.runBuiltin(ctx, path, load)
	}
	if err != nil {
		return phase, err
	}
	after, err := s.spent(path)
	if err != nil {
		return phase, err
	}
	now, err := s.Running.Machine()
	if err != nil {
		return phase, err
	}
	phase.window = time.Since(started)
	for i := range after {
		after[i].CPU -= before[i].CPU
	}
	phase.processes = append(after, phase.processes...)
	phase.machine = metrics.Since(&now, &machine)
	return phase, nil
}

// bindingRequest asks a server for our address and waits a moment for its answer.
func bindingRequest(at netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := []byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 'w', 'e', 'i', 'r', ' ', 'b', 'e', 'n', 'c', 'h', 0, 0}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1500))
	return err
}
