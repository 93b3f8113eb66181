package balancing

import (
	"github.com/weir-lb/weir/internal/control/history"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// fateOf is what happens to packets with a reason: pass, forward, drop, hold or answer.
func fateOf(reason string) string {
	if r, ok := lb.ParseReason(reason); ok {
		return r.Action().String()
	}
	return ""
}

// droppedBy leaves out reasons that are no drops.
func droppedBy(reason string) string {
	if fateOf(reason) != lb.Drop.String() {
		return ""
	}
	return reason
}

// Plots are what the history of a load balancer shows.
func Plots() []history.Plot {
	flows := map[string]string{"table": "flows"}
	return []history.Plot{
		{Title: "Packets", Rate: true, Lines: []history.Source{{Metric: "weir_packets_total", By: "reason", Group: fateOf}}},
		{Title: "Dropped packets by reason", Rate: true, Lines: []history.Source{{Metric: "weir_packets_total", By: "reason", Group: droppedBy}}},
		{Title: "Bytes", Unit: "bytes", Rate: true, Lines: []history.Source{{Metric: "weir_backend_bytes_total", By: "direction"}}},
		{Title: "Flows", Lines: []history.Source{{Metric: "weir_table_entries", Name: "in the table", Where: flows}, {Metric: "weir_table_proven", Name: "answered", Where: flows}}},
		{Title: "New flows by service", Rate: true, Lines: []history.Source{{Metric: "weir_backend_flows_opened_total", By: "service"}}},
		{Title: "Backends that take new flows", Lines: []history.Source{{Metric: "weir_backend_up", By: "service"}}},
		{Title: "Duration of health probes", Unit: "seconds", Lines: []history.Source{{Metric: "weir_probe_duration_seconds", Quantiles: []float64{0.5, 0.99}}}},
	}
}
