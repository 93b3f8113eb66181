package netlabtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// Root skips t unless this process may make network namespaces; with WEIR_ROOT=1 it fails t.
func Root(t testing.TB) {
	t.Helper()
	if err := netlab.Privileged(); err != nil {
		missing(t, "needs root: %v", err)
	}
}

// Tools skips t unless every program is in the PATH; with WEIR_ROOT=1 it fails t.
func Tools(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, "needs %s: %v", program, err)
		}
	}
}

// Up is Root, then the topology for the length of t.
func Up(t testing.TB, topology netlab.Topology) *netlab.Lab {
	t.Helper()
	Root(t)
	lab, err := netlab.Up(topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("WEIR_ROOT") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
