package ebpf

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A trace waits while somebody holds a pin path whose tables are not there yet, and no longer.
func TestAwaitWaitsForAStart(t *testing.T) {
	dir := t.TempDir()
	never := func() { t.Error("waits where no program starts") }
	if err := Await(t.Context(), dir, never); err != nil {
		t.Error(err)
	}
	if err := Await(t.Context(), dir+"/none", never); err != nil {
		t.Error(err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	calls := 0
	release := func() {
		calls++
		unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	}
	if err := Await(t.Context(), dir, release); err != nil || calls != 1 {
		t.Errorf("%v, called %d times", err, calls)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := Await(ctx, dir, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt ends it with %v", err)
	}
}
