package nfqueue

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Netlink and nfnetlink_queue numbers (linux/netfilter/nfnetlink_queue.h) that x/sys lacks.
const (
	subsystemQueue = 3 // NFNL_SUBSYS_QUEUE

	messagePacket  = subsystemQueue << 8   // NFQNL_MSG_PACKET
	messageVerdict = subsystemQueue<<8 | 1 // NFQNL_MSG_VERDICT
	messageConfig  = subsystemQueue<<8 | 2 // NFQNL_MSG_CONFIG

	attrPacketHeader  = 1 // NFQA_PACKET_HDR
	attrVerdictHeader = 2
	attrMark          = 3
	attrInterfaceIn   = 5
	attrPayload       = 10
	attrCapLen        = 13
	attrSKBInfo       = 14

	configCommand   = 1 // NFQA_CFG_CMD
	configParams    = 2
	configMaxLength = 3
	configMask      = 4
	configFlags     = 5

	commandBind   = 1
	commandUnbind = 2

	flagFailOpen = 1 << 0
	flagGSO      = 1 << 2
	flagUIDGID   = 1 << 3
	flagSecurity = 1 << 4
	flagConntrk  = 1 << 1

	copyPacket = 2 // NFQNL_COPY_PACKET
	infoGSO    = 1 << 1

	verdictDrop   = 0 // NF_DROP
	verdictAccept = 1

	headerLength  = 16 // struct nlmsghdr
	generalLength = 4  // struct nfgenmsg
	attrHeader    = 4  // struct nlattr
)

// Lengths of one verdict message.
const (
	verdictLength       = headerLength + generalLength + attrHeader + 8
	verdictMarkedLength = verdictLength + attrHeader + 4
)

func align4(n int) int { return (n + 3) &^ 3 }

// message is one netlink message of a datagram; body is what follows its header.
type message struct {
	kind     uint16
	sequence uint32
	body     []byte
}

// nextMessage splits the first message off b. If a message claims more bytes than there are, for example because the receive
// buffer was too small, the result has the bytes that are there. ok is false when there is no whole header.
func nextMessage(b []byte) (m message, rest []byte, ok bool) {
	if len(b) < headerLength {
		return m, nil, false
	}
	length := int(binary.NativeEndian.Uint32(b))
	m.kind = binary.NativeEndian.Uint16(b[4:])
	m.sequence = binary.NativeEndian.Uint32(b[8:])
	if length < headerLength {
		return m, nil, false
	}
	m.body = b[headerLength:min(length, len(b))]
	return m, b[min(align4(length), len(b)):], true
}

// failure returns the error number in an NLMSG_ERROR; 0: an acknowledgement.
func (m message) failure() unix.Errno {
	if len(m.body) < 4 {
		return unix.EBADMSG
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
}

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// parsePacket reads the body of an NFQNL_MSG_PACKET into p, which aliases body. It returns false if the body has no packet
// number, which a verdict needs. Any other missing attribute leaves its field zero.
func parsePacket(body []byte, p *Packet) bool {
	*p = Packet{}
	if len(body) < generalLength {
		return false
	}
	numbered := false
	length := 0
	for b := body[generalLength:]; len(b) >= attrHeader; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < attrHeader {
			break
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		value := b[attrHeader:min(size, len(b))]
		b = b[min(align4(size), len(b)):]
		switch kind {
		case attrPacketHeader:
			if len(value) < 7 {
				continue
			}
			p.ID, numbered = binary.BigEndian.Uint32(value), true
			ether := binary.BigEndian.Uint16(value[4:])
			p.NotIP = ether != etherIPv4 && ether != etherIPv6
		case attrMark:
			if len(value) >= 4 {
				p.Mark = binary.BigEndian.Uint32(value)
			}
		case attrInterfaceIn:
			if len(value) >= 4 {
				p.Interface = binary.BigEndian.Uint32(value)
			}
		case attrPayload:
			p.Data = value
		case attrCapLen:
			if len(value) >= 4 {
				length = int(binary.BigEndian.Uint32(value))
			}
		case attrSKBInfo:
			if len(value) >= 4 {
				p.Large = binary.BigEndian.Uint32(value)&infoGSO != 0
			}
		}
	}
	p.Length = max(length, len(p.Data))
	return numbered
}

// appendVerdict appends one NFQNL_MSG_VERDICT for a queue.
func appendVerdict(b []byte, number uint16, v Verdict) []byte {
	length, decision := verdictLength, uint32(verdictAccept)
	if v.Drop {
		decision, v.Marked = verdictDrop, false
	}
	if v.Marked {
		length = verdictMarkedLength
	}
	b = appendHeader(b, length, messageVerdict, unix.NLM_F_REQUEST, 0, number)
	b = appendAttr(b, attrVerdictHeader, 8)
	b = binary.BigEndian.AppendUint32(b, decision)
	b = binary.BigEndian.AppendUint32(b, v.ID)
	if v.Marked {
		b = appendAttr(b, attrMark, 4)
		b = binary.BigEndian.AppendUint32(b, v.Mark)
	}
	return b
}

// appendHeader appends the headers of a message with this total length.
func appendHeader(b []byte, length int, kind, flags uint16, sequence uint32, number uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(length))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = append(b, 0, 0, 0, 0, unix.AF_UNSPEC, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, number)
}

func appendAttr(b []byte, kind uint16, length int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+length))
	return binary.NativeEndian.AppendUint16(b, kind)
}

// attr is one attribute of a configuration message.
type attr struct {
	kind  uint16
	value []byte
}

func attr32(kind uint16, value uint32) attr {
	return attr{kind, binary.BigEndian.AppendUint32(nil, value)}
}

// configMessage returns an NFQNL_MSG_CONFIG; the kernel acknowledges it with the sequence number.
func configMessage(number uint16, sequence uint32, attrs ...attr) []byte {
	length := headerLength + generalLength
	for _, a := range attrs {
		length += attrHeader + align4(len(a.value))
	}
	b := appendHeader(make([]byte, 0, length), length, messageConfig, unix.NLM_F_REQUEST|unix.NLM_F_ACK, sequence, number)
	for _, a := range attrs {
		b = appendAttr(b, a.kind, len(a.value))
		b = append(b, a.value...)
		b = append(b, make([]byte, align4(len(a.value))-len(a.value))...)
	}
	return b
}

func commandAttr(command byte) attr { return attr{configCommand, []byte{command, 0, 0, 0}} }

func paramsAttr(copyRange int) attr {
	return attr{configParams, append(binary.BigEndian.AppendUint32(nil, uint32(copyRange)), copyPacket)}
}
