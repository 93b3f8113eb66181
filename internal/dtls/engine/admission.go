package engine

import "net/netip"

// Admission lets a Handler bound handshakes and sessions by rules of its own, in addition to the engine's. A Handler that has
// these methods is asked; the others admit everybody. As with Handler, all of it happens on the worker's goroutine.
type Admission interface {
	// Admit is called when a client has returned its cookie, before anything is kept or computed for its handshake. local is our
	// address, on wildcard sockets. What it returns becomes Peer.State of the session. With false the hello is ignored.
	Admit(from netip.AddrPort, local netip.Addr) (state any, ok bool)
	// Dismissed reports that a handshake has ended without a session.
	Dismissed(state any, why HandshakeEnd)
	// Established reports a new session, before its first message. The Handler may close it.
	Established(p *Peer)
}

// HandshakeEnd is how a handshake has ended without a session.
type HandshakeEnd uint8

// Ends of handshakes.
const (
	HandshakeFailed    HandshakeEnd = iota // refused, by either side
	HandshakeTimedOut                      // after Config.HandshakeLife, or with the last repetition
	HandshakeReplaced                      // the client has begun another one from the same address
	HandshakeEvicted                       // to make room
	HandshakeAbandoned                     // by Worker.Abandon
)

func (w *Worker) setHandler(h Handler) {
	w.handler = h
	w.admission, _ = h.(Admission)
	w.resting, _ = h.(Resting)
	w.draining, _ = h.(Draining)
	w.moving, _ = h.(Moving)
	w.copying.handler, _ = h.(Copying)
}

// admit asks the Handler about the client whose hello is being handled.
func (w *Worker) admit(from netip.AddrPort) (ok bool) {
	if w.admission == nil {
		return true
	}
	w.admitted, ok = w.admission.Admit(from, w.replySource.local)
	return ok
}

func (w *Worker) dismissed(state any, why HandshakeEnd) {
	if w.admission != nil {
		w.admission.Dismissed(state, why)
	}
}

// giveUp ends a handshake.
func (w *Worker) giveUp(h *halfOpen, why HandshakeEnd) {
	w.halfOpens.remove(h)
	w.dismissed(h.state, why)
}

// Abandon ends the handshake with a client, if it is the one with this state of Admission.Admit.
func (w *Worker) Abandon(client netip.AddrPort, state any) {
	if h := w.halfOpens.byAddress[client]; h != nil && h.state == state {
		w.giveUp(h, HandshakeAbandoned)
	}
}
