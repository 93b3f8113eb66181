package udpio

import (
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendTimeout is how long a write waits for space in a full send buffer.
const sendTimeout = 10 * time.Millisecond

// connWriter writes the messages of a Conn with a Writer. It is guarded by writeMu.
type connWriter struct {
	*Writer
	targets []Target // of the messages of one system call
	polls   [1]unix.PollFd
	// maxSegment is the longest segment for destinations without a limit of their own; 0 stops segmentation.
	maxSegment int32
	// limits are of the destinations for which the kernel has refused segments, limited of them.
	limits  [maxSegmentLimits]segmentLimit
	limited int
	// refused is the error with which the next run was refused as segments, 0 if it was not tried. Its first message
	// is then sent alone, which shows whether the segments or the address are at fault.
	refused unix.Errno
}

// maxSegmentLimits is how many destinations a Conn remembers for which the kernel refuses segments. Further ones limit all.
const maxSegmentLimits = 8

type segmentLimit struct {
	to         netip.AddrPort
	maxSegment int32
}

// limit returns the longest segment to a destination that the kernel has not refused yet.
func (w *connWriter) limit(to netip.AddrPort) int32 {
	for i := range w.limits[:w.limited] {
		if w.limits[i].to == to {
			return min(w.limits[i].maxSegment, w.maxSegment)
		}
	}
	return w.maxSegment
}

// setLimit records the longest segment that may succeed after the kernel has refused one to that destination.
func (w *connWriter) setLimit(to netip.AddrPort, maxSegment int32) {
	for i := range w.limits[:w.limited] {
		if w.limits[i].to == to {
			w.limits[i].maxSegment = maxSegment
			return
		}
	}
	if w.limited == len(w.limits) {
		w.maxSegment = min(w.maxSegment, maxSegment)
		return
	}
	w.limits[w.limited] = segmentLimit{to, maxSegment}
	w.limited++
}

func newConnWriter(c *Conn) *connWriter {
	batch := c.config.Batch
	w := &connWriter{Writer: newWriter(batch, batch, batch+1), targets: make([]Target, batch), maxSegment: MaxDatagram}
	if c.config.NoSegment {
		w.maxSegment = 0
	}
	return w
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
	w := c.write
	refused := w.refused
	w.refused = 0
	if refused != 0 {
		messages = messages[:1]
	}
	queue := c.queue(messages)
	if queue.n == 0 {
		return 0, unix.EAFNOSUPPORT
	}
	headers, errno := w.Writer.send(c.fd, queue.first, int(queue.n))
	if errno != 0 {
		if w.counts[0] > 1 && refusesSegments(errno) {
			w.refused = errno
			return 0, unix.EINTR
		}
		return 0, errno
	}
	if refused != 0 {
		w.setLimit(messages[0].Addr, maxSegmentAfter(messages[0].N, refused))
		c.stats.unsegmented.Add(1)
	}
	sent := 0
	for _, n := range w.counts[:headers] {
		if n > 1 {
			c.stats.segmented.Add(1)
		}
		sent += int(n)
	}
	return sent, 0
}

// queue puts messages into a queue of the Writer: all that one system call may carry, or those before the first one
// whose address the socket cannot reach. Successive messages with equal addresses share a Target.
func (c *Conn) queue(messages []Message) (q Queue) {
	w := c.write
	w.Reset()
	var to *Target
	for i := range messages[:min(len(messages), len(w.targets))] {
		m := &messages[i]
		if i == 0 || m.Addr != messages[i-1].Addr || m.Local != messages[i-1].Local {
			to = &w.targets[i]
			if !c.target(to, m) {
				break
			}
		}
		d := w.add(&q)
		d.to, d.body, d.lead, d.segment = to, m.Buf[:m.N], 0, m.Segment
	}
	return q
}

// target sets t to the destination of a message. It returns false if the socket cannot reach it.
func (c *Conn) target(t *Target, m *Message) bool {
	t.maxSegment, t.nameLen, t.controlLen = c.write.limit(m.Addr), 0, 0
	if c.config.connected() {
		return true
	}
	if t.nameLen = putSockaddr(&t.name, m.Addr, c.v6); t.nameLen == 0 {
		return false
	}
	if c.wildcard && m.Local.IsValid() {
		t.controlLen = putLocal(t.control[:], m.Local, c.v6)
	}
	return true
}

func refusesSegments(errno unix.Errno) bool {
	return errno == unix.EINVAL || errno == unix.EMSGSIZE || errno == unix.EIO || errno == unix.EOPNOTSUPP
}

func (c *Conn) waitWritable() bool {
	w := c.write
	w.polls[0] = unix.PollFd{Fd: int32(c.fd), Events: unix.POLLOUT}
	wait := unix.NsecToTimespec(int64(sendTimeout))
	n, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.polls[0])), 1, uintptr(unsafe.Pointer(&wait)), 0, 0, 0) // arm64 has no poll
	return errno == unix.EINTR || n > 0
}
