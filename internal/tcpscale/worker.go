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

	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// Operations of a [Command].
const (
	OpRamp        = "ramp"         // client: begin, or go on with another rate
	OpDrain       = "drain"        // server: accept no more, send everybody away, end
	OpMark        = "mark"         // client: from now on, count what becomes of connections under a name
	OpStopOpening = "stop opening" // client: open no more connections, and report
	OpStop        = "stop"         // report once more and end
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
	Calm   time.Duration `json:"calm_ns,omitempty"` // between reports while nothing but heartbeats happens; 0: a second
}

// WorkerMessage is a line from a worker to its parent.
type WorkerMessage struct {
	Ready    bool      `json:"ready,omitempty"`    // first: listeners are open
	Report   *Report   `json:"report,omitempty"`   // its latencies are not set
	Recorded *Recorded `json:"recorded,omitempty"` // latencies since the last report
	Stopped  bool      `json:"stopped,omitempty"`  // it opens no more connections
	Error    string    `json:"error,omitempty"`
	Last     bool      `json:"last,omitempty"`
}

// engine is a Server or a Client in its loop.
type engine interface {
	descriptor() int
	handle(events []unix.EpollEvent, now time.Duration)
	advance(now time.Duration)
	stood(from, to time.Duration) // the process was stopped meanwhile: that time is no peer's silence
	maxSleep() time.Duration
	command(c Command)
	done() bool
	urgent() bool // a report should not wait for the end of the second
	fill(r *Report)
	recorded() *Recorded // since the last call
	counted() *counts
	Close()
}

// RunWorker is the whole of a worker process: configuration and commands as JSON lines from in, reports to out: one a
// second, and fewer while nothing happens but heartbeats, if the configuration says so.
// It returns at the command to stop, when in ends (the parent is gone), or when ctx ends.
func RunWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	encoder := json.NewEncoder(out)
	e, calm, err := openWorker(lines)
	if err != nil {
		return errors.Join(err, encoder.Encode(WorkerMessage{Error: err.Error(), Last: true}))
	}
	defer e.Close()
	if err := encoder.Encode(WorkerMessage{Ready: true}); err != nil {
		return fmt.Errorf("write to the parent: %w", err)
	}
	commands := make(chan Command)
	go func() {
		defer close(commands)
		decoder := json.NewDecoder(lines)
		for {
			var c Command
			if decoder.Decode(&c) != nil {
				return // the parent is gone, or its command is malformed
			}
			select {
			case commands <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return loop(ctx, e, commands, out, calm)
}

func openWorker(lines *bufio.Reader) (e engine, calm time.Duration, err error) {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return nil, 0, fmt.Errorf("read the configuration: %w", err)
	}
	var config WorkerConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return nil, 0, fmt.Errorf("read the configuration: %w", err)
	}
	if _, err := RaiseFiles(); err != nil {
		return nil, 0, err
	}
	switch {
	case config.Server != nil:
		e, err = NewServer(*config.Server)
	case config.Client != nil:
		e, err = NewClient(*config.Client)
	default:
		err = errors.New("read the configuration: neither server nor client")
	}
	return e, max(config.Calm, time.Second), err
}

const (
	maxEvents = 512
	maxRounds = 64 // of events, until timers have their turn
)

// loopClock watches how long the loop was not scheduled. All times of an engine are real time; an engine learns of a stop
// by stood, so that a machine without processor time for us does not look like peers that are silent.
type loopClock struct {
	last    time.Duration
	late    time.Duration // in all
	longest time.Duration
}

const (
	stopped  = time.Second            // from so late on the process was stopped, and not only busy
	noticed  = 100 * time.Millisecond // what counts as late
	lateness = 0.01                   // of a run, from which its result is void
)

// at takes the time of an iteration that has slept for at most wait. The result is whether the process was stopped, and
// since when.
func (c *loopClock) at(now, wait time.Duration) (from time.Duration, stop bool) {
	from, c.last = c.last+wait, now
	late := now - from
	if late > noticed {
		c.late += late
		c.longest = max(c.longest, late)
	}
	return from, late > stopped
}

// void says why times and rates of a run that lasts since so long are not the path's; empty: they are.
func (c *loopClock) void(run time.Duration) string {
	if c.longest <= stopped && c.late <= max(stopped, time.Duration(lateness*float64(run))) {
		return ""
	}
	return fmt.Sprintf("a worker was not scheduled for %.1f s of %.0f s, at most %.1f s at once", c.late.Seconds(), run.Seconds(), c.longest.Seconds())
}

