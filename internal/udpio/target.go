package udpio

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Target is a destination of a Writer's datagrams in the kernel's form: it is created once and used for every
// datagram. It must not be copied while datagrams to it are queued.
type Target struct {
	name    sockaddr
	nameLen uint32
	// maxSegment is the longest segment to this destination that has not been refused yet.
	maxSegment int32
	controlLen int
	control    [targetControlSize]byte
}

// targetControlSize is the space for the source address of either family.
const targetControlSize = 48

// NewTarget returns the target for datagrams to addr through a socket of the given family. A valid local becomes the
// source address (for sockets that are bound to every address). It returns false if that family cannot reach addr.
func NewTarget(addr netip.AddrPort, local netip.Addr, v6 bool) (Target, bool) {
	t := Target{maxSegment: MaxDatagram}
	if t.nameLen = putSockaddr(&t.name, addr, v6); t.nameLen == 0 {
		return Target{}, false
	}
	if local.IsValid() {
		t.controlLen = putLocal(t.control[:], local, v6)
	}
	return t, true
}

// fill writes the target to a header; with size above 0 the send is split into segments of size bytes.
func (t *Target) fill(header *unix.Msghdr, control []byte, size int) {
	header.Name, header.Namelen = (*byte)(unsafe.Pointer(&t.name)), t.nameLen
	if size == 0 {
		header.Control = nil
		if t.controlLen > 0 {
			header.Control = &t.control[0]
		}
		header.SetControllen(t.controlLen)
		return
	}
	length := copy(control, t.control[:t.controlLen])
	length += putSegment(control[length:], size)
	header.Control = &control[0]
	header.SetControllen(length)
}
