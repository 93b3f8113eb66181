package load

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/pace"
	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// catchUp is how much of a delay a sender compensates for. More would test the queues and not the rate.
	catchUp = 10 * time.Millisecond
	// defaultSilence is the time without arrivals after which all datagrams in transit count as lost.
	defaultSilence = 300 * time.Millisecond
	maxSilence     = time.Minute
	// drainTimeout is the maximum wait for datagrams in transit, in addition to that silence.
	drainTimeout = 5 * time.Second
)

// sent counts what was sent, for each connection.
type sent struct{ taken, refused []uint64 }

// batch returns messages with space for the header of ChannelData.
func (l *Load) batch(n int) []udpio.Message {
	return udpio.NewMessages(n, requests.ChannelHeader+l.config.Size)
}

// fill writes datagrams with consecutive sequence numbers; those of a client begin with the ChannelData header.
func (l *Load) fill(messages []udpio.Message, h header, size int, fromClient bool) {
	for i := range messages {
		m := &messages[i]
		body := m.Buf[:size]
		m.N = size
		if fromClient && l.config.Server.IsValid() {
			requests.PutChannelHeader(m.Buf, size)
			body, m.N = m.Buf[requests.ChannelHeader:requests.ChannelHeader+size], requests.ChannelHeader+size
		}
		h.put(body)
		h.sequence++
	}
}

// Run sends for a phase, waits for datagrams in transit, and reports.
func (l *Load) Run(ctx context.Context, phase Phase) (*Report, error) {
	if l.sink == nil && phase.Direction != Echo {
		return nil, fmt.Errorf("the far end %v is an echo: the only direction is Echo", l.config.Peer)
	}
	if phase.Size == 0 {
		phase.Size = l.config.Size
	}
	if phase.Size < HeaderSize || phase.Size > l.config.Size {
		return nil, fmt.Errorf("datagrams of %d bytes: want %d to the load's %d", phase.Size, HeaderSize, l.config.Size)
	}
	if phase.Silence < 0 || phase.Silence > maxSilence {
		return nil, fmt.Errorf("silence of %v: want at most %v", phase.Silence, maxSilence)
	}
	if phase.Rate < 0 || phase.Duration < 0 || phase.Direction > Echo {
		return nil, fmt.Errorf("phase of %v datagrams/s for %v, direction %d: want none below 0", phase.Rate, phase.Duration, phase.Direction)
	}
	l.runs++
	begin := l.now()
	r := newRun(l.runs, phase, l.config.Clients, begin)
	overflowed := l.overflowed()
	l.run.Store(r)
	up, down := newSent(l.config.Clients), newSent(l.config.Clients)
	err := l.send(ctx, phase, r.id, &up, &down)
	end := l.now()
	if err == nil {
		err = l.drain(ctx, r, phase, total(up.taken), total(down.taken), end)
	}
	l.run.Store(nil)
	var problems []string
	lost := l.do(func(time.Time) { problems = l.problems() }) // afterwards the receiver no longer uses r
	if lost != nil {
		return nil, lost
	}
	if err != nil {
		return nil, err
	}
	report := &Report{
		Rate: phase.Rate, Elapsed: time.Duration(end - begin), Halved: l.sink == nil, LastReceived: time.Duration(r.last.Load() - begin),
		Overflowed: l.overflowed() - overflowed, Late: l.late.Load() - l.reportedLate, Problems: problems,
	}
	l.reportedLate += report.Late
	l.report(report, r, &up, &down, end)
	return report, nil
}

func newSent(clients int) sent {
	return sent{taken: make([]uint64, clients), refused: make([]uint64, clients)}
}

