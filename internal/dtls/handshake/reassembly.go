package handshake

// reassembly puts handshake messages together that come in fragments, in any
// order and more than once. It holds ahead messages of MaxMessage bytes at most.
type reassembly struct {
	next  uint16 // sequence of the message that is due
	slots [ahead]slot
}

// ahead is how many messages may be under way: more than a PSK flight has.
const ahead = 4

type slot struct {
	used   bool
	typ    byte
	epoch  uint16
	have   int // bytes
	body   []byte
	filled []uint64 // a bit per byte
}

// add takes a fragment that came in a record of this epoch. It reports false for
// one that is old, too far ahead, or at odds with what came before. A whole message
// takes the place of fragments.
func (r *reassembly) add(f *fragment, epoch uint16) bool {
	d := f.sequence - r.next
	if d >= ahead {
		return false
	}
	s := &r.slots[f.sequence%ahead]
	if !s.used || f.whole() && s.have < len(s.body) {
		*s = slot{
			used: true, typ: f.typ, epoch: epoch, body: make([]byte, f.length),
			filled: make([]uint64, (f.length+63)/64),
		}
	}
	if s.typ != f.typ || s.epoch != epoch || len(s.body) != f.length {
		return false
	}
	for i, b := range f.data {
		at := f.offset + i
		if bit := uint64(1) << (at & 63); s.filled[at>>6]&bit == 0 {
			s.filled[at>>6] |= bit
			s.body[at] = b
			s.have++
		}
	}
	return true
}

// peek returns the message that is due, if it is whole.
func (r *reassembly) peek() (typ byte, epoch uint16, body []byte, ok bool) {
	s := &r.slots[r.next%ahead]
	if !s.used || s.have != len(s.body) {
		return 0, 0, nil, false
	}
	return s.typ, s.epoch, s.body, true
}

// forget drops the message that is due: it may come again.
func (r *reassembly) forget() { r.slots[r.next%ahead] = slot{} }

// pop leaves the message that is due behind.
func (r *reassembly) pop() {
	r.slots[r.next%ahead] = slot{}
	r.next++
}
