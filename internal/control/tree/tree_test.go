package tree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/tree"
)

// Every change made twice is the change made once.
func TestChangesAreIdempotent(t *testing.T) {
	for _, c := range []struct{ op, path, value string }{
		{"set", "/services/dns/backends/a", `{"address": "10.0.0.9"}`},
		{"set", "/services/dns/backends/z", `{"address": "10.0.0.9"}`},
		{"merge", "/services/dns/backends/a", `{"weight": 5, "port": null}`},
		{"merge", "/", `{"services": [{"name": "dns", "backends": [{"name": "a", "weight": 7}]}]}`},
		{"add", "/services/dns/backends/z", `{"address": "10.0.0.9"}`},
		{"add", "/services/dns/vips/udp:[2001:db8::1]:53", ``},
		{"remove", "/services/dns/backends/a", ``},
		{"remove", "/services/dns/vips/udp:192.0.2.1:53", ``},
		{"remove", "/services/nowhere/backends/a", ``},
		{"set", "/limits/flows", `7`},
	} {
		once := changed(t, read(t, commented), c.op, c.path, c.value)
		first := tree.Text(once)
		if twice := tree.Text(changed(t, once, c.op, c.path, c.value)); twice != first {
			t.Errorf("%s %s: once %s, twice %s", c.op, c.path, first, twice)
		}
		if strings.HasPrefix(c.path, "/services/nowhere") == (len(tree.Diff(shape(), read(t, commented), once)) > 0) {
			t.Errorf("%s %s: %v", c.op, c.path, tree.Diff(shape(), read(t, commented), once))
		}
	}
}

func TestChangesRefuse(t *testing.T) {
	for _, c := range []struct {
		op, path, value, want string
		is                    error
	}{
		{"add", "/services/dns/backends/a", `{"address": "10.0.0.9"}`, "use set", tree.ErrExists},
		{"set", "/services/nowhere/backends/a", `{"address": "10.0.0.9"}`, "/services/nowhere: there is no such object", tree.ErrAbsent},
		{"set", "/sevices/dns", `{}`, "known here: hash_key", tree.ErrAbsent},
		{"set", "/services/dns/backends/a", `{"name": "b"}`, "a name is not changed", nil},
		{"set", "/services/dns/vips/udp", ``, "PROTOCOL:ADDRESS:PORT", nil},
		{"set", "/services/dns/backends/a/nodes/1", `2`, "have no names", nil},
		{"remove", "/", ``, "whole configuration", nil},
	} {
		names, err := tree.Split(c.path)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if c.value != "" {
			if v, err = tree.Read(shape().At(names), []byte(c.value)); err != nil {
				t.Fatal(err)
			}
		}
		do := map[string]func(tree.Shape, any, []string, any) (any, error){
			"set": tree.Set, "add": tree.Add, "remove": func(s tree.Shape, root any, path []string, _ any) (any, error) { return tree.Remove(s, root, path) },
		}[c.op]
		if _, err := do(shape(), read(t, commented), names, v); err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s %s: %v, want %s", c.op, c.path, err, c.want)
		}
	}
	for _, path := range []string{"/a//b", "/a/%zz", strings.Repeat("/a", 17)} {
		if _, err := tree.Split(path); err == nil {
			t.Errorf("%q is read", path)
		}
	}
}

