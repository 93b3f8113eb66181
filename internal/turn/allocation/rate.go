package allocation

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// rates limits answers to requests without valid credentials, so that this server cannot be used to flood a third party.
//
// A source (an IPv4 address or an IPv6 /64) is proven if it recently returned a nonce of this server, which only its own address
// receives, or used a transport with a handshake. A proven source has a large budget of its own and uses no other.
// An unproven source has two small budgets, one for Binding requests and one for all others, so that keep-alives of NAT
// bindings never use up the answers of new sessions. Each of the two also has a budget for all unproven sources together:
//
//   - Sources without an entry get at most half of it. A flood from forged addresses consists of such sources, while a real client
//     retransmits: then it has an entry, and uses the other half.
//   - If less than half of it is left, a source must wait longer between two answers, up to maxInterval. A flood from
//     few addresses is thus slowed down, while a source that has had no answer yet gets one.
//
// Each budget is one number, the time at which it will be full again (GCRA): an answer is allowed while that time is at
// most a burst in the future.
//
// The table has a fixed size: a keyed hash assigns sources to sets of eight. A full set evicts in this order:
// unproven sources are evicted first, and of those the one whose budgets are nearest to full. An unproven source never replaces
// a proven one, and at least one entry in eight is left for unproven sources. A newly proven source replaces the
// proven source that was silent longest if seven are proven.
type rates struct {
	secret     [2]uint64
	sets       []rateSet
	totals     [budgets]atomic.Int64
	firstSight [budgets]atomic.Int64
	limits     atomic.Pointer[rateLimits]
	displaced  atomic.Uint64
	withheld   withheld
}

// budget is what an answer is charged to.
type budget uint8

const (
	challenges budget = iota // errors to requests without valid credentials
	bindings                 // answers to Binding requests
	budgets
)

const (
	rateSlots   = 8                // sources in a set
	provenTime  = 10 * time.Minute // how long a source stays proven; clients refresh more often
	maxInterval = 10 * time.Second // the longest wait between two answers to an unproven source when totals run out
)

type rateSet struct {
	mu      sync.Mutex
	sources [rateSlots]rateSource
}

// rateSource is the state of one source. Times are those of the table; 0 means never.
type rateSource struct {
	key      uint64
	proven   int64          // time until which it is proven
	full     [budgets]int64 // time at which each budget is full again
	answered [budgets]int64
}

// rateLimits are nanoseconds per answer and per burst; a cost of 0 means no limit.
type rateLimits struct {
	unproven [budgets]rateLimit
	proven   rateLimit
	total    rateLimit // each of the two budgets has this limit
}

type rateLimit struct{ cost, burst int64 }

// withheld counts WithheldStats.
type withheld struct{ unproven, bindings, total, proven atomic.Uint64 }

func (w *withheld) stats() WithheldStats {
	return WithheldStats{Unproven: w.unproven.Load(), Bindings: w.bindings.Load(), Total: w.total.Load(), Proven: w.proven.Load()}
}

func newRates(prefixes int, random *rand.ChaCha8) *rates {
	const maxPrefixes = 1 << 22
	sets := max((min(prefixes, maxPrefixes)+rateSlots-1)/rateSlots, 1)
	return &rates{secret: [2]uint64{random.Uint64(), random.Uint64() | 1}, sets: make([]rateSet, sets)}
}

func (r *rates) set(l RateLimit) {
	limits := &rateLimits{
		proven: newRateLimit(l.Proven, int(l.Proven)), total: newRateLimit(l.Total, l.TotalBurst),
	}
	limits.unproven[challenges] = newRateLimit(l.PerPrefix, l.PrefixBurst)
	limits.unproven[bindings] = newRateLimit(l.Bindings, 2*int(l.Bindings))
	r.limits.Store(limits)
}

// newRateLimit limits the time in which a burst is replenished to 11 days.
func newRateLimit(perSecond float64, burst int) rateLimit {
	if perSecond <= 0 {
		return rateLimit{}
	}
	l := rateLimit{cost: int64(min(max(1e9/perSecond, 1), 1e15))}
	l.burst = int64(min(float64(l.cost)*float64(max(burst, 1)), 1e15))
	return l
}

// allow charges one answer to the budgets of a source. proven means that the request itself proves its source.
func (r *rates) allow(b budget, source netip.Addr, proven bool, now int64) bool {
	l := r.limits.Load()
	key := r.hash(source)
	set := &r.sets[(key>>1)%uint64(len(r.sets))]
	set.mu.Lock()
	s, known := set.find(key)
	if !known {
		s = r.enter(set, key, now)
	}
	if proven {
		s = set.prove(s, now)
	}
	if s.proven > now {
		ok := s.spend(b, l.proven, now)
		set.mu.Unlock()
		return counted(ok, &r.withheld.proven)
	}
	ok := s.spend(b, l.unproven[b], now)
	silent := int64(maxInterval)
	if last := s.answered[b]; last != 0 && last <= now {
		silent = now - last
	}
	set.mu.Unlock()
	if !ok {
		limit := &r.withheld.unproven
		if b == bindings {
			limit = &r.withheld.bindings
		}
		return counted(false, limit)
	}
	if l.total.cost > 0 && !r.allowInAll(b, known, silent, l.total, now) {
		return counted(false, &r.withheld.total)
	}
	set.mu.Lock()
	if s.key == key {
		s.answered[b] = now
	}
	set.mu.Unlock()
	return true
}

