package maps

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// find is table_find in flow.h.
func find(table []bpf.Bucket, fingerprint uint64) bool {
	for choice := range bpf.Choices {
		b := &table[BucketOf(fingerprint, choice, uint32(len(table)-1))]
		room := false
		for _, w := range b.Slots {
			if w.Fingerprint == fingerprint {
				return true
			}
			room = room || w.Fingerprint == 0
		}
		if room {
			return false
		}
	}
	return false
}

// claim is table_claim and way_publish.
func claim(table []bpf.Bucket, fingerprint, now, expiry uint64) bool {
	for choice := range bpf.Choices {
		b := &table[BucketOf(fingerprint, choice, uint32(len(table)-1))]
		for w := range b.Slots {
			if slot := &b.Slots[w]; slot.Fingerprint == 0 || slot.Meta>>bpf.ExpiryShift <= now {
				slot.Fingerprint, slot.Meta = fingerprint, expiry<<bpf.ExpiryShift
				return true
			}
		}
	}
	return false
}

func TestReclaimNeverHidesALiveEntry(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	table := make([]bpf.Bucket, 64)
	live := map[uint64]uint64{} // fingerprint → expiry
	total := 0
	for now := uint64(1); now < 4000; now++ {
		fingerprint, expiry := r.Uint64()|2, now+1+r.Uint64N(300)
		if claim(table, fingerprint, now, expiry) {
			live[fingerprint] = expiry
		}
		if now%50 == 0 {
			total += reclaim(table, now)
		}
		for fingerprint, expiry := range live {
			if expiry <= now {
				delete(live, fingerprint)
			} else if !find(table, fingerprint) {
				t.Fatalf("at %d: an entry that lives until %d is not found", now, expiry)
			}
		}
	}
	if total == 0 {
		t.Fatal("nothing was reclaimed")
	}
	if freed := reclaim(table, 1<<30); freed == 0 {
		t.Fatal("expired entries of a table at rest are not reclaimed")
	}
	for i := range table {
		for _, w := range table[i].Slots {
			if w.Fingerprint != 0 {
				t.Fatalf("bucket %d keeps an expired entry for ever", i)
			}
		}
	}
}

// A table takes what it was made for: hardly a flow is refused at its limit, none at a quarter of it.
func TestTableTakesItsLimit(t *testing.T) {
	for _, limit := range []int{1 << 10, 1 << 16, 1 << 18} {
		size := SizesFor(lb.Limits{Flows: limit, Fragments: 16}).Buckets
		table, r := make([]bpf.Bucket, size), rand.New(rand.NewPCG(3, 4))
		refused := 0
		for i := range limit {
			if !claim(table, r.Uint64()|2, 1, 2) {
				refused++
			}
			if i == limit/4 && refused > 0 {
				t.Errorf("limit %d: %d of the first %d refused", limit, refused, i)
			}
		}
		if refused > limit/200 {
			t.Errorf("limit %d: %d refused", limit, refused)
		}
		t.Logf("limit %d in %d buckets: %d refused", limit, size, refused)
	}
}
