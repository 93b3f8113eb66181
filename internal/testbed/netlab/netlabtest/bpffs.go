package netlabtest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BPFFS mounts a bpf file system for the length of the test.
func BPFFS(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weirbpf")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Unmount(dir, unix.MNT_DETACH)
		os.Remove(dir)
	})
	return dir
}