func counted(ok bool, withheld *atomic.Uint64) bool {
	if !ok {
		withheld.Add(1)
	}
	return ok
}

// allowInAll charges one answer to the budget that all unproven sources share. silent is the time since the source's
// last answer.
func (r *rates) allowInAll(b budget, known bool, silent int64, total rateLimit, now int64) bool {
	if !known && !take(&r.firstSight[b], 2*total.cost, total.burst, now) {
		return false
	}
	half := total.burst / 2
	if used := min(r.totals[b].Load()-now, total.burst) - half; known && used > 0 {
		if silent < int64(float64(maxInterval)*float64(used)/float64(max(half, 1))) {
			return false
		}
	}
	return take(&r.totals[b], total.cost, total.burst, now)
}

// prove records that an address received what was sent to it.
func (r *rates) prove(source netip.Addr, now int64) {
	key := r.hash(source)
	set := &r.sets[(key>>1)%uint64(len(r.sets))]
	set.mu.Lock()
	defer set.mu.Unlock()
	s, known := set.find(key)
	if !known {
		s = r.enter(set, key, now)
	}
	set.prove(s, now)
}

func (set *rateSet) find(key uint64) (s *rateSource, known bool) {
	for i := range set.sources {
		if set.sources[i].key == key {
			return &set.sources[i], true
		}
	}
	return nil, false
}

// enter gives a source the entry of the unproven source whose budgets are nearest to full. There is always one (see
// prove), except for a moment in which workers disagree about the time: then the first entry is used.
func (r *rates) enter(set *rateSet, key uint64, now int64) *rateSource {
	out := &set.sources[0]
	for i := range set.sources {
		if s := &set.sources[i]; s.proven <= now && (out.proven > now || s.used() < out.used()) {
			out = s
		}
	}
	if out.used() > now {
		r.displaced.Add(1)
	}
	*out = rateSource{key: key}
	return out
}

func (s *rateSource) used() int64 { return max(s.full[challenges], s.full[bindings]) }

// prove marks a source of the set as proven and returns its entry. The last unproven entry of a set stays unproven:
// then the proven source that was silent longest loses its mark and its entry.
func (set *rateSet) prove(s *rateSource, now int64) *rateSource {
	if s.proven <= now {
		s.full = [budgets]int64{}
		proven, oldest := 0, (*rateSource)(nil)
		for i := range set.sources {
			if other := &set.sources[i]; other.proven > now {
				proven++
				if oldest == nil || other.proven < oldest.proven {
					oldest = other
				}
			}
		}
		if proven == rateSlots-1 {
			*oldest, *s = *s, rateSource{}
			s = oldest
		}
	}
	s.proven = now + int64(provenTime)
	return s
}

// spend charges one answer to a budget of the source itself.
func (s *rateSource) spend(b budget, l rateLimit, now int64) bool {
	if l.cost == 0 {
		return true
	}
	next, ok := spend(s.full[b], l.cost, l.burst, now)
	s.full[b] = next
	return ok
}

// take charges a budget that all workers share.
func take(bucket *atomic.Int64, cost, burst, now int64) bool {
	for {
		old := bucket.Load()
		next, ok := spend(old, cost, burst, now)
		if !ok {
			return false
		}
		if bucket.CompareAndSwap(old, next) {
			return true
		}
	}
}

// spend advances a budget's time; it returns false if the budget is empty. A time further ahead than a burst comes
// from a policy with a longer burst and counts as full; a time slightly further ahead comes from another worker with
// a newer clock reading.
func spend(full, cost, burst, now int64) (next int64, ok bool) {
	const fresher = 1e9
	if full > now+burst+fresher {
		full = now
	}
	full = min(max(full, now), now+burst)
	if full+cost > now+burst {
		return full, false
	}
	return full + cost, true
}

// hash returns the hash of the IPv4 address or the IPv6 /64, never 0. It multiplies by secrets, so that senders
// cannot choose their set. A collision only means a shared budget.
func (r *rates) hash(source netip.Addr) uint64 {
	var prefix, kind uint64
	if source.Is4() {
		v4 := source.As4()
		prefix, kind = uint64(binary.BigEndian.Uint32(v4[:])), 4
	} else {
		v6 := source.As16()
		prefix = binary.BigEndian.Uint64(v6[:])
	}
	for range 2 {
		hi, lo := bits.Mul64(prefix^r.secret[0], r.secret[1]^kind)
		prefix = hi ^ lo
	}
	return prefix | 1
}
