package node

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// worker is the part of an engine's worker that a handler needs; tests replace it with one that records the calls.
type worker interface {
	Send(p *engine.Peer, payload []byte) bool
	WakeAt(at time.Duration)
	Validate(p *engine.Peer)
}

// handler serves the peers of one engine worker. Only that worker's goroutine uses it.
type handler struct {
	listener *listener
	worker   worker
	endpoint *exchange.Endpoint
	wake     time.Duration // requested time of the next Tick
	request  request       // here, so that serving does not allocate
	path     [maxPath]byte
	echoes   echoes
	message  message.Message // a datagram looked at before it is served
}

// maxPath is the longest path looked up, in bytes; longer ones are not found.
const maxPath = 128

func newHandler(l *listener, w worker, seed uint64) *handler {
	h := &handler{listener: l, worker: w, wake: engine.Never, echoes: newEchoes(l.echo)}
	h.endpoint = exchange.New(exchange.Config{Seed: seed, Supported: supported, Proven: h.reached}, h, dispatcher{h}, nil)
	return h
}

// session is one peer with what the resources keep about it.
type session struct {
	exchange.Session // its Peer is the session
	peer             *engine.Peer

	probed netip.AddrPort // the address that the newest Reply.Probe went to
}

// plainProofs is how many answered probes in a row prove the address of a plain peer. More than one is needed because a
// message id has only 16 bits. The records of a session cannot be forged, so one is enough there.
const plainProofs = 3

// reached implements exchange.Config.Proven. The answer counts if the peer still has the address to which the probe was
// sent.
func (h *handler) reached(s *exchange.Session) {
	owner, ok := s.Peer.(*session)
	if !ok || owner.probed != owner.peer.Addr() || !h.listener.secure && s.Proofs < plainProofs {
		return
	}
	s.Proofs = 0
	h.worker.Validate(owner.peer)
}

// echoed looks for an Echo option that proves the peer's address (RFC 9175 section 2.4).
func (h *handler) echoed(p *engine.Peer, datagram []byte, now time.Duration) {
	if message.Parse(datagram, &h.message) != nil || !h.message.Code.IsRequest() {
		return
	}
	if value, ok := h.message.Option(message.Echo); ok && h.echoes.valid(value, p.Addr(), now) {
		h.worker.Validate(p)
	}
}

// supported names the critical options that the resources understand. Uri-Host and Uri-Port may name any host: this
// server is not virtual.
func supported(id message.OptionID) bool {
	switch id {
	case message.URIHost, message.URIPort, message.URIPath, message.URIQuery, message.Accept, message.Block2:
		return true
	}
	return false
}

// Serve implements [engine.Handler].
func (h *handler) Serve(p *engine.Peer, in, out []byte, now time.Duration) []byte {
	s, ok := p.State.(*session)
	if !ok {
		s = &session{peer: p}
		s.Session.Peer = s
		p.State = s
	}
	if !p.Proven() {
		h.echoed(p, in, now)
		out = out[:0:max(0, min(cap(out), p.Budget()))]
	}
	out = h.endpoint.Receive(&s.Session, in, out, now)
	if due, ok := h.endpoint.Next(); ok && due < h.wake {
		h.wake = due
		h.worker.WakeAt(due)
	}
	return out
}

// Tick implements [engine.Handler].
func (h *handler) Tick(now time.Duration) time.Duration {
	h.endpoint.Tick(now)
	h.wake = engine.Never
	if due, ok := h.endpoint.Next(); ok {
		h.wake = due
	}
	return h.wake
}

// Closed implements [engine.Handler].
func (h *handler) Closed(p *engine.Peer, _ time.Duration) {
	if s, ok := p.State.(*session); ok {
		h.endpoint.Forget(&s.Session)
		p.State = nil
	}
}

// SendTo implements [exchange.Sender].
func (h *handler) SendTo(s *exchange.Session, datagram []byte, _ time.Duration) {
	if owner, ok := s.Peer.(*session); ok {
		h.worker.Send(owner.peer, datagram)
	}
}
