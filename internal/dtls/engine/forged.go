package engine

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/rate"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// A session counts the records that fail to open, and ends when they are too many (record.Association). Whoever has seen a
// connection id can forge such records, from any address. So a limit stands before that count:
//
//   - From the session's own source (evict.SourceOf its address), every record is tried. A limit there would let forged records,
//     whose source can be forged as well, keep out the client's own ones, also after a NAT has changed its port.
//   - From each other source, 32 records may fail for a session, and one more each second. A client that moves is one of these
//     sources, and a single forger does not keep it out, unless it uses the very source that the client moves to.
//   - From all other sources together, 65536 records may fail for a session, and 16 more each second. That bounds a forger who
//     uses many sources: it needs 17 hours for the 2^20 that end a session with CCM_8. Once it has spent the 65536 (13 s of 5,000
//     datagrams a second), a client that moves to another source may have to make a new session: only the tag distinguishes its
//     records from forged ones.
//
// All records of a datagram come from one sender. Therefore, after one of them has failed to open, the others of that
// session are not tried: a flood of datagrams full of records counts, and costs, no more than a flood of single records.
//
// A session never continues beyond its limit, whatever proves its peer. With a tag of 64 bits each failure leaves a chance
// of 2^-64 that a forged record is accepted, and RFC 9147 section 4.5.3 requires a limit for CCM_8 that rests on the
// existing safeguards. DTLS 1.2 can only get new keys for the session by a new handshake, and the alert makes the client
// start one.
//
// A record beyond a limit is dropped before its tag is computed, and counted in Stats.ForgedDropped. Limits count the
// failures of one session only, so a client cannot lock others out with its own session. A session that reaches its end
// receives the alert bad_record_mac (RFC 6347 section 4.1.2.7), protected by its own keys, and is counted in Stats.Spent.
// Its client then makes a new session at once, whose connection id the forger does not know.
const (
	forgedBySource      = 32
	forgedBySourceEvery = time.Second
	forgedElsewhere     = 1 << 16
	forgedElsewhereCost = time.Second / 16
)

// forgers are the sources whose records have failed to open, per session. The table holds maxForgers entries. When it is
// full, it takes the source that holds most entries, and of its entries evicts the one without a failure for the longest
// time. That source then has a full allowance for that session again; the limit over all sources of the session still bounds
// it. Stats.ForgersEvicted counts evictions.
type forgers struct {
	byKey map[forgerKey]int32
	slots slab.Numbers[forger]
	order evict.Order[evict.Source]
	spare *forger // the one evicted last
}

const maxForgers = 1024

type forgerKey struct {
	source evict.Source
	id     cidKey
}

type forger struct {
	key   forgerKey
	allow rate.Bucket
}

// fail counts a failure. It reports whether another entry was evicted for it.
func (t *forgers) fail(key forgerKey, now time.Duration) (evicted bool) {
	slot, ok := t.byKey[key]
	if !ok {
		if t.byKey == nil {
			t.byKey = make(map[forgerKey]int32)
		}
		if evicted = len(t.byKey) >= maxForgers; evicted {
			t.evict()
		}
		f := t.spare
		if f == nil {
			f = new(forger)
		}
		*f, t.spare = forger{key: key}, nil
		slot = t.slots.Put(f)
		t.byKey[key] = slot
		t.order.Add(slot, key.source)
	}
	t.slots.At(slot).allow.Spend(now, forgedBySourceEvery)
	t.order.Renew(slot)
	return evicted
}

func (t *forgers) evict() {
	slot, _ := t.order.First()
	t.spare = t.slots.At(slot)
	delete(t.byKey, t.spare.key)
	t.order.Remove(slot)
	t.slots.Remove(slot)
}

// forgerOf returns the key of a source, and whether its records are limited. Those of the session's own source are not.
func forgerOf(p *Peer, from source) (key forgerKey, limited bool) {
	key.source = evict.SourceOf(from.addr.Addr())
	key.id = makeKey(p.association.ReadCID())
	return key, key.source != evict.SourceOf(p.addr.Addr())
}

// distrusted reports whether a record of a session must not be tried. It is called only for sessions with failed records.
func (w *Worker) distrusted(p *Peer, from source) bool {
	if w.now > time.Duration(p.forged)+forgedBySource*forgedBySourceEvery {
		p.forged = 0 // every allowance is full again
		return false
	}
	key, limited := forgerOf(p, from)
	if !limited {
		return false
	}
	if !p.forged.Has(w.now, forgedElsewhereCost, forgedElsewhere*forgedElsewhereCost) {
		return true
	}
	slot, ok := w.forgers.byKey[key]
	return ok && !w.forgers.slots.At(slot).allow.Has(w.now, forgedBySourceEvery, forgedBySource*forgedBySourceEvery)
}

// failed notes that a record of a session has failed to open.
func (w *Worker) failed(p *Peer, from source) {
	w.stats.BadMACs++
	w.liar = p
	key, limited := forgerOf(p, from)
	if !limited {
		return
	}
	p.forged.Spend(w.now, forgedElsewhereCost)
	if w.forgers.fail(key, w.now) {
		w.stats.ForgersEvicted++
	}
}

// spent ends a session for which too many records have failed to open.
func (w *Worker) spent(p *Peer) {
	w.stats.BadMACs++
	w.stats.Spent++
	w.sendAlert(p, alertFatal, alertBadRecordMAC)
	w.drop(p)
}
