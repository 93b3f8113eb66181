package stats_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// What is no report is refused with the reason and counted, and nothing of it is kept.
func TestBadReportsAreRefused(t *testing.T) {
	b := newBed(t, stats.Config{})
	peers := strings.Repeat(`{"id":"x"},`, 4097)
	for _, bad := range []struct{ path, kind, body, why string }{
		{"/api/reports", "text/plain", `{"role":"server","id":"a"}`, "application/json"},
		{"/api/reports", "", `{"role":"server","id":"a"}`, "application/json"},
		{"/api/reports", "application/json", ``, "report"},
		{"/api/reports", "application/json", `[]`, "report"},
		{"/api/reports", "application/json", `{"role":"proxy","id":"a"}`, "role"},
		{"/api/reports", "application/json", `{"role":"server"}`, "id is missing"},
		{"/api/reports", "application/json", `{"role":"server","id":"a\n"}`, "control"},
		{"/api/reports", "application/json", `{"role":"server","id":"` + strings.Repeat("x", 257) + `"}`, "256"},
		{"/api/reports", "application/json", `{"role":"server","id":"a","connections":{"established":-1}}`, "established"},
		{"/api/reports", "application/json", `{"role":"server","id":"a","connections":{"established":2000000000}}`, "established"},
		{"/api/reports", "application/json", `{"role":"server","id":"a","totals":{"opened":18446744073709551615}}`, "counter"},
		{"/api/reports", "application/json", `{"role":"server","id":"a","cpu_s":-1}`, "cpu_s"},
		{"/api/reports", "application/json", `{"role":"server","id":"a","failures":{"<b>":1}}`, "failures"},
		{"/api/reports", "application/json", `{"role":"server","id":"a","peers":[` + strings.TrimSuffix(peers, ",") + `]}`, "4096"},
		{"/api/reports", "application/json", `{"role":"client","id":"a","connect":{"count":2,"buckets":[[1,1]]}}`, "count is 2"},
		{"/api/ServerStatistics", "application/json", `{"machineName":"a"}`, "Clients"},
		{"/api/ServerStatistics", "application/json", `{"clients":1}`, "id"},
		{"/api/ServerStatistics", "application/json", `{"machineName":"a","clients":-1}`, "established"},
	} {
		w := b.post(bad.path, bad.kind, bad.body)
		if w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), bad.why) {
			t.Errorf("%.80s: %d %s; want a refusal with %q", bad.body, w.Code, w.Body, bad.why)
		}
	}
	if w := b.post("/api/reports", "application/json", strings.Repeat(" ", 1<<20+1)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d", w.Code)
	}
	if s := b.state(); s.Reporters != 0 || s.Dropped.BadReports != 18 || s.Dropped.TooLarge != 1 {
		t.Errorf("%d reporters, dropped %+v", s.Reporters, s.Dropped)
	}
	for _, path := range []string{"/api/history?id=nobody", "/api/history?span=1ms", "/api/history?span=x", "/"} {
		if w := b.get(path); w.Code < 400 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// Whatever comes in, the service answers, and what it then shows is JSON and Prometheus text that can be read.
func FuzzReport(f *testing.F) {
	full := client("c", "aa", 9, tcpscale.Peer{ID: "s", Zone: "z", Generation: "g", Connections: 9})
	full.Connect = measure.NewLatency()
	full.Connect.Record(time.Millisecond)
	full.Failures = map[string]uint64{"refused": 1}
	full.Plateau = &tcpscale.Plateau{Connections: 1024, Ceiling: "SNAT", Because: "because"}
	full.LimitsHit = []string{"nofile"}
	full.Samples = []tcpscale.FailedTuple{{Kind: "refused", Remote: "192.0.2.1:1"}}
	seed, err := json.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, false)
	f.Add([]byte(`{"role":"server","id":"s","peers":[{"id":"bb/1","connections":3}],"cpu_s":1e11}`), false)
	f.Add([]byte(`{"MachineName":"old","Clients":3,"LastUpdated":"2023-01-01T00:00:00Z"}`), true)
	f.Add([]byte(`{"machineName":null,"clients":1e3}`), true)
	f.Add([]byte(`{"role":"client","id":"\u0000","connections":null,"heartbeats":{"rtt":{"count":1,"buckets":[[-1,1]]}}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, original bool) {
		b := newBed(t, stats.Config{})
		path := "/api/reports"
		if original {
			path = "/api/ServerStatistics"
		}
		for range 2 {
			w := b.post(path, "application/json", string(body))
			taken := b.state().Reporters
			if w.Code == http.StatusOK != (taken == 1) {
				t.Fatalf("%d with %d reporters: %s", w.Code, taken, w.Body)
			}
			b.pass(1)
		}
		if state := b.get("/api/state"); !json.Valid(state.Body.Bytes()) {
			t.Fatalf("state %s", state.Body)
		}
		if history := b.get("/api/history"); !json.Valid(history.Body.Bytes()) {
			t.Fatalf("history %s", history.Body)
		}
		for line := range strings.Lines(b.get("/metrics").Body.String()) {
			if !metricsLine.MatchString(line) {
				t.Fatalf("metrics line %q", line)
			}
		}
	})
}

// A zero address (no address known, as of a Unix socket) is no panic.
func TestAReporterWithoutAddress(t *testing.T) {
	b := newBed(t, stats.Config{})
	r := server("a", 1)
	if _, err := b.Take(b.now, netip.Addr{}, &r); err != nil {
		t.Error(err)
	}
}

// metricsLine is a comment, or a sample of weir, of the process or of the Go runtime.
var metricsLine = regexp.MustCompile(`^(# |weir_(tcp|build)_|go_|process_)`)
