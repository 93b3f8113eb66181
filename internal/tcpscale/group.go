package tcpscale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Group is the workers of one server or client, seen from their parent. Its methods may be called from any goroutine.
type Group struct {
	mu      sync.Mutex
	workers []*groupWorker
	ended   chan struct{} // closed when the first worker has ended without a request
	failure error
	ending  bool
	marks   int
	updated chan struct{}
	sums    map[uint64]*latencies // of each client's workers, by its Run
	recent  *measure.Latency      // round trips since the last call of interval
}

type groupWorker struct {
	number  int // from 0
	cmd     *exec.Cmd
	in      io.WriteCloser
	report  *Report
	sum     *latencies // shared with the client's other workers; nil for a server
	last    bool
	stopped bool
	heard   time.Time // when it reported last
	ready   chan error
	gone    chan struct{}
}

// StartGroup starts a process for each configuration and waits until all are ready. On an error nothing is
// left running.
func StartGroup(launcher Launcher, configs []WorkerConfig) (*Group, error) {
	c := &Group{ended: make(chan struct{}), updated: make(chan struct{}, 1), sums: map[uint64]*latencies{}, recent: measure.NewLatency()}
	var err error
	for _, config := range configs {
		// Many workers report less often when nothing happens: else they and we are busy with nothing else.
		config.Calm = time.Duration(len(configs)) * time.Second / reportsPerSecond
		if config.Client != nil && c.sums[config.Client.Run] == nil {
			c.sums[config.Client.Run] = newLatencies()
		}
		if err = c.start(launcher, config); err != nil {
			break
		}
	}
	for _, w := range c.workers {
		if err == nil {
			err = <-w.ready
		}
	}
	if err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

func (c *Group) start(launcher Launcher, config WorkerConfig) error {
	cmd := launcher.Command()
	line, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("configure a worker: %w", err)
	}
	w := &groupWorker{cmd: cmd, ready: make(chan error, 1), gone: make(chan struct{})}
	if config.Client != nil {
		w.sum = c.sums[config.Client.Run]
	}
	cmd.Env = append(cmd.Environ(), "GOMAXPROCS=1", "GOGC=10") // one loop; garbage is rare and must not look like connections
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// Setpgid: an interrupt at the terminal is for the parent, which then stops us in order.
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	if w.in, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	started := make(chan error, 1)
	go func() {
		err := launcher.do(func() error {
			// The death signal follows the thread that has started the process: it must stay for as long.
			runtime.LockOSThread()
			err := cmd.Start()
			if err != nil {
				return err
			}
			started <- nil
			c.follow(w, out)
			return nil
		})
		if err != nil {
			started <- err // nothing was started
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	c.mu.Lock()
	w.number = len(c.workers)
	c.workers = append(c.workers, w)
	c.mu.Unlock()
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("configure a worker: %w", err)
	}
	return nil
}

// reportsPerSecond is how many of workers without news are worth reading.
const reportsPerSecond = 16

// maxMessage bounds a line of a worker.
const maxMessage = 16 << 20

// follow reads what a worker says until it ends.
func (c *Group) follow(w *groupWorker, out io.Reader) {
	defer close(w.gone)
	scanner := bufio.NewScanner(out)
	scanner.Buffer(make([]byte, 1<<16), maxMessage)
	var failure error
	for scanner.Scan() {
		var m WorkerMessage
		if err := json.Unmarshal(scanner.Bytes(), &m); err != nil {
			failure = fmt.Errorf("a worker's message: %w", err)
			break
		}
		if m.Error != "" {
			failure = errors.New(m.Error)
		}
		if m.Ready {
			w.ready <- nil
		}
		if m.Report != nil {
			c.mu.Lock()
			w.report, w.last, w.stopped, w.heard = m.Report, m.Last, m.Stopped, time.Now()
			if w.sum != nil {
				w.sum.add(m.Recorded)
				if m.Recorded != nil {
					addPairs(c.recent, m.Recorded.RTT)
				}
			}
			c.mu.Unlock()
			select {
			case c.updated <- struct{}{}:
			default:
			}
		}
	}
	if failure != nil || scanner.Err() != nil {
		_ = w.cmd.Process.Kill() // it may be gone already
	}
	failure = errors.Join(failure, scanner.Err())
	if err := w.cmd.Wait(); err != nil && failure == nil {
		failure = fmt.Errorf("worker %d: %w", w.cmd.Process.Pid, err)
	}
	if failure == nil {
		failure = fmt.Errorf("worker %d ended", w.cmd.Process.Pid)
	}
	select {
	case w.ready <- failure:
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending && c.failure == nil && !w.last {
		c.failure = failure
		close(c.ended)
	}
}

// Ended is closed when a worker has ended without a request; Err says why.
func (c *Group) Ended() <-chan struct{} { return c.ended }

// Updated gets a value after reports have come in.
func (c *Group) Updated() <-chan struct{} { return c.updated }

// Err is why the first worker ended that was not asked to; nil if none did.
func (c *Group) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Report merges the last report of each worker.
func (c *Group) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return mergeWorkers(c.workers)
}

// Reports merges the last reports of each so many workers that follow each other; a part that has not reported is left out.
func (c *Group) Reports(each int) []Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reports []Report
	for part := range slices.Chunk(c.workers, each) {
		if r := mergeWorkers(part); r.Role != "" {
			reports = append(reports, r)
		}
	}
	return reports
}

