package udpio

import (
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendTimeout is how long a write waits for space in a full send buffer, in milliseconds.
const sendTimeout = 10

// writeState is guarded by writeMu.
type writeState struct {
	headers []mmsghdr
	iovecs  []unix.Iovec
	names   []sockaddr
	control []byte
	counts  []int // number of messages in each header
	polls   [1]unix.PollFd
	// maxSegment is the longest segment that the kernel has not refused yet; 0 stops segmentation.
	maxSegment int
	// refused is the error with which the next run was refused as segments, 0 if it was not tried. Its first message
	// is then sent alone, which shows whether the segments or the address are at fault.
	refused unix.Errno
}

// WriteBatch sends messages in order and returns how many the kernel accepted. On an error, messages[n] was refused
// and the rest was not tried. Runs of equal address, source and length are sent as one segmented send, unless
// Config.NoSegment is set. If the send buffer is full, it waits for 10 ms at most; then the error is EAGAIN.
func (c *Conn) WriteBatch(messages []Message) (int, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	sent := 0
	for sent < len(messages) {
		if c.closed.Load() {
			return sent, net.ErrClosed
		}
		n, errno := c.send(messages[sent:])
		sent += n
		c.stats.sent.Add(uint64(n))
		switch errno {
		case 0, unix.EINTR:
		case unix.EAGAIN:
			if !c.waitWritable() {
				c.stats.sendErrors.Add(1)
				return sent, fmt.Errorf("send to %v: %w", messages[sent].Addr, errno)
			}
		default:
			c.stats.sendErrors.Add(1)
			return sent, errno // not wrapped, because wrapping would allocate for each datagram to an unreachable peer
		}
	}
	return sent, nil
}

// WriteAll sends messages in order, skips those that the kernel refuses, and returns how many it accepted.
// Stats.SendErrors counts the refused ones.
func (c *Conn) WriteAll(messages []Message) int {
	sent := 0
	for len(messages) > 0 {
		n, err := c.WriteBatch(messages)
		sent += n
		if err == nil || c.closed.Load() {
			return sent
		}
		messages = messages[n+1:]
	}
	return sent
}

// send makes one system call. It returns how many messages were sent, and an error only if the first was not.
func (c *Conn) send(messages []Message) (int, unix.Errno) {
	w := &c.write
	refused := w.refused
	w.refused = 0
	if refused != 0 {
		messages = messages[:1]
	}
	headers, used := 0, 0
	for used < len(messages) && headers < len(w.headers) {
		run := c.run(messages[used:], len(w.iovecs)-used)
		if run == 0 {
			break
		}
		if !c.fill(messages[used:used+run], headers, used) {
			if used == 0 {
				return 0, unix.EAFNOSUPPORT
			}
			break
		}
		w.counts[headers] = run
		headers++
		used += run
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&w.headers[0])), uintptr(headers), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		if w.counts[0] > 1 && refusesSegments(errno) {
			w.refused = errno
			return 0, unix.EINTR
		}
		return 0, errno
	}
	if refused != 0 {
		// The device does not support segmentation, or the segments exceed the path MTU and shorter ones may succeed.
		w.maxSegment = 0
		if refused != unix.EIO {
			w.maxSegment = messages[0].N - 1
		}
	}
	sent := 0
	for i := range int(n) {
		if w.counts[i] > 1 {
			c.stats.segmented.Add(1)
		}
		sent += w.counts[i]
	}
	return sent, 0
}

func refusesSegments(errno unix.Errno) bool {
	return errno == unix.EINVAL || errno == unix.EMSGSIZE || errno == unix.EIO || errno == unix.EOPNOTSUPP
}

// run returns how many of the messages can be sent as one segmented send, at least 1.
func (c *Conn) run(messages []Message, room int) int {
	first := &messages[0]
	if c.config.NoSegment || first.Segment != 0 || first.N == 0 || first.N > c.write.maxSegment {
		return min(1, room)
	}
	limit := min(len(messages), MaxSegments, room, MaxDatagram/first.N)
	n := 1
	for n < limit {
		m := &messages[n]
		if m.N > first.N || m.N == 0 || m.Segment != 0 || m.Addr != first.Addr || m.Local != first.Local {
			break
		}
		n++
		if m.N < first.N { // only the last segment may be shorter
			break
		}
	}
	return min(n, room)
}

// fill prepares header h, with iovecs from index iov, for a run.
func (c *Conn) fill(run []Message, h, iov int) bool {
	w := &c.write
	header := &w.headers[h].Hdr
	first := &run[0]
	header.Name, header.Namelen = nil, 0
	if !c.config.connected() {
		header.Namelen = putSockaddr(&w.names[h], first.Addr, c.v6)
		if header.Namelen == 0 {
			return false
		}
		header.Name = (*byte)(unsafe.Pointer(&w.names[h]))
	}
	for i := range run {
		w.iovecs[iov+i].Base = unsafe.SliceData(run[i].Buf)
		w.iovecs[iov+i].SetLen(run[i].N)
	}
	header.Iov = &w.iovecs[iov]
	header.SetIovlen(len(run))
	control, length := w.control[h*writeControlSize:(h+1)*writeControlSize], 0
	if c.wildcard && first.Local.IsValid() {
		length += putLocal(control, first.Local, c.v6)
	}
	if len(run) > 1 {
		length += putSegment(control[length:], first.N)
	} else if first.Segment > 0 && first.Segment < first.N {
		length += putSegment(control[length:], first.Segment)
	}
	header.Control = nil
	if length > 0 {
		header.Control = &control[0]
	}
	header.SetControllen(length)
	return true
}

func (c *Conn) waitWritable() bool {
	w := &c.write
	w.polls[0] = unix.PollFd{Fd: int32(c.fd), Events: unix.POLLOUT}
	n, _, errno := unix.Syscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&w.polls[0])), 1, sendTimeout)
	return errno == unix.EINTR || n > 0
}

func newWriteState(batch int) writeState {
	return writeState{
		headers: make([]mmsghdr, batch), iovecs: make([]unix.Iovec, batch), names: make([]sockaddr, batch),
		control: make([]byte, batch*writeControlSize), counts: make([]int, batch), maxSegment: MaxDatagram,
	}
}
