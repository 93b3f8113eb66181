package scalebench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// peerFigures are what was read during a run.
type peerFigures struct {
	connections, processes int
	held, lost, accepted   int
	most                   int // were established at once, also of a run that failed later
	establish, span        time.Duration
	kernel                 float64 // bytes since before the first program
	servers, clients       usage   // memory at the end, processor time of the hold
	segments, data         float64 // a second; data: those with bytes, sent for the first time
}

// usage is of all processes of one end, in bytes and seconds.
type usage struct{ bytes, cpu float64 }

const (
	peerLook         = 10 * time.Millisecond
	peerStallTimeout = 20 * time.Second // without growth: it opens no more
	peerStart        = 90 * time.Second // until all listen, until the first connection
	peerPause        = 2 * time.Second
)

// run is one run. After an error too it says how many were established.
func (s *peerStage) run(ctx context.Context, p *peer, hold time.Duration) (*peerFigures, error) {
	f := &peerFigures{connections: s.connections, processes: s.processes}
	if err := s.calm(ctx); err != nil {
		return f, err
	}
	f.kernel = -slab()
	cmds, err := p.servers(s)
	if err != nil {
		return f, err
	}
	if err := s.startAll(cmds); err != nil {
		return f, err
	}
	servers, proc := s.pids(), fmt.Sprintf("/proc/%d/net/", s.cmds[0].cmd.Process.Pid)
	err = s.wait(ctx, peerStart, func() bool { return listening(proc) >= s.processes })
	if err != nil {
		return f, fmt.Errorf("%s does not listen: %w", p.server, err)
	}
	if cmds, err = p.clients(s); err != nil {
		return f, err
	}
	before := len(s.cmds) // with helpers of the clients, which belong to neither end
	if err := s.startAll(cmds); err != nil {
		return f, err
	}
	clients := s.pids()[before:]
	established := func() int { return max(0, int(counter(proc+"snmp", "CurrEstab"))-p.extra*len(cmds)) / 2 }
	if err := s.establish(ctx, f, established); err != nil {
		return f, err
	}
	if err := s.pause(ctx, peerPause); err != nil {
		return f, err
	}
	return f, s.hold(ctx, f, hold, proc, established, withChildren(servers), withChildren(clients))
}

// slab is the kernel's unreclaimable memory in bytes.
func slab() float64 { return procstat.Field("/proc/meminfo", "SUnreclaim:", 1) * 1024 }

// calm waits until the kernel has freed what the run before had, which it does after the last process has gone.
func (s *peerStage) calm(ctx context.Context) error {
	for last := slab(); ; {
		if err := s.pause(ctx, time.Second); err != nil {
			return err
		}
		now := slab()
		if last-now < calmBytes {
			return nil
		}
		last = now
	}
}

// calmBytes a second are too few for a run's sockets.
const calmBytes = 4 << 20

// establish waits until all are established, or until no more come.
func (s *peerStage) establish(ctx context.Context, f *peerFigures, established func() int) error {
	if err := s.wait(ctx, peerStart, func() bool { return established() > 0 }); err != nil {
		return fmt.Errorf("no connection: %w", err)
	}
	begun := time.Now()
	grown, lastOutput := begun, begun
	err := s.wait(ctx, time.Hour, func() bool {
		now, n := time.Now(), established()
		if n > f.most {
			f.most, grown = n, now
		}
		if now.Sub(lastOutput) > 2*time.Second {
			lastOutput = now
			s.progress("  %d established", n)
		}
		return n >= s.connections || now.Sub(grown) > peerStallTimeout
	})
	if f.most >= s.connections {
		f.establish = time.Since(begun)
	}
	return err
}

