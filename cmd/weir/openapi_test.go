package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/docs/openapi"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/control/admin"
)

// operation describes what a route does.
type operation struct {
	paths    []string // as OpenAPI writes them; nil: that of the pattern
	summary  string
	query    []parameter
	headers  []parameter
	body     any   // of the type of the request's JSON; nil: there is none
	answer   any   // of the type of the answer's JSON; nil: text
	lines    bool  // the answer goes on: a JSON value on each line
	open     bool  // no credential
	etag     bool  // the answer has the header ETag
	refusals []int // besides those of every guarded route
}

// parameter is one of the query or a header.
type parameter struct {
	name, about string
	schema      object
	required    bool
}

func textParameter(name, about string) parameter {
	return parameter{name: name, about: about, schema: object{"type": "string"}}
}

func flagParameter(name, about string) parameter {
	return parameter{name: name, about: about, schema: object{"type": "boolean"}}
}

func numberParameter(name, about string, minimum, maximum int) parameter {
	return parameter{name: name, about: about, schema: object{"type": "integer", "minimum": minimum, "maximum": maximum}}
}

// anyJSON is a value without a type in api/v1.
type anyJSON = json.RawMessage

// probes are what every part serves.
func probes() map[string]operation {
	return map[string]operation{
		"GET /livez":        {summary: "Does the process serve? 200 while it does.", open: true},
		"GET /live":         {summary: "As /livez.", open: true},
		"GET /readyz":       {summary: "Is the part ready? 200 once a configuration is in force, else 503 with the reason as text.", open: true},
		"GET /ready":        {summary: "As /readyz.", open: true},
		"GET /metrics":      {summary: "All metrics, as text for Prometheus.", open: true},
		"GET /events":       {summary: "The newest log records, with their names.", query: []parameter{numberParameter("after", "Only records with a greater number.", 0, 1<<53)}, answer: v1.EventList{}, refusals: []int{400}},
		"GET /history":      {summary: "The last hour of the plots of the dashboard, a point every ten seconds.", answer: v1.History{}},
		"GET /routes":       {summary: "All paths that this process serves, and which of them need no credential.", answer: []v1.Route{}},
		"GET /openapi.json": {summary: "This description, with the paths that this process serves.", answer: anyJSON{}},
		"GET /":             {summary: "The dashboard, as HTML."},
	}
}

func overrides() map[string]operation {
	one := func(summary string) operation {
		return operation{
			summary: summary + " It lasts until it is taken back, or until the process ends.", answer: v1.OverrideAnswer{}, refusals: []int{400, 404, 409},
			query: []parameter{{name: "service", about: "Its name.", schema: object{"type": "string"}, required: true}, textParameter("backend", "Its name; without one the whole service.")},
		}
	}
	return map[string]operation{
		"POST /drain":   one("Give a backend no new flows; its old ones stay."),
		"POST /down":    one("Take a backend out at once: its old flows go elsewhere too."),
		"POST /up":      one("Give a backend new flows whatever its probe says."),
		"POST /undrain": one("Take back drain, down or up."),
	}
}

func flowOperations() map[string]operation {
	sorts := object{"type": "string", "enum": []any{"client", "service", "backend", "expires"}}
	return map[string]operation{
		"GET /flows": {summary: "The flows that the data path remembers.", answer: v1.FlowList{}, refusals: []int{400}, query: []parameter{
			textParameter("service", "Only of this one."), textParameter("backend", "Only of this one."), textParameter("protocol", "Only tcp, udp, sctp or icmp."), textParameter("client", "Only of this address or prefix."),
			textParameter("state", "Only plain, opening, established or closing."),
			{name: "sort", about: "The order; without one there is none.", schema: sorts},
			numberParameter("limit", "Default 1000; with sort at most 100000.", 1, v1.MaxFlows),
		}},
		"POST /console": {summary: "Lines of the console of the data path udp, as text; the answers are text too. With Upgrade: " + v1.ConsoleProtocol + " the connection is a stream of lines both ways."},
	}
}

// configPaths are the objects of a configuration that have paths of their own.
func configPaths() []string {
	const services = "/config/services/{service}"
	return []string{"/config/{key}", services, services + "/backends/{backend}", services + "/vips/{vip}", services + "/flows/{rule}"}
}