// interval adds the round trips since the last call to sum, and says what they were.
func (c *Group) interval(sum *measure.Latency) *Interval {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := newInterval(c.recent)
	sum.Merge(c.recent)
	c.recent.Reset()
	return i
}

func mergeWorkers(workers []*groupWorker) Report {
	var reports []Report
	var sums []*latencies
	for _, w := range workers {
		if w.report == nil {
			continue
		}
		reports = append(reports, *w.report)
		if w.sum != nil && !slices.Contains(sums, w.sum) {
			sums = append(sums, w.sum)
		}
	}
	m := MergeReports(reports)
	if len(reports) == 0 {
		return m
	}
	m.PID, m.Worker = workers[0].cmd.Process.Pid, workers[0].number // also while that one has reported nothing: who it is does not change
	fillLatencies(&m, sums)
	if len(reports) < len(workers) {
		m.FullAt = time.Time{} // a worker that has reported nothing yet is not full
	}
	return m
}

// PIDs are the processes.
func (c *Group) PIDs() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pids []int
	for _, w := range c.workers {
		pids = append(pids, w.cmd.Process.Pid)
	}
	return pids
}

// established is what worker i holds, of how many.
func (c *Group) established(i int) (now, target int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.workers[i].report; r != nil {
		return r.Connections.Established, r.Connections.Target
	}
	return 0, 1
}

// Send writes a command to one worker, or to all with worker -1. A worker that is gone is passed over.
func (c *Group) Send(worker int, command Command) {
	line, err := json.Marshal(command)
	if err != nil {
		return // a Command always can
	}
	c.mu.Lock()
	workers := c.workers
	if worker >= 0 {
		workers = workers[worker : worker+1]
	}
	if command.Op != OpRamp && command.Op != OpMark && command.Op != OpStopOpening {
		c.ending = true
	}
	c.mu.Unlock()
	for _, w := range workers {
		_, _ = w.in.Write(append(line, '\n')) // its end is noticed elsewhere
	}
}

// Mark has a client's workers count under a name what becomes of connections from now on. It returns when all have received the message.
func (c *Group) Mark(ctx context.Context, name string) error {
	c.mu.Lock()
	c.marks++
	marks := c.marks
	c.mu.Unlock()
	c.Send(-1, Command{Op: OpMark, Name: name})
	return c.until(ctx, func(w *groupWorker) bool { return w.report != nil && len(w.report.Marks) >= min(marks, maxMarks) })
}

// stopOpening has a client's workers open no more connections. Otherwise one that ends gives its ports to another that still
// runs, and the sum of their last reports is more than there ever were at once.
func (c *Group) stopOpening() {
	c.Send(-1, Command{Op: OpStopOpening})
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	_ = c.until(ctx, func(w *groupWorker) bool { return w.stopped || w.last }) // the run ends in any case
}

// until waits until reached is true of every worker.
func (c *Group) until(ctx context.Context, reached func(*groupWorker) bool) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		c.mu.Lock()
		missing := slices.ContainsFunc(c.workers, func(w *groupWorker) bool { return !reached(w) })
		c.mu.Unlock()
		if !missing {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.Ended():
			return c.Err()
		case <-ticker.C:
		}
	}
}

// Silent is for how long the worker that reported longest ago has not reported.
func (c *Group) Silent() (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		longest = max(longest, time.Since(w.heard))
	}
	return longest
}

// settleTime is how long workers may take to say that they open no more connections.
const settleTime = 10 * time.Second

// stopQuiet is how long workers may take to close what they hold.
const stopQuiet = 60 * time.Second

// Stop has all workers report once more and end, and returns the sum. It kills those that do not in time.
func (c *Group) Stop() Report {
	c.Send(-1, Command{Op: OpStop})
	timer := time.AfterFunc(stopQuiet, c.Kill)
	defer timer.Stop()
	c.wait()
	return c.Report()
}

// Drain has a server send its clients away; it returns when all are gone.
func (c *Group) Drain() Report {
	c.Send(-1, Command{Op: OpDrain})
	c.wait()
	return c.Report()
}

// Kill ends all workers at once and waits for them.
func (c *Group) Kill() {
	c.mu.Lock()
	c.ending = true
	workers := c.workers
	c.mu.Unlock()
	for _, w := range workers {
		_ = w.cmd.Process.Kill() // it may be gone already
	}
	c.wait()
}

func (c *Group) wait() {
	c.mu.Lock()
	workers := c.workers
	c.mu.Unlock()
	for _, w := range workers {
		<-w.gone
	}
}
