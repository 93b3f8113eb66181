package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
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
	rows       []TurnRow
	sum        TurnRow
	latency    *measure.Latency // nil with iperf
	overflowed uint64           // at the sink: not the server's loss
	processes  []measure.Process
	machine    procstat.Machine // what all of it took
	window     time.Duration    // between the two readings of machine: the load, its start and its end
}

// shortfall is the share of what was asked for that did not arrive, what the generator could not send included.
func (p *turnPhase) shortfall() float64 {
	asked := p.load.rate * p.load.duration.Seconds()
	received := float64(p.sum.Total - min(p.sum.Lost, p.sum.Total))
	sent := float64(p.sum.Total)
	if sent < 0.97*asked { // a sender that was held up for a moment is no loss
		return 1 - received/asked
	}
	return p.sum.Loss()
}

// turnTraffic is the built-in generator and sink as a process.
type turnTraffic struct {
	direction string
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Reader
	log       programs.LastLines
}

// flowReport and trafficReport are the JSON of `weir bench traffic turn`.
type trafficReport struct {
	Up         flowReport `json:"up"`
	Down       flowReport `json:"down"`
	Overflowed uint64     `json:"overflowed"`
	Late       uint64     `json:"late"`
	Problems   []string   `json:"problems"`
}

type flowReport struct {
	Connections []connectionReport `json:"connections"`
	Latency     *measure.Latency   `json:"latency"`
}

type connectionReport struct {
	ID        int           `json:"id"`
	Sent      uint64        `json:"sent"`
	Received  uint64        `json:"received"`
	Lost      uint64        `json:"lost"`
	Reordered uint64        `json:"reordered"`
	Damaged   uint64        `json:"damaged"`
	Bytes     uint64        `json:"bytes"`
	Elapsed   time.Duration `json:"elapsed_ns"`
	Jitter    time.Duration `json:"jitter_ns"`
	Latency   struct {
		Count uint64        `json:"count"`
		Mean  time.Duration `json:"mean_ns"`
		Min   time.Duration `json:"min_ns"`
		Max   time.Duration `json:"max_ns"`
		Stdev time.Duration `json:"stdev_ns"`
	} `json:"latency"`
}

// startTraffic starts the generator for a road; it has one allocation for each client when it returns.
func (s *turnStage) startTraffic(ctx context.Context, road *turnRoad) error {
	args := []string{
		"bench", "traffic", "turn", "--sink", road.sink.String(), "--source", s.source.String(),
		"--clients", strconv.Itoa(s.config.Clients), "--size", strconv.Itoa(s.config.size()), "--burst", strconv.Itoa(s.config.burst()),
	}
	if road.server.IsValid() {
		args = append(args, "--server", road.server.String(), "--user", turnUser, "--password", turnPassword)
		if s.config.Transport == TransportTCP {
			args = append(args, "--tcp")
		}
	}
	for _, to := range road.to {
		args = append(args, "--to", to.String())
	}
	if s.far != s.clients {
		args = append(args, "--sink-netns", s.far.NetNS())
	}
	if !s.config.segment() {
		args = append(args, "--no-segment")
	}
	t := &turnTraffic{direction: s.config.Direction, cmd: exec.Command(s.config.Binary, args...)} //nolint:gosec // our own binary
	t.cmd.Stderr = &t.log
	in, err := t.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	t.in, t.out = in, bufio.NewReader(out)
	if err := s.running.Start(s.clients, t.cmd); err != nil {
		return err
	}
	var ready struct {
		Sink netip.AddrPort `json:"sink"`
	}
	if err := t.read(ctx, &ready); err != nil {
		t.stop()
		s.running.Forget(t.cmd)
		return fmt.Errorf("%w%s", err, s.said())
	}
	road.traffic = t
	return nil
}

// stop ends the generator, which gives its allocations back.
func (t *turnTraffic) stop() {
	_ = t.in.Close() // that is what it waits for
	ended := time.AfterFunc(5*time.Second, func() { _ = t.cmd.Process.Kill() })
	_ = t.cmd.Wait() // how it ends is of no interest any more
	ended.Stop()
}

