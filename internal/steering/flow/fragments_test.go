package flow

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// modelFragments is what the comment of Fragments says, for datagrams of one source, in lists.
type modelFragments struct {
	max, maxHeld, perDatagram int
	all                       []*modelDatagram // in the order in which they became what they are
	dropped                   []FragmentKey
	totals                    FragmentCounters
}

type modelKind int

const (
	modelWaiting modelKind = iota
	modelKnown
	modelLost
)

type modelDatagram struct {
	key    FragmentKey
	kind   modelKind
	value  int
	held   int
	expiry time.Duration
}

const modelTTL = time.Second

func (m *modelFragments) find(k FragmentKey) *modelDatagram {
	if i := slices.IndexFunc(m.all, func(d *modelDatagram) bool { return d.key == k }); i >= 0 {
		return m.all[i]
	}
	return nil
}

func (m *modelFragments) of(kind modelKind) (list []*modelDatagram) {
	for _, d := range m.all {
		if d.kind == kind {
			list = append(list, d)
		}
	}
	return list
}

func (m *modelFragments) held() (n int) {
	for _, d := range m.all {
		n += d.held
	}
	return n
}

func (m *modelFragments) remove(d *modelDatagram) {
	m.all = slices.DeleteFunc(m.all, func(o *modelDatagram) bool { return o == d })
}

// become makes a datagram the newest of a kind.
func (m *modelFragments) become(d *modelDatagram, kind modelKind) {
	m.remove(d)
	d.kind, d.held = kind, 0
	m.all = append(m.all, d)
}

func (m *modelFragments) expire(now time.Duration) {
	m.all = slices.DeleteFunc(m.all, func(d *modelDatagram) bool {
		if d.expiry > now {
			return false
		}
		m.totals.Expired++
		m.totals.Unanswered += uint64(d.held)
		return true
	})
}

// drop is what the caller must drop.
func (m *modelFragments) drop(d *modelDatagram) {
	m.dropped = append(m.dropped, d.key)
	m.totals.HeldEvicted += uint64(d.held)
}

// enter makes room for a datagram and enters it.
func (m *modelFragments) enter(d *modelDatagram, now time.Duration) bool {
	if len(m.all) >= m.max && !m.evict(d, now) {
		m.totals.Refused++
		return false
	}
	m.totals.Inserts++
	d.expiry = now + modelTTL
	m.all = append(m.all, d)
	return true
}

func (m *modelFragments) evict(d *modelDatagram, now time.Duration) bool {
	lost, waiting, known := m.of(modelLost), m.of(modelWaiting), m.of(modelKnown)
	share := m.max / 16
	mayKnown := d.kind == modelKnown && !d.key.Left || d.kind == modelWaiting && len(waiting) < share
	mayWaiting := len(waiting) > share || d.kind == modelWaiting && len(waiting) == share || len(known) == 0 && mayKnown
	switch {
	case len(lost) > 0:
		m.totals.EvictedLost++
		m.remove(lost[0])
	case mayWaiting && len(waiting) > 0:
		m.totals.EvictedWaiting++
		m.drop(waiting[0])
		m.remove(waiting[0])
	case mayKnown && len(known) > 0:
		m.totals.EvictedKnown++
		if known[0].expiry-now > modelTTL/2 {
			m.totals.EvictedYoung++
		}
		m.remove(known[0])
	default:
		return false
	}
	return true
}

func (m *modelFragments) first(k FragmentKey, value int, now time.Duration) (int, Held) {
	m.expire(now)
	m.totals.Lookups++
	d := m.find(k)
	switch {
	case d == nil:
		if !m.enter(&modelDatagram{key: k, kind: modelKnown, value: value}, now) {
			return 0, FragmentRefused
		}
		return 0, FragmentKnown
	case d.kind == modelLost:
		return 0, FragmentLost
	case d.kind == modelKnown && d.value != value:
		m.totals.Collisions++
	}
	released := d.held
	m.become(d, modelKnown)
	d.value, d.expiry = value, now+modelTTL
	return released, FragmentKnown
}

