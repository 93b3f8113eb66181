package ebpf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// openPathVariable names to a child of TestRootFailedOpenLeavesNothing where its pins go.
const openPathVariable = "WEIR_TEST_OPEN_PATH"

// TestRootFailedOpenLeavesNothing lets Open fail at each descriptor that it takes: nothing stays open and no pin stays.
// The limit of descriptors is the whole process's, so a process of its own does it.
func TestRootFailedOpenLeavesNothing(t *testing.T) {
	if path := os.Getenv(openPathVariable); path != "" {
		openWithFewDescriptors(t, path)
		return
	}
	t.Parallel()
	topology := netlab.NAT()
	topology.Name = "ebopen"
	lab := netlabtest.Up(t, topology)
	path := filepath.Join(netlabtest.BPFFS(t), "lb")
	out, err := lab.Namespace("gateway").Exec(t.Context(), "env", openPathVariable+"="+path,
		os.Args[0], "-test.run=^TestRootFailedOpenLeavesNothing$", "-test.v")
	if err != nil || !strings.Contains(out, "failed at every descriptor") {
		t.Errorf("%v\n%s", err, out)
	}
}

func openWithFewDescriptors(t *testing.T, path string) {
	opened := func() (d *Datapath, err error) {
		return Open(Config{Interfaces: []string{"veth0"}, Hook: attach.HookTCX, PinPath: path})
	}
	d, err := opened() // the runtime's own descriptors are open from here on
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for room := uint64(0); ; room++ {
		limit := old
		limit.Cur = uint64(len(before)) + room
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		d, err := opened()
		if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); restored != nil {
			t.Fatal(restored)
		}
		if err == nil {
			err = d.Close()
			room = 1 << 20
		} else {
			failures++
		}
		if after := descriptors(t); len(after) != len(before) {
			t.Fatalf("with room for %d: %v; descriptors before %v, after %v", room, err, before, after)
		}
		if _, missing := os.Stat(path); !os.IsNotExist(missing) {
			t.Fatalf("with room for %d: %v; the pins stay: %v", room, err, missing)
		}
		if room == 1<<20 {
			break
		}
	}
	if failures < 4 {
		t.Fatalf("Open failed %d times only", failures)
	}
	fmt.Println("failed at every descriptor:", failures)
}

// descriptors are those of this process, without the one that reads them.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			open = append(open, e.Name()+" "+target)
		}
	}
	return open
}
