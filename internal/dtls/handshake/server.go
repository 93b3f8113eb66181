package handshake

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Server accepts handshakes. Not safe for concurrent use: one for each worker.
type Server struct {
	cfg     ServerConfig
	cookies cookies
	hello   hello
	buffer  [record.HeaderLength + messageHeader + 3 + cookieLength]byte // a HelloVerifyRequest
	scratch record.Scratch
	held    int // bytes that all Pendings hold beyond a fixed part
	signed  uint64
}

// MaxHeld is how many bytes all handshakes of a Server should hold beyond a fixed part of each: flights with certificates,
// parts of messages, records that came ahead of their keys. Records that come ahead are dropped beyond it. For the rest the
// owner of the Pendings drops some, while Held is larger.
const MaxHeld = 8 << 20

// Outcome is what became of a ClientHello.
type Outcome uint8

// Outcomes of Server.Hello.
const (
	Ignored  Outcome = iota // not a hello that can be served, or a client that is not admitted: nothing is sent
	Verify                  // a HelloVerifyRequest was sent; nothing is kept
	Accepted                // the cookie is good: a new Pending. Our flight was sent, unless the hello is still incomplete
	Repeated                // the hello of the existing Pending again, or more of it: our flight was sent, if the hello is whole
	// Refused: the cookie is good, but there is nothing in common: an alert was sent, and the existing Pending ends. It is returned
	// where the hello was its own, in fragments.
	Refused
)

// NewServer checks cfg and makes a Server.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, cookies: newCookies(cfg.CookieSecret)}, nil
}

// Held is how many bytes the Pendings hold beyond a fixed part of each: see MaxHeld.
func (s *Server) Held() int { return s.held }

// Signatures is how many were made with the server's keys: the costliest step of a handshake, and never before its cookie has returned.
func (s *Server) Signatures() uint64 { return s.signed }

// IsHello reports whether the record starts a handshake: a ClientHello in epoch 0.
func IsHello(r *record.Record) bool {
	return r.Type == record.Handshake && r.Epoch == 0 && len(r.Body) > 0 && r.Body[0] == typeClientHello
}

// Hello handles a record for which IsHello holds, and hands the reply to send, which must not keep it. Nothing is kept, and no
// signature made, before the cookie has proven the address. existing is the handshake under way with this address, if any.
//
// A hello may come in fragments. Its first one is answered like the whole, as it has what a cookie covers. With a good cookie
// it makes a Pending that collects the others. The first fragment must come first: what comes before it is not kept.
func (s *Server) Hello(from netip.AddrPort, r *record.Record, existing *Pending, now time.Duration, send func(datagram []byte)) (Outcome, *Pending) {
	f, rest, ok := nextFragment(r.Body)
	if !ok || len(rest) != 0 || f.typ != typeClientHello || f.sequence > 1 {
		return Ignored, nil
	}
	if f.offset > 0 {
		return s.helloPart(&f, r.Sequence, existing, now, send)
	}
	h := &s.hello
	if !h.begin(&cursor{b: f.data}) {
		return Ignored, nil
	}
	if f.whole() && !parseClientHello(f.data, h) {
		return Ignored, nil
	}
	if !s.cookies.valid(from, h, now) {
		send(s.verifyRequest(from, h, r.Sequence, now))
		return Verify, nil
	}
	if existing != nil && bytes.Equal(existing.client[:], h.random) {
		if existing.state == waitHello {
			return s.helloPart(&f, r.Sequence, existing, now, send)
		}
		if existing.state != waitClient && !(existing.resumed && existing.state == waitFinished) {
			return Ignored, nil
		}
		existing.repeat(now, send)
		return Repeated, existing
	}
	if s.cfg.Admit != nil && !s.cfg.Admit(from) {
		return Ignored, nil
	}
	p := newPending(s)
	if f.whole() {
		return s.answer(p, h, f.sequence, f.data, r.Sequence, now, send)
	}
	copy(p.client[:], h.random)
	p.in.next = f.sequence
	p.deadline = never
	p.add(&f, 0)
	return Accepted, p
}

// helloPart takes a further fragment of a hello whose first one has made existing.
func (s *Server) helloPart(f *fragment, sequence uint64, existing *Pending, now time.Duration, send func([]byte)) (Outcome, *Pending) {
	if existing == nil || existing.state != waitHello || f.sequence != existing.in.next {
		return Ignored, nil
	}
	existing.add(f, 0)
	_, _, body, ok := existing.in.peek()
	if !ok {
		return Repeated, existing
	}
	h := &s.hello
	if !parseClientHello(body, h) || !bytes.Equal(h.random, existing.client[:]) {
		existing.forget()
		return Ignored, nil
	}
	existing.pop()
	if o, _ := s.answer(existing, h, f.sequence, body, sequence, now, send); o != Accepted {
		return o, existing
	}
	return Repeated, existing
}

