// Package metrics turns counters into Prometheus metrics. The name, the help text and the labels of a metric are struct tags of
// the field that counts it, so that each of them is written once; [Of] reads the values, and [Describe] reads the tags alone,
// for the reference page. [Add] adds up the counters of several workers, [Since] subtracts an earlier look.
//
//	type Stats struct {
//		Name     string            `label:"listener"`                                          // a label of everything below
//		Accepted uint64            `metric:"weir_x_accepted_total" help:"Connections accepted."`
//		Open     int               `metric:"weir_x_connections" help:"Open connections."`
//		Error    string            `metric:"weir_x_failed" help:"1 while …."`                  // 1: not empty
//		State    string            `metric:"weir_x_up" when:"up" help:"1 while …."`            // 1: equal to when
//		Age      float64           `metric:"weir_x_age_seconds" unit:"ms" help:"…"`            // counted in milliseconds
//		Mode     string            `metric:"weir_x_info" label:"mode" help:"…"`                // always 1, the text is a label
//		Reasons  map[string]uint64 `metric:"weir_x_packets_total" key:"reason" help:"…"`       // a sample for each key
//		Up       Traffic           `metric:"weir_x,direction=up" help:"relayed."`              // names below that begin with _ follow weir_x
//		Wait     metrics.Histogram `metric:"weir_x_wait_seconds" buckets:"1ms..1s" help:"…"`
//		Events   Events            `metric:"weir_x_events_total" help:"…"`                     // fields below: metric:"_,event=…"
//	}
//
// Rules of the tags:
//
//   - metric is NAME, or NAME,label=value,…, or only ,label=value,…. A name that ends in _total is a counter; a Histogram is a
//     histogram; anything else is a gauge. Times are seconds, as Prometheus wants them.
//   - A struct, pointer, slice, array or map of structs with a metric tag (it may be empty) is walked; an embedded
//     struct without a tag is part of the outer one. A name below it that begins with _ follows the name of this tag; _ alone is that name. Its help text follows that of the fields below, after a space.
//   - key names the labels of a map's keys, one for each level of nested maps, separated by commas. An array needs a method
//     Key(int) string; its zero elements are left out. The fields of a key that is a struct are labels by their label tags.
//   - A nil pointer, map or slice has no samples.
//
// The package is pure: it knows neither a clock nor Prometheus. Package exposition serves samples over HTTP.
package metrics
