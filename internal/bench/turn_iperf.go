package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// turnIperf is iperf 2: a server for all the paths, and a client for each connection of a load.
type turnIperf struct {
	at      netip.AddrPort
	server  *exec.Cmd // nil: it runs elsewhere
	output  *programs.LastLines
	last    time.Time                   // when the last load ended
	sources map[string][]netip.AddrPort // source ports of a path's clients: a turncat keeps the allocation of an address
}

const (
	iperfWarm  = 500 * time.Millisecond
	iperfGrace = 15 * time.Second // for a client to receive the report of its server
	// iperfPause is how long a server may still send a client its report: one that comes meanwhile is mistaken for it, or
	// never read from.
	iperfPause = 600 * time.Millisecond
	// iperfStagger lies between the starts of two clients.
	iperfStagger = 10 * time.Millisecond
	iperfTries   = 3
)

// startIperf starts the server.
func (s *turnStage) startIperf(ctx context.Context) (*turnIperf, error) {
	ports, err := freePorts(s.sinks, 1)
	if err != nil {
		return nil, err
	}
	i := &turnIperf{at: netip.AddrPortFrom(s.sinkAddr, ports[0].Port()), output: &programs.LastLines{}, sources: map[string][]netip.AddrPort{}}
	i.server = exec.Command("iperf", "-s", "-u", "-e", "-B", i.at.Addr().String(), "-p", strconv.Itoa(int(i.at.Port()))) //nolint:gosec // numbers of ours
	i.server.Stdout, i.server.Stderr = i.output, i.output
	if err := s.Running.Start(s.sinks, i.server); err != nil {
		return nil, err
	}
	return i, i.listening(ctx)
}

// listening waits for the server's first lines.
func (i *turnIperf) listening(ctx context.Context) error {
	return until(ctx, iperfGrace, func() error {
		if strings.Contains(i.output.LastOutput(), "listening on UDP port") {
			return nil
		}
		return errors.New("iperf server does not start" + i.output.LastOutput())
	})
}

// warm runs a short load: the first datagrams make the allocations.
func (i *turnIperf) warm(ctx context.Context, s *turnStage, path *turnPath) error {
	ports, err := freePorts(s.clients, s.config.Clients)
	if err != nil {
		return err
	}
	i.sources[path.name] = ports
	_, err = i.run(ctx, s, path, turnLoad{rate: 200 * float64(s.config.Clients), size: s.config.size(), duration: iperfWarm})
	return err
}

// run is try until the server's reports came back: now and then iperf's listener mixes up clients that begin in the same
// moment, and answers neither.
func (i *turnIperf) run(ctx context.Context, s *turnStage, path *turnPath, load turnLoad) (phase turnPhase, err error) {
	for range iperfTries {
		if phase, err = i.try(ctx, s, path, load); !errors.Is(err, errNoReport) {
			break
		}
	}
	return phase, err
}

// try starts a client for each connection, waits for all, and reads what the server sent each of them.
func (i *turnIperf) try(ctx context.Context, s *turnStage, path *turnPath, load turnLoad) (phase turnPhase, err error) {
	phase.load = load
	if err := programs.Sleep(ctx, time.Until(i.last.Add(iperfPause))); err != nil {
		return phase, err
	}
	defer func() { i.last = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, load.duration+iperfGrace)
	defer cancel()
	before, err := i.spent()
	if err != nil {
		return phase, err
	}
	clients := make([]iperfClient, s.config.Clients)
	for k := range clients {
		to := i.at
		if len(path.to) > 0 {
			to = path.to[k]
		}
		c := &clients[k]
		c.cmd = exec.Command("iperf", "-c", to.Addr().String(), "-u", "-e", "-p", strconv.Itoa(int(to.Port())), //nolint:gosec // numbers of ours
			"-B", fmt.Sprintf("%s:%d", s.source, i.sources[path.name][k].Port()), "-t", strconv.FormatFloat(load.duration.Seconds(), 'f', 1, 64),
			"-l", strconv.Itoa(load.size), "-b", strconv.FormatFloat(load.rate/float64(len(clients))*float64(load.size)*8, 'f', 0, 64))
		c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
		if err := s.Running.Start(s.clients, c.cmd); err != nil {
			return phase, err
		}
		if err := programs.Sleep(ctx, iperfStagger); err != nil {
			return phase, err
		}
	}
	var spent time.Duration
	for k := range clients {
		cpu, err := clients[k].wait(ctx, s)
		if err != nil {
			return phase, fmt.Errorf("iperf client %d: %w\niperf server%s%s", k+1, err, i.output.LastOutput(), s.lastOutput())
		}
		spent += cpu
		row, err := clients[k].row()
		if err != nil {
			return phase, fmt.Errorf("iperf client %d: %w\niperf server%s%s", k+1, err, i.output.LastOutput(), s.lastOutput())
		}
		row.ID = k + 1
		phase.rows = append(phase.rows, row)
	}
	phase.sum = turnSum(phase.rows)
	after, err := i.spent()
	if err != nil {
		return phase, err
	}
	phase.processes = []measure.Process{{Name: "iperf clients", CPU: spent}}
	if i.server != nil {
		phase.processes = append(phase.processes, measure.Process{Name: "iperf server", CPU: after - before})
	}
	return phase, nil
}

// spent is the processor time of the server; 0 if it runs elsewhere.
func (i *turnIperf) spent() (time.Duration, error) {
	if i.server == nil {
		return 0, nil
	}
	cpu, err := procstat.CPU(i.server.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("iperf server has ended%s", i.output.LastOutput())
	}
	return cpu, nil
}

// iperfClient is one connection.
type iperfClient struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// wait waits for its end and returns what it spent.
func (c *iperfClient) wait(ctx context.Context, s *turnStage) (time.Duration, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() }) // it may have ended
	defer stop()
	err := c.cmd.Wait()
	s.Running.Forget(c.cmd)
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%w: %s", ctx.Err(), strings.TrimSpace(c.out.String()))
	case err != nil:
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(c.out.String()))
	}
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime(), nil
}

var errNoReport = errors.New("the server's report did not come back")

// row is the server's report, which a client prints last.
func (c *iperfClient) row() (v1.TurnBenchConnection, error) {
	_, report, ok := strings.Cut(c.out.String(), "Server Report:")
	if !ok {
		return v1.TurnBenchConnection{}, fmt.Errorf("%w: %s", errNoReport, strings.TrimSpace(c.out.String()))
	}
	rows, err := parseIperfRows(strings.NewReader(report))
	if err != nil {
		return v1.TurnBenchConnection{}, err
	}
	if len(rows) != 1 {
		return v1.TurnBenchConnection{}, fmt.Errorf("%d rows in the server's report: %s", len(rows), strings.TrimSpace(report))
	}
	return rows[0], nil
}
