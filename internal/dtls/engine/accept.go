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
	var existing *handshake.Pending
	h := w.halfOpens.byAddress[from.addr]
	if h != nil {
		existing = h.pending
	}
	b := w.out.acquire()
	outcome, out, pending := w.server.Hello(from.addr, r, existing, w.now, b[:0])
	switch outcome {
	case handshake.Verify:
		w.stats.HelloVerifies++
	case handshake.Accepted:
		if w.halfOpens.put(from.addr, from.local, pending, w.now) {
			w.stats.HalfOpenEvicted++
		}
	case handshake.Repeated:
		w.halfOpens.postpone(h, pending.Deadline())
	case handshake.Refused:
		w.stats.HandshakesFailed++
	default:
		w.stats.HellosIgnored++
	}
	w.reply(b, out, from)
}

// reply queues out, which was appended to b[:0].
func (w *Worker) reply(b, out []byte, from source) {
	if len(out) == 0 {
		w.out.release(b)
		return
	}
	w.stats.BytesOut += uint64(len(out))
	w.out.public(b, out, from.addr, from.local)
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
	b := w.out.acquire()
	status, out := h.pending.Receive(&w.scratch, r, w.now, b[:0])
	w.reply(b, out, from)
	switch status {
	case handshake.Forged:
		w.stats.BadMACs++
		fallthrough
	case handshake.Waiting:
		w.halfOpens.postpone(h, h.pending.Deadline())
	case handshake.Failed:
		w.stats.HandshakesFailed++
		w.halfOpens.remove(h)
	case handshake.Established:
		w.halfOpens.remove(h)
		w.establish(h)
	}
	return true
}

// establish makes a session of a handshake that has succeeded.
func (w *Worker) establish(h *halfOpen) {
	result := h.pending.Result()
	// Only now has the client proven that it is at this address, so the session that it replaces may be removed (RFC 6347
	// section 4.2.8). There is nobody to notify.
	if old := w.peers.byAddress[h.addr]; old != nil {
		w.stats.Replaced++
		w.drop(old)
	}
	p := &Peer{
		association: result.Association, addr: h.addr, local: h.local, identity: result.Identity,
		established: w.now, hasCID: result.HasCID, extended: result.ExtendedMaster,
		secure: result.Renegotiation, routable: result.Routability, final: result.Final,
	}
	w.sessions.supersede(p)
	id := result.Association.ReadCID()
	taken := len(id) > 0 && w.peers.byCID[makeKey(id)] != nil // another session has taken it meanwhile
	if taken || !w.makeRoom(p.identity) {
		w.stats.HandshakesFailed++
		b := w.out.acquire()
		w.reply(b, h.pending.Refuse(b[:0]), source{addr: h.addr, local: h.local})
		return
	}
	w.peers.add(p, w.now)
	w.sessions.add(p)
	w.stats.Handshakes++
	w.stats.HandshakeTime.Observe(w.now - (h.expires - halfOpenLife))
	w.sendFinal(p)
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
		w.halfOpens.remove(h)
		return
	}
	b := w.out.acquire()
	status, out := h.pending.Timeout(w.now, b[:0])
	w.reply(b, out, source{addr: h.addr, local: h.local})
	if status == handshake.Failed {
		w.stats.HandshakesFailed++
		w.halfOpens.remove(h)
		return
	}
	w.halfOpens.postpone(h, h.pending.Deadline())
}
