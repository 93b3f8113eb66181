package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/metrics"
)

// board is a Grafana dashboard: panels of what matters first, then every metric of some parts of the page of metrics.
type board struct {
	file, title string
	first       []panel
	parts       []string // titles of statustest.Parts
}

type panel struct {
	title, unit string
	queries     []query
}

type query struct{ expr, legend string }

// selected is what a query of a dashboard selects, and over which time it takes a rate.
const (
	selected = `{job=~"$job",instance=~"$instance"}`
	window   = "[$__rate_interval]"
)

func rateBy(label, metric string) query {
	return query{"sum by (" + label + ") (rate(" + metric + selected + window + "))", "{{" + label + "}}"}
}

func sumBy(label, metric string) query {
	return query{"sum by (" + label + ") (" + metric + selected + ")", "{{" + label + "}}"}
}

func quantiles(metric string) (all []query) {
	for _, q := range []string{"0.5", "0.99"} {
		all = append(all, query{"histogram_quantile(" + q + ", sum by (le) (rate(" + metric + "_bucket" + selected + window + ")))", q})
	}
	return all
}

func boards() []board {
	return []board{
		{"balancer", "Weir: load balancer", []panel{
			{"Packets by reason", "pps", []query{rateBy("reason", "weir_packets_total")}},
			{"Bytes by backend", "Bps", []query{rateBy("backend", "weir_backend_bytes_total")}},
			{"Share of new flows", "percentunit", []query{sumBy("backend", "weir_backend_share")}},
			{"Backends up", "short", []query{sumBy("service", "weir_backend_up")}},
			{"Flows", "short", []query{sumBy("table", "weir_table_entries")}},
			{"BGP sessions established", "short", []query{sumBy("neighbour", "weir_announce_bgp_established")}},
			{"Prefixes announced", "short", []query{sumBy("prefix", "weir_announce_prefix")}},
			{"Virtual routers active", "short", []query{sumBy("vrid", "weir_announce_vrrp_active")}},
			{"Changes of virtual routers", "ops", []query{rateBy("state", "weir_announce_vrrp_transitions_total")}},
			{"Round trip of health probes", "s", quantiles("weir_probe_duration_seconds")},
			{"Configuration applied in", "s", quantiles("weir_apply_duration_seconds")},
		}, []string{"Every part", "Load balancer", "Data paths", "Data path ebpf", "Data path nfqueue", "Data path udp and weir nat", "Tunnel endpoint"}},
		{"coap", "Weir: CoAP nodes", []panel{
			{"Sessions", "short", []query{sumBy("listener", "weir_coap_engine_sessions")}},
			{"Requests", "reqps", []query{rateBy("listener", "weir_coap_exchange_requests_total")}},
			{"Duration of requests", "s", quantiles("weir_coap_engine_request_duration_seconds")},
			{"Duration of handshakes", "s", quantiles("weir_coap_engine_handshake_duration_seconds")},
			{"Nodes of the cluster", "short", []query{sumBy("state", "weir_coap_cluster_nodes")}},
		}, []string{"CoAP server"}},
		{"turn", "Weir: TURN gateway", []panel{
			{"Allocations", "short", []query{sumBy("listener", "weir_turn_listener_allocations")}},
			{"Relayed bytes", "Bps", []query{rateBy("direction", "weir_turn_listener_bytes_total")}},
			{"Messages by reason", "reqps", []query{rateBy("reason", "weir_turn_listener_reasons_total")}},
			{"Duration of opening relay addresses", "s", quantiles("weir_turn_listener_allocate_duration_seconds")},
		}, []string{"TURN gateway", "TURN credentials", "STUNner's names"}},
		{"tcp", "Weir: TCP statistics", []panel{
			{"Connections", "short", []query{sumBy("role", "weir_tcp_connections")}},
			{"Opened", "cps", []query{rateBy("role", "weir_tcp_opened_total")}},
			{"Round trip of heartbeats, 99 %", "s", []query{sumBy("id", "weir_tcp_rtt_p99_seconds")}},
		}, []string{"TCP testers"}},
		{"operator", "Weir: operator", nil, []string{"Operator"}},
	}
}

