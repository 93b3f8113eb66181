package handshake

import (
	"crypto/ecdh"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

type pendingState uint8

const (
	waitHello  pendingState = iota // for more fragments of the hello
	waitClient                     // for the client's Certificate, if we requested one, and ClientKeyExchange
	waitVerify                     // for the CertificateVerify
	waitFinished
	established
	failed
)

// Timing of a server's flight (RFC 6347 section 4.2.4.1). The client repeats too,
// so a few repetitions are enough.
const (
	firstTimeout   = time.Second
	maxRepetitions = 3
	maxEarly       = 16   // records kept that came before their keys
	maxEarlyBytes  = 8192 // of them

	// wrongKeyAfter is how long after a record that did not open the handshake
	// fails. Anybody can send such a record from the client's address, so it is
	// dropped (RFC 6347 section 4.1.2.7), and the client's Finished may still come,
	// repeated if need be. A client whose key is wrong sends no Finished that opens;
	// it is notified after this time (RFC 4279 section 2).
	wrongKeyAfter = 3 * time.Second

	never = time.Duration(1<<63 - 1)
)

// Pending is a handshake under way at the server. It exists only for an address
// that has returned its cookie.
type Pending struct {
	owner       *Server
	state       pendingState
	transcript  transcript
	client      [randomLength]byte
	server      [randomLength]byte
	secrets     secrets
	private     *ecdh.PrivateKey // nil: no ephemeral key exchange
	credentials *Credentials

	extendedMaster, renegotiation, hasCID bool
	routability                           bool
	known                                 bool   // the identity is, or there is none to know
	certificateRequested                  bool   // for a certificate of the client
	resumed                               bool   // the handshake is an abbreviated one
	ticket                                bool   // promised
	sessionID                             []byte // promised
	serverName                            string
	clientType                            byte // of certificate
	maxFragment                           byte
	recordLimit                           int
	readCID, writeCID                     []byte
	auth                                  Auth
	identity                              string
	peer                                  *peerCertificate // the client's

	out         flight
	messages    uint16 // number of our next message
	first       uint16 // number of the client's first message after its hello
	repetitions int
	deadline    time.Duration
	doubtful    bool // a record that may have been the Finished did not open

	in          reassembly
	early       [][]byte // records of epoch 1 before the ClientKeyExchange
	payloads    [][]byte // application data before the Finished
	earlyBytes  int      // of both
	charged     int      // bytes of the owner's held that are ours
	association *record.Association
}

// Status is what Pending.Receive returns.
type Status uint8

// Statuses.
const (
	Waiting     Status = iota
	Established        // Result has the association, and the final flight to send
	Failed             // an alert was sent
	Forged             // waiting, and the record was dropped, for it did not open
)

func newPending(s *Server) *Pending {
	return &Pending{owner: s, out: newFlight(s.cfg.MTU)}
}

// repeat sends our flight, and sets when that is due again.
func (p *Pending) repeat(now time.Duration, send func([]byte)) {
	_ = p.out.send(p.association, &p.owner.scratch, send) // without keys that are used up it does not fail
	p.deadline = now + firstTimeout<<p.repetitions
}

// ReadCID is the connection id this handshake has given out, if any.
func (p *Pending) ReadCID() []byte { return p.readCID }

// Deadline is when Timeout is due. Receive, Timeout and Server.Hello change it.
func (p *Pending) Deadline() time.Duration { return p.deadline }

// Timeout sends our flight again, some times; the client may still go on until
// the Pending is dropped. It returns Failed, and sends the alert, where the
// client's key is wrong.
func (p *Pending) Timeout(now time.Duration, send func(datagram []byte)) Status {
	switch {
	case p.state == waitFinished && p.doubtful:
		p.deadline = never
		return p.fail(alertDecryptError, send)
	case (p.state == waitClient || p.state == waitVerify || p.resumed) && p.repetitions < maxRepetitions:
		p.repetitions++
		p.repeat(now, send)
		return Waiting
	}
	p.deadline = never
	return Waiting
}

func (p *Pending) fail(alert byte, send func([]byte)) Status {
	p.state = failed
	p.out.alert(alert, send)
	return Failed
}

// Receive handles one record of this handshake's client that is no ClientHello,
// and hands replies to send, which must not keep them. Records that do not fit are
// dropped in silence. It may change r's bytes.
func (p *Pending) Receive(s *record.Scratch, r *record.Record, now time.Duration, send func(datagram []byte)) Status {
	if p.state == failed || p.state == established || p.state == waitHello {
		return Waiting
	}
	switch {
	case r.Epoch == 0 && r.Type == record.Handshake && p.state < waitFinished:
		p.fragments(r.Body)
		if alert := p.messagesDue(); alert != 0 {
			return p.fail(alert, send)
		}
		if p.state == waitFinished {
			p.charge(-p.in.held())
			p.in.slots = nil // what is left is a stranger's
			p.deadline = never
			return p.replayEarly(s, now, send)
		}
	case r.Epoch == 0:
		// An alert is not authenticated: the client's silence will end the handshake.
	case r.Epoch == 1 && p.state < waitFinished:
		p.early = p.keep(p.early, r.Clone())
	case r.Epoch == 1:
		return p.protected(s, r, now, send)
	}
	return Waiting
}

// messagesDue handles the client's messages that are whole and in order, up to its Finished. It returns the alert that ends the
// handshake, if any. A message that makes no sense is forgotten: it is not the client's, or not of a client that could go on.
func (p *Pending) messagesDue() (alert byte) {
	for p.state < waitFinished {
		typ, _, body, ok := p.in.peek()
		if !ok {
			return 0
		}
		switch typ {
		case typeCertificate:
			ok, alert = p.clientCertificate(body)
		case typeClientKeyExchange:
			ok, alert = p.keyExchange(body)
		default:
			ok, alert = p.certificateVerify(body)
		}
		if alert != 0 {
			return alert
		}
		if !ok {
			p.forget()
			return 0
		}
		p.pop()
	}
	return 0
}

func (p *Pending) note(typ byte, body []byte) {
	before := len(p.transcript.raw)
	p.transcript.message(typ, p.in.next, body)
	p.charge(len(p.transcript.raw) - before)
}

func (p *Pending) clientCertificate(body []byte) (ok bool, alert byte) {
	peer, err := parseCertificate(body, p.clientType)
	if err != nil {
		if errors.Is(err, errMalformed) {
			return false, 0
		}
		return true, alertBadCertificate
	}
	if peer == nil && p.owner.cfg.ClientAuth == ClientAuthNeeded {
		return true, alertHandshakeFailure
	}
	p.peer = peer
	if peer != nil {
		p.charge(len(body)) // about what it takes
	}
	p.note(typeCertificate, body)
	return true, 0
}

// keyExchange derives the keys.
func (p *Pending) keyExchange(body []byte) (ok bool, alert byte) {
	c := cursor{b: body}
	exchange := p.secrets.suite.KeyExchange()
	var identity []byte
	if exchange != record.ECDHEECDSA {
		identity = c.vector16()
	}
	var shared []byte
	if exchange != record.PSK {
		public, err := p.private.Curve().NewPublicKey(c.vector8())
		if err != nil {
			return false, 0
		}
		if shared, err = p.private.ECDH(public); err != nil {
			return false, 0
		}
	}
	if !c.done() || len(identity) > maxIdentity {
		return false, 0
	}
	premaster := shared
	if exchange != record.ECDHEECDSA {
		if premaster = p.premaster(identity, shared); premaster == nil {
			return true, alertInternalError
		}
		p.auth, p.identity = AuthPSK, string(identity)
	} else {
		p.known = true
	}
	p.note(typeClientKeyExchange, body)
	p.secrets.agree(premaster, p.extendedMaster, &p.transcript, p.client[:], p.server[:])
	p.private = nil
	if !p.derive() {
		return true, alertInternalError
	}
	p.state = waitFinished
	if p.peer != nil {
		p.state = waitVerify
	}
	return true, 0
}

// premaster looks the identity's key up. An unknown one goes on with a random key, so that the answer does not show it.
func (p *Pending) premaster(identity, shared []byte) []byte {
	var psk []byte
	if psk, p.known = p.owner.cfg.PSK(identity); !p.known {
		psk = make([]byte, 16)
		if _, err := io.ReadFull(p.owner.cfg.Rand, psk); err != nil {
			return nil
		}
	}
	return premasterPSK(psk, shared)
}

// derive makes the association of the master secret.
func (p *Pending) derive() bool {
	keys := p.secrets.keys(p.client[:], p.server[:])
	var err error
	p.association, err = record.NewAssociation(p.secrets.suite, &keys, record.Server, p.readCID, p.writeCID)
	if err != nil {
		return false
	}
	switch {
	case p.recordLimit != 0:
		p.association.LimitPlaintext(p.recordLimit)
	case p.out.limit < record.MaxPlaintext:
		p.association.LimitPlaintext(p.out.limit)
	}
	return true
}

// certificateVerify checks that the client has the key of its certificate.
func (p *Pending) certificateVerify(body []byte) (ok bool, alert byte) {
	err := verifySigned(&cursor{b: body}, p.peer.public, p.transcript.raw)
	if errors.Is(err, errMalformed) {
		return false, 0
	}
	if err != nil {
		return true, alertDecryptError
	}
	p.note(typeCertificateVerify, body)
	p.charge(-len(p.transcript.raw))
	p.transcript.forget()
	p.state = waitFinished
	return true, 0
}

// keep holds what came before its time, copied; bounded.
func (p *Pending) keep(list [][]byte, b []byte) [][]byte {
	if len(list) < maxEarly && p.earlyBytes+len(b) <= maxEarlyBytes && p.owner.held+len(b) <= MaxHeld {
		p.earlyBytes += len(b)
		p.charge(len(b))
		list = append(list, slices.Clone(b))
	}
	return list
}

// Held is how many bytes the Pending holds beyond a fixed part: see MaxHeld.
func (p *Pending) Held() int { return p.charged }

// Release gives back what the Pending held of its Server's MaxHeld. It is called
// when the Pending is dropped, or Established, after its last Receive.
func (p *Pending) Release() { p.charge(-p.charged) }

// replayEarly handles the records that came before their keys.
func (p *Pending) replayEarly(s *record.Scratch, now time.Duration, send func([]byte)) Status {
	early := p.early
	p.early = nil
	var r record.Record
	for _, raw := range early {
		p.earlyBytes -= len(raw) // its place is for what it holds
		p.charge(-len(raw))
		if _, err := record.Next(raw, len(p.readCID), &r); err != nil {
			continue
		}
		if p.state == established {
			p.data(s, &r)
		} else if status := p.protected(s, &r, now, send); status == Failed {
			return status
		}
	}
	if p.state == established {
		return Established
	}
	return Waiting
}

// data keeps application data that came with, or before, the Finished.
func (p *Pending) data(s *record.Scratch, r *record.Record) {
	if typ, payload, _, verdict := p.association.Open(s, r); verdict == record.Opened && typ == record.ApplicationData {
		p.payloads = p.keep(p.payloads, payload)
	}
}

// protected handles a record of epoch 1: the Finished.
func (p *Pending) protected(s *record.Scratch, r *record.Record, now time.Duration, send func([]byte)) Status {
	typ, payload, _, verdict := p.association.Open(s, r)
	switch {
	case verdict == record.Forged:
		if r.Type != record.ApplicationData && !p.doubtful {
			p.doubtful, p.deadline = true, now+wrongKeyAfter
		}
		return Forged
	case verdict != record.Opened:
		return Waiting
	case typ == record.ApplicationData:
		p.payloads = p.keep(p.payloads, payload)
		return Waiting
	case typ != record.Handshake:
		return Waiting
	}
	f, rest, ok := nextFragment(payload)
	if !ok || len(rest) != 0 || f.sequence != p.in.next || f.length != verifyLength {
		return Waiting
	}
	p.in.add(&f, 1)
	mtyp, epoch, body, ok := p.in.peek()
	if !ok {
		return Waiting
	}
	want := p.secrets.verify(clientFinished, &p.transcript)
	if mtyp != typeFinished || epoch != 1 || subtle.ConstantTimeCompare(body, want[:]) != 1 || !p.known {
		return p.fail(alertDecryptError, send)
	}
	if alert := p.trustClient(); alert != 0 {
		return p.fail(alert, send)
	}
	p.transcript.message(typeFinished, p.in.next, body)
	p.in.pop()
	p.state = established
	return Established
}

// trustClient checks the client's certificate. That may take some signatures, so it comes last, when everything else is proven.
func (p *Pending) trustClient() (alert byte) {
	if p.peer == nil {
		return 0
	}
	if err := p.credentials.trust(p.peer, x509.ExtKeyUsageClientAuth, "", p.owner.cfg.Clock()); err != nil {
		return alertOf(err)
	}
	p.auth, p.identity = p.peer.auth(), p.peer.identity()
	return 0
}

// Refuse sends the alert that ends an established handshake for which there is no room.
func (p *Pending) Refuse(send func(datagram []byte)) { p.out.alert(alertInternalError, send) }

// Result is an established handshake.
type Result struct {
	Association    *record.Association
	Auth           Auth   // how the peer has proven itself
	Identity       string // whose form Auth says
	HasCID         bool   // connection ids were negotiated; either may still be empty
	ExtendedMaster bool
	Renegotiation  bool
	Resumed        bool     // the handshake was an abbreviated one
	Session        *Session // of a client that requested it: for a later handshake; nil: the server keeps none
	Routability    bool     // the return routability check (RFC 9853) was negotiated
	Chain          [][]byte // of a client: the server's certificates in DER, its own first, or one SubjectPublicKeyInfo; nil with a pre-shared key, or resumed
	Early          [][]byte // of a server: application data that came before the Finished
	Final          Final    // present where our flight was the last
	// With Config.MACKeys: keys that client and server may use outside of DTLS, of the length of the suite's keys.
	ClientMAC, ServerMAC []byte
}

// Result returns the outcome after Established. The Pending is of no use any more.
func (p *Pending) Result() Result {
	r := Result{
		Association: p.association, Auth: p.auth, Identity: p.identity, HasCID: p.hasCID, Resumed: p.resumed,
		ExtendedMaster: p.extendedMaster, Renegotiation: p.renegotiation, Routability: p.routability, Early: p.payloads,
	}
	if !p.resumed {
		ticket := p.remember()
		r.Final = Final{
			ticket: ticket, message: p.messages, record: p.out.record, present: true,
			verify: p.secrets.verify(serverFinished, &p.transcript),
		}
	}
	if p.owner.cfg.MACKeys {
		r.ClientMAC, r.ServerMAC = p.secrets.macKeys(p.client[:], p.server[:])
	}
	clear(p.secrets.master[:])
	return r
}