// loop runs the engine. Reports go out from a goroutine of their own: a slow parent must not stop heartbeats.
func loop(ctx context.Context, e engine, commands <-chan Command, out io.Writer, calm time.Duration) error {
	reports := make(chan []byte, 1)
	written := make(chan error, 1)
	go func() { written <- writeReports(out, reports) }()
	start := time.Now()
	events := make([]unix.EpollEvent, maxEvents)
	meter := newMeter(start, e)
	var clock loopClock
	meter.clock = &clock
	next := time.Second
	var failure error
	for stop, requested := false, false; !stop && failure == nil && !e.done(); {
		var now time.Duration
		now, failure = clock.handleEvents(e, events, start)
		e.advance(now)
		select {
		case c, open := <-commands:
			stop = !open || c.Op == OpStop
			e.command(c)
			meter.stopped = meter.stopped || c.Op == OpStopOpening
			requested = requested || c.Op == OpMark || c.Op == OpStopOpening // the parent waits for it
		case <-ctx.Done():
			stop = true
		default:
		}
		if urgent := requested || e.urgent(); (now >= next || urgent) && !stop {
			next = max(now.Truncate(time.Second)+time.Second, next)
			// Where the parent is slow, the next one says it all.
			if (urgent || meter.due(e, now, calm)) && len(reports) < cap(reports) {
				requested = false
				reports <- meter.line(e, now, false)
			}
		}
	}
	reports <- meter.line(e, time.Since(start), true)
	close(reports)
	return errors.Join(failure, <-written)
}

// writeReports writes until the channel closes. The result is the first error, after which nothing is written.
func writeReports(out io.Writer, reports <-chan []byte) (err error) {
	for line := range reports {
		if err == nil {
			_, err = out.Write(line)
		}
	}
	return err
}

// handleEvents waits for events and handles all that have come, before a timer decides that a peer is silent. The result is
// the time since start.
func (c *loopClock) handleEvents(e engine, events []unix.EpollEvent, start time.Time) (now time.Duration, err error) {
	wait := e.maxSleep()
	// A tick begins on time: latencies count from there.
	if wait >= tick {
		wait -= time.Since(start) % tick
	}
	for range maxRounds {
		n, err := epollWait(e.descriptor(), events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return now, fmt.Errorf("epoll: %w", err)
		}
		now = time.Since(start)
		if from, stop := c.at(now, max(wait, 0)); stop {
			e.stood(from, now)
		}
		e.handle(events[:max(n, 0)], now)
		if wait = 0; n < len(events) {
			break
		}
	}
	return now, nil
}

// meter adds to a report what the process itself knows.
type meter struct {
	start  time.Time
	host   string
	made   int    // reports
	before uint64 // own memory before the first connection
	last   Totals
	then   Connections
	rates  Rates
	since  Totals        // at the time of rated
	rated  time.Duration // when rates were made
	at     time.Duration
	clock  *loopClock

	stopped bool // for WorkerMessage
}

const (
	reportsBetweenGC = 8
	shortestRate     = 500 * time.Millisecond
)

// newMeter makes reports once for nothing and cleans up, so that what they take is not counted as connections.
func newMeter(start time.Time, e engine) *meter {
	m := &meter{start: start}
	m.host, _ = os.Hostname() // a report without it is as good
	for range 8 {
		m.line(e, 0, false)
	}
	runtime.GC()
	usage, _ := procstat.Self() // zero where /proc is not to be had
	m.before, m.last, m.at = usage.OwnBytes, Totals{}, 0
	return m
}

// due is whether a report says something new, or the last one is old enough.
func (m *meter) due(e engine, now, calm time.Duration) bool {
	c := e.counted()
	return now-m.at >= calm-tick || c.totals != m.last || c.connections != m.then || m.rates != Rates{} // which are none now
}

func (m *meter) report(e engine, now time.Duration) Report {
	var r Report
	e.fill(&r)
	usage, _ := procstat.Self() // as above
	r.PID, r.At, r.CPUSeconds, r.RSSBytes = os.Getpid(), m.start.Add(now), usage.CPU.Seconds(), usage.ResidentBytes
	if m.clock != nil {
		r.Frozen, r.Void = m.clock.late.Seconds(), m.clock.void(now)
	}
	r.Host = m.host
	if n := r.Connections.Established; n > 0 {
		// Garbage of the start that went meanwhile must not be counted against the connections: they take their tables at least.
		own := max(r.TableBytes, max(usage.OwnBytes, m.before)-m.before)
		r.BytesPerConnection = float64(own) / float64(n)
	}
	if past := now - m.rated; past >= shortestRate { // a report that does not wait for its second would make a rate of an instant
		span, since := past.Seconds(), &m.since
		m.rates = Rates{
			Opened: float64(r.Totals.Opened-since.Opened) / span,
			Closed: float64(r.Totals.Closed+r.Totals.Lost-since.Closed-since.Lost) / span,
			Failed: float64(r.Totals.Failed-since.Failed) / span,
		}
		m.since, m.rated = r.Totals, now
	}
	r.Rates = m.rates
	m.last, m.then, m.at = r.Totals, r.Connections, now
	return r
}

// line is the report as JSON: made at once, as the engine's histograms go on.
func (m *meter) line(e engine, now time.Duration, last bool) []byte {
	r := m.report(e, now)
	// The runtime lets a megabyte of garbage gather, of a process that holds less: half a millisecond a few times a minute.
	if m.made++; m.made%reportsBetweenGC == 0 {
		runtime.GC()
	}
	line, err := json.Marshal(WorkerMessage{Report: &r, Recorded: e.recorded(), Stopped: m.stopped, Last: last})
	if err != nil {
		line, _ = json.Marshal(WorkerMessage{Error: err.Error(), Last: last}) // a string always can
	}
	return append(line, '\n')
}
