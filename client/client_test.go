package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/control/admin"
)

// twoPackets is a trace with a packet that is forwarded and one that is dropped.
func twoPackets(ctx context.Context, query url.Values, write func(line any, flush bool) error) error {
	if query.Get("service") == "" {
		return errors.New("name a service")
	}
	for _, line := range []v1.TraceLine{
		{},
		{Packet: &v1.TracedPacket{Source: "198.51.100.7:40000", Action: "forward", Reason: "maglev"}},
		{Packet: &v1.TracedPacket{Source: "198.51.100.7:40001", Action: "drop", Reason: "no_backend"}},
	} {
		if err := write(line, true); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// answering returns a client of a server with one answer for all requests.
func answering(t *testing.T, handle http.HandlerFunc, parts ...string) *client.Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return client.New(server.Listener.Addr().String(), "0123456789abcdef", parts...)
}

func writeJSON(t *testing.T, w io.Writer, value any) {
	t.Helper()
	if err := json.NewEncoder(w).Encode(value); err != nil {
		t.Error(err)
	}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// A refusal has the status and the server's words, from a server that answers in JSON and from any other one.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{400, `{"error": "limit \"x\": write 1 to 10"}`, `limit "x": write 1 to 10`},
		{401, `{"error": "missing or wrong token"}`, "missing or wrong token"},
		{404, `{"error": "unknown target: no service \"x\""}`, `unknown target: no service "x"`},
		{404, "404 page not found", "GET /status at"},
		{409, `{"error": "map is full"}`, "map is full"},
		{503, `{"error": 7}`, "503 Service Unavailable"},
		{502, "<html>" + strings.Repeat("x", 1<<20), "502 Bad Gateway"},
	} {
		_, err := answering(t, answer(c.status, c.body)).LBStatus(t.Context())
		if client.StatusOf(err) != c.status || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %d %v, want %s", c.status, client.StatusOf(err), err, c.want)
		}
	}
	if got := client.StatusOf(errors.New("no answer")); got != 0 {
		t.Errorf("an error of another kind has the status %d", got)
	}
}

// Answers that are not JSON, end early or never end are errors.
func TestBadAnswers(t *testing.T) {
	for body, want := range map[string]string{
		"":                          "unexpected end",
		"{":                         "unexpected end",
		`{"generation": "x"}`:       "cannot unmarshal",
		"[1, 2":                     "unexpected end",
		strings.Repeat(" ", 70_000): "longer than 65536 bytes",
	} {
		c := answering(t, answer(200, body))
		client.Limit(c, 65536)
		if _, err := c.LBStatus(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", body, err, want)
		}
	}
	for _, body := range []string{"", "{", `{"flows": [{"client": "a"`, `{"flows": [{"client": 1}]}`, `{"flows": [{"client": "a"}`, `{"flows": []`} {
		if _, err := answering(t, answer(200, body)).EachFlow(t.Context(), client.FlowQuery{}, func(*v1.Flow) bool { return true }); err == nil {
			t.Errorf("flows %q are no error", body)
		}
	}
	each := func(*v1.TraceLine) bool { return true }
	for body, want := range map[string]string{
		"":                                 "ended the answer",
		"{}\n":                             "ended the answer",
		"x\n":                              "a line of the trace",
		strings.Repeat("x", 70_000) + "\n": "too long",
	} {
		if err := answering(t, answer(200, body)).Trace(t.Context(), client.TraceQuery{}, each); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("trace %.20q: %v, want %s", body, err, want)
		}
	}
}

// A reader ignores what a newer server adds.
func TestNewFieldsAreIgnored(t *testing.T) {
	status, err := answering(t, answer(200, `{"generation": 7, "new": {"x": 1}, "services": [{"name": "s", "newer": 1}]}`)).LBStatus(t.Context())
	if err != nil || status.Generation != 7 || status.Services[0].Name != "s" {
		t.Errorf("%+v, %v", status, err)
	}
}

// Every method sends its path, query and token.
func TestRequests(t *testing.T) {
	var got string
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + string(body)
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			got += " without token"
		}
		answer := "{}"
		if r.URL.Path == "/routes" {
			answer = "[]"
		}
		io.WriteString(w, answer)
	})
	ctx := t.Context()
	for want, request := range map[string]func() error{
		"GET /status":                              func() error { _, err := c.NATStatus(ctx); return err },
		"GET /routes":                              func() error { _, err := c.Routes(ctx); return err },
		"POST /drain?backend=a&service=s":          func() error { _, err := c.Drain(ctx, "s", "a"); return err },
		"POST /undrain?backend=&service=s":         func() error { _, err := c.Undrain(ctx, "s", ""); return err },
		"POST /down?backend=a%2Fb&service=s":       func() error { _, err := c.Down(ctx, "s", "a/b"); return err },
		"POST /up?backend=a&service=s":             func() error { _, err := c.Up(ctx, "s", "a"); return err },
		"GET /flows":                               func() error { _, err := c.Flows(ctx, client.FlowQuery{}); return err },
		"GET /flows?client=192.0.2.0%2F24&limit=3": func() error { _, err := c.Flows(ctx, client.FlowQuery{Client: "192.0.2.0/24", Limit: 3}); return err },
		"GET /users?limit=2&sort=bytes&user=u":     func() error { _, err := c.Users(ctx, client.UserQuery{User: "u", Sort: "bytes", Limit: 2}); return err },
		"GET /allocations":                         func() error { _, err := c.Export(ctx); return err },
		`POST /allocations{"allocations": []}`:     func() error { _, err := c.Import(ctx, strings.NewReader(`{"allocations": []}`)); return err },
		"POST /owners": func() error {
			if err := c.CoAPOwners(ctx, func(*v1.CoAPOwners) error { return io.EOF }); err != io.EOF {
				return fmt.Errorf("%w", err)
			}
			return nil
		},
		"POST /applied": func() error { return c.Applied(ctx, func(*v1.Applied) bool { return false }) },
		"POST /trace?host=192.0.2.1&reason=a&reason=b": func() error {
			err := c.Trace(ctx, client.TraceQuery{Host: "192.0.2.1", Reasons: []string{"a", "b"}}, func(*v1.TraceLine) bool { return false })
			if err != nil && strings.Contains(err.Error(), "ended the answer") {
				return nil
			}
			return err
		},
	} {
		if err := request(); err != nil || got != want {
			t.Errorf("%s: sent %s, %v", want, got, err)
		}
	}
}

