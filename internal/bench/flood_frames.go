package bench

import (

	//nolint:gosec // the long-term credential of RFC 8489
	//nolint:gosec // as above
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/pion/stun/v4"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/turn/requests"
)

// Kinds of what [Attack] sends.
const (
	attackUDPFlows  = "udp-flows"       // one datagram of each new 5-tuple
	attackSYN       = "syn"             // TCP SYNs of new 5-tuples
	attackFirst     = "first-fragments" // first fragments whose others never come
	attackLater     = "later-fragments" // later fragments whose first ones never come
	attackHalfOpen  = "dtls-half-open"  // ClientHellos with a returned cookie, then silence
	attackHello     = "dtls-hello"      // ClientHellos whose cookie does not come back
	attackForged    = "dtls-forged"     // records with an observed connection id
	attackAllocate  = "turn-allocate"   // unauthenticated Allocate requests
	attackSetUp     = "turn-set-up"     // Allocate requests of one address that are authenticated when asked to
	attackKnown     = "known-flows"     // datagrams of the same flows, one after the other
	attackFrameMax  = 1514
	attackUDP       = 14 + 20 // offset of the UDP or TCP header in a frame
	attackPayload   = attackUDP + 8
	forgedRecords   = 32 // in one datagram
	forgedRecordLen = 36 // bytes of each
	knownSources    = 256
	knownPort       = 10000 // the first one of each source
	maximumKnown    = 1 << 20
)

// attackKinds names them.
func attackKinds() []string {
	return []string{attackUDPFlows, attackSYN, attackFirst, attackLater, attackHalfOpen, attackHello, attackForged, attackAllocate, attackSetUp, attackKnown}
}

// frames builds the frames of an attack. They are IPv4.
type frames struct {
	attack *Attack
	random *rand.Rand
	id     uint16 // of IP datagrams
	client uint16 // of set-ups: the last source port
	seed   uint64 // of the random of each client
	// replied holds the clients of half-open handshakes that have returned their cookie: they fall silent then.
	replied  map[netip.AddrPort]bool
	known    [][]byte // the frames of known flows
	nextFlow int      // which of them is sent next
}

// source draws a source address: any of the prefix, or one of a few that are spread over it.
func (f *frames) source() netip.Addr {
	base := binary.BigEndian.Uint32(f.attack.Sources.Masked().Addr().AsSlice())
	hosts := uint32(1) << (32 - f.attack.Sources.Bits())
	if n := uint32(f.attack.Addresses); n > 0 {
		base += 1 + f.random.Uint32N(n)*(hosts/n)
	} else {
		base += 1 + f.random.Uint32N(hosts-2)
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base)))
}

// port draws a source port.
func (f *frames) port() uint16 { return uint16(1024 + f.random.UintN(64000)) }

// next is one frame of the attack, in the buffer.
func (f *frames) next(buffer []byte) []byte {
	if f.attack.Kind == attackKnown {
		return f.nextKnown()
	}
	from := netip.AddrPortFrom(f.source(), f.port())
	switch f.attack.Kind {
	case attackSetUp: // each port once
		f.client = max(f.client+1, 1024)
		return f.udp(buffer, netip.AddrPortFrom(from.Addr(), f.client), f.allocate())
	case attackSYN:
		return f.frame(buffer, packet.Build{Src: from, Proto: unix.IPPROTO_TCP, Flags: packet.SYN, Sequence: f.random.Uint32()})
	case attackFirst:
		frame := f.udp(buffer, from, make([]byte, 24))
		return f.fragment(frame, 0, true)
	case attackLater:
		frame := f.udp(buffer, from, make([]byte, 24))
		return f.fragment(frame, 185, false)
	case attackHalfOpen, attackHello:
		return f.udp(buffer, from, f.clientHello(from, nil))
	case attackForged:
		return f.udp(buffer, from, f.forged())
	case attackAllocate:
		return f.udp(buffer, from, f.allocate())
	}
	return f.udp(buffer, from, []byte{byte(f.random.Uint32())}) // one byte, which no program answers
}

