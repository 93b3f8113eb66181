package maps

import (
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// fingerprint is flow_fingerprint in flow.h. domain is KeyFlow or KeyReply.
func (t *Tables) fingerprint(e *bpf.FlowEntry, domain uint32) uint64 {
	k := &e.Key
	w := [10]uint32{
		k.Src[0], k.Src[1], k.Src[2], k.Src[3], k.Dst[0], k.Dst[1], k.Dst[2], k.Dst[3],
		uint32(k.Sport) | uint32(k.Dport)<<16, uint32(k.Proto) | domain<<8,
	}
	var a, b uint64
	for i := 0; i < len(w); i += 2 {
		x, y := uint64(w[i]), uint64(w[i+1])
		a += (t.Hash[i] + x) * (t.Hash[i+1] + y)
		b += (t.Hash[i+10] + x) * (t.Hash[i+11] + y)
	}
	return a&0xffffffff00000000 | b>>32 | 2
}

// tableSlot is one slot of a table.
type tableSlot struct{ fingerprint, meta *uint64 }

// slot returns a numbered slot of a table.
func slot(table []bpf.Bucket, number uint32) tableSlot {
	s := &table[number/bpf.BucketSlots].Slots[number%bpf.BucketSlots]
	return tableSlot{&s.Fingerprint, &s.Meta}
}

// number24 is the number of a flow in the meta of a reply.
func number24(meta uint64) uint32 { return uint32(meta & (1<<bpf.StateShift - 1)) }

// findLive is table_find in flow.h: the number of a live slot other than but; NoNumber: there is none. As a slot that was never used says
// that its bucket never overflowed, the search ends there.
func findLive(table []bpf.Bucket, fingerprint, now uint64, but uint32) uint32 {
	mask := uint32(len(table) - 1)
	for choice := range bpf.Choices {
		i, room := BucketOf(fingerprint, choice, mask), false
		for w := range table[i].Slots {
			s := &table[i].Slots[w]
			found := atomic.LoadUint64(&s.Fingerprint)
			number := i*bpf.BucketSlots + uint32(w)
			if found == fingerprint && number != but && Alive(atomic.LoadUint64(&s.Meta), now) {
				return number
			}
			room = room || found == 0
		}
		if room {
			break
		}
	}
	return bpf.NoNumber
}

// take claims a slot whose fingerprint and meta are still these, as table_take in flow.h does.
func (s tableSlot) take(fingerprint, meta uint64) bool {
	if !atomic.CompareAndSwapUint64(s.fingerprint, fingerprint, bpf.FingerprintBusy) {
		return false
	}
	if atomic.LoadUint64(s.meta) == meta {
		return true
	}
	atomic.StoreUint64(s.fingerprint, fingerprint)
	return false
}

// publish makes a claimed slot visible. Go's atomic stores are seen by all in this order.
func (s tableSlot) publish(fingerprint, meta uint64) {
	atomic.StoreUint64(s.meta, meta)
	atomic.StoreUint64(s.fingerprint, fingerprint)
}

// mayProve is may_prove in flow.h: whether a bucket keeps a slot that may make room, were this one proven.
func (t *Tables) mayProve(table []bpf.Bucket, number uint32, now uint64) bool {
	i, mask := number/bpf.BucketSlots, uint32(len(table)-1)
	if t.Sizes.BucketSlots == 1 || mask != 0 && i <= mask>>2&bpf.DenseMask {
		return true
	}
	for w := range t.Sizes.BucketSlots {
		s := &table[i].Slots[w]
		meta := atomic.LoadUint64(&s.Meta)
		if uint32(w) != number%bpf.BucketSlots && (atomic.LoadUint64(&s.Fingerprint) == 0 || !Alive(meta, now) || !Proven(meta)) {
			return true
		}
	}
	return false
}
