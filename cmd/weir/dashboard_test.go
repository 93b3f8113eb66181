package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/metrics/exposition"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/web"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// Real parts with real traffic: a browser shows what their JSON has, and every query of the Grafana dashboards has data in a Prometheus that scrapes them.
func TestObservability(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "chromium", "prometheus")
	o := observe(t)
	scraped := o.prometheus(t)
	b := clitest.OpenPage(t)
	b.Look(1300, "light")
	t.Run("balancer", func(t *testing.T) { o.balancerPage(t, b) })
	t.Run("keyboard", func(t *testing.T) { keyboardPath(t, b) })
	t.Run("gateway", func(t *testing.T) { o.gatewayPage(t, b) })
	t.Run("nodes", func(t *testing.T) { o.nodesPage(t, b) })
	t.Run("announcements", func(t *testing.T) { announcementsPage(t, b) })
	t.Run("shards", func(t *testing.T) { shardsPage(t, b) })
	if notes := b.Notes(); len(notes) > 0 {
		t.Errorf("the browser says: %q", notes)
	}
	t.Run("prometheus", func(t *testing.T) { o.dashboards(t, scraped) })
	t.Run("histogram", func(t *testing.T) { histogramPage(t, b) })
}

// cells are the texts of the rows of a section.
func cells(b *clitest.Page, section string) (rows [][]string) {
	b.Evaluate(fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr:not([hidden])")].map((r) => [...r.children].map((c) => c.textContent))`, section), &rows)
	return rows
}

// open loads the page of a part and waits for rates.
func (o *observed) open(b *clitest.Page, part string) {
	b.Open("http://" + o.at[part] + "/")
	b.Await(`document.getElementById("link").textContent === "live"`)
}

// answer is the JSON of a part.
func answerOf[T any](t *testing.T, o *observed, part, path string) (value T) {
	t.Helper()
	clitest.Must(t, json.Unmarshal([]byte(clitest.HTTPGet(t, o.processes[part].Socket, path)), &value))
	return value
}

// common checks what all pages have: history, events, drops, no text that is too pale, nothing that is too wide.
func (o *observed) common(t *testing.T, b *clitest.Page, part string) {
	t.Helper()
	b.Await(`document.querySelectorAll("#history figure:not([hidden]) svg path").length > 0`)
	history := answerOf[v1.History](t, o, part, "/history")
	for _, p := range history.Plots {
		if slices.ContainsFunc(p.Lines, func(l v1.Line) bool { return slices.ContainsFunc(l.Values, func(v *float64) bool { return v != nil }) }) {
			b.Await(fmt.Sprintf(`[...document.querySelectorAll("#history figcaption")].some((c) => c.textContent.startsWith(%q))`, p.Title))
		}
	}
	for _, e := range answerOf[v1.EventList](t, o, part, "/events").Events {
		b.Await(fmt.Sprintf(`[...document.querySelectorAll("#events tbody tr")].some((r) => r.children[2].textContent === %q && r.children[3].textContent === %q)`, e.Name, e.Message))
	}
	narrow(t, b, part)
	b.CheckNames(map[string]int{"banner": 1, "navigation": 1, "main": 1, "contentinfo": 1, "heading": 6, "region": 6, "table": 3, "columnheader": 10})
	var violations []string
	if b.Evaluate("violations", &violations); len(violations) > 0 {
		t.Errorf("the policy was violated: %q", violations)
	}
}

func (o *observed) balancerPage(t *testing.T, b *clitest.Page) {
	o.open(b, "lb")
	b.Await(`document.querySelectorAll("#flows tbody tr").length >= 6`)
	var status v1.LBStatus
	o.processes["lb"].Status(&status)
	for _, service := range status.Services {
		b.Await(fmt.Sprintf(`document.querySelector("#services tbody").textContent.includes(%q)`, strings.Join(service.VIPs, ", ")))
		rows := cells(b, "backends")
		if len(rows) != len(service.Backends) {
			t.Fatalf("%d backends, the page shows %q", len(service.Backends), rows)
		}
		for i, backend := range service.Backends {
			want := []string{backend.Name, service.Name, fmt.Sprintf("%s:%d", backend.Address, backend.Port), backend.State, backend.Override, fmt.Sprint(backend.Weight), fmt.Sprintf("%.0f %%", backend.Share*100)}
			if got := rows[i][:len(want)]; !slices.Equal(got, want) {
				t.Errorf("the page shows the backend %q, the status has %q", got, want)
			}
		}
	}
	b.Await(`document.getElementById("findings").textContent.includes("Backend b2 of s is down")`)
	b.Await(`parseFloat(document.querySelector("#backends tbody tr").children[7].textContent) > 0`) // packets per second
	neighbour := status.Announce.BGP.Neighbours[0].Address
	shows(b, "neighbours", neighbour)
	shows(b, "findings", "BGP neighbour "+neighbour+": ")
	for _, p := range status.Announce.Prefixes {
		shows(b, "prefixes", p.Prefix+p.State)
	}
	flows := answerOf[v1.FlowList](t, o, "lb", "/flows?limit=100")
	shown := cells(b, "flows")
	for _, f := range flows.Flows {
		if !slices.ContainsFunc(shown, func(r []string) bool { return r[0] == f.Client && r[3] == f.Service && r[4] == f.Backend }) {
			t.Errorf("the page does not show the flow %+v", f)
		}
	}
	b.Await(`[...document.querySelectorAll("#drops tbody tr")].some((r) => r.children[0].textContent === "udp_refused" && r.children[5].textContent.includes("no program listens"))`)
	b.Evaluate(`document.querySelector("#drops input").click()`, nil)
	b.Await(`[...document.querySelectorAll("#drops tbody tr")].some((r) => r.textContent.startsWith("conntrackforward") && r.textContent.includes("A known flow."))`)
	o.common(t, b, "lb")
}

func (o *observed) gatewayPage(t *testing.T, b *clitest.Page) {
	o.open(b, "turn")
	b.Await(`document.querySelectorAll("#users tbody tr").length === 2`)
	list := answerOf[v1.TurnUserList](t, o, "turn", "/users")
	shown := cells(b, "users")
	for _, u := range list.Users {
		if !slices.ContainsFunc(shown, func(r []string) bool {
			return r[0] == u.User && r[1] == u.Client.String() && strings.HasPrefix(r[3], u.Relay[0].String()) && r[4] == u.Peers[0].String()
		}) {
			t.Errorf("the page does not show the allocation %+v: %q", u, shown)
		}
	}
	var status v1.TurnStatus
	o.processes["turn"].Status(&status)
	b.Await(fmt.Sprintf(`document.querySelector("#listeners tbody tr").children[2].textContent === %q && document.querySelector("#listeners tbody tr").children[3].textContent === "2"`, status.Listeners[0].Address))
	b.Await(fmt.Sprintf(`document.querySelector("#clusters tbody tr").children[0].textContent === %q`, status.Clusters[0].Name))
	b.Await(`parseFloat(document.querySelector("#listeners tbody tr").children[9].textContent) > 0`) // packets to peers
	o.common(t, b, "turn")
}

func (o *observed) nodesPage(t *testing.T, b *clitest.Page) {
	o.open(b, "coap")
	var status v1.CoAPStatus
	o.processes["coap"].Status(&status)
	for _, l := range status.Listeners {
		b.Await(fmt.Sprintf(`[...document.querySelectorAll("#listeners tbody tr")].some((r) => r.children[0].textContent === %q)`, l.URI))
		for _, n := range l.Nodes {
			b.Await(fmt.Sprintf(`[...document.querySelectorAll("#nodes tbody tr")].some((r) => r.children[0].textContent === "%d" && r.children[1].textContent === "%d" && r.children[2].textContent === %q && r.children[3].textContent === %q)`,
				*n.ID, *l.NodeID, n.Management, n.State))
		}
	}
	b.Await(fmt.Sprintf(`parseFloat([...document.querySelectorAll("#listeners tbody tr")].find((r) => r.children[0].textContent === %q).children[5].textContent) > 0`, status.Listeners[0].URI))
	o.common(t, b, "coap")
}

// keyboardPath works the page of the balancer with keys alone; each stop is seen.
func keyboardPath(t *testing.T, b *clitest.Page) {
	type stop struct {
		Name, Outline string
		Width         float64
	}
	focus := func() (s stop) {
		b.Evaluate(`(() => { const e = document.activeElement, s = getComputedStyle(e);
			return {Name: e.id || e.ariaLabel || e.textContent, Outline: s.outlineStyle, Width: parseFloat(s.outlineWidth)} })()`, &s)
		return s
	}
	b.Press("Tab")
	if s := focus(); s.Name != "Skip to the content" {
		t.Errorf("the first stop is %+v", s)
	}
	b.Press("Enter")
	if s := focus(); s.Name != "main" {
		t.Errorf("the skip link leads to %+v", s)
	}
	var stops []string
	for range 150 {
		b.Press("Tab")
		s := focus()
		if s.Outline == "none" || s.Width < 2 {
			t.Errorf("focus on %q is not seen: outline %s %g px", s.Name, s.Outline, s.Width)
		}
		if stops = append(stops, s.Name); s.Name == "routes" {
			break
		}
	}
	for _, wanted := range []string{"Services", "service", "Backends", "share", "Flows", "Drops and refusals", "Events", "Every metric of this process, with its last three minutes", "routes"} {
		if !slices.ContainsFunc(stops, func(s string) bool { return strings.TrimSpace(s) == wanted }) {
			t.Errorf("Tab does not reach %q; it reaches %q", wanted, stops)
		}
	}
	b.Evaluate(`[...document.querySelectorAll("#backends thead button")].find((e) => e.textContent === "backend").focus()`, nil)
	b.Press("Enter")
	b.Press("Enter")
	b.Await(`document.activeElement.closest("th")?.ariaSort === "descending" && document.querySelector("#backends tbody th").textContent === "b2"`)
	b.Evaluate(`document.querySelector("#backends input").focus()`, nil)
	for _, key := range "b1" {
		b.Press(string(key))
	}
	b.Await(`[...document.querySelectorAll("#backends tbody tr")].filter((r) => r.checkVisibility()).length === 1`)
	b.Press("Escape")
	b.Await(`[...document.querySelectorAll("#backends tbody tr")].filter((r) => r.checkVisibility()).length === 3`)
	b.Evaluate(`document.querySelector("#history figure:not([hidden]) svg[role=img]").focus()`, nil)
	b.Press("Home")
	b.Await(`/ at .*: /.test(document.activeElement.getAttribute("aria-label"))`)
	b.Evaluate(`document.querySelector("#metrics summary").focus()`, nil)
	b.Press("Enter")
	b.Await(`document.querySelectorAll("#groups tr:not([hidden])").length > 20`)
}

// A part of which the page knows nothing shows its metrics: a histogram as the median and the 99th percentile of what came since the last time, and no bucket.
func histogramPage(t *testing.T, b *clitest.Page) {
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
	mux.HandleFunc("GET /routes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) })
	mux.Handle("GET /", web.Handler())
	server := httptest.NewServer(mux)
	defer server.Close()
	b.Open(server.URL + "/")
	b.Await(`["service=s,quantile=0.5 0.0750", "service=s,quantile=0.99 0.0995"].every((wanted) =>
		[...document.querySelectorAll("#groups tr:not([hidden])")].some((r) => r.children[0].textContent + " " + r.children[1].textContent === wanted))`)
	var buckets bool
	if b.Evaluate(`[...document.querySelectorAll("#groups tr")].some((r) => ("," + r.children[0].textContent).includes(",le="))`, &buckets); buckets {
		t.Error("buckets are drawn")
	}
}
