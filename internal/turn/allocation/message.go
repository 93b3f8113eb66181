package allocation

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"github.com/pion/stun/v4"
)

const (
	headerSize      = 20
	attributeHeader = 4
	magicCookie     = 0x2112A442
	fingerprintXOR  = 0x5354554e
	sha1Size        = 20
	sha256Size      = 32
)

// Attributes of RFC 8656 without a constant in the library.
const (
	attrAdditionalFamily = stun.AttrType(0x8000)
	attrAddressErrorCode = stun.AttrType(0x8001)
)

// message is a parsed STUN message (RFC 8489, section 5). It aliases the bytes from which it was parsed.
type message struct {
	raw          []byte
	method       stun.Method
	class        stun.MessageClass
	end          int // end of the attributes that count: the first integrity attribute or FINGERPRINT
	integrity    int // offset of MESSAGE-INTEGRITY, 0 if it has none
	integrity256 int // offset of MESSAGE-INTEGRITY-SHA256
	fingerprint  bool
}

// id is the transaction id.
func (m *message) id() (id [12]byte) { return [12]byte(m.raw[8:headerSize]) }

// parse parses the structure of a message and checks FINGERPRINT. Attributes behind an integrity attribute are not
// protected and therefore ignored (RFC 8489, section 14.5).
func parse(b []byte) (m message, r Reason) {
	if len(b) < headerSize || b[0]&0xC0 != 0 {
		return m, Malformed
	}
	if binary.BigEndian.Uint32(b[4:]) != magicCookie {
		return m, NoCookie
	}
	if size := int(binary.BigEndian.Uint16(b[2:])); size%4 != 0 || headerSize+size != len(b) {
		return m, Malformed
	}
	var kind stun.MessageType
	kind.ReadValue(binary.BigEndian.Uint16(b))
	m = message{raw: b, method: kind.Method, class: kind.Class, end: len(b)}
	for at := headerSize; at < len(b); {
		kind, value, next := attribute(b, at)
		if next == 0 || m.fingerprint {
			return m, Malformed
		}
		if r := m.note(at, kind, value); r != OK {
			return m, r
		}
		at = next
	}
	return m, OK
}

// note records the offsets of the attributes that protect the message.
func (m *message) note(at int, kind stun.AttrType, value []byte) Reason {
	switch kind {
	case stun.AttrMessageIntegrity:
		if len(value) != sha1Size {
			return Malformed
		}
		if m.integrity != 0 || m.integrity256 != 0 {
			return OK
		}
		m.integrity = at
	case stun.AttrMessageIntegritySHA256:
		if len(value) < 16 || len(value) > sha256Size || len(value)%4 != 0 {
			return Malformed
		}
		if m.integrity256 != 0 {
			return OK
		}
		m.integrity256 = at
	case stun.AttrFingerprint:
		if len(value) != 4 || binary.BigEndian.Uint32(value) != crc32.ChecksumIEEE(m.raw[:at])^fingerprintXOR {
			return BadFingerprint
		}
		m.fingerprint = true
	default:
		return OK
	}
	m.end = min(m.end, at)
	return OK
}

// attribute reads the attribute at an offset and returns the offset of the next one; 0 if it does not fit.
func attribute(b []byte, at int) (kind stun.AttrType, value []byte, next int) {
	if len(b)-at < attributeHeader {
		return 0, nil, 0
	}
	size := int(binary.BigEndian.Uint16(b[at+2:]))
	start := at + attributeHeader
	if next = start + size + Padding(size); next > len(b) {
		return 0, nil, 0
	}
	return stun.AttrType(binary.BigEndian.Uint16(b[at:])), b[start : start+size : start+size], next
}

// get returns the first attribute of a kind.
func (m *message) get(want stun.AttrType) (value []byte, ok bool) {
	for at := headerSize; at < m.end; {
		kind, value, next := attribute(m.raw, at)
		if kind == want {
			return value, true
		}
		at = next
	}
	return nil, false
}

