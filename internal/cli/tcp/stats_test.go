package tcp

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/web"
)

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
		clitest.Must(t, s.Send(t.Context(), &r))
	}
}

const busyToken = "0123456789abcdef0123"

// busyPage is a service with 6 servers and 10 clients of 10,000 connections each, at an address of its own.
type busyPage struct {
	at      string
	handler http.Handler
	sender  *stats.Sender
	server  *http.Server
}

func (p *busyPage) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", p.at)
	clitest.Must(t, err)
	p.at, p.server = listener.Addr().String(), &http.Server{Handler: p.handler}
	go p.server.Serve(listener)
}

func newBusyPage(t *testing.T, config stats.Config) *busyPage {
	t.Helper()
	config.Page, config.Token = web.TCPStats(), busyToken
	service := stats.New(config)
	page := &busyPage{at: "127.0.0.1:0", handler: service.Handler()}
	page.start(t)
	go func() { _ = service.Run(t.Context()) }()
	t.Cleanup(func() { page.server.Close() })
	var err error
	page.sender, err = stats.NewSender(page.at, busyToken)
	clitest.Must(t, err)
	return page
}

// A real browser, with the page's policy in force, shows what 6 servers and 10 clients report, and follows it without a
// reload: over a service that goes away and comes again, and to the end of a server.
func TestChromiumFollowsTheTCPStats(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "chromium")
	page := newBusyPage(t, stats.Config{SilentAfter: time.Hour, Expect: 100000})
	b := clitest.OpenPage(t)
	b.Look(1300, "light")
	b.Open("http://" + page.at + "/?token=" + busyToken)
	const shows = `document.getElementById(%q).textContent.includes(%q)`
	b.Await(`!document.getElementById("empty").hidden`)
	b.Await(fmt.Sprintf(shows, "commands", "weir tcp server --listen :10000 --stats "+page.at))
	shots(b, "empty")
	reportScale(t, page.sender, 10000)
	b.Await(fmt.Sprintf(shows, "connected", "100,000"))
	b.Await(`document.querySelectorAll("#plot-connections > svg path").length === 3`) // the third is what is expected
	var loaded, later float64
	b.Evaluate("performance.timeOrigin", &loaded)
	var seen struct{ Servers, Clients, Cells int }
	b.Evaluate(`({Servers: document.querySelectorAll("#servers tbody tr").length, Clients: document.querySelectorAll("#clients tbody tr").length,
		Cells: document.querySelectorAll("#matrix td.cell").length})`, &seen)
	if seen.Servers != 6 || seen.Clients != 10 || seen.Cells != 60 {
		t.Errorf("the page shows %+v", seen)
	}
	b.Await(`document.getElementById("spoken").textContent.startsWith("100,000 connected, 6 servers, 10 clients")`)
	shots(b, "busy")
	reportScale(t, page.sender, 9000)
	b.Await(fmt.Sprintf(shows, "connected", "90,000"))
	b.Await(`[...document.querySelectorAll("#matrix tbody tr:first-child td.cell")].map((c) => c.textContent).join(" ") === "1,500 1,500 1,500 1,500 1,500 1,500"`)

	page.server.Close()
	b.Await(`document.getElementById("link").className === "badge bad" && document.getElementById("spoken").textContent.includes("lost")`)
	quiet := len(b.Notes()) // the browser itself notes a server that is away
	b.Shot("away-1300-light")
	page.start(t)
	b.Await(`document.getElementById("link").className === "badge ok"`)
	b.Await(`document.getElementById("spoken").textContent.includes("live again")`)

	gone := tcpscale.Report{Role: tcpscale.RoleServer, ID: "server-3", Host: "lab", PID: 4, Final: true}
	clitest.Must(t, page.sender.Send(t.Context(), &gone))
	b.Await(`[...document.querySelectorAll("#servers tbody tr.off")].some((r) => r.textContent.includes("server-3") && r.textContent.includes("ended"))`)
	shots(b, "ended")
	if b.Evaluate("performance.timeOrigin", &later); later != loaded {
		t.Error("the page was loaded again")
	}
	notes := b.Notes()
	if quiet > 0 || len(notes) > 0 {
		for _, note := range notes {
			if !strings.Contains(note, "net::ERR_") {
				t.Errorf("the browser says: %s", note)
			}
		}
	}
	var violations []string
	if b.Evaluate("violations", &violations); len(violations) > 0 {
		t.Errorf("the policy was violated: %q", violations)
	}
}

// shots are pictures at three widths, light and dark; none without WEIR_SCREENSHOTS.
func shots(b *clitest.Page, name string) {
	for _, width := range []int{320, 900, 1300, 1920} {
		for _, scheme := range []string{"light", "dark"} {
			if os.Getenv("WEIR_SCREENSHOTS") != "" {
				b.Look(width, scheme)
				b.Shot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			}
		}
	}
	b.Look(1300, "light")
}

