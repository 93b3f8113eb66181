package allocation

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
)

// rates bounds answers to requests without valid credentials, per source prefix and in all. Each bucket is one number, the
// time at which it will be full again (GCRA): a request is let through while that lies at most a burst ahead.
//
// The table is fixed: prefixes fall in sets of eight by a keyed hash. In a full set the prefix nearest to a full bucket
// gives way; if it was not full, the loss is counted, for somebody may get a second burst.
//
// Prefixes never seen before get at most half of the answers in all. A flood from invented addresses is nothing but such
// prefixes, while a real client sends again: then it has been seen, and draws on the other half.
type rates struct {
	secret    [2]uint64
	sets      []rateSet
	total     atomic.Int64
	strangers atomic.Int64 // prefixes at first sight
	limits    atomic.Pointer[rateLimits]
	displaced atomic.Uint64
}

type rateSet struct {
	mu   sync.Mutex
	keys [8]uint64
	full [8]int64 // when the bucket is full again
}

// rateLimits are nanoseconds per answer and per burst; a cost of 0 is no limit.
type rateLimits struct {
	prefixCost, prefixBurst int64
	totalCost, totalBurst   int64
}

func newRates(prefixes int, random *rand.ChaCha8) *rates {
	const most = 1 << 22
	sets := max((min(prefixes, most)+7)/8, 1)
	return &rates{secret: [2]uint64{random.Uint64(), random.Uint64() | 1}, sets: make([]rateSet, sets)}
}

func (r *rates) set(l RateLimit) {
	limits := &rateLimits{prefixCost: cost(l.PerPrefix), totalCost: cost(l.Total)}
	limits.prefixBurst = span(limits.prefixCost, l.PrefixBurst)
	limits.totalBurst = span(limits.totalCost, l.TotalBurst)
	r.limits.Store(limits)
}

func cost(perSecond float64) int64 {
	if perSecond <= 0 {
		return 0
	}
	return int64(min(max(1e9/perSecond, 1), 1e15))
}

// span is the time that a burst takes to come back, at most 11 days.
func span(cost int64, burst int) int64 {
	return int64(min(float64(cost)*float64(burst), 1e15))
}

// allow takes one answer from a source's bucket and from that of all.
func (r *rates) allow(source netip.Addr, now int64) bool {
	l := r.limits.Load()
	known := true
	if l.prefixCost > 0 {
		var ok bool
		if known, ok = r.allowPrefix(source, l, now); !ok {
			return false
		}
	}
	if l.totalCost == 0 {
		return true
	}
	if !known && !take(&r.strangers, 2*l.totalCost, l.totalBurst, now) {
		return false
	}
	return take(&r.total, l.totalCost, l.totalBurst, now)
}

// take spends from a bucket that all workers share.
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

// spend moves a bucket's time on; false if it is empty. A time further ahead than a burst is of a clock that was set back, and
// counts as full; a little further is of another worker, whose clock reading is fresher, or of a policy with a longer burst.
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

func (r *rates) allowPrefix(source netip.Addr, l *rateLimits, now int64) (known, ok bool) {
	key := r.hash(source)
	set := &r.sets[(key>>1)%uint64(len(r.sets))]
	set.mu.Lock()
	defer set.mu.Unlock()
	at := 0
	for i, k := range set.keys {
		if k == key {
			at = i
			break
		}
		if set.full[i] < set.full[at] {
			at = i
		}
	}
	if known = set.keys[at] == key; !known {
		if set.full[at] > now {
			r.displaced.Add(1)
		}
		set.keys[at], set.full[at] = key, 0
	}
	next, ok := spend(set.full[at], l.prefixCost, l.prefixBurst, now)
	set.full[at] = next
	return known, ok
}

// hash is of the IPv4 address or the IPv6 /64, never 0. Multiplying by secrets keeps strangers from choosing their set; a
// collision costs nothing but a shared bucket.
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
