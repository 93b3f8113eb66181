package steer

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// limit sets the rates of a service, of which this Engine is one of so many workers.
func (s *serviceState) limit(snapshot *lb.Snapshot, workers int) {
	s.rate.limit(s.service.NewFlowRate, workers)
	timeout := max(int(s.service.Timeouts.UDP/time.Second), 1)
	s.entries.limit(max(snapshot.Limits.Flows/timeout, 1), workers)
}

// mayEnter says whether a new flow of a service gets an entry. Its new_flow_rate
// bounds that. Where the service has none and its flows need no entry (the modes
// other than NAT), a table that is more than three quarters full is protected by
// a rate that fills it once per UDP time-out: limits.flows / timeouts.udp.
func (e *Engine) mayEnter(service *lb.Service, now time.Duration) bool {
	state := e.services[service.Index]
	if service.NewFlowRate == 0 && service.Mode != lb.NAT && e.flows.Len()*4 > e.flows.Max()*3 {
		return state.entries.take(now)
	}
	return state.rate.take(now)
}

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
