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

// giveTime gives a child so much time to end, after which it is killed. Time for which its threads had no processor
// does not count, up to maxDelays times as much: on an overloaded machine the child may not have run at all.
func (s *supervisor) giveTime(c *child, d time.Duration) {
	c.killer, c.killTime, c.delays = time.After(d), d, 0
	c.delayed = s.runDelay(c.cmd.Process.Pid)
}

// extend reports whether a child whose time is over gets more.
func (s *supervisor) extend(c *child) bool {
	delayed := s.runDelay(c.cmd.Process.Pid)
	more := min(delayed-c.delayed, c.killTime)
	if c.delays++; more < c.killTime/10 || c.delays > maxDelays {
		return false
	}
	c.delayed = delayed
	c.killer = time.After(more)
	return true
}

// runDelay is for how long the threads of a process were ready to run and had no processor, in all: the second number
// of schedstat (Documentation/scheduler/sched-stats.rst of Linux). It is 0 where the kernel does not count it.
func runDelay(pid int) (sum time.Duration) {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // of a thread that has just ended: nothing
		if fields := strings.Fields(string(text)); len(fields) == 3 {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}
