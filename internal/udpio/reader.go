package udpio

import (
	"net/netip"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reader reads batches of datagrams. One Reader serves many Sockets of one worker, so that the sockets need no state
// of their own; each Conn has its own. It belongs to one goroutine. It must stay on the heap, because the kernel
// writes to it during a call.
type Reader struct {
	headers []mmsghdr
	iovecs  []unix.Iovec
	names   []sockaddr
	control []byte  // readControlSize for each message, nil if no option needs control messages
	state   *uint64 // of a ReadJournal; nil without
	last    int     // how many datagrams the last call returned
}

// NewReader returns a reader of at most batch datagrams per call.
func NewReader(batch int) *Reader { return newReader(batch, true) }

// Read fills messages from s and returns how many, without waiting; more may be left, also where there is room for them. EAGAIN
// means that there is none. Other errors are bare errnos, and network errors (ECONNREFUSED …) are responses to earlier datagrams: the
// next call continues.
func (r *Reader) Read(s *Socket, messages []Message) (int, error) {
	n, errno := r.receive(int(s.fd)-1, messages)
	if errno != 0 {
		return 0, errnoErr(errno)
	}
	for i := range n {
		r.take(&messages[i], i)
	}
	return n, nil
}

// minPrepared is the minimum number of datagrams for which a read is prepared, if there is room.
const minPrepared = 8

// receive makes one system call, which does not wait. Preparing it costs time for each datagram that may come, so it is prepared
// for four times as many as came last.
func (r *Reader) receive(fd int, messages []Message) (int, unix.Errno) {
	count := min(len(messages), len(r.headers), max(4*r.last, minPrepared))
	for i := range count {
		m := &messages[i]
		h := &r.headers[i].Hdr
		r.iovecs[i].Base = unsafe.SliceData(m.Buf)
		r.iovecs[i].SetLen(len(m.Buf))
		h.Namelen = sizeofInet6
		h.Flags = 0
		if r.control != nil {
			h.Controllen = readControlSize
		}
	}
	if r.state != nil {
		for i := range count {
			r.headers[i].Len = 0
		}
		atomic.StoreUint64(r.state, journalReading|uint64(count))
	}
	// A raw system call: it never blocks, so the scheduler need not know about it.
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.headers[0])), uintptr(count), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		n = 0
	}
	r.last = int(n)
	if r.state != nil {
		atomic.StoreUint64(r.state, uint64(n))
	}
	return int(n), errno
}

// take copies what the kernel reported about datagram i into m. It returns the socket's drop counter, if it was
// included.
func (r *Reader) take(m *Message, i int) (drops uint32, ok bool) {
	h := &r.headers[i].Hdr
	m.N = int(r.headers[i].Len)
	m.Addr = getSockaddr(&r.names[i])
	m.Segment = 0
	m.Local = netip.Addr{}
	m.Truncated = h.Flags&unix.MSG_TRUNC != 0
	if r.control == nil {
		return 0, false
	}
	length := min(int(h.Controllen), readControlSize)
	drops, ok = parseControl(r.control[i*readControlSize:][:length], m)
	if m.Segment >= m.N {
		m.Segment = 0
	}
	return drops, ok
}

func newReader(batch int, control bool) *Reader {
	r := &Reader{
		headers: make([]mmsghdr, batch), iovecs: make([]unix.Iovec, batch), names: make([]sockaddr, batch),
	}
	if control {
		r.control = make([]byte, batch*readControlSize)
	}
	r.prepare(control)
	return r
}

// prepare writes what is the same in every call.
func (r *Reader) prepare(control bool) {
	for i := range r.headers {
		r.headers[i] = mmsghdr{}
		h := &r.headers[i].Hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovecs[i]
		h.SetIovlen(1)
		if control {
			h.Control = &r.control[i*readControlSize]
		}
	}
}
