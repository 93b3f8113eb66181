package flow

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/evict"
)

// modelTable is a Table without any cleverness. Entries are in the order of eviction: as they came, or proved themselves
// in vain.
type modelTable struct {
	max, maxProven int
	proving        bool
	all            []modelEntry
}

type modelEntry struct {
	k, v   int
	expiry time.Duration
	proven bool
}

func (m *modelTable) find(k int) int {
	return slices.IndexFunc(m.all, func(e modelEntry) bool { return e.k == k })
}

func (m *modelTable) expire(now time.Duration) {
	m.all = slices.DeleteFunc(m.all, func(e modelEntry) bool { return e.expiry <= now })
}

func (m *modelTable) proven() (n int) {
	for _, e := range m.all {
		if e.proven {
			n++
		}
	}
	return n
}

// largest returns the sources that hold most unproven entries.
func (m *modelTable) largest(source func(int) int) map[int]bool {
	held, most := map[int]int{}, 0
	for _, e := range m.all {
		if !e.proven {
			held[source(e.k)]++
			most = max(most, held[source(e.k)])
		}
	}
	sources := map[int]bool{}
	for s, n := range held {
		if n == most {
			sources[s] = true
		}
	}
	return sources
}

// oldest is the unproven entry of a source that goes first.
func (m *modelTable) oldest(source func(int) int, of int) int {
	return slices.IndexFunc(m.all, func(e modelEntry) bool { return !e.proven && source(e.k) == of })
}

// Against the model, over random operations: tables that only refuse, and tables that evict, most of the time full.
func TestTableAgainstModel(t *testing.T) {
	const sources = 5
	source := func(k int) int { return min(k%8, sources-1) } // the last one has most
	for _, c := range []struct {
		name    string
		max     int
		proving bool
	}{{"refusing", 64, false}, {"proving", 64, true}, {"proving one", 1, true}, {"proving two", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			gone := map[int]int{} // by key: how often it left the table
			var table *Table[int, int]
			if c.proving {
				table = NewProvingTable(c.max, func(k *int) evict.Source { return evict.Source(source(*k)) },
					func(_ Ref, k int, v *int) { gone[k]++ })
			} else {
				table = NewTable[int, int](c.max)
			}
			m := &modelTable{max: c.max, maxProven: max(c.max*15/16, 1), proving: c.proving}
			entered := map[int]int{}
			evicted, refused, reserved, full := 0, 0, 0, 0
			now := time.Duration(0)
			for step := range 50_000 {
				now += time.Duration(r.IntN(20)) * time.Millisecond
				if step%100 == 0 {
					table.Expire(now, -1) // so that the reserve counts the living only
				}
				m.expire(now)
				k := r.IntN(4 * c.max)
				prove := r.IntN(8) == 0
				if step/2000%2 == 0 && len(m.all) > 0 && r.IntN(4) > 0 { // at times most prove themselves
					prove, k = true, m.all[r.IntN(len(m.all))].k
				}
				ttl := time.Duration(r.IntN(90000)) * time.Millisecond
				i := m.find(k)
				switch op := r.IntN(6); {
				case prove:
					if !m.proving || i < 0 {
						break
					}
					table.Expire(now, -1)
					_, at := table.Find(k, now)
					table.Prove(at)
					e := m.all[i]
					switch {
					case e.proven:
					case m.proven() < m.maxProven:
						m.all[i].proven = true
					default: // it becomes the newest of its source
						reserved++
						m.all = append(slices.Delete(m.all, i, i+1), e)
					}
					if i = m.find(k); table.Proven(at) != m.all[i].proven {
						t.Fatalf("step %d: proven %t", step, table.Proven(at))
					}
				case op < 3:
					table.Expire(now, -1)
					before := table.Evicted()
					ok := table.Put(k, step, now, ttl)
					room := i >= 0 || len(m.all) < m.max
					victims := m.largest(source)
					switch {
					case room:
						if !ok || table.Evicted() != before {
							t.Fatalf("step %d: Put %v, %d evicted, with %d of %d", step, ok, table.Evicted()-before, len(m.all), m.max)
						}
					case !m.proving || len(victims) == 0:
						refused++
						if ok {
							t.Fatalf("step %d: Put into a full table", step)
						}
					default:
						evicted++
						if !ok || table.Evicted() != before+1 {
							t.Fatalf("step %d: nothing was evicted", step)
						}
						found := false
						for s := range victims {
							if j := m.oldest(source, s); table.Get(m.all[j].k, now) == nil {
								m.all = slices.Delete(m.all, j, j+1)
								found = true
								break
							}
						}
						if !found {
							t.Fatalf("step %d: what was evicted is the oldest of none of %v", step, victims)
						}
					}
					if !ok {
						break
					}
					if i >= 0 {
						m.all[i].v, m.all[i].expiry = step, now+ttl
					} else {
						m.all = append(m.all, modelEntry{k: k, v: step, expiry: now + ttl})
						entered[k]++
					}
				case op == 3:
					minimum := time.Duration(r.IntN(2)*r.IntN(60000)) * time.Millisecond
					if i >= 0 { // a change by less than the minimum is not made
						_, at := table.Find(k, now)
						change := now + ttl - m.all[i].expiry
						if r.IntN(8) == 0 {
							minimum = change.Abs()
						}
						if moved := table.RenewAt(at, now, ttl, minimum); moved != (change.Abs() >= minimum) {
							t.Fatalf("step %d: renewed by %s of at least %s: %t", step, change, minimum, moved)
						} else if moved {
							m.all[i].expiry = now + ttl
						}
					} else if table.Renew(k, now, ttl, minimum) {
						t.Fatalf("step %d: Renew of what is not there", step)
					}
				case op == 4:
					table.Expire(now, -1)
					if table.Delete(k) != (i >= 0) {
						t.Fatalf("step %d: Delete", step)
					}
					if i >= 0 {
						m.all = slices.Delete(m.all, i, i+1)
					}
				default:
					before, limit := table.Len(), r.IntN(3)-1
					if n := table.Expire(now, limit); n != before-table.Len() || n != before-len(m.all) && n != limit {
						t.Fatalf("step %d: %d of %d expired, %d live, limit %d", step, n, before, len(m.all), limit)
					}
				}
				if len(m.all) == m.max {
					full++
				}
				i = m.find(k)
				if v := table.Get(k, now); (v != nil) != (i >= 0 && m.all[i].expiry > now) || v != nil && *v != m.all[i].v {
					t.Fatalf("step %d: Get %v", step, v)
				}
				if table.Len() > c.max {
					t.Fatalf("step %d: %d entries", step, table.Len())
				}
				if step%500 == 0 {
					checkTable(t, table, m, now)
				}
			}
			reserve := c.proving && c.max > 1
			if full < 500 || c.proving != (evicted > 100) || reserve != (reserved > 100) || reserve == (refused > 100) {
				t.Errorf("full %d times, evicted %d, refused %d, kept in reserve %d: not all states were reached", full, evicted, refused, reserved)
			}
			if reserve && refused > 0 {
				t.Errorf("%d refused though there is a reserve", refused)
			}
			if table.Evicted() != uint64(evicted) || table.Refused() != uint64(refused) {
				t.Errorf("counted %d evicted and %d refused, want %d and %d", table.Evicted(), table.Refused(), evicted, refused)
			}
			checkTable(t, table, m, now)
			if len(m.all) > 0 { // the entry of a slot that another one needs
				_, at := table.Find(m.all[0].k, now)
				table.Evict(at)
				if table.Get(m.all[0].k, now) != nil || table.Evicted() != uint64(evicted)+1 {
					t.Errorf("an evicted entry is still there, or not counted: %d of %d", table.Evicted(), evicted+1)
				}
				m.all = m.all[1:]
				checkTable(t, table, m, now)
			}
			table.Expire(1<<62, -1)
			for k, n := range entered {
				if c.proving && gone[k] != n {
					t.Errorf("key %d was entered %d times and left %d times", k, n, gone[k])
				}
			}
			if table.ProvenLen() != 0 || table.order.Len() != 0 {
				t.Errorf("an empty table has %d proven entries and %d to evict", table.ProvenLen(), table.order.Len())
			}
		})
	}
}

