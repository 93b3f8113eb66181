package engine

import (
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/weir-lb/weir/internal/udpio"
)

// What a worker has read and not handled yet, and what it has sealed and not sent yet, is in memory that outlives the process
// (Config.InFlight). The next process sends the latter and handles the former, so that of all datagrams that a killed process had read, one
// for each worker at most is lost: the one in whose middle it ended.
//
//	journal of the datagrams read (udpio.ReadJournal) │ header │ entries of datagrams to send │ buffers to send from
//
// How many datagrams are to be sent is stored behind each of them, and set to 0 when they are sent. A process that is killed in between
// leaves some that are sent twice: the same bytes, which the client's replay window drops.
//
// The replay windows of the sessions say what was opened already (kept.go), so nothing is handled twice.
type inFlight struct {
	read    *udpio.ReadJournal
	header  *inFlightHeader
	leaving []inFlightEntry
	out     []byte
}

type inFlightHeader struct {
	layout uint64 // inFlightLayout of the process that uses it
	queued uint64 // datagrams to send
}

// inFlightEntry is where a datagram is, and where it goes to.
type inFlightEntry struct {
	at, n       uint32 // of the datagram in the buffers
	addr, local [16]byte
	port        uint16
	flags       uint16
}

// Flags of an inFlightEntry: what its addresses are.
const (
	inFlightMapped = 1 << iota // addr is of IPv4
	inFlightLocal              // local is there
	inFlightLocalMapped
)

const (
	inFlightVersion = 1
	inFlightPage    = 4096
)

// inFlightLayout is another number for memory of another form.
func inFlightLayout(batch int) uint64 {
	return inFlightVersion<<56 | uint64(unsafe.Sizeof(inFlightEntry{}))<<48 | uint64(batch)<<32 | sendSize
}

func inFlightSizes(batch int) (read, entries, out int) {
	pages := func(n int) int { return (n + inFlightPage - 1) / inFlightPage * inFlightPage }
	return udpio.ReadJournalBytes(batch, receiveSize), pages(int(unsafe.Sizeof(inFlightHeader{})) + (batch+inHand)*int(unsafe.Sizeof(inFlightEntry{}))), pages((batch + inHand) * sendSize)
}

// InFlightBytes is the length of Config.InFlight for so many workers, whose Config.Batch is the default.
func InFlightBytes(workers int) int {
	read, entries, out := inFlightSizes(defaultBatch)
	return workers * (read + entries + out)
}

// openInFlight returns the part of a worker; nil without memory, or if it is too short.
func openInFlight(memory []byte, worker, batch int) *inFlight {
	read, entries, out := inFlightSizes(batch)
	size := read + entries + out
	if len(memory) < (worker+1)*size {
		return nil
	}
	memory = memory[worker*size : (worker+1)*size]
	rest := memory[read:]
	return &inFlight{
		read:    udpio.OpenReadJournal(memory[:read], batch, receiveSize),
		header:  (*inFlightHeader)(unsafe.Pointer(&rest[0])),
		leaving: unsafe.Slice((*inFlightEntry)(unsafe.Pointer(&rest[unsafe.Sizeof(inFlightHeader{})])), batch+inHand),
		out:     rest[entries:],
	}
}

// leftOver is what the process before has left, copied.
type leftOver struct{ arrived, leaving []udpio.Message }

// take returns what is left, and empties the memory for this process.
func (f *inFlight) take(batch int) (left leftOver) {
	left.arrived = f.read.Left()
	if f.header.layout == inFlightLayout(batch) {
		for i := range min(f.header.queued, uint64(len(f.leaving))) {
			left.leaving = f.leaving[i].appendTo(left.leaving, f.out)
		}
	}
	*f.header = inFlightHeader{layout: inFlightLayout(batch)}
	return left
}

// sends stores that a datagram in the buffers is the n-th one to send.
func (f *inFlight) sends(datagram []byte, to netip.AddrPort, local netip.Addr, n int) {
	if n > len(f.leaving) {
		return
	}
	f.leaving[n-1].set(datagram, f.out, to, local)
	atomic.StoreUint64(&f.header.queued, uint64(n))
}

// sent stores that nothing is to be sent.
func (f *inFlight) sent() { atomic.StoreUint64(&f.header.queued, 0) }

func (e *inFlightEntry) set(datagram, buffers []byte, addr netip.AddrPort, local netip.Addr) {
	e.at = uint32(uintptr(unsafe.Pointer(unsafe.SliceData(datagram))) - uintptr(unsafe.Pointer(&buffers[0])))
	e.n, e.addr, e.port, e.flags = uint32(len(datagram)), addr.Addr().As16(), addr.Port(), 0
	if addr.Addr().Is4() {
		e.flags |= inFlightMapped
	}
	if local.IsValid() {
		e.local = local.As16()
		if e.flags |= inFlightLocal; local.Is4() {
			e.flags |= inFlightLocalMapped
		}
	}
}

// appendTo appends a copy of the datagram. One that is not in the buffers is left out.
func (e *inFlightEntry) appendTo(all []udpio.Message, buffers []byte) []udpio.Message {
	if uint64(e.at)+uint64(e.n) > uint64(len(buffers)) || e.n == 0 || e.n > sendSize {
		return all
	}
	m := udpio.Message{Buf: append([]byte(nil), buffers[e.at:e.at+e.n]...), N: int(e.n)}
	address := func(b [16]byte, is4 bool) netip.Addr {
		if is4 {
			return netip.AddrFrom16(b).Unmap()
		}
		return netip.AddrFrom16(b)
	}
	m.Addr = netip.AddrPortFrom(address(e.addr, e.flags&inFlightMapped != 0), e.port)
	if e.flags&inFlightLocal != 0 {
		m.Local = address(e.local, e.flags&inFlightLocalMapped != 0)
	}
	return append(all, m)
}
