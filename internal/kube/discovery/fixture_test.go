package discovery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// limit is how long a test waits for what must happen.
const limit = time.Minute

// serve runs a service on loopback until the test, or the returned function, ends it.
func serve(t *testing.T, s *Server, address string) (Origin, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return origin(t, listener.Addr().String()), end
}

func origin(t *testing.T, text string) Origin {
	t.Helper()
	o, err := ParseOrigin(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// quick are the times of a client in a test.
func quick() clientTimes {
	return clientTimes{20 * time.Millisecond, 20 * time.Second, 10 * time.Millisecond, 40 * time.Millisecond}
}

// run runs a watcher until the test ends, and returns what it receives.
func run(t *testing.T, w *Watcher) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	received, done := make(chan string, 64), make(chan error, 1)
	go func() { done <- w.Run(ctx, func(config []byte) { received <- string(config) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return received
}

func want(t *testing.T, received <-chan string, text string) {
	t.Helper()
	select {
	case got := <-received:
		if got != text {
			t.Fatalf("received %.200s, want %.200s", got, text)
		}
	case <-time.After(limit):
		t.Fatalf("%.200s is not received", text)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func set(t *testing.T, s *Server, id, config string) {
	t.Helper()
	parsed, err := ParseID(id)
	if err == nil {
		err = s.Set(parsed, []byte(config))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func options() ServerOptions {
	return ServerOptions{
		Patch: func(config []byte, node string) []byte {
			return []byte(strings.ReplaceAll(string(config), "NODE", node))
		},
		Deleted: func(id ID) []byte { return []byte(`{"gone":"` + id.String() + `"}`) },
		Authorize: func(r *http.Request, id ID) error {
			if id.Namespace == "secret" {
				return errors.New("not for you")
			}
			return nil
		},
	}
}
