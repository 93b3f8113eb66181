package udpio

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A late wake must not write to whatever has the descriptor by then.
func TestWakeAfterClose(t *testing.T) {
	var w waker
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	w.wake()
	w.seen()
	w.close()
	var inherited []int
	for range 8 {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		inherited = append(inherited, fd)
	}
	w.wake()
	for _, fd := range inherited {
		var count [8]byte
		if n, err := unix.Read(fd, count[:]); err != unix.EAGAIN {
			t.Errorf("descriptor %d was written to: %d bytes, %v", fd, n, err)
		}
	}
}