// read waits for one line of the generator's.
func (t *turnTraffic) read(ctx context.Context, into any) error {
	stop := context.AfterFunc(ctx, func() { _ = t.cmd.Process.Kill() })
	defer stop()
	line, err := t.out.ReadBytes('\n')
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("generator ended%s", t.log.Said())
	}
	return json.Unmarshal(line, into)
}

// runBuiltin runs one load.
func (t *turnTraffic) runBuiltin(ctx context.Context, load turnLoad) (phase turnPhase, err error) {
	phase.load = load
	command, err := json.Marshal(map[string]any{"rate": load.rate, "duration_ns": load.duration, "size": load.size, "direction": t.direction})
	if err != nil {
		return phase, err
	}
	if _, err := t.in.Write(append(command, '\n')); err != nil {
		return phase, fmt.Errorf("generator ended: %w%s", err, t.log.Said())
	}
	var report trafficReport
	if err := t.read(ctx, &report); err != nil {
		return phase, err
	}
	if len(report.Problems) > 0 {
		return phase, errors.New(report.Problems[0])
	}
	flow := &report.Up
	if t.direction == DirectionDown {
		flow = &report.Down
	}
	for _, c := range flow.Connections {
		if c.Damaged > 0 {
			return phase, fmt.Errorf("%d datagrams of connection %d arrived damaged", c.Damaged, c.ID)
		}
		phase.rows = append(phase.rows, c.row())
	}
	phase.sum, phase.latency, phase.overflowed = turnSum(phase.rows), flow.Latency, report.Overflowed
	return phase, nil
}

func (c *connectionReport) row() TurnRow {
	row := TurnRow{ID: c.ID + 1, Seconds: c.Elapsed.Seconds(), Bytes: float64(c.Bytes), Jitter: measure.Millis(c.Jitter), Lost: c.Lost, Total: c.Sent, Reordered: c.Reordered}
	if row.Seconds > 0 {
		row.Bandwidth, row.Rate = row.Bytes*8/row.Seconds, float64(c.Received)/row.Seconds
	}
	if c.Latency.Count > 0 {
		row.Latency = true
		row.Average, row.Least = measure.Millis(c.Latency.Mean), measure.Millis(c.Latency.Min)
		row.Most, row.Stdev = measure.Millis(c.Latency.Max), measure.Millis(c.Latency.Stdev)
	}
	return row
}

// warm opens the road: allocations, neighbours, caches.
func (s *turnStage) warm(ctx context.Context, road *turnRoad) error {
	if road.warmed {
		return nil
	}
	road.warmed = true
	if s.iperf != nil {
		return s.iperf.warm(ctx, s, road)
	}
	if err := s.startTraffic(ctx, road); err != nil {
		return err
	}
	_, err := road.traffic.runBuiltin(ctx, turnLoad{rate: 2000, size: minTurnSize, duration: 200 * time.Millisecond})
	return err
}

// run runs one load over a road, and notes what everybody spent on it.
func (s *turnStage) run(ctx context.Context, road *turnRoad, load turnLoad) (phase turnPhase, err error) {
	before, err := s.spent(road)
	if err != nil {
		return phase, err
	}
	machine, err := s.running.Machine()
	if err != nil {
		return phase, err
	}
	started := time.Now()
	if s.iperf != nil {
		phase, err = s.iperf.run(ctx, s, road, load)
	} else {
		phase, err = road.traffic.runBuiltin(ctx, load)
	}
	if err != nil {
		return phase, err
	}
	after, err := s.spent(road)
	if err != nil {
		return phase, err
	}
	now, err := s.running.Machine()
	if err != nil {
		return phase, err
	}
	phase.window = time.Since(started)
	for i := range after {
		after[i].CPU -= before[i].CPU
	}
	phase.processes = append(after, phase.processes...)
	phase.machine = procstat.Machine{Busy: now.Busy - machine.Busy, Stolen: now.Stolen - machine.Stolen, Others: now.Others - machine.Others, Ours: now.Ours - machine.Ours}
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
