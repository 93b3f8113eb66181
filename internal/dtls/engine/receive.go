package engine

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// source is where a datagram came from.
type source struct {
	addr   netip.AddrPort
	router netip.AddrPort // node that forwarded it; invalid: none
	final  bool           // it goes to no other node again
	local  netip.Addr     // our address, on wildcard sockets
}

// finalGap is the minimum time between two answers to a repeated Finished message, so that replaying it does not cause more.
const finalGap = 200 * time.Millisecond

// datagram handles one datagram and changes it in place. handedOver: another worker received it.
func (w *Worker) datagram(d []byte, from source, handedOver bool) {
	w.stats.Datagrams++
	w.stats.BytesIn += uint64(len(d))
	if w.server == nil {
		w.plain(d, from)
		return
	}
	w.liar = nil
	received := len(d) // counts once, for the first record of a session
	r := &w.record
	for first := true; len(d) > 0; first = false {
		whole := d
		var err error
		if d, err = record.Next(d, w.cidLength, r); err != nil {
			w.stats.Malformed++
			return
		}
		w.stats.RecordsIn++
		switch {
		case r.Type == record.TLS12CID:
			if first && w.foreign(whole, from) {
				return
			}
			p := w.peers.byCID[makeKey(r.CID)]
			if p != nil && p.leaving {
				w.missing(whole, from) // which keeps it until the session is where it goes
				return
			}
			if p == nil {
				if w.pendingRecord(r, from) {
					continue
				}
				if !w.handOver(whole, from, handedOver) {
					if w.missing(whole, from) {
						return
					}
					w.stats.UnknownCIDs++
					continue
				}
				return
			}
			received = w.protected(p, r, from, received)
		case r.Epoch == 0:
			w.clear(r, from)
		default:
			var passed bool
			if received, passed = w.unnamed(r, from, received, whole, handedOver); passed {
				return
			}
		}
	}
}

// foreign forwards a datagram of another node's session. Only the first record decides, as in Californium clusters, and a
// datagram that was forwarded already is not forwarded again.
func (w *Worker) foreign(d []byte, from source) bool {
	if w.cfg.Cluster == nil || from.router.IsValid() {
		return false
	}
	owner, own, ok := w.cfg.CIDs.owner(w.record.CID)
	if own || ok && w.mover != nil && w.mover.Here(owner) {
		return false
	}
	if ok {
		// The other node probably has the same number of workers.
		w.queueHint, _ = w.cfg.CIDs.worker(w.record.CID, w.cfg.Workers)
		taken := w.cfg.Cluster.Foreign(w, owner, d, from.addr, w.now)
		w.queueHint = 0
		if taken {
			w.stats.Foreign++
			w.returns.note(from.addr, from.local)
			return true
		}
	}
	w.stats.ForeignUnknown++
	return false
}

// handOver passes the rest of a datagram to the worker in the hint of its connection id.
func (w *Worker) handOver(d []byte, from source, before bool) bool {
	if before || len(w.workers) < 2 {
		return false
	}
	to, ok := w.cfg.CIDs.worker(w.record.CID, len(w.workers))
	return ok && w.pass(d, from, to)
}

// pass passes the rest of a datagram to another worker.
func (w *Worker) pass(d []byte, from source, to int) bool {
	if to == w.id {
		return false
	}
	if len(d) > receiveSize || !w.workers[to].inbox.Put(arrival{from, len(d)}, d...) {
		w.stats.QueueFull++
		return true
	}
	w.stats.HandedOver++
	return true
}

// clear handles a record of epoch 0.
func (w *Worker) clear(r *record.Record, from source) {
	if handshake.IsHello(r) {
		w.hello(r, from)
		return
	}
	if r.Type == record.Handshake {
		w.pendingRecord(r, from)
	}
	// ChangeCipherSpec contains nothing that the epoch does not show, and alerts of epoch 0 prove nothing. Both are ignored.
}

// unnamed handles a record of epoch 1 without a connection id. It belongs to the session of that address, or to the
// handshake that will replace this session. passed: another worker got the rest of the datagram, whole.
func (w *Worker) unnamed(r *record.Record, from source, received int, whole []byte, handedOver bool) (left int, passed bool) {
	p := w.peers.byAddress[from.addr]
	if (p == nil || r.Type == record.Handshake) && w.pendingRecord(r, from) {
		return received, false
	}
	if p == nil {
		if to, ok := w.restoredAt[from.addr]; ok && !handedOver && w.pass(whole, from, to) {
			return 0, true
		}
		w.stats.UnknownAddress++
		return received, false
	}
	return w.protected(p, r, from, received), false
}

