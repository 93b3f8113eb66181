package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/docs/openapi"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// describedAPI is the description of an API, against which answers are held.
type describedAPI struct {
	*testing.T
	document object
	compiler *jsonschema.Compiler
	http     http.Client
	checked  map[string]bool // patterns of which an answer with 200 was seen
}

// read reads a document. A schema that lists properties refuses all others, as the description does not: readers ignore new ones.
func readAPI(t *testing.T, text []byte) *describedAPI {
	t.Helper()
	loaded, err := openapi3.NewLoader().LoadFromData(text)
	clitest.Must(t, err)
	if err := loaded.Validate(t.Context()); err != nil || !loaded.IsOpenAPI31OrLater() {
		t.Fatalf("no OpenAPI 3.1: %v", err)
	}
	strict, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	clitest.Must(t, err)
	a := &describedAPI{T: t, document: strict.(object), compiler: jsonschema.NewCompiler(), checked: map[string]bool{}}
	for _, schema := range a.document["components"].(object)["schemas"].(object) {
		schema.(object)["additionalProperties"] = false
	}
	a.compiler.AssertFormat()
	clitest.Must(t, a.compiler.AddResource("openapi.json", strict))
	return a
}

// at is the operation of a pattern, and where the document has it.
func (a *describedAPI) at(pattern string) (operation object, pointer []string) {
	method, _, _ := strings.Cut(pattern, " ")
	for path, item := range a.document["paths"].(object) {
		if operation, ok := item.(object)[strings.ToLower(method)].(object); ok && operation[admin.RouteKey] == pattern {
			return operation, []string{"paths", path, strings.ToLower(method)}
		}
	}
	return nil, nil
}

// schemaOf compiles the schema of an answer.
func (a *describedAPI) schemaOf(pattern string, status int, kind string) *jsonschema.Schema {
	a.Helper()
	operation, pointer := a.at(pattern)
	if operation == nil {
		a.Fatalf("%s is not described", pattern)
	}
	pointer = append(pointer, "responses", itoa(status))
	response, ok := operation["responses"].(object)[itoa(status)].(object)
	if !ok {
		a.Fatalf("%s: status %d is not described", pattern, status)
	}
	if reference, ok := response["$ref"].(string); ok {
		pointer = strings.Split(strings.TrimPrefix(reference, "#/"), "/")
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for i, one := range append(pointer, "content", kind, "schema") {
		if one = url.PathEscape(escape.Replace(one)); i < len(pointer) {
			pointer[i] = one
		} else {
			pointer = append(pointer, one)
		}
	}
	schema, err := a.compiler.Compile("openapi.json#/" + strings.Join(pointer, "/"))
	if err != nil {
		a.Fatalf("%s, status %d, %s: %v", pattern, status, kind, err)
	}
	return schema
}

// request is one to a running part.
type request struct {
	pattern, path, body string
	headers             map[string]string
	status              int
}

// holds sends a request, and checks the answer's status, headers and body. It returns the body, of a stream its first line.
func (a *describedAPI) holds(r request) []byte {
	a.Helper()
	method, path, _ := strings.Cut(r.pattern, " ")
	if r.path != "" {
		path = r.path
	}
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	made, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(r.body))
	clitest.Must(a.T, err)
	for name, value := range r.headers {
		made.Header.Set(name, value)
	}
	response, err := a.http.Do(made)
	clitest.Must(a.T, err)
	defer response.Body.Close()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	read := io.ReadAll
	if kind == "application/x-ndjson" {
		read = func(from io.Reader) ([]byte, error) { return bufio.NewReader(from).ReadBytes('\n') }
	}
	body, err := read(response.Body)
	clitest.Must(a.T, err)
	if response.StatusCode != r.status {
		a.Errorf("%s %s: %d %s, want %d", method, path, response.StatusCode, body, r.status)
		return nil
	}
	schema := a.schemaOf(r.pattern, r.status, kind)
	var value any = string(body)
	if strings.Contains(kind, "json") {
		value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body))
		clitest.Must(a.T, err)
	}
	if err := schema.Validate(value); err != nil {
		a.Errorf("%s %s: the answer is not as described: %v\n%.2000s", method, path, err, body)
	}
	operation, _ := a.at(r.pattern)
	if described, ok := operation["responses"].(object)[itoa(r.status)].(object); ok {
		headers, _ := described["headers"].(object)
		for name := range headers {
			if response.Header.Get(name) == "" {
				a.Errorf("%s %s: no header %s", method, path, name)
			}
		}
	}
	if r.status == http.StatusPreconditionFailed && response.Header.Get("ETag") == "" {
		a.Errorf("%s %s: no header ETag", method, path)
	}
	if r.status == http.StatusOK {
		a.checked[r.pattern] = true
	}
	return body
}

