package stats

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Take enters a report that came from an address and returns the key of its history. The error is ErrFull, or says what is wrong
// with the report.
func (s *Service) Take(now time.Time, from netip.Addr, report *tcpscale.Report) (string, error) {
	if err := check(report); err != nil {
		s.drop(func(d *Dropped) { d.BadReports++ })
		return "", err
	}
	return s.take(now, from, report, false)
}

func (s *Service) take(now time.Time, from netip.Addr, report *tcpscale.Report, original bool) (string, error) {
	address := from.Unmap().WithZone("").String()
	if from.Unmap().IsLoopback() {
		address = "localhost" // one process may come by IPv4 and IPv6 in turn
	}
	key := keyOf(report, address, original)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reporters[key]
	if r == nil {
		if !s.room() {
			s.dropped.Reporters++
			return "", ErrFull
		}
		r = &reporter{key: key, address: address, original: original, baseAt: now, history: newHistory()}
		r.base, r.baseCPU = report.Totals, report.CPUSeconds
		s.reporters[key] = r
	}
	r.update(now, report)
	s.reports++
	return key, nil
}

// room makes sure of a free place: the longest quiet reporter that is not live gives way.
func (s *Service) room() bool {
	if len(s.reporters) < s.config.MaxReporters {
		return true
	}
	var oldest *reporter
	for _, r := range s.reporters {
		if r.state != StateLive && (oldest == nil || r.last.Before(oldest.last)) {
			oldest = r
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.reporters, oldest.key)
	s.dropped.Forgotten++
	return true
}

// shortestRate is the time below which two reports make no rate.
const shortestRate = 200 * time.Millisecond

func (r *reporter) update(now time.Time, report *tcpscale.Report) {
	if report.Totals.Opened < r.base.Opened || report.Totals.Closed < r.base.Closed || report.CPUSeconds < r.baseCPU {
		r.restarts++ // of the same name, process number and address: a container that began again
		r.base, r.baseCPU = tcpscale.Totals{}, 0
	}
	if past := now.Sub(r.baseAt); past >= shortestRate {
		seconds := past.Seconds()
		r.rates = Rates{
			Opened:      float64(grown(report.Totals.Opened, r.base.Opened)) / seconds,
			Closed:      float64(grown(report.Totals.Closed, r.base.Closed)) / seconds,
			Lost:        float64(grown(report.Totals.Lost, r.base.Lost)) / seconds,
			Reconnected: float64(grown(report.Totals.Reconnected, r.base.Reconnected)) / seconds,
			Failed:      float64(grown(report.Totals.Failed, r.base.Failed)) / seconds,
		}
		r.cpu = max(0, report.CPUSeconds-r.baseCPU) / seconds * 100
		r.base, r.baseCPU, r.baseAt = report.Totals, report.CPUSeconds, now
	}
	r.latencies = latencies{
		rtt50: quantile(report.Heartbeats.RTT, 0.5), rtt99: quantile(report.Heartbeats.RTT, 0.99),
		connect50: quantile(report.Connect, 0.5), connect99: quantile(report.Connect, 0.99),
		detected99: quantile(report.Detected, 0.99), reconnect99: quantile(report.Reconnect, 0.99),
	}
	r.last, r.state = now, StateLive
	if report.Final {
		r.state, r.rates, r.cpu = StateEnded, Rates{}, 0
	}
	kept := *report
	kept.History, kept.Samples, kept.Connect, kept.Detected, kept.Reconnect, kept.Heartbeats.RTT = nil, nil, nil, nil, nil, nil
	r.report = kept
}

// grown is what a counter has gained; one that went back alone has no known gain.
func grown(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

func quantile(l *measure.Latency, q float64) float64 {
	if l == nil {
		return 0
	}
	return measure.Millis(l.Quantile(q))
}

func keyOf(r *tcpscale.Report, address string, original bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %d %d %t", address, r.Role, r.ID, r.Host, r.Run, r.PID, r.Worker, original))
	return hex.EncodeToString(sum[:8])
}

func (s *Service) drop(count func(*Dropped)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count(&s.dropped)
}
