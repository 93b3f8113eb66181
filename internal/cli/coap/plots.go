package coap

import "github.com/weir-lb/weir/internal/control/history"

// plots are what the history of a server shows.
func plots() []history.Plot {
	lines := func(pairs ...string) (sources []history.Source) {
		for i := 0; i < len(pairs); i += 2 {
			sources = append(sources, history.Source{Metric: pairs[i], Name: pairs[i+1]})
		}
		return sources
	}
	return []history.Plot{
		{Title: "Sessions", Lines: lines("weir_coap_engine_sessions", "DTLS and plain peers", "weir_coap_streams_connections", "TCP and TLS connections", "weir_coap_resources_observers", "observations")},
		{Title: "Requests", Rate: true, Lines: lines("weir_coap_exchange_requests_total", "executed", "weir_coap_exchange_duplicates_total", "duplicates", "weir_coap_exchange_retransmissions_total", "sent again")},
		{Title: "Duration of requests", Unit: "seconds", Lines: []history.Source{{Metric: "weir_coap_engine_request_duration_seconds", Quantiles: []float64{0.5, 0.99}}}},
		{Title: "Handshakes", Rate: true, Lines: lines("weir_coap_engine_handshakes_total", "completed", "weir_coap_engine_handshakes_failed_total", "failed", "weir_coap_engine_handshakes_resumed_total", "resumed")},
		{Title: "Duration of handshakes", Unit: "seconds", Lines: []history.Source{{Metric: "weir_coap_engine_handshake_duration_seconds", Quantiles: []float64{0.5, 0.99}}}},
		{Title: "Bytes", Unit: "bytes", Rate: true, Lines: lines("weir_coap_engine_received_bytes_total", "received", "weir_coap_engine_sent_bytes_total", "sent")},
		{Title: "Datagrams of other nodes", Rate: true, Lines: lines("weir_coap_cluster_forwarded_total", "forwarded", "weir_coap_cluster_processed_forwarded_total", "taken", "weir_coap_cluster_backwarded_total", "answered")},
		{Title: "Refused records", Rate: true, Lines: lines("weir_coap_engine_bad_macs_total", "bad MAC", "weir_coap_engine_replays_total", "replays", "weir_coap_engine_malformed_total", "malformed",
			"weir_coap_engine_unknown_cids_total", "unknown connection id", "weir_coap_engine_kernel_drops_total", "receive buffer full")},
	}
}
