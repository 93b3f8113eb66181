package admin

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// testToken is the credential of servers that a test opens without an address.
const testToken = "0123456789abcdef"

// openServer opens a server and runs it until the test ends.
func startServer(t *testing.T, config Config) *Server {
	t.Helper()
	if config.Address == "" {
		config.Address, config.Token = "127.0.0.1:0", testToken
	}
	s, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, s.Run)
	return s
}

// fetch makes one request with testToken and returns status and body.
func fetch(t *testing.T, method, target string, change func(*http.Request)) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+testToken)
	if change != nil {
		change(request)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func full() Config {
	return Config{
		Ready:  func() error { return nil },
		Status: func() any { return map[string]int{"generation": 3} },
		Metrics: func() []metrics.Sample {
			return []metrics.Sample{
				{Name: "weir_packets_total", Help: "Packets.", Kind: metrics.Counter, Labels: []metrics.Label{{Name: "service", Value: "a"}, {Name: "reason", Value: "cid"}}, Value: 7},
				{Name: "weir_packets_total", Help: "Packets.", Kind: metrics.Counter, Labels: []metrics.Label{{Name: "service", Value: "a"}, {Name: "reason", Value: "maglev"}}, Value: 9},
				{Name: "weir_generation", Help: "Generation.", Kind: metrics.Gauge, Value: 3},
			}
		},
		Override: func(_, service, backend, value string) error {
			if service != "s" {
				return fmt.Errorf("%w: no service %q", ErrUnknownTarget, service)
			}
			if backend == "busy" {
				return errors.New("apply: map is full")
			}
			return nil
		},
		Flows: func(yield func(v1.Flow) bool) {
			for i := range 10 {
				if !yield(v1.Flow{Protocol: "udp", Client: fmt.Sprint("c", i), Service: "s", Backend: fmt.Sprint("b", i%2)}) {
					return
				}
			}
		},
		Console: func(_ context.Context, in io.Reader, out io.Writer) error {
			lines := bufio.NewScanner(in)
			for lines.Scan() {
				fmt.Fprintf(out, "did %s\n", lines.Text())
			}
			return lines.Err()
		},
		Page: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }),
	}
}

func TestEndpoints(t *testing.T) {
	s := startServer(t, full())
	base := "http://" + s.Address()
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/livez", 200, "ok"},
		{"GET", "/readyz", 200, "ready"},
		{"GET", "/status", 200, `"generation": 3`},
		{"GET", "/metrics", 200, `weir_packets_total{reason="cid",service="a"} 7`},
		{"GET", "/metrics", 200, "# TYPE weir_packets_total counter"},
		{"GET", "/metrics", 200, "go_goroutines"},
		{"GET", "/flows?limit=3", 200, `"more": true`},
		{"GET", "/flows?backend=b1", 200, `"more": false`},
		{"GET", "/flows?limit=0", 400, "write 1 to"},
		{"POST", "/drain?service=s&backend=a", 200, `"override": "drain"`},
		{"POST", "/undrain?service=s", 200, `"override": "none"`},
		{"POST", "/drain?service=x", 404, `no service`},
		{"POST", "/drain?service=s&backend=busy", 409, `map is full`},
		{"POST", "/drain", 400, "no service"},
		{"GET", "/drain?service=s", 200, "<html>"}, // a GET changes nothing: it is the page's
		{"POST", "/status", 405, ""},
		{"GET", "/", 200, "<html>"},
	} {
		status, body := fetch(t, c.method, base+c.path, nil)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %.200s; want %d %s", c.method, c.path, status, body, c.status, c.want)
		}
	}
}

func TestNotReadySaysWhy(t *testing.T) {
	s := startServer(t, Config{Ready: func() error { return errors.New("no configuration yet") }})
	if status, body := fetch(t, "GET", "http://"+s.Address()+"/readyz", nil); status != 503 || !strings.Contains(body, "no configuration yet") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := fetch(t, "GET", "http://"+s.Address()+"/status", nil); status != 404 {
		t.Errorf("/status without function: %d", status)
	}
}