// protected handles a record of a session. received bytes are credited to that session's address; the result is how many of
// them are left to credit to others.
func (w *Worker) protected(p *Peer, r *record.Record, from source, received int) (left int) {
	if w.copying.silenced && p.copy != nil {
		w.stats.Silenced++
		return received
	}
	if p == w.liar || p.forged > 0 && w.distrusted(p, from) {
		w.stats.ForgedDropped++
		return received
	}
	sequence := r.Sequence
	typ, payload, newest, verdict := p.association.Open(&w.scratch, r)
	if verdict != record.Opened {
		w.refused(p, verdict, sequence, from)
		return received
	}
	renewed := w.peers.touch(p, w.now)
	w.sessions.touch(p, renewed)
	w.keepReceived(p, renewed)
	w.noteChange(p, false)
	if newest {
		moves := w.stats.AddressChanges
		if w.receivedFrom(p, from); w.stats.AddressChanges != moves {
			w.sessions.at(p)
			w.noteChange(p, true)
		}
	}
	if p.unproven && p.addr == from.addr {
		w.credit(p, received)
		if p.routable {
			w.challenge(p)
		}
	}
	switch typ {
	case record.ApplicationData:
		p.final.Drop()
		w.serve(p, payload)
	case record.Handshake:
		if handshake.Renegotiates(payload) {
			w.refuseRenegotiation(p)
		} else {
			w.repeatFinal(p)
		}
	case record.Alert:
		w.alert(p, payload)
	case record.RoutabilityCheck:
		w.routability(p, payload, from)
	}
	return 0
}

// refused counts a record that did not open.
func (w *Worker) refused(p *Peer, verdict record.Verdict, sequence uint64, from source) {
	switch verdict {
	case record.Replayed:
		w.stats.Replays++
		// Some clients repeat their Finished as exactly the same record, which was the first one of its epoch.
		if sequence == 0 {
			w.repeatFinal(p)
		}
	case record.Forged:
		p.keepForged()
		w.failed(p, from)
	case record.Spent:
		p.keepForged()
		w.spent(p)
	default:
		w.stats.Malformed++
	}
}

// serve passes a request to the handler and sends the answer.
func (w *Worker) serve(p *Peer, payload []byte) {
	w.stats.Requests++
	b := w.out.acquire()
	start := headRoom(p)
	room := b[start : start : start+MaxPayload]
	answer := w.handler.Serve(p, payload, room, w.now)
	if len(answer) == 0 || len(answer) > MaxPayload || p.closed {
		w.out.release(b)
		return
	}
	if &answer[0] != &b[start] {
		copy(b[start:], answer)
	}
	w.transmit(p, record.ApplicationData, b, start, len(answer))
	w.drainPeer(p)
}

// repeatFinal sends the final flight again if the client may still need it.
func (w *Worker) repeatFinal(p *Peer) {
	if !p.final.Present() || w.now-p.finalSent < finalGap {
		return
	}
	w.sendFinal(p)
}

// refuseRenegotiation notifies the client that its keys stay as they are (RFC 5246 section 7.2.2). The session goes on. At most one
// such alert is sent in finalGap.
func (w *Worker) refuseRenegotiation(p *Peer) {
	if w.now-p.finalSent < finalGap {
		return
	}
	p.finalSent = w.now
	w.stats.Renegotiations++
	w.sendAlert(p, alertWarning, alertNoRenegotiation)
}

func (w *Worker) sendFinal(p *Peer) {
	p.finalSent = w.now
	if (w.copying.silenced || p.association.Sent() >= p.watermark) && !w.maySeal(p) {
		return
	}
	b := w.out.acquire()
	p.keepSent()
	out, err := p.final.Append(p.association, &w.scratch, b[LinkHeadRoom:LinkHeadRoom])
	if err != nil {
		w.stats.SendErrors++
		w.out.release(b)
		return
	}
	if !w.charge(p, len(out)) {
		w.out.release(b)
		return
	}
	w.dispatch(p, b, LinkHeadRoom, out)
}

func (w *Worker) alert(p *Peer, payload []byte) {
	w.stats.Alerts++
	if len(payload) != 2 || (payload[0] != 2 && payload[1] != 0) {
		return // a warning
	}
	if payload[1] == 0 {
		w.closeNotify(p)
	}
	w.drop(p)
}

// drop ends a peer.
func (w *Worker) drop(p *Peer) {
	w.peers.remove(p)
	if w.server == nil {
		w.plainPeers.remove(p)
	} else {
		w.sessions.remove(p)
	}
	w.stats.Closed++
	w.handler.Closed(p, w.now)
	w.release(p)
}
