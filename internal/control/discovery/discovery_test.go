package discovery

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A node gets the newest configuration and reports its number; a refused one is reported with the reason, and the one before stays.
func TestConfigurationsAndReports(t *testing.T) {
	s, h := serving(t, ServerOptions{})
	p := &plane{}
	state := filepath.Join(t.TempDir(), "state.yaml")
	w := &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: p.apply, StateFile: state}
	watching(t, w)
	until(t, s, "connected", func(n NodeStatus) bool { return n.Connected && n.Wanted == "" })
	one := set(t, s, "one")
	if err := wait(t, s, one, "a"); err != nil {
		t.Fatal(err)
	}
	if n := s.Nodes()[0]; n.Generation != 1 || !n.Current() || n.Error != "" {
		t.Errorf("%+v", n)
	}
	bad := set(t, s, "bad")
	if err := wait(t, s, bad, "a"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "f:1:1: services: it is bad") {
		t.Errorf("a bad configuration: %v", err)
	}
	if n := s.Nodes()[0]; n.Applied != one || n.Refused != bad || n.Current() {
		t.Errorf("%+v", n)
	}
	if got := w.Status(); got.Version != one || got.Refused != bad || got.RefusedError == "" || !got.Connected {
		t.Errorf("%+v", got)
	}
	if text, err := os.ReadFile(state); err != nil || string(text) != "one" {
		t.Errorf("kept %q, %v", text, err)
	}
	if err := wait(t, s, set(t, s, "two"), "a"); err != nil || p.all() != "one|two" {
		t.Errorf("%v, applied %s", err, p.all())
	}
	// back to what was there before, and to something else at once: the last one counts
	set(t, s, "one")
	if err := wait(t, s, set(t, s, "three"), "a"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(state); err != nil || string(text) != "three" {
		t.Errorf("kept %q, %v", text, err)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A node with a configuration of its own gets that one, and the shared one again once its own is gone.
func TestConfigurationOfOneNode(t *testing.T) {
	s, h := serving(t, ServerOptions{})
	a, b := &plane{}, &plane{}
	watching(t, &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: a.apply})
	watching(t, &Watcher{Origin: origin(t, h.URL), Node: "b", Apply: b.apply})
	shared := set(t, s, "shared")
	if err := wait(t, s, shared, "a", "b"); err != nil {
		t.Fatal(err)
	}
	own, err := s.SetNode("a", []byte("own"))
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(t, s, own, "a"); err != nil || b.all() != "shared" {
		t.Errorf("%v, b has %s", err, b.all())
	}
	if _, err := s.SetNode("a", nil); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, s, shared, "a", "b"); err != nil || a.all() != "shared|own|shared" {
		t.Errorf("%v, a has %s", err, a.all())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := s.Wait(ctx, own, "a"); err == nil || !strings.Contains(err.Error(), "node a has not applied the configuration: enough") {
		t.Errorf("wait: %v", err)
	}
}

// A restart while the service is away serves the last valid configuration; the service learns that when it is back, and nothing is
// applied a second time.
func TestRestartWithoutService(t *testing.T) {
	state, socket := filepath.Join(t.TempDir(), "state.yaml"), filepath.Join(t.TempDir(), "s")
	s := NewServer(ServerOptions{})
	first := listenUnix(t, socket, s.Handler())
	watcher := func(p *plane) *Watcher {
		return &Watcher{Origin: origin(t, "unix:"+socket), Node: "a", Apply: p.apply, StateFile: state}
	}
	end := watching(t, watcher(&plane{}))
	good := set(t, s, "good")
	if err := wait(t, s, good, "a"); err != nil {
		t.Fatal(err)
	}
	set(t, s, "bad")
	until(t, s, "refused", func(n NodeStatus) bool { return n.Refused != "" })
	end()
	first.Close()

	p := &plane{}
	again := watcher(p)
	if there, err := again.Restore(); !there || err != nil || p.all() != "good" {
		t.Fatalf("restored %v, %v: %s", there, err, p.all())
	}
	if got := again.Status(); !got.Restored || got.Version != good {
		t.Errorf("%+v", got)
	}
	watching(t, again)
	later := NewServer(ServerOptions{}) // the operator has restarted, too, and renders the same
	version := set(t, later, "good")
	listenUnix(t, socket, later.Handler())
	if err := wait(t, later, version, "a"); err != nil || p.all() != "good" || version != good {
		t.Errorf("%v, applied %s", err, p.all())
	}
	if stats := later.Stats(); stats.Sent != 0 || stats.Nodes != 1 {
		t.Errorf("%+v", stats)
	}
}

func TestStateFilesThatCannotBeUsed(t *testing.T) {
	folder := t.TempDir()
	p := &plane{}
	w := &Watcher{Origin: origin(t, "https://operator:1"), Node: "a", Apply: p.apply, StateFile: filepath.Join(folder, "none")}
	if there, err := w.Restore(); there || err != nil {
		t.Errorf("no file: %v, %v", there, err)
	}
	for text, want := range map[string]string{"": "is empty", "bad": "it is bad", strings.Repeat("x", MaxConfig+1): "is larger than"} {
		w.StateFile = filepath.Join(folder, "state")
		if err := os.WriteFile(w.StateFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if there, err := w.Restore(); there || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v, %v; want %s", text, there, err, want)
		}
	}
	// a folder that is gone: the configuration is in force, and the status says that it is not kept
	s, h := serving(t, ServerOptions{})
	w = &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: p.apply, StateFile: filepath.Join(folder, "gone", "state")}
	watching(t, w)
	if err := wait(t, s, set(t, s, "x"), "a"); err != nil || !strings.Contains(w.Status().StateError, "keep the configuration") {
		t.Errorf("%v, %+v", err, w.Status())
	}
}

