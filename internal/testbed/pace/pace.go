// Package pace decides when the datagrams of a load are due.
//
// A load has a rate, and a datagram is due at its intended time, whether or not those before it could be sent. A sender that was
// held up catches up for a short while only: more would test how long the queues are, and not the rate. What lies further back is
// given up.
//
// The package is pure: the caller says how much time has passed.
package pace

import "time"

// Pacer paces one sender. The zero value of what is not exported is the start of a load. For one goroutine.
type Pacer struct {
	Rate float64       // datagrams per second; 0: as many as possible
	Debt time.Duration // how much of a delay the sender compensates for

	sent, givenUp float64
}

// Take returns how many datagrams are due at a time since the start, from atLeast to atMost; they count as sent. If fewer than
// atLeast are due, n is 0 and wait, at least a microsecond, is the time until so many are.
func (p *Pacer) Take(elapsed time.Duration, atLeast, atMost int) (n int, wait time.Duration) {
	if p.Rate == 0 {
		return atMost, 0
	}
	owed := elapsed.Seconds()*p.Rate - p.sent - p.givenUp
	if limit := max(p.Rate*p.Debt.Seconds(), float64(atLeast)); owed > limit {
		p.givenUp += owed - limit
		owed = limit
	}
	if owed < float64(atLeast) {
		return 0, max(time.Duration((float64(atLeast)-owed)/p.Rate*1e9), time.Microsecond)
	}
	n = int(min(owed, float64(atMost)))
	p.sent += float64(n)
	return n, 0
}
