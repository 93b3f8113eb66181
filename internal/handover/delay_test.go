package handover

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A child that had no processor gets as much more time, within bounds; one that had and does not end gets none.
func TestChildGetsTheTimeThatItHadNoProcessor(t *testing.T) {
	for name, c := range map[string]struct {
		delay func(elapsed time.Duration) time.Duration
		want  time.Duration // until it is killed
	}{
		"it hangs":                      {func(time.Duration) time.Duration { return 0 }, endTime},
		"it ran almost all the time":    {func(e time.Duration) time.Duration { return e / 20 }, endTime},
		"half of the time no processor": {func(e time.Duration) time.Duration { return e / 2 }, endTime + endTime/2 + endTime/4 + endTime/8},
		"never a processor, 10 threads": {func(e time.Duration) time.Duration { return 10 * e }, endTime * (1 + maxDelays)},
		"at first":                      {func(e time.Duration) time.Duration { return min(e, time.Second) }, endTime + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := &supervisor{runDelay: func(int) time.Duration { return time.Hour + c.delay(time.Since(began)) }}
				child := &child{cmd: &exec.Cmd{Process: &os.Process{Pid: 1}}}
				s.giveTime(child, endTime)
				for <-child.killer; s.extend(child); <-child.killer {
				}
				if got := time.Since(began); got != c.want {
					t.Errorf("killed after %v, want %v", got, c.want)
				}
			})
		})
	}
}

// More busy processes than processors: each is delayed.
func TestRunDelay(t *testing.T) {
	if delay := runDelay(1 << 30); delay != 0 {
		t.Errorf("no process was delayed by %v", delay)
	}
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip(err)
	}
	var busy []*exec.Cmd
	for range 2 * runtime.NumCPU() {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		busy = append(busy, cmd)
	}
	defer func() {
		for _, cmd := range busy {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	netlabtest.Eventually(t, "half of the processes are delayed", func() bool {
		delayed := 0
		for _, cmd := range busy {
			if runDelay(cmd.Process.Pid) > 20*time.Millisecond {
				delayed++
			}
		}
		return delayed >= len(busy)/2
	})
}
