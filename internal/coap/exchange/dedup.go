package exchange

import (
	"sync/atomic"
	"time"
)

// Ring is how many of a peer's message ids are remembered; the oldest make room.
const Ring = 32

// memory is what to do with a duplicate.
type memory uint8

const (
	memoryRepeat memory = iota // execute again: the request was safe
	memoryStored               // answer as before, from the log
	memoryAck                  // acknowledge again: separate response, or a response of the peer
	memorySilent               // drop: a Non, or its answer could not be stored
	memoryBegun                // the Handler has not returned yet
)

// ring holds recent message ids. The ids are adjacent in memory, so that a look-up reads one cache line of them.
type ring struct {
	ids   [Ring]uint16
	until [Ring]uint32 // in ticks of now, rounded up; 0 for an unused slot
	pos   [Ring]uint32 // in the log, in units of logUnit
	size  [Ring]uint16
	how   [Ring]memory
	next  uint8

	// Of the session, for the process after this one: see Endpoint.Adopt.
	started bool
	mid     uint16 // the newest message id towards the peer
	log     uint16 // in whose log pos is
}

// tick is the unit in which the ring counts time, so that 32 bits last for years.
const tick = 1 << 26 * time.Nanosecond

// find returns the slot of a live id, or -1.
func (r *ring) find(id uint16, now time.Duration) int {
	at := uint32(now / tick)
	for i, have := range r.ids {
		if have == id && r.until[i] != 0 && int32(r.until[i]-at) > 0 {
			return i
		}
	}
	return -1
}

// add puts id into the oldest slot. early: that removed an id whose lifetime was not over.
func (r *ring) add(id uint16, how memory, now, lifetime time.Duration) (slot int, early bool) {
	slot = int(r.next)
	r.next = (r.next + 1) % Ring
	early = r.until[slot] != 0 && int32(r.until[slot]-uint32(now/tick)) > 0
	r.ids[slot], r.how[slot], r.size[slot] = id, how, 0
	r.until[slot] = max(1, uint32((now+lifetime)/tick)+1)
	return slot, early
}

// live reports whether the lifetime of an id is not over.
func (r *ring) live(now time.Duration) bool {
	at := uint32(now / tick)
	for _, until := range r.until {
		if until != 0 && int32(until-at) > 0 {
			return true
		}
	}
	return false
}

// logUnit is the alignment of stored answers; positions of 32 bits then reach 64 GiB back, far more than a lifetime writes.
const logUnit = 16

// answerLog stores answers one after the other and overwrites the oldest ones: no list, no search, bounded by its size.
type answerLog struct {
	buf  []byte
	head *uint64 // bytes ever written, a multiple of logUnit
}

func newAnswerLog(size int) answerLog {
	return answerLog{buf: make([]byte, size/logUnit*logUnit), head: new(uint64)}
}

// put copies answer into the log; ok is false when it can never fit.
func (l *answerLog) put(answer []byte) (pos uint32, ok bool) {
	need := uint64(len(answer)+logUnit-1) / logUnit * logUnit
	size := uint64(len(l.buf))
	if need > size || len(answer) > 0xffff {
		return 0, false
	}
	at := *l.head
	if at%size+need > size { // answers do not wrap: skip the rest
		at += size - at%size
	}
	atomic.StoreUint64(l.head, at+need) // first: whatever the copy overwrites is too old from here on, also for the next process
	copy(l.buf[at%size:], answer)
	return uint32(at / logUnit), true
}

// get returns a stored answer, or nil when it was overwritten.
func (l *answerLog) get(pos uint32, size uint16) []byte {
	age := uint64(uint32(*l.head/logUnit)-pos) * logUnit
	if age == 0 || age > min(uint64(len(l.buf)), *l.head) {
		return nil
	}
	start := (*l.head - age) % uint64(len(l.buf))
	if start+uint64(size) > uint64(len(l.buf)) { // of another process that wrote nonsense
		return nil
	}
	return l.buf[start : start+uint64(size)]
}
