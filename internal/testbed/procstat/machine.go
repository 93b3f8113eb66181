package procstat

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Machine is the processor time of the whole machine since its start, interrupts and softirqs included, which no process
// is charged for truly. Counted in ticks of 10 ms, by sampling.
type Machine struct {
	Busy   time.Duration // user, system, interrupt and softirq time of all cores
	Stolen time.Duration // taken by the hypervisor: neither busy nor idle
	// Others is the part of Busy that other programs than ours spent: what a measurement on a shared machine subtracts.
	// Kernel threads are not among them. A softirq is charged to the process that it interrupts, so a little of ours is in here.
	Others time.Duration
	// Ours is what we spent, with the kernel threads that carry packets (ksoftirqd, NAPI): less than Busy-Others by what
	// softirqs did while no program ran, but counted by the scheduler and not by sampling, so it is the better figure where
	// Others is large.
	Ours time.Duration
}

const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on

// ReadMachine reads it. ours says which processes, by id and process group, belong to what is measured.
func ReadMachine(ours func(pid, group int) bool) (Machine, error) {
	var m Machine
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, fmt.Errorf("processor time of the machine: %w", err)
	}
	if m.Busy, m.Stolen, err = parseStat(stat); err != nil {
		return m, fmt.Errorf("processor time of the machine: /proc/stat: %w", err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return m, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended since
		}
		p, err := parseProcess(line)
		if err != nil {
			return m, fmt.Errorf("%s: %w", file, err)
		}
		switch {
		case p.packets || !p.kernel && ours(p.pid, p.group):
			m.Ours += p.spent
		case !p.kernel:
			m.Others += p.spent
		}
	}
	return m, nil
}

// parseStat reads the first line of /proc/stat.
func parseStat(stat []byte) (busy, stolen time.Duration, err error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, 0, errors.New("no line of all processors")
	}
	var ticks [8]time.Duration // user nice system idle iowait irq softirq steal
	for i := range ticks {
		n, err := strconv.ParseInt(string(fields[i+1]), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks[i] = time.Duration(n) * tick
	}
	return ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6], ticks[7], nil
}

type process struct {
	pid, group int
	kernel     bool          // a kernel thread; those that come and go take their time with them
	packets    bool          // one that lives on and carries packets
	spent      time.Duration // with its ended children, so that nothing is lost when one ends
}

// parseProcess reads /proc/PID/stat; the name in it may hold spaces and brackets.
func parseProcess(line []byte) (p process, err error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return p, errors.New("no name in brackets")
	}
	if p.pid, err = strconv.Atoi(string(bytes.TrimSpace(line[:open]))); err != nil {
		return p, err
	}
	fields := bytes.Fields(line[end+1:]) // from the third field of proc(5) on
	if len(fields) < 15 {
		return p, errors.New("too few fields")
	}
	var parent int
	for _, f := range []struct {
		at   int
		into *int
	}{{1, &parent}, {2, &p.group}} {
		if *f.into, err = strconv.Atoi(string(fields[f.at])); err != nil {
			return p, err
		}
	}
	const kthreadd = 2
	p.kernel = parent == kthreadd || p.pid == kthreadd
	name := line[open+1 : end]
	p.packets = p.kernel && (bytes.HasPrefix(name, []byte("ksoftirqd/")) || bytes.HasPrefix(name, []byte("napi/")))
	for _, field := range fields[11:15] { // utime stime cutime cstime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return p, err
		}
		p.spent += time.Duration(n) * tick
	}
	return p, nil
}
