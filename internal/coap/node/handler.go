package node

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/coap/stream/streamserver"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// worker is the part of an engine's worker that a handler needs; tests replace it with one that records the calls.
type worker interface {
	Send(p *engine.Peer, payload []byte) bool
	WakeAt(at time.Duration)
	Validate(p *engine.Peer)
	Post(f func()) bool
}

// core is what the handlers of datagrams and of connections have in common: the server of one worker. Only that worker's goroutine
// uses it.
type core struct {
	listener *listener
	endpoint *exchange.Endpoint
	server   *resource.Server
	oscore   *oscore.Server // nil: not served
	wake     time.Duration  // requested time of the next Tick
	now      time.Duration  // of the newest call
	watches  watches
	worker   interface {
		WakeAt(at time.Duration)
		Post(f func()) bool
	}
}

// handler serves the peers of one engine worker.
type handler struct {
	core
	worker  worker
	echoes  echoes
	message message.Message // a datagram looked at before it is served
}

func newHandler(l *listener, w worker, seed uint64) *handler {
	return newHandlerWith(l, w, seed, 0, nil)
}

// newHandlerWith is newHandler with a log of answers that outlives the process, and its number; nil: one that does not.
func newHandlerWith(l *listener, w worker, seed uint64, number int, log []byte) *handler {
	h := &handler{core: core{listener: l, worker: w, wake: engine.Never}, worker: w, echoes: newEchoes(l.echo)}
	h.server = resource.New(resource.Config{Tree: l.tree, Guard: guard{h}, Fresh: h.fresh, Exponent: l.exponent, Post: w.Post, Wake: h.wakeAt, Overhead: oscore.Overhead})
	requests, supported := h.protect(h, maxDatagram)
	h.endpoint = exchange.New(exchange.Config{
		AckTimeout: l.cfg.AckTimeout, Seed: seed, Supported: supported, Proven: h.reached, Notified: h.server.Notified, Unmatched: h.notification,
		Log: log, LogNumber: number, Multicast: resource.IsDiscovery, Leisure: l.cfg.Multicast.leisure(), // other resources need a reason to answer a group (RFC 7252 section 11.3)
	}, h, requests, h)
	h.server.Bind(h.endpoint)
	return h
}

// session is one peer. It is the Owner of its resource.Session.
type session struct {
	resource.Session
	core      *core
	reverses  []*reverse // the requests that the client has asked for, in this order
	requested uint32     // of them the newest one's number, which makes its token
	watched   []int32    // the observations at the client, in core.watches

	peer *engine.Peer       // nil over TCP and TLS
	conn *streamserver.Peer // nil over UDP and DTLS

	probed netip.AddrPort // the address that the newest Reply.Probe went to
}

// plainProofs is how many answered probes in a row prove the address of a plain peer. More than one is needed because a
// message id has only 16 bits. The records of a session cannot be forged, so one is enough there.
const plainProofs = 3

// reached implements exchange.Config.Proven. The answer counts if the peer still has the address to which the probe was
// sent.
func (h *handler) reached(s *exchange.Session) {
	owner := ownerOf(s)
	if owner == nil || owner.probed != owner.peer.Addr() || !h.listener.secure && s.Proofs < plainProofs {
		return
	}
	s.Proofs = 0
	h.worker.Validate(owner.peer)
	h.server.Proved(&owner.Session)
}

// ownerOf returns the session of this package, or nil.
func ownerOf(s *exchange.Session) *session {
	if peer, ok := s.Peer.(*resource.Session); ok {
		return peer.Owner.(*session) // Serve set both
	}
	return nil
}

// wakeAt asks the worker for a Tick no later than at.
func (c *core) wakeAt(at time.Duration) {
	if at < c.wake {
		c.wake = at
		c.worker.WakeAt(at)
	}
}

// awaken requests a Tick at the time of the next pending message.
func (c *core) awaken() {
	if due, ok := c.endpoint.Next(); ok {
		c.wakeAt(due)
	}
}

// Tick implements [engine.Handler] and [streamserver.Handler].
func (c *core) Tick(now time.Duration) time.Duration {
	c.now = now
	c.renewWatches(now)
	c.endpoint.Tick(now)
	c.wake = min(c.server.Tick(now), c.watches.next(), engine.Never)
	if due, ok := c.endpoint.Next(); ok {
		c.wake = min(c.wake, due)
	}
	return c.wake
}

// close forgets a session that ended.
func (c *core) close(s *session) {
	c.endReverses(s)
	c.endWatches(s)
	c.server.Forget(&s.Session)
	c.endpoint.Forget(&s.Session.Session)
}

// maxDatagram bounds the messages that OSCORE opens and protects over UDP and DTLS, in bytes.
const maxDatagram = 2048

// checkEcho looks for an Echo option that proves the peer's address (RFC 9175 section 2.4).
func (h *handler) checkEcho(s *session, datagram []byte, now time.Duration) {
	if message.Parse(datagram, &h.message) != nil || !h.message.Code.IsRequest() {
		return
	}
	if value, ok := h.message.Option(message.Echo); ok {
		h.echoed(s, value, now)
	}
}

// echoed reports whether an Echo value was made for the peer's address, which it proves.
func (h *handler) echoed(s *session, value []byte, now time.Duration) bool {
	if !h.echoes.valid(value, s.peer.Addr(), now) {
		return false
	}
	if !s.peer.Proven() {
		h.worker.Validate(s.peer)
		h.server.Proved(&s.Session)
	}
	return true
}

// fresh reports whether a request with an unsafe method may be served: in a session that was taken over, only once the client has proven that
// its requests are new ones.
func (h *handler) fresh(s *resource.Session, m *message.Message, now time.Duration) bool {
	peer := owner(s).peer
	if !peer.NeedsFreshness() {
		return true
	}
	value, ok := m.Option(message.Echo)
	if !ok || !h.echoes.valid(value, peer.Addr(), now) {
		return false
	}
	peer.Fresh()
	return true
}

func (h *handler) echo(s *session, now time.Duration) []byte {
	return h.echoes.value(s.peer.Addr(), now)
}

// Serve implements [engine.Handler].
func (h *handler) Serve(p *engine.Peer, in, out []byte, now time.Duration) []byte {
	s := h.sessionOf(p)
	h.now = now
	if !p.Proven() {
		h.checkEcho(s, in, now)
		out = out[:0:max(0, min(cap(out), p.Budget()))]
	}
	out = h.endpoint.Receive(&s.Session.Session, in, out, now)
	h.awaken()
	return out
}

// Rest implements [engine.Resting]: an idle peer has no session here until its next message.
func (h *handler) Rest(p *engine.Peer, now time.Duration) {
	if s, ok := p.State.(*session); ok && len(s.reverses) == 0 && len(s.watched) == 0 && s.Session.Idle(now) {
		p.State = nil
	}
}

// Closed implements [engine.Handler].
func (h *handler) Closed(p *engine.Peer, _ time.Duration) {
	if s, ok := p.State.(*session); ok {
		h.close(s)
		p.State = nil
	}
}

// SendTo implements [exchange.Sender].
func (h *handler) SendTo(s *exchange.Session, datagram []byte, _ time.Duration) {
	if owner := ownerOf(s); owner != nil {
		h.worker.Send(owner.peer, datagram)
	}
}
