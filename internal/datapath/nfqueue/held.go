package nfqueue

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// heldBytes is how many bytes of a held fragment are kept: the IP header with the addresses.
const heldBytes = 40

// none marks the end of a list.
const none = int32(-1)

// heldFragment is a fragment whose verdict waits. The packet stays in the kernel; heldFragment has what is needed to decide
// it again.
type heldFragment struct {
	packet packet.Packet
	header [heldBytes]byte
	id     uint32
	on     uint32 // interface
	next   int32  // next fragment of the datagram, or next free element
}

// heldDatagram is the list of held fragments of one datagram, in order of arrival.
type heldDatagram struct {
	key         flow.FragmentKey
	first, last int32
	until       time.Duration
	older, next int32 // neighbours in the order of expiry; next also links free elements
}

// held keeps the early fragments of one queue. The Engine bounds their number and their time (limits.held_fragments,
// held_per_datagram, fragment_ttl), and the slabs here have the corresponding sizes. When the Engine evicts a datagram that
// waits (see flow.Fragments), its held fragments are dropped and counted in evicted.
type held struct {
	ttl                    time.Duration
	fragments              []heldFragment
	datagrams              []heldDatagram
	byKey                  map[flow.FragmentKey]int32
	freeFragment, freeGram int32
	oldest, newest         int32
	count                  int
	on                     uint32 // interface of the fragment that is being added or removed
	released, expired      uint64
	abandoned              uint64 // dropped because the rest of the datagram was dropped, or at shutdown
	evicted                uint64 // dropped to make room for others
}

func newHeld(limit int, ttl time.Duration) *held {
	h := &held{
		ttl: ttl, fragments: make([]heldFragment, limit), datagrams: make([]heldDatagram, limit),
		byKey: make(map[flow.FragmentKey]int32, limit), oldest: none, newest: none, freeFragment: none, freeGram: none,
	}
	for i := limit - 1; i >= 0; i-- {
		h.fragments[i].next, h.freeFragment = h.freeFragment, int32(i)
		h.datagrams[i].next, h.freeGram = h.freeGram, int32(i)
	}
	return h
}

// add holds a fragment that arrived at now. It returns false when there is no room.
func (h *held) add(p *packet.Packet, id uint32, now time.Duration) bool {
	at := h.freeFragment
	if at == none {
		return false
	}
	gram, known := h.byKey[p.Fragment]
	if !known {
		gram = h.freeGram // never none: there are as many as fragments
		d := &h.datagrams[gram]
		h.freeGram = d.next
		*d = heldDatagram{key: p.Fragment, first: none, last: none}
		h.byKey[p.Fragment] = gram
	} else {
		h.unlink(gram)
	}
	h.append(gram, now+h.ttl)

	f := &h.fragments[at]
	h.freeFragment, f.next = f.next, none
	f.packet, f.id, f.on = *p, id, h.on
	f.packet.Data = f.header[:copy(f.header[:], p.Data)]
	d := &h.datagrams[gram]
	if d.last == none {
		d.first = at
	} else {
		h.fragments[d.last].next = at
	}
	d.last = at
	h.count++
	return true
}

// take removes the fragments of a datagram and passes each to each, in order of arrival. each must not use the held.
func (h *held) take(key flow.FragmentKey, each func(p *packet.Packet, id uint32)) int {
	gram, known := h.byKey[key]
	if !known {
		return 0
	}
	return h.empty(gram, each)
}

// expire calls take for every datagram whose time is over at now.
func (h *held) expire(now time.Duration, each func(p *packet.Packet, id uint32)) int {
	n := 0
	for h.oldest != none && h.datagrams[h.oldest].until <= now {
		n += h.empty(h.oldest, each)
	}
	return n
}

func (h *held) empty(gram int32, each func(p *packet.Packet, id uint32)) int {
	d := &h.datagrams[gram]
	n := 0
	for at := d.first; at != none; n++ {
		f := &h.fragments[at]
		h.on = f.on
		each(&f.packet, f.id)
		next := f.next
		f.next, h.freeFragment = h.freeFragment, at
		at = next
	}
	h.count -= n
	h.unlink(gram)
	delete(h.byKey, d.key)
	d.next, h.freeGram = h.freeGram, gram
	return n
}

// append puts a datagram at the end of the order of expiry. All datagrams live equally long, so this keeps the order.
func (h *held) append(gram int32, until time.Duration) {
	d := &h.datagrams[gram]
	d.until, d.older, d.next = until, h.newest, none
	if h.newest == none {
		h.oldest = gram
	} else {
		h.datagrams[h.newest].next = gram
	}
	h.newest = gram
}

func (h *held) unlink(gram int32) {
	d := &h.datagrams[gram]
	if d.older == none {
		h.oldest = d.next
	} else {
		h.datagrams[d.older].next = d.next
	}
	if d.next == none {
		h.newest = d.older
	} else {
		h.datagrams[d.next].older = d.older
	}
}

// next returns the time at which the first datagram expires.
func (h *held) next() (time.Duration, bool) {
	if h.oldest == none {
		return 0, false
	}
	return h.datagrams[h.oldest].until, true
}