func (m *message) has(want stun.AttrType) bool {
	_, ok := m.get(want)
	return ok
}

// number reads an attribute of exactly four bytes.
func (m *message) number(want stun.AttrType) (n uint32, present, ok bool) {
	value, present := m.get(want)
	if !present || len(value) != 4 {
		return 0, present, !present
	}
	return binary.BigEndian.Uint32(value), true, true
}

// peer reads the first XOR-PEER-ADDRESS.
func (m *message) peer() (peer netip.AddrPort, ok bool) {
	value, ok := m.get(stun.AttrXORPeerAddress)
	if !ok {
		return peer, false
	}
	return readXORAddress(value, m.raw)
}

// unknown appends the comprehension-required attributes that this package does not know (RFC 8489, section 6.3.1).
func (m *message) unknown(list []stun.AttrType) []stun.AttrType {
	for at := headerSize; at < m.end; {
		kind, _, next := attribute(m.raw, at)
		if kind.Required() && !understood(kind) && len(list) < cap(list) {
			list = append(list, kind)
		}
		at = next
	}
	return list
}

func understood(kind stun.AttrType) bool {
	switch kind {
	case stun.AttrMappedAddress, stun.AttrUsername, stun.AttrMessageIntegrity, stun.AttrErrorCode, stun.AttrUnknownAttributes,
		stun.AttrChannelNumber, stun.AttrLifetime, stun.AttrXORPeerAddress, stun.AttrData, stun.AttrRealm, stun.AttrNonce,
		stun.AttrXORRelayedAddress, stun.AttrRequestedAddressFamily, stun.AttrEvenPort, stun.AttrRequestedTransport,
		stun.AttrDontFragment, stun.AttrMessageIntegritySHA256, stun.AttrPasswordAlgorithm, stun.AttrXORMappedAddress,
		stun.AttrReservationToken, stun.AttrConnectionID:
		return true
	}
	return false
}

// readXORAddress reads an XOR-…-ADDRESS value (RFC 8489, section 14.2). head is the message's header.
func readXORAddress(value, head []byte) (a netip.AddrPort, ok bool) {
	var address netip.Addr
	switch {
	case len(value) == 8 && value[1] == 1:
		var v4 [4]byte
		for i := range v4 {
			v4[i] = value[4+i] ^ head[4+i]
		}
		address = netip.AddrFrom4(v4)
	case len(value) == 20 && value[1] == 2:
		var v6 [16]byte
		for i := range v6 {
			v6[i] = value[4+i] ^ head[4+i]
		}
		address = netip.AddrFrom16(v6)
	default:
		return a, false
	}
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(value[2:])^magicCookie>>16), true
}

// appendXORAddress appends an address attribute. head is the message's header.
func appendXORAddress(dst []byte, kind stun.AttrType, a netip.AddrPort, head []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(kind))
	if address := a.Addr(); address.Is4() {
		v4 := address.As4()
		dst = append(dst, 0, 8, 0, 1)
		dst = binary.BigEndian.AppendUint16(dst, a.Port()^magicCookie>>16)
		for i := range v4 {
			dst = append(dst, v4[i]^head[4+i])
		}
		return dst
	}
	v6 := a.Addr().As16()
	dst = append(dst, 0, 20, 0, 2)
	dst = binary.BigEndian.AppendUint16(dst, a.Port()^magicCookie>>16)
	for i := range v6 {
		dst = append(dst, v6[i]^head[4+i])
	}
	return dst
}

// appendFingerprint appends FINGERPRINT to the message at start, whose length already counts it (RFC 8489, section 14.7).
func appendFingerprint(out []byte, start int) []byte {
	sum := crc32.ChecksumIEEE(out[start:]) ^ fingerprintXOR
	out = binary.BigEndian.AppendUint16(out, uint16(stun.AttrFingerprint))
	out = binary.BigEndian.AppendUint16(out, 4)
	return binary.BigEndian.AppendUint32(out, sum)
}
