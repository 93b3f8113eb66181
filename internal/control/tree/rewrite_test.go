package tree_test

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/tree"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func shape() tree.Shape { return tree.ShapeOf[lb.Spec]() }

const commented = `# the edge of Lund
hash_key: 00112233445566778899aabbccddeeff   # the same on both
maglev_size: 1009

services:
# names are looked up here
- name: dns            # anycast
  vips:
  - {address: 192.0.2.1, protocol: udp, port: 53}
  timeouts: {udp: 30s}
  backends:
    # rack 1
    - {name: a, address: 10.0.0.1, port: 53}   # old
    # rack 2
    # the quiet one
    - name: b
      address: 10.0.0.2
      port: 53

- name: web
  mode: nat
  vips: [{address: 192.0.2.2, protocol: tcp, port: 80}]
  backends: [{name: c, address: 10.0.0.3, port: 80}]
# the end
`

func read(t *testing.T, text string) any {
	t.Helper()
	root, err := tree.Of(shape(), "weir.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// One change each, and the lines of the file that it changes: all others stay as they are, byte for byte.
func TestRewriteChangesOnlyTheseLines(t *testing.T) {
	for _, c := range []struct {
		name, op, path, value string
		gone, come            []string
	}{
		{"a scalar between brackets", "set", "/services/dns/backends/a/port", `5353`, []string{"    - {name: a, address: 10.0.0.1, port: 53}   # old"}, []string{"    - {name: a, address: 10.0.0.1, port: 5353}   # old"}},
		{"a scalar on a line", "set", "/services/dns/backends/b/port", `5353`, []string{"      port: 53"}, []string{"      port: 5353"}},
		{"a key between brackets", "merge", "/services/dns/backends/a", `{"weight": 5}`, []string{"    - {name: a, address: 10.0.0.1, port: 53}   # old"}, []string{"    - {name: a, address: 10.0.0.1, port: 53, weight: 5}   # old"}},
		{"a key on a line", "merge", "/services/dns/backends/b", `{"weight": 5}`, nil, []string{"      weight: 5"}},
		{"a key taken out", "remove", "/services/dns/timeouts", ``, []string{"  timeouts: {udp: 30s}"}, nil},
		{"a backend", "set", "/services/dns/backends/d", `{"address": "2001:db8::1", "port": 53}`, nil, []string{`    - {name: d, address: "2001:db8::1", port: 53}`}},
		{"a backend taken out", "remove", "/services/dns/backends/b", ``, []string{"    # rack 2", "    # the quiet one", "    - name: b", "      address: 10.0.0.2", "      port: 53"}, nil},
		{"the first backend taken out", "remove", "/services/dns/backends/a", ``, []string{"    - {name: a, address: 10.0.0.1, port: 53}   # old"}, nil},
		{"a VIP", "set", "/services/dns/vips/tcp:192.0.2.1:53", ``, nil, []string{"  - {address: 192.0.2.1, protocol: tcp, port: 53}"}},
		{"a VIP of a list between brackets", "set", "/services/web/vips/tcp:[2001:db8::2]:80", ``, []string{"  vips: [{address: 192.0.2.2, protocol: tcp, port: 80}]"}, []string{`  vips: [{address: 192.0.2.2, protocol: tcp, port: 80}, {address: "2001:db8::2", protocol: tcp, port: 80}]`}},
		{"the last backend taken out", "remove", "/services/web/backends/c", ``, []string{"  backends: [{name: c, address: 10.0.0.3, port: 80}]"}, []string{"  backends: []"}},
		{"a service", "set", "/services/ntp", `{"vips": [{"address": "192.0.2.3", "protocol": "udp", "port": 123}], "backends": []}`, nil, []string{"- name: ntp", "  vips:", "  - {address: 192.0.2.3, protocol: udp, port: 123}", "  backends: []"}},
		{"a service taken out", "remove", "/services/web", ``, []string{"- name: web", "  mode: nat", "  vips: [{address: 192.0.2.2, protocol: tcp, port: 80}]", "  backends: [{name: c, address: 10.0.0.3, port: 80}]"}, nil},
		{"a section", "set", "/limits", `{"flows": 4321}`, nil, []string{"limits: {flows: 4321}"}},
		{"an option", "set", "/maglev_size", `2003`, []string{"maglev_size: 1009"}, []string{"maglev_size: 2003"}},
		{"text with a comment sign", "merge", "/services/dns", `{"health": {"type": "udp", "send": "a # b"}}`, nil, []string{`  health: {type: udp, send: "a # b"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := changed(t, read(t, commented), c.op, c.path, c.value)
			out, err := tree.Rewrite(shape(), "weir.yaml", []byte(commented), want)
			if err != nil {
				t.Fatal(err)
			}
			gone, come := lines(commented, string(out))
			if strings.Join(gone, "\n") != strings.Join(c.gone, "\n") || strings.Join(come, "\n") != strings.Join(c.come, "\n") {
				t.Errorf("gone:\n%s\ncome:\n%s", strings.Join(gone, "\n"), strings.Join(come, "\n"))
			}
		})
	}
}

// lines returns the lines of a that b has not, and the other way round.
func lines(a, b string) (gone, come []string) {
	count := map[string]int{}
	for _, line := range strings.Split(b, "\n") {
		count[line]++
	}
	for _, line := range strings.Split(a, "\n") {
		if count[line]--; count[line] < 0 {
			gone = append(gone, line)
		}
	}
	clear(count)
	for _, line := range strings.Split(a, "\n") {
		count[line]++
	}
	for _, line := range strings.Split(b, "\n") {
		if count[line]--; count[line] < 0 {
			come = append(come, line)
		}
	}
	return gone, come
}

func changed(t *testing.T, root any, op, path, value string) any {
	t.Helper()
	names, err := tree.Split(path)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if value != "" {
		if v, err = tree.Read(shape().At(names), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	switch op {
	case "set":
		root, err = tree.Set(shape(), root, names, v)
	case "merge":
		root, err = tree.Patch(shape(), root, names, v)
	case "add":
		root, err = tree.Add(shape(), root, names, v)
	default:
		root, err = tree.Remove(shape(), root, names)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// A flow mapping with a comment behind it is YAML, and no JSON whose rest may be left out.
func TestRewriteKeepsCommentsBehindBrackets(t *testing.T) {
	text := "{maglev_size: 1009, services: []} # the edge\n"
	for _, text := range []string{text, "{\"maglev_size\": 1009, \"services\": []} # the edge\n"} {
		want := changed(t, read(t, text), "set", "/maglev_size", "2003")
		if out, err := tree.Rewrite(shape(), "weir.yaml", []byte(text), want); err != nil || string(out) != strings.Replace(text, "1009", "2003", 1) {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if value, err := tree.Read(shape(), []byte(`{} {}`)); err == nil {
		t.Errorf("two values are read as %v", value)
	}
}

// What cannot be written with its comments is refused, and nothing is written.
func TestRewriteRefuses(t *testing.T) {
	text := "services:\n- name: a\n  vips: [{address: 192.0.2.1, protocol: udp, port: 53}, # first\n    {address: 192.0.2.2, protocol: udp, port: 53}]\n  backends: []\n"
	want := changed(t, read(t, text), "remove", "/services/a/vips/udp:192.0.2.2:53", "")
	if out, err := tree.Rewrite(shape(), "weir.yaml", []byte(text), want); err == nil || !strings.Contains(err.Error(), "weir.yaml: line 3: the comments in these brackets would be lost") {
		t.Errorf("%v\n%s", err, out)
	}
}
