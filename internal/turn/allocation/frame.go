package allocation

import (
	"encoding/binary"
	"net/netip"

	"github.com/pion/stun/v4"
)

// Message types that do not go to Table.Request: the first two bytes of a message in network order.
const (
	TypeSend           = 0x0016 // Table.Send
	TypeConnectionBind = 0x000b // Table.ConnectionBind
)

const (
	typeData              = 0x0017
	typeConnectionAttempt = 0x001c
)

// Channel numbers (RFC 8656, section 12).
const (
	MinChannel = 0x4000
	MaxChannel = 0x7FFF // RFC 5766, section 11: its clients (also coturn's) use the whole range; RFC 8656 allows 0x4FFF at most
)

// ChannelHeaderSize is the size of a ChannelData header; DataHeaderMax the size of the longest Data indication's.
const (
	ChannelHeaderSize = 4
	DataHeaderMax     = 48
)

// ParseChannelData parses a ChannelData message (RFC 8656, section 12.4). Padding after the payload is ignored.
func ParseChannelData(b []byte) (number uint16, payload []byte, r Reason) {
	if len(b) < ChannelHeaderSize {
		return 0, nil, Malformed
	}
	number = binary.BigEndian.Uint16(b)
	size := int(binary.BigEndian.Uint16(b[2:]))
	if number < MinChannel || number > MaxChannel || ChannelHeaderSize+size > len(b) {
		return 0, nil, Malformed
	}
	return number, b[ChannelHeaderSize : ChannelHeaderSize+size], OK
}

// PutChannelHeader writes the header of a message with size bytes of payload into b[:4]. Over TCP and TLS the sender
// pads the message with zero bytes to a multiple of four.
func PutChannelHeader(b []byte, number uint16, size int) {
	binary.BigEndian.PutUint16(b, number)
	binary.BigEndian.PutUint16(b[2:], uint16(size))
}

// AppendDataHeader appends a Data indication (RFC 8656, section 11.4) up to its payload of size bytes: 36 bytes for an
// IPv4 peer, 48 for IPv6. After the payload come Padding(size) zero bytes. size is at most 65,000.
func AppendDataHeader(dst []byte, peer netip.AddrPort, size int, id [12]byte) []byte {
	length := attributeHeader + 8 + attributeHeader + size + Padding(size)
	if !peer.Addr().Is4() {
		length += 12
	}
	start := len(dst)
	dst = appendHeader(dst, typeData, length, id)
	dst = appendXORAddress(dst, stun.AttrXORPeerAddress, peer, dst[start:])
	dst = binary.BigEndian.AppendUint16(dst, uint16(stun.AttrData))
	return binary.BigEndian.AppendUint16(dst, uint16(size))
}

// AppendData appends a whole Data indication.
func AppendData(dst []byte, peer netip.AddrPort, payload []byte, id [12]byte) []byte {
	dst = append(AppendDataHeader(dst, peer, len(payload), id), payload...)
	return append(dst, make([]byte, Padding(len(payload)))...)
}

func appendHeader(dst []byte, kind uint16, length int, id [12]byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, kind)
	dst = binary.BigEndian.AppendUint16(dst, uint16(length))
	dst = binary.BigEndian.AppendUint32(dst, magicCookie)
	return append(dst, id[:]...)
}

// Padding returns how many bytes extend size to a multiple of four.
func Padding(size int) int { return -size & 3 }

// FrameSize returns the length of a STUN or ChannelData message on a stream, including padding (RFC 8656, section
// 12.5), from its first 4 bytes or more. It returns false if it is neither; the stream then cannot be parsed any
// further.
func FrameSize(head []byte) (size int, ok bool) {
	if len(head) < 4 {
		return 0, false
	}
	kind, length := binary.BigEndian.Uint16(head), int(binary.BigEndian.Uint16(head[2:]))
	switch {
	case kind < 0x4000 && length%4 == 0:
		return headerSize + length, true
	case kind >= MinChannel && kind <= MaxChannel:
		return ChannelHeaderSize + length + Padding(length), true
	}
	return 0, false
}

// ConnectionID reads CONNECTION-ID from a ConnectionBind request without verifying the request, so that the gateway
// can find the worker.
func ConnectionID(msg []byte) (id uint32, ok bool) {
	m, r := parse(msg)
	if r != OK || m.method != stun.MethodConnectionBind || m.class != stun.ClassRequest {
		return 0, false
	}
	id, present, ok := m.number(stun.AttrConnectionID)
	return id, present && ok
}
