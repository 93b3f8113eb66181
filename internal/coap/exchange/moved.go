package exchange

import (
	"encoding/binary"
	"time"
)

// What moves of a session to another server, with its version in front:
//
//	1 │ started │ message id (2) │ for each remembered message id, the oldest first:
//	    id (2) │ how │ seconds it is remembered for (2) │ length of the answer (2) │ answer
//
// All integers are little-endian.
const (
	movedVersion = 1
	movedHead    = 4
	movedEntry   = 7
)

// Export appends to b, in at most room bytes, what a session of another Endpoint needs: the message ids of both sides, and the answers to
// unsafe requests, the newest first where not all fit. ready: no message of the session is pending.
func (e *Endpoint) Export(s *Session, b []byte, room int, now time.Duration) (out []byte, ready bool) {
	ready = s.pending == 0 && s.outstanding == 0 && !s.probing
	if room < movedHead {
		return b, ready
	}
	b = append(b, movedVersion, 0)
	if s.started {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint16(b, s.mid)
	if s.ring == nil {
		return b, ready
	}
	var slots [Ring]int // that go with it, the newest first
	var answers [Ring][]byte
	n, left := 0, room-movedHead
	for back := range Ring {
		slot := (int(s.ring.next) + Ring - 1 - back) % Ring
		if s.ring.remembered(slot, now) == 0 || left < movedEntry {
			continue
		}
		left -= movedEntry
		slots[n] = slot
		n++
	}
	for i, slot := range slots[:n] {
		if s.ring.how[slot] != memoryStored {
			continue
		}
		if answer := e.stored(s, slot); len(answer) <= left {
			answers[i], left = answer, left-len(answer)
		}
	}
	for i := n - 1; i >= 0; i-- {
		b = s.ring.export(b, slots[i], answers[i], now)
	}
	return b, ready
}

// Copy is Export of what the peer is most likely to repeat: its newest message ids, each with its answer, as long as there is room. A message id
// whose answer does not fit is left out, so that its request is handled again.
func (e *Endpoint) Copy(s *Session, b []byte, room int, now time.Duration) []byte {
	if room < movedHead {
		return b
	}
	b = append(b, movedVersion, 0)
	if s.started {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint16(b, s.mid)
	if s.ring == nil {
		return b
	}
	var slots [Ring]int // that are copied, the newest first
	var answers [Ring][]byte
	n := 0
	for back, left := 0, room-movedHead; back < Ring && left >= movedEntry; back++ {
		slot := (int(s.ring.next) + Ring - 1 - back) % Ring
		if s.ring.remembered(slot, now) == 0 {
			continue
		}
		var answer []byte
		if s.ring.how[slot] == memoryStored {
			answer = e.stored(s, slot)
		}
		if movedEntry+len(answer) <= left {
			slots[n], answers[n] = slot, answer
			n++
			left -= movedEntry + len(answer)
		}
	}
	for i := n - 1; i >= 0; i-- {
		b = s.ring.export(b, slots[i], answers[i], now)
	}
	return b
}

// remembered is for how many ticks more a slot's id is remembered.
func (r *ring) remembered(slot int, now time.Duration) int32 {
	if r.until[slot] == 0 {
		return 0
	}
	return max(0, int32(r.until[slot]-uint32(now/tick)))
}

// export appends a slot.
func (r *ring) export(b []byte, slot int, answer []byte, now time.Duration) []byte {
	how := r.how[slot]
	switch {
	case how == memoryStored && len(answer) == 0:
		how = memorySilent // it is lost, or there was no room for it
	case how == memoryBegun:
		how = memoryRepeat // what it has done so far was lost
	}
	seconds := (time.Duration(r.remembered(slot, now))*tick + time.Second - 1) / time.Second
	le := binary.LittleEndian
	b = le.AppendUint16(b, r.ids[slot])
	b = append(b, byte(how))
	b = le.AppendUint16(b, uint16(min(seconds, 0xffff)))
	b = le.AppendUint16(b, uint16(len(answer)))
	return append(b, answer...)
}

// Import takes what Export has appended into a session that is new here. It reads as far as b is well formed.
func (e *Endpoint) Import(s *Session, b []byte, now time.Duration) {
	le := binary.LittleEndian
	if len(b) < movedHead || b[0] != movedVersion {
		return
	}
	s.started, s.mid = b[1]&1 != 0, le.Uint16(b[2:])
	if s.ring == nil {
		s.ring = new(ring)
	}
	s.ring.started, s.ring.mid, s.ring.log = s.started, s.mid, uint16(e.cfg.LogNumber)
	for b = b[movedHead:]; len(b) >= movedEntry; {
		id, how, lifetime, n := le.Uint16(b), memory(b[2]), time.Duration(le.Uint16(b[3:]))*time.Second, int(le.Uint16(b[5:]))
		if len(b) < movedEntry+n || how > memorySilent {
			return
		}
		answer := b[movedEntry : movedEntry+n]
		b = b[movedEntry+n:]
		slot, _ := s.ring.add(id, how, now, lifetime)
		if how != memoryStored {
			continue
		}
		s.ring.how[slot] = memorySilent
		if pos, ok := e.log.put(answer); ok && n >= 4 {
			s.ring.pos[slot], s.ring.size[slot], s.ring.how[slot] = pos, uint16(n), memoryStored
		}
	}
}