// nextKnown is a datagram of the next known flow. It is built once.
func (f *frames) nextKnown() []byte {
	if f.known == nil {
		f.known = make([][]byte, f.attack.Flows)
	}
	i := f.nextFlow
	f.nextFlow = (f.nextFlow + 1) % len(f.known)
	if f.known[i] == nil {
		base := binary.BigEndian.Uint32(f.attack.Sources.Masked().Addr().AsSlice())
		source := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base+1+uint32(i%knownSources))))
		f.known[i] = f.udp(make([]byte, 0, 64), netip.AddrPortFrom(source, uint16(knownPort+i/knownSources)), make([]byte, floodPayload))
	}
	return f.known[i]
}

// frame builds a frame in the buffer, with an id of its own.
func (f *frames) frame(buffer []byte, b packet.Build) []byte {
	f.id++
	b.ID, b.Dst = uint32(f.id), f.attack.To
	const ethernet = 14 // bytes; the packet is built where the frame has it
	return b.AppendFrame(buffer[:0], f.attack.GatewayMAC, f.attack.SourceMAC, b.Append(buffer[ethernet:ethernet]))
}

// sumIP writes the checksum of the IP header again.
func sumIP(frame []byte) {
	frame[24], frame[25] = 0, 0
	binary.BigEndian.PutUint16(frame[24:], packet.Checksum(frame[14:attackUDP], 0))
}

func (f *frames) udp(buffer []byte, from netip.AddrPort, payload []byte) []byte {
	return f.frame(buffer, packet.Build{Src: from, Proto: unix.IPPROTO_UDP, Payload: payload})
}

// fragment makes a frame a fragment at an offset in units of 8 bytes.
func (f *frames) fragment(frame []byte, offset uint16, more bool) []byte {
	if more {
		offset |= 0x2000
	}
	binary.BigEndian.PutUint16(frame[20:], offset)
	sumIP(frame)
	return frame
}

// helloExtensions are those of each ClientHello; certificateExtensions, those with which a server signs its answer.
var (
	helloExtensions = []byte{
		0, 54, 0, 1, 0, // connection_id, of no bytes (RFC 9146)
		0, 23, 0, 0, // extended_master_secret
	}
	certificateExtensions = []byte{
		0, 10, 0, 4, 0, 2, 0, 23, // supported_groups: secp256r1
		0, 11, 0, 2, 1, 0, // ec_point_formats: uncompressed
		0, 13, 0, 4, 0, 2, 4, 3, // signature_algorithms: ecdsa_secp256r1_sha256
	}
)

// clientHello is that of a client of this address, whose random follows from it: the cookie binds both.
func (f *frames) clientHello(from netip.AddrPort, cookie []byte) []byte {
	address := from.Addr().As4()
	random := rand.New(rand.NewPCG(f.seed, uint64(binary.BigEndian.Uint32(address[:]))<<16|uint64(from.Port()))) //nolint:gosec // nothing secret
	body := []byte{0xfe, 0xfd}
	for range 4 {
		body = binary.BigEndian.AppendUint64(body, random.Uint64())
	}
	body = append(body, 0, byte(len(cookie)))
	body = append(body, cookie...)
	suite, extensions := byte(0xa8), slices.Clone(helloExtensions) // TLS_PSK_WITH_AES_128_CCM_8
	if f.attack.Certificates {
		suite, extensions = 0xae, append(extensions, certificateExtensions...) // TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8
	}
	body = append(body,
		0, 4, 0xc0, suite, 0x00, 0xff, // and the signal of secure renegotiation
		1, 0, // no compression
		0, byte(len(extensions)))
	body = append(body, extensions...)
	sequence := byte(0)
	if cookie != nil {
		sequence = 1
	}
	length := len(body)
	record := []byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, sequence}
	record = binary.BigEndian.AppendUint16(record, uint16(12+length))
	record = append(record, 1, 0, byte(length>>8), byte(length), 0, sequence, 0, 0, 0, 0, byte(length>>8), byte(length))
	return append(record, body...)
}

