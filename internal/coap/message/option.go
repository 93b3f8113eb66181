package message

import "strconv"

// OptionID is an option number. Its low bits define how a receiver that does not know it must behave (RFC 7252 section 5.4.6).
type OptionID uint16

// Registered options (RFC 7252 section 12.2; RFC 7641, 7959, 7967, 8613, 8768, 9175).
const (
	IfMatch       OptionID = 1
	URIHost       OptionID = 3
	ETag          OptionID = 4
	IfNoneMatch   OptionID = 5
	Observe       OptionID = 6
	URIPort       OptionID = 7
	LocationPath  OptionID = 8
	OSCORE        OptionID = 9
	URIPath       OptionID = 11
	ContentFormat OptionID = 12
	MaxAge        OptionID = 14
	URIQuery      OptionID = 15
	HopLimit      OptionID = 16
	Accept        OptionID = 17
	LocationQuery OptionID = 20
	Block2        OptionID = 23
	Block1        OptionID = 27
	Size2         OptionID = 28
	ProxyURI      OptionID = 35
	ProxyScheme   OptionID = 39
	Size1         OptionID = 60
	Echo          OptionID = 252
	NoResponse    OptionID = 258
	RequestTag    OptionID = 292
)

// Critical is true for an option that a receiver must understand: an unknown one makes a request fail with 4.02
// and a response be rejected (RFC 7252 section 5.4.1).
func (o OptionID) Critical() bool { return o&1 != 0 }

// rule is what RFC 7252 section 5.10 (and the RFCs above) says about one option's value.
type rule struct {
	name       string
	min, max   int // length in bytes
	repeatable bool
}

func ruleOf(id OptionID) (rule, bool) {
	switch id {
	case IfMatch:
		return rule{"If-Match", 0, 8, true}, true
	case URIHost:
		return rule{"Uri-Host", 1, 255, false}, true
	case ETag:
		return rule{"ETag", 1, 8, true}, true
	case IfNoneMatch:
		return rule{"If-None-Match", 0, 0, false}, true
	case Observe:
		return rule{"Observe", 0, 3, false}, true
	case URIPort:
		return rule{"Uri-Port", 0, 2, false}, true
	case LocationPath:
		return rule{"Location-Path", 0, 255, true}, true
	case OSCORE:
		return rule{"Object-Security", 0, 255, false}, true
	case URIPath:
		return rule{"Uri-Path", 0, 255, true}, true
	case ContentFormat:
		return rule{"Content-Format", 0, 2, false}, true
	case MaxAge:
		return rule{"Max-Age", 0, 4, false}, true
	case URIQuery:
		return rule{"Uri-Query", 0, 255, true}, true
	case HopLimit:
		return rule{"Hop-Limit", 1, 1, false}, true
	case Accept:
		return rule{"Accept", 0, 2, false}, true
	case LocationQuery:
		return rule{"Location-Query", 0, 255, true}, true
	}
	return laterRuleOf(id)
}

func laterRuleOf(id OptionID) (rule, bool) {
	switch id {
	case Block2:
		return rule{"Block2", 0, 3, false}, true
	case Block1:
		return rule{"Block1", 0, 3, false}, true
	case Size2:
		return rule{"Size2", 0, 4, false}, true
	case ProxyURI:
		return rule{"Proxy-Uri", 1, 1034, false}, true
	case ProxyScheme:
		return rule{"Proxy-Scheme", 1, 255, false}, true
	case Size1:
		return rule{"Size1", 0, 4, false}, true
	case Echo:
		return rule{"Echo", 1, 40, false}, true
	case NoResponse:
		return rule{"No-Response", 0, 1, false}, true
	case RequestTag:
		return rule{"Request-Tag", 0, 8, true}, true
	}
	return rule{}, false
}

// String returns the registered name, or "Option-65000" for a number not registered here.
func (o OptionID) String() string {
	if r, ok := ruleOf(o); ok {
		return r.name
	}
	return "Option-" + strconv.Itoa(int(o))
}

// Options walks the options of one parsed message in ascending order of number. The zero value has none.
type Options struct {
	rest  []byte
	value []byte
	id    OptionID
}

// Next steps to the next option and reports whether there is one.
func (o *Options) Next() bool {
	if len(o.rest) == 0 {
		return false
	}
	delta, length, header := int(o.rest[0]>>4), int(o.rest[0]&15), 1
	if delta > 12 || length > 12 {
		delta, length, header, _ = optionHeader(o.rest) // Parse has checked it
	}
	o.id += OptionID(delta)
	o.value = o.rest[header : header+length]
	o.rest = o.rest[header+length:]
	return true
}

// ID returns the number of the current option.
func (o *Options) ID() OptionID { return o.id }

// Value returns the bytes of the current option; they alias the datagram.
func (o *Options) Value() []byte { return o.value }

// Uint reads a value of at most 4 bytes as the unsigned integer of RFC 7252 section 3.2; ok is false for a longer one.
func Uint(value []byte) (n uint32, ok bool) {
	if len(value) > 4 {
		return 0, false
	}
	for _, b := range value {
		n = n<<8 | uint32(b)
	}
	return n, true
}

// optionHeader reads delta and length of the option at the start of b. header is the bytes it takes.
func optionHeader(b []byte) (delta, length, header int, ok bool) {
	delta, length, header = int(b[0]>>4), int(b[0]&15), 1
	if delta, header, ok = extend(b, delta, header); !ok {
		return 0, 0, 0, false
	}
	length, header, ok = extend(b, length, header)
	return delta, length, header, ok
}

// extend resolves a nibble of 13 or 14 by the bytes at offset; 15 is reserved.
func extend(b []byte, nibble, offset int) (value, next int, ok bool) {
	switch {
	case nibble < 13:
		return nibble, offset, true
	case nibble == 13 && offset < len(b):
		return int(b[offset]) + 13, offset + 1, true
	case nibble == 14 && offset+1 < len(b):
		return int(b[offset])<<8 + int(b[offset+1]) + 269, offset + 2, true
	}
	return 0, 0, false
}
