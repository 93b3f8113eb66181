package udpio

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is one UDP socket of a Group. One goroutine may read while others write; calls of one direction exclude each
// other. Close may be called at any time and ends a blocked read.
type Conn struct {
	fd       int
	v6       bool // family of the socket; an IPv6 socket may carry IPv4 as well
	wildcard bool
	local    netip.AddrPort
	config   Config
	wake     waker
	closed   atomic.Bool

	readMu  sync.Mutex
	read    *Reader
	polls   [2]unix.PollFd // guarded by readMu, as timeout and drops
	timeout unix.Timespec
	drops   uint32 // last value of the kernel's counter, which wraps
	writeMu sync.Mutex
	write   *connWriter
	stats   connStats
}

type connStats struct {
	received, sent, sendErrors, segmented, unsegmented, truncated, dropped atomic.Uint64
}

// LocalAddr is the bound address; the port is the real one also where Config.Addr had port 0.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// Wildcard reports whether the socket is bound to every address, so that Message.Local matters.
func (c *Conn) Wildcard() bool { return c.wildcard }

// Stats returns the counters. Any goroutine may call it.
func (c *Conn) Stats() Stats {
	return Stats{
		Received: c.stats.received.Load(), Sent: c.stats.sent.Load(), SendErrors: c.stats.sendErrors.Load(),
		Segmented: c.stats.segmented.Load(), Unsegmented: c.stats.unsegmented.Load(), Truncated: c.stats.truncated.Load(), Dropped: c.stats.dropped.Load(),
	}
}

// Overflowed queries the kernel how many datagrams found the receive buffer full since the socket was opened. It costs a
// system call but nothing per datagram, for callers that do not need a current Stats.Dropped. It returns 0 after
// Close.
func (c *Conn) Overflowed() uint64 {
	c.writeMu.Lock() // excludes Close; a reader may hold readMu for long
	defer c.writeMu.Unlock()
	if c.closed.Load() {
		return 0
	}
	const meminfoDrops = 8 // SK_MEMINFO_DROPS of linux/sock_diag.h
	var info [meminfoDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(c.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < uint32(unsafe.Sizeof(info)) {
		return 0
	}
	return uint64(info[meminfoDrops])
}

// Wake ends the current or the next blocking ReadBatch, which returns ErrWoken once nothing is left to read. It does
// not interrupt a reader that stays busy, so look at the control queue after every ReadBatch. Any goroutine may call
// it; several calls before the reader notices count as one.
func (c *Conn) Wake() { c.wake.wake() }

// ReadBatch fills messages and returns how many. It waits at most wait for the first datagram (Forever: without
// limit; 0: not at all), and never for a second one; it may leave some for which there is room. It returns 0 and no error after
// the timeout, ErrWoken after Wake and net.ErrClosed after Close. A datagram longer than its buffer is cut and marked Truncated.
func (c *Conn) ReadBatch(messages []Message, wait time.Duration) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if len(messages) == 0 {
		return 0, nil
	}
	var end time.Time
	if wait > 0 {
		end = time.Now().Add(wait)
	}
	for {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		n, errno := c.receive(messages)
		switch errno {
		case 0:
			return n, nil
		case unix.EAGAIN:
		case unix.EINTR:
			continue
		default:
			return 0, fmt.Errorf("receive on %v: %w", c.local, errno)
		}
		if wait == 0 {
			return 0, nil
		}
		if wait > 0 {
			if wait = time.Until(end); wait <= 0 {
				return 0, nil
			}
		}
		woken, err := c.waitReadable(wait)
		if err != nil {
			return 0, err
		}
		if woken && !c.closed.Load() {
			return 0, ErrWoken
		}
	}
}

func (c *Conn) receive(messages []Message) (int, unix.Errno) {
	n, errno := c.read.receive(c.fd, messages)
	if errno != 0 {
		return 0, errno
	}
	for i := range n {
		c.take(&messages[i], i)
	}
	c.stats.received.Add(uint64(n))
	return n, 0
}

// take is Reader.take and updates the counters.
func (c *Conn) take(m *Message, i int) {
	drops, ok := c.read.take(m, i)
	if m.Truncated {
		c.stats.truncated.Add(1)
	}
	if ok && drops != c.drops {
		c.stats.dropped.Add(uint64(drops - c.drops))
		c.drops = drops
	}
}

func (c *Conn) waitReadable(wait time.Duration) (woken bool, err error) {
	c.polls[0] = unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN}
	c.polls[1] = unix.PollFd{Fd: int32(c.wake.fd), Events: unix.POLLIN}
	timeout := unsafe.Pointer(nil)
	if wait > 0 {
		c.timeout = unix.NsecToTimespec(int64(wait))
		timeout = unsafe.Pointer(&c.timeout)
	}
	_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&c.polls[0])), 2, uintptr(timeout), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return false, fmt.Errorf("poll %v: %w", c.local, errno)
	}
	if errno == 0 && c.polls[1].Revents != 0 {
		c.wake.seen()
		return true, nil
	}
	return false, nil
}

// Close ends a blocked read and frees the socket. A second call returns net.ErrClosed.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	c.wake.wake()
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	err := unix.Close(c.fd)
	c.wake.close()
	return err
}
