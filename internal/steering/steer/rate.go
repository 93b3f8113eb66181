package steer

import "time"

// bucket is a token bucket: rate new flows per second, with a burst of one
// second's worth. It counts in nanoseconds of credit, so nothing is rounded away.
type bucket struct {
	rate   int           // per second; 0: no limit
	credit time.Duration // up to one second
	last   time.Duration
	used   bool
}

// limit sets the rate and keeps the credit.
func (b *bucket) limit(rate int) { b.rate = rate }

// take spends one token, if there is one at now.
func (b *bucket) take(now time.Duration) bool {
	if b.rate <= 0 {
		return true
	}
	if !b.used {
		b.used, b.credit = true, time.Second
	} else if now > b.last {
		b.credit = min(b.credit+now-b.last, time.Second)
	}
	b.last = max(b.last, now)
	cost := max(time.Second/time.Duration(b.rate), 1)
	if b.credit < cost {
		return false
	}
	b.credit -= cost
	return true
}
