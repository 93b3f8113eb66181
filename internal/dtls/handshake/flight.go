package handshake

import (
	"github.com/weir-lb/weir/internal/dtls/record"
)

// DefaultMTU is the maximum length in bytes of the datagrams of a flight. It passes every path of IPv6, tunnels included.
const DefaultMTU = 1200

// minMTU leaves room for what a cookie covers in the first fragment of a hello.
const minMTU = 128

// flight is what one side sends until the other side answers: messages in epoch 0, and behind them ChangeCipherSpec and
// Finished, if it ends with them. It is sent again as often as needed, each time with fresh record sequence numbers.
type flight struct {
	messages [][]byte // whole, with their headers
	finished []byte   // likewise, for epoch 1; nil: none
	record   uint64   // sequence of the next record of epoch 0
	mtu      int      // of a datagram, in bytes
	limit    int      // of a record's body in bytes, as the peer has requested
}

func newFlight(mtu int) flight { return flight{mtu: mtu, limit: record.MaxPlaintext} }

// size is about how much memory the flight takes, in bytes.
func (f *flight) size() (n int) {
	for _, m := range f.messages {
		n += len(m)
	}
	return n
}

// send hands the flight to send, cut into fragments and datagrams. a seals the Finished; it may be nil if there is none. send
// must not keep the datagrams.
func (f *flight) send(a *record.Association, s *record.Scratch, send func(datagram []byte)) error {
	out := make([]byte, 0, f.mtu)
	for _, m := range f.messages {
		for at := messageHeader; ; {
			room := min(f.mtu-len(out)-record.HeaderLength, f.limit) - messageHeader
			if room < len(m)-at && len(out) > 0 && room < f.mtu/8 {
				send(out)
				out = out[:0]
				continue
			}
			end := min(len(m), at+room)
			out = f.appendFragment(out, m, at, end)
			if at = end; at == len(m) {
				break
			}
		}
	}
	if f.finished != nil {
		if len(out)+finalLength > f.mtu {
			send(out)
			out = out[:0]
		}
		out = f.plain(out, record.ChangeCipherSpec, []byte{1})
		var err error
		if out, err = appendSealed(a, s, f.finished, out); err != nil {
			return err
		}
	}
	send(out)
	return nil
}

// finalLength is the maximum length of ChangeCipherSpec and Finished in bytes.
const finalLength = record.HeaderLength + 1 + record.MaxHeadRoom + finishedLength + record.MaxTailRoom

// appendFragment appends a record with the bytes of message m from at to end.
func (f *flight) appendFragment(out, m []byte, at, end int) []byte {
	offset, n := at-messageHeader, end-at
	header := len(out) + record.HeaderLength
	out = f.plain(out, record.Handshake, m[:messageHeader])
	copy(out[header+6:], []byte{byte(offset >> 16), byte(offset >> 8), byte(offset), byte(n >> 16), byte(n >> 8), byte(n)})
	length := messageHeader + n
	out[header-2], out[header-1] = byte(length>>8), byte(length)
	return append(out, m[at:end]...)
}

// plain appends a record of epoch 0.
func (f *flight) plain(out []byte, typ record.ContentType, body []byte) []byte {
	out = record.AppendPlain(out, typ, f.record, body)
	f.record++
	return out
}

// alert hands a fatal alert of epoch 0 to send.
func (f *flight) alert(description byte, send func(datagram []byte)) {
	var b [record.HeaderLength + 2]byte
	send(f.plain(b[:0], record.Alert, []byte{2, description}))
}

// appendSealed appends a record of epoch 1 with a handshake message.
func appendSealed(a *record.Association, s *record.Scratch, message, out []byte) ([]byte, error) {
	head := a.HeadRoom()
	at := len(out)
	room := head + len(message) + a.TailRoom()
	for range room {
		out = append(out, 0)
	}
	copy(out[at+head:], message)
	sealed, err := a.Seal(s, record.Handshake, out[:at+room], at+head, len(message))
	if err != nil {
		return out[:at], err
	}
	return out[:at+len(sealed)], nil
}

// Final is the last flight of a handshake, kept until the peer has shown that it has it: a server's in a full handshake,
// a client's in an abbreviated one.
type Final struct {
	ticket  []byte // NewSessionTicket, whole, with its header; nil: none
	verify  [verifyLength]byte
	message uint16 // number of the Finished
	record  uint64
	present bool
}

// Present reports whether the flight may still be needed.
func (f *Final) Present() bool { return f.present }

// Drop forgets the flight: the peer has it.
func (f *Final) Drop() { *f = Final{} }

// Append appends the flight, one datagram with fresh record sequence numbers, to out.
func (f *Final) Append(a *record.Association, s *record.Scratch, out []byte) ([]byte, error) {
	l := flight{record: f.record}
	if f.ticket != nil {
		out = l.plain(out, record.Handshake, f.ticket)
	}
	out = l.plain(out, record.ChangeCipherSpec, []byte{1})
	f.record = l.record
	return appendSealed(a, s, message(typeFinished, f.message, f.verify[:]), out)
}
