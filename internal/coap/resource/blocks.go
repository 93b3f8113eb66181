package resource

import (
	"hash/maphash"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/heap"
)

// Bounds of transfers in blocks.
const (
	MaxTransfers     = 16384 // bodies of a Server
	TransfersPerPeer = 8     // a new one replaces the oldest
	// TransferLifetime is how long a body waits for the next block: EXCHANGE_LIFETIME of RFC 7252 section 4.8.2.
	TransferLifetime = 247 * time.Second
)

// transfer is a body in blocks: of a request that is not complete, or of an answer that must not be made again.
type transfer struct {
	session *Session
	key     uint64
	body    []byte
	renewed time.Duration // time of the latest block
	format  int           // content format of the request; -1: none
	next    int32

	answer  bool
	code    message.Code
	options options // of an answer
}

// transfers is the table of bodies. A body is evictable by the proof of its peer's address.
type transfers struct {
	slots            []transfer
	due              heap.Heap[time.Duration]
	unproven, proven evict.Order[evict.Source]
	free             int32
	count, bytes     int
}

// keyOf returns the cache key of a request (RFC 7252 section 5.4.6; RFC 7959 section 2.4; RFC 9175 section 3.3), without
// Content-Format, which clients leave out when they request the next block of an answer.
func (s *Server) keyOf(m *message.Message) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	_ = h.WriteByte(byte(m.Code)) // never fails
	for options := m.Options(); options.Next(); {
		id := options.ID()
		switch id {
		case message.Block1, message.Block2, message.Observe, message.ContentFormat, message.NoResponse:
			continue
		}
		if id&0x1e == 0x1c { // NoCacheKey
			continue
		}
		value := options.Value()
		_, _ = h.Write([]byte{byte(id >> 8), byte(id), byte(len(value) >> 8), byte(len(value))}) // never fails
		_, _ = h.Write(value)
	}
	return h.Sum64()
}

// lookup returns the transfer of a session with a key, or -1.
func (s *Server) lookup(session *Session, key uint64, answer bool) int32 {
	for _, i := range session.transfers {
		if t := &s.transfers.slots[i]; t.key == key && t.answer == answer {
			return i
		}
	}
	return -1
}

// body sets r.Body to the complete body and reports whether the method is to be called. Otherwise it has answered.
func (s *Server) body(r *Request) bool {
	m := r.Message
	if value, ok := m.Uint(message.Block1); ok {
		return s.assemble(r, value)
	}
	if len(m.Payload) > s.cfg.MaxBody && r.Session.Stream {
		s.tooLarge(r)
		return false
	}
	if block2, ok := m.Uint(message.Block2); ok && block2>>4 > 0 && !m.Code.IsSafe() && !r.resource.Repeatable {
		s.resume(r)
		return false
	}
	return true
}

// assemble handles one block of a request (RFC 7959 section 2.5).
func (s *Server) assemble(r *Request, value uint32) bool {
	number, more, exponent := int(value>>4), value&8 != 0, value&7
	payload := r.Message.Payload
	if !r.sized(exponent, more) {
		r.Error(message.BadRequest, "Block1: the payload does not have the size of the block")
		return false
	}
	r.block1 = number<<4 | int(min(exponent, r.largest()))
	size, announced := r.Message.Uint(message.Size1)
	start := number << (4 + min(exponent, maxExponent))
	if start+len(payload) > s.cfg.MaxBody || announced && size > uint32(s.cfg.MaxBody) {
		s.tooLarge(r)
		return false
	}
	if number == 0 && !more {
		return true
	}
	i := s.assembly(r, number)
	if i < 0 {
		return false
	}
	t := &s.transfers.slots[i]
	if start != len(t.body) || t.format != formatOf(r.Message) {
		s.counters.Incomplete++
		s.drop(i)
		r.Error(message.RequestEntityIncomplete, "Block1: blocks before this one are missing, or had another format")
		return false
	}
	if !s.grow(i, payload, r) {
		return false
	}
	if more {
		r.code = message.Continue
		r.reply.Begin(message.Continue).Uint(message.Block1, uint32(r.block1|8))
		return false
	}
	r.Body = t.body
	s.drop(i)
	return true
}

// sized reports whether the payload has the size of a block with this exponent. Of a message with several blocks, only the last
// one may be shorter than 1024 bytes (RFC 8323 section 6).
func (r *Request) sized(exponent uint32, more bool) bool {
	n := len(r.Message.Payload)
	switch {
	case exponent == bert && more:
		return r.Session.Stream && n > 0 && n%1024 == 0
	case exponent == bert:
		return r.Session.Stream
	case more:
		return n == 16<<exponent
	}
	return n <= 16<<exponent
}

// assembly returns the transfer that block number belongs to; block 0 begins a new one. Otherwise it answers and returns -1.
func (s *Server) assembly(r *Request, number int) int32 {
	key := s.keyOf(r.Message)
	i := s.lookup(r.Session, key, false)
	if number == 0 {
		if i >= 0 {
			s.drop(i)
		}
		if i = s.take(r.Session, 0, r.Now); i < 0 {
			s.busy(r)
			return -1
		}
		t := &s.transfers.slots[i]
		t.key, t.format = key, formatOf(r.Message)
	} else if i < 0 {
		s.counters.Incomplete++
		r.Error(message.RequestEntityIncomplete, "Block1: begin with block 0")
	}
	return i
}

