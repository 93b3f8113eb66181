package maps

import (
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/flow"
)

// Entering is a proven flow that another balancer has, to be entered here as flow_make in conntrack.h does for a packet.
type Entering struct {
	Entry bpf.FlowEntry // key, target, nat, nat_port and service
	Reply bpf.FlowEntry // key: of the reply as it comes from the backend
	// Progress is flow_state with FlowProven, Expiry is in ticks.
	Progress, Expiry uint64
	// Replaces reports whether a live entry, which another balancer gave this one earlier, may be replaced or changed.
	Replaces func(number uint32, meta uint64) bool
}

func (e *Entering) meta(low uint64) uint64 {
	return e.Expiry<<bpf.ExpiryShift | e.Progress<<bpf.StateShift | low
}

// Enter enters a flow. A proven flow of this balancer keeps its place and its source port, an unproven one makes room.
// Meta is that of the slot of the entry.
func (t *Tables) Enter(e *Entering, now uint64) (entry flow.Entry, meta uint64, refusal flow.Refusal) {
	fingerprint, reply := t.fingerprint(&e.Entry, bpf.KeyFlow), t.fingerprint(&e.Reply, bpf.KeyReply)
	meta = e.meta(uint64(e.Entry.Target))
	if number := findLive(t.Flows, fingerprint, now, bpf.NoNumber); number != bpf.NoNumber {
		seen := atomic.LoadUint64(slot(t.Flows, number).meta)
		own := &t.Entries[number]
		switch {
		case own.Key == e.Entry.Key && own.Target == e.Entry.Target && own.Nat == e.Entry.Nat && own.NatPort == e.Entry.NatPort && atomic.LoadUint64(&own.Reply) == reply:
			return flow.Entry{Number: number, Fingerprint: fingerprint}, t.renew(e, number, seen), flow.Accepted
		case Proven(seen) && !e.Replaces(number, seen):
			return entry, 0, flow.OtherFlow
		}
		t.ForgetFlow(int(number), seen)
	}
	if holder := findLive(t.Replies, reply, now, bpf.NoNumber); holder != bpf.NoNumber {
		number := number24(atomic.LoadUint64(slot(t.Replies, holder).meta))
		seen := atomic.LoadUint64(slot(t.Flows, number).meta)
		if atomic.LoadUint64(&t.Entries[number].Reply) == reply && Alive(seen, now) {
			if Proven(seen) && !e.Replaces(number, seen) {
				return entry, 0, flow.SourceTaken
			}
			t.ForgetFlow(int(number), seen)
		}
	}
	number := t.claim(t.Flows, fingerprint, now)
	if number == bpf.NoNumber {
		return entry, 0, flow.TableFull
	}
	t.releaseReply(number)
	own := &t.Entries[number]
	atomic.StoreUint32(&own.Target, bpf.NoNumber) // until the entry is whole: see flow_make in conntrack.h
	at, refusal := t.enterReply(e, number, reply, now)
	if refusal != flow.Accepted {
		atomic.StoreUint64(&t.Entries[number].Reply, 0)
		slot(t.Flows, number).publish(bpf.FingerprintExpired, 0)
		return entry, 0, refusal
	}
	own.Key, own.Nat, own.NatPort, own.Service, own.Hop = e.Entry.Key, e.Entry.Nat, e.Entry.NatPort, e.Entry.Service, bpf.NoNumber
	atomic.StoreUint32(&own.Target, e.Entry.Target)
	slot(t.Flows, number).publish(fingerprint, meta)
	s := slot(t.Replies, at)
	if atomic.LoadUint64(s.fingerprint) != reply || number24(atomic.LoadUint64(s.meta)) != number || findLive(t.Flows, fingerprint, now, number) != bpf.NoNumber {
		t.ForgetFlow(int(number), meta) // a packet has made the same flow in this moment, or one with its source port
		return entry, 0, flow.Contended
	}
	return flow.Entry{Number: number, Fingerprint: fingerprint}, meta, flow.Accepted
}

