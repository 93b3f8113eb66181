package main

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/admin"
)

// coapSamples turns the status of the listeners into metrics: weir_coap_engine_*, weir_coap_exchange_*, weir_coap_cluster_*.
func coapSamples(status node.Status) []admin.Sample {
	failed := 0.0
	if status.Credentials.Error != "" {
		failed = 1
	}
	samples := []admin.Sample{
		{Name: "weir_coap_credentials_generation", Help: "Successful loads of the PSK file.", Value: float64(status.Credentials.Generation)},
		{Name: "weir_coap_credentials_failed", Help: "1 when the last reload of the PSK file failed; the content before it is in use.", Value: failed},
	}
	for i := range status.Listeners {
		s := &status.Listeners[i]
		labels := []admin.Label{{Name: "listener", Value: s.URI}, {Name: "node", Value: ""}}
		if s.NodeID != nil {
			labels[1].Value = strconv.Itoa(int(*s.NodeID))
		}
		samples = append(samples, structSamples("weir_coap_engine", s.Engine, []string{"sessions", "half_open", "unproven_peers"}, labels)...)
		samples = append(samples, structSamples("weir_coap_exchange", s.Exchange, nil, labels)...)
		samples = append(samples, admin.Sample{
			Name: "weir_coap_exchange_pending", Help: "Messages awaiting an acknowledgement or their time.", Labels: labels, Value: float64(s.Pending),
		})
		if s.Cluster != nil {
			samples = append(samples, structSamples("weir_coap_cluster", *s.Cluster, nil, labels)...)
		}
	}
	return samples
}

// structSamples makes a sample of every uint64 field of value, named by its JSON key. gauges are those that can also
// decrease.
func structSamples(prefix string, value any, gauges []string, labels []admin.Label) []admin.Sample {
	var samples []admin.Sample
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Type.Kind() != reflect.Uint64 {
			continue
		}
		words := field.Tag.Get("json") // one name for a number, in /status and here
		sample := admin.Sample{Name: prefix + "_" + words, Labels: labels, Value: float64(v.Field(i).Uint())}
		what := strings.ReplaceAll(words, "_", " ")
		if slices.Contains(gauges, words) {
			sample.Help = "Current " + what + "."
		} else {
			sample.Name, sample.Counter, sample.Help = sample.Name+"_total", true, "Count of "+what+" since the start."
		}
		samples = append(samples, sample)
	}
	return samples
}
