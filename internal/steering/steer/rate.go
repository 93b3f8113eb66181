package steer

import "time"

// bucket is a token bucket: this worker's part of so many new flows per second, with a burst of one second's worth, and
// of one flow at least. It counts in nanoseconds of credit.
type bucket struct {
	cost   time.Duration // of one flow; 0: no limit
	credit time.Duration // up to burst
	last   time.Duration
	used   bool
}

// limit sets the rate, per second of all workers, and keeps the credit.
func (b *bucket) limit(rate, workers int) {
	b.cost = 0
	if rate > 0 {
		b.cost = max(time.Second*time.Duration(workers)/time.Duration(rate), 1)
	}
}

// take spends one token, if there is one at now.
func (b *bucket) take(now time.Duration) bool {
	if b.cost == 0 {
		return true
	}
	burst := max(time.Second, b.cost)
	if !b.used {
		b.used, b.credit = true, burst
	} else if now > b.last {
		b.credit = min(b.credit+now-b.last, burst)
	}
	b.last = max(b.last, now)
	if b.credit < b.cost {
		return false
	}
	b.credit -= b.cost
	return true
}
