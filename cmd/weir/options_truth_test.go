package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// optionKind is a kind of file, with valid files that together have every section.
type optionKind struct {
	name  string
	spec  any
	files []string                       // JSON, which is YAML
	load  func(text []byte) (any, error) // what the program makes of a file
}

func loadWith[T any](complete func(T) (any, error)) func([]byte) (any, error) {
	return func(text []byte) (any, error) {
		spec, _, err := config.Decode[T]("file", text)
		if err != nil {
			return nil, err
		}
		return complete(spec)
	}
}

var optionKinds = []optionKind{
	{
		name: "load balancer", spec: lb.Spec{},
		load: loadWith(func(s lb.Spec) (any, error) {
			snapshot, err := lb.Compile(s, nil, lb.AllCaps())
			return snapshot, err
		}),
		files: []string{
			`{"limits": {}, "services": [{"name": "s", "vips": [{"address": "192.0.2.1", "protocol": "tcp", "port": 80}], "timeouts": {},
				"snat": {"addresses": ["192.0.2.9"]}, "health": {"type": "http"}, "backends": [{"name": "a", "address": "10.0.0.1"}]}]}`,
			`{"announce": {"bgp": {"as": 64512, "router_id": "10.0.0.9", "neighbours": [{"address": "10.0.0.254", "as": 64513, "bfd": {}}]}}, "services": [{"name": "s",
				"vips": [{"address": "192.0.2.1", "protocol": "tcp", "port": 80}], "backends": [{"name": "a", "address": "10.0.0.1"}]}]}`,
			`{"announce": {"aggregates": ["192.0.2.0/24"], "bgp": {"as": 64512, "router_id": "10.0.0.9", "neighbours": [{"address": "10.0.0.254", "as": 64513}]}},
				"services": [{"name": "s", "vips": [{"address": "192.0.2.1", "protocol": "tcp", "port": 80}], "backends": [{"name": "a", "address": "10.0.0.1"}]}]}`,
			`{"announce": {"vrrp": [{"interface": "eth0", "vrid": 51, "preempt": true}]}, "services": [{"name": "s",
				"vips": [{"address": "192.0.2.1", "protocol": "tcp", "port": 80}], "backends": [{"name": "a", "address": "10.0.0.1"}]}]}`,
			`{"sync": {"listen": "10.0.0.1:8477", "peers": ["10.0.0.2:8477"], "key_env": "K"}, "services": [{"name": "s",
				"vips": [{"address": "192.0.2.1", "protocol": "tcp", "port": 80}], "backends": [{"name": "a", "address": "10.0.0.1"}]}]}`,
			`{"tier": {"self": "one", "members": [{"name": "one", "mark": 11}, {"name": "two", "mark": 12}]}, "services": [{"name": "s", "mode": "mark",
				"flows": [{"name": "f", "protocols": ["sctp"], "destinations": ["192.0.2.1"]}], "backends": [{"name": "a", "mark": 21}]}]}`,
			`{"services": [{"name": "s", "mode": "l3dsr", "vips": [{"address": "192.0.2.1", "protocol": "udp", "port": 443}], "health": {"type": "udp", "port": 443},
				"backends": [{"name": "a", "address": "10.0.0.1"}]}]}`,
			`{"services": [{"name": "s", "vips": [{"address": "192.0.2.1", "protocol": "udp", "port": 443}],
				"cid": {"protocols": ["quic"], "layouts": [{"quic_lb": {"rotation": 0, "server_id_length": 1, "nonce_length": 6}}]},
				"backends": [{"name": "a", "address": "10.0.0.1", "nodes": [1]}]}]}`,
			`{"services": [{"name": "s", "vips": [{"address": "192.0.2.1", "protocol": "udp", "port": 443}],
				"cid": {"protocols": ["dtls12"], "layouts": [{"length": 6, "owner": {"bits": 8}, "rotation": {"offset": 8, "bits": 2}}]},
				"backends": [{"name": "a", "address": "10.0.0.1", "nodes": [1]}]}]}`,
			`{"services": [{"name": "s", "vips": [{"address": "192.0.2.1", "protocol": "udp", "port": 443}],
				"cid": {"protocols": ["dtls12"], "layouts": [{"length": 6, "owner": {"offset": 8, "bits": 8}, "rotation": {"bits": 2}}]},
				"backends": [{"name": "a", "address": "10.0.0.1", "nodes": [1]}]}]}`,
			`{"services": [{"name": "s", "vips": [{"address": "192.0.2.1", "protocol": "udp", "port": 443}], "cluster": {},
				"cid": {"protocols": ["dtls12"], "layouts": [{"length": 6, "owner": {"bits": 8}}]},
				"backends": [{"name": "a", "address": "10.0.0.1", "admin": "unix:a"}]}]}`,
		},
	},
	{
		name: "CoAP server", spec: node.Config{},
		load: loadWith(func(c node.Config) (any, error) {
			complete := c.WithDefaults()
			return []any{complete.CIDLength, complete.MaxSessions, complete.SeparateDelay, complete.Benchmark, complete.Cluster, complete.Multicast}, c.Validate()
		}),
		files: []string{
			`{"listen": [":0"], "dtls": [":0"]}`,
			`{"listen": [":0"], "multicast": {"group_size": 1000, "rate": 1000}}`,
			`{"cluster": {"nodes": [{"id": 1, "dtls": ":15784", "management": "localhost:15884"}], "security": {"file": "cluster.key"}}}`,
		},
	},
	{
		name: "TURN gateway", spec: gateway.Config{},
		load: loadWith(func(c gateway.Config) (any, error) { return c.WithDefaults(), c.Validate() }),
		files: []string{
			`{"auth": {"users": [{"name": "u", "password": "p"}]}, "listeners": [{"name": "l"}], "clusters": [{"name": "c", "endpoints": ["10.0.0.1"]}],
				"quotas": {}, "limits": {}, "lifetimes": {}, "drain": {}, "offload": {}}`,
			`{"auth": {"mode": "ephemeral", "secrets": ["s"]}, "lifetimes": {"max": "24h"}}`,
			`{"auth": {"users": [{"name": "u", "password": "p"}]}, "lifetimes": {"default": "1m"}}`,
			`{"auth": {"mode": "none"}, "listeners": [{"name": "l", "protocol": "tls", "self_signed": true}]}`,
		},
	},
	{
		name: "SNAT scenarios", spec: snat.File{},
		load: loadWith(func(f snat.File) (any, error) {
			if err := f.Validate(); err != nil {
				return nil, err
			}
			s := f.Scenarios[0].WithDefaults()
			return []any{s.Traffic, s.Kind, s.Protocol, s.Plan()}, nil
		}),
		files: []string{
			`{"scenarios": [{"name": "s", "path": [{"kind": "azure-nat"}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "path": [{"kind": "aws-regional"}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "path": [{"kind": "ephemeral"}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "path": [{"kind": "files"}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "path": [{"kind": "memory", "limit": 1000000}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "path": [{"kind": "accept-queue"}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "path": [{"kind": "gcp-nat", "max_ports": 128}], "traffic": {}}]}`,
			`{"scenarios": [{"name": "s", "expect": 5, "path": [{"kind": "azure-nat"}], "traffic": {}}]}`,
		},
	},
}

