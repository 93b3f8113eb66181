package cid

// Protocols is a set of wire formats that may carry a CID on one port.
type Protocols uint8

const (
	DTLS12 Protocols = 1 << iota // RFC 9146: record type 25, CID at byte 11, no length on the wire
	DTLS13                       // RFC 9147 section 4: unified header 001CSLEE, CID at byte 1, no length on the wire
	QUIC                         // RFC 9000 section 17: long header with a length, short header without
)

// MaxRecords is how many DTLS records of one datagram Locate looks at. It covers a client's whole last flight
// (Certificate, ClientKeyExchange, CertificateVerify, ChangeCipherSpec, Finished) and keeps the kernel's loop bounded.
const MaxRecords = 8

// Kind says in which format a CID was found.
type Kind uint8

const (
	KindNone        Kind = iota // no CID
	KindDTLS12                  // DTLS 1.2 CID record
	KindDTLS13                  // DTLS 1.3 unified header
	KindQUICShort               // QUIC short header
	KindQUICLong                // QUIC long header whose destination CID the server chose
	KindQUICInitial             // QUIC Initial, 0-RTT or version negotiation: the client may have chosen the CID
	KindQUICOther               // QUIC long header of another version (RFC 8999 section 5.1): it is not known who chose the CID
)

func (k Kind) String() string {
	switch k {
	case KindDTLS12:
		return "dtls12"
	case KindDTLS13:
		return "dtls13"
	case KindQUICShort:
		return "quic_short"
	case KindQUICLong:
		return "quic_long"
	case KindQUICInitial:
		return "quic_initial"
	case KindQUICOther:
		return "quic_other"
	default:
		return "none"
	}
}

const (
	dtlsHeader     = 13 // type, version, epoch, sequence number, length
	dtlsCIDOffset  = 11
	dtlsTypeCID    = 25
	dtlsTypeCCS    = 20 // first of the plaintext record types
	dtlsTypeACK    = 26 // last of them (RFC 9147 section 7)
	quicLongHeader = 6  // flags, version, length of the destination CID
)

// Locate returns the first CID in a UDP payload, as a slice of it. Length is that of the port's CIDs, needed where
// the wire does not carry it. DTLS 1.2 records before the one with a CID are stepped over (at most MaxRecords in
// all): a client's last flight starts with plaintext records. Malformed or truncated input has no CID. Safe on any bytes.
//
// The first byte distinguishes DTLS from QUIC. On a port with QUIC only, every datagram is QUIC, because clients may clear
// the fixed bit (RFC 9287). On a port that DTLS shares, bytes below 64 are not QUIC (RFC 9443), so a server on a shared port
// must not offer to clear the fixed bit.
func Locate(datagram []byte, protocols Protocols, length int) (id []byte, kind Kind, ok bool) {
	b := datagram
	if length < 0 || length > MaxLength || len(b) == 0 {
		return nil, KindNone, false
	}
	if protocols&QUIC != 0 && (b[0] >= 0x40 || protocols&(DTLS12|DTLS13) == 0) {
		return locateQUIC(b, length)
	}
	for range MaxRecords {
		if len(b) == 0 {
			return nil, KindNone, false
		}
		first := b[0]
		switch {
		case first == dtlsTypeCID:
			if protocols&DTLS12 == 0 {
				return nil, KindNone, false
			}
			return locateDTLS12(b, length)
		case first >= dtlsTypeCCS && first <= dtlsTypeACK:
			if protocols&(DTLS12|DTLS13) == 0 || len(b) < dtlsHeader || b[1] != 0xfe {
				return nil, KindNone, false
			}
			n := dtlsHeader + int(b[11])<<8 + int(b[12])
			if n > len(b) {
				return nil, KindNone, false
			}
			b = b[n:]
		case first&0xe0 == 0x20:
			if protocols&DTLS13 == 0 || first&0x10 == 0 || len(b) < 1+length || length == 0 {
				return nil, KindNone, false
			}
			return b[1 : 1+length : 1+length], KindDTLS13, true
		default:
			return nil, KindNone, false
		}
	}
	return nil, KindNone, false
}

func locateDTLS12(b []byte, length int) ([]byte, Kind, bool) {
	if length == 0 || len(b) < dtlsHeader+length || b[1] != 0xfe || b[2] != 0xfd {
		return nil, KindNone, false
	}
	end := dtlsCIDOffset + length
	if body := int(b[end])<<8 + int(b[end+1]); dtlsHeader+length+body > len(b) {
		return nil, KindNone, false
	}
	return b[dtlsCIDOffset:end:end], KindDTLS12, true
}

func locateQUIC(b []byte, length int) ([]byte, Kind, bool) {
	if b[0]&0x80 == 0 {
		if length == 0 || len(b) < 1+length {
			return nil, KindNone, false
		}
		return b[1 : 1+length : 1+length], KindQUICShort, true
	}
	if len(b) < quicLongHeader {
		return nil, KindNone, false
	}
	n := int(b[5])
	if n == 0 || n > MaxLength || len(b) < quicLongHeader+n {
		return nil, KindNone, false
	}
	return b[quicLongHeader : quicLongHeader+n : quicLongHeader+n], quicLongKind(b), true
}

// quicLongKind distinguishes packets whose CID the server has chosen (Handshake, Retry) from those that may still carry the
// client's own choice. RFC 9000 section 17.2 and RFC 9369 section 3.2 number the types differently; of other versions only
// the position of the CID is known (RFC 8999).
func quicLongKind(b []byte) Kind {
	version := uint32(b[1])<<24 | uint32(b[2])<<16 | uint32(b[3])<<8 | uint32(b[4])
	packetType := b[0] >> 4 & 3
	server := false
	switch version {
	case 0: // version negotiation
	case 1:
		server = packetType >= 2
	case 0x6b3343cf:
		server = packetType == 3 || packetType == 0
	default:
		return KindQUICOther
	}
	if server {
		return KindQUICLong
	}
	return KindQUICInitial
}
