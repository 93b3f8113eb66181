package resource_test

import (
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// If-Match and If-None-Match are checked for every resource and method before it is called (RFC 7252 section 5.10.8), whether the
// resource says something about its state or not.
func TestConditions(t *testing.T) {
	const none = message.OptionID(0)
	calls, unmet, tag, exists := 0, 0, []byte("tag"), true
	method := func(r *resource.Request) { calls++; r.Done(message.Changed) }
	add := func(f *fixture, path string, state func(*resource.Request) ([]byte, bool)) {
		f.tree.Add(path, &resource.Resource{
			Get: method, Post: method, Put: method, Delete: method, Fetch: method, Patch: method, IPatch: method,
			State: state, Unmet: func() { unmet++ },
		})
	}
	f := newFixture(t, nil)
	add(f, "/plain", nil) // there is one, without a tag
	add(f, "/state", func(*resource.Request) ([]byte, bool) { return tag, exists })
	for _, c := range []struct {
		path   string
		exists bool
		option message.OptionID
		value  string
		holds  bool
	}{
		{"/plain", true, none, "", true},
		{"/plain", true, message.IfMatch, "", true},
		{"/plain", true, message.IfMatch, "tag", false},
		{"/plain", true, message.IfNoneMatch, "", false},
		{"/state", true, message.IfMatch, "", true},
		{"/state", true, message.IfMatch, "tag", true},
		{"/state", true, message.IfMatch, "other", false},
		{"/state", true, message.IfNoneMatch, "", false},
		{"/state", false, message.IfMatch, "", false},
		{"/state", false, message.IfMatch, "tag", false},
		{"/state", false, message.IfNoneMatch, "", true},
		{"/state", false, none, "", true},
	} {
		for _, code := range []message.Code{message.GET, message.POST, message.PUT, message.DELETE, message.FETCH, message.PATCH, message.IPATCH} {
			calls, unmet, exists, tag = 0, 0, c.exists, nil
			if c.exists {
				tag = []byte("tag")
			}
			var options []option
			if c.option != none {
				options = []option{{id: c.option, text: c.value}}
			}
			got := f.do(f.peer(1), code, c.path, "", options...).Code
			want, called := message.PreconditionFailed, 0
			if c.holds {
				want, called = message.Changed, 1
			}
			if got != want || calls != called || unmet != 1-called {
				t.Errorf("%s %s, exists %v, option %d %q: %s, called %d times; want %s", code.Name(), c.path, c.exists, c.option, c.value, got, calls, want)
			}
		}
	}
}
