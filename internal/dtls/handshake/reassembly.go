package handshake

// reassembly puts handshake messages together that come in fragments, in any
// order and more than once. It holds ahead messages of MaxMessage bytes at most.
type reassembly struct {
	next  uint16 // sequence of the message that is due
	slots []slot
}

// ahead is how many messages may be under way: more than a flight has.
const ahead = 8

type slot struct {
	sequence uint16
	typ      byte
	epoch    uint16
	have     int // bytes
	body     []byte
	filled   []uint64 // a bit per byte; nil: the message is whole
}

func (s *slot) whole() bool { return s.have == len(s.body) }

// size is the memory that a message of this length takes while it comes in, in bytes.
func slotSize(length int) int { return length + length/8 }

func (r *reassembly) find(sequence uint16) *slot {
	for i := range r.slots {
		if r.slots[i].sequence == sequence {
			return &r.slots[i]
		}
	}
	return nil
}

// add takes a fragment that came in a record of this epoch. It reports false for
// one that is old, too far ahead, or at odds with what came before. A whole message
// takes the place of fragments, and so does the first fragment of another one: it
// may be the peer's, and what was there a stranger's. What keys protect takes the place
// of what they do not.
func (r *reassembly) add(f *fragment, epoch uint16) bool {
	if f.sequence-r.next >= ahead {
		return false
	}
	s := r.find(f.sequence)
	if s == nil {
		r.slots = append(r.slots, slot{})
		s = &r.slots[len(r.slots)-1]
		s.begin(f, epoch)
	} else if odd := s.typ != f.typ || len(s.body) != f.length; epoch > s.epoch || epoch == s.epoch && !s.whole() && (f.whole() || odd && f.offset == 0) {
		s.begin(f, epoch)
	} else if odd || epoch < s.epoch {
		return false
	}
	s.fill(f)
	return true
}

func (s *slot) begin(f *fragment, epoch uint16) {
	*s = slot{sequence: f.sequence, typ: f.typ, epoch: epoch, body: make([]byte, f.length)}
	if !f.whole() {
		s.filled = make([]uint64, (f.length+63)/64)
	}
}

func (s *slot) fill(f *fragment) {
	if s.whole() {
		return
	}
	if s.filled == nil {
		s.have = copy(s.body, f.data)
		return
	}
	for i, b := range f.data {
		at := f.offset + i
		if bit := uint64(1) << (at & 63); s.filled[at>>6]&bit == 0 {
			s.filled[at>>6] |= bit
			s.body[at] = b
			s.have++
		}
	}
}

// held is the memory of all messages that are not popped, in bytes.
func (r *reassembly) held() (n int) {
	for i := range r.slots {
		n += slotSize(len(r.slots[i].body))
	}
	return n
}

// peek returns the message that is due, if it is whole.
func (r *reassembly) peek() (typ byte, epoch uint16, body []byte, ok bool) {
	s := r.find(r.next)
	if s == nil || !s.whole() {
		return 0, 0, nil, false
	}
	return s.typ, s.epoch, s.body, true
}

// forget drops the message that is due: it may come again.
func (r *reassembly) forget() {
	for i := range r.slots {
		if r.slots[i].sequence == r.next {
			r.slots[i] = r.slots[len(r.slots)-1]
			r.slots[len(r.slots)-1] = slot{}
			r.slots = r.slots[:len(r.slots)-1]
			return
		}
	}
}

// pop leaves the message that is due behind.
func (r *reassembly) pop() {
	r.forget()
	r.next++
}