// describe reads what a running part says of itself, which is what it serves.
func describe(t *testing.T, p *clitest.Process) *describedAPI {
	t.Helper()
	a := readAPI(t, []byte(clitest.HTTPGet(t, p.Socket, "/openapi.json")))
	a.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.Socket)
	}}
	var routes []v1.Route
	clitest.Must(t, json.Unmarshal([]byte(clitest.HTTPGet(t, p.Socket, "/routes")), &routes))
	served := map[string]bool{}
	for _, route := range routes {
		served[route.Pattern] = true
		operation, _ := a.at(route.Pattern)
		if operation == nil {
			t.Errorf("%s is served and not described: add it to described()", route.Pattern)
			continue
		}
		if security, limited := operation["security"].([]any); route.Open != (limited && len(security) == 0) {
			t.Errorf("%s: open %v, described with security %v", route.Pattern, route.Open, security)
		}
	}
	for path, item := range a.document["paths"].(object) {
		for method, operation := range item.(object) {
			if pattern, _ := operation.(object)[admin.RouteKey].(string); !served[pattern] {
				t.Errorf("%s %s is described and not served", method, path)
			}
		}
	}
	for pattern := range served { // what needs nothing
		if method, path, _ := strings.Cut(pattern, " "); method == "GET" && !strings.Contains(path, "{") {
			a.holds(request{pattern: pattern, status: http.StatusOK})
		}
	}
	return a
}

// unseen reports patterns of which no answer was seen.
func (a *describedAPI) unseen(allowed ...string) {
	a.Helper()
	for path, item := range a.document["paths"].(object) {
		for _, operation := range item.(object) {
			pattern, _ := operation.(object)[admin.RouteKey].(string)
			if !a.checked[pattern] && !slices.Contains(allowed, pattern) {
				a.Errorf("%s: no answer of %s was seen", path, pattern)
			}
		}
	}
}

// What a balancer answers is as it describes itself: every path, its refusals, headers and streams.
func TestAnswersOfABalancerAreAsDescribed(t *testing.T) {
	file, addresses := filepath.Join(t.TempDir(), "weir.yaml"), clitest.FreeAddresses(t, 2)
	clitest.Must(t, os.WriteFile(file, []byte(announcing(t)+clitest.LBConfig(addresses[0], clitest.UDPEcho(t), clitest.UDPEcho(t))), 0o600))
	a := describe(t, clitest.Start(t, "lb", "lb", "run", "-c", file))
	const object, one = "/config/{path...}", "/config/services/s/backends/b0"
	put := `{"address": "127.0.0.1", "port": 9}`
	for _, r := range []request{
		{"GET " + object, one, "", nil, 200},
		{"GET " + object, "/config/services/x", "", nil, 404},
		{"PUT " + object, "/config/services/s/backends/c", put, nil, 200},
		{"PUT " + object, "/config/services/s/backends/b0", put, map[string]string{"If-None-Match": "*"}, 409},
		{"PATCH " + object, one, `{"weight": 5}`, nil, 200},
		{"PATCH " + object, one + "?dry_run=true", `{"weight": 7}`, nil, 200}, // with services
		{"PATCH " + object, one, `{"weight": -5}`, nil, 400},
		{"PATCH " + object, one, `{"weight": 6}`, map[string]string{"If-Match": "1"}, 412},
		{"DELETE " + object, "/config/services/s/backends/c", "", nil, 200},
		{"DELETE /config", "", "", nil, 400},
		{"POST /config", "", `{"changes": [{"op": "merge", "path": "/services/s", "value": {"new_flow_rate": 9}}]}`, nil, 200},
		{"POST /config", "", `{"changes": [], "if": "other"}`, nil, 412},
		{"POST /config", "", `{"changes": "` + strings.Repeat("x", 9<<20) + `"}`, nil, 413},
		{"PATCH /config", "", `{"maglev_size": 2003}`, nil, 200},
		{"PUT /config", "", `{"services": []}`, map[string]string{"If-Match": "1"}, 412},
		{"GET /config-diff", "", "", nil, 200}, // with differences
		{"POST /config-watch", "/config-watch?since=1", "", nil, 200},
		{"POST /config-watch", "/config-watch?since=x", "", nil, 400},
		{"POST /config-revert", "/config-revert?if=1", "", nil, 412},
		{"POST /config-revert", "", "", nil, 200},
		{"POST /config-save", "", "", nil, 200},
		{"POST /drain", "/drain?service=s&backend=b0", "", nil, 200},
		{"GET /status", "", "", nil, 200}, // with an override
		{"POST /undrain", "/undrain?service=s&backend=b0", "", nil, 200},
		{"POST /down", "/down?service=x", "", nil, 404},
		{"POST /down", "/down", "", nil, 400},
		{"POST /up", "/up?service=s", "", nil, 200},
		{"POST /down", "/down?service=s&backend=b1", "", nil, 200},
		{"GET /flows", "/flows?limit=0", "", nil, 400},
		{"GET /events", "/events?after=x", "", nil, 400},
		{"POST /applied", "", "", nil, 200},
		{"POST /announce/withdraw", "", "", nil, 200},
		{"POST /announce/resume", "", "", nil, 200},
		{"POST /console", "", "info\n", nil, 200},
	} {
		a.holds(r)
	}
	a.unseen("PUT /config", "DELETE /config")
	a.refusesOthers(a.holds(request{pattern: "GET /status", status: 200}))
}