// Over TLS with a token from a file, which may change; neither another authority nor another token is accepted.
func TestTLSAndToken(t *testing.T) {
	current := "first-token"
	s := NewServer(ServerOptions{Token: func() (string, error) { return current, nil }})
	h := httptest.NewTLSServer(s.Handler())
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &plane{}
	w := &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: p.apply, CAFile: ca, TokenFile: tokenFile(t, "first-token")}
	watching(t, w)
	if err := wait(t, s, set(t, s, "one"), "a"); err != nil {
		t.Fatal(err)
	}
	for what, other := range map[string]*Watcher{
		"wrong token":                             {CAFile: ca, TokenFile: tokenFile(t, "another")},
		"missing or wrong token":                  {CAFile: ca},
		"certificate signed by unknown authority": {TokenFile: tokenFile(t, "first-token")},
	} {
		other.Origin, other.Node, other.Apply, other.times = w.Origin, "intruder", p.apply, fast()
		if _, err := other.once(t.Context(), within, slogDiscard()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	if nodes := s.Nodes(); len(nodes) != 1 {
		t.Errorf("nodes %+v", nodes)
	}
	w = &Watcher{Origin: origin(t, "http://operator:80"), Node: "a", Apply: p.apply, TokenFile: tokenFile(t, "x")}
	if err := w.Check(); err == nil || !strings.Contains(err.Error(), "without encryption") {
		t.Errorf("a token over http: %v", err)
	}
	w.TokenFile = tokenFile(t, "two words")
	w.Origin = origin(t, h.URL)
	if err := w.Check(); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("a file without token: %v", err)
	}
}

// A stream that has nothing to send shows that the server is there; one that is silent is closed, and the client connects again.
func TestSignsOfLife(t *testing.T) {
	s := NewServer(ServerOptions{})
	s.alive = time.Millisecond
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	silent := NewServer(ServerOptions{})
	silent.alive = time.Hour
	mute := httptest.NewServer(silent.Handler())
	t.Cleanup(func() { mute.CloseClientConnections(); mute.Close() })
	p := &plane{}
	w := &Watcher{Origin: origin(t, mute.URL), Node: "a", Apply: p.apply}
	if got, err := w.once(t.Context(), time.Second, slogDiscard()); !got || err == nil || !strings.Contains(err.Error(), "nothing has arrived for 1s") {
		t.Errorf("%v, %v", got, err)
	}
	answer, err := http.Get(h.URL + configPath + "?node=b")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	signs := make([]byte, len("{}\n")*5)
	if _, err := io.ReadFull(answer.Body, signs); err != nil || string(signs) != strings.Repeat("{}\n", 5) {
		t.Errorf("%q, %v", signs, err)
	}
}

// One node has one stream: the second ends the first, whose node stays connected.
func TestTheNewestStreamCounts(t *testing.T) {
	s, h := serving(t, ServerOptions{})
	p := &plane{}
	first := &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: p.apply}
	ended := make(chan error, 1)
	go func() {
		_, err := first.once(t.Context(), within, slogDiscard())
		ended <- err
	}()
	until(t, s, "connected", func(n NodeStatus) bool { return n.Connected })
	watching(t, &Watcher{Origin: origin(t, h.URL), Node: "a", Apply: p.apply})
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "ended the connection") {
			t.Error(err)
		}
	case <-time.After(within):
		t.Fatal("the first stream goes on")
	}
	if err := wait(t, s, set(t, s, "x"), "a"); err != nil {
		t.Error(err)
	}
	if nodes := s.Nodes(); len(nodes) != 1 || !nodes[0].Connected {
		t.Errorf("%+v", nodes)
	}
	s.Forget("a")
	until(t, s, "back after it was forgotten", func(n NodeStatus) bool { return n.Connected && n.Current() })
}