// change returns a file with one key set, or with value nil without it; ok: the file has its section.
func change(t *testing.T, file, path string, value any) (text []byte, ok bool) {
	t.Helper()
	var document any
	if err := json.Unmarshal([]byte(file), &document); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	keys, at := strings.Split(path, "."), document
	for i, key := range keys {
		section, _ := at.(map[string]any)
		if section == nil {
			return nil, false
		}
		name, list := strings.CutSuffix(key, "[]")
		switch {
		case i < len(keys)-1 && list:
			elements, _ := section[name].([]any)
			if len(elements) == 0 {
				return nil, false
			}
			at = elements[0]
		case i < len(keys)-1:
			at = section[name]
		case value == nil:
			delete(section, name)
		default:
			section[name] = value
		}
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text, true
}

// written is a text of a tag as the value of a key: a number, true or false, a list of one, or a text.
func written(o *option, text string) any {
	var value any = text
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		value = n
	} else if b, err := strconv.ParseBool(text); err == nil {
		value = b
	}
	if o.field.Type.Kind() == reflect.Slice {
		return []any{value}
	}
	return value
}

// outside is a value just outside of a bound. Of a number whose zero means the default, the first one below 1 is -1.
func outside(o *option, bound string, by int) any {
	if d, err := time.ParseDuration(bound); err == nil && bound != "0" {
		return (d + time.Duration(by)).String()
	}
	n, _ := strconv.Atoi(bound)
	if n += by; n == 0 && o.field.Type.Kind() != reflect.Pointer {
		n = -1
	}
	return n
}

// accepts reports whether the program takes a file with this value.
func (k *optionKind) accepts(t *testing.T, file string, o *option, value any) bool {
	t.Helper()
	text, ok := change(t, file, o.path, value)
	if !ok {
		return false
	}
	_, err := k.load(text)
	return err == nil
}

