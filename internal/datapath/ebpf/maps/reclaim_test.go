package maps

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// find is table_find in flow.h.
func find(table []bpf.Bucket, print uint64) bool {
	for choice := range bpf.Choices {
		b := &table[BucketOf(print, choice, uint32(len(table)-1))]
		room := false
		for _, w := range b.Way {
			if w.Print == print {
				return true
			}
			room = room || w.Print == 0
		}
		if room {
			return false
		}
	}
	return false
}

// claim is table_claim and way_publish.
func claim(table []bpf.Bucket, print, now, expiry uint64) bool {
	for choice := range bpf.Choices {
		b := &table[BucketOf(print, choice, uint32(len(table)-1))]
		for w := range b.Way {
			if way := &b.Way[w]; way.Print == 0 || way.Meta>>bpf.WayShift <= now {
				way.Print, way.Meta = print, expiry<<bpf.WayShift
				return true
			}
		}
	}
	return false
}

func TestReclaimNeverHidesALiveEntry(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	table := make([]bpf.Bucket, 64)
	live := map[uint64]uint64{} // print → expiry
	total := 0
	for now := uint64(1); now < 4000; now++ {
		print, expiry := r.Uint64()|2, now+1+r.Uint64N(300)
		if claim(table, print, now, expiry) {
			live[print] = expiry
		}
		if now%50 == 0 {
			total += reclaim(table, now)
		}
		for print, expiry := range live {
			if expiry <= now {
				delete(live, print)
			} else if !find(table, print) {
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
		for _, w := range table[i].Way {
			if w.Print != 0 {
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
