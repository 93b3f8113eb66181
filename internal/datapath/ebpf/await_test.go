package ebpf

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A trace waits while somebody holds a pin path whose tables are not there yet, and no longer.
func TestAwaitWaitsForAStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { awaitStart(t, dir) })
}

func awaitStart(t *testing.T, dir string) {
	t.Helper()
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

// A trace that begins before the weir that starts has its pin path waits for it; one without any weir says so after a second; one
// whose weir gives up while it starts says so at once.
func TestAwaitAStartOfThisInstant(t *testing.T) {
	for name, c := range map[string]struct{ starts, told bool }{"a start": {true, true}, "none": {false, false}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pins")
			synctest.Test(t, func(t *testing.T) {
				begun, told := time.Now(), false
				ended := make(chan error)
				go func() { ended <- Await(t.Context(), path, func() { told = true }) }()
				synctest.Wait() // it has looked, and waits
				if c.starts {
					if err := os.Mkdir(path, 0o700); err != nil {
						t.Fatal(err)
					}
					held, err := os.Open(path)
					if err != nil {
						t.Fatal(err)
					}
					if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second)
					synctest.Wait()
					select {
					case err := <-ended:
						t.Fatalf("it did not wait for the start: %v", err)
					default:
					}
					held.Close()
				}
				err := <-ended
				if took := time.Since(begun); err != nil || told != c.told || !c.starts && took != time.Second || c.starts && took > 5200*time.Millisecond {
					t.Errorf("%v after %v, told %v", err, took, told)
				}
			})
		})
	}
}