// The bounds and the words of the page of options are those of the programs: each is accepted, and what is just beyond is refused.
func TestOptionsAreBoundedAsTheirTagsSay(t *testing.T) {
	for i := range optionKinds {
		kind, checked := &optionKinds[i], 0
		for _, file := range kind.files {
			if _, err := kind.load([]byte(file)); err != nil {
				t.Fatalf("%s: %s: %v", kind.name, file, err)
			}
		}
		for _, o := range optionsOf(reflect.TypeOf(kind.spec), "") {
			low, high, isRange := strings.Cut(o.field.Tag.Get("range"), " to ")
			if isRange {
				checked++
				kind.checkRange(t, &o, low, high)
			}
			if values := o.field.Tag.Get("values"); values != "" {
				checked++
				kind.checkValues(t, &o, strings.Split(values, ", "))
			}
		}
		t.Logf("%s: bounds of %d keys", kind.name, checked)
		if checked < 3 {
			t.Errorf("%s: only %d keys have bounds", kind.name, checked)
		}
	}
}

func (k *optionKind) checkRange(t *testing.T, o *option, low, high string) {
	t.Helper()
	tested := false
	for _, file := range k.files {
		if !k.accepts(t, file, o, written(o, low)) || !k.accepts(t, file, o, written(o, high)) {
			continue
		}
		tested = true
		for _, value := range []any{outside(o, low, -1), outside(o, high, 1)} {
			if k.accepts(t, file, o, value) {
				t.Errorf("%s: %s: %v is accepted, the page says %s to %s", k.name, o.path, value, low, high)
			}
		}
	}
	if !tested {
		t.Errorf("%s: %s: no file accepts both %s and %s", k.name, o.path, low, high)
	}
}

func (k *optionKind) checkValues(t *testing.T, o *option, words []string) {
	t.Helper()
	for _, word := range words {
		if !slices.ContainsFunc(k.files, func(file string) bool { return k.accepts(t, file, o, written(o, word)) }) && !k.knows(t, o, word) {
			t.Errorf("%s: %s: %s is refused by every file", k.name, o.path, word)
		}
	}
	if slices.ContainsFunc(k.files, func(file string) bool { return k.accepts(t, file, o, written(o, "nosuchword")) }) {
		t.Errorf("%s: %s: any word is accepted, the page says %v", k.name, o.path, words)
	}
}

// knows reports whether a word is refused for what else is in the file, and not as a word.
func (k *optionKind) knows(t *testing.T, o *option, word string) bool {
	t.Helper()
	output := func(word string) string {
		for _, file := range k.files {
			if text, ok := change(t, file, o.path, written(o, word)); ok {
				if _, err := k.load(text); err != nil {
					return strings.ReplaceAll(err.Error(), word, "WORD")
				}
			}
		}
		return ""
	}
	return output(word) != output("nosuchword")
}

var literal = regexp.MustCompile(`^(-?[0-9.]+|([0-9.]+(ms|s|m|h))+|true|false|[0-9]+-[0-9]+|/|[0-9.]+\.[0-9.]+)$`)

// A file with a default written out is the file without the key.
func TestOptionsHaveTheDefaultsOfTheirTags(t *testing.T) {
	for i := range optionKinds {
		kind, checked := &optionKinds[i], 0
		for _, o := range optionsOf(reflect.TypeOf(kind.spec), "") {
			preset := o.field.Tag.Get("default")
			if preset == "" || !literal.MatchString(preset) && !slices.Contains(strings.Split(o.field.Tag.Get("values"), ", "), preset) {
				continue
			}
			tested := false
			for _, file := range kind.files {
				without, ok := change(t, file, o.path, nil)
				with, _ := change(t, file, o.path, written(&o, preset))
				if !ok {
					continue
				}
				a, err := kind.load(without)
				b, err2 := kind.load(with)
				if err != nil || err2 != nil {
					continue
				}
				same := reflect.DeepEqual(a, b)
				tested = tested || same
				if !same && !strings.Contains(fieldComments(t, o.owner.PkgPath())[o.owner.Name()][o.field.Name], "default ") {
					t.Errorf("%s: %s: %s is not the default of %s:\n%s\n%s", kind.name, o.path, preset, file, fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b))
				}
			}
			if checked++; !tested {
				t.Errorf("%s: %s: in no file is %s the default", kind.name, o.path, preset)
			}
		}
		t.Logf("%s: defaults of %d keys", kind.name, checked)
	}
}
