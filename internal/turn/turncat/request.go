package turncat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pion/stun/v4"
)

const (
	channelNumber = 0x4000 // the only channel of each allocation (RFC 8656 section 12: 0x4000 to 0x4FFF)
	headerBytes   = 4      // of ChannelData
	maxData       = 65507 - headerBytes
	stunHeader    = 20
)

// putChannelHeader writes the four bytes in front of n bytes of data (RFC 8656 section 12.4).
func putChannelHeader(b []byte, n int) {
	binary.BigEndian.PutUint32(b, channelNumber<<16|uint32(n))
}

// channelData returns the data of a ChannelData message on our channel. Bytes behind the data are padding.
func channelData(b []byte) (data []byte, ok bool) {
	if len(b) < headerBytes || binary.BigEndian.Uint16(b) != channelNumber {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > len(b)-headerBytes {
		return nil, false
	}
	return b[headerBytes : headerBytes+n], true
}

// frameSize is the length of the message at the head of a stream to a TURN server, 0 if more bytes are needed to know it
// (RFC 8656 section 12.5: padded to a multiple of four). If ok is false, the bytes are not TURN messages.
func frameSize(b []byte) (n int, ok bool) {
	if len(b) < headerBytes {
		return 0, true
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	switch b[0] >> 6 {
	case 0:
		return stunHeader + length, length%4 == 0
	case 1:
		return headerBytes + (length+3)&^3, true
	}
	return 0, false
}

// grant is the contents of a success response to Allocate or Refresh.
type grant struct {
	relay    netip.AddrPort
	lifetime time.Duration
}

func parseGrant(m *stun.Message) (g grant, err error) {
	if b, err := m.Get(stun.AttrLifetime); err == nil && len(b) == 4 {
		g.lifetime = time.Duration(binary.BigEndian.Uint32(b)) * time.Second
	}
	if m.Type.Method == stun.MethodAllocate {
		if g.relay, err = xorAddress(m, stun.AttrXORRelayedAddress); err != nil {
			return g, fmt.Errorf("the answer to Allocate names no relay address: %w", err)
		}
		if g.lifetime <= 0 {
			return g, errors.New("the answer to Allocate names no lifetime")
		}
	}
	return g, nil
}

func xorAddress(m *stun.Message, attr stun.AttrType) (netip.AddrPort, error) {
	var x stun.XORMappedAddress
	if err := x.GetFromAs(m, attr); err != nil {
		return netip.AddrPort{}, err
	}
	ip, ok := netip.AddrFromSlice(x.IP)
	if !ok || x.Port < 0 || x.Port > 65535 {
		return netip.AddrPort{}, errors.New("not an address")
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(x.Port)), nil
}

func addXorAddress(m *stun.Message, attr stun.AttrType, a netip.AddrPort) error {
	return stun.XORMappedAddress{IP: net.IP(a.Addr().AsSlice()), Port: int(a.Port())}.AddToAs(m, attr)
}

// dataIndication returns the data of a Data indication from our peer (RFC 8656 section 11.4). A server sends these until it has
// received the ChannelBind.
func dataIndication(b []byte, peer netip.AddrPort) (data []byte, ok bool) {
	m := stun.Message{Raw: b}
	if err := m.Decode(); err != nil || m.Type != stun.NewType(stun.MethodData, stun.ClassIndication) {
		return nil, false
	}
	from, err := xorAddress(&m, stun.AttrXORPeerAddress)
	if err != nil || from != peer {
		return nil, false
	}
	data, err = m.Get(stun.AttrData)
	return data, err == nil
}

// Refusal is an error response of the TURN server.
type Refusal struct {
	Request string // Allocate, Refresh, ChannelBind
	Code    int    // RFC 8656 section 18
	Reason  string // the server's text, truncated
	User    string // the user name of the request, if any
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("the TURN server refused %s: %d %s", r.Request, r.Code, r.Reason)
	switch {
	case r.Credentials():
		text += fmt.Sprintf("; is %q the right user, and its password? (--user, --password, --credentials or --secret)", r.User)
	case r.Code == 401:
		text += "; it wants credentials in a form that it did not say"
	case r.Code == 403:
		text += "; the server does not let clients reach this peer"
	case r.Code == 440:
		text += "; the server has no relay address of the peer's family"
	case r.Code == 442:
		text += "; the server does not relay this protocol"
	case r.Code == 486:
		text += "; this user has as many allocations as it may"
	case r.Code == 508:
		text += "; the server has no relay port left"
	}
	return text
}

// Credentials reports whether the user or the password is wrong or has expired. Servers built on pion/turn then
// answer 400.
func (r *Refusal) Credentials() bool {
	return r.User != "" && (r.Code == 401 || r.Code == 441 || r.Code == 400)
}

func parseRefusal(m *stun.Message) *Refusal {
	r := &Refusal{Request: m.Type.Method.String(), Reason: "(no reason given)"}
	var code stun.ErrorCodeAttribute
	if code.GetFrom(m) == nil {
		r.Code = int(code.Code)
		if len(code.Reason) > 0 {
			r.Reason = printable(code.Reason, 80)
		}
	}
	return r
}

// printable replaces control characters in text of a server, so that it is safe to print on a terminal.
func printable(b []byte, limit int) string {
	out := make([]byte, 0, min(len(b), limit))
	for _, c := range b[:min(len(b), limit)] {
		if c < ' ' || c > '~' {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}
