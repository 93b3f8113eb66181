package handshake

import (
	"crypto/sha256"
	"crypto/subtle"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

type pendingState uint8

const (
	waitKeyExchange pendingState = iota
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
	// it is told after this time (RFC 4279 section 2).
	wrongKeyAfter = 3 * time.Second

	never = time.Duration(1<<63 - 1)
)

// Pending is a handshake under way at the server. It exists only for an address
// that has returned its cookie.
type Pending struct {
	owner      *Server
	state      pendingState
	suite      record.Suite
	transcript hash.Hash
	client     [randomLength]byte
	server     [randomLength]byte
	secrets    secrets

	extendedMaster, renegotiation, hasCID bool
	routability                           bool
	known                                 bool // the identity is
	readCID, writeCID                     []byte
	identity                              string

	hello, done []byte // our flight, to be repeated
	messages    uint16 // number of our next message
	nextRecord  uint64 // sequence of our next record in epoch 0
	repetitions int
	deadline    time.Duration
	doubtful    bool // a record that may have been the Finished did not open

	in          reassembly
	early       [][]byte // records of epoch 1 before the ClientKeyExchange
	payloads    [][]byte // application data before the Finished
	earlyBytes  int
	association *record.Association
}

// Status is what Pending.Receive returns.
type Status uint8

// Statuses.
const (
	Waiting     Status = iota
	Established        // Result has the association, and the final flight to send
	Failed             // the reply, if any, is an alert
	Forged             // waiting, and the record was dropped, for it did not open
)

func newPending(s *Server) *Pending {
	return &Pending{owner: s, transcript: sha256.New()}
}

func (p *Pending) appendServerHello(dst []byte, sequence uint16) []byte {
	dst, at := beginMessage(dst, typeServerHello, sequence)
	dst = append(dst, version12>>8, version12&0xff)
	dst = append(dst, p.server[:]...)
	dst = append(dst, 0) // no session id: no resumption
	dst = append(dst, byte(p.suite>>8), byte(p.suite), 0)
	dst = appendExtensions(dst, p.extendedMaster, p.renegotiation, p.hasCID, p.readCID, p.routability)
	return endMessage(dst, at)
}

// flight appends ServerHello and ServerHelloDone, one record each, in one datagram.
func (p *Pending) flight(now time.Duration, out []byte) []byte {
	for _, message := range [][]byte{p.hello, p.done} {
		out = record.AppendPlain(out, record.Handshake, p.nextRecord, message)
		p.nextRecord++
	}
	p.deadline = now + firstTimeout<<p.repetitions
	return out
}

// ReadCID is the connection id this handshake has given out, if any.
func (p *Pending) ReadCID() []byte { return p.readCID }

// Deadline is when Timeout is due. Receive, Timeout and Server.Hello change it.
func (p *Pending) Deadline() time.Duration { return p.deadline }

// Timeout appends our flight again, some times; the client may still go on until
// the Pending is dropped. It returns Failed, and appends the alert, where the
// client's key is wrong.
func (p *Pending) Timeout(now time.Duration, out []byte) (Status, []byte) {
	switch {
	case p.state == waitFinished && p.doubtful:
		p.state, p.deadline = failed, never
		return Failed, appendAlert(out, p.nextRecord, alertDecryptError)
	case p.state == waitKeyExchange && p.repetitions < maxRepetitions:
		p.repetitions++
		return Waiting, p.flight(now, out)
	}
	p.deadline = never
	return Waiting, out
}

// Receive handles one record of this handshake's client that is no ClientHello,
// and appends the reply, one datagram, to out. Records that do not fit are
// dropped in silence. It may change r's bytes.
func (p *Pending) Receive(s *record.Scratch, r *record.Record, now time.Duration, out []byte) (Status, []byte) {
	if p.state == failed || p.state == established {
		return Waiting, out
	}
	switch {
	case r.Epoch == 0 && r.Type == record.Handshake && p.state == waitKeyExchange:
		p.fragments(r.Body, 0)
		p.keyExchange()
		if p.state == failed {
			return Failed, appendAlert(out, p.nextRecord, alertHandshakeFailure)
		}
		if p.state == waitFinished {
			p.deadline = never
			return p.replayEarly(s, now, out)
		}
	case r.Epoch == 0 && r.Type == record.Alert:
		// Not authenticated: the client's silence will end the handshake.
	case r.Epoch == 1 && p.state == waitKeyExchange:
		p.early = p.keep(p.early, r.Clone())
	case r.Epoch == 1:
		return p.protected(s, r, now, out)
	}
	return Waiting, out
}

// fragments takes those of the message that is due. No client has reason to send
// others, and so a stranger cannot take their places, nor much memory.
func (p *Pending) fragments(body []byte, epoch uint16) {
	for len(body) > 0 {
		f, rest, ok := nextFragment(body)
		if !ok {
			return
		}
		if f.sequence == p.in.next && f.length <= 2+maxIdentity {
			p.in.add(&f, epoch)
		}
		body = rest
	}
}

// keyExchange derives the keys once the ClientKeyExchange is whole.
func (p *Pending) keyExchange() {
	typ, epoch, body, ok := p.in.peek()
	if p.state != waitKeyExchange || !ok || epoch != 0 {
		return
	}
	c := cursor{b: body}
	identity := c.vector16()
	if typ != typeClientKeyExchange || c.bad || len(c.b) != 0 {
		p.in.forget() // not a client's, or not a client that could go on
		return
	}
	p.transcript.Write(appendHeader(nil, typ, p.in.next, len(body)))
	p.transcript.Write(body)
	psk, known := p.owner.cfg.PSK(identity)
	if !known {
		psk = make([]byte, 16)
		if _, err := io.ReadFull(p.owner.cfg.Rand, psk); err != nil {
			p.state = failed
			return
		}
	}
	p.known = known
	p.identity = string(identity)
	keys := p.secrets.derive(psk, p.extendedMaster, p.transcript, p.client[:], p.server[:])
	var err error
	p.association, err = record.NewAssociation(p.suite, &keys, record.Server, p.readCID, p.writeCID)
	if err != nil {
		p.state = failed
		return
	}
	p.in.pop()
	p.state = waitFinished
}

// keep holds what came before its time, copied; bounded.
func (p *Pending) keep(list [][]byte, b []byte) [][]byte {
	if len(list) < maxEarly && p.earlyBytes+len(b) <= maxEarlyBytes && p.owner.held+len(b) <= MaxHeld {
		p.earlyBytes += len(b)
		p.owner.held += len(b)
		list = append(list, slices.Clone(b))
	}
	return list
}

// Held is how many bytes the Pending keeps for later.
func (p *Pending) Held() int { return p.earlyBytes }

// Release gives back what the Pending held of its Server's MaxHeld. It is called
// when the Pending is dropped, or Established, after its last Receive.
func (p *Pending) Release() {
	p.owner.held -= p.earlyBytes
	p.earlyBytes = 0
}

// replayEarly handles the records that came before their keys.
func (p *Pending) replayEarly(s *record.Scratch, now time.Duration, out []byte) (Status, []byte) {
	early := p.early
	p.early = nil
	var r record.Record
	for _, raw := range early {
		p.earlyBytes -= len(raw) // its place is for what it holds
		p.owner.held -= len(raw)
		if _, err := record.Next(raw, len(p.readCID), &r); err != nil {
			continue
		}
		if p.state == established {
			p.data(s, &r)
		} else if status, reply := p.protected(s, &r, now, out); status == Failed {
			return status, reply
		}
	}
	if p.state == established {
		return Established, out
	}
	return Waiting, out
}

// data keeps application data that came with, or before, the Finished.
func (p *Pending) data(s *record.Scratch, r *record.Record) {
	if typ, payload, _, verdict := p.association.Open(s, r); verdict == record.Opened && typ == record.ApplicationData {
		p.payloads = p.keep(p.payloads, payload)
	}
}

// protected handles a record of epoch 1: the Finished.
func (p *Pending) protected(s *record.Scratch, r *record.Record, now time.Duration, out []byte) (Status, []byte) {
	typ, payload, _, verdict := p.association.Open(s, r)
	switch {
	case verdict == record.Forged:
		if r.Type != record.ApplicationData && !p.doubtful {
			p.doubtful, p.deadline = true, now+wrongKeyAfter
		}
		return Forged, out
	case verdict != record.Opened:
		return Waiting, out
	case typ == record.ApplicationData:
		p.payloads = p.keep(p.payloads, payload)
		return Waiting, out
	case typ != record.Handshake:
		return Waiting, out
	}
	p.fragments(payload, 1)
	mtyp, epoch, body, ok := p.in.peek()
	if !ok {
		return Waiting, out
	}
	want := p.secrets.verify(clientFinished, p.transcript)
	if mtyp != typeFinished || epoch != 1 || subtle.ConstantTimeCompare(body, want[:]) != 1 || !p.known {
		p.state = failed
		return Failed, appendAlert(out, p.nextRecord, alertDecryptError)
	}
	p.transcript.Write(appendHeader(nil, typeFinished, p.in.next, len(body)))
	p.transcript.Write(body)
	p.in.pop()
	p.state = established
	return Established, out
}

// Refuse appends the alert that ends an established handshake for which there is no room.
func (p *Pending) Refuse(out []byte) []byte {
	return appendAlert(out, p.nextRecord, alertInternalError)
}

// Result is an established handshake.
type Result struct {
	Association    *record.Association
	Identity       string
	HasCID         bool // connection ids were negotiated; either may still be empty
	ExtendedMaster bool
	Renegotiation  bool
	Routability    bool     // the return routability check (RFC 9853) was negotiated
	Early          [][]byte // application data that came before the Finished
	Final          Final
}

// Result returns the outcome after Established. The Pending is of no use any more.
func (p *Pending) Result() Result {
	final := Final{
		message: p.messages, record: p.nextRecord, present: true,
		verify: p.secrets.verify(serverFinished, p.transcript),
	}
	clear(p.secrets.master[:])
	return Result{
		Association: p.association, Identity: p.identity, HasCID: p.hasCID,
		ExtendedMaster: p.extendedMaster, Renegotiation: p.renegotiation, Routability: p.routability, Early: p.payloads, Final: final,
	}
}

// Final is the server's last flight, ChangeCipherSpec and Finished, kept until
// the client has shown that it has it.
type Final struct {
	verify  [verifyLength]byte
	message uint16
	record  uint64
	present bool
}

// Present reports whether the flight may still be needed.
func (f *Final) Present() bool { return f.present }

// Drop forgets the flight: the client has it.
func (f *Final) Drop() { *f = Final{} }

// Append appends the flight, with fresh record sequence numbers, to out.
func (f *Final) Append(a *record.Association, s *record.Scratch, out []byte) ([]byte, error) {
	out = record.AppendPlain(out, record.ChangeCipherSpec, f.record, []byte{1})
	f.record++
	return appendFinished(a, s, f.message, f.verify[:], out)
}

// appendFinished appends a protected record with a Finished message.
func appendFinished(a *record.Association, s *record.Scratch, sequence uint16, verify, out []byte) ([]byte, error) {
	head := a.HeadRoom()
	at := len(out)
	room := head + finishedLength + a.TailRoom()
	for range room {
		out = append(out, 0)
	}
	message := appendHeader(out[at+head:at+head], typeFinished, sequence, verifyLength)
	copy(message[messageHeader:finishedLength], verify)
	sealed, err := a.Seal(s, record.Handshake, out[:at+room], at+head, finishedLength)
	if err != nil {
		return out[:at], err
	}
	return out[:at+len(sealed)], nil
}
