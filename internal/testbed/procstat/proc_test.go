package procstat_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// A shell that waits for a program of its own is a child, and the program a grandchild.
func TestDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exec 3<&0; cat <&3 & echo started; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	if _, err := out.Read(make([]byte, 16)); err != nil { // it has started its program
		t.Fatal(err)
	}
	all := procstat.Descendants(os.Getpid())
	at := slices.Index(all, cmd.Process.Pid)
	if at < 0 || len(procstat.Descendants(cmd.Process.Pid)) != 1 || !slices.Contains(all, procstat.Descendants(cmd.Process.Pid)[0]) {
		t.Errorf("of %d: %v, of its child %d: %v", os.Getpid(), all, cmd.Process.Pid, procstat.Descendants(cmd.Process.Pid))
	}
	if n := procstat.Field("/proc/self/status", "Threads:", 1); n < 1 {
		t.Errorf("%v threads", n)
	}
	if n := procstat.Field("/proc/self/status", "NoSuchLine:", 1); n != 0 {
		t.Errorf("a line that is not there has %v", n)
	}
}
