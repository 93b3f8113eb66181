package handover

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxDelays is how often the time of a child is extended because it had no processor.
const maxDelays = 8

// usage is what the threads of a process have had of the processors so far.
type usage struct {
	ran   time.Duration // on a processor
	delay time.Duration // ready to run, and waiting for a processor; a wait that goes on is not in it
	ready bool          // one of them runs or waits now
}

// giveTime gives a child so much time to end, after which it is killed. Time for which its threads had no processor
// does not count, up to maxDelays times as much: on an overloaded machine the child may not have run at all.
func (s *supervisor) giveTime(c *child, d time.Duration) {
	c.killer, c.killTime, c.delays = time.After(d), d, 0
	c.used = s.usage(c.cmd.Process.Pid)
}

// extend reports whether a child whose time is over gets more.
func (s *supervisor) extend(c *child) bool {
	now := s.usage(c.cmd.Process.Pid)
	more := min(now.delay-c.used.delay, c.killTime)
	if now.ready && now.ran-c.used.ran < c.killTime/10 { // it has waited all the time, and that is counted at the end of the wait
		more = c.killTime
	}
	if c.delays++; more < c.killTime/10 || c.delays > maxDelays {
		return false
	}
	c.used = now
	c.killer = time.After(more)
	return true
}

// usageOf reads schedstat and stat of a process's threads (Documentation/scheduler/sched-stats.rst of Linux, proc(5)). It is zero
// where the kernel does not count.
func usageOf(pid int) (all usage) {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	for _, thread := range threads {
		text, _ := os.ReadFile(filepath.Join(thread, "schedstat")) // of a thread that has just ended: nothing
		if fields := strings.Fields(string(text)); len(fields) == 3 {
			ran, _ := strconv.ParseInt(fields[0], 10, 64)
			delay, _ := strconv.ParseInt(fields[1], 10, 64)
			all.ran, all.delay = all.ran+time.Duration(ran), all.delay+time.Duration(delay)
		}
		stat, _ := os.ReadFile(filepath.Join(thread, "stat"))
		if end := strings.LastIndex(string(stat), ") "); end >= 0 && strings.HasPrefix(string(stat[end+2:]), "R") {
			all.ready = true
		}
	}
	return all
}
