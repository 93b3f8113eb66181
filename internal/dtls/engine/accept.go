package engine

import (
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// hello handles a ClientHello. It keeps no state before the client has returned the cookie.
func (w *Worker) hello(r *record.Record, from source) {
	if from.router.IsValid() {
		return // a handshake stays on the node that received its ClientHello
	}
	if w.drain.within > 0 {
		w.stats.HellosIgnored++
		return
	}
	var existing *handshake.Pending
	h := w.halfOpens.byAddress[from.addr]
	if h != nil {
		existing = h.pending
	}
	w.admitted = nil
	outcome, pending := w.server.Hello(from.addr, r, existing, w.now, w.replyTo(from))
	state := w.admitted
	switch outcome {
	case handshake.Verify:
		w.stats.HelloVerifies++
	case handshake.Accepted:
		if removed := w.halfOpens.put(from.addr, from.local, pending, state, w.now); removed == h && h != nil {
			w.dismissed(h.state, HandshakeReplaced)
		} else if removed != nil {
			w.stats.HalfOpenEvicted++
			w.dismissed(removed.state, HandshakeEvicted)
		}
		w.boundHalfOpens()
	case handshake.Repeated:
		w.halfOpens.postpone(h, pending.Deadline())
		w.boundHalfOpens()
	case handshake.Refused:
		w.stats.HandshakesFailed++
		if pending != nil { // h, whose hello came in fragments: it was admitted with the first
			w.giveUp(h, HandshakeFailed)
			return
		}
		w.dismissed(state, HandshakeFailed)
		if h != nil {
			w.giveUp(h, HandshakeReplaced)
		}
	default:
		w.stats.HellosIgnored++
	}
}

// replyTo returns a function that queues a copy of a handshake's datagram for from. Only the one returned last may be used.
func (w *Worker) replyTo(from source) func(datagram []byte) {
	w.replySource = from
	return w.sendReply
}

// reply queues a copy of a datagram for replySource.
func (w *Worker) reply(datagram []byte) {
	b := w.out.acquire()
	w.stats.BytesOut += uint64(len(datagram))
	w.out.public(b, b[:copy(b, datagram)], w.replySource.addr, w.replySource.local)
}

// boundHalfOpens evicts handshakes while all of them hold more memory than they may.
func (w *Worker) boundHalfOpens() {
	for w.server.Held() > handshake.MaxHeld && w.halfOpens.due.Len() > 0 {
		w.giveUp(w.halfOpens.first(), HandshakeEvicted)
		w.stats.HalfOpenEvicted++
	}
}

// pendingRecord passes a record to the unfinished handshake of that address. It returns false if no handshake there can take
// the record.
func (w *Worker) pendingRecord(r *record.Record, from source) bool {
	h := w.halfOpens.byAddress[from.addr]
	if h == nil || from.router.IsValid() {
		return false
	}
	if r.Type == record.TLS12CID && string(r.CID) != string(h.pending.ReadCID()) {
		return false
	}
	switch h.pending.Receive(&w.scratch, r, w.now, w.replyTo(from)) {
	case handshake.Forged:
		w.stats.BadMACs++
		fallthrough
	case handshake.Waiting:
		w.halfOpens.postpone(h, h.pending.Deadline())
		w.boundHalfOpens()
	case handshake.Failed:
		w.stats.HandshakesFailed++
		w.giveUp(h, HandshakeFailed)
	case handshake.Established:
		w.halfOpens.remove(h)
		w.establish(h)
	}
	return true
}

// establish makes a session of a handshake that has succeeded.
func (w *Worker) establish(h *halfOpen) {
	var keys record.Keys
	if w.cfg.Arena != nil {
		keys = h.pending.Keys()
	}
	result := h.pending.Result()
	// Only now has the client proven that it is at this address, so the session that it replaces may be removed (RFC 6347
	// section 4.2.8). There is no one to notify.
	if old := w.peers.byAddress[h.addr]; old != nil {
		w.stats.Replaced++
		old.replaced = true
		w.drop(old)
	}
	p := &Peer{
		State: h.state, association: result.Association, addr: h.addr, local: h.local,
		holder:      holderOf(result.Auth, result.Identity, h.addr),
		established: w.now, hasCID: result.HasCID, extended: result.ExtendedMaster,
		secure: result.Renegotiation, routable: result.Routability, final: result.Final,
	}
	w.sessions.supersede(p)
	id := result.Association.ReadCID()
	taken := len(id) > 0 && w.peers.byCID[makeKey(id)] != nil // another session has taken it meanwhile
	if taken || !w.makeRoom(p.holder) {
		w.stats.HandshakesFailed++
		h.pending.Refuse(w.replyTo(source{addr: h.addr, local: h.local}))
		w.dismissed(h.state, HandshakeFailed)
		return
	}
	w.peers.add(p, w.now)
	w.sessions.add(p)
	w.keep(p, &keys, 0)
	w.enter(p)
	w.forgetRestored(h.addr)
	w.stats.Handshakes++
	w.stats.HandshakeTime.Observe(w.now - (h.expires - w.halfOpens.life))
	if result.Resumed {
		w.stats.Resumed++
	}
	if p.final.Present() {
		w.sendFinal(p)
	}
	if w.admission != nil {
		w.admission.Established(p)
	}
	for _, payload := range result.Early {
		if p.closed {
			return
		}
		w.stats.EarlyHeld++
		w.serve(p, payload)
	}
}

// halfOpenDue retransmits the flight of a handshake, or gives the handshake up.
func (w *Worker) halfOpenDue(h *halfOpen) {
	if w.now >= h.expires {
		w.stats.HandshakesFailed++
		w.giveUp(h, HandshakeTimedOut)
		return
	}
	if h.pending.Timeout(w.now, w.replyTo(source{addr: h.addr, local: h.local})) == handshake.Failed { // its key is wrong
		w.stats.HandshakesFailed++
		w.giveUp(h, HandshakeFailed)
		return
	}
	w.halfOpens.postpone(h, h.pending.Deadline())
}
