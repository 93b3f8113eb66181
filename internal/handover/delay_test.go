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
		use  func(elapsed time.Duration) usage
		want time.Duration // until it is killed
	}{
		"it hangs":                      {func(time.Duration) usage { return usage{} }, endTime},
		"it ran almost all the time":    {func(e time.Duration) usage { return usage{delay: e / 20, ran: e} }, endTime},
		"half of the time no processor": {func(e time.Duration) usage { return usage{delay: e / 2} }, endTime + endTime/2 + endTime/4 + endTime/8},
		"never a processor, 10 threads": {func(e time.Duration) usage { return usage{delay: 10 * e} }, endTime * (1 + maxDelays)},
		"at first":                      {func(e time.Duration) usage { return usage{delay: min(e, time.Second)} }, endTime + time.Second},
		"one wait, counted at its end":  {func(time.Duration) usage { return usage{ready: true} }, endTime * (1 + maxDelays)},
		"it runs and does not end":      {func(e time.Duration) usage { return usage{ran: e, ready: true} }, endTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := &supervisor{usage: func(int) usage {
					u := c.use(time.Since(began))
					u.delay, u.ran = u.delay+time.Hour, u.ran+time.Hour
					return u
				}}
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
func TestUsageOfBusyProcesses(t *testing.T) {
	if u := usageOf(1 << 30); u != (usage{}) {
		t.Errorf("no process has used %+v", u)
	}
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("this kernel does not count how long processes wait for a processor: ", err)
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
			if u := usageOf(cmd.Process.Pid); u.delay > 20*time.Millisecond && u.ran > 0 && u.ready {
				delayed++
			}
		}
		return delayed >= len(busy)/2
	})
}
