package tcp

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/metrics/exposition"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/web"
)

// The dashboard shows a histogram as the median and the 99th percentile of what came since the last time, and no bucket.
func TestTheDashboardDrawsHistograms(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "chromium")
	var mu sync.Mutex
	var measured struct {
		Name string            `label:"service"`
		Took metrics.Histogram `metric:"weir_test_duration_seconds" buckets:"1ms..1s" help:"Time."`
		Seen uint64            `metric:"weir_test_seen_total" help:"Seen."`
	}
	measured.Name = "s"
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", exposition.Handler(func() []metrics.Sample {
		mu.Lock()
		defer mu.Unlock()
		for range 100 { // all between 50 and 100 ms: the median is in the middle
			measured.Took.Observe(80 * time.Millisecond)
		}
		measured.Seen += 100
		return metrics.Of(&measured)
	}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ready")) })
	mux.Handle("GET /", web.Handler())
	server := httptest.NewServer(mux)
	defer server.Close()
	b := startBrowser(t)
	b.open(server.URL + "/")
	var rows []string
	wanted := []string{"service=s,quantile=0.5 0.0750", "service=s,quantile=0.99 0.0995"}
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		b.evaluate(`[...document.querySelectorAll("#groups tr:not([hidden])")].map((r) => r.children[0].textContent + " " + r.children[1].textContent)`, &rows)
		if !slices.ContainsFunc(wanted, func(row string) bool { return !slices.Contains(rows, row) }) {
			break
		}
	}
	for _, row := range wanted {
		if !slices.Contains(rows, row) {
			t.Errorf("no row %q in %q", row, rows)
		}
	}
	if slices.ContainsFunc(rows, func(row string) bool { return strings.Contains(","+row, ",le=") }) {
		t.Errorf("buckets are drawn: %q", rows)
	}
}
