package udpio

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poller waits for many sockets of one worker. All methods but Wake belong to one goroutine.
type Poller struct {
	fd     int
	wake   waker
	events []unix.EpollEvent
}

// wakeToken marks the poller's own eventfd; callers' tokens are smaller.
const wakeToken = ^uint64(0)

// NewPoller returns a poller that reports at most batch sockets per call.
func NewPoller(batch int) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &Poller{fd: fd, events: make([]unix.EpollEvent, batch)}
	if err := p.wake.open(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if err := p.add(p.wake.fd, wakeToken); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Add watches a socket. Wait reports token (any value except the largest) while the socket has datagrams or an error
// to read. It is level-triggered, so a reader need not read everything. A closed socket leaves the set.
func (p *Poller) Add(s *Socket, token uint64) error { return p.add(int(s.fd)-1, token) }

// AddConn watches a Conn. The worker then reads it with a wait of 0.
func (p *Poller) AddConn(c *Conn, token uint64) error { return p.add(c.fd, token) }

// AddStream watches a Stream: Wait also reports its end and its errors.
func (p *Poller) AddStream(s *Stream, token uint64) error { return p.add(s.FD(), token) }

// AwaitRoom sets whether Wait reports the token of a watched Stream also while the kernel accepts bytes to send.
func (p *Poller) AwaitRoom(s *Stream, token uint64, on bool) error {
	return p.Await(s, token, true, on)
}

// Await sets when Wait reports the token of a watched Stream: while there are bytes to read, while the kernel accepts bytes to
// send. It always reports errors.
func (p *Poller) Await(s *Stream, token uint64, read, room bool) error {
	events := uint32(0)
	if read {
		events |= unix.EPOLLIN
	}
	if room {
		events |= unix.EPOLLOUT
	}
	return p.control(unix.EPOLL_CTL_MOD, s.FD(), events, token)
}

// Remove stops watching a Stream that stays open.
func (p *Poller) Remove(s *Stream) error { return p.control(unix.EPOLL_CTL_DEL, s.FD(), 0, 0) }

func (p *Poller) add(fd int, token uint64) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, token)
}

func (p *Poller) control(op, fd int, events uint32, token uint64) error {
	event := unix.EpollEvent{Events: events, Fd: int32(token), Pad: int32(token >> 32)}
	if err := unix.EpollCtl(p.fd, op, fd, &event); err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	return nil
}

// Wait writes the tokens of the ready sockets to tokens and returns how many. It waits like ReadBatch, rounded up to
// a millisecond. woken means that Wake was called.
func (p *Poller) Wait(tokens []uint64, wait time.Duration) (n int, woken bool, err error) {
	events := p.events[:min(len(p.events), len(tokens)+1)]
	r, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(milliseconds(wait)), 0, 0)
	return p.ready(tokens, events, r, errno)
}

// WaitBusy is Wait, hidden from the Go scheduler: the goroutine keeps its thread and its processor, which saves a third
// of the cost of a wake-up. It is for a worker that has just had work and expects more soon. After an empty result,
// call Wait, so that other goroutines get the processor; where there are no more processors (GOMAXPROCS) than workers,
// they wait as long. The scheduler's signal ends the wait, so that a garbage collection need not wait.
//
// A wait that ends by its time before the kernel's next tick (4 ms at 250 Hz) costs a timer interrupt of its own, more
// than the busy wait saves.
func (p *Poller) WaitBusy(tokens []uint64, wait time.Duration) (n int, woken bool, err error) {
	events := p.events[:min(len(p.events), len(tokens)+1)]
	r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(milliseconds(wait)), 0, 0)
	if errno == unix.EINTR {
		runtime.Gosched() // the signal may be that of a collection, which waits for this goroutine
	}
	return p.ready(tokens, events, r, errno)
}

func (p *Poller) ready(tokens []uint64, events []unix.EpollEvent, r uintptr, errno unix.Errno) (n int, woken bool, err error) {
	if errno == unix.EINTR {
		return 0, false, nil
	}
	if errno != 0 {
		return 0, false, fmt.Errorf("epoll wait: %w", errno)
	}
	for i := range events[:r] {
		token := uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32
		if token == wakeToken {
			p.wake.seen()
			woken = true
			continue
		}
		if n < len(tokens) { // level-triggered: the next call reports the remaining ones
			tokens[n] = token
			n++
		}
	}
	return n, woken, nil
}

// Wake ends the current or the next Wait. Any goroutine may call it; after Close it does nothing.
func (p *Poller) Wake() { p.wake.wake() }

// Close closes the set, but not the sockets in it.
func (p *Poller) Close() {
	_ = unix.Close(p.fd)
	p.wake.close()
}