// panels are those of a board, with every metric of its parts.
func (b *board) panels(t *testing.T) []panel {
	t.Helper()
	all := slices.Clone(b.first)
	known := map[string]bool{}
	for _, part := range statustest.Parts() {
		known[part.Title] = true
		if !slices.Contains(b.parts, part.Title) {
			continue
		}
		families, err := metrics.Describe(part.Types...)
		clitest.Must(t, err)
		groups := map[string][]query{}
		for _, f := range families {
			group := strings.Join(strings.Split(f.Name, "_")[1:min(3, strings.Count(f.Name, "_"))], " ") + unitTitle(&f)
			groups[group] = append(groups[group], queriesOf(&f)...)
		}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			all = append(all, panel{strings.TrimSpace(part.Title + ": " + group), "short", groups[group]})
		}
	}
	for _, title := range b.parts {
		if !known[title] {
			t.Errorf("%s: there is no part %q", b.file, title)
		}
	}
	return all
}

func unitTitle(f *metrics.Family) string {
	switch f.Kind {
	case metrics.Counter:
		return " per second"
	case metrics.HistogramKind:
		return " seconds"
	}
	return ""
}

func queriesOf(f *metrics.Family) []query {
	switch f.Kind {
	case metrics.Counter:
		return []query{{"sum(rate(" + f.Name + selected + window + "))", f.Name}}
	case metrics.HistogramKind:
		return quantiles(f.Name)
	}
	return []query{{"sum(" + f.Name + selected + ")", f.Name}}
}

// document is the JSON that Grafana imports.
func (b *board) document(t *testing.T) string {
	t.Helper()
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	panels := []any{}
	for i, p := range b.panels(t) {
		targets := []any{}
		for n, q := range p.queries {
			targets = append(targets, map[string]any{"refId": fmt.Sprintf("Q%d", n), "expr": q.expr, "legendFormat": q.legend, "datasource": source})
		}
		panels = append(panels, map[string]any{
			"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets, "gridPos": map[string]int{"h": 8, "w": 12, "x": i % 2 * 12, "y": i / 2 * 8},
			"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit}, "overrides": []any{}},
		})
	}
	label := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "query", "query": "label_values(weir_build_info, " + name + ")", "datasource": source, "multi": true, "includeAll": true, "allValue": ".*", "refresh": 2, "current": map[string]any{"text": "All", "value": "$__all"}}
	}
	text, err := json.MarshalIndent(map[string]any{
		"title": b.title, "uid": "weir-" + b.file, "schemaVersion": 38, "editable": true, "refresh": "10s", "time": map[string]string{"from": "now-1h", "to": "now"}, "tags": []string{"weir"},
		"templating": map[string]any{"list": []any{map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"}, label("job"), label("instance")}}, "panels": panels,
	}, "", " ")
	clitest.Must(t, err)
	return string(text) + "\n"
}

// The dashboards in deploy/ are those of the table above, and every metric of the code is in one.
func TestGrafanaDashboardsAreCurrent(t *testing.T) {
	named := map[string]bool{}
	for _, b := range boards() {
		path, wanted := "../../deploy/observability/grafana-"+b.file+".json", b.document(t)
		maps.Copy(named, namesExist(t, path, strings.ReplaceAll(wanted, "weir_test", "")))
		if text, err := os.ReadFile(path); err == nil && string(text) == wanted {
			continue
		}
		if !*update {
			t.Errorf("%s is not what the code says; write it again: go test ./cmd/weir -run '^%s$' -update", path, t.Name())
			continue
		}
		clitest.Must(t, os.WriteFile(path, []byte(wanted), 0o644)) //nolint:gosec // a dashboard
	}
	for name := range statustest.Described(t) {
		if !named[name] {
			t.Errorf("no dashboard has %s", name)
		}
	}
}
