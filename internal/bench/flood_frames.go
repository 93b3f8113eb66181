package bench

import (
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // the long-term credential of RFC 8489
	"crypto/sha1" //nolint:gosec // as above
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Kinds of what [Attack] sends.
const (
	attackUDPFlows  = "udp-flows"       // one datagram of each new 5-tuple
	attackSYN       = "syn"             // TCP SYNs of new 5-tuples
	attackFirst     = "first-fragments" // first fragments whose others never come
	attackLater     = "later-fragments" // later fragments whose first ones never come
	attackHalfOpen  = "dtls-half-open"  // ClientHellos with a returned cookie, then silence
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
	return []string{attackUDPFlows, attackSYN, attackFirst, attackLater, attackHalfOpen, attackForged, attackAllocate, attackSetUp, attackKnown}
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
		return f.syn(buffer, from)
	case attackFirst:
		frame := f.udp(buffer, from, make([]byte, 24))
		return f.fragment(frame, 0, true)
	case attackLater:
		frame := f.udp(buffer, from, make([]byte, 24))
		return f.fragment(frame, 185, false)
	case attackHalfOpen:
		return f.udp(buffer, from, f.clientHello(from, nil))
	case attackForged:
		return f.udp(buffer, from, f.forged())
	case attackAllocate:
		return f.udp(buffer, from, f.allocate())
	}
	return f.udp(buffer, from, []byte{byte(f.random.Uint32())}) // one byte, which nobody answers
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

// ip begins a frame: Ethernet and IPv4 headers for a payload of that many bytes.
func (f *frames) ip(buffer []byte, from netip.Addr, protocol byte, length int) []byte {
	f.id++
	frame := append(buffer[:0], f.attack.GatewayMAC[:]...)
	frame = append(frame, f.attack.SourceMAC[:]...)
	frame = append(frame, 0x08, 0x00, 0x45, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(20+length))
	frame = binary.BigEndian.AppendUint16(frame, f.id)
	frame = append(frame, 0, 0, 64, protocol, 0, 0)
	frame = append(frame, from.AsSlice()...)
	frame = append(frame, f.attack.To.Addr().AsSlice()...)
	sumIP(frame)
	return frame
}

// sumIP writes the header's checksum.
func sumIP(frame []byte) {
	frame[24], frame[25] = 0, 0
	binary.BigEndian.PutUint16(frame[24:], onesComplement(frame[14:34], 0))
}

// sumTransport writes the checksum of TCP or UDP, at that offset of the transport header.
func sumTransport(frame []byte, protocol byte, at int) {
	body := frame[attackUDP:]
	pseudo := append(slices.Clone(frame[26:34]), body...)
	if len(pseudo)%2 == 1 {
		pseudo = append(pseudo, 0)
	}
	sum := onesComplement(pseudo, uint32(len(body))+uint32(protocol))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(body[at:], sum)
}

func (f *frames) udp(buffer []byte, from netip.AddrPort, payload []byte) []byte {
	frame := f.ip(buffer, from.Addr(), unix.IPPROTO_UDP, 8+len(payload))
	frame = binary.BigEndian.AppendUint16(frame, from.Port())
	frame = binary.BigEndian.AppendUint16(frame, f.attack.To.Port())
	frame = binary.BigEndian.AppendUint16(frame, uint16(8+len(payload)))
	frame = append(frame, 0, 0)
	frame = append(frame, payload...)
	sumTransport(frame, unix.IPPROTO_UDP, 6)
	return frame
}

func (f *frames) syn(buffer []byte, from netip.AddrPort) []byte {
	frame := f.ip(buffer, from.Addr(), unix.IPPROTO_TCP, 20)
	frame = binary.BigEndian.AppendUint16(frame, from.Port())
	frame = binary.BigEndian.AppendUint16(frame, f.attack.To.Port())
	frame = binary.BigEndian.AppendUint32(frame, f.random.Uint32())
	frame = append(frame, 0, 0, 0, 0, 5<<4, 2, 0x40, 0, 0, 0, 0, 0)
	sumTransport(frame, unix.IPPROTO_TCP, 16)
	return frame
}

// fragment makes a frame a fragment at an offset in units of 8 bytes.
func (f *frames) fragment(frame []byte, offset uint16, more bool) []byte {
	if more {
		offset |= 0x2000
	}
	binary.BigEndian.PutUint16(frame[18:], f.id)
	binary.BigEndian.PutUint16(frame[20:], offset)
	sumIP(frame)
	return frame
}

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
	body = append(body,
		0, 4, 0xc0, 0xa8, 0x00, 0xff, // TLS_PSK_WITH_AES_128_CCM_8 and the signal of secure renegotiation
		1, 0, // no compression
		0, 9, // extensions
		0, 54, 0, 1, 0, // connection_id, of no bytes (RFC 9146)
		0, 23, 0, 0) // extended_master_secret
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

// datagramOf is the payload of a UDP frame, and whom it was sent to; nil for any other.
func datagramOf(frame []byte) (to netip.AddrPort, payload []byte) {
	if len(frame) < attackPayload || frame[12] != 8 || frame[13] != 0 || frame[14] != 0x45 || frame[23] != unix.IPPROTO_UDP {
		return to, nil
	}
	length := int(binary.BigEndian.Uint16(frame[attackUDP+4:])) - 8
	if length < 0 || attackPayload+length > len(frame) {
		return to, nil
	}
	to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[30:34])), binary.BigEndian.Uint16(frame[attackUDP+2:]))
	return to, frame[attackPayload : attackPayload+length]
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
		if len(payload) >= 20 && payload[0] == 1 && payload[1] == 3 { // Allocate, success
			return nil, true
		}
		if realm, nonce := challengeOf(payload); nonce != nil {
			return f.authenticated(realm, nonce), false
		}
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

// challengeOf finds REALM and NONCE of an Allocate error response (RFC 8489 section 14).
func challengeOf(payload []byte) (realm, nonce []byte) {
	if len(payload) < 20 || payload[0] != 1 || payload[1] != 0x13 {
		return nil, nil
	}
	for rest := payload[20:]; len(rest) >= 4; {
		kind, length := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		if len(rest) < 4+length {
			break
		}
		switch value := rest[4 : 4+length]; kind {
		case 0x14:
			realm = value
		case 0x15:
			nonce = value
		}
		rest = rest[min(len(rest), 4+(length+3)/4*4):]
	}
	return realm, nonce
}

// authenticated is an Allocate request with the long-term credential (RFC 8489 section 9.2) of the benchmark's user.
func (f *frames) authenticated(realm, nonce []byte) []byte {
	request := f.allocate()
	attribute := func(kind uint16, value []byte) {
		request = binary.BigEndian.AppendUint16(request, kind)
		request = binary.BigEndian.AppendUint16(request, uint16(len(value)))
		request = append(request, value...)
		request = append(request, make([]byte, (4-len(value)%4)%4)...)
	}
	attribute(0x06, []byte(turnUser))
	attribute(0x14, realm)
	attribute(0x15, nonce)
	key := md5.Sum([]byte(turnUser + ":" + string(realm) + ":" + turnPassword)) //nolint:gosec // the RFC's
	mac := hmac.New(sha1.New, key[:])
	binary.BigEndian.PutUint16(request[2:], uint16(len(request)-20+24))
	mac.Write(request)
	attribute(0x08, mac.Sum(nil))
	return request
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
	n, err := fmt.Sscanf(text, "%02x:%02x:%02x:%02x:%02x:%02x", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5])
	if err != nil || n != 6 {
		return mac, fmt.Errorf("%q is no MAC address", text)
	}
	return mac, nil
}
