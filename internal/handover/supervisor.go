package handover

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	probeTime = 20 * time.Second // for a new binary, to show that it runs
	leaveTime = 10 * time.Second // for an old child, to hand over; then it is killed, which loses nothing
	// endTime is for a child, to handle a termination signal and to exit after it announced its end. Then it is killed.
	endTime   = 2500 * time.Millisecond
	firstWait = 50 * time.Millisecond // before the third start in a row

	crashWeight = 4 // weight of a child that ended by itself; a killed child (for example by the kernel when memory runs out) counts as 1
)

// Config says what to supervise.
type Config struct {
	// Path of the binary that an upgrade runs. Default: the path of this process's own binary when it started.
	Path string
	// Args of the child and of a successor, the name of the program first.
	Args []string
	Log  *slog.Logger
	// Crashes is after how many crashes in a row of children that never became ready the state is dropped, once,
	// because the state may cause the crashes. Default 5. Four SIGKILL count as one crash.
	Crashes int
	// A child that served for StableAfter (default 2s) is replaced at once. Otherwise the wait doubles up to MaxWait
	// (default 1s).
	StableAfter, MaxWait time.Duration
	// State is the children's state directory; empty: none. If there is one, the sockets of a server that a signal has ended stay open for HoldFor, for
	// the next server with that directory.
	State   string
	HoldFor time.Duration
}

// supervisor is the state of Supervise. One goroutine owns it.
type supervisor struct {
	config Config
	log    *slog.Logger
	held   *held
	hello  hello
	oldExe int // descriptor of the old binary during an upgrade, until the new one serves; -1: none

	usage func(pid int) usage // replaced in tests

	signals chan os.Signal
	stops   int            // number of termination signals received
	stop    syscall.Signal // the last of them
	hangup  bool           // a SIGHUP arrived before the child could handle it

	draining bool // a child received the first termination signal

	crashes int  // in a row, without a child that served for StableAfter
	early   int  // weight of those crashes in a row whose children never served
	dropped bool // the state was dropped since a child last served
}

// child is one serving process.
type child struct {
	cmd      *exec.Cmd
	wire     *wire
	messages chan message // closed when the child's end of the pair is closed
	exited   chan struct{}
	probed   chan error       // result of the test of a binary during an upgrade
	again    bool             // another upgrade was requested during the test: the binary may have changed
	killer   <-chan time.Time // the time that giveTime gave is over
	killTime time.Duration    // that time
	used     usage            // when the time began
	delays   int              // how often the time was extended
	ready    time.Time        // time at which it became ready; zero: not yet
	quit     bool             // it announced that it ends
	leaving  bool             // it was asked to hand over
	killed   bool             // it did not end in time
}

// Supervise runs children until one of them ends in order, and returns its exit code. It forwards SIGTERM, SIGINT and
// SIGHUP to the child, and performs an upgrade on SIGUSR2. An upgrade replaces the process, so Supervise then returns
// in the successor only. A child that ends is always replaced by a new one. An error means that the first child could
// not be started; the code is then 1.
func Supervise(config Config) (code int, err error) {
	runtime.LockOSThread() // a successor inherits this thread's signal mask
	s := &supervisor{config: config, log: cmp.Or(config.Log, slog.New(slog.DiscardHandler)), held: newHeld(), oldExe: -1, usage: usageOf, signals: make(chan os.Signal, 16)}
	s.config.Crashes = cmp.Or(config.Crashes, 5)
	s.config.StableAfter, s.config.MaxWait = cmp.Or(config.StableAfter, 2*time.Second), cmp.Or(config.MaxWait, time.Second)
	s.hello.Protocol, s.hello.Capacity = protocol, s.held.capacity
	signal.Notify(s.signals, supervisedSignals()...)
	defer signal.Stop(s.signals)
	if err := s.succeed(); err != nil {
		return 1, err
	}
	s.takeSockets()
	for {
		c, err := s.start()
		switch {
		case err != nil && s.hello.Starts == 0:
			return 1, err
		case err != nil: // for example no memory, or too many processes
			s.log.Error("the serving process cannot be started; it is tried again", "error", err)
			s.crashes++
			if code, done := s.pause(); done {
				return code, nil
			}
			continue
		}
		s.serve(c)
		if code, done, err := s.after(c); done {
			return code, err
		}
	}
}

