package tree_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/tree"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// layouts are files that say the same in other ways, for edits to begin with.
var layouts = []string{
	commented,
	"services:\n- name: a # x\n  vips: [{address: 192.0.2.1, protocol: udp, port: 53}, # first\n    {address: 192.0.2.2, protocol: udp, port: 53}]\n  backends: []\n",
	"services: # all\n    -   name: a\n        # above\n        vips:   [ {address: 192.0.2.1, protocol: udp, port: 53} ]   # right\n        backends:\n\n          # b\n          - {name: b, address: 10.0.0.1}\n\n          -   address: 10.0.0.2\n              name: c\n        # below\n# end",
	"---\nhash_key: '00112233445566778899aabbccddeeff' # key\nservices:\n- {name: \"a\", vips: [{address: \"2001:db8::1\", protocol: tcp, port: \"80-90\"}], backends: [{name: b, address: \"2001:db8::2\", weight: 0x10}]} # flow\n- name: b\n  vips: []\n  backends: []\n",
	"# one\r\nmaglev_size: 1009\r\nservices: []\r\n",
	"services:\n- name: \"#1\" # not a comment: #\n  vips: [{address: 192.0.2.1, protocol: udp, port: 53}]\n  health: {type: udp, send: \"a # b\", receive: 'c # d'}\n  backends:\n  - name: b # é ü\n    address: 10.0.0.1 # last\n",
	`{"services": [{"name": "a", "vips": [], "backends": [{"name": "b", "address": "10.0.0.1"}]}]}`,
	"limits: {flows: 7} # x\nservices: [] # y\n# z\n",
}

// place is a value of a tree and its path.
type place struct {
	path  []string
	value any
}

// places are all values that a path names, in a fixed order.
func places(s tree.Shape, path []string, value any) (all []place) {
	all = append(all, place{path, value})
	switch value := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			of, _ := s.Key(key)
			all = append(all, places(of, append(slices.Clip(path), key), value[key])...)
		}
	case []any:
		for _, item := range value {
			if name, ok := s.NameOf(item); ok && s.Named() {
				all = append(all, places(s.Item(), append(slices.Clip(path), name), item)...)
			}
		}
	}
	return all
}

// edited makes one change of a tree. removes: it takes something out or replaces it as a whole, with what is written to it.
func edited(root any, which, how uint16) (after any, removes, ok bool) {
	all := places(shape(), nil, root)
	at := all[int(which)%len(all)]
	var err error
	switch how % 6 {
	case 0:
		after, err = tree.Remove(shape(), root, at.path)
		return after, true, err == nil
	case 1: // another value of the same kind
		var value any
		switch at.value.(type) {
		case json.Number:
			value = json.Number([]string{"1", "53", "2003"}[how/6%3])
		case bool:
			value = how/6%2 == 0
		case string:
			value = []string{"10.0.0.77", "x # y", "null", "7", "30s", "a: b", "é\"'\n"}[how/6%7]
		default:
			return nil, false, false
		}
		if len(at.path) == 0 {
			return nil, false, false
		}
		after, err = tree.Set(shape(), root, at.path, value)
		return after, at.path[len(at.path)-1] == "name", err == nil // with another name it is another item
	case 2, 3: // a key, or items of named lists
		patch, readErr := tree.Read(shape().At(at.path), []byte([]string{
			`{"weight": 5}`, `{"new_flow_rate": 9}`, `{"timeouts": {"udp": "30s"}}`, `{"backends": [{"name": "zz", "address": "10.0.0.9"}]}`,
			`{"services": [{"name": "zz", "vips": [{"address": "192.0.2.9", "protocol": "udp", "port": 9}], "backends": []}]}`, `{"port": null}`, `{"limits": {"flows": 4321}}`,
		}[how/6%7]))
		if _, mapping := at.value.(map[string]any); readErr != nil || !mapping {
			return nil, false, false
		}
		after, err = tree.Patch(shape(), root, at.path, patch)
		return after, how/6%7 == 5, err == nil
	case 4:
		after, err = tree.Add(shape(), root, append(slices.Clip(at.path), "zz"), map[string]any{"address": "10.0.0.8"})
	case 5:
		after, err = tree.Add(shape(), root, append(slices.Clip(at.path), "udp:192.0.2.8:8"), nil)
	}
	return after, false, err == nil
}

// comments are those of a text, in their order.
func comments(text []byte) (all []string) {
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Type == token.CommentType {
			all = append(all, strings.TrimSpace(t.Value))
		}
	}
	return all
}

// lostComments are those of before that are not in after, in this order; ok: all others are, and none is new.
func lostComments(before, after []string) (lost []string, ok bool) {
	i := 0
	for _, c := range before {
		if i < len(after) && after[i] == c {
			i++
			continue
		}
		lost = append(lost, c)
	}
	return lost, i == len(after)
}

// An edited text says what the edited document does, whichever its layout is; comments outside of what is taken out stay, in their order.
func FuzzRewrite(f *testing.F) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint16(9), uint16(0))
	}
	for _, text := range layouts {
		for i := range uint16(24) {
			f.Add([]byte(text), i*5, i*7)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, which, how uint16) {
		if len(text) > 1<<13 {
			return
		}
		if _, _, err := config.Decode[lb.Spec]("f", text); err != nil {
			return
		}
		root, err := tree.Of(shape(), "f", text)
		if err != nil {
			return
		}
		want, removes, ok := edited(tree.Clone(root), which, how)
		if !ok {
			return
		}
		out, err := tree.Rewrite(shape(), "f", text, want)
		if err != nil {
			if out != nil {
				t.Fatalf("an error with a text: %v\n%s", err, out)
			}
			return
		}
		got, err := tree.Of(shape(), "f", out)
		if err != nil || !tree.Equal(got, want) {
			t.Fatalf("%v\n%s\nwith %s is\n%s\nwhich is %s", err, text, tree.Text(want), out, tree.Text(got))
		}
		if json.Valid(text) {
			return // has no comments
		}
		lost, inOrder := lostComments(comments(text), comments(out))
		if !inOrder || len(lost) > 0 && !removes {
			t.Fatalf("comments %q are lost, others in order: %v\n%s\nwith %s is\n%s", lost, inOrder, text, tree.Text(want), out)
		}
		for _, d := range tree.Diff(shape(), root, want) { // what is taken out may take its comments with it, and no others
			if len(lost) > 0 && removes && d.New != nil && d.Old != nil && !strings.HasPrefix(d.Path, "/services") {
				t.Fatalf("comments %q are lost by a change of %s:\n%s\n%s", lost, d.Path, text, out)
			}
		}
		again, err := tree.Rewrite(shape(), "f", out, want)
		if err != nil || string(again) != string(out) {
			t.Fatalf("written again: %v\n%s\nis\n%s", err, out, again)
		}
	})
}