// datagramOf is the payload of a UDP frame, and its destination; nil for any other.
func datagramOf(frame []byte) (to netip.AddrPort, payload []byte) {
	var p packet.Packet
	if packet.ParseFrame(frame, &p) != nil || p.Kind != packet.KindUDP || p.First || p.Later || p.Truncated {
		return to, nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16(p.DstAddr()).Unmap(), binary.BigEndian.Uint16(p.Data[p.L4+2:])), p.PayloadBytes()
}

// reply is what a client of the attack says to a datagram from the target, nil: nothing. done counts it as a success.
func (f *frames) reply(to netip.AddrPort, payload []byte) (reply []byte, done bool) {
	switch f.attack.Kind {
	case attackHalfOpen:
		if cookie := cookieOf(payload); cookie != nil && !f.replied[to] {
			f.replied[to] = true
			return f.clientHello(to, cookie), true
		}
	case attackSetUp:
		m, auth := &stun.Message{Raw: payload}, &requests.Auth{}
		if m.Decode() != nil || m.Type.Method != stun.MethodAllocate {
			return nil, false
		}
		auth.SetUser(turnUser, turnPassword)
		request := stun.New()
		if auth.Challenge(m) && (requests.Request{Method: stun.MethodAllocate}).Build(request, auth) == nil {
			return request.Raw, false
		}
		return nil, m.Type.Class == stun.ClassSuccessResponse
	}
	return nil, false
}

// cookieOf finds the cookie of a HelloVerifyRequest (RFC 6347 section 4.2.1).
func cookieOf(payload []byte) []byte {
	if len(payload) < 28 || payload[0] != 22 || payload[13] != 3 || len(payload) < 28+int(payload[27]) {
		return nil
	}
	return payload[28 : 28+int(payload[27])]
}

// forged are records with the observed connection id, of epoch 1, a random sequence number and random ciphertext.
func (f *frames) forged() []byte {
	var payload []byte
	for range forgedRecords {
		payload = append(payload, 25, 0xfe, 0xfd, 0, 1)
		payload = append(payload, binary.BigEndian.AppendUint64(nil, f.random.Uint64()>>17)[2:]...)
		payload = append(payload, f.attack.CID...)
		rest := forgedRecordLen - 13 - len(f.attack.CID)
		payload = binary.BigEndian.AppendUint16(payload, uint16(rest))
		for range rest {
			payload = append(payload, byte(f.random.Uint32()))
		}
	}
	return payload
}

// allocate is an Allocate request with REQUESTED-TRANSPORT alone (RFC 8656 section 7.1).
func (f *frames) allocate() []byte {
	request := []byte{0, 3, 0, 8, 0x21, 0x12, 0xa4, 0x42}
	for range 3 {
		request = binary.BigEndian.AppendUint32(request, f.random.Uint32())
	}
	return append(request, 0, 0x19, 0, 4, unix.IPPROTO_UDP, 0, 0, 0)
}

// observeCID finds the connection id that a client sends, in a frame to the server.
func observeCID(frame []byte, server netip.AddrPort, length int) []byte {
	if to, payload := datagramOf(frame); to == server && len(payload) >= 11+length && payload[0] == 25 {
		return slices.Clone(payload[11 : 11+length])
	}
	return nil
}

func parseMAC(text string) (mac [6]byte, err error) {
	parsed, err := net.ParseMAC(text)
	if err != nil || len(parsed) != len(mac) {
		return mac, fmt.Errorf("%q is no MAC address", text)
	}
	copy(mac[:], parsed)
	return mac, nil
}
