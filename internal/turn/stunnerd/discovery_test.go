package stunnerd

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// convert reads a configuration as the gateway does.
func convert(t *testing.T, text []byte) *Result {
	t.Helper()
	file, _, _, err := config.DecodeForeign[Config]("service", text)
	if err != nil {
		t.Fatal(err)
	}
	result, err := file.Convert(func(key string) string { return map[string]string{ownAddress: "10.1.1.1"}[key] })
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestBootstrap(t *testing.T) {
	result := convert(t, Bootstrap("media/udp", "http://:8086"))
	if g := &result.Gateway; g.Name != "media/udp" || len(g.Listeners) != 0 || g.Auth.Mode != gateway.AuthNone || result.Health.Address != ":8086" {
		t.Errorf("%+v", result)
	}
	if result := convert(t, Bootstrap("x", "")); result.Health.Address != "" {
		t.Errorf("%+v", result.Health)
	}
}

func TestIsDeleted(t *testing.T) {
	convert(t, Deleted("a/b"))
	for text, want := range map[string]bool{
		string(Deleted("a/b")): true,
		// as STUNner's operator sends it, after its defaults
		`{"version":"v1","admin":{"name":"a/b","loglevel":"all:INFO","healthcheck_endpoint":"http://:8086","offload_engine":"None"},"auth":{"type":"static","realm":"stunner.l7mp.io","credentials":{"password":"dummy-password","username":"dummy-username"}}}`: true,
		string(Bootstrap("a/b", "")): false,
		`{"auth":{"type":"static","credentials":{"username":"dummy-username","password":"other"}}}`:             false,
		`{"auth":{"credentials":{"username":"dummy-username","password":"dummy-password"}},"listeners":[{}]}`:   false,
		`{"auth":{"credentials":{"username":"dummy-username","password":"dummy-password"}},"clusters":[{}]}`:    false,
		`{"auth":{"type":"ephemeral","credentials":{"username":"dummy-username","password":"dummy-password"}}}`: false,
		`{"auth":{"credentials":[]}}`: false, `[]`: false, ``: false, `{`: false,
	} {
		if got := IsDeleted([]byte(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestPatchNode(t *testing.T) {
	const before = `{"version":"v1","listeners":[{"name":"a","address":"__node_address_placeholder","x":[1]},{"name":"b","address":"10.0.0.1"}],"k":{"a":1.50}}`
	after := PatchNode([]byte(before), "192.0.2.7")
	if got := string(after); !strings.Contains(got, `"address":"192.0.2.7"`) || !strings.Contains(got, `"x":[1]`) || !strings.Contains(got, `"k":{"a":1.50}`) || strings.Contains(got, nodeAddress) {
		t.Error(got)
	}
	if got := string(PatchNode([]byte(before), "")); !strings.Contains(got, `"address":"$STUNNER_ADDR"`) {
		t.Error(got)
	}
	for _, text := range []string{``, `[]`, `{"listeners":"__node_address_placeholder"}`, `{"listeners":[{"name":"__node_address_placeholder"}]}`, `{"listeners":[1,"__node_address_placeholder"]}`} {
		if got := PatchNode([]byte(text), "192.0.2.7"); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// The external address of a node, which no socket can bind, becomes that of a 1:1 NAT.
func TestTranslated(t *testing.T) {
	text := `{"version":"v1","auth":{"type":"none"},"listeners":[{"name":"nat","address":"192.0.2.7"},{"name":"own","address":"$STUNNER_ADDR","port":1},
		{"name":"any","port":2},{"name":"six","address":"2001:db8::1","port":3},{"name":"here","address":"10.9.9.9","port":4}]}`
	c := convert(t, []byte(text)).Gateway
	own := netip.MustParseAddr("10.1.1.1")
	names := Translated(&c, own, func(a netip.Addr) bool { return a.String() == "10.9.9.9" })
	if !reflect.DeepEqual(names, []string{"nat"}) {
		t.Errorf("%q", names)
	}
	l := &c.Listeners[0]
	if l.Address != own || !slices.Equal(l.Relay, []netip.Addr{own}) || l.RelayPublic[0].String() != "192.0.2.7" {
		t.Errorf("%+v", l)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if names := Translated(&c, netip.Addr{}, func(netip.Addr) bool { return false }); len(names) != 0 {
		t.Errorf("without an address of the Pod: %q", names)
	}
}

func TestParseLogLevel(t *testing.T) {
	levels, notes := ParseLogLevel("all:WARN,turn:TRACE,listener-a:ERROR,listener-b:ERROR,bad", &gateway.Config{Listeners: []gateway.ListenerConfig{{Name: "a"}}})
	if levels.Of("turn") != LevelTrace || len(levels.Scopes) != 2 || len(notes) != 2 {
		t.Errorf("%+v, %v", levels, notes)
	}
}

// Whatever an operator sends, the patch keeps the JSON, its other values and the decision whether it is a notice of deletion.
func FuzzPatchNode(f *testing.F) {
	f.Add([]byte(`{"listeners":[{"name":"a","address":"__node_address_placeholder"}],"clusters":[]}`))
	f.Add(Deleted("a/b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		after := PatchNode(text, "192.0.2.7")
		if json.Valid(text) != json.Valid(after) || IsDeleted(text) != IsDeleted(after) {
			t.Errorf("%q became %q", text, after)
		}
		if again := PatchNode(after, "192.0.2.8"); !bytes.Equal(again, after) && !bytes.Contains(after, []byte(nodeAddress)) {
			t.Errorf("%q is patched twice", text)
		}
	})
}
