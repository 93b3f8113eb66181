package discovery

import (
	"net/url"
	"strings"
	"testing"
)

func TestParseOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:13478": "http://10.0.0.1:13478", ":13478": "http://localhost:13478", "http://op:1/any/path?x=y": "http://op:1",
		"https://op.example": "https://op.example", "ws://op:1": "http://op:1", "wss://op": "https://op", "[2001:db8::1]:13478": "http://[2001:db8::1]:13478",
		"": "!it has no host", "file:///x": "!it has no host", "ftp://x": "!the scheme is ftp", "http://u:secret@x": "!no user", "http://[::1": "!missing ']'",
		"http://x:port": "!invalid port", strings.Repeat("x", maxOrigin+1): "!too long",
	} {
		got, err := ParseOrigin(text)
		if reason, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%.60q: %v, want %s", text, err, reason)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
	secure := origin(t, "wss://op:5")
	if got := secure.url("ws", ID{"a", "b"}.path(), url.Values{"watch": {"true"}, "node": {"n 1"}}); got != "wss://op:5/api/v1/configs/a/b?node=n+1&watch=true" {
		t.Error(got)
	}
}

func TestParseID(t *testing.T) {
	if id, err := ParseID("media/my-gateway.v1"); err != nil || id != (ID{"media", "my-gateway.v1"}) {
		t.Errorf("%v, %v", id, err)
	}
	for _, text := range []string{"", "/", "a", "a/", "/b", "a/b/c", "a/..", "a/b c", "a/b?x", "a/b%2f", "a/" + strings.Repeat("x", maxName+1), "a/b\x00"} {
		if _, err := ParseID(text); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

// What ParseOrigin and ParseID accept makes requests to that host and below that path only.
func FuzzNames(f *testing.F) {
	f.Add("http://op:13478", "a/b")
	f.Add(":1", "default/x")
	f.Add("wss://[::1]:5/x", "a/..")
	f.Fuzz(func(t *testing.T, at, name string) {
		o, err := ParseOrigin(at)
		if err != nil {
			return
		}
		id, err := ParseID(name)
		if err != nil {
			return
		}
		text := o.url("ws", id.path(), nodeQuery("n&x=y"))
		u, err := url.Parse(text)
		if err != nil || u.Host != o.host || u.User != nil || u.Path != apiPath+"/"+id.Namespace+"/"+id.Name || u.Query().Get("node") != "n&x=y" {
			t.Errorf("%q and %q make %q: %v", at, name, text, err)
		}
	})
}

// A list from a service is bounded, and never longer than what was sent.
func FuzzReadList(f *testing.F) {
	f.Add([]byte(`{"version":"v1","items":[{"admin":{}},{}]}`))
	f.Add([]byte(`{"items":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := ReadList(text)
		if err != nil {
			return
		}
		sum := 0
		for _, config := range all {
			sum += len(config)
		}
		if sum > len(text) || len(all) > MaxConfigs {
			t.Errorf("%d bytes in %d configurations from %d", sum, len(all), len(text))
		}
	})
}
