package load

import "encoding/binary"

const (
	magic   = 0x77656972 // "weir"
	trailer = 8          // bytes at the end that repeat the sequence number, if there is space
	mix     = 0x9e3779b97f4a7c15
)

// Flags of a datagram.
const (
	flagDown  = 1 << iota // sent by the sink
	flagProbe             // sent before a phase, to test the path
)

// header is the beginning of a datagram.
type header struct {
	conn, flags uint16
	run         uint64
	sequence    uint64
	sent        int64 // ns since the Load was opened
}

// put writes the header and the trailer to a datagram of at least HeaderSize bytes.
func (h *header) put(b []byte) {
	binary.BigEndian.PutUint32(b, magic)
	binary.BigEndian.PutUint16(b[4:], h.conn)
	binary.BigEndian.PutUint16(b[6:], h.flags)
	binary.BigEndian.PutUint64(b[8:], h.run)
	binary.BigEndian.PutUint64(b[16:], h.sequence)
	binary.BigEndian.PutUint64(b[24:], uint64(h.sent))
	if len(b) >= HeaderSize+trailer {
		binary.BigEndian.PutUint64(b[len(b)-trailer:], h.check())
	}
}

// parse reads a datagram. ok is false if it is not one of ours; whole is false if its end does not match its header.
func parse(b []byte) (h header, ok, whole bool) {
	if len(b) < HeaderSize || binary.BigEndian.Uint32(b) != magic {
		return h, false, false
	}
	h = header{
		conn: binary.BigEndian.Uint16(b[4:]), flags: binary.BigEndian.Uint16(b[6:]), run: binary.BigEndian.Uint64(b[8:]),
		sequence: binary.BigEndian.Uint64(b[16:]), sent: int64(binary.BigEndian.Uint64(b[24:])),
	}
	return h, true, len(b) < HeaderSize+trailer || binary.BigEndian.Uint64(b[len(b)-trailer:]) == h.check()
}

func (h *header) check() uint64 { return (h.sequence ^ h.run<<32 ^ uint64(h.conn)<<48) * mix }