// hold reads at both ends of the hold.
func (s *peerStage) hold(ctx context.Context, f *peerFigures, hold time.Duration, proc string, established func() int, servers, clients []int) error {
	f.accepted = sockets(servers)
	held, opened, segments, data := established(), counter(proc+"snmp", "ActiveOpens"), counter(proc+"snmp", "OutSegs"), counter(proc+"netstat", "TCPOrigDataSent")
	begun := time.Now()
	before, err := usageOf(servers, clients)
	if err != nil {
		return err
	}
	if err := s.pause(ctx, hold); err != nil {
		return err
	}
	after, err := usageOf(servers, clients)
	if err != nil {
		return err
	}
	f.span = time.Since(begun)
	f.segments = (counter(proc+"snmp", "OutSegs") - segments) / f.span.Seconds()
	f.data = (counter(proc+"netstat", "TCPOrigDataSent") - data) / f.span.Seconds()
	f.held = established()
	f.lost = int(counter(proc+"snmp", "ActiveOpens")-opened) + max(0, held-f.held)
	f.kernel += slab() + procstat.Field(proc+"sockstat", "TCP:", 10)*float64(os.Getpagesize())
	for i, end := range []*usage{&f.servers, &f.clients} {
		*end = usage{bytes: after[i].bytes, cpu: after[i].cpu - before[i].cpu}
	}
	return nil
}

// run is the figures for each connection: what this run took more than one of the same processes that hold next to none.
func (f *peerFigures) run(p *peer, floor *peerFigures) PeerRun {
	n := float64(max(f.held-floor.held, 1))
	share := func(full, floor float64) float64 { return (full - floor) / n }
	percent := func(u usage) float64 { return 100 * u.cpu / f.span.Seconds() }
	return PeerRun{
		Program: p.name, Server: p.server, Processes: f.processes, Held: f.held, Accepted: f.accepted - floor.accepted + floor.held, Lost: f.lost,
		EstablishSeconds: f.establish.Seconds(), HoldSeconds: f.span.Seconds(), KernelBytes: growth(share(f.kernel, floor.kernel)),
		ServerBytes: share(f.servers.bytes, floor.servers.bytes), ClientBytes: share(f.clients.bytes, floor.clients.bytes),
		UserBytes: f.servers.bytes + f.clients.bytes, ServerCPU: percent(f.servers), ClientCPU: percent(f.clients), Segments: f.segments,
		DataSegments: f.data, DataCPU: perData(percent(f.servers)+percent(f.clients), f.data),
	}
}

// perData is the processor time of a segment in microseconds, 0 where there was next to none.
func perData(percent, segments float64) float64 {
	if segments < 1 {
		return 0
	}
	return percent * 1e4 / segments
}

// usageOf is what each end's processes have and have spent.
func usageOf(ends ...[]int) (all []usage, err error) {
	for _, pids := range ends {
		var sum usage
		for _, pid := range pids {
			u, err := procstat.Of(pid)
			if err != nil {
				return nil, err
			}
			sum.bytes += float64(u.OwnBytes)
			sum.cpu += u.CPU.Seconds()
		}
		all = append(all, sum)
	}
	return all, nil
}

// withChildren is the processes with all their descendants.
func withChildren(pids []int) []int {
	all := slices.Clone(pids)
	for _, pid := range pids {
		all = append(all, procstat.Descendants(pid)...)
	}
	return all
}

// sockets counts open descriptors.
func sockets(pids []int) (n int) {
	for _, pid := range pids {
		if dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			names, _ := dir.Readdirnames(-1) // what there is
			n += len(names)
			dir.Close()
		}
	}
	return n
}

// listening counts TCP sockets of a namespace in which no one has connected yet.
func listening(proc string) int {
	return int(procstat.Field(proc+"sockstat", "TCP:", 2) + procstat.Field(proc+"sockstat6", "TCP6:", 2))
}

// counter is one of TCP's counters in a /proc/PID/net/snmp (RFC 4022) or netstat (Linux); 0 where it is not to be had.
func counter(file, name string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	var names []string
	for _, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Tcp:" && words[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i := range min(len(names), len(words)) {
			if names[i] == name {
				value, _ := strconv.ParseFloat(words[i], 64) // the kernel's digits
				return value
			}
		}
	}
	return 0
}