// start starts a child and passes the sockets to it.
func (s *supervisor) start() (*child, error) {
	w, theirs, err := newPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := &child{wire: w, messages: make(chan message), exited: make(chan struct{})}
	c.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: s.config.Args, Env: environment(childEnv + "=3"),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs},
		// The child has its own process group: Ctrl-C of a terminal then reaches the supervisor alone, which forwards
		// it once.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := c.cmd.Start(); err != nil {
		_ = w.conn.Close()
		return nil, fmt.Errorf("start the serving process: %w", err)
	}
	_ = theirs.Close() // now only the child has this end, and its death closes the pair
	s.hello.Starts++
	if s.draining { // the previous child was draining
		s.giveTime(c, handOverTime)
	} else if s.stops > 0 {
		s.giveTime(c, endTime)
	}
	go c.read()
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	if err := s.greet(c); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		s.log.Error("hand the sockets to the serving process", "error", err)
		_ = c.cmd.Process.Kill()
	}
	return c, nil
}

func (s *supervisor) greet(c *child) error {
	text, err := json.Marshal(s.hello)
	if err != nil {
		return err
	}
	if err := c.wire.send(handOverTime, opHello, text); err != nil {
		return err
	}
	return s.held.sendAll(c.wire)
}

// read passes on the child's messages until the child is gone.
func (c *child) read() {
	defer close(c.messages)
	for {
		m, err := c.wire.receive()
		if err != nil {
			return
		}
		c.messages <- m
	}
}

// serve supervises one child until it is gone and all of its messages are read.
func (s *supervisor) serve(c *child) {
	messages, exited := c.messages, c.exited
	for messages != nil || exited != nil {
		select {
		case sig := <-s.signals:
			s.signal(c, sig)
		case m, ok := <-messages:
			if !ok {
				messages = nil
				continue
			}
			s.message(c, m)
		case <-exited:
			exited = nil
		case err := <-c.probed:
			c.probed = nil
			s.probed(c, err)
		case <-c.killer:
			if !s.extend(c) {
				s.kill(c)
			}
		}
	}
	_ = c.wire.conn.Close()
}

// kill kills a child that did not end in time.
func (s *supervisor) kill(c *child) {
	if c.leaving {
		s.log.Warn("the serving process does not hand over: it is killed, its successor has all that is kept", "pid", c.cmd.Process.Pid)
	} else {
		s.log.Warn("the serving process does not end: it is killed", "pid", c.cmd.Process.Pid)
		c.killed = true
	}
	_ = c.cmd.Process.Kill()
}

func (s *supervisor) signal(c *child, sig os.Signal) {
	number, _ := sig.(syscall.Signal)
	switch number {
	case unix.SIGUSR2:
		s.upgrade(c)
		return
	case unix.SIGHUP:
		if c.ready.IsZero() {
			s.hangup = true // forwarded when the child can handle it
			return
		}
	default:
		s.stops++
		s.stop = number
		s.giveTime(c, endTime)
		if c.ready.IsZero() && s.stops == 1 {
			return
		}
	}
	_ = c.cmd.Process.Signal(sig)
}

func (s *supervisor) message(c *child, m message) {
	switch m.op {
	case opStore:
		if m.cut {
			closeAll(m.fds)
			m.fds = nil
		}
		if !s.held.store(m) {
			_ = c.wire.send(sendTimeout, opFull, m.body)
		}
		return
	case opDrop:
		s.held.drop(string(m.body))
	case opReady:
		s.ready(c)
	case opQuit:
		c.quit = true
		s.giveTime(c, endTime)
	case opStopping:
		if s.stops == 1 && !c.leaving && !c.quit {
			c.killer, s.draining = nil, true // it ends when it has drained, or on a second signal
		}
	case opUpgrade:
		s.upgrade(c)
	}
	closeAll(m.fds)
}