// answer negotiates and sends our first flight, or an alert.
func (s *Server) answer(p *Pending, h *hello, sequence uint16, body []byte, recordSequence uint64, now time.Duration, send func([]byte)) (Outcome, *Pending) {
	p.out.record = recordSequence
	session := s.resumable(h)
	var c choice
	var alert byte
	if session != nil {
		c.suite = session.suite
	} else {
		c, alert = s.choose(h)
	}
	if alert == 0 {
		alert = p.accept(h, &c, session, sequence, body)
	}
	if alert != 0 {
		p.Release()
		p.out.alert(alert, send)
		return Refused, nil
	}
	p.repeat(now, send)
	return Accepted, p
}

// choice is what a server takes of what a client offers.
type choice struct {
	suite              record.Suite
	group              Group
	credentials        *Credentials
	certificate        *Certificate // with ECDHE_ECDSA
	certType           byte
	scheme             uint16
	clientType         byte // certificate type to ask the client for
	requestCertificate bool
}

// choose returns the first of our suites for which client and server have everything, or the alert that says why there is none.
func (s *Server) choose(h *hello) (c choice, alert byte) {
	switch {
	case h.version > version12: // the numbers of DTLS count down
		return c, alertProtocolVersion
	case bytes.IndexByte(h.methods, 0) < 0:
		return c, alertIllegalParameter
	case s.cfg.RequireExtendedMaster && !h.extendedMaster, len(h.renegotiated) != 0:
		return c, alertHandshakeFailure
	}
	credentials := s.cfg.credentials()
	for _, suite := range s.cfg.Suites {
		c = choice{suite: suite, credentials: credentials}
		if contains16(h.suites, uint16(suite)) && s.possible(&c, h) {
			return c, 0
		}
	}
	return c, alertHandshakeFailure
}

// possible completes the choice of c.suite and reports whether that can be done.
func (s *Server) possible(c *choice, h *hello) (ok bool) {
	exchange := c.suite.KeyExchange()
	if exchange != record.ECDHEECDSA && s.cfg.PSK == nil {
		return false
	}
	if exchange == record.PSK {
		return true
	}
	if c.group, ok = chooseGroup(s.cfg.Groups, h.groups); !ok || !uncompressed(h.pointFormats) {
		return false
	}
	if exchange == record.ECDHEPSK {
		return true
	}
	c.certificate, c.certType, c.scheme, ok = c.credentials.choose(string(h.serverName), h.serverTypes, h.groups, h.schemes,
		func(public crypto.PublicKey) bool { return fits(c.suite, public) })
	return ok && s.requestCertificate(c, h)
}

// requestCertificate decides whether to ask the client for a certificate, and for which type. It reports false if one is needed that the
// client does not have.
func (s *Server) requestCertificate(c *choice, h *hello) bool {
	if s.cfg.ClientAuth == ClientAuthNone {
		return true
	}
	types := h.clientTypes
	if types == nil {
		types = []byte{typeX509}
	}
	for _, c.clientType = range types {
		if c.credentials.trusts(c.clientType) {
			c.requestCertificate = true
			return true
		}
	}
	return s.cfg.ClientAuth != ClientAuthNeeded
}

// verifyRequest echoes the hello's record sequence: no state, no counter
// (RFC 6347 section 4.2.1).
func (s *Server) verifyRequest(from netip.AddrPort, h *hello, sequence uint64, now time.Duration) []byte {
	var body [messageHeader + 3 + cookieLength]byte
	b := appendHeader(body[:0], typeHelloVerifyRequest, 0, 3+cookieLength)
	b = append(b, version10>>8, version10&0xff, cookieLength)
	b = append(b, s.cookies.make(from, h, period(now))...)
	return record.AppendPlain(s.buffer[:0], record.Handshake, sequence, b)
}

