package handshake

import "encoding/binary"

// Extensions (IANA TLS ExtensionType values).
const (
	extServerName           = 0  // RFC 6066 section 3
	extMaxFragmentLength    = 1  // RFC 6066 section 4
	extSupportedGroups      = 10 // RFC 8422
	extPointFormats         = 11 // RFC 8422
	extSignatureAlgorithms  = 13 // RFC 5246
	extClientCertificate    = 19 // RFC 7250
	extServerCertificate    = 20 // RFC 7250
	extExtendedMasterSecret = 23 // RFC 7627
	extRecordSizeLimit      = 28 // RFC 8449
	extSessionTicket        = 35 // RFC 5077
	extConnectionID         = 54 // RFC 9146
	extRoutabilityCheck     = 61 // RFC 9853
	extRenegotiationInfo    = 0xff01
	suiteRenegotiationSCSV  = 0x00ff // RFC 5746 section 3.3
)

// minRecordLimit is the smallest record size limit that a peer may request (RFC 8449 section 4).
const minRecordLimit = 64

// maxServerName bounds a server name in bytes, as the domain name system does.
const maxServerName = 255

// hello is a ClientHello or a ServerHello; after parsing its slices point into the message.
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
	hasServerName  bool
	serverName     []byte // ClientHello
	groups         []byte // ClientHello: two bytes each; nil: the extension is absent
	pointFormats   []byte // nil: the extension is absent
	schemes        []byte // ClientHello: two bytes each; nil: the extension is absent
	serverTypes    []byte // certificate types: those of a ClientHello, the one of a ServerHello
	clientTypes    []byte
	maxFragment    byte // 1 to 4 stand for 2^9 to 2^12 bytes; 0: none
	recordLimit    int  // bytes; 0: none
	hasTicket      bool
	ticket         []byte // ClientHello
}

// fragmentLength is the length in bytes that maxFragment stands for, 0 if none.
func (h *hello) fragmentLength() int {
	if h.maxFragment == 0 {
		return 0
	}
	return 1 << (8 + h.maxFragment)
}

// parseClientHello reads a ClientHello's body (RFC 6347 section 4.3.2).
func parseClientHello(body []byte, h *hello) bool {
	c := cursor{b: body}
	if !h.begin(&c) {
		return false
	}
	h.suites, h.methods = c.vector16(), c.vector8()
	if c.bad || len(h.suites) == 0 || len(h.suites)%2 != 0 || len(h.methods) == 0 {
		return false
	}
	for s := h.suites; len(s) > 0; s = s[2:] {
		if binary.BigEndian.Uint16(s) == suiteRenegotiationSCSV {
			h.renegotiation = true
		}
	}
	return h.parseExtensions(&c, true)
}

// begin reads a ClientHello up to its cookie, which is what a cookie covers. The first fragment of a hello suffices.
func (h *hello) begin(c *cursor) bool {
	*h = hello{version: uint16(c.uint16()), random: c.take(randomLength), sessionID: c.vector8(), cookie: c.vector8()}
	return !c.bad && len(h.sessionID) <= 32
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
	return h.parseExtensions(&c, false)
}

// parseExtensions reads the extensions; it refuses a known one that comes twice and passes over unknown ones.
func (h *hello) parseExtensions(c *cursor, client bool) bool {
	if len(c.b) == 0 {
		return !c.bad // none at all
	}
	list := cursor{b: c.vector16()}
	if !c.done() {
		return false
	}
	var seen uint64
	for len(list.b) > 0 {
		typ := list.uint16()
		data := cursor{b: list.vector16()}
		if list.bad {
			return false
		}
		known := h.parseExtension(typ, &data, client)
		if !known {
			continue
		}
		bit := uint64(1) << (typ % 62) // in which the known types differ
		if !data.done() || seen&bit != 0 {
			return false
		}
		seen |= bit
	}
	return true
}

