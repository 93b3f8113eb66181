package message

import "strconv"

// Type is the message type (RFC 7252 section 4.2 and 4.3).
type Type uint8

// The four message types.
const (
	Con Type = iota // confirmable: the receiver answers with Ack or Rst
	Non             // non-confirmable
	Ack             // acknowledges a Con by its message id
	Rst             // the receiver lacks the context to process a message
)

// String returns CON, NON, ACK or RST.
func (t Type) String() string {
	switch t {
	case Con:
		return "CON"
	case Non:
		return "NON"
	case Ack:
		return "ACK"
	}
	return "RST"
}

// Code is the method or response code: three bits of class, five of detail (RFC 7252 section 12.1).
type Code uint8

// Methods (class 0), with those of RFC 8132.
const (
	Empty  Code = 0
	GET    Code = 1
	POST   Code = 2
	PUT    Code = 3
	DELETE Code = 4
	FETCH  Code = 5
	PATCH  Code = 6
	IPATCH Code = 7
)

// Response codes (RFC 7252 section 12.1.2; RFC 7959, 8132, 8516, 8768).
const (
	Created                  Code = 2<<5 | 1
	Deleted                  Code = 2<<5 | 2
	Valid                    Code = 2<<5 | 3
	Changed                  Code = 2<<5 | 4
	Content                  Code = 2<<5 | 5
	Continue                 Code = 2<<5 | 31
	BadRequest               Code = 4 << 5
	Unauthorized             Code = 4<<5 | 1
	BadOption                Code = 4<<5 | 2
	Forbidden                Code = 4<<5 | 3
	NotFound                 Code = 4<<5 | 4
	MethodNotAllowed         Code = 4<<5 | 5
	NotAcceptable            Code = 4<<5 | 6
	RequestEntityIncomplete  Code = 4<<5 | 8
	Conflict                 Code = 4<<5 | 9
	PreconditionFailed       Code = 4<<5 | 12
	RequestEntityTooLarge    Code = 4<<5 | 13
	UnsupportedContentFormat Code = 4<<5 | 15
	UnprocessableEntity      Code = 4<<5 | 22
	TooManyRequests          Code = 4<<5 | 29
	InternalServerError      Code = 5 << 5
	NotImplemented           Code = 5<<5 | 1
	BadGateway               Code = 5<<5 | 2
	ServiceUnavailable       Code = 5<<5 | 3
	GatewayTimeout           Code = 5<<5 | 4
	ProxyingNotSupported     Code = 5<<5 | 5
	HopLimitReached          Code = 5<<5 | 8
)

// Class returns the upper three bits: 0 method, 2 success, 4 client error, 5 server error.
func (c Code) Class() uint8 { return uint8(c >> 5) }

// Detail returns the lower five bits.
func (c Code) Detail() uint8 { return uint8(c & 0x1f) }

// IsRequest reports whether the code is a method, not a response or the empty message.
func (c Code) IsRequest() bool { return c != Empty && c.Class() == 0 }

// IsResponse is true for classes 2, 4 and 5; the other classes are reserved.
func (c Code) IsResponse() bool { return c.Class() == 2 || c.Class() == 4 || c.Class() == 5 }

// IsSafe is true for methods that change nothing, so that a duplicate may be executed again (RFC 7252 section 5.1).
func (c Code) IsSafe() bool { return c == GET || c == FETCH }

// String returns the dotted form, such as "2.05".
func (c Code) String() string {
	detail := c.Detail()
	return string([]byte{'0' + c.Class(), '.', '0' + detail/10, '0' + detail%10})
}

// Name returns the registered name in capitals, such as "GET" or "NOT FOUND", and "UNKNOWN" for one not registered.
func (c Code) Name() string {
	if name := c.name(); name != "" {
		return name
	}
	return "UNKNOWN"
}

func (c Code) name() string {
	switch c {
	case Empty:
		return "EMPTY"
	case GET:
		return "GET"
	case POST:
		return "POST"
	case PUT:
		return "PUT"
	case DELETE:
		return "DELETE"
	case FETCH:
		return "FETCH"
	case PATCH:
		return "PATCH"
	case IPATCH:
		return "IPATCH"
	case Created:
		return "CREATED"
	case Deleted:
		return "DELETED"
	case Valid:
		return "VALID"
	case Changed:
		return "CHANGED"
	case Content:
		return "CONTENT"
	case Continue:
		return "CONTINUE"
	}
	return c.errorName()
}

func (c Code) errorName() string {
	switch c {
	case BadRequest:
		return "BAD REQUEST"
	case Unauthorized:
		return "UNAUTHORIZED"
	case BadOption:
		return "BAD OPTION"
	case Forbidden:
		return "FORBIDDEN"
	case NotFound:
		return "NOT FOUND"
	case MethodNotAllowed:
		return "METHOD NOT ALLOWED"
	case NotAcceptable:
		return "NOT ACCEPTABLE"
	case RequestEntityIncomplete:
		return "REQUEST ENTITY INCOMPLETE"
	case Conflict:
		return "CONFLICT"
	case PreconditionFailed:
		return "PRECONDITION FAILED"
	case RequestEntityTooLarge:
		return "REQUEST ENTITY TOO LARGE"
	case UnsupportedContentFormat:
		return "UNSUPPORTED CONTENT FORMAT"
	case UnprocessableEntity:
		return "UNPROCESSABLE ENTITY"
	case TooManyRequests:
		return "TOO MANY REQUESTS"
	case InternalServerError:
		return "INTERNAL SERVER ERROR"
	case NotImplemented:
		return "NOT IMPLEMENTED"
	case BadGateway:
		return "BAD GATEWAY"
	case ServiceUnavailable:
		return "SERVICE UNAVAILABLE"
	case GatewayTimeout:
		return "GATEWAY TIMEOUT"
	case ProxyingNotSupported:
		return "PROXYING NOT SUPPORTED"
	case HopLimitReached:
		return "HOP LIMIT REACHED"
	}
	return ""
}

// ParseMethod returns the code of a method name in any case, such as "get".
func ParseMethod(name string) (Code, bool) {
	for code := GET; code <= IPATCH; code++ {
		if equalFold(name, code.Name()) {
			return code, true
		}
	}
	return 0, false
}

func equalFold(a, upper string) bool {
	if len(a) != len(upper) {
		return false
	}
	for i := range len(a) {
		c := a[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

// Format is a content format number (RFC 7252 section 12.3), the value of Content-Format and Accept.
type Format uint16

// The content formats that Weir uses.
const (
	Text        Format = 0
	LinkFormat  Format = 40
	XML         Format = 41
	OctetStream Format = 42
	JSON        Format = 50
	CBOR        Format = 60
)

// String returns the media type, or the number when it has no name here.
func (f Format) String() string {
	switch f {
	case Text:
		return "text/plain"
	case LinkFormat:
		return "application/link-format"
	case XML:
		return "application/xml"
	case OctetStream:
		return "application/octet-stream"
	case JSON:
		return "application/json"
	case CBOR:
		return "application/cbor"
	}
	return strconv.Itoa(int(f))
}
