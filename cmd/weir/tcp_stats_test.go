package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/web"
)

// tellTale is added to the page under test: it posts what the page shows whenever that changes, and never reloads.
const tellTale = `<script>new MutationObserver(() => fetch("/seen", {method: "POST", body: JSON.stringify({
 connected: document.getElementById("connected").textContent, spoken: document.getElementById("spoken").textContent,
 servers: document.querySelectorAll("#servers tbody tr").length, clients: document.querySelectorAll("#clients tbody tr").length,
 cells: document.querySelectorAll("#matrix td.cell").length, lines: document.querySelectorAll("#plot-connections > svg path").length,
 scopes: [...document.querySelectorAll("main th")].every((th) => th.scope), loaded: performance.timeOrigin})})).observe(
 document.body, {subtree: true, childList: true, characterData: true})</script></body>`

// reportScale reports 6 servers and 10 clients that hold so many connections each.
func reportScale(t *testing.T, s *stats.Sender, each int) {
	t.Helper()
	for i := range 16 {
		r := tcpscale.Report{Role: tcpscale.RoleServer, ID: fmt.Sprintf("server-%d", i), Host: "lab", PID: i + 1}
		r.Connections.Established = each * 10 / 6
		if i < each*10%6 {
			r.Connections.Established++
		}
		if i >= 6 {
			r.Role, r.ID, r.Run = tcpscale.RoleClient, fmt.Sprintf("client-%d", i-6), fmt.Sprintf("%016x", i)
			r.Connections = tcpscale.Connections{Target: 10000, Established: each}
			for n := range 6 {
				part := each / 6
				if n < each%6 {
					part++
				}
				r.Peers = append(r.Peers, tcpscale.Peer{ID: fmt.Sprintf("server-%d", n), Connections: part})
			}
			r.Failures = map[string]uint64{"timeout": 3}
			r.Totals.Opened = uint64(each)
		}
		must(t, s.Send(t.Context(), &r))
	}
}

// A real browser shows what 6 servers and 10 clients report, and follows it without a reload.
func TestChromiumShowsTheTCPStats(t *testing.T) {
	netlabtest.Tools(t, "chromium")
	service := stats.New(stats.Config{Page: web.TCPStats(), SilentAfter: time.Hour})
	type sight struct {
		Connected, Spoken              string
		Servers, Clients, Cells, Lines int
		Scopes                         bool
		Loaded                         float64
	}
	seen := make(chan sight, 1000)
	handler := service.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			page := httptest.NewRecorder()
			handler.ServeHTTP(page, r)
			_, _ = w.Write(bytes.Replace(page.Body.Bytes(), []byte("</body>"), []byte(tellTale), 1)) // without the policy, which forbids such scripts
		case "/seen":
			var s sight
			_ = json.NewDecoder(r.Body).Decode(&s)
			select {
			case seen <- s:
			default:
			}
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	go func() { _ = service.Run(t.Context()) }()
	t.Cleanup(server.Close)
	sender, err := stats.NewSender(server.URL, "")
	must(t, err)
	reportScale(t, sender, 10000)
	ended, said := startChromium(t, server.URL)
	await := func(connected string) sight {
		deadline := time.After(2 * time.Minute)
		var last sight
		for {
			select {
			case last = <-seen:
				if last.Connected == connected && last.Clients == 10 && last.Lines > 0 {
					return last
				}
			case err := <-ended:
				t.Fatalf("chromium ended: %v\n%s", err, said)
			case <-deadline:
				t.Fatalf("the page never showed %s; last %+v\n%s", connected, last, said)
			}
		}
	}
	first := await("100,000")
	if first.Servers != 6 || first.Cells != 60 || !first.Scopes || !strings.Contains(first.Spoken, "connected") {
		t.Errorf("the page shows %+v", first)
	}
	reportScale(t, sender, 9000)
	if later := await("90,000"); later.Loaded != first.Loaded {
		t.Error("the page was loaded anew")
	}
}
