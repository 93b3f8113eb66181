package arena

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The monotonic clock counts, unless it cannot be right.
func TestElapsed(t *testing.T) {
	const s, day = int64(time.Second), 24 * int64(time.Hour)
	for name, c := range map[string]struct{ monotonic, wall, want int64 }{
		"as ever":                     {30 * s, 30 * s, 30 * s},
		"the wall clock set forward":  {30 * s, day, 30 * s},
		"the wall clock set back":     {30 * s, -day, 0},
		"the monotonic clock forward": {day, 30 * s, 30 * s},
		"the monotonic clock back":    {-day, 30 * s, 30 * s},
		"both back":                   {-day, -day, 0},
		"a clock that is adjusted":    {100 * s, 95 * s, 100 * s},
	} {
		if got := elapsedBy(c.monotonic, c.wall); got != c.want {
			t.Errorf("%s: %v, want %v", name, time.Duration(got), time.Duration(c.want))
		}
	}
}

// The time of an arena goes on in a process whose monotonic clock is another one.
func TestClockMoved(t *testing.T) {
	for name, moved := range map[string]time.Duration{"forward": 48 * time.Hour, "back": -48 * time.Hour, "not": 0} {
		a, err := New(Config{Slots: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(a.File().Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		a.header.start -= int64(time.Hour) // it was made an hour ago
		a.startClock()
		before := time.Since(a.Start())
		a.Seen(before)
		for range 2 { // processes
			a.header.start -= int64(moved) // as if the clock had been moved
			a.header.sum = a.header.checksum()
			a.Close()
			again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				t.Fatal(err)
			}
			if a, _, err = Open(Config{Slots: 1}, os.NewFile(uintptr(again), "arena"), nil); err != nil {
				t.Fatal(err)
			}
			if now := time.Since(a.Start()); now < before || now > before+time.Minute {
				t.Errorf("%s: it is %v since the arena was made, and was %v", name, now, before)
			}
			a.Seen(time.Since(a.Start()))
		}
		a.Close()
		_ = unix.Close(fd)
	}
}
