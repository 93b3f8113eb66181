// Package rate has the token bucket of all limits on how often something may happen.
//
// A bucket is one number: the time at which it is full again (the generic cell rate algorithm of ITU-T I.371). A token
// moves that time by its cost, the time that earns it; a burst is the time that earns a whole bucket.
//
//	var b rate.Bucket
//	if !b.Take(now, time.Second/100, time.Second) { … }  // 100 a second, up to 100 at once
//
// The zero Bucket is full. The package is pure: the caller gives the time, which must not go back far.
package rate

import "time"

// Bucket is a token bucket. Not for concurrent use.
type Bucket time.Duration

// Empty returns a bucket without a token at now.
func Empty(now, burst time.Duration) Bucket { return Bucket(now + burst) }

// Take spends one token of a cost, if it is there at now, and says so. A burst below the cost counts as the cost, so that
// one token is always earned at last.
func (b *Bucket) Take(now, cost, burst time.Duration) bool {
	if !b.Has(now, cost, burst) {
		return false
	}
	b.Spend(now, cost)
	return true
}

// Has says whether a token is there at now.
func (b *Bucket) Has(now, cost, burst time.Duration) bool {
	return max(time.Duration(*b), now) <= now+max(burst-cost, 0)
}

// Spend takes a token that is there, or one ahead of its time.
func (b *Bucket) Spend(now, cost time.Duration) { *b = Bucket(max(time.Duration(*b), now) + cost) }

// TakeUpTo spends up to n tokens and returns how many were there.
func (b *Bucket) TakeUpTo(now, cost, burst time.Duration, n int) int {
	left := now + max(burst, cost) - max(time.Duration(*b), now)
	n = max(min(n, int(left/max(cost, 1))), 0)
	b.Spend(now, time.Duration(n)*cost)
	return n
}

// Wait returns how long it takes until what was spent ahead of its time is earned; 0: nothing was.
func (b *Bucket) Wait(now, burst time.Duration) time.Duration {
	return max(time.Duration(*b)-now-max(burst, 0), 0)
}

// Cost returns what n tokens cost at so many tokens per second.
func Cost(n, perSecond float64) time.Duration {
	return time.Duration(n/perSecond*1e9 + 0.5)
}