func configOperations() map[string]operation {
	match := textParameter("If-Match", "Only if the configuration with this etag or number is in force; else 412.")
	flags := []parameter{flagParameter("dry_run", "Say what would change, and change nothing."), flagParameter("write", "Write the change to the file too, with its comments.")}
	change := func(summary string, body any, headers ...parameter) operation {
		return operation{summary: summary + " Made again, it has no further effect.", body: body, answer: v1.ConfigAnswer{}, etag: true, query: flags, headers: append(headers, match), refusals: []int{400, 404, 409, 412, 413}}
	}
	all := map[string]operation{
		"GET /config":      {summary: "The configuration in force, with secrets.", answer: v1.Configuration{}, etag: true, refusals: []int{404}},
		"PUT /config":      change("Make the whole configuration exactly this.", anyJSON{}),
		"PATCH /config":    change("Merge keys into the configuration (RFC 7396, with named objects found by name).", anyJSON{}),
		"POST /config":     change("Make a batch of changes, all or none. The keys if, dry_run and write of the body are as the header and the query.", v1.ConfigRequest{}),
		"DELETE /config":   {summary: "Refused: the whole configuration cannot be removed.", answer: v1.ConfigAnswer{}, refusals: []int{400}},
		"GET /config-diff": {summary: "How the configuration in force differs from its file.", answer: v1.ConfigDiff{}, refusals: []int{400}},
		"POST /config-watch": {
			summary: "A line for each configuration that comes into force, each one once, until the client disconnects.", answer: v1.ConfigEvent{}, lines: true, refusals: []int{400},
			query: []parameter{numberParameter("since", "The number after which the stream begins; 0: with the one in force.", 0, 1<<53)},
		},
		"GET /config/{path...}":    {summary: "An object of the configuration in force.", answer: v1.Configuration{}, etag: true, refusals: []int{400, 404}},
		"PUT /config/{path...}":    change("Make an object exactly this. The object around it must be there.", anyJSON{}, textParameter("If-None-Match", "With *: only if there is no other object of this name; else 409.")),
		"PATCH /config/{path...}":  change("Merge keys into an object; null removes one (RFC 7396). An object that is not there is made.", anyJSON{}),
		"DELETE /config/{path...}": change("Take an object out, if it is there.", nil),
	}
	for path, summary := range map[string]string{"save": "Write the configuration in force to its file, with its comments.", "revert": "End all run-time changes: what the file says is in force."} {
		o := change(summary, nil)
		o.query = []parameter{textParameter("if", "As If-Match.")}
		all["POST /config-"+path] = o
	}
	for pattern, o := range all {
		if strings.HasSuffix(pattern, "{path...}") {
			o.paths = configPaths()
			all[pattern] = o
		}
	}
	return all
}

func balancerOperations() map[string]operation {
	announce := func(summary string) operation {
		return operation{summary: summary, answer: v1.AnnounceAnswer{}, refusals: []int{400}}
	}
	return map[string]operation{
		"GET /status":   {summary: "The services in force, their backends, and the data path. No secrets.", answer: v1.LBStatus{}},
		"POST /applied": {summary: "Which snapshot the data path has applied: now, at each change and every 10 s, until the client disconnects.", answer: v1.Applied{}, lines: true},
		"POST /trace": {
			summary: "Packets of the data path nfqueue with what became of them, until the client disconnects. One client at a time.", answer: v1.TraceLine{}, lines: true, refusals: []int{400, 409},
			query: []parameter{textParameter("service", "Only of this one."), textParameter("src", "Only from this address or prefix."), textParameter("host", "Only from or to this address or prefix; not with src."), textParameter("reason", "Only with this reason; may be repeated.")},
		},
		"POST /announce/withdraw": announce("Take back everything that is announced, until /announce/resume or the end of the process."),
		"POST /announce/resume":   announce("End /announce/withdraw."),
	}
}

func gatewayOperations() map[string]operation {
	sorts := object{"type": "string", "enum": []any{"bytes", "age", "expires", "idle", "user", "client"}}
	return map[string]operation{
		"GET /status": {summary: "Listeners, allocations and the configuration in force.", answer: v1.TurnStatus{}},
		"GET /users": {summary: "The allocations.", answer: v1.TurnUserList{}, refusals: []int{400}, query: []parameter{
			textParameter("user", "Only of this name."), textParameter("listener", "Only of this name."), textParameter("transport", "Only udp, tcp, tls or dtls."), textParameter("client", "Only of this address or prefix."),
			{name: "sort", about: "The order; default age.", schema: sorts},
			numberParameter("limit", "Default 1000.", 1, v1.MaxTurnUsers),
		}},
		"POST /upgrade":     {summary: "Replace the process by the binary at its path, without losing allocations.", answer: v1.TurnUpgradeAnswer{}, refusals: []int{400}},
		"GET /allocations":  {summary: "All allocations, in the form that POST takes, which belongs to the version of the gateway.", answer: anyJSON{}, refusals: []int{400}},
		"POST /allocations": {summary: "Restore the allocations of an export, as many as can be.", body: anyJSON{}, answer: v1.TurnImport{}, refusals: []int{400, 413}},
	}
}

