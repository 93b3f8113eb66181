package replica

import "encoding/binary"

// Type is the first byte of a message. It is neither that of a ping, frame or message of package move, nor a TLS content type.
const Type = 57

// Kinds of messages, the second byte.
const (
	kindBatch = 1 // sessions of the sender, for its buddy
	kindAck   = 2 // what has become of them
)

// operation is what an item of a batch says of a session.
type operation uint8

const (
	opPut    operation = 1 + iota // all of it
	opChange                      // its limit and what changes
	opRemove                      // it is gone
)

// result is what the buddy did with an item.
type result uint8

const (
	resultStored  result = iota
	resultRefused        // the buddy has no copy, for want of room
)

// Sizes of a session's bytes, and of messages, so that a record of the link fits a datagram.
const (
	MaxStatic   = 700
	MaxChanging = 200

	batchHeader = 35
	maxBatch    = 1200
	itemHeader  = 17
	ackHeader   = 35
	ackItem     = 9
	maxItems    = (maxBatch - batchHeader) / itemHeader
)

// item is a session in a batch. The bytes alias the message.
type item struct {
	number   uint64
	op       operation
	limit    uint64
	static   []byte // opPut
	changing []byte // opPut, opChange
}

// size returns how many bytes the item takes in a batch.
func (i *item) size() int {
	switch i.op {
	case opPut:
		return itemHeader + 4 + len(i.static) + len(i.changing)
	case opChange:
		return itemHeader + 2 + len(i.changing)
	}
	return itemHeader
}

// batch is a message of an owner.
type batch struct {
	boot, to uint64 // processes of the sender and the receiver
	term     uint64 // of the sender's entry
	serial   uint64 // grows with each batch
	items    []item
}

// answer is what has become of an item.
type answer struct {
	number uint64
	result result
}

// ack is the message that answers a batch.
type ack struct {
	owner, boot  uint64 // processes of the receiver and the sender
	term, serial uint64 // of the batch
	answers      []answer
}

func header(b []byte, kind byte, n int, fields ...uint64) []byte {
	b = append(b, Type, kind)
	for _, f := range fields {
		b = binary.LittleEndian.AppendUint64(b, f)
	}
	return append(b, byte(n))
}

func (m *batch) append(b []byte) []byte {
	le := binary.LittleEndian
	b = header(b, kindBatch, len(m.items), m.boot, m.to, m.term, m.serial)
	for _, i := range m.items {
		b = le.AppendUint64(b, i.number)
		b = append(b, byte(i.op))
		b = le.AppendUint64(b, i.limit)
		if i.op == opPut {
			b = le.AppendUint16(b, uint16(len(i.static)))
			b = append(b, i.static...)
		}
		if i.op != opRemove {
			b = le.AppendUint16(b, uint16(len(i.changing)))
			b = append(b, i.changing...)
		}
	}
	return b
}

func (m *ack) append(b []byte) []byte {
	b = header(b, kindAck, len(m.answers), m.owner, m.boot, m.term, m.serial)
	for _, a := range m.answers {
		b = binary.LittleEndian.AppendUint64(b, a.number)
		b = append(b, byte(a.result))
	}
	return b
}

// parseBatch reads a batch. ok is false unless all of b is one.
func parseBatch(b []byte) (m batch, ok bool) {
	le := binary.LittleEndian
	if len(b) < batchHeader || b[0] != Type || b[1] != kindBatch {
		return m, false
	}
	m.boot, m.to, m.term, m.serial = le.Uint64(b[2:]), le.Uint64(b[10:]), le.Uint64(b[18:]), le.Uint64(b[26:])
	n := int(b[34])
	b = b[batchHeader:]
	m.items = make([]item, 0, min(n, maxItems))
	for range n {
		var i item
		if i, b, ok = parseItem(b); !ok {
			return m, false
		}
		m.items = append(m.items, i)
	}
	return m, len(b) == 0
}

func parseItem(b []byte) (i item, rest []byte, ok bool) {
	le := binary.LittleEndian
	if len(b) < itemHeader {
		return i, nil, false
	}
	i.number, i.op, i.limit = le.Uint64(b), operation(b[8]), le.Uint64(b[9:])
	b, ok = b[itemHeader:], i.limit <= MaxSequence
	switch i.op {
	case opPut:
		if i.static, b, ok = field(b, MaxStatic, ok); !ok {
			return i, nil, false
		}
		i.changing, b, ok = field(b, MaxChanging, ok)
	case opChange:
		i.changing, b, ok = field(b, MaxChanging, ok)
	case opRemove:
	default:
		ok = false
	}
	return i, b, ok
}

// field reads bytes behind their length.
func field(b []byte, most int, ok bool) (value, rest []byte, _ bool) {
	if !ok || len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > most || len(b)-2 < n {
		return nil, nil, false
	}
	return b[2 : 2+n], b[2+n:], true
}

// parseAck reads an ack. ok is false unless all of b is one.
func parseAck(b []byte) (m ack, ok bool) {
	le := binary.LittleEndian
	if len(b) < ackHeader || b[0] != Type || b[1] != kindAck || len(b) != ackHeader+int(b[34])*ackItem {
		return m, false
	}
	m.owner, m.boot, m.term, m.serial = le.Uint64(b[2:]), le.Uint64(b[10:]), le.Uint64(b[18:]), le.Uint64(b[26:])
	for b = b[ackHeader:]; len(b) > 0; b = b[ackItem:] {
		m.answers = append(m.answers, answer{le.Uint64(b), result(b[8])})
	}
	return m, true
}
