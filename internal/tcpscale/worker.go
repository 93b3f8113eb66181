package tcpscale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/lab/procstat"
)

// Operations of a [Command].
const (
	OpRamp  = "ramp"  // client: begin, or go on with another rate
	OpDrain = "drain" // server: accept no more, send everybody away, end
	OpMark  = "mark"  // client: from now on, count what becomes of connections under a name
	OpStop  = "stop"  // report once more and end
)

// Command is a line from the parent to its worker.
type Command struct {
	Op   string  `json:"op"`
	Rate float64 `json:"rate,omitempty"` // of OpRamp
	Name string  `json:"name,omitempty"` // of OpMark
}

// WorkerConfig is the first line that a worker reads: one of the two roles.
type WorkerConfig struct {
	Server *ServerConfig `json:"server,omitempty"`
	Client *ClientConfig `json:"client,omitempty"`
}

// WorkerMessage is a line from a worker to its parent.
type WorkerMessage struct {
	Ready  bool    `json:"ready,omitempty"` // first: listeners are open
	Report *Report `json:"report,omitempty"`
	Error  string  `json:"error,omitempty"`
	Last   bool    `json:"last,omitempty"`
}

// engine is a Server or a Client in its loop.
type engine interface {
	descriptor() int
	handle(events []unix.EpollEvent, now time.Duration)
	advance(now time.Duration)
	patience() time.Duration
	command(c Command)
	done() bool
	fill(r *Report)
	Close()
}

// RunWorker is the whole of a worker process: configuration and commands as JSON lines from in, a report a second to out.
// It returns when it is told to stop, when in ends (the parent is gone), or when ctx ends.
func RunWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	encoder := json.NewEncoder(out)
	e, err := openWorker(lines)
	if err != nil {
		return errors.Join(err, encoder.Encode(WorkerMessage{Error: err.Error(), Last: true}))
	}
	defer e.Close()
	if err := encoder.Encode(WorkerMessage{Ready: true}); err != nil {
		return fmt.Errorf("tell the parent: %w", err)
	}
	commands := make(chan Command)
	go func() {
		defer close(commands)
		decoder := json.NewDecoder(lines)
		for {
			var c Command
			if decoder.Decode(&c) != nil {
				return // the parent is gone, or speaks nonsense
			}
			select {
			case commands <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return loop(ctx, e, commands, encoder)
}

func openWorker(lines *bufio.Reader) (engine, error) {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var config WorkerConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if _, err := RaiseFiles(); err != nil {
		return nil, err
	}
	switch {
	case config.Server != nil:
		return NewServer(*config.Server)
	case config.Client != nil:
		return NewClient(*config.Client)
	}
	return nil, errors.New("read the configuration: neither server nor client")
}

const maxEvents = 512

// loop runs the engine. Reports go out from a goroutine of their own: a slow parent must not stop heartbeats.
func loop(ctx context.Context, e engine, commands <-chan Command, encoder *json.Encoder) error {
	reports := make(chan []byte, 1)
	written := make(chan error, 1)
	go func() {
		var err error
		for line := range reports {
			if err == nil {
				err = encoder.Encode(json.RawMessage(line))
			}
		}
		written <- err
	}()
	start := time.Now()
	events := make([]unix.EpollEvent, maxEvents)
	meter := newMeter(start, e)
	next := time.Second
	var failure error
	for stop := false; !stop && failure == nil && !e.done(); {
		n, err := unix.EpollWait(e.descriptor(), events, int(e.patience()/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			failure = fmt.Errorf("epoll: %w", err)
			break
		}
		now := time.Since(start)
		e.handle(events[:max(n, 0)], now)
		e.advance(now)
		select {
		case c, open := <-commands:
			stop = !open || c.Op == OpStop
			e.command(c)
			if c.Op == OpMark {
				next = now // the parent waits for it
			}
		case <-ctx.Done():
			stop = true
		default:
		}
		if now >= next && !stop {
			next = now.Truncate(time.Second) + time.Second
			select {
			case reports <- meter.line(e, now, false):
			default: // the parent is slow: the next one says it all
			}
		}
	}
	reports <- meter.line(e, time.Since(start), true)
	close(reports)
	return errors.Join(failure, <-written)
}

// meter adds to a report what the process itself knows.
type meter struct {
	start  time.Time
	before uint64 // own memory before the first connection
	last   Totals
	at     time.Duration
}

// newMeter makes reports once for nothing and cleans up, so that what they take is not counted as connections.
func newMeter(start time.Time, e engine) *meter {
	m := &meter{start: start}
	for range 8 {
		m.line(e, 0, false)
	}
	runtime.GC()
	usage, _ := procstat.Self() // zero where /proc is not to be had
	m.before, m.last, m.at = usage.OwnBytes, Totals{}, 0
	return m
}

func (m *meter) report(e engine, now time.Duration) Report {
	var r Report
	e.fill(&r)
	usage, _ := procstat.Self() // as above
	r.PID, r.At, r.CPUSeconds, r.RSSBytes = os.Getpid(), m.start.Add(now), usage.CPU.Seconds(), usage.ResidentBytes
	r.Host, _ = os.Hostname() // a report without it is as good
	if n := r.Connections.Established; n > 0 && usage.OwnBytes > m.before {
		r.BytesPerConnection = float64(usage.OwnBytes-m.before) / float64(n)
	}
	if span := (now - m.at).Seconds(); span > 0 {
		r.Rates = Rates{
			Opened: float64(r.Totals.Opened-m.last.Opened) / span,
			Closed: float64(r.Totals.Closed+r.Totals.Lost-m.last.Closed-m.last.Lost) / span,
			Failed: float64(r.Totals.Failed-m.last.Failed) / span,
		}
	}
	m.last, m.at = r.Totals, now
	return r
}

// line is the report as JSON: made at once, as the engine's histograms go on.
func (m *meter) line(e engine, now time.Duration, last bool) []byte {
	r := m.report(e, now)
	line, err := json.Marshal(WorkerMessage{Report: &r, Last: last})
	if err != nil {
		line, _ = json.Marshal(WorkerMessage{Error: err.Error(), Last: last}) // a string always can
	}
	return line
}