// A web page must neither read by rebinding a name nor change things from another origin, on any path and any kind of address.
func TestBrowsersAreKeptOut(t *testing.T) {
	config := full()
	config.Hosts = []string{"gateway.example"}
	s := startServer(t, config)
	base := "http://" + s.Address()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/livez", "/readyz", "/live", "/ready", "/metrics", "/status", "/", "/routes", "/nothing"} {
		for host, refused := range map[string]bool{
			"evil.example:80": true, "localhost.evil.example": true, "127.0.0.1.nip.io": true,
			"localhost:9180": false, "127.0.0.1": false, "[::1]:9180": false, "10.1.2.3:9180": false, own + ":9180": false, "Gateway.Example.": false,
		} {
			if status, _ := fetch(t, "GET", base+path, func(r *http.Request) { r.Host = host }); (status == 403) != refused {
				t.Errorf("host %s, %s: %d", host, path, status)
			}
		}
	}
	cross := func(r *http.Request) {
		r.Header.Set("Origin", "http://evil.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	if status, _ := fetch(t, "POST", base+"/drain?service=s", cross); status != 403 {
		t.Errorf("cross-origin change: %d", status)
	}
}

// Over TCP, loopback too, what is not for probes needs the token.
func TestCredential(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "127.0.0.1:0"} {
		config := full()
		config.Address = address
		s := startServer(t, config)
		_, port, _ := net.SplitHostPort(s.Address())
		base := "http://127.0.0.1:" + port
		for _, served := range s.patterns {
			method, path, _ := strings.Cut(served.Pattern, " ")
			status, _ := fetch(t, method, base+path, nil)
			if want := map[bool]int{true: 200, false: 403}[served.Open]; status != want {
				t.Errorf("%s on %s without a token: %d, want %d", served.Pattern, address, status, want)
			}
		}
		config.Token = testToken
		s = startServer(t, config)
		_, port, _ = net.SplitHostPort(s.Address())
		base = "http://127.0.0.1:" + port
		for given, want := range map[string]int{
			"": 401, "Bearer 0123456789abcdeX": 401, "Basic 0123456789abcdef": 401, "Bearer " + testToken: 200,
			"Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+testToken)): 200,
			"Basic " + base64.StdEncoding.EncodeToString([]byte(testToken+":")):        401,
		} {
			status, body := fetch(t, "GET", base+"/status", func(r *http.Request) { r.Header.Set("Authorization", given) })
			if status != want || strings.Contains(body, "0123456789") {
				t.Errorf("authorization %q: %d %s, want %d", given, status, body, want)
			}
		}
	}
}

// Each answer names its part, and a client that was pointed at another one says so.
func TestClientRecognizesItsPart(t *testing.T) {
	config := full()
	config.Part = "turn gateway"
	address := startServer(t, config).Address()
	var status map[string]int
	if err := client.New(address, testToken, "turn gateway").Get(t.Context(), "/status", nil, &status); err != nil {
		t.Error(err)
	}
	lb := client.New(address, testToken, "lb run", "nat")
	for name, err := range map[string]error{
		"Get":  lb.Get(t.Context(), "/status", nil, &status),
		"Post": lb.Post(t.Context(), "/drain", nil, &status),
		"Stream": lb.Stream(t.Context(), "/trace", nil, func([]byte) (bool, error) {
			return true, nil
		}),
		"Console": func() error { _, err := lb.Console(t.Context()); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), address+" is weir turn gateway, not weir lb run; name the right --admin") {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if err := client.New(other.Listener.Addr().String(), "", "lb run").Get(t.Context(), "/status", nil, &status); err == nil || !strings.Contains(err.Error(), "does not say that it is weir lb run") {
		t.Errorf("another program: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	config := full()
	config.Address = "unix:" + path
	s := startServer(t, config)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", info.Mode(), err)
	}
	var status map[string]int
	caller := client.New(s.Address(), "")
	if err := caller.Get(t.Context(), "/status", nil, &status); err != nil || status["generation"] != 3 {
		t.Errorf("%v, %v", status, err)
	}
	if err := caller.Post(t.Context(), "/drain", url.Values{"service": {"x"}}, nil); err == nil || !strings.Contains(err.Error(), `no service "x"`) {
		t.Errorf("error %v", err)
	}
	if _, err := Open(Config{Address: "unix:" + path}); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a served socket was taken over: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Address: "unix:" + file}); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file was replaced: %v", err)
	}
	stale := filepath.Join(t.TempDir(), "stale.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	startServer(t, Config{Address: "unix:" + stale})
}

