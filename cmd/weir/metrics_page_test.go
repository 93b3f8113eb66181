package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/metrics"
)

func metricsTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	var all []any
	for _, part := range statustest.Parts() {
		all = append(all, part.Types...)
		families, err := metrics.Describe(part.Types...)
		if err != nil {
			t.Fatalf("%s: %v", part.Title, err)
		}
		fmt.Fprintf(&b, "## %s\n\n", part.Title)
		if part.About != "" {
			fmt.Fprintf(&b, "%s\n\n", part.About)
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

// Pages that name a metric name one that exists. The page of metrics is generated, and also has names of before.
func TestPagesNameMetricsThatExist(t *testing.T) {
	known := statustest.Described(t)
	named := regexp.MustCompile("`(weir_[a-z0-9_]*[a-z0-9])[`{]")
	found := 0
	for _, path := range pages(t) {
		if strings.HasSuffix(path, "docs/metrics.md") || strings.HasSuffix(path, "docs/events.md") { // which has keys of log records
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