// checkTable compares all that a table holds.
func checkTable(t *testing.T, table *Table[int, int], m *modelTable, now time.Duration) {
	t.Helper()
	for k, v := range table.All(now) { // and none that has expired
		if i := m.find(k); i < 0 || m.all[i].expiry <= now || m.all[i].v != *v {
			t.Fatalf("All gave %d before it was reclaimed", k)
		}
	}
	table.Expire(now, -1)
	if k, v := table.Next(); (v == nil) != (len(m.all) == 0) {
		t.Fatalf("Next gave %v of %d", v, len(m.all))
	} else if v != nil {
		for _, e := range m.all {
			if e.expiry < m.all[m.find(k)].expiry {
				t.Fatalf("Next gave %d before %d", k, e.k)
			}
		}
	}
	for _, e := range m.all {
		_, at := table.Find(e.k, now)
		if until, ok := table.Until(e.k); !ok || until != e.expiry || table.Expiry(at) != e.expiry {
			t.Fatalf("%d expires at %s or %s, want %s", e.k, until, table.Expiry(at), e.expiry)
		}
	}
	if until, ok := table.Until(-1); ok || until != 0 {
		t.Fatalf("what is not there expires at %s", until)
	}
	if v, at := table.Find(-1, now); v != nil || at != -1 {
		t.Fatalf("what is not there is in slot %d", at)
	}
	seen := 0
	for k, v := range table.All(now) {
		if i := m.find(k); i < 0 || m.all[i].v != *v {
			t.Fatalf("All gave %d", k)
		}
		seen++
	}
	want := 0
	for _, e := range m.all {
		if e.expiry > now {
			want++
		}
	}
	if seen != want || table.ProvenLen() != m.proven() || m.proving && table.order.Len() != len(m.all)-m.proven() {
		t.Fatalf("All gave %d of %d; %d proven of %d; %d to evict", seen, want, table.ProvenLen(), m.proven(), table.order.Len())
	}
}

