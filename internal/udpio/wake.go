package udpio

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waker ends a wait in the kernel from another goroutine. It writes the eventfd only once until the waiter has
// noticed it.
type waker struct {
	fd      int
	pending atomic.Bool

	mu     sync.Mutex
	closed bool // fd may belong to another file; guarded by mu
}

func (w *waker) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	w.fd = fd
	return nil
}

func (w *waker) wake() {
	if !w.pending.CompareAndSwap(false, true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	one := uint64(1)
	// Fails only when 2^64-2 wake-ups are pending; the flag above allows one.
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(&one)), 8)
}

// seen re-arms the waker. The waiter looks at its queue only afterwards, so a wake-up between the two is not lost.
func (w *waker) seen() {
	var count uint64
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(w.fd), uintptr(unsafe.Pointer(&count)), 8)
	w.pending.Store(false)
}

func (w *waker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	_ = unix.Close(w.fd)
}
