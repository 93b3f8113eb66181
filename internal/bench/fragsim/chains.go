package fragsim

import "time"

// chains is nfqlb's table as its description has it. Slot i < size is the head
// of chain i, the others are the pool of extra buckets.
type chains struct {
	ttl     time.Duration
	size    uint64
	slots   []link
	free    int32 // first of the pool's unused slots, linked by next; none: -1
	extra   int   // slots of the pool in use
	highest int
	live    int // entries held, stale ones included
	peak    int

	collisions, rejected, reclaimed uint64
}

type link struct {
	touched time.Duration
	id      uint64
	next    int32 // -1: end
	used    bool
}

func newChains(size, buckets int, ttl time.Duration) *chains {
	c := &chains{ttl: ttl, size: uint64(size), slots: make([]link, size+buckets), free: -1}
	for i := range c.slots {
		c.slots[i].next = -1
	}
	for i := size + buckets - 1; i >= size; i-- {
		c.slots[i].next, c.free = c.free, int32(i)
	}
	return c
}

// djb2Zeros is djb2 over the 32 zero bytes of both addresses; a test counts it out.
const djb2Zeros uint32 = 3911903493

// hash is djb2 over the 40-byte key: addresses of zeros, then the id as the
// 64-bit little-endian machine keeps it.
func hash(id uint64) uint32 {
	h := djb2Zeros
	for range 8 {
		h = h*33 + uint32(id&0xff)
		id >>= 8
	}
	return h
}

// insert adds the datagram; it says whether there was room.
func (c *chains) insert(id uint64, now time.Duration) bool {
	at := int32(uint64(hash(id)) % c.size)
	c.sweep(at, now)
	head := &c.slots[at]
	for i := at; i >= 0; i = c.slots[i].next {
		if s := &c.slots[i]; s.used && s.id == id {
			s.touched = now
			return true
		}
	}
	if head.used || head.next >= 0 {
		c.collisions++
	}
	if !head.used {
		head.used, head.id, head.touched = true, id, now
		c.grow()
		return true
	}
	if c.free < 0 {
		c.rejected++
		return false
	}
	i := c.free
	s := &c.slots[i]
	c.free = s.next
	*s = link{touched: now, id: id, next: head.next, used: true}
	head.next = i
	c.extra++
	c.highest = max(c.highest, c.extra)
	c.grow()
	return true
}

func (c *chains) grow() {
	c.live++
	c.peak = max(c.peak, c.live)
}

// sweep reclaims what is stale in one chain: the only time it happens.
func (c *chains) sweep(at int32, now time.Duration) {
	head := &c.slots[at]
	if head.used && now-head.touched > c.ttl {
		head.used = false
		c.live--
		c.reclaimed++
	}
	for from := &head.next; *from >= 0; {
		i := *from
		s := &c.slots[i]
		if now-s.touched <= c.ttl {
			from = &s.next
			continue
		}
		*from = s.next
		*s = link{next: c.free}
		c.free = i
		c.extra--
		c.live--
		c.reclaimed++
	}
}

// finish sweeps every chain and returns how many stale entries were found.
func (c *chains) finish(now time.Duration) (stale uint64) {
	before := c.reclaimed
	for at := range int32(c.size) {
		c.sweep(at, now)
	}
	return c.reclaimed - before
}