// A scan in steps while entries come, go and are renewed: those that live all the while are yielded once, others at most
// once; no step looks at more slots than its argument allows.
func TestTableScan(t *testing.T) {
	const size, step = 1 << 18, 1024
	table := NewTable[uint32, uint32](size)
	for k := range uint32(size) {
		table.Put(k, k, 0, time.Hour)
	}
	r := rand.New(rand.NewPCG(7, 8))
	seen := map[uint32]int{}
	changed := map[uint32]bool{}
	steps := 0
	for from, last := 0, false; !last; last = from == 0 {
		n := 0
		from = table.Scan(from, step, 0, func(k uint32, v *uint32, until time.Duration) bool {
			if *v != k || until != time.Hour && until != 2*time.Hour {
				t.Fatalf("key %d: value %d until %s", k, *v, until)
			}
			seen[k]++
			n++
			return true
		})
		if n > step {
			t.Fatalf("one step yielded %d entries", n)
		}
		steps++
		for range 50 {
			k := r.Uint32N(size)
			table.Renew(r.Uint32N(size), 0, 2*time.Hour, 0)
			if !changed[k] {
				changed[k] = true
				table.Delete(k)
				table.Put(size+k, size+k, 0, time.Hour)
			}
		}
	}
	for k := range uint32(2 * size) {
		if n := seen[k]; n > 1 || n != 1 && k < size && !changed[k] {
			t.Fatalf("key %d was yielded %d times", k, n)
		}
	}
	if steps != size/step {
		t.Errorf("%d steps", steps)
	}
	few := 0
	if next := table.Scan(0, step, 0, func(uint32, *uint32, time.Duration) bool { few++; return few < 5 }); next != 0 || few != 5 {
		t.Errorf("a scan that was ended yielded %d and goes on at %d", few, next)
	}
}

// A hit of a proven entry costs nothing in the order of eviction, and no operation allocates once the table has its size.
func TestProvingTableDoesNotAllocate(t *testing.T) {
	table := NewProvingTable[Key, int](1000, func(k *Key) evict.Source { return evict.SourceOf16(k.Src) }, nil)
	var k Key
	n := uint64(0)
	step := func() {
		n++
		binary.BigEndian.PutUint64(k.Src[:], n<<16)
		table.Put(k, 1, 0, time.Hour)
		if _, at := table.Find(k, 0); n%50 == 0 {
			table.Prove(at)
		}
	}
	for range 100_000 {
		step()
	}
	if n := testing.AllocsPerRun(10_000, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The worst single insertion while a table of 262,144 flows fills: it must not copy the table.
func BenchmarkTableWorstPut(b *testing.B) {
	best := time.Hour // of the rounds: the machine may do something else in one
	for b.Loop() {
		table := NewProvingTable[Key, [12]uint64](1<<18, func(k *Key) evict.Source { return evict.SourceOf16(k.Src) }, nil)
		var k Key
		worst := time.Duration(0)
		for i := range uint64(1 << 18) {
			binary.BigEndian.PutUint64(k.Src[:], i<<16)
			start := time.Now()
			table.Put(k, [12]uint64{}, 0, time.Hour)
			worst = max(worst, time.Since(start))
		}
		best = min(best, worst)
	}
	b.ReportMetric(float64(best.Microseconds()), "worst-µs")
}

// A table that was cleared is as new.
func TestClearedTableIsNew(t *testing.T) {
	table := NewProvingTable[int, int](4, func(k *int) evict.Source { return evict.Source(*k) }, nil)
	for round := range 3 {
		for k := range 4 {
			if !table.Put(k, k, 0, time.Second) {
				t.Fatalf("round %d: no room for %d", round, k)
			}
			_, at := table.Find(k, 0)
			table.Prove(at)
		}
		if table.Delete(0); table.ProvenLen() != 2 || table.Len() != 3 { // three may be proven
			t.Fatalf("round %d: %d of %d proven", round, table.ProvenLen(), table.Len())
		}
		table.Clear()
		if _, v := table.Next(); v != nil || table.Len() != 0 || table.ProvenLen() != 0 || table.Get(1, 0) != nil || table.order.Len() != 0 || table.Expire(1<<62, -1) != 0 {
			t.Fatalf("round %d: %d entries, %d proven, next %v", round, table.Len(), table.ProvenLen(), v)
		}
		for range table.All(-1) {
			t.Fatal("an entry is left")
		}
	}
}
