package turn

import "github.com/weir-lb/weir/internal/control/history"

// plots are what the history of a gateway shows.
func plots() []history.Plot {
	return []history.Plot{
		{Title: "Allocations", Lines: []history.Source{{Metric: "weir_turn_listener_allocations", By: "listener"}}},
		{Title: "New allocations", Rate: true, Lines: []history.Source{{Metric: "weir_turn_listener_allocations_opened_total", By: "listener"}}},
		{Title: "Relayed packets", Rate: true, Lines: []history.Source{{Metric: "weir_turn_listener_packets_total", By: "direction"}}},
		{Title: "Relayed bytes", Unit: "bytes", Rate: true, Lines: []history.Source{{Metric: "weir_turn_listener_bytes_total", By: "direction"}}},
		{Title: "Duration of opening relay addresses", Unit: "seconds", Lines: []history.Source{{Metric: "weir_turn_listener_allocate_duration_seconds", Quantiles: []float64{0.5, 0.99}}}},
		{Title: "Messages and packets by reason", Rate: true, Lines: []history.Source{{Metric: "weir_turn_listener_reasons_total", By: "reason"}}},
		{Title: "Connections of clients", Lines: []history.Source{{Metric: "weir_turn_listener_connections", By: "listener"}}},
	}
}

// authPlots are what the history of the authentication service shows.
func authPlots() []history.Plot {
	return []history.Plot{{Title: "Requests for credentials", Rate: true, Lines: []history.Source{
		{Metric: "weir_turn_auth_issued_total", Name: "answered"},
		{Metric: "weir_turn_auth_refused_total", Name: "without the key"},
		{Metric: "weir_turn_auth_wrong_total", Name: "wrong parameter"},
	}}}
}
