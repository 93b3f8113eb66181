package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// unserved are beginnings of names of metrics that none of the processes of the test has: of the data paths in the kernel and in queues, of
// parts that are not running, and of what the processes are not configured for. An entry that fits a metric with data, or none at all, is stale.
var unserved = []string{
	"stunner_", "weir_announce_vrrp_", "weir_attached", "weir_bytes_total", "weir_cluster_", "weir_coap_cluster_drain",
	"weir_coap_cluster_move", "weir_coap_cluster_replication_", "weir_coap_cluster_sessions_", "weir_coap_cluster_shard_owner",
	"weir_coap_discovery_", "weir_coap_streams_", "weir_config_discovery_", "weir_config_source_", "weir_decap_", "weir_discovery_", "weir_dns_", "weir_earlier_tables",
	"weir_fast_path", "weir_flow_rule_", "weir_fragment_events_total", "weir_lb_discovery_", "weir_nat_offload_", "weir_next_hop_ready",
	"weir_operator_", "weir_probe_duration_seconds", "weir_queue_", "weir_sync_", "weir_tier_", "weir_turn_auth_", "weir_turn_offload_channels",
	"weir_turn_offload_packets_total", "weir_turn_offload_refused_total",
}

// sometimes are metrics that are only there once something has happened that may happen in the test: a connection that fails.
var sometimes = []string{"weir_tcp_failures"}

// prometheus scrapes the parts once a second, with the rules of deploy/, until the test ends.
func (o *observed) prometheus(t *testing.T) (address string) {
	t.Helper()
	dir, at := t.TempDir(), clitest.FreeTCP(t).String()
	rules, err := filepath.Abs(rulesFile)
	clitest.Must(t, err)
	targets, err := json.Marshal(slices.Collect(maps.Values(o.at)))
	clitest.Must(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n- {job_name: weir, static_configs: [{targets: %s}]}\n", rules, targets)
	file, out := filepath.Join(dir, "prometheus.yml"), new(clitest.LockedBuffer)
	clitest.Must(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(t, clitest.StartChild(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus:\n%s", out)
		}
	})
	return at
}

// ask requests a path of Prometheus; data: what is in the answer's data.
func ask(t *testing.T, at, path string, data any) (problem string) {
	t.Helper()
	response, err := http.Get("http://" + at + path) //nolint:gosec // loopback
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	clitest.Must(t, err)
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(text, &body); err != nil || body.Status != "success" {
		return fmt.Sprintf("%s: %s", response.Status, text)
	}
	clitest.Must(t, json.Unmarshal(body.Data, data))
	return ""
}

// Every query of every dashboard is run; it has data unless its metrics are unserved. All rules are evaluated.
func (o *observed) dashboards(t *testing.T, at string) {
	result := func(expression string) (n int, problem string) {
		var data struct{ Result []json.RawMessage }
		problem = ask(t, at, "/api/v1/query?query="+url.QueryEscape(expression), &data)
		return len(data.Result), problem
	}
	netlabtest.Eventually(t, "every part was scraped for five seconds", func() bool {
		n, _ := result("count_over_time(up[1m]) >= 6 and up == 1")
		return n == len(o.at)
	})
	fill := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "5s")
	queries, empty, served := 0, 0, map[string]bool{}
	for _, b := range boards() {
		for _, p := range b.panels(t) {
			for _, q := range p.queries {
				n, problem := result(fill.Replace(q.expr))
				name := regexp.MustCompile(`(weir|stunner)_\w+`).FindString(q.expr)
				queries++
				served[name] = n > 0
				switch {
				case problem != "":
					t.Errorf("%s, %s: %s: %s", b.file, p.title, q.expr, problem)
				case n == 0 && !slices.Contains(sometimes, name) && !slices.ContainsFunc(unserved, func(begin string) bool { return strings.HasPrefix(name, begin) }):
					t.Errorf("%s, %s: no data: %s", b.file, p.title, q.expr)
				case n == 0:
					empty++
				}
			}
		}
	}
	staleUnserved(t, served)
	if queries-empty < 200 {
		t.Errorf("only %d of %d queries have data", queries-empty, queries)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if problem := ask(t, at, "/api/v1/rules", &rules); problem != "" || len(rules.Groups) != 2 {
		t.Fatalf("%s: %d groups", problem, len(rules.Groups))
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n, problem := result(`weir:packets:rate5m{reason="conntrack"} > 0`); n == 0 {
		t.Errorf("the recorded rate of packets has no data: %s", problem)
	}
}

// staleUnserved fails for entries of the list that hide a metric that is served, and for those that hide none.
func staleUnserved(t *testing.T, served map[string]bool) {
	t.Helper()
	for _, begin := range unserved {
		hides := false
		for name, data := range served {
			if !strings.HasPrefix(name, begin) {
				continue
			}
			if hides = true; data {
				t.Errorf("unserved has %q, and %s has data", begin, name)
			}
		}
		if !hides {
			t.Errorf("unserved has %q, which no metric begins with", begin)
		}
	}
}
