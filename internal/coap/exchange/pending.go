package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/steering/heap"
)

// kind of a pending message.
type kind uint8

const (
	kindRequest  kind = iota // of ours: ends with a response
	kindResponse             // separate response: ends with an ACK
	kindPing                 // empty Con: ends with a Rst
	kindNotify               // confirmable notification: ends with an ACK
)

// pending is a message that waits for its time of transmission, for an acknowledgement, or for a response.
type pending struct {
	session *Session
	buf     []byte
	token   []byte        // aliases buf
	first   time.Duration // time of the first transmission
	timeout time.Duration // current retransmission timeout
	id      ID
	next    int32 // next of the same session, or of the free list; -1 ends it
	mid     uint16
	repeats uint8 // retransmissions so far
	kind    kind
	con     bool
	unsent  bool // the first transmission is still to come, at due
	proof   bool // a reset of it proves the address
	acked   bool // an empty ACK came, or none is expected

	unproven  bool // see Reply.Unproven
	multicast bool // the answer to a request to a multicast group
}

// pendings is the bounded table of pending messages with its heap of due times.
type pendings struct {
	slots []pending
	due   heap.Heap[time.Duration] // slots by due time
	free  int32
	limit int
	// unproven is how many slots Reply.Unproven counts.
	unproven int
	// multicast is how many slots answer requests to multicast groups.
	multicast int
	count     uint64 // IDs given out; the upper 40 bits of an ID
}

const slotBits = 24

func newPendings(limit int) pendings { return pendings{free: -1, limit: limit} }

// take returns a slot that holds a copy of datagram and is in no list yet; nil when the table is full.
func (p *pendings) take(datagram []byte) (*pending, int32) {
	i := p.free
	switch {
	case i >= 0:
		p.free = p.slots[i].next
	case len(p.slots) < p.limit:
		i = int32(len(p.slots))
		p.slots = append(p.slots, pending{})
	default:
		return nil, -1
	}
	slot := &p.slots[i]
	buf := append(slot.buf[:0], datagram...)
	p.count++
	*slot = pending{buf: buf, next: -1, id: ID(p.count<<slotBits | uint64(i))}
	return slot, i
}

// lookup returns the slot that id names, if it is still pending.
func (p *pendings) lookup(id ID) (int32, bool) {
	i := int(id & (1<<slotBits - 1))
	return int32(i), id != 0 && i < len(p.slots) && p.slots[i].id == id
}

// attach puts slot i into its session's list and, due at due, into the heap.
func (p *pendings) attach(i int32, s *Session, due time.Duration) {
	slot := &p.slots[i]
	slot.session = s
	slot.next, s.pending = s.head(), i+1
	s.count++
	p.due.Set(i, due)
}

// release takes slot i out of its session's list and the heap.
func (p *pendings) release(i int32) {
	slot := &p.slots[i]
	s := slot.session
	s.count--
	if slot.unproven {
		p.unproven--
	}
	if slot.multicast {
		p.multicast--
	}
	if slot.proof {
		s.probing = false
	}
	if s.head() == i {
		s.pending = slot.next + 1
	} else {
		for j := s.head(); j >= 0; j = p.slots[j].next {
			if p.slots[j].next == i {
				p.slots[j].next = slot.next
				break
			}
		}
	}
	p.due.Remove(i)
	buf := slot.buf
	if cap(buf) > 2048 { // do not keep large buffers: most messages are small
		buf = nil
	}
	*slot = pending{buf: buf[:0], next: p.free}
	p.free = i
}

// reschedule moves slot i to another due time.
func (p *pendings) reschedule(i int32, due time.Duration) {
	p.due.Set(i, due)
}

// byMID returns the slot of the session's confirmable message with this message id that has been sent, or -1. A session has
// few pending messages, so this is a linear search.
func (p *pendings) byMID(s *Session, mid uint16) int32 {
	for i := s.head(); i >= 0; i = p.slots[i].next {
		if p.slots[i].mid == mid && p.slots[i].con && !p.slots[i].unsent {
			return i
		}
	}
	return -1
}

func (p *pendings) byToken(s *Session, m *message.Message) int32 {
	for i := s.head(); i >= 0; i = p.slots[i].next {
		if p.slots[i].kind == kindRequest && string(p.slots[i].token) == string(m.Token) {
			return i
		}
	}
	return -1
}
