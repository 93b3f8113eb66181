package plot

// Percentiles is a chart of distributions, in milliseconds. Its series have the points of measure.Latency's CurvePoints.
func Percentiles(title string, series []Series) Chart {
	return Chart{
		Title: title, XLabel: "percentile", YLabel: "ms", Series: series,
		Ticks: []Tick{{X: 0.3, Text: "p50"}, {X: 1, Text: "p90"}, {X: 2, Text: "p99"}, {X: 3, Text: "p99.9"}, {X: 4, Text: "p99.99"}, {X: 5, Text: "max"}},
		Note:  "A logarithmic scale of the share that takes longer.",
	}
}
