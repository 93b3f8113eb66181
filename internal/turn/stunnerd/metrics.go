package stunnerd

import "github.com/weir-lb/weir/internal/turn/gateway"

// Metrics are some of a gateway's counters under the names that a STUNner dashboard queries. The tags are those of package metrics.
type Metrics struct {
	Allocations int               `metric:"stunner_allocations_active" help:"Number of active allocations."`
	Listeners   []ListenerMetrics `metric:"stunner_listener"`
	Clusters    []EndMetrics      `metric:"stunner_cluster"`
}

// EndMetrics is what a listener or a cluster carried.
type EndMetrics struct {
	Name     string          `label:"name"`
	Received gateway.Traffic `metric:",direction=rx" help:"received from clients (rx) or sent to them (tx)."`
	Sent     gateway.Traffic `metric:",direction=tx" help:"received from clients (rx) or sent to them (tx)."`
}

// ListenerMetrics are those of a listener.
type ListenerMetrics struct {
	EndMetrics
	Connections int    `metric:"_connections" help:"Connections of a listener."`
	Opened      uint64 `metric:"_connections_total" help:"Connections since the start."`
}

// MetricsOf selects the counters.
func MetricsOf(s *gateway.Stats) *Metrics {
	m := &Metrics{Allocations: s.Totals.Allocations}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		m.Listeners = append(m.Listeners, ListenerMetrics{EndMetrics{l.Name, l.Up, l.Down}, max(l.Connections, l.Allocations), l.Opened})
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		m.Clusters = append(m.Clusters, EndMetrics{c.Name, c.Up, c.Down})
	}
	return m
}
