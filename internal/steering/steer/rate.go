package steer

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/rate"
)

// limit sets the rates of a service; this Engine is one of this many workers.
func (s *serviceState) limit(snapshot *lb.Snapshot, workers int) {
	s.rate.limit(s.service.NewFlowRate, workers)
	s.echoes.limit(lb.EchoRate, workers)
	timeout := max(int(s.service.Timeouts.UDP/time.Second), 1)
	s.entries.limit(max(snapshot.Limits.Flows/timeout, 1), workers)
}

// mayEnter reports whether a new flow of a service gets an entry. The service's new_flow_rate bounds that. A service without
// that rate whose flows need no entry (the modes other than NAT) has another bound: when the table is more than three
// quarters full, the rate that fills it once per UDP timeout, limits.flows / timeouts.udp.
func (e *Engine) mayEnter(service *lb.Service, now time.Duration) bool {
	state := e.services[service.Index]
	if service.NewFlowRate == 0 && service.Mode != lb.NAT && e.flows.Len()*4 > e.flows.Max()*3 {
		return state.entries.take(now)
	}
	return state.rate.take(now)
}

// bucket holds this worker's share of a rate of new flows per second, with a burst of one second's worth and at least one
// flow.
type bucket struct {
	rate.Bucket
	cost time.Duration // of one flow; 0: no limit
}

// limit sets the rate, per second of all workers, and keeps the credit.
func (b *bucket) limit(perSecond, workers int) {
	b.cost = 0
	if perSecond > 0 {
		b.cost = max(time.Second*time.Duration(workers)/time.Duration(perSecond), 1)
	}
}

// take spends one token, if there is one at now.
func (b *bucket) take(now time.Duration) bool {
	return b.cost == 0 || b.Take(now, b.cost, time.Second)
}
