package stats_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-lb/weir/internal/tcpscale/stats"
)

// With a token everything but the probe wants it: as Bearer of programs, as Basic of browsers.
func TestTokenIsWantedEverywhere(t *testing.T) {
	const token = "0123456789abcdef0123"
	b := newBed(t, stats.Config{Token: token, Page: http.NotFoundHandler()})
	ask := func(method, path string, prepare func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"role":"server","id":"a","MachineName":"a","Clients":1}`))
		r.Header.Set("Content-Type", "application/json")
		prepare(r)
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, r)
		return w
	}
	strangers := 0
	for path, method := range map[string]string{
		"/": "GET", "/style.css": "GET", "/api/state": "GET", "/api/history": "GET", "/api/events": "GET", "/metrics": "GET",
		"/api/reports": "POST", "/api/ServerStatistics": "POST",
	} {
		for name, wrong := range map[string]func(*http.Request){
			"nothing": func(*http.Request) {},
			"empty":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
			"prefix":  func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token[:19]) },
			"longer":  func(r *http.Request) { r.SetBasicAuth("x", token+"4") },
			"user":    func(r *http.Request) { r.SetBasicAuth(token, "") },
		} {
			strangers++
			if w := ask(method, path, wrong); w.Code != http.StatusUnauthorized || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic realm=") {
				t.Errorf("%s %s with %s: %d", method, path, name, w.Code)
			}
		}
	}
	for _, right := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) },
		func(r *http.Request) { r.SetBasicAuth("anybody", token) },
	} {
		if w := ask("POST", "/api/reports", right); w.Code != http.StatusOK {
			t.Errorf("a report: %d %s", w.Code, w.Body)
		}
		if w := ask("GET", "/metrics", right); w.Code != http.StatusOK {
			t.Errorf("metrics: %d", w.Code)
		}
	}
	if w := b.get("/livez"); w.Code != http.StatusOK {
		t.Errorf("the probe: %d", w.Code)
	}
	if s := b.state(); s.Reporters != 1 || s.Dropped.Strangers != uint64(strangers) {
		t.Errorf("%d reporters, dropped %+v", s.Reporters, s.Dropped)
	}
}

// Without a secret of the operator's reports and metrics need no token; what shows reporters does. A page is opened by the
// address that holds the token, and keeps it in a cookie of its port.
func TestReadersNeedTheTokenWhereReportsAreOpen(t *testing.T) {
	const token = "0123456789abcdef0123"
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") })
	b := newBed(t, stats.Config{Token: token, OpenReports: true, Page: page})
	ask := func(method, path, cookie string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1:9190"+path, strings.NewReader(`{"role":"server","id":"a","MachineName":"a","Clients":1}`))
		r.Header.Set("Content-Type", "application/json")
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, r)
		return w
	}
	for path, method := range map[string]string{"/livez": "GET", "/metrics": "GET", "/api/reports": "POST", "/api/ServerStatistics": "POST"} {
		if w := ask(method, path, ""); w.Code != http.StatusOK {
			t.Errorf("%s %s without a token: %d", method, path, w.Code)
		}
	}
	closed := []string{"/", "/style.css", "/api/state", "/api/history", "/api/events", "/?token=" + token[:19], "/?token=", "/api/state?token=" + token}
	for _, path := range closed {
		for _, cookie := range []string{"", "weir-tcp-stats-9190=x", "weir-tcp-stats-9191=" + token} {
			if w := ask("GET", path, cookie); w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), "the page") {
				t.Errorf("%s with cookie %q: %d %s", path, cookie, w.Code, w.Body)
			}
		}
	}
	opened := ask("GET", "/?token="+token, "")
	cookies := opened.Result().Cookies()
	if opened.Code != http.StatusSeeOther || opened.Header().Get("Location") != "/" || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("%d %v", opened.Code, opened.Header())
	}
	for _, path := range []string{"/", "/api/state", "/api/history"} {
		if w := ask("GET", path, cookies[0].Name+"="+cookies[0].Value); w.Code != http.StatusOK {
			t.Errorf("%s with the cookie: %d", path, w.Code)
		}
	}
}

// A feed carries the token, and says when it is wrong.
func TestFeedWithToken(t *testing.T) {
	const token = "0123456789abcdef"
	service, at, _ := serve(t, "127.0.0.1:0", stats.Config{Token: token})
	wrong, words := feed(t, at, "fedcba9876543210")
	wrong.Post(client("c", "1", 9))
	if word := <-words; !strings.Contains(word, "token") {
		t.Error(word)
	}
	wrong.Close()
	right, words := feed(t, at, token)
	right.Post(client("c", "1", 7))
	right.Close()
	if s := service.State(time.Now()); s.Connected != 7 || len(words) > 0 {
		t.Errorf("%d connected, %d words", s.Connected, len(words))
	}
}

// A web page that rebinds its name to this machine gets nothing, on no path.
func TestForeignHostsAreRefused(t *testing.T) {
	handler := stats.New(stats.Config{HostAllowed: func(host string) bool { return host == "localhost" }}).Handler()
	for _, path := range []string{"/livez", "/metrics", "/api/state", "/"} {
		for host, refused := range map[string]bool{"evil.example": true, "localhost": false} {
			request, answer := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
			request.Host = host
			handler.ServeHTTP(answer, request)
			if (answer.Code == http.StatusForbidden) != refused {
				t.Errorf("%s, host %s: %d", path, host, answer.Code)
			}
		}
	}
}

// Senders that never finish delay no other sender, and are cut off.
func TestSlowSendersDoNotDelayOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	service, at, _ := serve(t, "127.0.0.1:0", stats.Config{})
	var slow []net.Conn
	for i := range 40 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text := "POST /api/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		if i%2 == 0 {
			text += "Content-Length: 1000000\r\n\r\n{"
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	for range 50 {
		sender, words := feed(t, at, "")
		sender.Post(client("c", "1", 7))
		sender.Close()
		if len(words) > 0 {
			t.Fatal(<-words)
		}
	}
	if s := service.State(time.Now()); s.Connected != 7 || s.Dropped.Busy != 0 {
		t.Errorf("%d connected, dropped %+v", s.Connected, s.Dropped)
	}
	for i, conn := range slow {
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection %d is still open", i)
		}
	}
}

// halted is a body that gives all but its end, which comes with the test's.
type halted struct {
	text io.Reader
	end  <-chan struct{}
}

func (h *halted) Read(b []byte) (int, error) {
	if n, err := h.text.Read(b); err == nil {
		return n, nil
	}
	<-h.end
	return 0, io.ErrUnexpectedEOF
}

// Many large bodies at once are refused before they fill the memory: as none of them ends, the first answer is a refusal.
func TestBodiesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	service, end := stats.New(stats.Config{}), make(chan struct{})
	part, codes := strings.Repeat(" ", 1<<20-1), make(chan int)
	const senders = 80 // 64 fit
	for range senders {
		go func() {
			r := httptest.NewRequest(http.MethodPost, "/api/reports", &halted{strings.NewReader(part), end})
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			service.Handler().ServeHTTP(w, r)
			codes <- w.Code
		}()
	}
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("the first answer is %d", code)
	}
	close(end)
	for range senders - 1 {
		<-codes
	}
	if n := service.State(time.Now()).Dropped.Busy; n == 0 {
		t.Error("nothing is counted as refused")
	}
	report := server("after", 1)
	if _, err := service.Take(time.Now(), netip.MustParseAddr("192.0.2.1"), &report); err != nil {
		t.Error(err)
	}
}

// What the original tester's server posts: System.Text.Json of a class {MachineName, Clients, LastUpdated}, with the
// web's camel case, or with Pascal case.
func TestTheOriginalsReportsAreTaken(t *testing.T) {
	b := newBed(t, stats.Config{})
	for i, body := range []string{
		`{"machineName":"tcp-server-6f9d8c7b5-x2k4p","clients":10000,"lastUpdated":"2022-08-26T10:15:30.1234567Z"}`,
		`{"MachineName":"tcp-server-6f9d8c7b5-x2k4p","Clients":10001,"LastUpdated":"0001-01-01T00:00:00"}`,
	} {
		for _, path := range []string{"/api/ServerStatistics", "/api/serverstatistics"} {
			if w := b.post(path, "application/json; charset=utf-8", body); w.Code != http.StatusOK {
				t.Fatal(w.Code, w.Body)
			}
		}
		s := b.state()
		if len(s.ServerRows) != 1 || s.Connected != 10000+i || !s.ServerRows[0].Original || s.ServerRows[0].ID != "tcp-server-6f9d8c7b5-x2k4p" {
			t.Errorf("%d: %d connected, %+v", i, s.Connected, s.ServerRows)
		}
	}
}

// Prometheus' own parser reads what /metrics says, and its size is bounded whatever reporters say of themselves.
func TestMetricsAreReadByPrometheus(t *testing.T) {
	b := newBed(t, stats.Config{Expect: 10, MaxReporters: 8})
	for i := range 20 {
		r := client(fmt.Sprintf("c%d \"\\ ü", i), "1", 9)
		r.Host, r.Totals.Lost = "höst", 2
		r.Failures = map[string]uint64{}
		for k := range 60 {
			r.Failures[fmt.Sprintf("kind_%c%c", 'a'+i, 'a'+k%26)+strings.Repeat("x", k/26)] = uint64(i + k + 1)
		}
		_, _ = b.Take(b.now, netip.MustParseAddr("192.0.2.1"), &r) // some find no place
	}
	response := b.get("/metrics")
	if format := expfmt.ResponseFormat(response.Result().Header); format.FormatType() != expfmt.TypeTextPlain {
		t.Errorf("content type %q is none of the text format", response.Header().Get("Content-Type"))
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	samples := 0
	for name, family := range families {
		if !strings.HasPrefix(name, "weir_tcp_") {
			continue // the process, the Go runtime and the build
		}
		if family.GetHelp() == "" {
			t.Errorf("%s has no help text", name)
		}
		if total := strings.HasSuffix(name, "_total"); total != (family.GetType().String() == "COUNTER") {
			t.Errorf("%s is a %s", name, family.GetType())
		}
		samples += len(family.GetMetric())
	}
	if n := len(families["weir_tcp_lost_total"].GetMetric()); n != 8 {
		t.Errorf("%d reporters", n)
	}
	if n := len(families["weir_tcp_failures"].GetMetric()); n != 64 || samples > 64+8*13+30 {
		t.Errorf("%d kinds of failures, %d samples", n, samples)
	}
	if v := families["weir_tcp_connected"].GetMetric()[0].GetGauge().GetValue(); v != 72 {
		t.Errorf("%g connected", v)
	}
	sum := uint64(0)
	for _, f := range b.state().Failures {
		sum += f.Count
	}
	want := uint64(0)
	for i := range 8 {
		for k := range 60 {
			want += uint64(i + k + 1)
		}
	}
	if sum != want {
		t.Errorf("%d failures, want %d", sum, want)
	}
}
