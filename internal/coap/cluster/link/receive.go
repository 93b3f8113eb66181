package link

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

const applicationData = record.ApplicationData

// Types of handshake messages: the first one of a client's second flight (RFC 5246 section 7.4), and the answer to a hello without a cookie
// (RFC 6347 section 4.3.2).
const (
	clientKeyExchange  = 16
	helloVerifyRequest = 3
)

// Received is what a datagram contained.
type Received struct {
	Peer        *Peer    // nil: there is no session with that address
	Messages    [][]byte // in the datagram's bytes, but for those that came before the end of a handshake
	Established bool     // a session, that this node has begun: the other one expects a message
}

// arrival is a datagram, or a record of it, that is being handled.
type arrival struct {
	*Received
	from netip.AddrPort
	now  time.Duration
	send func([]byte)
}

// Receive handles a datagram of DTLS records, and changes its bytes. It passes datagrams to send, which must not keep them.
func (l *Links) Receive(from netip.AddrPort, datagram []byte, now time.Duration, send func(datagram []byte)) (got Received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := arrival{Received: &got, from: from, now: now, send: send}
	var r record.Record
	for rest := datagram; len(rest) > 0; {
		var err error
		if rest, err = record.Next(rest, cidLength, &r); err != nil {
			l.stats.Refused++
			break
		}
		switch {
		case handshake.IsHello(&r):
			l.hello(&a, &r)
		case r.Epoch == 0:
			l.clear(&a, &r)
		default:
			l.protected(&a, &r)
		}
	}
	if p := l.peers[from]; p != nil && len(p.sessions) > 0 {
		got.Peer = p
	}
	return got
}

// hello handles a ClientHello.
func (l *Links) hello(a *arrival, r *record.Record) {
	if !l.cfg.Open && l.peers[a.from] == nil {
		l.stats.Refused++
		return
	}
	existing := l.pendings[a.from]
	var before *handshake.Pending
	if existing != nil {
		before = existing.Pending
	}
	outcome, p := l.server.Hello(a.from, r, before, a.now, l.answers(a))
	switch outcome {
	case handshake.Accepted:
		l.dropPending(a.from)
		if len(l.pendings) >= maxPendings && !l.makeRoom() {
			p.Release()
			l.stats.Refused++
			return
		}
		l.pendings[a.from] = &pending{Pending: p, ends: a.now + pendingLife}
	case handshake.Refused:
		l.dropPending(a.from)
		l.fail(a.from, "no cipher suite in common")
	}
}

// answers returns what sends the answers to a hello. Addresses that are no node's get few HelloVerifyRequests.
func (l *Links) answers(a *arrival) func([]byte) {
	if l.peers[a.from] != nil {
		return a.send
	}
	return func(datagram []byte) {
		if len(datagram) > record.HeaderLength && datagram[record.HeaderLength] == helloVerifyRequest && !l.verifies.Take(a.now, verifyEvery, verifyBurst*verifyEvery) {
			l.stats.Refused++
			return
		}
		a.send(datagram)
	}
}

// makeRoom drops the oldest handshake of an address that is no node's.
func (l *Links) makeRoom() bool {
	var oldest netip.AddrPort
	var ends time.Duration
	for addr, p := range l.pendings {
		if l.peers[addr] == nil && (!oldest.IsValid() || p.ends < ends) {
			oldest, ends = addr, p.ends
		}
	}
	l.dropPending(oldest)
	return oldest.IsValid()
}

// clear handles a record of epoch 0. Alerts in the clear are ignored, for anybody can send them: a handshake that the other node has
// ended so is without an answer.
func (l *Links) clear(a *arrival, r *record.Record) {
	if r.Type != record.Handshake || len(r.Body) == 0 {
		return
	}
	if r.Body[0] == clientKeyExchange {
		if p := l.pendings[a.from]; p != nil {
			l.pending(a, p, r)
		}
		return
	}
	if p := l.peers[a.from]; p != nil && p.client != nil {
		l.client(a, p, r)
	}
}

// protected handles a record of epoch 1: by its connection id, or, without one, by trial.
func (l *Links) protected(a *arrival, r *record.Record) {
	p, half := l.peers[a.from], l.pendings[a.from]
	switch withCID := r.Type == record.TLS12CID; {
	case !withCID:
		l.unnamed(a, p, half, r)
	case p != nil && p.client != nil && bytes.Equal(r.CID, p.client.cid):
		l.client(a, p, r)
	case half != nil && bytes.Equal(r.CID, half.ReadCID()):
		l.pending(a, half, r)
	default:
		if p != nil {
			for _, s := range p.sessions {
				if bytes.Equal(r.CID, s.association.ReadCID()) {
					l.open(a, p, s, r)
					return
				}
			}
		}
		l.stats.Refused++
	}
}

