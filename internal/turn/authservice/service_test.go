package authservice

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/turn/turncat"
)

const (
	password = "pass-word-1"
	secret   = "shared-secret-1"
)

var start = time.Unix(1_800_000_000, 0)

// gatewayOf is a configuration as an operator makes it, with unknown keys.
func gatewayOf(name, auth string, listeners ...string) []byte {
	return fmt.Appendf(nil, `{"version":"v1","admin":{"name":%q,"x":1},"auth":%s,"listeners":[%s],"clusters":[]}`, name, auth, strings.Join(listeners, ","))
}

const (
	static    = `{"type":"static","realm":"r","credentials":{"username":"user-1","password":"` + password + `"}}`
	ephemeral = `{"type":"ephemeral","credentials":{"secret":"` + secret + `"}}`
)

func listenerOf(name, protocol, host string, port int) string {
	return fmt.Sprintf(`{"name":%q,"protocol":%q,"public_address":%q,"public_port":%d,"address":"$STUNNER_ADDR","port":3478,"cert":"c"}`, name, protocol, host, port)
}

func newService(t *testing.T, o Options, configs ...[]byte) *Service {
	t.Helper()
	o.Now = func() time.Time { return start }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs {
		if err := s.Set(c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func request(t *testing.T, s *Service, method, target string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, target, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	if status := w.Result().StatusCode; status == http.StatusOK && w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%s may be cached", target)
	}
	return w.Result().StatusCode, strings.TrimSpace(string(body))
}

// Answers are those of STUNner's service, byte for byte but for the order of gateways, which is theirs by name here.
func TestAnswers(t *testing.T) {
	s := newService(t, Options{},
		gatewayOf("media/udp", static, listenerOf("media/udp/l1", "TURN-UDP", "192.0.2.1", 3478), listenerOf("media/udp/l2", "TLS", "turn.example.org", 443)),
		gatewayOf("media/tcp", ephemeral, listenerOf("media/tcp/l1", "TURN-TCP", "2001:db8::1", 0), listenerOf("media/tcp/l2", "turn-dtls", "192.0.2.2", 5349)),
		gatewayOf("other/none", `{"type":"none"}`, listenerOf("other/none/l", "UDP", "192.0.2.3", 1)),
		gatewayOf("other/private", static, listenerOf("other/private/l", "UDP", "", 1), listenerOf("legacy", "UDP", "192.0.2.4", 1), listenerOf("other/private/x", "SCTP", "192.0.2.4", 1)),
	)
	made := func(user string, ttl time.Duration) (string, string) {
		c, err := turncat.Ephemeral(secret, user, ttl)(start)
		if err != nil {
			t.Fatal(err)
		}
		return c.User, c.Password
	}
	user, pass := made("alice", time.Hour)
	day, dayPass := made("", 24*time.Hour)
	const udp = `{"credential":"` + password + `","urls":["turn:192.0.2.1:3478?transport=udp","turns:turn.example.org:443?transport=tcp"],"username":"user-1"}`
	tcp := func(user, pass string) string {
		return `{"credential":"` + pass + `","urls":["turn:[2001:db8::1]:3478?transport=tcp","turns:192.0.2.2:5349?transport=udp"],"username":"` + user + `"}`
	}
	for target, want := range map[string]string{
		"/ice?service=turn": `{"iceServers":[` + tcp(day, dayPass) + `,` + udp + `],"iceTransportPolicy":"all"}`,
		"/ice?service=turn&username=alice&ttl=3600&namespace=media&gateway=tcp&iceTransportPolicy=relay": `{"iceServers":[` + tcp(user, pass) + `],"iceTransportPolicy":"relay"}`,
		"/?service=turn&ttl=60&namespace=media&gateway=udp&listener=l1":                                  `{"password":"` + password + `","ttl":60,"uris":["turn:192.0.2.1:3478?transport=udp"],"username":"user-1"}`,
		"/?service=turn&namespace=other&gateway=private&public-addr=[2001:db8::9]":                       `{"password":"` + password + `","ttl":86400,"uris":["turn:[2001:db8::9]:1?transport=udp"],"username":"user-1"}`,
		"/?service=turn&namespace=other":                                                                 "404 no listener",
		"/ice?service=turn&namespace=other&gateway=none":                                                 "404 no listener",
		"/ice":                       `400 "service" must be "turn"`,
		"/ice?service=stun":          `400 "service" must be "turn"`,
		"/?service=turn&gateway=udp": "400 gateway: needs a namespace",
		"/?service=turn&namespace=media&listener=l1":          "400 listener: needs",
		"/?service=turn&ttl=0":                                "400 ttl: write seconds",
		"/?service=turn&ttl=-5":                               "400 ttl: write seconds",
		"/?service=turn&ttl=99999999999999999999":             "400 ttl: write seconds",
		"/?service=turn&ttl=1h":                               "400 ttl: write seconds",
		"/?service=turn&username=a%00b":                       "400 username",
		"/?service=turn&username=%ff":                         "400 username",
		"/?service=turn&username=" + strings.Repeat("x", 257): "400 username",
		"/?service=turn&public-addr=a%20b":                    "400 public-addr",
		"/?service=turn&public-addr=evil%22x":                 "400 public-addr",
		"/ice?service=turn&iceTransportPolicy=none":           "400 iceTransportPolicy",
		"/?service=turn&x=" + strings.Repeat("x", maxQuery):   "400 the parameters are longer",
		"/?service=turn;a=b":                                  "400 the parameters cannot be read",
		"/other?service=turn":                                 "404 404 page",
	} {
		status, body := request(t, s, "GET", target)
		if status != http.StatusOK {
			body = fmt.Sprint(status, " ", body)
		}
		if body != want && (status == http.StatusOK || !strings.HasPrefix(body, want)) {
			t.Errorf("%.100s: %s\nwant %s", target, body, want)
		}
		if status != http.StatusOK && (strings.Contains(body, secret) || strings.Contains(body, password)) {
			t.Errorf("%s: a secret in %s", target, body)
		}
	}
	if status, _ := request(t, s, "POST", "/ice?service=turn"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
	if got := s.Stats(); got.Configs != 4 || got.Issued != 4 || got.Unmatched != 2 || got.Wrong != 16 || got.Refused != 0 {
		t.Errorf("%+v", got)
	}
}

// Credentials are those of the configuration that a gateway has now, and none are given out for one that is gone or cannot be read.
func TestCredentialsFollow(t *testing.T) {
	s := newService(t, Options{})
	if status, _ := request(t, s, "GET", "/?service=turn"); status != http.StatusInternalServerError {
		t.Errorf("without a configuration: %d", status)
	}
	l := listenerOf("a/b/l", "UDP", "192.0.2.1", 1)
	user := func() string {
		_, body := request(t, s, "GET", "/?service=turn")
		return body
	}
	set := func(c []byte) {
		t.Helper()
		if err := s.Set(c); err != nil {
			t.Fatal(err)
		}
	}
	set(gatewayOf("a/b", static, l))
	if !strings.Contains(user(), password) {
		t.Error(user())
	}
	set(gatewayOf("a/b", strings.ReplaceAll(static, password, "pass-word-2"), l))
	if !strings.Contains(user(), "pass-word-2") {
		t.Error(user())
	}
	set(gatewayOf("a/b", ephemeral, l))
	if !strings.Contains(user(), `"username":"1800086400"`) {
		t.Error(user())
	}
	for _, bad := range []string{`{"type":"static","credentials":{"username":"u"}}`, `{"type":"ephemeral"}`, `{"type":"magic"}`} {
		set(gatewayOf("a/b", static, l))
		if err := s.Set(gatewayOf("a/b", bad, l)); err == nil || strings.Contains(err.Error(), "magic") {
			t.Errorf("%s: %v", bad, err)
		}
		if strings.Contains(user(), password) {
			t.Errorf("%s: credentials of the configuration before it are given out", bad)
		}
	}
	for _, bad := range []string{``, `[]`, `{"admin":{"name":"` + password + `"},"auth":"` + password + `"}`, `{"admin":{}}`, `{"admin":{"name":5}}`} {
		if err := s.Set([]byte(bad)); err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	s.Replace([][]byte{gatewayOf("x/y", static, l), []byte("{")})
	if got := s.Stats(); got.Configs != 1 || got.Ignored != 9 {
		t.Errorf("%+v", got)
	}
	s.Remove("x/y")
	if s.Stats().Configs != 0 {
		t.Error("it is not removed")
	}
}

// With a key, requests without it are refused; a public host replaces the addresses of all listeners.
func TestKeyAndPublicHost(t *testing.T) {
	s := newService(t, Options{Key: "key-1", PublicHost: "turn.example.org"}, gatewayOf("a/b", static, listenerOf("a/b/l", "UDP", "", 7)))
	for _, key := range []string{"", "&key=", "&key=key-2", "&key=key-11", "&key=KEY-1"} {
		if status, body := request(t, s, "GET", "/ice?service=turn"+key); status != http.StatusForbidden || strings.Contains(body, password) {
			t.Errorf("%q: %d %s", key, status, body)
		}
	}
	if status, body := request(t, s, "GET", "/ice?service=turn&key=key-1"); status != http.StatusOK || !strings.Contains(body, "turn:turn.example.org:7?") {
		t.Errorf("%d %s", status, body)
	}
	if s.Stats().Refused != 5 {
		t.Errorf("%+v", s.Stats())
	}
	if _, err := New(Options{PublicHost: "a b"}); err == nil {
		t.Error("a public host with a space")
	}
}

// Whatever a client sends is answered or refused, and an answer is bounded.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"service=turn", "service=turn&username=a:1&ttl=5&namespace=media", "service=turn&public-addr=::1&iceTransportPolicy=relay", "%", "a;b"} {
		f.Add(seed)
	}
	s, err := New(Options{})
	if err == nil {
		err = s.Set(gatewayOf("media/tcp", ephemeral, listenerOf("media/tcp/l1", "TURN-TCP", "192.0.2.1", 0)))
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, &http.Request{Method: "GET", URL: &url.URL{Path: "/ice", RawQuery: query}, Host: "x"})
		if body := w.Body.String(); len(body) > 4096 || strings.Contains(body, secret) || w.Code == http.StatusOK && !strings.Contains(body, `"iceServers":[{`) {
			t.Errorf("%q: %d %s", query, w.Code, body)
		}
	})
}

// Whatever an operator sends, its errors hold no value of it.
func FuzzParse(f *testing.F) {
	f.Add(gatewayOf("a/b", static, listenerOf("a/b/c", "UDP", "192.0.2.1", 1)))
	f.Add([]byte(`{"auth":{"credentials":{"secret":5}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, c, err := parse(text)
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("%q: %v", text, err)
		}
		for i := range c.listeners {
			if uri := c.listeners[i].uri(""); strings.ContainsAny(uri, " \"<>\n") {
				t.Errorf("%q makes %q", text, uri)
			}
		}
	})
}
