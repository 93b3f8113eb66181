// Package history keeps the last hour of a few lines that a page draws: sums of metrics, rates of counters and quantiles of histograms.
//
//	recorder := history.New([]history.Plot{{
//		Title: "Packets", Rate: true, Lines: []history.Source{{Metric: "weir_packets_total", By: "reason"}},
//	}})
//	recorder.Take(time.Now(), part.Metrics()) // every Step
//	answer := recorder.History()
//
// Bounds: Slots points for each line; maxLines lines in a plot, what comes later is added to the line "other". The package has no clock.
package history
