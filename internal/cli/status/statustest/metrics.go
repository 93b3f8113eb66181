package statustest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/announce"
	nodes "github.com/weir-lb/weir/internal/control/discovery"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/turn/controller"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/metrics/exposition"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/authservice"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/kernelrelay"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// Part is a part of Weir with the types that have its metrics.
type Part struct {
	Title, About string
	Types        []any
}

// Parts are all parts of Weir that have metrics, in the order of the page of metrics.
func Parts() []Part {
	return []Part{
		{"Every part", "", []any{exposition.Build{}, admin.Connections{}}},
		{"Load balancer", "`weir lb run` and `weir nat`, whatever the data path.", []any{v1.BalancerStatus{}, control.Timings{}, announce.Timings{}}},
		{
			"Data paths", "Each data path counts these, with its name as the label `datapath`: `ebpf`, `nfqueue` or `udp`. Where a fast path is in front of the queues, its program is `ebpf`: what it hands to a queue has the reason `not_steered` there, and is counted again as `nfqueue`.",
			[]any{lb.Counters{}},
		},
		{"Data path ebpf", "", []any{ebpf.Counters{}, v1.EBPFReport{}}},
		{"Data path nfqueue", "", []any{nfqueue.Stats{}, v1.FastPathStatus{}}},
		{"Data path udp and weir nat", "", []any{udpnat.Stats{}, kernelnat.Report{}}},
		{"Tunnel endpoint", "`weir lb decap`.", []any{v1.DecapStatus{}}},
		{"CoAP server", "`weir coap server`, by `listener` and, in a cluster, `node`.", []any{node.Status{}}},
		{"TURN gateway", "`weir turn gateway`. No metric has a user's name, because ephemeral credentials have an unlimited number of names.", []any{gateway.Stats{}, v1.TurnConfigStatus{}, handover.Stats{}, kernelrelay.Report{}}},
		{"TURN credentials", "`weir turn auth`.", []any{authservice.Stats{}, v1.ConfigDiscovery{}}},
		{"STUNner's names", "A gateway with a STUNner file also has these.", []any{stunnerd.Metrics{}}},
		{"Operator", "`weir operator`.", []any{operator.Counters{}, controller.Counters{}, discovery.ServerStats{}, nodes.ServerStats{}}},
		{"TCP testers", "`weir tcp stats`, of the servers and clients that report to it.", []any{stats.Metrics{}}},
	}
}

// Described are the metrics of the page, by name.
func Described(t testing.TB) map[string]metrics.Family {
	t.Helper()
	known := map[string]metrics.Family{}
	for _, part := range Parts() {
		families, err := metrics.Describe(part.Types...)
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

// CheckDescribed finds what an endpoint serves and the page of metrics does not have: another name, type, help text or label.
func CheckDescribed(t testing.TB, part, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", part, err)
	}
	known := Described(t)
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

// Check has Prometheus's own tool read what a part serves: names, units, types and help texts are as its rules want them.
func Check(t *testing.T, part, metrics string) {
	t.Helper()
	netlabtest.Tools(t, "promtool")
	if n := strings.Count(metrics, "\n# TYPE weir_"); n < 5 {
		t.Errorf("%s: %d metrics of its own", part, n)
	}
	if !strings.Contains(metrics, "\nweir_build_info{goversion=\"go") {
		t.Errorf("%s does not say which build it is", part)
	}
	CheckDescribed(t, part, metrics)
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(metrics)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics, of %s: %v\n%s", part, err, out)
	}
}
