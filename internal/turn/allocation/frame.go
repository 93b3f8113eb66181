package allocation

import "net/netip"

// Message types that do not go to Table.Request: the first two bytes of a message in network order.
const (
	TypeSend           = 0x0016 // Table.Send
	TypeConnectionBind = 0x000b // Table.ConnectionBind
)

// Channel numbers (RFC 8656, section 12).
const (
	MinChannel = 0x4000
	MaxChannel = 0x4FFF
)

// ChannelHeaderSize is the size of a ChannelData header; DataHeaderMax the size of the longest Data indication's.
const (
	ChannelHeaderSize = 4
	DataHeaderMax     = 48
)

// ParseChannelData takes a ChannelData message apart (RFC 8656, section 12.4). Padding after the payload is ignored.
func ParseChannelData(b []byte) (number uint16, payload []byte, r Reason) { return 0, nil, Malformed }

// PutChannelHeader writes the header of a message with size bytes of payload into b[:4]. Over TCP and TLS the sender
// pads the message with zero bytes to a multiple of four.
func PutChannelHeader(b []byte, number uint16, size int) {}

// AppendDataHeader appends a Data indication (RFC 8656, section 11.4) up to its payload of size bytes: 36 bytes for an
// IPv4 peer, 48 for IPv6. After the payload come Padding(size) zero bytes.
func AppendDataHeader(dst []byte, peer netip.AddrPort, size int, id [12]byte) []byte { return dst }

// AppendData appends a whole Data indication.
func AppendData(dst []byte, peer netip.AddrPort, payload []byte, id [12]byte) []byte { return dst }

// Padding is how many bytes fill size up to a multiple of four.
func Padding(size int) int { return -size & 3 }

// FrameSize tells from at least 4 bytes how long the STUN or ChannelData message that they begin is on a stream,
// padding included (RFC 8656, section 12.5). False: neither, the stream cannot be read on.
func FrameSize(head []byte) (size int, ok bool) { return 0, false }

// ConnectionID reads CONNECTION-ID from a ConnectionBind request, unverified, so that the gateway can find the worker.
func ConnectionID(msg []byte) (id uint32, ok bool) { return 0, false }
