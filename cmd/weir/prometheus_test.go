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

// unserved are metrics that none of the processes of the test has: of the data paths in the kernel and in queues, of parts that are not
// running, and of what the processes are not configured for.
var unserved = regexp.MustCompile(`^weir_(attached|next_hop|fragment_events|fast_path|flow_rule|queue|tier|decap|nat_offload|turn_offload|turn_auth|config_source|config_discovery|discovery|lb_discovery|operator|` +
	`cluster_|announce|bytes_total|service_fail_open|probe_duration|coap_cluster_(replication|shard|move|drained|draining|sessions)|coap_discovery|coap_kept_(damaged|no_room)|coap_streams|` +
	`tcp_(failures|stats_dropped)|turn_(cluster|listener)_suspended)|^stunner_|^weir_vrrp`)

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
	queries, empty := 0, 0
	for _, b := range boards() {
		for _, p := range b.panels(t) {
			for _, q := range p.queries {
				n, problem := result(fill.Replace(q.expr))
				name := regexp.MustCompile(`(weir|stunner)_\w+`).FindString(q.expr)
				queries++
				switch {
				case problem != "":
					t.Errorf("%s, %s: %s: %s", b.file, p.title, q.expr, problem)
				case n == 0 && !unserved.MatchString(name):
					t.Errorf("%s, %s: no data: %s", b.file, p.title, q.expr)
				case n == 0:
					empty++
				}
			}
		}
	}
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
