package balancing

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const echoFile = `# the edge
hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
services:
- name: echo # what clients use
  vips: [{address: 192.0.2.1, protocol: udp, port: 5784}]
  backends:
  # rack 1
  - {name: a, address: 10.0.0.1, port: 5784} # old
  - {name: b, address: 10.0.0.2, port: 5784}
`

// noPackets is a data path that carries nothing.
type noPackets struct{}

func (noPackets) Caps() lb.Caps             { return lb.AllCaps() }
func (noPackets) Apply(*lb.Snapshot) error  { return nil }
func (noPackets) Run(context.Context) error { return nil }
func (noPackets) Close() error              { return nil }

// api is the admin API of a loop with echoFile.
type api struct {
	*testing.T
	file string
	http http.Client
}

func serveConfiguration(t *testing.T) *api {
	t.Helper()
	a := &api{T: t, file: filepath.Join(t.TempDir(), "weir.yaml")}
	if err := os.WriteFile(a.file, []byte(echoFile), 0o600); err != nil {
		t.Fatal(err)
	}
	loop := control.New(noPackets{}, control.Options{})
	if _, err := loop.LoadFile(config.NewFile(a.file)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "lb.sock")
	server, err := admin.Open(admin.Config{Address: "unix:" + socket, Part: "lb", Configuration: Configuration(loop)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	a.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	return a
}

// do sends a request. headers are pairs of a name and a value.
func (a *api) do(method, path, body string, headers ...string) (status int, etag, text string) {
	a.Helper()
	request, err := http.NewRequestWithContext(a.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := a.http.Do(request)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("ETag"), string(read)
}

// changes sends a request that is answered with 200, and returns the answer. Its ETag header is that of the body.
func (a *api) changes(method, path, body string, headers ...string) (answer v1.ConfigAnswer) {
	a.Helper()
	status, etag, text := a.do(method, path, body, headers...)
	if err := json.Unmarshal([]byte(text), &answer); status != http.StatusOK || err != nil || etag != `"`+answer.ETag+`"` {
		a.Fatalf("%s %s: %d %s %s %v", method, path, status, etag, text, err)
	}
	return answer
}

// all is the configuration in force with its number and etag.
func (a *api) all() string {
	a.Helper()
	status, _, text := a.do("GET", "/config", "")
	if status != http.StatusOK {
		a.Fatalf("%d %s", status, text)
	}
	return text
}

// Each method made again changes nothing, and the configuration keeps its etag.
func TestChangesOverHTTPAreIdempotent(t *testing.T) {
	a := serveConfiguration(t)
	const c = "/config/services/echo/backends/c"
	for _, r := range []struct {
		method, path, body string
		headers            []string
	}{
		{"PUT", c, `{"address": "10.0.0.3", "port": 5784}`, nil},
		{"PUT", "/config/services/echo/backends/d", `{"address": "10.0.0.4", "port": 5784}`, []string{"If-None-Match", "*"}},
		{"PUT", "/config/services/echo/vips/udp:192.0.2.0%2F24:5784", `{}`, nil},
		{"PUT", "/config/maglev_size", `2003`, nil},
		{"PATCH", c, `{"weight": 5}`, nil},
		{"PATCH", c, `{"weight": null, "port": 5785}`, nil},
		{"PATCH", "/config", `{"services": [{"name": "echo", "backends": [{"name": "a", "weight": 7}]}]}`, nil},
		{"DELETE", c, ``, nil},
		{"DELETE", "/config/services/echo/backends/a/weight", ``, nil},
		{"DELETE", "/config/services/other/backends/a", ``, nil},
		{"POST", "/config", `{"changes": [{"op": "remove", "path": "/services/echo/backends/d"}, {"op": "add", "path": "/services/echo/backends/e", "value": {"address": "10.0.0.5", "port": 5784}}]}`, nil},
		{"POST", "/config-save", ``, nil},
		{"POST", "/config-revert", ``, nil},
	} {
		before := a.all()
		once := a.changes(r.method, r.path, r.body, r.headers...)
		if absent := strings.Contains(r.path, "/other/") || strings.HasPrefix(r.path, "/config-"); once.Changed == absent {
			t.Errorf("%s %s: changed %v", r.method, r.path, once.Changed)
		}
		after := a.all()
		twice := a.changes(r.method, r.path, r.body, r.headers...)
		if twice.Changed || twice.ETag != once.ETag || a.all() != after || once.Changed == (after == before) && r.path != "/config-save" {
			t.Errorf("%s %s: once %+v, twice %+v", r.method, r.path, once, twice)
		}
	}
	text, err := os.ReadFile(a.file)
	if want := strings.Replace(echoFile, "maglev_size: 1009", "maglev_size: 2003", 1); err != nil || !strings.HasPrefix(string(text), want[:strings.Index(want, "  vips")]) || !strings.Contains(string(text), "# rack 1\n") {
		t.Errorf("saved: %v\n%s", err, text)
	}
}

// A condition that does not hold is refused with what is in force, for every method, and changes nothing.
func TestConditionsOverHTTP(t *testing.T) {
	a := serveConfiguration(t)
	const path = "/config/services/echo/backends/a"
	first := a.changes("PATCH", path, `{"weight": 5}`)
	second := a.changes("PATCH", path, `{"weight": 6}`, "If-Match", `"`+first.ETag+`"`)
	now := a.all()
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		for _, condition := range []string{`"` + first.ETag + `"`, "2", `"other"`} {
			status, etag, text := a.do(method, path, `{"address": "10.0.0.9", "port": 1}`, "If-Match", condition)
			var refusal v1.Refusal
			if err := json.Unmarshal([]byte(text), &refusal); err != nil || status != http.StatusPreconditionFailed || refusal.ETag != second.ETag || refusal.Generation != 3 || etag != `"`+second.ETag+`"` {
				t.Errorf("%s if %s: %d %s %s", method, condition, status, etag, text)
			}
		}
	}
	for _, request := range [][2]string{{"/config", `{"if": "` + first.ETag + `", "changes": []}`}, {"/config-save?if=1", ``}, {"/config-revert?if=1", ``}} {
		if status, _, text := a.do("POST", request[0], request[1]); status != http.StatusPreconditionFailed {
			t.Errorf("POST %s: %d %s", request[0], status, text)
		}
	}
	if a.all() != now {
		t.Errorf("a refused request has changed %s to %s", now, a.all())
	}
	for _, condition := range []string{"3", `W/"` + second.ETag + `"`, "*"} {
		if answer := a.changes("PATCH", path, `{"weight": 6}`, "If-Match", condition); answer.Changed {
			t.Errorf("if %s: %+v", condition, answer)
		}
	}
}

// A batch with one wrong element changes nothing, wherever it is, and the error names it.
func TestBatchesOverHTTPAreMadeAsAWhole(t *testing.T) {
	a := serveConfiguration(t)
	good := []string{
		`{"op": "merge", "path": "/services/echo/backends/a", "value": {"weight": 5}}`,
		`{"op": "add", "path": "/services/echo/backends/c", "value": {"address": "10.0.0.3", "port": 5784}}`,
		`{"op": "remove", "path": "/services/echo/backends/b"}`,
	}
	before := a.all()
	for _, wrong := range []struct {
		change, want string
		status       int
	}{
		{`{"op": "merge", "path": "/services/other/backends/a", "value": {"weight": 5}}`, "changes[%d]: /services/other: there is no such object", http.StatusNotFound},
		{`{"op": "add", "path": "/services/echo/backends/a", "value": {"address": "10.0.0.9"}}`, "changes[%d]: /services/echo/backends/a: the object exists", http.StatusConflict},
		{`{"op": "merge", "path": "/services/echo", "value": {"mode": "x"}}`, "/services/echo/mode: ", http.StatusBadRequest},
		{`{"op": "move", "path": "/services/echo"}`, `changes[%d]: op "move" is not known`, http.StatusBadRequest},
		{`{"op": "set", "path": "/services/echo/backends/a//weight", "value": 1}`, "changes[%d]: path ", http.StatusBadRequest},
	} {
		for at := range len(good) + 1 {
			batch := append(append(append([]string{}, good[:at]...), wrong.change), good[at:]...)
			status, _, text := a.do("POST", "/config", `{"changes": [`+strings.Join(batch, ",")+`]}`)
			want := wrong.want
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, at)
			}
			var refusal v1.Refusal
			if err := json.Unmarshal([]byte(text), &refusal); err != nil || status != wrong.status || !strings.Contains(refusal.Error, want) {
				t.Errorf("%s: %d %s, want %d %s", wrong.change, status, text, wrong.status, want)
			}
			if now := a.all(); now != before {
				t.Fatalf("%s at %d has changed the configuration to %s", wrong.change, at, now)
			}
		}
	}
	if answer := a.changes("POST", "/config", `{"changes": [`+strings.Join(good, ",")+`]}`); answer.Generation != 2 || len(answer.Differences) != 3 {
		t.Errorf("%+v", answer)
	}
}

