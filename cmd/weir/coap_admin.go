package main

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
		samples = append(samples, structSamples("weir_coap_engine", s.Engine, []string{"Sessions", "HalfOpen"}, labels)...)
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

// structSamples makes a sample of every uint64 field of value; gauges names those that do not only grow.
func structSamples(prefix string, value any, gauges []string, labels []admin.Label) []admin.Sample {
	var samples []admin.Sample
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Type.Kind() != reflect.Uint64 {
			continue
		}
		words := snakeCase(field.Name)
		sample := admin.Sample{Name: prefix + "_" + words, Labels: labels, Value: float64(v.Field(i).Uint())}
		what := strings.ReplaceAll(words, "_", " ")
		if slices.Contains(gauges, field.Name) {
			sample.Help = "Current " + what + "."
		} else {
			sample.Name, sample.Counter, sample.Help = sample.Name+"_total", true, "Count of "+what+" since the start."
		}
		samples = append(samples, sample)
	}
	return samples
}

// snakeCase turns "BadMACs" into "bad_macs" and "RecordsIn" into "records_in".
func snakeCase(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+2 < len(runes) && unicode.IsLower(runes[i+1]) && runes[i+1] != 's') {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
