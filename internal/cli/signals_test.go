package cli

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// What hangs is cut off after the time; an orderly end, and a drain that an operator requested, are not.
func TestEndingCutsOffWhatHangs(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*Ending)
		want bool
	}{
		{"hangs", func(e *Ending) { e.begin(false) }, true},
		{"two signals", func(e *Ending) { e.begin(false); time.Sleep(2 * time.Second); e.begin(false) }, true},
		{"terminated", func(e *Ending) { e.within = CleanWithin; e.begin(true) }, true},
		{"orderly", func(e *Ending) { e.begin(false); time.Sleep(2 * time.Second); e.stop() }, false},
		{"ended before", func(e *Ending) { e.stop(); e.begin(false) }, false},
		{"drains", func(e *Ending) { e.Drain(); e.begin(false); time.Sleep(time.Hour); e.stop() }, false},
		{"a signal before the drain", func(e *Ending) { e.begin(false); e.Drain(); time.Sleep(time.Hour); e.stop() }, false},
		{"hangs after the drain", func(e *Ending) { e.Drain(); e.begin(false); time.Sleep(time.Hour); e.Drained() }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged strings.Builder
			code, at := 0, time.Time{}
			e := &Ending{within: EndWithin, errOut: &logged, exit: func(c int) { code, at = c, time.Now() }}
			c.do(e)
			began := time.Now()
			time.Sleep(time.Minute)
			if (code == ExitFailure) != c.want || strings.Contains(logged.String(), "no orderly end within ") != c.want {
				t.Errorf("%s: exit code %d, %q", c.name, code, &logged)
			}
			if c.want && at.Sub(began) > EndWithin {
				t.Errorf("%s: cut off after %v", c.name, at.Sub(began))
			}
			e.stop()
		})
	}
}

// A SIGHUP that comes before there is something to reload is obeyed then.
func TestAnEarlyHangupIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Hangups{signals: make(chan os.Signal, 1)}
		go h.handle(t.Context(), func() { t.Error("it ended the process") })
		reloads := 0
		h.signals <- syscall.SIGHUP
		synctest.Wait()
		h.onReload(func() { reloads++ })
		if reloads != 1 {
			t.Errorf("%d reloads of an early SIGHUP", reloads)
		}
		h.signals <- syscall.SIGHUP
		synctest.Wait()
		if reloads != 2 {
			t.Errorf("%d reloads after a second one", reloads)
		}
	})
}