// renew brings an entry that is there already up to date: one from another balancer that has not been used since, or one
// that was used here less recently. It returns the meta of its slot; 0: what this balancer has is newer.
func (t *Tables) renew(e *Entering, number uint32, seen uint64) uint64 {
	meta := e.meta(seen & (1<<bpf.StateShift - 1))
	if !e.Replaces(number, seen) && e.Expiry <= seen>>bpf.ExpiryShift {
		return 0
	}
	if meta != seen && !atomic.CompareAndSwapUint64(slot(t.Flows, number).meta, seen, meta) {
		return 0
	}
	if at := findLive(t.Replies, atomic.LoadUint64(&t.Entries[number].Reply), 0, bpf.NoNumber); at != bpf.NoNumber {
		s := slot(t.Replies, at)
		if old := atomic.LoadUint64(s.meta); number24(old) == number {
			atomic.CompareAndSwapUint64(s.meta, old, e.meta(uint64(number)))
		}
	}
	return meta
}

// claim takes a slot that is free or has expired, else that of an unproven flow, which ends. NoNumber: there is none.
func (t *Tables) claim(table []bpf.Bucket, fingerprint, now uint64) uint32 {
	mask := uint32(len(table) - 1)
	for _, evict := range []bool{false, true} {
		for choice := range bpf.Choices {
			i := BucketOf(fingerprint, choice, mask)
			for w := range t.Sizes.BucketSlots {
				number := i*bpf.BucketSlots + uint32(w)
				s := slot(table, number)
				old, meta := atomic.LoadUint64(s.fingerprint), atomic.LoadUint64(s.meta)
				if old == bpf.FingerprintBusy || !t.mayProve(table, number, now) {
					continue
				}
				if old != 0 && Alive(meta, now) {
					if !evict || Proven(meta) || !t.end(table, number, meta) {
						continue
					}
					meta = atomic.LoadUint64(s.meta)
				}
				if s.take(old, meta) {
					return number
				}
			}
		}
	}
	return bpf.NoNumber
}

// end ends the unproven flow that a slot of flows or of replies belongs to. False: it has proven itself, or is another flow's.
func (t *Tables) end(table []bpf.Bucket, number uint32, meta uint64) bool {
	if &table[0] == &t.Replies[0] {
		fingerprint := atomic.LoadUint64(slot(table, number).fingerprint)
		number = number24(meta)
		meta = atomic.LoadUint64(slot(t.Flows, number).meta)
		if atomic.LoadUint64(&t.Entries[number].Reply) != fingerprint || Proven(meta) {
			return false
		}
	}
	t.ForgetFlow(int(number), meta)
	return atomic.LoadUint64(slot(t.Flows, number).meta) == meta&(1<<bpf.ExpiryShift-1)
}

// releaseReply gives back the reply of the flow that had a claimed slot before, as reply_release in conntrack.h does.
func (t *Tables) releaseReply(number uint32) {
	reply := atomic.SwapUint64(&t.Entries[number].Reply, 0)
	if reply == 0 {
		return
	}
	if at := findLive(t.Replies, reply, 0, bpf.NoNumber); at != bpf.NoNumber {
		s := slot(t.Replies, at)
		if meta := atomic.LoadUint64(s.meta); number24(meta) == number {
			atomic.CompareAndSwapUint64(s.meta, meta, uint64(number))
		}
	}
}

// enterReply enters the reply of the flow number, whose slot is claimed.
func (t *Tables) enterReply(e *Entering, number uint32, reply, now uint64) (uint32, flow.Refusal) {
	at := t.claim(t.Replies, reply, now)
	if at == bpf.NoNumber {
		return at, flow.TableFull
	}
	atomic.StoreUint64(&t.Entries[number].Reply, reply) // first: whoever finds the slot reads the flow's entry
	slot(t.Replies, at).publish(reply, e.meta(uint64(number)))
	if findLive(t.Replies, reply, now, at) != bpf.NoNumber {
		slot(t.Replies, at).publish(bpf.FingerprintExpired, 0)
		return at, flow.Contended
	}
	return at, flow.Accepted
}
