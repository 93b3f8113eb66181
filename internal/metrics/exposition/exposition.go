// Package exposition serves metrics over HTTP in the formats of Prometheus.
//
//	mux.Handle("GET /metrics", exposition.Handler(func() []metrics.Sample { return metrics.Of(server.Stats()) }))
//
// Every endpoint also has weir_build_info, and what the Go runtime and the process measure (go_…, process_…).
package exposition

import (
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-lb/weir/internal/metrics"
)

// maxRequests is the maximum number of requests that one handler answers at a time; others receive status 503.
const maxRequests = 4

// Build is a metric that every endpoint has.
type Build struct {
	Info struct {
		Version  string `label:"version"`
		Revision string `label:"revision"` // commit; empty when built without version control
		Go       string `label:"goversion"`
		One      int    `metric:"weir_build_info" help:"Always 1; the labels name the version, the commit and the Go version of this binary."`
	} `metric:""`
}

// Handler serves the samples, and those of the Go runtime, the process and the build, from a registry of its own. samples may be
// called from several goroutines at a time.
func Handler(samples func() []metrics.Sample) http.Handler {
	build := readBuild()
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector{func() []metrics.Sample { return append(samples(), metrics.Of(build)...) }},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // one bad sample must not hide the others
		MaxRequestsInFlight: maxRequests,
	})
}

func readBuild() Build {
	var b Build
	b.Info.Version, b.Info.Go, b.Info.One = "(devel)", runtime.Version(), 1
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Info.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Info.Revision = setting.Value
		}
	}
	return b
}

// collector turns samples into metrics. It describes nothing beforehand: the set changes with the configuration.
type collector struct{ samples func() []metrics.Sample }

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	samples := c.samples()
	for i := range samples {
		out <- metricOf(&samples[i])
	}
}

func metricOf(s *metrics.Sample) prometheus.Metric {
	names, values := make([]string, len(s.Labels)), make([]string, len(s.Labels))
	for i, label := range s.Labels {
		names[i], values[i] = label.Name, label.Value
	}
	desc := prometheus.NewDesc(s.Name, s.Help, names, nil)
	var metric prometheus.Metric
	var err error
	switch s.Kind {
	case metrics.HistogramKind:
		metric, err = prometheus.NewConstHistogram(desc, s.Count, s.Value, s.Buckets, values...)
	case metrics.Counter:
		metric, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, values...)
	default:
		metric, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, values...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}
