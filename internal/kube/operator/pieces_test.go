package operator

import (
	"fmt"
	"testing"
)

// What a plane runs is known by the revision that it reports, also after newer ones were published; an unknown one is none.
func TestHistoryKnowsPublishedRevisions(t *testing.T) {
	var h history
	config := func(n int) Config {
		return Config{Plane: "p", Text: fmt.Append(nil, n), Pieces: map[string]string{"gateway": fmt.Sprint(n)}}
	}
	for n := range 3 {
		h.add([]Config{config(n)})
	}
	for n := range 3 {
		c := config(n)
		if got := h.applied(map[string]string{"p": c.Revision()})["p"]["gateway"]; got != fmt.Sprint(n) {
			t.Errorf("revision %d has the piece %q", n, got)
		}
	}
	if got := h.applied(map[string]string{"p": "unknown", "other": "x"}); len(got) != 0 {
		t.Errorf("unknown revisions have pieces: %v", got)
	}
	for n := range 2 * maxRevisions {
		h.add([]Config{config(n)})
	}
	old, newest := config(0), config(2*maxRevisions-1)
	if len(h.applied(map[string]string{"p": old.Revision()})) != 0 || len(h.applied(map[string]string{"p": newest.Revision()})) != 1 {
		t.Error("the bound is not kept: the oldest revision is to be forgotten, and the newest one known")
	}
	h.add(nil)
	if len(h.applied(map[string]string{"p": newest.Revision()})) != 0 {
		t.Error("a plane that is gone is remembered")
	}
}

// An object is applied again when it lacks something that is wanted, not because of what the API server has added.
func TestContains(t *testing.T) {
	is := map[string]any{"a": int64(1), "list": []any{map[string]any{"x": "y", "added": true}}, "added": "default"}
	for _, c := range []struct {
		wanted map[string]any
		want   bool
	}{
		{map[string]any{"apiVersion": "v1", "kind": "Service", "a": int64(1)}, true},
		{map[string]any{"list": []any{map[string]any{"x": "y"}}}, true},
		{map[string]any{"list": []any{map[string]any{"x": "z"}}}, false},
		{map[string]any{"list": []any{}}, false},
		{map[string]any{"list": "y"}, false},
		{map[string]any{"a": int64(2)}, false},
		{map[string]any{"missing": map[string]any{"x": "y"}}, false},
	} {
		if got := contains(is, c.wanted); got != c.want {
			t.Errorf("%v: %v", c.wanted, got)
		}
	}
}
