package udpio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// HeadSize is the space in bytes for what a Writer puts before a datagram's body.
const HeadSize = 4

// Writer sends datagrams of one worker through many sockets. The datagrams are in Queues, one for each socket, and point into
// the buffers into which they were read: nothing is copied. Runs of equal target and length are sent as one segmented send.
// It belongs to one goroutine. Conn.WriteBatch writes with a Writer of its own.
type Writer struct {
	pool    []datagram
	used    int
	headers []mmsghdr
	counts  []int32 // number of datagrams in each header
	iovecs  []unix.Iovec
	control []byte
	stats   WriterStats
}

// WriterStats counts what a Writer did.
type WriterStats struct {
	Sent      uint64 // datagrams given to the kernel
	Refused   uint64 // datagrams that the kernel refused: no route, no room, not permitted
	Calls     uint64 // system calls
	Segmented uint64 // sends that carried more than one datagram
}

// datagram is an entry of a queue.
type datagram struct {
	to   *Target
	body []byte
	next int32
	head [HeadSize]byte
	lead uint8 // bytes of head
	// segment, if not 0, is the length of each of the datagrams that body contains back to back.
	segment int
}

func (d *datagram) size() int { return int(d.lead) + len(d.body) }

// Queue is the queue of one socket. The zero Queue is empty.
type Queue struct{ first, last, n int32 }

// Len returns the number of queued datagrams.
func (q *Queue) Len() int { return int(q.n) }

const (
	// writerHeaders is the maximum number of sends in one system call.
	writerHeaders = 64
	// writerIovecs is enough for one run of the maximum length.
	writerIovecs = 8 * MaxSegments
)

// NewWriter returns a writer with space for room queued datagrams.
func NewWriter(room int) *Writer { return newWriter(room, writerHeaders, writerIovecs) }

func newWriter(room, headers, iovecs int) *Writer {
	return &Writer{
		pool: make([]datagram, room), headers: make([]mmsghdr, headers), counts: make([]int32, headers),
		iovecs: make([]unix.Iovec, iovecs), control: make([]byte, headers*writeControlSize),
	}
}

// Room returns how many datagrams can be added before the next Reset.
func (w *Writer) Room() int { return len(w.pool) - w.used }

// Stats returns the counters.
func (w *Writer) Stats() WriterStats { return w.stats }

// Add queues a datagram that consists of the body alone. The caller has checked Room, and must not change the body
// and the target until the queue is flushed.
func (w *Writer) Add(q *Queue, to *Target, body []byte) {
	d := w.add(q)
	d.to, d.body, d.lead, d.segment = to, body, 0, 0
}

// AddHead is Add for a datagram that begins with head.
func (w *Writer) AddHead(q *Queue, to *Target, head [HeadSize]byte, body []byte) {
	d := w.add(q)
	d.to, d.body, d.head, d.lead, d.segment = to, body, head, HeadSize, 0
}

func (w *Writer) add(q *Queue) *datagram {
	i := int32(w.used)
	w.used++
	d := &w.pool[i]
	if q.n == 0 {
		q.first = i
	} else {
		w.pool[q.last].next = i
	}
	q.last = i
	q.n++
	return d
}

// Reset frees the space of all datagrams. Every queue must be flushed or dropped before.
func (w *Writer) Reset() { w.used = 0 }

// FlushConn sends the datagrams of q through a Conn. No other goroutine may write to the Conn.
func (w *Writer) FlushConn(c *Conn, q *Queue) (refused int) { return w.flush(c.fd, q) }

// Flush sends the datagrams of q and empties it. It never waits: what the kernel refuses is dropped and counted. It
// returns how many were dropped.
func (w *Writer) Flush(s *Socket, q *Queue) (refused int) { return w.flush(int(s.fd)-1, q) }