// The whole page is reached and worked with the keyboard, each stop is seen and has a name, and nothing is wider
// than the window or paler than WCAG 2.2 requires.
func TestChromiumTCPStatsForEverybody(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "chromium")
	page := newBusyPage(t, stats.Config{SilentAfter: time.Hour})
	reportScale(t, page.sender, 10000)
	b := clitest.OpenPage(t)
	b.Look(1300, "light")
	b.Open("http://" + page.at + "/?token=" + busyToken)
	b.Await(`document.querySelectorAll("#matrix td.cell").length === 60 && document.querySelectorAll("#plot-connections > svg path").length > 0`)

	type stop struct {
		Name, Tag, Outline string
		Width              float64
	}
	focus := func() (s stop) {
		b.Evaluate(`(() => { const e = document.activeElement, s = getComputedStyle(e);
			return {Name: e.id || e.dataset.span || e.textContent, Tag: e.tagName, Outline: s.outlineStyle, Width: parseFloat(s.outlineWidth)} })()`, &s)
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
	for range 200 {
		b.Press("Tab")
		s := focus()
		if s.Tag == "BODY" {
			break
		}
		if s.Outline == "none" || s.Width < 2 {
			t.Errorf("focus on %s %q is not seen: outline %s %g px", s.Tag, s.Name, s.Outline, s.Width)
		}
		stops = append(stops, s.Name)
		if s.Name == "metrics" {
			break
		}
	}
	for _, wanted := range []string{"of", "5m", "1h", "24h", "filter", "servers", "server", "server-0", "clients", "client-9", "matrix", "failures", "metrics"} {
		if !slices.Contains(stops, wanted) {
			t.Errorf("Tab does not reach %q; it reaches %q", wanted, stops)
		}
	}

	// Sorted by keyboard: the focus stays, the order is announced and seen.
	b.Evaluate(`[...document.querySelectorAll("#servers thead button")].find((e) => e.textContent === "connections").focus()`, nil)
	b.Press("Enter")
	b.Await(`document.activeElement.closest("th")?.ariaSort === "descending" && document.querySelector("#servers tbody th").textContent === "server-0"`)
	b.Press("Enter")
	b.Await(`document.activeElement.closest("th")?.ariaSort === "ascending" && document.querySelector("#servers tbody th").textContent === "server-4"`)
	// Filtered by keyboard.
	b.Evaluate(`document.getElementById("filter").focus()`, nil)
	for _, key := range "client-7" {
		b.Press(string(key))
	}
	b.Await(`document.getElementById("filtered").textContent === "0 of 6 servers, 1 of 10 clients"`)
	b.Await(`[...document.querySelectorAll("#clients tbody tr")].filter((r) => r.checkVisibility()).length === 1`)
	b.Await(`[...document.querySelectorAll("#matrix tbody tr")].filter((r) => r.checkVisibility()).length === 1`)
	b.Press("Escape") // of a search field: empties it
	b.Await(`document.getElementById("filtered").textContent === "" && [...document.querySelectorAll("#servers tbody tr")].every((r) => r.checkVisibility())`)
	// A plot shows its values by arrow keys.
	b.Evaluate(`document.querySelector("#plot-connections > svg").focus()`, nil)
	b.Press("Home")
	b.Await(`/^Connections at .*: clients count/.test(document.activeElement.getAttribute("aria-label"))`)
	// A row is picked for the plots.
	b.Evaluate(`[...document.querySelectorAll("#clients tbody button")].find((e) => e.textContent === "client-7").focus()`, nil)
	b.Press("Enter")
	b.Await(`document.activeElement.ariaPressed === "true" && document.getElementById("of").selectedOptions[0].textContent === "client client-7"`)

	b.CheckNames(map[string]int{
		"banner": 1, "main": 1, "contentinfo": 1, "search": 1, "table": 4, "heading": 7, "region": 5, "status": 2, "rowheader": 26, "columnheader": 30,
	})
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{320, 480, 768, 1024, 1300, 1920} {
			b.Look(width, scheme)
			var wide int
			if b.Evaluate("document.scrollingElement.scrollWidth", &wide); wide > width {
				t.Errorf("at %d px the page is %d px wide", width, wide)
			}
			var cards []int // in each row
			b.Evaluate(`Object.values(Object.groupBy([...document.querySelectorAll("#cards > div")], (e) => e.offsetTop)).map((r) => r.length)`, &cards)
			if last := cards[len(cards)-1]; width >= 480 && len(cards) > 1 && last < 3 {
				t.Errorf("at %d px the totals stand in rows of %v", width, cards)
			}
		}
		if pale := b.PaleTexts(); len(pale) > 0 {
			t.Errorf("%s: contrast below 4.5: %q", scheme, pale)
		}
	}
	var violations []string
	if b.Evaluate("violations", &violations); len(violations) > 0 || len(b.Notes()) > 0 {
		t.Errorf("the policy was violated: %q; the browser says %q", violations, b.Notes())
	}
}
