package stats_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// bed is a service whose time the test moves.
type bed struct {
	*stats.Service
	t   *testing.T
	now time.Time
}

func newBed(t *testing.T, config stats.Config) *bed {
	b := &bed{t: t, now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	config.Now = func() time.Time { return b.now }
	b.Service = stats.New(config)
	return b
}

// pass moves time by seconds, with a tick in each.
func (b *bed) pass(seconds int) {
	for range seconds {
		b.now = b.now.Add(time.Second)
		b.Tick(b.now)
	}
}

func (b *bed) take(r tcpscale.Report, from string) string {
	b.t.Helper()
	key, err := b.Take(b.now, netip.MustParseAddr(from), &r)
	if err != nil {
		b.t.Fatal(err)
	}
	return key
}

func (b *bed) state() stats.State { return b.State(b.now) }

func (b *bed) post(path, kind, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w
}

func (b *bed) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func server(id string, established int) tcpscale.Report {
	return tcpscale.Report{Role: tcpscale.RoleServer, ID: id, Host: "h", PID: 7, Connections: tcpscale.Connections{Established: established}}
}

func client(id, run string, established int, peers ...tcpscale.Peer) tcpscale.Report {
	return tcpscale.Report{
		Role: tcpscale.RoleClient, ID: id, Run: run, Host: "h", PID: 8, Peers: peers,
		Connections: tcpscale.Connections{Established: established, Target: established},
	}
}

// Who does not report is silent, then gone, by time alone; the program of the original has a minute.
func TestReportersAgeByTime(t *testing.T) {
	b := newBed(t, stats.Config{SilentAfter: 10 * time.Second, ForgetAfter: 2 * time.Minute})
	b.take(server("new", 5), "192.0.2.1")
	if w := b.post("/api/ServerStatistics", "application/json; charset=utf-8", `{"machineName":"old","clients":3,"lastUpdated":"0001-01-01T00:00:00"}`); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	for _, step := range []struct{ seconds, live, silent, established int }{
		{0, 2, 0, 8}, {10, 2, 0, 8}, {1, 1, 1, 3}, {49, 1, 1, 3}, {1, 0, 2, 0}, {59, 0, 2, 0}, {1, 0, 0, 0},
	} {
		b.now = b.now.Add(time.Duration(step.seconds) * time.Second) // no tick, no report: asking is enough
		if s := b.state().Servers; s.Live != step.live || s.Silent != step.silent || s.Established != step.established {
			t.Errorf("after %d s more: %+v, want %+v", step.seconds, s, step)
		}
	}
	b.take(server("new", 5), "192.0.2.1")
	b.pass(11)
	b.take(server("new", 6), "192.0.2.1")
	if s := b.state(); s.Servers.Live != 1 || s.Connected != 6 {
		t.Errorf("one that came back: %+v", s.Servers)
	}
}

// Two of one name stay two, in each way in which names can be equal; one process that comes by IPv4 and IPv6 is one.
func TestReportersOfOneNameAreKeptApart(t *testing.T) {
	b := newBed(t, stats.Config{})
	other := server("a", 1)
	other.Host = "other"
	process := server("a", 1)
	process.PID = 9
	for _, key := range []string{
		b.take(server("a", 1), "192.0.2.1"), b.take(server("a", 1), "192.0.2.2"), b.take(other, "192.0.2.1"), b.take(process, "192.0.2.1"),
		b.take(client("a", "1", 1), "192.0.2.1"), b.take(client("a", "2", 1), "192.0.2.1"),
	} {
		if w := b.get("/api/history?id=" + key); w.Code != http.StatusOK {
			t.Errorf("history of %s: %d", key, w.Code)
		}
	}
	b.take(server("a", 1), "192.0.2.1")
	s := b.state()
	if len(s.ServerRows) != 4 || len(s.ClientRows) != 2 || s.Servers.Established != 4 {
		t.Errorf("%d servers with %d connections, %d clients; want 4, 4, 2", len(s.ServerRows), s.Servers.Established, len(s.ClientRows))
	}
	names := map[string]bool{}
	for _, row := range s.ServerRows {
		names[row.Name] = true
	}
	if len(names) != 4 {
		t.Errorf("names %v: want 4 of them", names)
	}
	if b.take(server("l", 1), "127.0.0.1") != b.take(server("l", 1), "::1") {
		t.Error("one process on loopback became two")
	}
	for _, from := range []string{"192.0.2.7:1000", "192.0.2.8:1000"} { // two pods of the original with one machine name
		r := httptest.NewRequest(http.MethodPost, "/api/ServerStatistics", strings.NewReader(`{"MachineName":"pod","Clients":10}`))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = from
		b.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	if s := b.state(); s.Servers.Established != 25 {
		t.Errorf("%d connections with two pods of one name: want 5 + 20", s.Servers.Established)
	}
}

// An hour by seconds and a day by ten seconds, with holes where nothing was received.
func TestRingsHoldAnHourAndADay(t *testing.T) {
	t.Parallel()
	b := newBed(t, stats.Config{SilentAfter: 2 * time.Second, ForgetAfter: 30 * time.Hour})
	key := b.take(client("c", "1", 1), "192.0.2.1")
	const hours = 25
	for second := range hours * 3600 {
		if second < 100 || second >= 110 { // silent for some seconds
			b.take(client("c", "1", second+1), "192.0.2.1")
		}
		b.pass(1)
	}
	fine, _ := b.History(key, time.Hour)
	coarse, _ := b.History(key, 24*time.Hour)
	if len(fine.Clients) != 3600 || len(coarse.Clients) != 8640 || fine.Step != 1 || coarse.Step != 10 {
		t.Fatalf("%d points of %g s, %d of %g s", len(fine.Clients), fine.Step, len(coarse.Clients), coarse.Step)
	}
	if first, last := *fine.Clients[0], *fine.Clients[3599]; first != (hours-1)*3600+1 || last != hours*3600 {
		t.Errorf("an hour from %g to %g", first, last)
	}
	if mean := *coarse.Clients[100]; mean < 4500 || mean > 4700 { // 1 h 0 min + 1000 s, plus what the step under way took
		t.Errorf("the mean of 10 s is %g", mean)
	}
	if !fine.End.Equal(b.now.Add(time.Second)) && !fine.End.Equal(b.now) {
		t.Errorf("ends at %s, now is %s", fine.End, b.now)
	}
	few, _ := b.History(stats.All, 10*time.Second)
	if len(few.Clients) != 10 || *few.Clients[9] != hours*3600 {
		t.Errorf("ten seconds: %d points", len(few.Clients))
	}
}

func TestRingsHaveHoles(t *testing.T) {
	b := newBed(t, stats.Config{SilentAfter: 2 * time.Second})
	key := b.take(client("c", "1", 4), "192.0.2.1")
	b.pass(5)
	b.take(client("c", "1", 4), "192.0.2.1")
	b.now = b.now.Add(3 * time.Second) // the machine was asleep: no ticks
	b.take(client("c", "1", 4), "192.0.2.1")
	b.pass(1)
	h, _ := b.History(key, time.Minute)
	var shape strings.Builder
	for _, v := range h.Clients {
		if v == nil {
			shape.WriteByte('.')
		} else {
			fmt.Fprintf(&shape, "%g", *v)
		}
	}
	if got := shape.String(); got != "44......4" && got != "44.....4" && got != "44......" {
		t.Errorf("history %q: want two seconds, a hole of silence and sleep, and the present", got)
	}
}

// Rates come from what counters gain between reports; a process that began again begins at zero.
func TestRatesAndRestarts(t *testing.T) {
	b := newBed(t, stats.Config{})
	c := client("c", "1", 10)
	c.Totals = tcpscale.Totals{Opened: 1000, Lost: 5}
	c.CPUSeconds = 10
	b.take(c, "192.0.2.1")
	b.pass(2)
	c.Totals = tcpscale.Totals{Opened: 1400, Lost: 7, Reconnected: 2}
	c.CPUSeconds = 11
	b.take(c, "192.0.2.1")
	row := b.state().ClientRows[0]
	if row.Rates != (stats.Rates{Opened: 200, Lost: 1, Reconnected: 1}) || row.CPU != 50 || row.Restarts != 0 {
		t.Errorf("rates %+v, CPU %g, %d restarts", row.Rates, row.CPU, row.Restarts)
	}
	b.pass(1)
	c.Totals, c.CPUSeconds = tcpscale.Totals{Opened: 30}, 0.2
	b.take(c, "192.0.2.1")
	if row := b.state().ClientRows[0]; row.Rates.Opened != 30 || row.Restarts != 1 {
		t.Errorf("after a restart: %+v, %d restarts", row.Rates, row.Restarts)
	}
	c.Final = true
	b.take(c, "192.0.2.1")
	if s := b.state(); s.Clients.Ended != 1 || s.Connected != 0 {
		t.Errorf("after its final report: %+v", s.Clients)
	}
}

// A live reporter is never given up for a new one; a silent one is.
func TestReportersAreBounded(t *testing.T) {
	b := newBed(t, stats.Config{MaxReporters: 3})
	for i := range 3 {
		b.take(server(fmt.Sprint(i), 1), "192.0.2.1")
		b.pass(4)
	}
	b.take(server("1", 1), "192.0.2.1") // 0 is silent by now, 1 and 2 are not
	fourth, fifth := server("3", 1), server("4", 1)
	b.take(fourth, "192.0.2.1")
	if _, err := b.Take(b.now, netip.MustParseAddr("192.0.2.1"), &fifth); !errors.Is(err, stats.ErrFull) {
		t.Errorf("a fifth: %v", err)
	}
	body, _ := json.Marshal(fifth)
	if w := b.post("/api/reports", "application/json", string(body)); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "--max-reporters") {
		t.Errorf("a fifth by HTTP: %d %s", w.Code, w.Body)
	}
	s := b.state()
	if s.Reporters != 3 || s.Dropped.Forgotten != 1 || s.Dropped.Reporters != 2 || s.ServerRows[2].ID != "3" {
		t.Errorf("%d reporters, dropped %+v", s.Reporters, s.Dropped)
	}
}

func TestMatrixAndBothEnds(t *testing.T) {
	b := newBed(t, stats.Config{Expect: 100})
	one, two := server("s1", 60), server("s2", 35)
	one.Peers = []tcpscale.Peer{{ID: "aa/0", Connections: 30}, {ID: "aa/1", Connections: 20}, {ID: "bb/0", Connections: 10}}
	b.take(one, "192.0.2.1")
	b.take(two, "192.0.2.2")
	b.take(client("c", "aa", 90, tcpscale.Peer{ID: "s1", Connections: 50}, tcpscale.Peer{ID: "s2", Connections: 40}), "192.0.2.3")
	s := b.state()
	got, _ := json.Marshal(s.Matrix)
	want := `{"servers":["s1","s2"],"others":0,"rows":[{"client":"c","cells":[50,40],"others":0,"sum":90},` +
		`{"client":"run bb","by_peer":true,"cells":[10,0],"others":0,"sum":10}],"hidden":0}`
	if string(got) != want {
		t.Errorf("matrix\n%s, want\n%s", got, want)
	}
	if s.Difference == nil || *s.Difference != -5 || s.Connected != 90 || s.Expected != 100 {
		t.Errorf("connected %d, difference %v", s.Connected, s.Difference)
	}
	if s.ServerRows[0].Peers != 2 { // a client of two workers, and one of one
		t.Errorf("s1 has %d clients", s.ServerRows[0].Peers)
	}
	for i := range 80 {
		b.take(server(fmt.Sprintf("x%02d", i), 0), "192.0.2.9")
	}
	if m := b.state().Matrix; len(m.Servers) != 64 || m.Others != 18 || m.Servers[0] != "s1" || len(m.Rows[0].Cells) != 64 {
		t.Errorf("%d columns and %d others, first %s", len(m.Servers), m.Others, m.Servers[0])
	}
}

func TestMetrics(t *testing.T) {
	b := newBed(t, stats.Config{Expect: 10})
	c := client("c\"\\", "1", 9)
	c.Failures = map[string]uint64{"timeout": 4}
	c.Totals.Lost = 2
	c.Heartbeats.RTT = measure.NewLatency()
	c.Heartbeats.RTT.Record(250 * time.Millisecond)
	key := b.take(c, "192.0.2.1")
	b.take(server("s", 8), "192.0.2.1")
	b.post("/api/reports", "application/json", `{`)
	text := b.get("/metrics").Body.String()
	labels := `{host="h",id="c\"\\",key="` + key + `",role="client"} `
	for _, line := range []string{
		"weir_tcp_connected 9\n", "weir_tcp_expected 10\n", "weir_tcp_ends_difference 1\n", `weir_tcp_failures{kind="timeout"} 4`,
		"weir_tcp_lost_total" + labels + "2\n", `weir_tcp_reporters{role="server",state="live"} 1`,
		`weir_tcp_stats_dropped_total{what="bad_reports"} 1`, "weir_tcp_rtt_p99_seconds" + labels + "0.2", "# TYPE weir_tcp_lost_total counter\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	if s := b.state(); len(s.Failures) != 1 || s.Failures[0].Remedy == "" {
		t.Errorf("failures %+v: want the remedy of a time-out", s.Failures)
	}
}
