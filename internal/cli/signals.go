package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// Hangups are the SIGHUPs of this process from the first instruction of main on. One that comes while the process starts is kept until
// there is something to reload. Where there never is, it is ignored, unless it says that the terminal is gone: that ends the process.
type Hangups struct {
	signals  chan os.Signal
	terminal bool // there was one at the start, and SIGHUP was not ignored as by nohup

	mu      sync.Mutex
	pending bool
	reload  func()
}

// CatchHangups has to be what main begins with.
func CatchHangups() *Hangups {
	h := &Hangups{signals: make(chan os.Signal, 1), terminal: !signal.Ignored(syscall.SIGHUP)}
	signal.Notify(h.signals, syscall.SIGHUP)
	h.terminal = h.terminal && hasTerminal()
	return h
}

// hasTerminal reports whether the process has a controlling terminal that is still there.
func hasTerminal() bool {
	file, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	return file.Close() == nil
}

// handle obeys hangups until ctx ends. end ends the process.
func (h *Hangups) handle(ctx context.Context, end func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.signals:
		}
		h.mu.Lock()
		reload := h.reload
		h.pending = reload == nil
		h.mu.Unlock()
		switch {
		case reload != nil:
			reload()
		case h.terminal && !hasTerminal():
			end()
		}
	}
}

// onReload has reload called for each SIGHUP from now on, and at once for one that came before.
func (h *Hangups) onReload(reload func()) {
	h.mu.Lock()
	pending := h.pending
	h.reload, h.pending = reload, false
	h.mu.Unlock()
	if pending {
		reload()
	}
}

// EndWithin is how long an end after SIGTERM may take, and an orderly end of what serves. A measuring command has CleanWithin after an
// interrupt: it says goodbye on every connection, prints what it has measured, and takes its namespaces and programs down. What is
// left of it when the time is over, or at a second signal, is removed; abandonWithin is the time that is reserved for that.
const (
	EndWithin     = 3 * time.Second
	CleanWithin   = 20 * time.Second
	abandonWithin = time.Second
	abandonAtMost = 10 * time.Second // on a machine that is too busy for that: namespaces would stay for ever
)

// abandon removes what this process made for a run and has not taken down: the programs in its namespaces, these, pinned programs and
// temporary directories. Other children die with the process.
func abandon() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = errors.Join(scratch.Abandon(), programs.AbandonPins(), netlab.Abandon()) // the next run sweeps what stays
	}()
	select {
	case <-done:
	case <-time.After(abandonAtMost):
	}
}

// obeySignals has the first signal to end begin the end, and a second one cut it off. ended is what the first one cancels.
func (e *Ending) obeySignals(ended context.Context, stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		<-ended.Done()
		e.begin(first == syscall.SIGTERM)
		if !e.measures() { // a second signal does what it does by default
			signal.Stop(signals)
			stop()
			return
		}
		<-signals
		e.exit(ExitFailure)
	}()
}

// EndTime is how long a command's orderly end may take.
func EndTime(cmd *cobra.Command) time.Duration {
	path := strings.Fields(cmd.CommandPath())
	switch {
	case len(path) > 2 && path[1] == "tcp" && path[2] == "stats":
		return EndWithin
	case len(path) > 1 && slices.Contains([]string{"tcp", "bench", "lab", "demo", "snat"}, path[1]),
		len(path) > 2 && path[1] == "turn" && path[2] == "bench":
		return CleanWithin
	}
	return EndWithin
}

// Ending ends the process when a signal to end has come and the orderly end takes too long, whatever hangs.
type Ending struct {
	within time.Duration // after an interrupt; more than EndWithin: of what measures
	errOut io.Writer
	exit   func(code int)

	mu      sync.Mutex
	drains  bool // an operator wants the process to wait first
	stopped bool
	timer   *time.Timer
}

// begin is the signal to end, terminated: SIGTERM. Where the process drains it does nothing: drained begins then.
func (e *Ending) begin(terminated bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drains || e.stopped || e.timer != nil {
		return
	}
	within := e.within
	if terminated && within > EndWithin {
		within = EndWithin - abandonWithin
	}
	e.timer = time.AfterFunc(within, func() {
		fmt.Fprintf(e.errOut, "weir: no orderly end within %s after the signal: it ends now, what still hangs is cut off\n", within)
		e.exit(ExitFailure)
	})
}

// allow sets how long the orderly end may take.
func (e *Ending) allow(within time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.within = within
}

// Drain has signals to end wait until drained is called, also one that came before.
func (e *Ending) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drains = true
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// Drained is the end of a drain.
func (e *Ending) Drained() {
	e.mu.Lock()
	e.drains = false
	e.mu.Unlock()
	e.begin(false)
}

// measures says whether the command has something to take down.
func (e *Ending) measures() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.within > EndWithin
}

// stop is the orderly end.
func (e *Ending) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// Signals is what commands know of the signals to the process they run in, and how they keep its keys in memory.
type Signals struct {
	hangups     *Hangups
	Ending      *Ending
	protectKeys func() error
}

type processKey struct{}

// SignalsOf is never nil: a command that a test runs without main has signals that never come, and leaves the limits of the
// test's process, which are for ever, as they are.
func SignalsOf(ctx context.Context) Signals {
	if s, ok := ctx.Value(processKey{}).(Signals); ok {
		return s
	}
	return Signals{new(Hangups), &Ending{stopped: true}, func() error { return nil }}
}
