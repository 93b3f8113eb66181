package requests

import "encoding/binary"

// Channel is the number of the only channel that the clients here bind on an allocation (RFC 8656 section 12: 0x4000 to 0x4FFF), and
// ChannelHeader the bytes in front of the data of a ChannelData message.
const (
	Channel       = 0x4000
	ChannelHeader = 4
	stunHeader    = 20
)

// PutChannelHeader writes the header of a ChannelData message on Channel in front of n bytes of data (RFC 8656 section 12.4).
func PutChannelHeader(b []byte, n int) {
	binary.BigEndian.PutUint32(b, Channel<<16|uint32(n))
}

// ChannelData returns the data of a ChannelData message on Channel. Bytes behind the data are padding, or of the next message.
func ChannelData(b []byte) (data []byte, ok bool) {
	if len(b) < ChannelHeader || binary.BigEndian.Uint16(b) != Channel {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > len(b)-ChannelHeader {
		return nil, false
	}
	return b[ChannelHeader : ChannelHeader+n], true
}

// FrameSize is the length of the message at the head of a stream to a TURN server, 0 if more bytes are needed to know it
// (RFC 8656 section 12.5: padded to a multiple of four). If ok is false, the bytes are not TURN messages.
func FrameSize(b []byte) (n int, ok bool) {
	if len(b) < ChannelHeader {
		return 0, true
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	switch b[0] >> 6 {
	case 0:
		return stunHeader + length, length%4 == 0
	case 1:
		return ChannelHeader + (length+3)&^3, true
	}
	return 0, false
}
