package packet

import (
	"errors"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Kind says what a packet carries.
type Kind uint8

// The kinds. A fragment that is not the first has the kind of its protocol
// number but no ports: check Later.
const (
	KindOther     Kind = iota // another protocol: addresses and Proto only
	KindTCP                   // ports and TCPFlags
	KindUDP                   // ports and payload
	KindSCTP                  // ports
	KindEcho                  // ICMP echo request or reply; Key.SrcPort is its identifier
	KindICMPError             // Key is the quoted flow reversed
	KindICMPOther             // any other ICMP message
)

// String returns the name in lower case.
func (k Kind) String() string {
	switch k {
	case KindTCP:
		return "tcp"
	case KindUDP:
		return "udp"
	case KindSCTP:
		return "sctp"
	case KindEcho:
		return "echo"
	case KindICMPError:
		return "icmp_error"
	case KindICMPOther:
		return "icmp_other"
	}
	return "other"
}

// TCP flags (RFC 9293 section 3.1).
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Errors of Parse and ParseFrame.
var (
	ErrTruncated  = errors.New("packet ends inside a header")
	ErrVersion    = errors.New("neither IPv4 nor IPv6")
	ErrHeader     = errors.New("impossible length in a header")
	ErrExtensions = errors.New("too many IPv6 extension headers")
	ErrMapped     = errors.New("IPv4-mapped address in an IPv6 header") // would pose as IPv4 in a Key
	ErrNotIP      = errors.New("frame carries neither IPv4 nor IPv6")
	ErrQuote      = errors.New("ICMP error quotes too little to name a flow")
)

// Packet is a parsed packet. Data aliases the caller's bytes; all offsets are
// into Data unless they say otherwise.
type Packet struct {
	Data  []byte // from the IP header to the end of the packet, padding cut off
	Key   flow.Key
	Kind  Kind
	Proto uint8 // of the transport header of this packet, not of the quoted one

	Version   uint8 // 4 or 6
	TTL       uint8 // or hop limit
	TCPFlags  uint8
	Truncated bool // a capture: Data ends before the packet did
	Length    int  // of the whole packet, as its header says; more than len(Data) if Truncated

	First      bool // first fragment of several
	Later      bool // a fragment that is not the first: no ports
	Fragment   flow.FragmentKey
	L4         int // offset of the transport header
	Payload    int // offset of what follows it
	ICMPType   uint8
	ICMPCode   uint8
	Quote      int  // offset of the quoted IP header; 0: none
	QuoteL4    int  // offset of the quoted transport header
	QuoteLater bool // the quoted packet is a later fragment: Fragment names it, Key has no ports

	Frame     []byte    // the whole frame, if ParseFrame read it
	VLANs     [2]uint16 // tags, outer first (12 bits)
	VLANCount int
}

// Source and destination of the packet itself; for an ICMP error these are not
// the addresses in Key.

// SrcAddr returns the source address in the IP header, 16 bytes.
func (p *Packet) SrcAddr() [16]byte { return p.address(p.srcOffset()) }

// DstAddr returns the destination address in the IP header, 16 bytes.
func (p *Packet) DstAddr() [16]byte { return p.address(p.srcOffset() + p.addrLen()) }

// PayloadBytes returns what follows the transport header, nil for a later fragment.
func (p *Packet) PayloadBytes() []byte {
	if p.Later || p.Payload > len(p.Data) {
		return nil
	}
	return p.Data[p.Payload:]
}

func (p *Packet) srcOffset() int {
	if p.Version == 4 {
		return 12
	}
	return 8
}

func (p *Packet) addrLen() int {
	if p.Version == 4 {
		return 4
	}
	return 16
}

func (p *Packet) address(at int) [16]byte {
	if p.Version == 4 {
		return mapped(p.Data[at:])
	}
	return [16]byte(p.Data[at : at+16])
}

// mapped returns the four bytes at b as an IPv4-mapped address.
func mapped(b []byte) [16]byte {
	return [16]byte{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}