func (m *modelFragments) later(k FragmentKey, now time.Duration) (int, Held) {
	m.expire(now)
	m.totals.Lookups++
	d := m.find(k)
	if d != nil {
		if d.expiry = now + modelTTL; d.kind == modelKnown {
			return d.value, FragmentKnown
		}
		if d.kind == modelWaiting && d.held == m.perDatagram {
			m.become(d, modelLost)
		}
	}
	if waiting := m.of(modelWaiting); len(waiting) > 0 && m.held() >= m.maxHeld && (d == nil || d.kind == modelWaiting) {
		m.drop(waiting[0])
		m.become(waiting[0], modelLost)
	}
	if d == nil {
		d = &modelDatagram{key: k}
		if m.maxHeld == 0 || m.perDatagram == 0 {
			d.kind = modelLost
		}
		if !m.enter(d, now) {
			d.kind = modelLost
		}
	}
	if d.kind == modelLost {
		m.totals.Poisoned++
		return 0, FragmentLost
	}
	d.held++
	m.totals.Waited++
	return 0, FragmentWait
}

// Against the model, over random fragments of one source: every answer, every counter, and what the caller has to drop.
func TestFragmentsAgainstModel(t *testing.T) {
	for _, c := range []struct{ max, maxHeld, perDatagram int }{{48, 12, 3}, {3, 2, 2}, {40, 0, 3}, {40, 3, 0}, {33, 40, 20}} {
		r := rand.New(rand.NewPCG(1, uint64(c.max)))
		var dropped []FragmentKey
		f := NewFragments[int](c.max, c.maxHeld, c.perDatagram, modelTTL, func(k FragmentKey) { dropped = append(dropped, k) })
		m := &modelFragments{max: c.max, maxHeld: c.maxHeld, perDatagram: c.perDatagram}
		now := time.Duration(0)
		for step := range 20_000 {
			// Times when most come in order, when most come early, and when most is forgotten.
			now += time.Duration(r.IntN([]int{10, 20, 200}[step/500%3])) * time.Millisecond
			k := FragmentKey{ID: uint32(r.IntN(3 * c.max)), Left: r.IntN(8) == 0}
			value := r.IntN(2)
			if r.IntN(4) < 1+step/1000%3 {
				n, h := f.First(k, value, now)
				if wn, wh := m.first(k, value, now); n != wn || h != wh {
					t.Fatalf("%+v step %d: first of %v: %d released, %d; want %d, %d", c, step, k, n, h, wn, wh)
				}
			} else {
				v, h := f.Later(k, now)
				if wv, wh := m.later(k, now); v != wv || h != wh {
					t.Fatalf("%+v step %d: later of %v: value %d, %d; want %d, %d", c, step, k, v, h, wv, wh)
				}
			}
			d := m.find(k)
			known := d != nil && d.kind == modelKnown
			if v, ok := f.Peek(k, now); ok != known || known && v != d.value || !known && v != 0 {
				t.Fatalf("%+v step %d: %v: peek gives %d, %t", c, step, k, v, ok)
			}
			m.totals.Entries, m.totals.Held = len(m.all), m.held()
			if got := f.Counters(); got != m.totals || !slices.Equal(dropped, m.dropped) {
				t.Fatalf("%+v step %d: %+v, want %+v; dropped %v, want %v", c, step, got, m.totals, dropped, m.dropped)
			}
			dropped, m.dropped = dropped[:0], m.dropped[:0]
		}
		if n := m.totals; c.max == 48 && (n.Refused == 0 || n.Poisoned == 0 || n.Collisions == 0 || n.Unanswered == 0 || n.EvictedLost < 100 || n.EvictedWaiting < 100 ||
			n.EvictedKnown < 100 || n.EvictedYoung == 0 || n.EvictedYoung == n.EvictedKnown || n.HeldEvicted < 100) {
			t.Errorf("%+v: not all was reached: %+v", c, n)
		}
	}
}