func (w *Writer) flush(fd int, q *Queue) (refused int) {
	at, left := q.first, int(q.n)
	*q = Queue{}
	sent := 0
	for left > 0 {
		headers, errno := w.send(fd, at, left)
		if headers == 0 {
			n := int(w.counts[0])
			if n > 1 && refusesSegments(errno) {
				w.shrink(w.pool[at].to, w.pool[at].size(), errno)
				continue // send the same datagrams again, in shorter segments or one by one
			}
			if errno == unix.EINTR || errno == unix.ECONNREFUSED { // ECONNREFUSED is a response to an earlier datagram
				if n, errno = w.retry(fd), 0; n == 0 {
					n = int(w.counts[0])
					refused += n
				} else {
					sent += n
				}
			} else {
				refused += n
			}
			at, left = w.skip(at, n), left-n
			continue
		}
		for _, n := range w.counts[:headers] {
			if n > 1 {
				w.stats.Segmented++
			}
			sent += int(n)
			at, left = w.skip(at, int(n)), left-int(n)
		}
	}
	w.stats.Sent += uint64(sent)
	w.stats.Refused += uint64(refused)
	return refused
}

// retry sends the first header again and returns how many datagrams were sent.
func (w *Writer) retry(fd int) int {
	w.stats.Calls++
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&w.headers[0])), 1, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 || n == 0 {
		return 0
	}
	return int(w.counts[0])
}

// skip returns the datagram n positions after at.
func (w *Writer) skip(at int32, n int) int32 {
	for range n {
		at = w.pool[at].next
	}
	return at
}

// shrink records that segments of size were refused on the path to t.
func (w *Writer) shrink(t *Target, size int, errno unix.Errno) {
	t.maxSegment = maxSegmentAfter(size, errno)
}

// maxSegmentAfter returns the longest segment that may succeed after segments of size were refused.
func maxSegmentAfter(size int, errno unix.Errno) int32 {
	if errno == unix.EIO {
		return 0 // the device does not support segmentation
	}
	return int32(size - 1) // longer than the path MTU; shorter ones may succeed
}

// send makes one system call with as many of the left datagrams, starting at at, as it can carry. It returns how many
// headers were sent, and an error only if the first was not; counts holds the number of datagrams in each header.
func (w *Writer) send(fd int, at int32, left int) (sent int, errno unix.Errno) {
	headers, iov := 0, 0
	for left > 0 && headers < len(w.headers) {
		run, next, used := w.run(at, left, headers, iov)
		if run == 0 {
			break
		}
		w.counts[headers] = int32(run)
		headers++
		iov += used
		at, left = next, left-run
	}
	w.stats.Calls++
	// A raw system call: it never blocks, so the scheduler need not know about it.
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&w.headers[0])), uintptr(headers), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// run fills header h, with iovecs from iov on, with the datagrams from at on that can be sent as one send. It returns
// how many, the datagram after them, and the iovecs used; 0 means that the iovecs do not suffice for one.
func (w *Writer) run(at int32, left, h, iov int) (n int, next int32, used int) {
	first := &w.pool[at]
	size := first.size()
	limit := 1
	if size > 0 && size <= int(first.to.maxSegment) && first.segment == 0 {
		limit = min(left, MaxSegments, MaxDatagram/size)
	}
	next = at
	start := iov
	for n < limit || n == 0 {
		d := &w.pool[next]
		length := d.size()
		if n > 0 && (d.to != first.to || length > size || length == 0 || d.segment != 0) || iov+2 > len(w.iovecs) {
			break
		}
		if d.lead > 0 {
			w.iovecs[iov].Base = &d.head[0]
			w.iovecs[iov].SetLen(int(d.lead))
			iov++
		}
		w.iovecs[iov].Base = unsafe.SliceData(d.body)
		w.iovecs[iov].SetLen(len(d.body))
		iov++
		n++
		next = d.next
		if length < size { // only the last segment may be shorter
			break
		}
	}
	if n == 0 {
		return 0, at, 0
	}
	header := &w.headers[h].Hdr
	header.Iov = &w.iovecs[start]
	header.SetIovlen(iov - start)
	if n == 1 {
		size = 0
		if first.segment < len(first.body) {
			size = first.segment
		}
	}
	first.to.fill(header, w.control[h*writeControlSize:(h+1)*writeControlSize], size)
	return n, next, iov - start
}
