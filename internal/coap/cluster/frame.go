package cluster

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/weir-lb/weir/internal/coap/cluster/link"
	"github.com/weir-lb/weir/internal/coap/cluster/membership"
)

// First bytes on the management port. They are neither TLS content types nor the first byte of a CoAP message.
const (
	TypePong = 60 // answer to a ping
	TypePing = 61 // asks whether the node is alive, and for its id
	TypeOut  = 62 // backward: send this record to the client from your public port
	TypeIn   = 63 // forward: process this datagram as if the client had sent it to you

	TypeRelay = 59 // between nodes of Weir: a datagram of TypeIn that has to go one node further
)

const (
	// MaxHeader is the room, in bytes, a sender must leave in front of a datagram: 4 + 16 + MAC.
	MaxHeader = 4 + 16 + macLength
	// MaxFrame is the largest frame in bytes; it is what UDP over IPv4 can carry.
	MaxFrame = 65507
	// MinBody is the smallest datagram a frame may carry: shorter cannot be a record with a connection id.
	MinBody = 26

	macLength  = link.MACLength
	pingLength = 6
)

// Frame errors. They are sentinels because the receive path counts them by kind.
var (
	ErrFrameType    = errors.New("cluster frame: type is neither 62 nor 63")
	ErrFrameAddress = errors.New("cluster frame: address length is neither 4 nor 16")
	ErrFrameShort   = errors.New("cluster frame: shorter than header and 26 bytes of record")
)

// Frame is a parsed type 62 or 63 message. Body and MAC alias the parsed buffer.
type Frame struct {
	Type byte           // TypeIn or TypeOut
	Peer netip.AddrPort // the client; an IPv4 address is never in its IPv6-mapped form
	MAC  []byte         // 8 bytes when the link uses a MAC, else nil
	Body []byte         // the untouched datagram, at least MinBody bytes
}

// HeaderLength returns the number of header bytes in front of a datagram of peer (8 for IPv4, 20 for IPv6), without MAC.
func HeaderLength(peer netip.AddrPort) int {
	if addr := peer.Addr(); addr.Is4() || addr.Is4In6() {
		return 4 + 4
	}
	return 4 + 16
}

// AppendHeader appends the header of a frame without MAC to b. It does not allocate when b has room for MaxHeader bytes.
func AppendHeader(b []byte, kind byte, peer netip.AddrPort) []byte {
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint16(b, peer.Port())
	if addr := peer.Addr().Unmap(); addr.Is4() {
		raw := addr.As4()
		b = append(b, 4)
		return append(b, raw[:]...)
	}
	raw := peer.Addr().As16()
	b = append(b, 16)
	return append(b, raw[:]...)
}

// ParseFrame reads a type 62 or 63 message. withMAC says that the link is configured with a cluster MAC; the MAC is returned,
// not checked. The result aliases b. It never allocates.
func ParseFrame(b []byte, withMAC bool) (Frame, error) {
	if len(b) < 4 {
		return Frame{}, ErrFrameShort
	}
	if b[0] != TypeIn && b[0] != TypeOut && b[0] != TypeRelay {
		return Frame{}, ErrFrameType
	}
	f := Frame{Type: b[0]}
	port, n := binary.LittleEndian.Uint16(b[1:3]), int(b[3])
	if n != 4 && n != 16 {
		return Frame{}, ErrFrameAddress
	}
	header := 4 + n
	if withMAC {
		header += macLength
	}
	if len(b) < header+MinBody {
		return Frame{}, ErrFrameShort
	}
	addr, _ := netip.AddrFromSlice(b[4 : 4+n])
	f.Peer = netip.AddrPortFrom(addr.Unmap(), port)
	if withMAC {
		f.MAC = b[4+n : header]
	}
	f.Body = b[header:]
	return f, nil
}

// Ping is a parsed type 60 or 61 message.
type Ping struct {
	Type  byte             // TypePing or TypePong
	Node  uint32           // id of the sender
	State membership.State // StateStart when the message has no state byte
}

// AppendPing appends the 6-byte form of p to b.
func AppendPing(b []byte, p Ping) []byte {
	b = append(b, p.Type)
	b = binary.LittleEndian.AppendUint32(b, p.Node)
	return append(b, byte(p.State))
}

// ParsePing reads a ping or pong. The 5-byte form of Californium 2.5, which has no state byte, is accepted; longer messages
// are read by their first 6 bytes, as the original does.
func ParsePing(b []byte) (Ping, bool) {
	if len(b) < 5 || (b[0] != TypePing && b[0] != TypePong) {
		return Ping{}, false
	}
	p := Ping{Type: b[0], Node: binary.LittleEndian.Uint32(b[1:5])}
	if len(b) > 5 {
		p.State = membership.State(b[5])
	}
	return p, true
}
