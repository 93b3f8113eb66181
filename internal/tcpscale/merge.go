package tcpscale

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

const maxSamples = 64

// MergeReports adds up the reports of workers of one role; peers with the same id and generation are one. The reports
// are not changed. Without any it returns an empty Report.
func MergeReports(reports []Report) Report {
	if len(reports) == 0 {
		return Report{}
	}
	m := reports[0]
	m.Failures, m.Peers, m.LimitsHit, m.Samples, m.History = nil, nil, nil, nil, nil
	m.Connections, m.Totals, m.Rates, m.Bytes, m.Heartbeats = Connections{}, Totals{}, Rates{}, Bytes{}, Heartbeats{}
	m.Connect, m.Detected, m.Reconnect, m.Marks = nil, nil, nil, nil
	m.CPUSeconds, m.RSSBytes, m.TableBytes, m.BytesPerConnection, m.OtherPeers, m.Workers = 0, 0, 0, 0, 0, 0
	m.Frozen, m.Void = 0, ""
	peers := map[identity]int{}
	var user float64
	for i := range reports {
		r := &reports[i]
		addReport(&m, r)
		user += r.BytesPerConnection * float64(r.Connections.Established)
		for _, p := range r.Peers {
			peers[identity{p.ID, p.Zone, p.Generation}] += p.Connections
		}
	}
	slices.Sort(m.LimitsHit)
	m.LimitsHit = slices.Compact(m.LimitsHit)
	if m.Connections.Established > 0 {
		m.BytesPerConnection = user / float64(m.Connections.Established)
	}
	for _, p := range slices.SortedFunc(maps.Keys(peers), func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.generation, b.generation), cmp.Compare(a.zone, b.zone))
	}) {
		m.Peers = append(m.Peers, Peer{ID: p.id, Zone: p.zone, Generation: p.generation, Connections: peers[p]})
	}
	return m
}

// identity is what makes peers of two reports the same.
type identity struct{ id, zone, generation string }

// addReport adds what is a sum or an extreme over workers.
func addReport(m, r *Report) {
	m.Workers += max(r.Workers, 1)
	if r.At.After(m.At) {
		m.At = r.At
	}
	if !r.BeganAt.IsZero() && (m.BeganAt.IsZero() || r.BeganAt.Before(m.BeganAt)) {
		m.BeganAt = r.BeganAt
	}
	if r.FullAt.IsZero() || !m.FullAt.IsZero() && r.FullAt.After(m.FullAt) {
		m.FullAt = r.FullAt // if one is not full, the sum is not full
	}
	metrics.Add(&m.Connections, &r.Connections)
	metrics.Add(&m.Totals, &r.Totals)
	metrics.Add(&m.Rates, &r.Rates)
	metrics.Add(&m.Bytes, &r.Bytes)
	addHeartbeats(&m.Heartbeats, r.Heartbeats)
	m.Connect = mergeLatency(m.Connect, r.Connect)
	m.Detected = mergeLatency(m.Detected, r.Detected)
	m.Reconnect = mergeLatency(m.Reconnect, r.Reconnect)
	m.Marks = mergeMarks(m.Marks, r.Marks)
	m.CPUSeconds += r.CPUSeconds
	m.RSSBytes += r.RSSBytes
	m.TableBytes += r.TableBytes
	if m.Frozen = max(m.Frozen, r.Frozen); r.Void != "" && r.Frozen >= m.Frozen {
		m.Void = r.Void // the one that stood still longest
	}
	m.OtherPeers += r.OtherPeers
	if len(r.Failures) > 0 && m.Failures == nil {
		m.Failures = map[string]uint64{}
	}
	for kind, n := range r.Failures {
		m.Failures[kind] += n
	}
	m.LimitsHit = append(m.LimitsHit, r.LimitsHit...)
	m.Samples = append(m.Samples, r.Samples[:min(len(r.Samples), maxSamples-len(m.Samples))]...)
}

func mergeLatency(sum, more *measure.Latency) *measure.Latency {
	if more == nil {
		return sum
	}
	if sum == nil {
		sum = measure.NewLatency()
	}
	sum.Merge(more)
	return sum
}

func addHeartbeats(h *Heartbeats, o Heartbeats) {
	h.Sent += o.Sent
	h.Received += o.Received
	h.Missed += o.Missed
	h.Unsent += o.Unsent
	h.RTT = mergeLatency(h.RTT, o.RTT)
}