// The end of the context ends a request that no program answers, and is no error of a stream.
func TestContextEnds(t *testing.T) {
	begun := make(chan struct{}, 1)
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		io.WriteString(w, "{}\n")
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := answering(t, hang).LBStatus(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("status: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if err := answering(t, hang).Trace(ctx, client.TraceQuery{}, func(*v1.TraceLine) bool { return true }); err != nil {
		t.Errorf("trace: %v", err)
	}
}

// gateway answers as the processes of an upgrade do: pids in turn, the last one for ever.
func gateway(t *testing.T, upgrades int, pids ...int) *client.Client {
	t.Helper()
	var requested atomic.Int32
	return answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upgrade" {
			io.WriteString(w, `{"pid": 1}`)
			return
		}
		n := int(requested.Add(1)) - 1
		status := v1.TurnStatus{TurnProcess: v1.TurnProcess{PID: pids[min(n, len(pids)-1)], Version: "v", Handover: v1.HandoverStats{Sockets: 3}}}
		if n > 0 {
			status.Handover.Upgrades = upgrades
		}
		writeJSON(t, w, status)
	})
}

func TestUpgrade(t *testing.T) {
	done, err := gateway(t, 1, 1, 1, 1, 2).Upgrade(t.Context())
	if err != nil || done.PID != 2 || done.Sockets != 3 || done.Upgrades != 1 || done.Seconds <= 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := gateway(t, 0, 1, 2).Upgrade(t.Context()); err == nil || !strings.Contains(err.Error(), "the old one is back, as process 2") {
		t.Errorf("the old binary serves: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upgrade" {
			cancel()
		}
		io.WriteString(w, `{"pid": 1}`)
	})
	if _, err := stuck.Upgrade(ctx); err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("no new process: %v", err)
	}
	refusing := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upgrade" {
			w.WriteHeader(400)
			io.WriteString(w, `{"error": "the binary does not run"}`)
			return
		}
		io.WriteString(w, `{"pid": 1}`)
	})
	if _, err := refusing.Upgrade(t.Context()); client.StatusOf(err) != 400 || err.Error() != "not upgraded: the binary does not run" {
		t.Errorf("refused: %d %v", client.StatusOf(err), err)
	}
}

// What the client sends is what the server takes: every path of the server's own list that has a method of the client is asked.
func TestServerTakesTheQueries(t *testing.T) {
	address, stop := balancer()
	defer stop()
	c := client.New(address, "", "lb")
	list, err := c.Flows(t.Context(), client.FlowQuery{Service: "coaps", Backend: "a", Protocol: "udp", Client: "198.51.100.0/24", Sort: "client", Limit: 1})
	if err != nil || len(list.Flows) != 1 || !list.More || list.Flows[0].Client != "198.51.100.7:40000" {
		t.Errorf("%+v, %v", list, err)
	}
	more, err := c.EachFlow(t.Context(), client.FlowQuery{Limit: 2}, func(*v1.Flow) bool { return true })
	if err != nil || !more {
		t.Errorf("more %t, %v", more, err)
	}
	if _, err := c.Flows(t.Context(), client.FlowQuery{Sort: "size"}); client.StatusOf(err) != 400 {
		t.Errorf("a wrong query: %v", err)
	}
	if _, err := client.New(address, "", "turn").TurnStatus(t.Context()); err == nil || !strings.Contains(err.Error(), "is weir lb, not weir turn") {
		t.Errorf("another part: %v", err)
	}
	routes, err := c.Routes(t.Context())
	if err != nil || !slices.Contains(routes, v1.Route{Pattern: "GET /flows"}) || !slices.Contains(routes, v1.Route{Pattern: "GET /livez", Open: true}) {
		t.Errorf("%+v, %v", routes, err)
	}
	var refused *client.Error
	if err := c.Trace(t.Context(), client.TraceQuery{}, nil); !errors.As(err, &refused) || refused.Message != "name a service" {
		t.Errorf("%v", err)
	}
}

// Over TCP the token is the credential.
func TestToken(t *testing.T) {
	server, err := admin.Open(admin.Config{Address: "127.0.0.1:0", Token: "0123456789abcdef", Part: "lb", Status: func() any { return status() }})
	if err != nil {
		t.Fatal(err)
	}
	go server.Run(t.Context()) //nolint:errcheck // ends with the test
	for token, want := range map[string]int{"0123456789abcdef": 0, "": 401, "another": 401} {
		if _, err := client.New(server.Address(), token).LBStatus(t.Context()); client.StatusOf(err) != want || (err == nil) != (want == 0) {
			t.Errorf("token %q: %v, want status %d", token, err, want)
		}
	}
}

// The page shows code that runs.
func TestPageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("no block of Go on the page")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		indented := strings.ReplaceAll("\n"+strings.TrimSpace(code), "\n", "\n\t")
		if !strings.Contains(string(example), indented) {
			t.Errorf("this block is not in example_test.go:\n%s", code)
		}
	}
}