// Differences are by object, and a secret is none of them.
func TestDiff(t *testing.T) {
	before := read(t, commented)
	after := changed(t, read(t, commented), "merge", "/services/dns/backends/a", `{"weight": 5}`)
	after = changed(t, after, "remove", "/services/web", ``)
	after = changed(t, after, "set", "/hash_key", `"ffffffffffffffffffffffffffffffff"`)
	var got []string
	for _, d := range tree.Diff(shape(), before, after) {
		got = append(got, d.Path+" "+tree.Text(d.Old)+" "+tree.Text(d.New))
	}
	want := []string{
		`/hash_key "(secret)" "(secret)"`,
		`/services/dns/backends/a/weight null 5`,
		`/services/web {"backends":[{"address":"10.0.0.3","name":"c","port":80}],"mode":"nat","name":"web","vips":[{"address":"192.0.2.2","port":"80","protocol":"tcp"}]} null`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if path := tree.NamePath(shape(), before, "services[0].backends[1].weight"); path != "/services/dns/backends/b/weight" {
		t.Error(path)
	}
	if path := tree.NamePath(shape(), before, "services[0].vips[0].port"); path != "/services/dns/vips/udp:192.0.2.1:53/port" {
		t.Error(path)
	}
}

// A run-time change stays until the file changes the same object.
func TestMerge(t *testing.T) {
	type edit struct{ op, path, value string }
	for _, c := range []struct {
		name            string
		running, file   []edit
		present, absent string // in what is in force next
		dropped         string
	}{
		{"another backend", []edit{{"merge", "/services/dns/backends/a", `{"weight": 5}`}}, []edit{{"merge", "/services/dns/backends/b", `{"weight": 7}`}}, `"name":"a","port":53,"weight":5 "name":"b","port":53,"weight":7`, "", ""},
		{"the same backend", []edit{{"merge", "/services/dns/backends/a", `{"weight": 5}`}}, []edit{{"merge", "/services/dns/backends/a", `{"port": 54}`}}, `"name":"a","port":54}`, `"weight":5`, "/services/dns/backends/a"},
		{"its service", []edit{{"merge", "/services/dns/backends/a", `{"weight": 5}`}}, []edit{{"merge", "/services/dns", `{"new_flow_rate": 9}`}}, `"weight":5 "new_flow_rate":9`, "", ""},
		{"added at run time", []edit{{"set", "/services/dns/backends/z", `{"address": "10.0.0.9"}`}}, []edit{{"remove", "/services/dns/backends/a", ``}}, `"name":"z"`, `"name":"a"`, ""},
		{"added by both", []edit{{"set", "/services/dns/backends/z", `{"address": "10.0.0.9"}`}}, []edit{{"set", "/services/dns/backends/z", `{"address": "10.0.0.8"}`}}, `10.0.0.8`, `10.0.0.9`, "/services/dns/backends/z"},
		{"removed at run time", []edit{{"remove", "/services/dns/backends/a", ``}}, []edit{{"merge", "/services/dns/backends/b", `{"weight": 7}`}}, `"weight":7`, `"name":"a"`, ""},
		{"removed at run time, changed in the file", []edit{{"remove", "/services/dns/backends/a", ``}}, []edit{{"merge", "/services/dns/backends/a", `{"weight": 7}`}}, `"name":"a"`, "", "/services/dns/backends/a"},
		{"changed at run time, removed in the file", []edit{{"merge", "/services/dns/backends/a", `{"weight": 5}`}}, []edit{{"remove", "/services/dns/backends/a", ``}}, `"name":"b"`, `"name":"a"`, "/services/dns/backends/a"},
		{"the same change in the file", []edit{{"merge", "/services/dns/backends/a", `{"weight": 5}`}}, []edit{{"merge", "/services/dns/backends/a", `{"weight": 5}`}}, `"weight":5`, "", ""},
		{"the service is gone", []edit{{"merge", "/services/web", `{"new_flow_rate": 9}`}}, []edit{{"remove", "/services/web", ``}}, `"dns"`, `"web"`, "/services/web"},
		{"an option of the root", []edit{{"set", "/maglev_size", `2003`}}, []edit{{"merge", "/services/dns", `{"new_flow_rate": 9}`}}, `"maglev_size":2003 "new_flow_rate":9`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, running, file := read(t, commented), read(t, commented), read(t, commented)
			for _, e := range c.running {
				running = changed(t, running, e.op, e.path, e.value)
			}
			for _, e := range c.file {
				file = changed(t, file, e.op, e.path, e.value)
			}
			merged, dropped := tree.Merge(shape(), base, running, file)
			text := tree.Text(merged)
			for _, want := range strings.Fields(c.present) {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %s: %s", want, text)
				}
			}
			if c.absent != "" && strings.Contains(text, c.absent) {
				t.Errorf("has %s: %s", c.absent, text)
			}
			if strings.Join(dropped, " ") != c.dropped {
				t.Errorf("dropped %q, want %q", dropped, c.dropped)
			}
		})
	}
}

// All example files can be read to a tree, and each of their backends can be taken out of the text and given back.
func TestRewriteExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	changes := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		root, err := tree.Of(shape(), file, text)
		keys, ok := root.(map[string]any)
		services, isList := keys["services"].([]any)
		if err != nil || !ok || !isList {
			continue // of another part
		}
		for _, service := range services {
			name := service.(map[string]any)["name"].(string)
			backends, _ := service.(map[string]any)["backends"].([]any)
			for _, backend := range backends {
				path := tree.Join("services", name, "backends", backend.(map[string]any)["name"].(string))
				without := changed(t, tree.Clone(root), "remove", path, "")
				out, err := tree.Rewrite(shape(), file, text, without)
				if err != nil {
					t.Errorf("%s without %s: %v", file, path, err)
					continue
				}
				again := changed(t, without, "set", path, tree.Text(backend))
				if out, err = tree.Rewrite(shape(), file, out, again); err != nil || !strings.Contains(string(out), "#") && strings.Contains(string(text), "#") {
					t.Errorf("%s with %s again: %v\n%s", file, path, err, out)
				}
				changes++
			}
		}
	}
	if changes < 10 {
		t.Errorf("only %d changes: the test looks in the wrong place", changes)
	}
}

// A configuration that is rewritten reads as the same.
func TestYAMLReadsAsItself(t *testing.T) {
	for _, root := range []any{read(t, commented), changed(t, read(t, commented), "merge", "/services/dns", `{"health": {"type": "udp", "send": "null"}, "cid": {"protocols": ["quic"], "layouts": [{"length": 8, "owner": {"bits": 8}, "nodes": {"a": [1, 2]}}]}}`)} {
		if again := read(t, string(tree.YAML(shape(), root))); !tree.Equal(again, root) {
			t.Errorf("%s\n%s", tree.YAML(shape(), root), tree.Text(again))
		}
	}
}
