package evict_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weir-lb/weir/internal/steering/evict"
)

func TestTheSourceWithMostEntriesGoesFirst(t *testing.T) {
	var o evict.Order[string]
	o.Add(0, "client")
	for slot := int32(1); slot <= 3; slot++ {
		o.Add(slot, "flood")
	}
	o.Add(4, "other")
	var got []int32
	for {
		slot, ok := o.FirstOfLargest()
		if !ok {
			break
		}
		got = append(got, slot)
		o.Remove(slot)
	}
	// The flood's oldest until it holds as many as the others, then in the order in which each came to hold one.
	if want := []int32{1, 2, 0, 4, 3}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

// Of a NAT with 100 clients and a flood from sources with one entry each, the oldest goes, whosever it is; once the NAT holds more
// than a sixteenth of all, its oldest.
func TestManySourcesDoNotEvictTheClientsOfOneNAT(t *testing.T) {
	var o evict.Order[int]
	const clients, all = 100, 2000
	for slot := range int32(all - clients) {
		o.Add(slot, int(slot)+1)
	}
	for slot := int32(all - clients); slot < all; slot++ {
		o.Add(slot, 0)
	}
	for i := range int32(all - clients) {
		slot, _ := o.First()
		if slot != i {
			t.Fatalf("eviction %d takes slot %d, want the oldest", i, slot)
		}
		o.Remove(slot)
		o.Add(slot, int(all+i))
	}
	for slot := int32(all); slot < all+50; slot++ {
		o.Add(slot, 0)
	}
	if slot, _ := o.First(); slot != all-clients {
		t.Errorf("150 of 2050 are one source's: slot %d goes first, want its oldest, %d", slot, all-clients)
	}
}

func TestRenewedEntriesGoLast(t *testing.T) {
	var o evict.Order[string]
	for slot := range int32(3) {
		o.Add(slot, "identity")
	}
	o.Renew(0)
	o.Renew(7) // not in the order
	if slot, _ := o.FirstOf("identity"); slot != 1 {
		t.Errorf("first is %d, want 1", slot)
	}
	if n := o.Held("identity"); n != 3 {
		t.Errorf("holds %d, want 3", n)
	}
	if o.Remove(7) {
		t.Error("removed a slot that was not there")
	}
}

// model does the same by search.
type model struct {
	entries []modelEntry // oldest first
	since   map[int]int  // key: step at which it came to its size
	step    int
}

type modelEntry struct {
	slot int32
	key  int
}

func (m *model) held(key int) (n int) {
	for _, e := range m.entries {
		if e.key == key {
			n++
		}
	}
	return n
}

func (m *model) remove(slot int32) {
	for i, e := range m.entries {
		if e.slot == slot {
			m.entries = slices.Delete(m.entries, i, i+1)
			m.step++
			m.since[e.key] = m.step
			return
		}
	}
}

func (m *model) add(slot int32, key int) {
	m.remove(slot)
	m.entries = append(m.entries, modelEntry{slot, key})
	m.step++
	m.since[key] = m.step
}

func (m *model) first() (int32, bool) {
	best := -1
	for i, e := range m.entries {
		if best < 0 {
			best = i
			continue
		}
		b := m.entries[best]
		if e.key == b.key {
			continue
		}
		n, most := m.held(e.key), m.held(b.key)
		if n > most || n == most && m.since[e.key] < m.since[b.key] {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	if m.held(m.entries[best].key)*16 <= len(m.entries) {
		return m.entries[0].slot, true
	}
	return m.entries[best].slot, true
}

func TestOrderAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var o evict.Order[int]
		m := model{since: map[int]int{}}
		slots, keys := int32(24), 6
		if seed%2 == 1 {
			slots, keys = 120, 60 // so that the key that holds most often holds little
		}
		ties, deepest, byAge := 0, 0, 0
		for step := range 600 {
			slot, key := random.Int32N(slots), random.IntN(keys)
			switch random.IntN(8) {
			case 0:
				o.Remove(slot)
				m.remove(slot)
			case 1:
				if o.Has(slot) {
					o.Renew(slot)
					i := slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.slot == slot })
					e := m.entries[i]
					m.entries = append(slices.Delete(m.entries, i, i+1), e)
				}
			case 2:
				if first, ok := o.First(); ok {
					o.Remove(first)
					m.remove(first)
				}
			default:
				o.Add(slot, key)
				m.add(slot, key)
			}
			got, ok := o.First()
			want, wanted := m.first()
			if got != want || ok != wanted || o.Len() != len(m.entries) || o.Held(key) != m.held(key) {
				t.Fatalf("seed %d step %d: first %d %v, want %d %v; %d entries, want %d", seed, step, got, ok, want, wanted, o.Len(), len(m.entries))
			}
			deepest = max(deepest, o.Held(key))
			if largest, _ := o.FirstOfLargest(); ok && largest != got {
				byAge++
			}
			if o.Keys() > 1 {
				ties++
			}
		}
		if ties < 100 || deepest < 4 || keys > 6 && byAge < 20 {
			t.Fatalf("seed %d: the model did not reach the states it is for: %d steps with several keys, at most %d entries of one, %d evictions by age", seed, ties, deepest, byAge)
		}
	}
}

func TestSources(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:1::1", "2001:db8:1:ffff::9", true},
		{"2001:db8:1::1", "2001:db8:2::1", false},
		{"::c000:201", "192.0.2.1", false},
	} {
		a, b := evict.SourceOf(netip.MustParseAddr(c.a)), evict.SourceOf(netip.MustParseAddr(c.b))
		if (a == b) != c.same {
			t.Errorf("%s and %s: same source %v, want %v", c.a, c.b, a == b, c.same)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	var o evict.Order[evict.Source]
	for slot := range int32(1024) {
		o.Add(slot, evict.Source(slot%7))
	}
	next := evict.Source(100)
	if n := testing.AllocsPerRun(1000, func() {
		slot, _ := o.First()
		o.Remove(slot)
		o.Add(slot, next%128)
		o.Renew(slot)
		next++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOrder(b *testing.B) {
	for _, c := range []struct {
		name    string
		sources evict.Source
	}{{"one source", 1}, {"each its own", 1 << 40}} {
		b.Run(c.name, func(b *testing.B) {
			var o evict.Order[evict.Source]
			for slot := range int32(1 << 16) {
				o.Add(slot, evict.Source(slot)%c.sources)
			}
			b.ReportAllocs()
			next := evict.Source(1 << 20)
			for b.Loop() {
				slot, _ := o.First()
				o.Remove(slot)
				o.Add(slot, next%c.sources)
				next++
			}
		})
	}
}