// accept fills in the Pending and our flight, of an abbreviated handshake if there is a session. It returns an alert if that
// fails.
func (p *Pending) accept(h *hello, c *choice, session *Session, sequence uint16, body []byte) (alert byte) {
	cfg := &p.owner.cfg
	p.secrets.suite = c.suite
	p.credentials = c.credentials
	p.extendedMaster = h.extendedMaster
	p.renegotiation = h.renegotiation
	p.routability = h.routability
	copy(p.client[:], h.random)
	if _, err := io.ReadFull(cfg.Rand, p.server[:]); err != nil {
		return alertInternalError
	}
	if h.hasCID && cfg.NewCID != nil && len(h.cid) <= record.MaxCID {
		p.hasCID = true
		p.writeCID = slices.Clone(h.cid)
		var err error
		if p.readCID, err = cfg.NewCID(); err != nil {
			return alertInternalError
		}
	}
	p.limit(h)
	p.transcript = transcript{hash: newHash(c.suite)(), keep: c.requestCertificate}
	p.transcript.message(typeClientHello, sequence, body)
	p.messages = sequence // our first message carries the number of the hello it answers
	p.state = waitClient
	var ok bool
	if session != nil {
		ok = p.resume(h, session)
		p.state = waitFinished
	} else {
		ok = p.flight(h, c)
	}
	if !ok {
		return alertInternalError
	}
	p.charge(p.out.size() + len(p.transcript.raw))
	p.first = sequence + 1
	p.in.next = p.first
	return 0
}

// limit notes how long the client wants records to be. The record size limit goes first (RFC 8449 section 5).
func (p *Pending) limit(h *hello) {
	p.recordLimit = h.recordLimit
	if n := h.fragmentLength(); n != 0 && h.recordLimit == 0 {
		p.maxFragment = h.maxFragment
		p.out.limit = n
	}
}

// flight makes our first flight: ServerHello to ServerHelloDone.
func (p *Pending) flight(h *hello, c *choice) bool {
	answer := p.serverHello(h, c)
	if !p.promise(h, answer) {
		return false
	}
	p.appendMessage(typeServerHello, answer.appendServerHello(nil))
	exchange := c.suite.KeyExchange()
	if exchange == record.ECDHEECDSA {
		p.appendMessage(typeCertificate, c.certificate.body(c.certType))
	}
	if exchange != record.PSK {
		body, ok := p.serverKeyExchange(c)
		if !ok {
			return false
		}
		p.appendMessage(typeServerKeyExchange, body)
	}
	if c.requestCertificate {
		p.certificateRequested, p.clientType = true, c.clientType
		body := appendVector16([]byte{2, certificateTypeECDSA, certificateTypeRSA}, offeredSchemes)
		p.appendMessage(typeCertificateRequest, append(body, 0, 0)) // any certificate authority
	}
	p.appendMessage(typeServerHelloDone, nil)
	return true
}

// appendMessage appends a message to our flight and to the transcript.
func (p *Pending) appendMessage(typ byte, body []byte) {
	m := message(typ, p.messages, body)
	p.messages++
	p.out.messages = append(p.out.messages, m)
	p.transcript.write(m)
}

// serverHello is our answer to the client's hello. It leaves out the empty server_name extension of RFC 6066 section 3, which
// gives the client no information: pion/dtls v3 cannot read it and would never answer.
func (p *Pending) serverHello(h *hello, c *choice) *hello {
	answer := &hello{
		version: version12, random: p.server[:], suite: uint16(p.secrets.suite),
		extendedMaster: p.extendedMaster, renegotiation: p.renegotiation,
		hasCID: p.hasCID, cid: p.readCID, routability: p.routability, maxFragment: p.maxFragment,
	}
	if p.recordLimit != 0 {
		answer.recordLimit = record.MaxPlaintext
	}
	if c.group != 0 && h.pointFormats != nil {
		answer.pointFormats = []byte{0}
	}
	if c.certificate != nil {
		if h.serverTypes != nil {
			answer.serverTypes = []byte{c.certType}
		}
		if h.clientTypes != nil && c.requestCertificate {
			answer.clientTypes = []byte{c.clientType}
		}
	}
	return answer
}

// serverKeyExchange makes our key pair, and the message that carries its public part, signed if there is a certificate
// (RFC 8422 section 5.4, RFC 5489 section 2).
func (p *Pending) serverKeyExchange(c *choice) ([]byte, bool) {
	cfg := &p.owner.cfg
	var err error
	if p.private, err = c.group.generate(cfg.Rand); err != nil {
		return nil, false
	}
	var body []byte
	if c.suite.KeyExchange() == record.ECDHEPSK {
		body = append(body, 0, 0) // no identity hint
	}
	from := len(body)
	body = appendParameters(body, c.group, p.private)
	if c.certificate == nil {
		return body, true
	}
	signed := slices.Concat(p.client[:], p.server[:], body[from:])
	body, err = appendSigned(body, c.certificate.key, c.scheme, signed, cfg.Rand)
	p.owner.signed++
	return body, err == nil
}

const namedCurve = 3

// appendParameters appends ServerECDHParams.
func appendParameters(dst []byte, g Group, key *ecdh.PrivateKey) []byte {
	dst = binary.BigEndian.AppendUint16(append(dst, namedCurve), uint16(g))
	return appendVector8(dst, key.PublicKey().Bytes())
}
