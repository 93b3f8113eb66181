package procstat

import (
	"os"
	"strings"
)

// LoadAverage is the machine's, of 1, 5 and 15 minutes; empty where it is not to be had.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
