package move

import "encoding/binary"

// Type is the first byte of a message. It is neither that of a ping or frame, nor a TLS content type.
const Type = 58

// Kind is what a message says.
type Kind byte

// Kinds of messages.
const (
	Announce  Kind = 1 + iota // which process the sender is, whether it drains, and which owners it knows
	Begin                     // the sender has sessions of a shard for the receiver
	Ready                     // the receiver takes them, or not: Code
	Session                   // one of them
	Ack                       // what has become of it: Code
	Commit                    // these were all: the receiver is the owner
	Committed                 // it is
	Abort                     // the transfer is not known any more
)

// Codes of Ready and Ack.
const (
	Accepted    = 0
	IsDraining  = 1 // the receiver drains itself
	OtherLength = 2 // its connection ids have another length
	NoRoom      = 3
	IsBusy      = 4 // it moves the same shard, or does not know whether its own sessions were taken over
	OtherBoot   = 5 // the message is for an earlier process
	NotImported = 6 // the session cannot go on there
)

// Sizes.
const (
	// MaxSession bounds the bytes of a session, so that a record of the link fits a datagram.
	MaxSession  = 900
	maxEntries  = 100 // owners in one Announce
	entryLength = 6
)

// Entry is the owner of a shard.
type Entry struct {
	Shard, Owner uint8
	Version      uint32
}

// Message is a message of any kind; the fields that it does not have are zero.
type Message struct {
	Kind      Kind
	Boot      uint64 // Announce, Begin: of the sender's process
	For       uint64 // Begin: Boot of the receiver's process
	Serial    uint32 // Announce: grows with each
	Draining  bool   // Announce, Begin: the sender drains
	Room      uint32 // Announce: sessions that there is room for; Begin: sessions to come, about
	Owners    []Entry
	Counted   bool   // Announce: Sessions is known; an earlier version does not say it
	Sessions  uint32 // Announce: sessions with connection ids that the sender has
	Transfer  uint64 // all but Announce
	Shard     uint8  // Begin, Commit
	CIDLength uint8  // Begin
	Version   uint32 // Commit
	Sequence  uint32 // Session, Ack
	Code      uint8  // Ready, Ack
	Session   []byte // Session
}

// Append appends the message to b.
func (m *Message) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, Type, byte(m.Kind))
	if m.Kind == Announce {
		b = le.AppendUint64(b, m.Boot)
		b = le.AppendUint32(b, m.Serial)
		b = append(b, flag(m.Draining))
		b = le.AppendUint32(b, m.Room)
		b = append(b, byte(len(m.Owners)))
		for _, e := range m.Owners {
			b = append(b, e.Shard, e.Owner)
			b = le.AppendUint32(b, e.Version)
		}
		if m.Counted {
			b = le.AppendUint32(b, m.Sessions)
		}
		return b
	}
	b = le.AppendUint64(b, m.Transfer)
	switch m.Kind {
	case Begin:
		b = append(b, m.Shard, m.CIDLength, flag(m.Draining))
		b = le.AppendUint32(b, m.Room)
		b = le.AppendUint64(b, m.For)
		b = le.AppendUint64(b, m.Boot)
	case Ready:
		b = append(b, m.Code)
	case Session:
		b = le.AppendUint32(b, m.Sequence)
		b = append(b, m.Session...)
	case Ack:
		b = le.AppendUint32(b, m.Sequence)
		b = append(b, m.Code)
	case Commit:
		b = append(b, m.Shard)
		b = le.AppendUint32(b, m.Version)
	}
	return b
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// lengths are those of the messages of each kind, without what varies.
var lengths = [...]int{Announce: 20, Begin: 33, Ready: 11, Session: 14, Ack: 15, Commit: 15, Committed: 10, Abort: 10}

// Parse reads a message. Session aliases b. Bytes behind the known fields are ignored, so that a later version may add some.
func Parse(b []byte) (m Message, ok bool) {
	le := binary.LittleEndian
	if len(b) < 2 || b[0] != Type || int(b[1]) >= len(lengths) || lengths[b[1]] == 0 || len(b) < lengths[b[1]] {
		return m, false
	}
	m.Kind = Kind(b[1])
	if m.Kind == Announce {
		return m, m.announce(b[2:])
	}
	m.Transfer, b = le.Uint64(b[2:]), b[10:]
	switch m.Kind {
	case Begin:
		m.Shard, m.CIDLength, m.Draining, m.Room = b[0], b[1], b[2]&1 != 0, le.Uint32(b[3:])
		m.For, m.Boot = le.Uint64(b[7:]), le.Uint64(b[15:])
	case Ready:
		m.Code = b[0]
	case Session:
		m.Sequence, m.Session = le.Uint32(b), b[4:]
	case Ack:
		m.Sequence, m.Code = le.Uint32(b), b[4]
	case Commit:
		m.Shard, m.Version = b[0], le.Uint32(b[1:])
	}
	return m, true
}

func (m *Message) announce(b []byte) bool {
	le := binary.LittleEndian
	m.Boot, m.Serial, m.Draining, m.Room = le.Uint64(b), le.Uint32(b[8:]), b[12]&1 != 0, le.Uint32(b[13:])
	n := int(b[17])
	b = b[18:]
	if len(b) < n*entryLength {
		return false
	}
	for ; n > 0; n-- {
		m.Owners = append(m.Owners, Entry{Shard: b[0], Owner: b[1], Version: le.Uint32(b[2:])})
		b = b[entryLength:]
	}
	if m.Counted = len(b) >= 4; m.Counted {
		m.Sessions = le.Uint32(b)
	}
	return true
}