func TestBadAddresses(t *testing.T) {
	for address, want := range map[string]string{"": "write HOST:PORT", "localhost": "write HOST:PORT", "192.0.2.1:1": "192.0.2.1:1"} {
		if _, err := Open(Config{Address: address}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", address, err, want)
		}
	}
}

func TestConsole(t *testing.T) {
	config := full()
	s := startServer(t, config)
	caller := client.New(s.Address(), testToken)
	stream, err := caller.Console(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(stream)
	for _, line := range []string{"info", "clear 3"} {
		fmt.Fprintln(stream, line)
		if answer, err := reader.ReadString('\n'); err != nil || answer != "did "+line+"\n" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	stream.Close()
	request, err := http.NewRequest(http.MethodPost, "http://"+s.Address()+"/console", strings.NewReader("info\nhelp\n"))
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth("anybody", testToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "did info\ndid help\n" {
		t.Errorf("%q", body)
	}
	config.Console = nil
	if _, err := client.New(startServer(t, config).Address(), testToken).Console(t.Context()); err == nil || !strings.Contains(err.Error(), "no console") {
		t.Errorf("error %v", err)
	}
}

// An open console must not keep the server from stopping.
func TestStopEndsConsoles(t *testing.T) {
	s, err := Open(func() Config { c := full(); c.Address, c.Token = "127.0.0.1:0", testToken; return c }())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stream, err := client.New(s.Address(), testToken).Console(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(stream); err != nil && !errors.Is(err, io.EOF) {
		var broken net.Error
		if !errors.As(err, &broken) || broken.Timeout() {
			t.Error(err)
		}
	}
}

// 1,400 connections that idle, each after one answer, keep neither a probe nor an operator out, and cost bounded memory.
func TestIdleConnectionsDoNotExcludeOthers(t *testing.T) {
	s := startServer(t, full())
	const request = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for i := range 1400 {
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 1 { // every other one says nothing
			continue
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("connection %d: %s, %v", i, response.Status, err)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/status"} {
		if status, body := fetch(t, "GET", "http://"+s.Address()+path, nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	_, metrics := fetch(t, "GET", "http://"+s.Address()+"/metrics", nil)
	for name, fits := range map[string]func(n float64) bool{
		"weir_admin_connections":               func(n float64) bool { return n <= maxConnections },
		"weir_admin_connections_evicted_total": func(n float64) bool { return n >= 1400-maxConnections },
		"weir_admin_connections_refused_total": func(n float64) bool { return n == 0 },
	} {
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(metrics)
		if found == nil {
			t.Errorf("no %s in the metrics", name)
		} else if n, err := strconv.ParseFloat(found[1], 64); err != nil || !fits(n) {
			t.Errorf("%s %s, %v", name, found[1], err)
		}
	}
}

// A connection whose request is being answered is not evicted. Operators are bounded apart from probes, and clients that follow something
// apart from requests and from those that follow something else: 32 traces keep no watch out.
func TestBusyOperatorsKeepNoProbeOut(t *testing.T) {
	config := full()
	entered, release := make(chan struct{}), make(chan struct{})
	config.Status = func() any {
		entered <- struct{}{}
		<-release
		return 1
	}
	follow := func(ctx context.Context, write func(any, bool) error) error {
		if err := write("begun", true); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	config.Trace = func(ctx context.Context, _ url.Values, write func(any, bool) error) error { return follow(ctx, write) }
	config.Configuration = &Configuration{Watch: func(ctx context.Context, _ uint64, write func(any, bool) error) error { return follow(ctx, write) }}
	s := startServer(t, config)
	caller := client.New(s.Address(), testToken)

	var consoles []io.ReadWriteCloser
	for range maxFollowers {
		console, err := caller.Console(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer console.Close()
		consoles = append(consoles, console)
	}
	ctx, end := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer end()
	begun := make(chan struct{})
	for range maxFollowers {
		group.Go(func() {
			if err := caller.Stream(ctx, "/trace", nil, func([]byte) (bool, error) { begun <- struct{}{}; return true, nil }); err != nil {
				t.Error(err)
			}
		})
		<-begun
	}
	if err := caller.Stream(t.Context(), "/trace", nil, nil); err == nil || !strings.Contains(err.Error(), "32 requests are being answered already") {
		t.Errorf("one more trace: %v", err)
	}
	if err := caller.Stream(t.Context(), "/config-watch", nil, func([]byte) (bool, error) { return false, nil }); err != nil {
		t.Errorf("the watch, while there are as many traces as there can be: %v", err)
	}
	for range maxOperators {
		group.Go(func() {
			if err := caller.Get(t.Context(), "/status", nil, new(any)); err != nil {
				t.Error(err)
			}
		})
		<-entered
	}
	defer close(release)
	if err := caller.Get(t.Context(), "/status", nil, new(any)); err == nil || !strings.Contains(err.Error(), "64 requests are being answered already") {
		t.Errorf("one more operator: %v", err)
	}
	for range 2 * maxConnections {
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status, body := fetch(t, "GET", "http://"+s.Address()+"/livez", nil); status != http.StatusOK {
		t.Errorf("a probe: %d %s", status, body)
	}
	for i, console := range consoles {
		fmt.Fprintln(console, "info")
		if answer, err := bufio.NewReader(console).ReadString('\n'); err != nil || answer != "did info\n" {
			t.Fatalf("console %d was evicted: %q, %v", i, answer, err)
		}
	}
}

// What /flows is requested: filters, orders, and a limit that keeps the first of all in that order.
func TestFlowQueries(t *testing.T) {
	config := full()
	config.Flows = func(yield func(v1.Flow) bool) {
		for i := range 100 {
			f := v1.Flow{Protocol: "udp", Client: fmt.Sprintf("10.0.%d.1:%d", 99-i, i), Service: "s", Backend: fmt.Sprint("b", i%3), Expires: float64((i*37)%100 - 1), State: "plain"}
			if i%2 == 1 {
				f.Protocol, f.State = "tcp", "established"
			}
			if !yield(f) {
				return
			}
		}
	}
	caller := client.New(startServer(t, config).Address(), testToken)
	for _, c := range []struct {
		query string
		n     int
		more  bool
		first string
	}{
		{"", 100, false, "10.0.99.1:0"},
		{"limit=7", 7, true, "10.0.99.1:0"},
		{"client=10.0.5.1", 1, false, "10.0.5.1:94"},
		{"client=10.0.4.0/23", 2, false, "10.0.5.1:94"},
		{"state=established&protocol=tcp&backend=b1", 17, false, "10.0.98.1:1"},
		{"sort=client&limit=5", 5, true, "10.0.0.1:99"},
		{"sort=client&client=10.0.4.0/23&limit=2", 2, false, "10.0.4.1:95"},
		{"sort=expires&limit=3", 3, true, "10.0.26.1:73"}, // 73*37 = 2701: expires in 0 s
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		var list v1.FlowList
		if err := caller.Get(t.Context(), "/flows", query, &list); err != nil || len(list.Flows) != c.n || list.More != c.more || list.Flows[0].Client != c.first {
			t.Errorf("%s: %d flows, more %t, %v; %+v", c.query, len(list.Flows), list.More, err, list.Flows[:min(2, len(list.Flows))])
		}
	}
	for _, bad := range []string{"limit=0", "limit=x", "client=example.org", "sort=size", "sort=client&limit=100001"} {
		query, _ := url.ParseQuery(bad)
		if err := caller.Get(t.Context(), "/flows", query, &v1.FlowList{}); err == nil || !strings.Contains(err.Error(), "write") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A list of all flows is written while it is read: the first lines arrive before the last flow is read.
func TestFlowsAreStreamed(t *testing.T) {
	config := full()
	arrived := make(chan struct{})
	const flows = 20_000
	config.Flows = func(yield func(v1.Flow) bool) {
		for i := range flows {
			if i == flows/2 {
				<-arrived
			}
			if !yield(v1.Flow{Protocol: "udp", Client: "10.0.0.1:5000", Service: "s", Backend: "b"}) {
				return
			}
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+startServer(t, config).Address()+"/flows?limit=1000000", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+testToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	in := bufio.NewReader(response.Body)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	first, err := in.ReadString('\n')
	close(arrived)
	rest, err2 := io.ReadAll(in)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	var list v1.FlowList
	if err := json.Unmarshal([]byte("{\"flows\": [\n"+first+string(rest)), &list); err != nil || len(list.Flows) != flows || list.More {
		t.Errorf("%d flows, more %t, %v", len(list.Flows), list.More, err)
	}
}
