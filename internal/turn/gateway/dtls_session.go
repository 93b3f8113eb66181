package gateway

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// dtlsSession is a client of a DTLS listener that has returned a valid cookie. Everything happens on its worker's goroutine.
//
//	Admit: handshake ─► Established: guest, no allocation yet, for guestTime ◄─► owner of an allocation ─► Closed
//	           └─► Dismissed
type dtlsSession struct {
	front  *dtlsFront
	path   allocation.Path
	peer   *engine.Peer // nil during the handshake
	client *client      // of its allocation, nil if it has none

	connEntry, phaseEntry limitEntry // in the limit of all connections; of handshakes, then of guests
	guestEnd              deadline

	owner bool // the client has an allocation
	ended bool // nothing is read or written from here on
}

// Admit implements engine.Admission: it keeps the limits of connections and handshakes.
func (f *dtlsFront) Admit(from netip.AddrPort, local netip.Addr) (any, bool) {
	server := f.server
	at := server.listener.server
	if local.IsValid() {
		at = netip.AddrPortFrom(local, at.Port())
	}
	server.counts.add(connectionAccepted)
	s := &dtlsSession{front: f, path: allocation.Path{Client: from, Server: at, Transport: allocation.DTLS, Listener: server.listener.id}}
	s.guestEnd.conn = s
	if !server.shared.connections.enter(&s.connEntry, from.Addr(), nil) {
		server.counts.add(connectionRefused)
		return nil, false
	}
	evict := func() { f.worker.post(func(*worker) { f.engine.Worker().Abandon(from, s) }) }
	if !server.shared.handshakes.enter(&s.phaseEntry, from.Addr(), evict) {
		server.shared.connections.leave(&s.connEntry)
		server.counts.add(handshakeRefused)
		return nil, false
	}
	server.listener.connections.Add(1)
	return s, true
}

// Dismissed implements engine.Admission.
func (f *dtlsFront) Dismissed(state any, why engine.HandshakeEnd) {
	s := state.(*dtlsSession)
	f.server.shared.handshakes.leave(&s.phaseEntry)
	s.gone()
	switch {
	case f.closing:
		f.server.counts.add(connectionShut)
	case why == engine.HandshakeTimedOut:
		f.server.counts.add(handshakeTimeout)
	case why == engine.HandshakeEvicted, why == engine.HandshakeAbandoned:
		f.server.counts.add(handshakeEvicted)
	default:
		f.server.counts.add(handshakeFailed)
	}
}

// Established implements engine.Admission.
func (f *dtlsFront) Established(p *engine.Peer) {
	s := p.State.(*dtlsSession)
	s.peer = p
	f.server.shared.handshakes.leave(&s.phaseEntry)
	if p.Moves() {
		f.sessions++
		s.path.Session = f.sessions
	}
	s.enterAsGuest()
}

// enterAsGuest starts the time in which the client must create an allocation.
func (s *dtlsSession) enterAsGuest() {
	w := s.front.worker
	evict := func() { w.post(func(*worker) { s.end(guestEvicted) }) }
	if !s.front.server.shared.guests.enter(&s.phaseEntry, s.path.Client.Addr(), evict) {
		s.end(guestRefused)
		return
	}
	w.guestEnds.put(&s.guestEnd, w.now+int64(guestTime))
}

// Serve implements engine.Handler: it handles one message of a client. A record carries one message (RFC 8656 section 3.1).
func (f *dtlsFront) Serve(p *engine.Peer, in, out []byte, _ time.Duration) []byte {
	s := p.State.(*dtlsSession)
	if s.ended {
		return nil
	}
	if s.path.Session != 0 && (p.Addr() != s.path.Client || p.Local().IsValid() && p.Local() != s.path.Server.Addr()) {
		s.moved(p)
	}
	size, ok := frameSize(in)
	switch {
	case !ok || size == 0:
		s.end(streamNotTurn)
		return nil
	case !s.owner && len(in) > maxYoungFrame:
		s.end(streamLongFrame)
		return nil
	case s.client != nil && in[0]>>6 == 1:
		f.worker.channelData(s.client, in)
		return nil
	}
	return f.request(s, in, out)
}