func serverOperations() map[string]operation {
	return map[string]operation{
		"GET /status":   {summary: "Listeners, sessions, the cluster and credentials.", answer: v1.CoAPStatus{}},
		"POST /drain":   {summary: "Move the DTLS sessions of the cluster nodes to other nodes. The answer has the counters before.", answer: v1.CoAPMoved{}, refusals: []int{400}, query: []parameter{numberParameter("to", "The node that takes them; without one, the one with the fewest sessions.", 0, 255)}},
		"POST /undrain": {summary: "End /drain.", answer: v1.CoAPMoved{}, refusals: []int{400}},
		"POST /owners":  {summary: "Which node of the cluster has which sessions: now, at each change and every second, until the client disconnects.", answer: v1.CoAPOwners{}, lines: true},
		"POST /upgrade": {summary: "Replace the process by the binary at its path, without losing sessions.", answer: v1.CoAPUpgradeAnswer{}, refusals: []int{400}},
	}
}

// described are the operations of each part: all that it can serve.
func described() map[string]map[string]operation {
	status := func(summary string, of any) map[string]operation {
		return map[string]operation{"GET /status": {summary: summary, answer: of}}
	}
	parts := map[string][]map[string]operation{
		cli.LBPart().Name:       {balancerOperations(), flowOperations(), overrides(), configOperations()},
		cli.NATPart().Name:      {status("The services in force and the entries of the NAT.", v1.NATStatus{}), flowOperations(), overrides()},
		cli.TurnPart().Name:     {gatewayOperations()},
		cli.CoapPart().Name:     {serverOperations()},
		cli.DecapPart().Name:    {status("The program at the tunnel's end, and its counters.", v1.DecapStatus{})},
		cli.TurnAuthPart().Name: {status("The configurations of gateways that are known, and counters.", v1.TurnAuthStatus{})},
		cli.OperatorPart().Name: {status("The controllers and the data planes that they configure.", v1.OperatorStatus{})},
	}
	all := map[string]map[string]operation{}
	for part, sets := range parts {
		all[part] = probes()
		for _, set := range sets {
			for pattern, o := range set {
				all[part][pattern] = o
			}
		}
	}
	return all
}

// refusalTexts are what a status means in every answer.
func refusalTexts() map[int][2]string {
	return map[int][2]string{
		400: {"Invalid", "The request is wrong, or its configuration would be invalid: one line for each error, with path and remedy."},
		401: {"Unauthorized", "Over TCP: the token is missing or wrong."},
		403: {"Forbidden", "Over TCP the process has no token, the name of the host is not its own, or another origin wants a change."},
		404: {"NotFound", "There is no such object, service or backend."},
		409: {"Conflict", "The change is refused: the object is another one, the configuration is not changed here, its file cannot be written, or another client has the stream."},
		412: {"PreconditionFailed", "Another configuration is in force than the one that the change is for; generation and etag are its."},
		413: {"TooLarge", "The body is too long."},
		503: {"Busy", "As many requests as possible are being answered."},
	}
}

// documentOf is the OpenAPI document of a part.
func documentOf(t *testing.T, part string, operations map[string]operation) object {
	t.Helper()
	types, paths := newSchemas(t), object{}
	for pattern, o := range operations {
		method, path, _ := strings.Cut(pattern, " ")
		for _, at := range append(o.paths, path)[:max(1, len(o.paths))] {
			item, _ := paths[at].(object)
			if item == nil {
				item = object{}
				paths[at] = item
			}
			item[strings.ToLower(method)] = o.document(types, pattern, method, at)
		}
	}
	types.of(reflect.TypeFor[v1.Refusal]())
	responses := object{}
	for status, text := range refusalTexts() {
		response := object{"description": text[1], "content": jsonContent("application/json", object{"$ref": "#/components/schemas/Refusal"})}
		if status == 412 {
			response["headers"] = object{"ETag": object{"$ref": "#/components/headers/ETag"}}
		}
		responses[text[0]] = response
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Weir admin API: " + part, "version": "v1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Within v1 the name, type and meaning of a field stay; fields may be added: ignore the keys that you do not know. Every answer names its part in the header " + v1.PartHeader + ".",
		},
		"servers":  []any{object{"url": "http://localhost", "description": "Over the Unix socket, which is the credential; or at HOST:PORT of --admin with the token of --admin-token-file."}},
		"security": []any{object{"token": []any{}}, object{}},
		"paths":    paths,
		"components": object{
			"schemas": types.named, "responses": responses,
			"headers":         object{"ETag": object{"description": "Names the configuration in force, in quotes: for If-Match.", "schema": object{"type": "string"}}, "Part": object{"description": "The part that answers.", "schema": object{"const": part}}},
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "Over TCP; the Unix socket needs none."}},
		},
	}
}

