package handshake

import "encoding/binary"

// Message types (RFC 6347 section 4.3.2).
const (
	typeClientHello        = 1
	typeServerHello        = 2
	typeHelloVerifyRequest = 3
	typeServerKeyExchange  = 12
	typeServerHelloDone    = 14
	typeClientKeyExchange  = 16
	typeFinished           = 20
)

// Extensions.
const (
	extExtendedMasterSecret = 23 // RFC 7627
	extConnectionID         = 54 // RFC 9146
	extRoutabilityCheck     = 61 // RFC 9853
	extRenegotiationInfo    = 0xff01
	suiteRenegotiationSCSV  = 0x00ff // RFC 5746 section 3.3
)

const (
	messageHeader  = 12
	version12      = 0xfefd
	version10      = 0xfeff
	randomLength   = 32
	verifyLength   = 12
	finishedLength = messageHeader + verifyLength
	// MaxMessage bounds a handshake message's body in bytes: what reassembly holds.
	MaxMessage = 2048
	// maxIdentity bounds a PSK identity in bytes; RFC 4279 section 5.3 asks for 128.
	maxIdentity = 1024
)

// fragment is one handshake message fragment (RFC 6347 section 4.2.2).
type fragment struct {
	typ      byte
	length   int // of the whole message body
	sequence uint16
	offset   int
	data     []byte
	raw      []byte // header and data
}

// nextFragment reads the first fragment of a record's body.
func nextFragment(body []byte) (f fragment, rest []byte, ok bool) {
	if len(body) < messageHeader {
		return f, nil, false
	}
	f.typ = body[0]
	f.length = uint24(body[1:])
	f.sequence = binary.BigEndian.Uint16(body[4:])
	f.offset = uint24(body[6:])
	n := uint24(body[9:])
	if n > len(body)-messageHeader || f.offset > f.length || n > f.length-f.offset || f.length > MaxMessage {
		return f, nil, false
	}
	f.data = body[messageHeader : messageHeader+n]
	f.raw = body[:messageHeader+n]
	return f, body[messageHeader+n:], true
}

// whole reports whether the fragment is the message.
func (f *fragment) whole() bool { return len(f.data) == f.length }

func uint24(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

// appendHeader appends the header of a whole message.
func appendHeader(dst []byte, typ byte, sequence uint16, length int) []byte {
	l := [3]byte{byte(length >> 16), byte(length >> 8), byte(length)}
	dst = append(dst, typ, l[0], l[1], l[2], byte(sequence>>8), byte(sequence), 0, 0, 0)
	return append(dst, l[:]...)
}

// beginMessage appends a header whose length endMessage fills in.
func beginMessage(dst []byte, typ byte, sequence uint16) ([]byte, int) {
	at := len(dst)
	return appendHeader(dst, typ, sequence, 0), at
}

func endMessage(dst []byte, at int) []byte {
	n := len(dst) - at - messageHeader
	l := [3]byte{byte(n >> 16), byte(n >> 8), byte(n)}
	copy(dst[at+1:], l[:])
	copy(dst[at+9:], l[:])
	return dst
}

// cursor reads length-prefixed fields; after an error everything is empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) uint8() int {
	if v := c.take(1); v != nil {
		return int(v[0])
	}
	return 0
}

func (c *cursor) uint16() int {
	if v := c.take(2); v != nil {
		return int(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (c *cursor) vector8() []byte  { return c.take(c.uint8()) }
func (c *cursor) vector16() []byte { return c.take(c.uint16()) }

// hello is a ClientHello or a ServerHello; its slices point into the message.
type hello struct {
	version   uint16
	random    []byte
	sessionID []byte
	cookie    []byte // ClientHello
	suites    []byte // ClientHello: two bytes each
	suite     uint16 // ServerHello
	methods   []byte // ClientHello: compression methods
	method    byte   // ServerHello

	extendedMaster bool
	renegotiation  bool // the client or server knows RFC 5746
	renegotiated   []byte
	hasCID         bool
	cid            []byte
	routability    bool
}

// parseClientHello reads a ClientHello's body (RFC 6347 section 4.3.2).
func parseClientHello(body []byte, h *hello) bool {
	c := cursor{b: body}
	*h = hello{
		version: uint16(c.uint16()), random: c.take(randomLength), sessionID: c.vector8(),
		cookie: c.vector8(), suites: c.vector16(), methods: c.vector8(),
	}
	if c.bad || len(h.sessionID) > 32 || len(h.suites) == 0 || len(h.suites)%2 != 0 || len(h.methods) == 0 {
		return false
	}
	for s := h.suites; len(s) > 0; s = s[2:] {
		if binary.BigEndian.Uint16(s) == suiteRenegotiationSCSV {
			h.renegotiation = true
		}
	}
	return h.parseExtensions(&c)
}

// parseServerHello reads a ServerHello's body.
func parseServerHello(body []byte, h *hello) bool {
	c := cursor{b: body}
	*h = hello{
		version: uint16(c.uint16()), random: c.take(randomLength), sessionID: c.vector8(),
		suite: uint16(c.uint16()), method: byte(c.uint8()),
	}
	if c.bad || len(h.sessionID) > 32 {
		return false
	}
	return h.parseExtensions(&c)
}

func (h *hello) parseExtensions(c *cursor) bool {
	if len(c.b) == 0 {
		return true // none at all
	}
	list := cursor{b: c.vector16()}
	if c.bad || len(c.b) != 0 {
		return false
	}
	var seen [4]bool
	once := func(i int) bool { was := seen[i]; seen[i] = true; return !was }
	for len(list.b) > 0 {
		typ := list.uint16()
		data := cursor{b: list.vector16()}
		if list.bad {
			return false
		}
		switch typ {
		case extExtendedMasterSecret:
			if len(data.b) != 0 || !once(0) {
				return false
			}
			h.extendedMaster = true
		case extRenegotiationInfo:
			h.renegotiated = data.vector8()
			if data.bad || len(data.b) != 0 || !once(1) {
				return false
			}
			h.renegotiation = true
		case extConnectionID:
			h.cid = data.vector8()
			if data.bad || len(data.b) != 0 || !once(2) {
				return false
			}
			h.hasCID = true
		case extRoutabilityCheck:
			if len(data.b) != 0 || !once(3) {
				return false
			}
			h.routability = true
		}
	}
	return true
}

// appendExtensions appends what both hellos of this package carry. The return routability check is never offered
// without a connection id (RFC 9853 section 3).
func appendExtensions(dst []byte, extendedMaster, renegotiation, hasCID bool, cid []byte, routability bool) []byte {
	at := len(dst)
	dst = append(dst, 0, 0)
	if extendedMaster {
		dst = append(dst, 0, extExtendedMasterSecret, 0, 0)
	}
	if renegotiation {
		dst = append(dst, extRenegotiationInfo>>8, extRenegotiationInfo&0xff, 0, 1, 0)
	}
	if hasCID {
		dst = append(dst, 0, extConnectionID, 0, byte(1+len(cid)), byte(len(cid)))
		dst = append(dst, cid...)
		if routability {
			dst = append(dst, 0, extRoutabilityCheck, 0, 0)
		}
	}
	if len(dst) == at+2 {
		return dst[:at]
	}
	binary.BigEndian.PutUint16(dst[at:], uint16(len(dst)-at-2))
	return dst
}