func (s *supervisor) ready(c *child) {
	c.ready = time.Now()
	s.early, s.dropped = 0, false
	if s.stops == 1 && !c.leaving {
		s.giveTime(c, endTime) // the time starts now, because the child receives the signal now
	}
	s.commitNew()
	if s.hangup {
		s.hangup = false
		_ = c.cmd.Process.Signal(unix.SIGHUP)
	}
	if s.stops > 0 { // the signal arrived for its predecessor, or before it could handle it
		_ = c.cmd.Process.Signal(s.stop)
	}
}

// after decides what happens after a child's end.
func (s *supervisor) after(c *child) (code int, done bool, err error) {
	state := c.cmd.ProcessState
	switch {
	case c.leaving:
		s.hello.Last = "upgrade"
		if err := s.become(s.config.Path, ""); err != nil {
			s.log.Error("upgrade: the old binary goes on", "error", err)
		}
		return 0, false, nil
	case c.quit && s.oldExe >= 0 && state.ExitCode() != 0 && s.stops == 0:
		s.fallBack(fmt.Sprintf("the new binary ended with code %d before it served", state.ExitCode()))
		return 0, false, nil
	case c.quit && !c.killed:
		s.leaveSockets()
		return exitCode(state), true, nil
	case c.killed, s.stops > 1, s.stops > 0 && c.ready.IsZero():
		return 128 + int(s.stop), true, nil
	}
	s.crashed(c, state)
	code, done = s.pause()
	return code, done, nil
}

// exitCode returns the exit code of a process as a shell reports it.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// crashed counts a child's death, and drops the state if children repeatedly die before they serve.
func (s *supervisor) crashed(c *child, state *os.ProcessState) {
	s.hello.Last, s.hello.Clean = state.String(), false
	served := !c.ready.IsZero()
	if served && time.Since(c.ready) >= s.config.StableAfter {
		s.crashes = 0
	}
	s.crashes++
	if status, ok := state.Sys().(syscall.WaitStatus); !served && ok && status.Signaled() && status.Signal() == unix.SIGKILL {
		s.early++
	} else if !served {
		s.early += crashWeight
	}
	s.log.Error("the serving process ended; another one starts with its sockets", "pid", state.Pid(), "how", state, "in_a_row", s.crashes, "served", served, "sockets", len(s.held.fds))
	if s.oldExe >= 0 && s.crashes > 1 {
		s.fallBack("the new binary ended twice before it served")
	}
	if s.early >= crashWeight*s.config.Crashes && !s.dropped {
		s.log.Error("none came to serve with what is kept: its sockets and records are dropped, the next one starts clean", "in_a_row", s.crashes, "sockets", len(s.held.fds))
		s.held.clear()
		s.hello.Clean, s.dropped, s.crashes = true, true, 1
	}
}

// pause waits before the next start. A second termination signal ends the wait.
func (s *supervisor) pause() (code int, done bool) {
	if s.crashes <= 1 {
		return 0, false
	}
	wait := time.After(min(firstWait<<min(s.crashes-2, 10), s.config.MaxWait))
	for {
		select {
		case <-wait:
			return 0, false
		case sig := <-s.signals:
			if sig == unix.SIGTERM || sig == unix.SIGINT {
				s.stops++
				s.stop, _ = sig.(syscall.Signal)
			}
			if s.stops > 1 {
				return 128 + int(s.stop), true
			}
		}
	}
}

// environment returns this process's environment without the variables that only supervisors set, plus more.
func environment(more ...string) []string {
	var kept []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != childEnv && name != successorEnv && name != probeEnv && name != interimEnv {
			kept = append(kept, variable)
		}
	}
	return append(kept, more...)
}
