package procstat

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LoadAverage is the machine's, of 1, 5 and 15 minutes; empty where it is not to be had.
func LoadAverage() string {
	fields := strings.Fields(read("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// KernelRelease is that of the running kernel, such as 6.18.5; "unknown" where it is not to be had.
func KernelRelease() string {
	if release := strings.TrimSpace(read("/proc/sys/kernel/osrelease")); release != "" {
		return release
	}
	return "unknown"
}

// Field is the i-th word of the line of a file that begins with name, as a number; 0 where it is not to be had.
func Field(file, name string, i int) float64 {
	for line := range strings.Lines(read(file)) {
		if words := strings.Fields(line); len(words) > i && words[0] == name {
			if n, err := strconv.ParseFloat(words[i], 64); err == nil {
				return n
			}
		}
	}
	return 0
}

// Descendants are the living processes that a process has started, those that these have started, and so on, without the process
// itself. Without CONFIG_PROC_CHILDREN there are none.
func Descendants(pid int) (all []int) {
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", next[0])) // the pattern is right
		for _, task := range tasks {
			for word := range strings.FieldsSeq(read(task)) {
				if child, err := strconv.Atoi(word); err == nil && !slices.Contains(all, child) {
					all, next = append(all, child), append(next, child)
				}
			}
		}
	}
	return all
}

// read is a file's text; empty where it cannot be read, as of a process that has ended.
func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