// send is the sender: one paced thread.
func (l *Load) send(ctx context.Context, phase Phase, id uint64, up, down *sent) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)   // ns; without it a pause is 50 us longer
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) //nolint:errcheck // back to the default
	messages := l.batch(l.config.Burst)
	begin, pacer := l.now(), pace.Pacer{Rate: phase.Rate, Debt: catchUp}
	sequences := make([]uint64, l.config.Clients)
	for iteration := 0; ; iteration++ {
		elapsed := time.Duration(l.now() - begin)
		if phase.Duration > 0 && elapsed >= phase.Duration || phase.Count > 0 && uint64(iteration)*uint64(len(messages)) >= phase.Count {
			return ctx.Err()
		}
		if ctx.Err() != nil {
			if phase.Duration == 0 {
				return nil // the requested end
			}
			return ctx.Err()
		}
		if _, wait := pacer.Take(elapsed, len(messages), len(messages)); wait > 0 {
			pause := unix.NsecToTimespec(int64(min(wait, catchUp)))
			_ = unix.Nanosleep(&pause, nil) // after an early return the clock is read again
			iteration--
			continue
		}
		i := iteration % len(l.clients)
		h := header{conn: uint16(i), run: id, sequence: sequences[i]}
		sequences[i] += uint64(len(messages))
		if phase.Direction != Down {
			h.sent = l.now()
			l.fill(messages, h, phase.Size, true)
			up.add(i, l.clients[i].link.send(messages), len(messages))
		}
		if phase.Direction == Down || phase.Direction == Both {
			h.flags, h.sent = flagDown, l.now()
			l.fill(messages, h, phase.Size, false)
			address(messages, *l.from[i].Load())
			down.add(i, l.sink.WriteAll(messages), len(messages))
		}
	}
}

func address(messages []udpio.Message, to netip.AddrPort) {
	for i := range messages {
		messages[i].Addr = to
	}
}

func (s *sent) add(i, taken, all int) {
	s.taken[i] += uint64(taken)
	s.refused[i] += uint64(all - taken)
}

// drain waits until everything has arrived or nothing more arrives.
func (l *Load) drain(ctx context.Context, r *run, phase Phase, up, down uint64, end int64) error {
	if phase.Direction == Echo {
		down = up
	}
	if l.sink == nil {
		up = 0
	}
	if phase.Duration == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	silence := cmp.Or(phase.Silence, defaultSilence)
	for {
		now := l.now()
		if r.upCount.Load() >= up && r.downCount.Load() >= down || now-max(r.last.Load(), end) > int64(silence) || now-end > int64(drainTimeout+silence) {
			return nil
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func total(list []uint64) (sum uint64) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// overflowed returns how many datagrams found our own sockets full; the server did not lose them.
func (l *Load) overflowed() (sum uint64) {
	if l.sinks != nil {
		sum = l.sinks.Overflowed()
	}
	for _, c := range l.clients {
		sum += c.link.overflowed()
	}
	return sum
}

// report fills in the report of the connections.
func (l *Load) report(report *Report, r *run, up, down *sent, end int64) {
	echo, ended := r.direction == Echo, max(report.Elapsed, report.LastReceived)
	if l.sink != nil && r.direction != Down {
		report.Up = l.flow(r.up, up, end)
		setLatency(&report.Up, r.upLatency, ended)
	}
	if r.direction != Up {
		if echo {
			down = up
		}
		report.Down = l.flow(r.down, down, end)
		setLatency(&report.Down, r.downLatency, ended)
	}
}

// setLatency takes the latency of a direction over time and in all.
func setLatency(flow *Flow, t *measure.Timeline, ended time.Duration) {
	var samples []measure.Sample
	samples, flow.Latency = t.End(ended)
	flow.Samples = measure.SamplesForm(samples)
}

// problems belongs to the receiver.
func (l *Load) problems() (list []string) {
	for _, c := range l.clients {
		if c.err != nil {
			list = append(list, c.err.Error())
		}
	}
	return list
}

func (l *Load) flow(trackers []tracker, s *sent, end int64) Flow {
	var flow Flow
	for i := range trackers {
		c := trackers[i].connection(s.taken[i], s.refused[i], end)
		c.ID, c.Client, c.Relay = i, l.clients[i].link.local(), l.clients[i].relay
		flow.Connections = append(flow.Connections, c)
	}
	flow.Sum = sumOf(flow.Connections)
	return flow
}
