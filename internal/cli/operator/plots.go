package operator

import "github.com/weir-lb/weir/internal/control/history"

// plots are what the history of the operator shows.
func plots() []history.Plot {
	return []history.Plot{
		{Title: "Writes", Rate: true, Lines: []history.Source{
			{Metric: "weir_operator_renders_total", Name: "renders"},
			{Metric: "weir_operator_render_failures_total", Name: "failed renders"},
			{Metric: "weir_operator_objects_applied_total", Name: "objects"},
			{Metric: "weir_operator_status_writes_total", Name: "statuses"},
		}},
		{Title: "Duration of writes", Unit: "seconds", Lines: []history.Source{{Metric: "weir_operator_write_duration_seconds", Quantiles: []float64{0.5, 0.99}}}},
	}
}