// parseExtension reads one extension; data is not done if it makes no sense. It reports whether the type is known.
func (h *hello) parseExtension(typ int, data *cursor, client bool) (known bool) {
	switch typ {
	case extExtendedMasterSecret:
		h.extendedMaster = true
	case extRenegotiationInfo:
		h.renegotiated = data.vector8()
		h.renegotiation = true
	case extConnectionID:
		h.cid = data.vector8()
		h.hasCID = true
	case extRoutabilityCheck:
		h.routability = true
	case extMaxFragmentLength:
		h.maxFragment = byte(data.uint8())
		data.bad = data.bad || h.maxFragment < 1 || h.maxFragment > 4
	case extRecordSizeLimit:
		h.recordLimit = data.uint16()
		data.bad = data.bad || h.recordLimit < minRecordLimit
	case extPointFormats:
		h.pointFormats = data.vector8()
	case extSessionTicket:
		h.hasTicket = true
		h.ticket = data.take(len(data.b))
	case extServerName:
		h.parseServerName(data, client)
	case extServerCertificate:
		h.serverTypes = certificateTypes(data, client)
	case extClientCertificate:
		h.clientTypes = certificateTypes(data, client)
	case extSupportedGroups, extSignatureAlgorithms:
		if !client {
			return false
		}
		list := data.vector16()
		data.bad = data.bad || len(list) == 0 || len(list)%2 != 0
		if typ == extSupportedGroups {
			h.groups = list
		} else {
			h.schemes = list
		}
	default:
		return false
	}
	return true
}

// parseServerName reads the first host name of a client's list, or the empty extension of a server.
func (h *hello) parseServerName(data *cursor, client bool) {
	h.hasServerName = true
	if !client {
		return
	}
	list := cursor{b: data.vector16()}
	for len(list.b) > 0 {
		typ := list.uint8()
		name := list.vector16()
		if typ == 0 && h.serverName == nil && len(name) <= maxServerName {
			h.serverName = name
		}
	}
	data.bad = data.bad || list.bad
}

// certificateTypes reads a client's list of certificate types, or the one that a server has chosen (RFC 7250 section 3).
func certificateTypes(data *cursor, client bool) []byte {
	if client {
		list := data.vector8()
		data.bad = data.bad || len(list) == 0
		return list
	}
	return data.take(1)
}

// appendClientHello appends the body of a ClientHello.
func (h *hello) appendClientHello(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, h.version)
	dst = append(dst, h.random...)
	dst = appendVector8(dst, h.sessionID)
	dst = appendVector8(dst, h.cookie)
	dst = appendVector16(dst, h.suites)
	dst = appendVector8(dst, h.methods)
	return h.appendExtensions(dst, true)
}

// appendServerHello appends the body of a ServerHello.
func (h *hello) appendServerHello(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, h.version)
	dst = append(dst, h.random...)
	dst = appendVector8(dst, h.sessionID)
	dst = append(dst, byte(h.suite>>8), byte(h.suite), h.method)
	return h.appendExtensions(dst, false)
}

// appendExtensions appends the extensions that are set, or nothing if none is. The return routability check is never
// offered without a connection id (RFC 9853 section 3).
func (h *hello) appendExtensions(dst []byte, client bool) []byte {
	at := len(dst)
	dst = append(dst, 0, 0)
	add := func(is bool, typ uint16, data []byte) {
		if is {
			dst = appendVector16(binary.BigEndian.AppendUint16(dst, typ), data)
		}
	}
	vector := func(list []byte) []byte { return appendVector16(nil, list) }
	types := func(list []byte) []byte {
		if client {
			return appendVector8(nil, list)
		}
		return list
	}
	var name []byte
	if client && h.hasServerName {
		name = vector(append([]byte{0}, vector(h.serverName)...))
	}
	add(h.extendedMaster, extExtendedMasterSecret, nil)
	add(h.renegotiation, extRenegotiationInfo, []byte{0})
	add(h.hasCID, extConnectionID, appendVector8(nil, h.cid))
	add(h.hasCID && h.routability, extRoutabilityCheck, nil)
	add(h.hasServerName, extServerName, name)
	add(h.groups != nil, extSupportedGroups, vector(h.groups))
	add(h.pointFormats != nil, extPointFormats, appendVector8(nil, h.pointFormats))
	add(h.schemes != nil, extSignatureAlgorithms, vector(h.schemes))
	add(h.serverTypes != nil, extServerCertificate, types(h.serverTypes))
	add(h.clientTypes != nil, extClientCertificate, types(h.clientTypes))
	add(h.maxFragment != 0, extMaxFragmentLength, []byte{h.maxFragment})
	add(h.recordLimit != 0, extRecordSizeLimit, binary.BigEndian.AppendUint16(nil, uint16(h.recordLimit)))
	add(h.hasTicket, extSessionTicket, h.ticket)
	if len(dst) == at+2 {
		return dst[:at]
	}
	binary.BigEndian.PutUint16(dst[at:], uint16(len(dst)-at-2))
	return dst
}
