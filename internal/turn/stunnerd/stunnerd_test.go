package stunnerd

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/config/configtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// load reads a file as `weir turn gateway -c` does.
func load(name string, text []byte, env map[string]string) (*Result, error) {
	file, document, warnings, err := config.DecodeForeign[Config](name, text)
	if err != nil {
		return nil, err
	}
	result, err := file.Convert(func(key string) string { return env[key] })
	if err != nil {
		return nil, document.Locate(err)
	}
	for i, warning := range warnings {
		result.Notes = slices.Insert(result.Notes, i, errors.New(warning))
	}
	return result, nil
}

func loadGood(t *testing.T, name string, env map[string]string) *Result {
	t.Helper()
	text, err := os.ReadFile("testdata/good/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !Recognize(config.Keys(text)) {
		t.Errorf("%s is not recognised", name)
	}
	result, err := load(name, text, env)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func expect(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestV1(t *testing.T) {
	r := loadGood(t, "v1.yaml", map[string]string{"STUNNER_ADDR": "10.9.0.1", "STUNNER_PORT": "3479"})
	expect(t, r.Gateway, gateway.Config{
		Name: "stunner/gateway", Realm: "stunner.example",
		Auth: gateway.AuthConfig{Mode: "static", Users: []gateway.UserConfig{{Name: "user1", Password: "pa$$wd1"}}},
		Listeners: []gateway.ListenerConfig{
			{Name: "stunner/gateway/udp", Protocol: "udp", Address: netip.MustParseAddr("10.9.0.1"), Port: 3479, Public: "198.51.100.7:30001", Routes: []string{"stunner/media", "stunner/names"}},
			{Name: "tcp", Protocol: "tcp", Address: netip.IPv4Unspecified(), Port: 3478},
		},
		Clusters: []gateway.ClusterConfig{
			{Name: "stunner/media", Protocol: "udp", Endpoints: []string{"10.0.0.1", "10.1.0.0/16", "10.2.0.0/16:<10000-20000>"}},
			{Name: "stunner/names", Endpoints: []string{"media.default.svc.cluster.local"}},
		},
		Quotas:  gateway.QuotaConfig{AllocationsPerUser: 10},
		Offload: gateway.OffloadConfig{Mode: "auto", Interfaces: []string{"eth0"}},
	})
	expect(t, r.Health, Endpoint{"0.0.0.0:8086", "/"})
	expect(t, r.Metrics, Endpoint{"0.0.0.0:8080", "/metrics"})
	expect(t, r.Log, LogLevels{All: slog.LevelInfo, Scopes: map[string]slog.Level{"turn": slog.LevelDebug}})
	if len(r.Notes) != 3 {
		t.Errorf("notes %q", r.Notes)
	}
	// Without the variables the defaults hold.
	r = loadGood(t, "v1.yaml", nil)
	expect(t, netip.AddrPortFrom(r.Gateway.Listeners[0].Address, r.Gateway.Listeners[0].Port).String(), "0.0.0.0:3478")
}

func TestV1JSON(t *testing.T) {
	r := loadGood(t, "v1.json", nil)
	expect(t, r.Gateway.Auth, gateway.AuthConfig{Mode: "ephemeral", Secrets: []string{`very/"secret"`}})
	expect(t, r.Health, Endpoint{":8086", "/"})
	expect(t, r.Metrics, Endpoint{})
	expect(t, r.Gateway.Clusters[0].Endpoints, []string{"0.0.0.0/0"})
	if r.Log.All != slog.LevelInfo || r.Log.Scopes != nil || len(r.Notes) != 0 {
		t.Errorf("log %v, notes %q", r.Log, r.Notes)
	}
}

func TestV1Alpha1(t *testing.T) {
	r := loadGood(t, "v1alpha1.yaml", nil)
	expect(t, r.Gateway.Listeners[0].RelayPorts, gateway.PortRange{Min: 10000, Max: 20000})
	expect(t, r.Gateway.Listeners[0].Address, netip.IPv6Loopback())
	expect(t, r.Gateway.Realm, "stunner.l7mp.io")
	expect(t, r.Health, Endpoint{})
	expect(t, r.Metrics, Endpoint{":9000", "/"})
	expect(t, r.Log, LogLevels{All: LevelTrace})
}

// one is the smallest file, with what a test adds.
func one(admin, auth, listener string) []byte {
	return []byte("version: v1\nadmin: {" + admin + "}\nauth: {credentials: {username: u, password: p, secret: s}" + auth + "}\nlisteners: [{name: udp" + listener + "}]\n")
}

func loadOne(t *testing.T, text []byte, env map[string]string) *Result {
	t.Helper()
	r, err := load("f", text, env)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Keys of a newer STUNner, and those in another case, are warnings with their place, and the rest of the file holds.
func TestForeignKeys(t *testing.T) {
	r := loadOne(t, one("logLevel: all:ERROR, future_field: {a: 1}", "", ", stun_mode: true, Port: 3999"), nil)
	expect(t, r.Log.All, slog.LevelError)
	expect(t, r.Gateway.Listeners[0].Port, uint16(3999))
	want := []string{
		"f:2:9: admin.logLevel: read as loglevel; write it in this case",
		"f:2:30: admin.future_field: unknown key, it has no effect; known here: ",
		"f:4:25: listeners[0].stun_mode: unknown key, it has no effect; known here: ",
		"f:4:42: listeners[0].Port: read as port; write it in this case",
	}
	if len(r.Notes) != len(want) {
		t.Fatalf("notes %q", r.Notes)
	}
	for i := range want {
		if !strings.HasPrefix(r.Notes[i].Error(), want[i]) {
			t.Errorf("note %q, want %q", r.Notes[i], want[i])
		}
	}
	if !Recognize([]string{"Version"}) || !Recognize([]string{"ADMIN"}) || Recognize([]string{"listeners"}) {
		t.Error("files are not distinguished by their keys in any case")
	}
}

// STUNNER_PORT is as stunnerd sets it from STUNNER_PUBLIC_PORT.
func TestPublicPortOfTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		port, public string
		want         uint16
	}{
		{"", "", 3478}, {"", "3480", 3480}, {"3479", "3480", 3479}, {"many", "3480", 3480}, {"many", "more", 3478}, {"", "x", 3478},
	} {
		env := map[string]string{"STUNNER_PORT": test.port, "STUNNER_PUBLIC_PORT": test.public}
		for _, text := range []string{"$STUNNER_PORT", "${STUNNER_PORT}"} {
			if r := loadOne(t, one("", "", ", port: '"+text+"'"), env); r.Gateway.Listeners[0].Port != test.want {
				t.Errorf("%v: port %d, want %d", env, r.Gateway.Listeners[0].Port, test.want)
			}
		}
	}
}

func TestTypesOfAuthentication(t *testing.T) {
	for kind, want := range map[string]gateway.AuthMode{
		"static": "static", "plaintext": "static", "ephemeral": "ephemeral", "longterm": "ephemeral", "timewindowed": "ephemeral", "none": "none",
	} {
		r := loadOne(t, one("", ", type: "+kind, ""), nil)
		expect(t, r.Gateway.Auth.Mode, want)
	}
}

// The placeholder stands for the node's address; behind a 1:1 NAT sockets bind the pod's.
func TestNodeAddress(t *testing.T) {
	type env = map[string]string
	for _, test := range []struct {
		env             env
		address, public string
		problem         string
	}{
		{env{"STUNNER_NODE_ADDR": "10.0.0.7"}, "10.0.0.7", "", ""},
		{env{"STUNNER_NODE_ADDR": " 10.0.0.7\n", "STUNNER_ADDR": "10.0.0.7"}, "10.0.0.7", "", ""},
		{env{"STUNNER_NODE_ADDR": "198.51.100.7", "STUNNER_ADDR": "10.0.0.7"}, "10.0.0.7", "198.51.100.7", ""},
		{env{"STUNNER_NODE_ADDR": "2001:db8::7", "STUNNER_ADDR": "10.0.0.7"}, "2001:db8::7", "", ""},
		{env{"STUNNER_NODENAME": "10.0.0.8"}, "10.0.0.8", "", ""},
		{env{"STUNNER_NODENAME": "node-8", "STUNNER_ADDR": "10.0.0.7"}, "", "", `listeners[0].address: __node_address_placeholder: the node's address is not known, and "node-8" is none; set STUNNER_NODE_ADDR`},
	} {
		r, err := load("f", one("", "", ", address: __node_address_placeholder"), test.env)
		if test.problem != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "f:4:") || !strings.Contains(err.Error(), test.problem) {
				t.Errorf("%v: %v", test.env, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", test.env, err)
			continue
		}
		l := r.Gateway.Listeners[0]
		expect(t, l.Address.String(), test.address)
		if test.public == "" {
			expect(t, len(l.Relay)+len(l.RelayPublic)+len(r.Notes), 0)
		} else {
			expect(t, [][]netip.Addr{l.Relay, l.RelayPublic}, [][]netip.Addr{{l.Address}, {netip.MustParseAddr(test.public)}})
			expect(t, len(r.Notes), 1)
		}
	}
}

// What stunnerd ignores of relay ports is a note.
func TestRelayPorts(t *testing.T) {
	for text, want := range map[string]struct {
		ports gateway.PortRange
		notes int
	}{
		"min_relay_port: 10000, max_relay_port: 20000": {gateway.PortRange{Min: 10000, Max: 20000}, 0},
		"min_relay_port: 1, max_relay_port: 65535":     {gateway.PortRange{}, 0},
		"min_relay_port: 100, max_relay_port: 20000":   {gateway.PortRange{Min: 1024, Max: 20000}, 1},
		"min_relay_port: 20000":                        {gateway.PortRange{Min: 20000, Max: 65535}, 0},
		"min_relay_port: 100, max_relay_port: 200":     {gateway.PortRange{}, 1},
		"min_relay_port: 100, max_relay_port: 1024":    {gateway.PortRange{}, 1},
		"min_relay_port: 1000, max_relay_port: 10":     {gateway.PortRange{}, 1},
		"min_relay_port: 5000, max_relay_port: 5000":   {gateway.PortRange{}, 1},
		"min_relay_port: many":                         {gateway.PortRange{}, 1},
		"max_relay_port: 70000":                        {gateway.PortRange{}, 1},
	} {
		r := loadOne(t, one("", "", ", "+text), nil)
		if got := r.Gateway.Listeners[0].RelayPorts; got != want.ports || len(r.Notes) != want.notes {
			t.Errorf("%s: %v, notes %q", text, got, r.Notes)
		}
	}
}

// Levels are by scope, in the order of the file as in STUNner; what is no level or no scope is a note.
func TestLogLevels(t *testing.T) {
	type scopes = map[string]slog.Level
	for text, want := range map[string]struct {
		levels LogLevels
		notes  int
	}{
		"":                                   {LogLevels{All: slog.LevelInfo}, 0},
		"all:INFO,turn:DEBUG":                {LogLevels{All: slog.LevelInfo, Scopes: scopes{"turn": slog.LevelDebug}}, 0},
		"ALL:debug":                          {LogLevels{All: slog.LevelDebug}, 0},
		"turn:TRACE, listener-udp:DISABLE":   {LogLevels{All: slog.LevelInfo, Scopes: scopes{"turn": LevelTrace, "listener-udp": LevelOff}}, 0},
		"turn:DEBUG,all:WARN,resolver:ERROR": {LogLevels{All: slog.LevelWarn, Scopes: scopes{"resolver": slog.LevelError}}, 0},
		"debug":                              {LogLevels{All: slog.LevelInfo}, 1},
		"all:LOUD,turn:DEBUG":                {LogLevels{All: slog.LevelInfo, Scopes: scopes{"turn": slog.LevelDebug}}, 1},
		"listener-other:DEBUG,":              {LogLevels{All: slog.LevelInfo}, 2},
	} {
		r := loadOne(t, one("loglevel: '"+text+"'", "", ""), nil)
		if !reflect.DeepEqual(r.Log, want.levels) || len(r.Notes) != want.notes {
			t.Errorf("%q: %+v, notes %q", text, r.Log, r.Notes)
		}
	}
}

func TestExample(t *testing.T) {
	r := loadGood(t, "../../../../../examples/turn/stunnerd.yaml", map[string]string{"STUNNER_ADDR": "10.0.0.9"})
	expect(t, r.Gateway.Listeners[0].Address.String(), "10.0.0.9")
	expect(t, r.Health, Endpoint{"127.0.0.1:8086", "/"})
}

func TestBadFiles(t *testing.T) {
	configtest.Bad(t, 20, ":", func(file string, text []byte) error { _, err := load(file, text, nil); return err })
}

// A certificate made by hand passes through base64.
func TestCertificate(t *testing.T) {
	const cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for _, text := range []string{"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", cert} {
		got, err := pem(text)
		if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(cert) {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestFromURI(t *testing.T) {
	for uri, want := range map[string]string{
		"turn://user1:passwd1@127.0.0.1:3479":                "udp 127.0.0.1:3479",
		"turn://user1:passwd1@0.0.0.0":                       "udp 0.0.0.0:3478",
		"turn://user1:passwd1@:3480?transport=tcp":           "tcp 0.0.0.0:3480",
		"turn://user1:passwd1@[::1]:3479?transport=TLS":      "tls [::1]:3479",
		"turn://user1:passwd1@127.0.0.1:3479?transport=dtls": "dtls 127.0.0.1:3479",
		"turns://user1:passwd1@127.0.0.1:5349":               "tls 127.0.0.1:5349",
		"turns://user1:passwd1@127.0.0.1:5349?transport=udp": "dtls 127.0.0.1:5349",
		"turn:user1:passwd1@localhost:3479?transport=udp":    "udp 127.0.0.1:3479",
	} {
		c, err := FromURI(uri, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		l := c.Listeners[0]
		if got := string(l.Protocol) + " " + netip.AddrPortFrom(l.Address, l.Port).String(); got != want || l.SelfSigned != l.Protocol.Secure() {
			t.Errorf("%s: %s, want %s", uri, got, want)
		}
		expect(t, c.Auth.Users, []gateway.UserConfig{{Name: "user1", Password: "passwd1"}})
		expect(t, c.Clusters, []gateway.ClusterConfig{{Name: "peers", Endpoints: []string{"0.0.0.0/0", "::/0"}}})
	}
	c, err := FromURI("turn://us%40er:p%3Aw@10.0.0.1", []string{"10.0.0.0/8:5000-6000"}, []string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c.Auth.Users[0], gateway.UserConfig{Name: "us@er", Password: "p:w"})
	expect(t, c.Listeners[0].Routes, []string{"peers", "tcp-peers"})
	for uri, want := range map[string]string{
		"http://user:pass@h":                          "no TURN URI",
		"turn":                                        "no TURN URI",
		"turn://127.0.0.1:3478":                       "no user with a password",
		"turn://user@127.0.0.1:3478":                  "no user with a password",
		"turn://user:pass@media.example:3478":         "is no address to listen at",
		"turn://user:pass@127.0.0.1:70000":            "no port",
		"turn://user:pass@127.0.0.1:3478?transport=x": "no transport",
		"turn://user:pass@127.0.0.1:3478?x=y":         "no parameter",
		"turn://user:pass@127.0.0.1/x":                "no path",
		"turn://user:pa ss@127.0.0.1":                 "TURN URI",
	} {
		_, err := FromURI(uri, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", uri, err, want)
		} else if strings.Contains(err.Error(), ":pass@") || strings.Contains(err.Error(), "pa ss") {
			t.Errorf("%s: the error shows the password: %v", uri, err)
		}
	}
	if _, err := FromURI("turn://u:p@127.0.0.1", []string{"x y"}, nil); err == nil || !strings.HasPrefix(err.Error(), "clusters[0].endpoints[0]: ") {
		t.Errorf("bad peers: %v", err)
	}
}

// Files and URIs may come from anywhere: whatever converts is valid, and nothing panics.
func FuzzConvert(f *testing.F) {
	configtest.Seeds(f, "testdata/*/*")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		defer time.AfterFunc(time.Minute, func() { panic("still converting") }).Stop()
		result, err := load("f", text, map[string]string{"STUNNER_ADDR": "10.0.0.1"})
		if err == nil && result.Gateway.Validate() != nil {
			t.Errorf("converts to what is not valid: %v", result.Gateway.Validate())
		}
	})
}

func FuzzFromURI(f *testing.F) {
	for _, seed := range []string{"turn://user1:passwd1@127.0.0.1:3479?transport=tls", "turns:u:p@[::1]", "turn:%zz@", "turn:u:p@h:1?transport=udp#x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if c, err := FromURI(uri, nil, nil); err == nil && (c.Validate() != nil || len(c.Listeners) != 1) {
			t.Errorf("%q gives what is not valid", uri)
		}
	})
}
