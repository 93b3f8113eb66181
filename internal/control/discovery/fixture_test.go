package discovery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// within bounds what happens at once unless something is broken.
const within = 30 * time.Second

// plane is a data plane: it refuses configurations that have the word bad in them.
type plane struct {
	mu      sync.Mutex
	applied []string
}

func (p *plane) apply(config []byte) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.Contains(string(config), "bad") {
		return 0, errors.New("f:1:1: services: it is bad; write good")
	}
	p.applied = append(p.applied, string(config))
	return uint64(len(p.applied)), nil
}

func (p *plane) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.applied, "|")
}

// fast are times for tests: retries at once, and a silence that no loaded machine makes by itself.
func fast() times {
	return times{silence: within, first: time.Millisecond, longest: 10 * time.Millisecond}
}

func origin(t *testing.T, text string) Origin {
	t.Helper()
	o, err := ParseOrigin(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// watching runs a watcher until the test or the returned function ends it.
func watching(t *testing.T, w *Watcher) (end func()) {
	t.Helper()
	if w.times == (times{}) {
		w.times = fast()
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

func serving(t *testing.T, o ServerOptions) (*Server, *httptest.Server) {
	t.Helper()
	s := NewServer(o)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return s, h
}

func set(t *testing.T, s *Server, config string) string {
	t.Helper()
	version, err := s.Set([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func wait(t *testing.T, s *Server, version string, nodes ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return s.Wait(ctx, version, nodes...)
}

// has reports whether the server has the record of a node of its own.
func (s *Server) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name] != nil
}

// until waits for what the status of a node says.
func until(t *testing.T, s *Server, what string, is func(NodeStatus) bool) {
	t.Helper()
	deadline := time.After(within)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		for _, n := range s.Nodes() {
			if is(n) {
				return
			}
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: not seen in %+v", what, s.Nodes())
		}
	}
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// listenUnix serves a handler at a Unix socket.
func listenUnix(t *testing.T, path string, h http.Handler) *http.Server {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: within}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return server
}
