package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const rulesFile = "../../deploy/observability/rules.yaml"

// alertCase is an alert with series that make it fire, and series that do not. Values are of one every 15 s.
type alertCase struct {
	alert     string
	wait      int // seconds until a bad series fires: for, and what a rate needs
	bad, good map[string]string
}

const of = `{job="weir",instance="a"}`

func alertCases() []alertCase {
	one := func(series, bad, good string) (map[string]string, map[string]string) {
		return map[string]string{series: bad}, map[string]string{series: good}
	}
	simple := func(alert string, wait int, series, bad, good string) alertCase {
		b, g := one(series, bad, good)
		return alertCase{alert, wait, b, g}
	}
	return []alertCase{
		simple("WeirConfigurationRefused", 120, "weir_config_failed"+of, "1x100", "0x100"),
		simple("WeirConfigurationUnsaved", 3600, "weir_config_unsaved"+of, "1x300", "0x300"),
		{
			"WeirServiceWithoutBackend", 30,
			map[string]string{`weir_backend_up{service="s",backend="x"}`: "0x100", `weir_backend_up{service="s",backend="y"}`: "0x100"},
			map[string]string{`weir_backend_up{service="s",backend="x"}`: "0x100", `weir_backend_up{service="s",backend="y"}`: "1x100"},
		},
		simple("WeirProbesIgnored", 60, `weir_service_fail_open{service="s"}`, "1x100", "0x100"),
		simple("WeirBGPSessionDown", 60, `weir_announce_bgp_established{neighbour="n"}`, "0x100", "1x100"),
		{
			"WeirPrefixWithdrawn", 60,
			map[string]string{`weir_announce_prefix{job="weir",instance="a",prefix="p"}`: "0x100", "weir_announce_serving" + of: "1x100"},
			map[string]string{`weir_announce_prefix{job="weir",instance="a",prefix="p"}`: "0x100", "weir_announce_serving" + of: "0x100"},
		},
		simple("WeirAnnouncementProblem", 60, `weir_announce_vrrp_problem{vrid="1"}`, "1x100", "0x100"),
		simple("WeirVirtualRouterFlaps", 120, `weir_announce_vrrp_transitions_total{vrid="1",state="active"}`, "0+1x100", "0+1x3 3x100"),
		{
			"WeirFlowTableNearlyFull", 300,
			map[string]string{`weir_table_entries{table="flows"}`: "95x100", `weir_table_size{table="flows"}`: "100x100"},
			map[string]string{`weir_table_entries{table="flows"}`: "90x100", `weir_table_size{table="flows"}`: "100x100"},
		},
		simple("WeirFlowsRefused", 75, `weir_table_refused_total{table="flows"}`, "0+1x100", "7x100"),
		simple("WeirKernelDropsDatagrams", 315, "weir_udp_receive_overflows_total"+of, "0+1x100", "7x100"),
		simple("WeirNodeDown", 30, `weir_coap_cluster_nodes{state="down"}`, "1x100", "0x100"),
		{
			"WeirHandshakesFail", 315,
			map[string]string{`weir_coap_engine_handshakes_failed_total{listener="l"}`: "0+2x100", `weir_coap_engine_handshakes_total{listener="l"}`: "0+1x100"},
			map[string]string{`weir_coap_engine_handshakes_failed_total{listener="l"}`: "0+1x100", `weir_coap_engine_handshakes_total{listener="l"}`: "0+2x100"},
		},
		{
			"WeirGatewayNotReady", 60,
			map[string]string{"weir_turn_ready" + of: "0x100", "weir_turn_draining" + of: "0x100"},
			map[string]string{"weir_turn_ready" + of: "0x100", "weir_turn_draining" + of: "1x100"},
		},
		simple("WeirCredentialsRefused", 315, `weir_turn_listener_reasons_total{reason="unauthorized"}`, "0+6000x100", "0+15x100"),
		simple("WeirConnectionsLost", 75, `weir_tcp_lost_total{id="c"}`, "0+1x100", "7x100"),
	}
}

// rulesTest is the input of promtool: each alert on both sides of its time, and not at all with the good series. The alerts have series of
// their own, so that all of them are evaluated in one run for the bad series, and in one for the good ones.
func rulesTest(t *testing.T, rules string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
	cases := alertCases()
	for _, bad := range []bool{true, false} {
		b.WriteString("- interval: 15s\n  input_series:\n")
		seen := map[string]bool{}
		for _, c := range cases {
			for name, values := range map[bool]map[string]string{true: c.bad, false: c.good}[bad] {
				if seen[name] {
					t.Errorf("two alerts have the series %s: give one of them another label", name)
				}
				seen[name] = true
				fmt.Fprintf(&b, "  - {series: '%s', values: '%s'}\n", name, values)
			}
		}
		b.WriteString("  promql_expr_test:\n")
		for _, c := range cases {
			times := map[int]int{c.wait + 15: 0, 1200: 0} // how many fire, by second
			if bad {
				times = map[int]int{c.wait - 15: 0, c.wait + 15: 1}
			}
			for at, n := range times {
				fmt.Fprintf(&b, "  - {expr: 'count(ALERTS{alertname=\"%s\",alertstate=\"firing\"}) or vector(0)', eval_time: %ds, exp_samples: [{labels: '{}', value: %d}]}\n", c.alert, at, n)
			}
		}
	}
	return b.String()
}

func TestAlertsFireInTime(t *testing.T) {
	netlabtest.Tools(t, "promtool")
	rules, err := filepath.Abs(rulesFile)
	clitest.Must(t, err)
	file := filepath.Join(t.TempDir(), "test.yaml")
	clitest.Must(t, os.WriteFile(file, []byte(rulesTest(t, rules)), 0o600))
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", rules}, {"test", "rules", file}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	text := clitest.ReadPage(t, rulesFile)
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(rulesTest(t, rules), m[1]) {
			t.Errorf("no case for %s", m[1])
		}
		if !strings.Contains(clitest.ReadPage(t, docsFolder+"alerts.md"), "`"+m[1]+"`") {
			t.Errorf("docs/alerts.md does not name %s", m[1])
		}
	}
	namesExist(t, rulesFile, text)
}

// namesExist checks that every metric that a text names is one of the code.
func namesExist(t *testing.T, from, text string) map[string]bool {
	t.Helper()
	known, named := statustest.Described(t), map[string]bool{}
	for _, name := range regexp.MustCompile(`\b(?:weir|stunner)_[a-z0-9_]+`).FindAllString(text, -1) {
		family := name
		if _, ok := known[family]; !ok {
			family = strings.TrimSuffix(name, "_bucket")
		}
		if _, ok := known[family]; !ok {
			t.Errorf("%s: there is no metric %s", from, name)
		}
		named[family] = true
	}
	return named
}
