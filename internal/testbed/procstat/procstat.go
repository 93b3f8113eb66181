// Package procstat reads what a process has spent: processor time and memory.
//
// Processor time comes from the process' CPU clock (clock_getcpuclockid(3)), which counts nanoseconds of all its
// threads, ended ones included, where /proc/PID/stat counts ticks of 10 ms. Memory comes from /proc/PID/status.
// Linux only.
package procstat

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process has spent since its start.
type Usage struct {
	CPU           time.Duration // user and system time of all its threads
	ResidentBytes uint64        // now
	PeakBytes     uint64        // largest resident set so far
	OwnBytes      uint64        // of the resident, what no file holds: heap and stacks
	Threads       int
}

// Self is the usage of this process.
func Self() (Usage, error) { return Of(os.Getpid()) }

// Of is the usage of the process with that id, which must not have ended.
func Of(pid int) (Usage, error) {
	cpu, err := CPU(pid)
	if err != nil {
		return Usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	usage := Usage{CPU: cpu}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 2 {
			continue
		}
		switch value, err := strconv.ParseUint(string(fields[1]), 10, 64); {
		case err != nil:
		case string(fields[0]) == "VmRSS:":
			usage.ResidentBytes = value << 10
		case string(fields[0]) == "RssAnon:":
			usage.OwnBytes = value << 10
		case string(fields[0]) == "VmHWM:":
			usage.PeakBytes = value << 10
		case string(fields[0]) == "Threads:":
			usage.Threads = int(value)
		}
	}
	return usage, nil
}

// CPU is the user and system time of the process with that id.
func CPU(pid int) (time.Duration, error) {
	const wholeProcess = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h, without the per-thread bit
	clock := ^int32(pid)<<3 | wholeProcess
	var spent unix.Timespec
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}
