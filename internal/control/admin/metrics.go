package admin

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Sample is one number for /metrics at the time of asking.
type Sample struct {
	Name    string // Prometheus rules: weir_packets_total, weir_flows
	Help    string // equal for all samples of a name
	Counter bool   // only grows; else a gauge
	Labels  []Label
	Value   float64
}

// Label is a name and a value. Samples of one name have the same label names in the same order.
type Label struct{ Name, Value string }

// metricsHandler serves the samples, and those of the Go runtime and the process, from a registry of its own.
func metricsHandler(samples func() []Sample) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{samples}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // one bad sample must not blind the rest
		MaxRequestsInFlight: 4,
	})
}

// collector turns samples into metrics. It describes nothing beforehand: the set changes with the configuration.
type collector struct{ samples func() []Sample }

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.samples() {
		names, values := make([]string, len(s.Labels)), make([]string, len(s.Labels))
		for i, label := range s.Labels {
			names[i], values[i] = label.Name, label.Value
		}
		kind := prometheus.GaugeValue
		if s.Counter {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(s.Name, s.Help, names, nil)
		metric, err := prometheus.NewConstMetric(desc, kind, s.Value, values...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}