// grow appends a block to transfer i, or answers that there is no room.
func (s *Server) grow(i int32, payload []byte, r *Request) bool {
	if s.transfers.bytes+len(payload) > s.cfg.MaxBytes && !s.makeRoom(r.Session, len(payload), i) {
		s.drop(i)
		s.busy(r)
		return false
	}
	t := &s.transfers.slots[i]
	t.body = append(t.body, payload...)
	s.transfers.bytes += len(payload)
	s.renew(i, r.Now)
	return true
}

// renew starts the lifetime of transfer i again.
func (s *Server) renew(i int32, now time.Duration) {
	s.transfers.slots[i].renewed = now
	s.transfers.due.Set(i, now+TransferLifetime)
	s.transfers.unproven.Renew(i)
	s.transfers.proven.Renew(i)
}

func formatOf(m *message.Message) int {
	if f, ok := m.Format(message.ContentFormat); ok {
		return int(f)
	}
	return -1
}

func (s *Server) tooLarge(r *Request) {
	s.counters.BodiesTooLarge++
	if i := s.lookup(r.Session, s.keyOf(r.Message), false); i >= 0 {
		s.drop(i)
	}
	r.code = message.RequestEntityTooLarge
	b := r.reply.Begin(message.RequestEntityTooLarge)
	if r.block1 >= 0 {
		b.Uint(message.Block1, uint32(r.block1))
	}
	b.Uint(message.Size1, uint32(s.cfg.MaxBody))
}

func (s *Server) busy(r *Request) {
	s.counters.BodiesRefused++
	r.code = message.ServiceUnavailable
	r.reply.Begin(message.ServiceUnavailable).Uint(message.MaxAge, 5)
}

// keep stores the answer of r, whose first block was sent, for the requests of the next ones.
func (s *Server) keep(r *Request) {
	key := s.keyOf(r.Message)
	if i := s.lookup(r.Session, key, true); i >= 0 {
		s.drop(i)
	}
	i := s.take(r.Session, len(r.options.body), r.Now)
	if i < 0 {
		s.busy(r)
		return
	}
	t := &s.transfers.slots[i]
	t.key, t.answer, t.code, t.options = key, true, r.code, r.options
	t.body = append([]byte(nil), r.options.body...)
	t.options.body, t.options.path, t.options.query = t.body, nil, nil
	t.options.etag = append([]byte(nil), r.options.etag...)
}

// resume answers with a later block of a stored answer.
func (s *Server) resume(r *Request) {
	i := s.lookup(r.Session, s.keyOf(r.Message), true)
	if i < 0 {
		s.counters.Incomplete++
		r.Error(message.RequestEntityIncomplete, "Block2: the answer is not stored; send the request again")
		return
	}
	t := &s.transfers.slots[i]
	r.options = t.options
	r.answer(t.code)
	s.renew(i, r.Now) // to the end, since the last block may be lost and requested again
}

// take returns a slot for a body of n bytes of a session, or -1.
func (s *Server) take(session *Session, n int, now time.Duration) int32 {
	t := &s.transfers
	if len(session.transfers) >= TransfersPerPeer {
		s.counters.BodiesEvicted++
		s.drop(s.oldest(session))
	}
	if (t.count >= MaxTransfers || t.bytes+n > s.cfg.MaxBytes) && !s.makeRoom(session, n, -1) {
		return -1
	}
	i := t.free
	if i >= 0 {
		t.free = t.slots[i].next
	} else {
		i = int32(len(t.slots))
		t.slots = append(t.slots, transfer{})
	}
	t.slots[i] = transfer{session: session}
	t.count++
	t.bytes += n
	session.transfers = append(session.transfers, i)
	order := &t.unproven
	if s.cfg.Guard.Proven(session) {
		order = &t.proven
	}
	order.Add(i, s.cfg.Guard.Source(session))
	s.renew(i, now)
	s.cfg.Wake(now + TransferLifetime)
	return i
}

// makeRoom drops transfers, but not except, until there is room for one of a session with n bytes. A peer without proof
// never takes the place of one with proof.
func (s *Server) makeRoom(session *Session, n int, except int32) bool {
	t := &s.transfers
	for (except < 0 && t.count >= MaxTransfers) || t.bytes+n > s.cfg.MaxBytes {
		i, ok := t.unproven.First()
		if !ok && s.cfg.Guard.Proven(session) {
			i, ok = t.proven.FirstOfLargest()
		}
		if !ok || i == except {
			return false
		}
		s.counters.BodiesEvicted++
		s.drop(i)
	}
	return true
}

// oldest returns the transfer of a session that has waited longest for a block.
func (s *Server) oldest(session *Session) int32 {
	oldest, at := session.transfers[0], Never
	for _, i := range session.transfers {
		if due := s.transfers.slots[i].renewed; due < at {
			oldest, at = i, due
		}
	}
	return oldest
}

// drop removes a transfer.
func (s *Server) drop(i int32) {
	t := &s.transfers
	slot := &t.slots[i]
	slot.session.transfers = without(slot.session.transfers, i)
	t.unproven.Remove(i)
	t.proven.Remove(i)
	t.due.Remove(i)
	t.count--
	t.bytes -= len(slot.body)
	*slot = transfer{next: t.free}
	t.free = i
}

// expire drops the transfers that no block has reached for TransferLifetime.
func (s *Server) expire(now time.Duration) {
	for {
		i, due, ok := s.transfers.due.First()
		if !ok || due > now {
			return
		}
		s.counters.BodiesExpired++
		s.drop(i)
	}
}