func jsonContent(kind string, schema object) object { return object{kind: object{"schema": schema}} }

var inBraces = regexp.MustCompile(`\{(\w+)\}`)

func (o *operation) document(types *schemas, pattern, method, path string) object {
	text := object{"summary": o.summary, "operationId": operationID(method, path), admin.RouteKey: pattern}
	var parameters []any
	for _, name := range inBraces.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "description": pathTexts[name[1]], "schema": object{"type": "string"}})
	}
	for in, list := range map[string][]parameter{"header": o.headers, "query": o.query} {
		for _, p := range list {
			one := object{"name": p.name, "in": in, "description": p.about, "schema": p.schema}
			if p.required {
				one["required"] = true
			}
			parameters = append(parameters, one)
		}
	}
	slices.SortFunc(parameters, func(a, b any) int {
		return strings.Compare(a.(object)["in"].(string)+a.(object)["name"].(string), b.(object)["in"].(string)+b.(object)["name"].(string))
	})
	if parameters != nil {
		text["parameters"] = parameters
	}
	if o.body != nil {
		text["requestBody"] = object{"required": true, "content": jsonContent("application/json", types.of(reflect.TypeOf(o.body)))}
	}
	text["responses"] = o.responses(types, path)
	if o.open {
		text["security"] = []any{}
	}
	return text
}

var pathTexts = map[string]string{
	"key": "A key of the whole configuration, such as maglev_size. Every value has a path, with the keys and names that lead to it, such as /config/limits/flows.", "service": "Name of a service.", "backend": "Name of a backend.",
	"vip": "PROTOCOL:ADDRESS:PORT, such as udp:192.0.2.1:53 or tcp:[2001:db8::1]:80; a slash is %2F.", "rule": "Name of a flow rule.",
}

func operationID(method, path string) string {
	id := strings.ToLower(method)
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(path, -1) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

func (o *operation) responses(types *schemas, path string) object {
	kind, schema := "text/plain", object{"type": "string"}
	switch {
	case path == "/":
		kind = "text/html"
	case o.lines:
		kind, schema = "application/x-ndjson", types.of(reflect.TypeOf(o.answer))
	case o.answer != nil:
		kind, schema = "application/json", types.of(reflect.TypeOf(o.answer))
	}
	headers := object{v1.PartHeader: object{"$ref": "#/components/headers/Part"}}
	if o.etag {
		headers["ETag"] = object{"$ref": "#/components/headers/ETag"}
	}
	about := "The answer."
	if o.lines {
		about = "A JSON value on each line, until the client disconnects."
	}
	all := object{"200": object{"description": about, "headers": headers, "content": jsonContent(kind, schema)}}
	refusals := append([]int{403}, o.refusals...)
	if !o.open {
		refusals = append(refusals, 401, 503)
	}
	for _, status := range refusals {
		all[itoa(status)] = object{"$ref": "#/components/responses/" + refusalTexts()[status][0]}
	}
	if path == "/readyz" || path == "/ready" {
		all["503"] = object{"description": "Not ready: the reason.", "content": jsonContent("text/plain", object{"type": "string"})}
	}
	return all
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// The documents in docs/openapi are those of the table above and of the types.
func TestOpenAPIDocumentsAreCurrent(t *testing.T) {
	all := described()
	for part, operations := range all {
		text, err := json.MarshalIndent(documentOf(t, part, operations), "", " ")
		clitest.Must(t, err)
		path, wanted := docsFolder+"openapi/"+part+".json", string(text)+"\n"
		if text, err := os.ReadFile(path); err == nil && string(text) == wanted {
			continue
		}
		if !*update {
			t.Errorf("%s is not what the code says; write it again: go test ./cmd/weir -run '^%s$' -update", path, t.Name())
			continue
		}
		clitest.Must(t, os.WriteFile(path, []byte(wanted), 0o644)) //nolint:gosec // a document
	}
	for _, part := range openapi.Parts() {
		if all[part] == nil {
			t.Errorf("docs/openapi/%s.json is of no part", part)
		}
	}
}