// refusesOthers: a status that lacks a field, or has one more, does not pass.
func (a *describedAPI) refusesOthers(status []byte) {
	a.Helper()
	schema := a.schemaOf("GET /status", 200, "application/json")
	for name, spoil := range map[string]func(status, service object){
		"nothing":                      func(object, object) {},
		"a field is missing":           func(status, _ object) { delete(status, "generation") },
		"a field is new":               func(status, _ object) { status["new"] = 1 },
		"a field of a part is missing": func(_, service object) { delete(service, "state") },
		"a field of a part is new":     func(_, service object) { service["new"] = 1 },
		"a field has another type":     func(_, service object) { service["name"] = 1 },
		"a time is none":               func(status, _ object) { status["applied_at"] = "noon" },
	} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(status))
		clitest.Must(a.T, err)
		spoil(value.(object), value.(object)["services"].([]any)[0].(object))
		if err := schema.Validate(value); (err == nil) != (name == "nothing") {
			a.Errorf("%s: %v", name, err)
		}
	}
}

// What the other parts answer is as they describe themselves.
func TestAnswersOfOtherPartsAreAsDescribed(t *testing.T) {
	addresses := clitest.FreeAddresses(t, 6)
	for part, c := range map[string]struct {
		args   []string
		more   []request
		unseen []string
	}{
		"nat": {[]string{"nat", addresses[0], addresses[1]}, []request{
			{"POST /drain", "/drain?service=x", "", nil, 404}, {"POST /console", "", "info\n", nil, 200},
		}, []string{"POST /drain", "POST /undrain", "POST /down", "POST /up"}},
		"coap": {[]string{"coap", "server", "--listen", "127.0.0.1:0", "--dtls-cluster", clitest.ClusterArgs(addresses[2:4], 0), "--workers", "1"}, []request{
			{"POST /owners", "", "", nil, 200}, {"POST /drain", "/drain?to=300", "", nil, 400}, {"POST /undrain", "", "", nil, 400}, {"POST /upgrade", "", "", nil, 200},
		}, []string{"POST /drain", "POST /undrain"}},
		"turn": {[]string{"turn", "gateway", "turn://u:p@" + addresses[4], "--workers", "1"}, []request{
			{"GET /users", "/users?sort=x", "", nil, 400}, {"POST /allocations", "", `{"allocations": []}`, nil, 200}, {"POST /allocations", "", `[`, nil, 400}, {"POST /upgrade", "", "", nil, 200},
		}, nil},
	} {
		t.Run(part, func(t *testing.T) {
			p := clitest.Start(t, part, c.args...)
			netlabtest.Eventually(t, "the part is ready", func() bool { return clitest.HTTPGet(t, p.Socket, "/readyz") == "ready\n" })
			a := describe(t, p)
			for _, r := range c.more {
				a.holds(r)
			}
			a.unseen(c.unseen...)
		})
	}
}

// All documents are valid. `weir api` prints them.
func TestOpenAPIDocumentsAreValid(t *testing.T) {
	parts := slices.Sorted(maps.Keys(described()))
	if got := openapi.Parts(); !slices.Equal(got, parts) {
		t.Fatalf("documents of %q, want %q", got, parts)
	}
	for _, part := range parts {
		out, code := clitest.Weir(t, "api", part)
		if code != 0 || out != string(openapi.Of(part)) {
			t.Errorf("weir api %s: %d %.100s", part, code, out)
		}
		a := readAPI(t, openapi.Of(part))
		for pattern, o := range described()[part] {
			for _, status := range append([]int{200}, o.refusals...) {
				kind := "application/json"
				if status == 200 {
					kind = slices.Collect(maps.Keys(contentOf(a, pattern)))[0]
				}
				a.schemaOf(pattern, status, kind)
			}
		}
	}
	if out, code := clitest.Weir(t, "api", "x"); code != 2 || !strings.Contains(out, fmt.Sprintf("no part %q", "x")) {
		t.Errorf("another part: %d %s", code, out)
	}
}

func contentOf(a *describedAPI, pattern string) object {
	operation, _ := a.at(pattern)
	return operation["responses"].(object)["200"].(object)["content"].(object)
}
