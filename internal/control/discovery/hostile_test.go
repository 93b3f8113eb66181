package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func slogDiscard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// What a server may send without being followed: the watcher ends the connection, says why, and applies nothing.
func TestHostileServer(t *testing.T) {
	lie, err := json.Marshal(message{Version: Version([]byte("x")), Config: "y"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		answer http.HandlerFunc
		want   string
	}{
		{"an endless line", func(w http.ResponseWriter, r *http.Request) {
			for chunk := bytes.Repeat([]byte("x"), 1<<16); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "line of more than"},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "services: []\n") }, "no configuration"},
		{"another text than its version", func(w http.ResponseWriter, _ *http.Request) { w.Write(append(lie, '\n')) }, "is not its version"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "redirects"},
		{"a page", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.Write(bytes.Repeat([]byte("y"), 1<<20))
		}, "418"},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, "ended the connection"},
		{"a report that is refused", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			config := []byte("good")
			json.NewEncoder(w).Encode(message{Version: Version(config), Config: string(config)})
		}, "answers a report with 400"},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := httptest.NewServer(c.answer)
			t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
			p := &plane{}
			w := &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: p.apply}
			_, err := w.once(t.Context(), within, slogDiscard())
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%v, want %s", err, c.want)
			}
			if got := p.all(); got != "" && got != "good" {
				t.Errorf("applied %q", got)
			}
		})
	}
}

// What a client may send without effect on others.
func TestHostileClient(t *testing.T) {
	s, h := serving(t, ServerOptions{})
	version := Version([]byte("x"))
	for _, c := range []struct{ method, target, body string }{
		{"GET", configPath, ""},
		{"GET", configPath + "?node=a/b", ""},
		{"GET", configPath + "?node=" + strings.Repeat("a", 254), ""},
		{"GET", configPath + "?node=a&applied=../../x", ""},
		{"POST", appliedPath + "?node=a", ""},
		{"POST", appliedPath + "?node=a", "{"},
		{"POST", appliedPath + "?node=a", "{}"},
		{"POST", appliedPath + "?node=a", `{"version":"short"}`},
		{"POST", appliedPath + "?node=a", `{"version":"` + version + `","error":"` + strings.Repeat("x", maxReport) + `"}`},
		{"POST", appliedPath + "?node=a", `{"version":"` + version + `","generation":-1}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, h.URL+c.target, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %.60s %.60s: %s", c.method, c.target, c.body, answer.Status)
		}
	}
	if nodes, stats := s.Nodes(), s.Stats(); len(nodes) != 0 || stats.Rejected != 10 {
		t.Errorf("nodes %+v, %+v", nodes, stats)
	}
}

// Nodes that come and go do not fill the server: the one seen longest ago makes room, a connected one never.
func TestNodesAreBounded(t *testing.T) {
	s, h := serving(t, ServerOptions{})
	p := &plane{}
	watching(t, &Watcher{Origin: origin(t, h.URL), Node: "connected", Apply: p.apply})
	until(t, s, "connected", func(n NodeStatus) bool { return n.Connected })
	report := fmt.Sprintf(`{"version":%q}`, Version([]byte("x")))
	for i := range MaxNodes + 10 {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, fmt.Sprintf("%s?node=n%d", appliedPath, i), strings.NewReader(report)))
		if w.Code != http.StatusNoContent {
			t.Fatalf("node %d: %d", i, w.Code)
		}
	}
	nodes := s.Nodes()
	if len(nodes) != MaxNodes || !nodes[0].Connected || nodes[0].Node != "connected" {
		t.Errorf("%d nodes, the first is %+v", len(nodes), nodes[0])
	}
	for _, n := range nodes {
		if n.Node == "n0" {
			t.Error("the oldest one is still there")
		}
	}
}

func TestServerRefusesConfigurations(t *testing.T) {
	s := NewServer(ServerOptions{})
	before := set(t, s, "good")
	for what, config := range map[string][]byte{"too long": make([]byte, MaxConfig+1), "binary": {0xff}, "long when quoted": bytes.Repeat([]byte{1}, MaxConfig)} {
		if version, err := s.Set(config); err == nil || version != "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.SetNode("a b", []byte("x")); err == nil {
		t.Error("a node with a space")
	}
	if got := s.shared.id; got != before {
		t.Errorf("the configuration is now %s", got)
	}
}

func TestOrigins(t *testing.T) {
	for text, want := range map[string]string{
		"https://operator.weir:8443": "https://operator.weir:8443", "http://[::1]:80/": "http://[::1]:80", "unix:/run/weir/cds": "unix:/run/weir/cds",
	} {
		if o := origin(t, text); o.String() != want {
			t.Errorf("%s: %s", text, o)
		}
	}
	for _, text := range []string{"", "operator:80", "ftp://x", "http://", "http://u:secret@x", "http://x/path", "http://x?y=1", "unix:x", "unix:/" + strings.Repeat("x", 200), "http://%zz", "https://" + strings.Repeat("x", 600)} {
		if o, err := ParseOrigin(text); err == nil || strings.Contains(err.Error(), "secret") || len(err.Error()) > 400 {
			t.Errorf("%.40q: %s, %v", text, o, err)
		}
	}
}

// A line of any server is refused or is a configuration that its version names.
func FuzzReceived(f *testing.F) {
	good, err := json.Marshal(message{Version: Version([]byte("x")), Config: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"version":"0","config":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m message
		if json.Unmarshal(text, &m) != nil || m.Version == "" {
			return
		}
		w := &Watcher{Apply: func(config []byte) (uint64, error) {
			if Version(config) != m.Version {
				t.Errorf("%q was applied as %s", config, m.Version)
			}
			return 1, nil
		}}
		if err := w.received(&m, slogDiscard()); err == nil && w.Status().Version != m.Version {
			t.Errorf("%q is in force", w.Status().Version)
		}
	})
}