// What is no change is refused with its status.
func TestRefusalsOverHTTP(t *testing.T) {
	a := serveConfiguration(t)
	before := a.all()
	for _, r := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/config/services/echo/backends/a", `{"port":`, 400, "the body is not JSON"},
		{"PATCH", "/config/services/echo/backends/a", `{"port": 70000}`, 400, "/services/echo/backends/a/port: "},
		{"PATCH", "/config/services/echo/backends/a?dry_run=perhaps", `{}`, 400, "write true or false"},
		{"PUT", "/config/services/other/backends/a", `{"address": "10.0.0.9"}`, 404, "there is no such object"},
		{"GET", "/config/services/other", ``, 404, "there is no such object"},
		{"DELETE", "/config", ``, 400, "cannot be removed"},
		{"POST", "/config", `{"changes": [], "force": true}`, 400, "unknown field"},
		{"POST", "/config", `{"changes": [{"op": "set", "path": "/hash_key", "value": "` + strings.Repeat("0", 9<<20) + `"}]}`, 413, "too large"},
		{"POST", "/config-watch?since=9", ``, 400, "configuration 1 is in force"},
		{"POST", "/config-watch?since=-1", ``, 400, "since=-1"},
		{"PUT", "/config-diff", ``, 405, ""},
	} {
		status, _, text := a.do(r.method, r.path, r.body)
		if status != r.status || !strings.Contains(text, r.want) {
			t.Errorf("%s %s: %d %.200s, want %d %s", r.method, r.path, status, text, r.status, r.want)
		}
	}
	if a.all() != before {
		t.Error("a refused request has changed the configuration")
	}
}
