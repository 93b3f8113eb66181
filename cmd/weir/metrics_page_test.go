package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/metrics/exposition"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/kernelrelay"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// measured are the parts of Weir with the types that have their metrics.
var measured = []struct {
	title, about string
	types        []any
}{
	{"Every part", "", []any{exposition.Build{}, admin.Connections{}}},
	{"Load balancer", "`weir lb run` and `weir nat`, whatever the data path.", []any{v1.BalancerStatus{}, control.Timings{}}},
	{
		"Data paths", "Each data path counts these, with its name as the label `datapath`: `ebpf`, `nfqueue` or `udp`. Where a fast path is in front of the queues, its program is `ebpf`: what it hands to a queue has the reason `not_steered` there, and is counted again as `nfqueue`.",
		[]any{lb.Counters{}},
	},
	{"Data path ebpf", "", []any{ebpf.Counters{}, v1.EBPFReport{}}},
	{"Data path nfqueue", "", []any{nfqueue.Stats{}, v1.FastPathStatus{}}},
	{"Data path udp and weir nat", "", []any{udpnat.Stats{}}},
	{"Tunnel endpoint", "`weir lb decap`.", []any{v1.DecapStatus{}}},
	{"CoAP server", "`weir coap server`, by `listener` and, in a cluster, `node`.", []any{node.Status{}}},
	{"TURN gateway", "`weir turn gateway`. No metric has a user's name, because ephemeral credentials have an unlimited number of names.", []any{gateway.Stats{}, v1.TurnConfigStatus{}, handover.Stats{}, kernelrelay.Report{}}},
	{"STUNner's names", "A gateway with a STUNner file also has these.", []any{stunnerd.Metrics{}}},
	{"TCP testers", "`weir tcp stats`, of the servers and clients that report to it.", []any{stats.Metrics{}}},
}

func metricsTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	var all []any
	for _, part := range measured {
		all = append(all, part.types...)
		families, err := metrics.Describe(part.types...)
		if err != nil {
			t.Fatalf("%s: %v", part.title, err)
		}
		fmt.Fprintf(&b, "## %s\n\n", part.title)
		if part.about != "" {
			fmt.Fprintf(&b, "%s\n\n", part.about)
		}
		b.WriteString("| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n")
		for _, f := range families {
			labels := ""
			if len(f.Labels) > 0 {
				labels = "`" + strings.Join(f.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Kind, labels, f.Unit, cell(f.Help))
		}
		b.WriteString("\n")
	}
	if _, err := metrics.Describe(all...); err != nil {
		t.Errorf("two parts describe a metric differently, so one endpoint could not serve both: %v", err)
	}
	return b.String()
}

func TestThePageOfMetricsIsCurrent(t *testing.T) {
	checkGenerated(t, "metrics.md", "metrics", metricsTables(t))
}

// describedMetrics are the metrics of the page, by name.
func describedMetrics(t testing.TB) map[string]metrics.Family {
	t.Helper()
	known := map[string]metrics.Family{}
	for _, part := range measured {
		families, err := metrics.Describe(part.types...)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			f.Labels = append(f.Labels, known[f.Name].Labels...)
			known[f.Name] = f
		}
	}
	return known
}

// checkDescribed finds what an endpoint serves and the page of metrics does not have: another name, type, help text or label.
func checkDescribed(t testing.TB, part, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", part, err)
	}
	known := describedMetrics(t)
	for name, family := range families {
		if !strings.HasPrefix(name, "weir_") && !strings.HasPrefix(name, "stunner_") {
			continue // the process and the Go runtime
		}
		f, ok := known[name]
		if !ok || family.GetHelp() != f.Help || !strings.EqualFold(family.GetType().String(), string(f.Kind)) {
			t.Errorf("%s: the page of metrics does not have %s as it is served: %s, %s", part, name, family.GetType(), family.GetHelp())
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(f.Labels, l.GetName()) {
					t.Errorf("%s: the page of metrics does not have the label %s of %s", part, l.GetName(), name)
				}
			}
		}
	}
}

// Pages that name a metric name one that exists. The page of metrics is generated, and also has names of before.
func TestPagesNameMetricsThatExist(t *testing.T) {
	known := describedMetrics(t)
	named := regexp.MustCompile("`(weir_[a-z0-9_]*[a-z0-9])[`{]")
	found := 0
	for _, path := range pages(t) {
		if strings.HasSuffix(path, "docs/metrics.md") {
			continue
		}
		for _, name := range named.FindAllStringSubmatch(clitest.ReadPage(t, path), -1) {
			found++
			if _, ok := known[name[1]]; !ok {
				t.Errorf("%s: there is no metric %s", path, name[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d metrics are named: the pages are read wrongly", found)
	}
}