// request handles a message other than ChannelData of a known client and returns the answer.
func (f *dtlsFront) request(s *dtlsSession, in, out []byte) []byte {
	w, l := f.worker, f.server.listener
	w.opening, w.openingFrom = s, l
	w.reserve()
	answer, r := w.message(s.path, &l.counts[w.index], in)
	w.opening, w.openingFrom = nil, nil
	s.client = w.clientOf(s.path) // a request may create or end the allocation
	if r == allocation.OK && !s.peer.Proven() && w.provesAddress(in) {
		f.engine.Worker().Validate(s.peer)
	}
	return append(out, answer...)
}

// provesAddress reports whether a request that succeeded shows that its sender receives what is sent to its IP address: it has a
// nonce, and nonces are bound to that address.
func (w *worker) provesAddress(request []byte) bool {
	const binding, indication = 0x0001, 0x0010
	kind := binary.BigEndian.Uint16(request)
	return kind != binding && kind&indication == 0 && w.gateway.shared.Policy().Auth.Mode != allocation.AuthNone
}

// moved gives the allocation of a session the address from which the client sends now (RFC 9146 section 6).
func (s *dtlsSession) moved(p *engine.Peer) {
	to := s.path
	to.Client = p.Addr()
	if p.Local().IsValid() {
		to.Server = netip.AddrPortFrom(p.Local(), to.Server.Port())
	}
	if s.client != nil {
		s.front.worker.table.Move(s.client.a, to)
	}
	s.path = to
}

// Tick implements engine.Handler; it has no timers.
func (f *dtlsFront) Tick(time.Duration) time.Duration { return engine.Never }

// Closed implements engine.Handler.
func (f *dtlsFront) Closed(p *engine.Peer, _ time.Duration) {
	s := p.State.(*dtlsSession)
	if !s.ended {
		s.ended = true
		switch {
		case p.Replaced():
			f.server.counts.add(dtlsReplaced)
		case f.closing:
			f.server.counts.add(connectionShut)
		default:
			f.server.counts.add(connectionClosed)
		}
	}
	w := f.worker
	w.guestEnds.drop(&s.guestEnd)
	f.server.shared.guests.leave(&s.phaseEntry)
	s.gone()
	w.streamGone(s.path)
	w.next = 0
}

// gone is the last call of a session.
func (s *dtlsSession) gone() {
	s.front.server.shared.connections.leave(&s.connEntry)
	s.front.server.listener.connections.Add(-1)
}

// end schedules the session to be closed at the end of this poll. Only the first reason is counted.
func (s *dtlsSession) end(reason streamReason) {
	if s.ended {
		return
	}
	s.ended = true
	s.front.server.counts.add(reason)
	s.front.worker.endedSessions = append(s.front.worker.endedSessions, s)
}

var padding [3]byte

// deliver implements stream.deliver: every message is a record of its own, padded as over TCP (RFC 8656 section 12.5).
func (s *dtlsSession) deliver(head, body []byte) bool {
	if s.ended {
		return true // lost with the session
	}
	return s.front.engine.Worker().SendParts(s.peer, head, body, padding[:-(len(head)+len(body))&3])
}

// flush implements stream.flush. The worker's flush writes what the engine has queued.
func (s *dtlsSession) flush() {}

// shut implements stream.shut.
func (s *dtlsSession) shut() { s.end(connectionShut) }

// allocated implements stream.allocated, like that of polledConn.
func (s *dtlsSession) allocated(yes bool) {
	if !yes {
		s.client = nil
	}
	if s.owner == yes || s.ended {
		return
	}
	s.owner = yes
	if !yes {
		s.enterAsGuest()
		return
	}
	s.front.server.shared.guests.leave(&s.phaseEntry)
	s.front.worker.guestEnds.drop(&s.guestEnd)
}
