package client

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// reporter calls the live callback.
type reporter struct {
	b           *bench
	live        func(Snapshot)
	begun, last time.Time
	previous    BenchStats
	requestedAt time.Time         // for the round-trip times of this interval; zero: not yet
	timeline    *measure.Timeline // round-trip times of the whole load
}

// look reports when an interval is over, or at the end.
func (r *reporter) look(end bool) {
	if end {
		r.await()
	}
	now := time.Now()
	period := now.Sub(r.last)
	if r.requestedAt.IsZero() && period >= r.b.cfg.LiveEvery-2*publishEvery {
		r.requestRTT(now)
	}
	// After a slow callback the interval is over before the round-trip times were requested. The workers get time to publish
	// them in this case too.
	ready := period >= r.b.cfg.LiveEvery && (r.handedOver() || now.Sub(r.requestedAt) >= 4*publishEvery)
	if !ready && !end {
		return
	}
	interval, delays := r.take()
	total := r.b.total().stats
	since := statsSince(&total, &r.previous)
	r.timeline.Merge(now.Sub(r.begun), interval, since.Errors)
	if r.live != nil {
		r.live(Snapshot{
			Elapsed: now.Sub(r.begun), Total: total, Interval: since, Period: period,
			P50: interval.Quantile(0.5), P99: interval.Quantile(0.99), Max: interval.Max(), Delays: delays,
		})
	}
	r.previous, r.last = total, now
}

// requestRTT makes every worker publish its round-trip times with its next counters. This happens shortly before they are
// read, so that they belong to this interval and not to the previous one.
func (r *reporter) requestRTT(now time.Time) {
	r.requestedAt = now
	for _, w := range r.b.workers {
		w.mu.Lock()
		w.shared.wanted = true
		w.mu.Unlock()
	}
}

// await requests what the workers have measured since the last interval, and waits for it for a bounded time.
func (r *reporter) await() {
	begun := time.Now()
	if r.requestedAt.IsZero() {
		r.requestRTT(begun)
	}
	for !r.handedOver() && time.Since(begun) < 20*publishEvery {
		r.b.pause(context.Background())
	}
}

// handedOver reports whether every worker has published its round-trip times.
func (r *reporter) handedOver() bool {
	for _, w := range r.b.workers {
		w.mu.Lock()
		wanted := w.shared.wanted
		w.mu.Unlock()
		if wanted {
			return false
		}
	}
	return true
}

// take collects what the workers have published since the last time.
func (r *reporter) take() (interval *measure.Latency, delays Delays) {
	r.requestedAt = time.Time{}
	interval = measure.NewLatency()
	for _, w := range r.b.workers {
		w.mu.Lock()
		rtt := w.shared.rtt
		w.shared.rtt = nil
		delays.extend(w.shared.delays)
		w.mu.Unlock()
		if rtt == nil {
			continue
		}
		interval.Merge(rtt)
		rtt.Reset()
		w.mu.Lock()
		w.shared.spare = rtt
		w.mu.Unlock()
	}
	return interval, delays
}

// statsSince subtracts the counters of o; gauges stay.
func statsSince(s, o *BenchStats) BenchStats {
	since := metrics.Since(s, o)
	since.Clients = s.Clients
	return since
}

// Line is the progress line of the source document's benchmark client:
//
//	210767 requests (21077 reqs/s, 2698 retransmissions (1.28%), 0 transmission errors (0.00%), 2000 clients)
//
// Requests are those since the start; rate, retransmissions and errors those of the interval.
func (s Snapshot) Line() string {
	i := &s.Interval
	rate := 0.0
	if s.Period > 0 {
		rate = float64(i.Requests) / s.Period.Seconds()
	}
	return fmt.Sprintf("%d requests (%.0f reqs/s, %d retransmissions (%s), %d transmission errors (%s), %d clients)",
		s.Total.Requests, rate, i.Retransmissions, percent(i.Retransmissions, i.Requests), i.Errors, percent(i.Errors, i.Requests), s.Total.Clients)
}

func percent(part, whole uint64) string {
	share := 0.0
	if whole > 0 {
		share = 100 * float64(part) / float64(whole)
	}
	return fmt.Sprintf("%.2f%%", share)
}

// Print writes the end of a load for people.
func (r *BenchResult) Print(w io.Writer) error {
	var b strings.Builder
	s := &r.Stats
	rate, cpu, server := 0.0, 0.0, 0.0
	if r.Elapsed > 0 {
		rate = float64(s.Requests) / r.Elapsed.Seconds()
	}
	if s.Requests > 0 {
		cpu, server = float64(r.CPU.Microseconds())/float64(s.Requests), float64(r.ServerCPU.Microseconds())/float64(s.Requests)
	}
	fmt.Fprintf(&b, "%d requests in %d ms, %.0f reqs/s\n", s.Requests, r.Elapsed.Milliseconds(), rate)
	fmt.Fprintf(&b, "cpu-time of this client: %d ms, %.1f us per request\n", r.CPU.Milliseconds(), cpu)
	if r.ServerCPU > 0 {
		fmt.Fprintf(&b, "cpu-time of the server: %d ms, %.1f us per request\n", r.ServerCPU.Milliseconds(), server)
	}
	fmt.Fprintf(&b, "%d retransmissions (%s), %d transmission errors (%s)\n", s.Retransmissions, percent(s.Retransmissions, s.Requests), s.Errors, percent(s.Errors, s.Requests))
	fmt.Fprintf(&b, "%d lost, %d refused by the server, %d lost sessions, %d handshakes, %d re-handshakes, %d failed handshakes, %d changes of address\n",
		s.Lost, s.Failed, s.LostSessions, s.Handshakes, s.Rehandshakes, s.HandshakeErrors, s.Rebinds)
	if s.Wrong > 0 {
		fmt.Fprintf(&b, "%d answers to other requests\n", s.Wrong)
	}
	if s.Rehandshakes > 0 && r.Elapsed > 0 {
		fmt.Fprintf(&b, "%.0f handshakes/s, %d resumed\n", float64(s.Handshakes)/(r.Setup+r.Elapsed).Seconds(), s.Resumed)
	}
	if s.Notifications+s.Served+s.Blocks > 0 {
		fmt.Fprintf(&b, "%d notifications received, %d requests answered or notifications sent, %d further blocks\n", s.Notifications, s.Served, s.Blocks)
	}
	if s.Echoes > 0 {
		fmt.Fprintf(&b, "%d requests repeated with the Echo option that the server demanded\n", s.Echoes)
	}
	if s.FirstBlocks > 0 {
		fmt.Fprintf(&b, "%d answers were longer than one message: their first block was taken\n", s.FirstBlocks)
	}
	fmt.Fprintf(&b, "\n%-10s %9s %9s %9s %9s %9s %9s %9s\n", "ms", "p50", "p90", "p95", "p99", "p99.9", "max", "mean")
	for _, row := range []struct {
		name string
		l    *measure.Latency
	}{{"RTT", r.RTT}, {"handshake", r.Handshake}} {
		if row.l == nil || row.l.Count() == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-10s", row.name)
		for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			fmt.Fprintf(&b, " %9.3f", measure.Millis(row.l.Quantile(q)))
		}
		fmt.Fprintf(&b, " %9.3f\n", measure.Millis(row.l.Mean()))
	}
	b.WriteByte('\n')
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "%d clients with %d to %d requests.\n", g.Clients, g.From, g.To)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