// unnamed tries a record without a connection id with the sessions, and then with the handshakes that are under way.
func (l *Links) unnamed(a *arrival, p *Peer, half *pending, r *record.Record) {
	again := func() *record.Record { // since a record that does not open is of no use any more
		clone := new(record.Record)
		if _, err := record.Next(r.Clone(), -1, clone); err != nil {
			return r // not for a record that Next has read
		}
		return clone
	}
	if p != nil {
		for _, s := range p.sessions {
			if len(s.association.ReadCID()) == 0 && l.open(a, p, s, again()) {
				return
			}
		}
	}
	if half != nil && len(half.ReadCID()) == 0 {
		l.pending(a, half, again())
	}
	if p != nil && p.client != nil {
		l.client(a, p, r)
	}
}

// client handles a record of a handshake that we have begun.
func (l *Links) client(a *arrival, p *Peer, r *record.Record) {
	p.client.client.ReceiveRecord(&l.scratch, r, a.now, a.send)
	if l.conclude(p, a.now) {
		a.Established = true
	}
}

// pending handles a record of a handshake that the other node has begun.
func (l *Links) pending(a *arrival, half *pending, r *record.Record) {
	switch half.Receive(&l.scratch, r, a.now, a.send) {
	case handshake.Failed:
		l.dropPending(a.from)
		l.fail(a.from, "the node's identity or secret is another one")
	case handshake.Established:
		l.accept(a, half)
	case handshake.Forged:
		l.stats.Refused++
	}
}

// accept makes the session of a handshake that the other node has begun, and sends the final flight.
func (l *Links) accept(a *arrival, half *pending) {
	result := half.Result()
	l.dropPending(a.from)
	p := l.peer(a.from)
	if p == nil {
		l.stats.Refused++
		return
	}
	s := &session{
		association: result.Association, final: result.Final,
		write: newMACKey(result.ServerMAC), read: newMACKey(result.ClientMAC), writeKey: result.ServerMAC, readKey: result.ClientMAC,
	}
	l.add(p, s, a.now)
	l.repeatFinal(a, s)
	s.received = len(result.Early) > 0
	a.Messages = append(a.Messages, result.Early...)
}

func (l *Links) repeatFinal(a *arrival, s *session) {
	if !s.final.Present() || s.finalSent != 0 && a.now-s.finalSent < finalGap {
		return
	}
	s.finalSent = max(1, a.now)
	if out, err := s.final.Append(s.association, &l.scratch, l.buffer[:0]); err == nil {
		a.send(out)
	}
}

// open handles a record of a session. It returns false if it is none.
func (l *Links) open(a *arrival, p *Peer, s *session, r *record.Record) bool {
	sequence := r.Sequence
	typ, payload, _, verdict := s.association.Open(&l.scratch, r)
	switch verdict {
	case record.Opened:
	case record.Replayed:
		if sequence == 0 { // some clients repeat their Finished as the same record
			l.repeatFinal(a, s)
		}
		return true
	case record.Spent:
		l.end(p, s, a.now)
		return false
	default:
		l.stats.Refused++
		return false
	}
	switch typ {
	case record.ApplicationData:
		s.final.Drop()
		l.received(p, s)
		a.Messages = append(a.Messages, payload)
	case record.Handshake:
		l.repeatFinal(a, s)
	case record.Alert:
		if len(payload) == 2 && (payload[0] == 2 || payload[1] == 0) { // fatal, or close_notify (RFC 5246 section 7.2)
			l.end(p, s, a.now)
		}
	}
	return true
}

// received notes that a message has come in s. The node has it: from now on we may send in it.
func (l *Links) received(p *Peer, s *session) {
	s.received = true
	if !s.used {
		s.used = true
		l.publish(p)
	}
}

// end drops a session that cannot be used any more.
func (l *Links) end(p *Peer, s *session, now time.Duration) {
	p.sessions = slices.DeleteFunc(p.sessions, func(other *session) bool { return other == s })
	if len(p.sessions) == 0 {
		p.retryAt = now + l.random(spread)
		l.cfg.Log.Info("cluster link is closed by the other node", "address", p.addr)
	}
	l.publish(p)
}
