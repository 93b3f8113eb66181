package discovery

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// Configurations are read once, all or one, as they are for a node.
func TestGet(t *testing.T) {
	s := NewServer(options())
	set(t, s, "media/udp", `{"at":"NODE"}`)
	set(t, s, "other/tcp", `{"n":1}`)
	at, _ := serve(t, s, "127.0.0.1:0")
	if got, err := Get(t.Context(), at, ID{"media", "udp"}, "n1"); err != nil || string(got) != `{"at":"n1"}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := Get(t.Context(), at, ID{"media", "tcp"}, ""); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if got, err := List(t.Context(), at, ""); err != nil || len(got) != 2 || string(got[0]) != `{"at":"NODE"}` || string(got[1]) != `{"n":1}` {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := List(t.Context(), at, "other"); err != nil || len(got) != 1 {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := List(t.Context(), at, "none"); err != nil || len(got) != 0 {
		t.Errorf("%s, %v", got, err)
	}
}

// Requests that are none of the protocol's are refused with a reason.
func TestRefusedRequests(t *testing.T) {
	s := NewServer(options())
	set(t, s, "secret/udp", "1")
	at, _ := serve(t, s, "127.0.0.1:0")
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/api/v1/license", 200},
		{"GET", "/api/v1/configs", 200},
		{"GET", "/api/v1/configs/none/x", 404},
		{"GET", "/", 404},
		{"POST", "/api/v1/configs", 405},
		{"DELETE", "/api/v1/configs/a/b", 405},
		{"GET", "/api/v1/configs?watch=maybe", 400},
		{"GET", "/api/v1/configs?watch=true", 400},
		{"GET", "/api/v1/configs/a%2fb/c", 400},
		{"GET", "/api/v1/configs/a/" + long, 400},
		{"GET", "/api/v1/configs/a/b?node=" + long, 400},
		{"GET", "/api/v1/configs/a/b%00", 400},
		{"GET", "/api/v1/configs/secret/udp", 403},
		{"GET", "/api/v1/configs/secret", 403},
		{"GET", "/api/v1/configs/secret/udp?watch=1", 403},
		{"GET", "/api/v1/configs/" + strings.Repeat("y", 2*maxHeader), 431},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, at.String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.status || strings.Contains(string(body), long) {
			t.Errorf("%s %.60s: %s %s, want %d", c.method, c.path, answer.Status, body, c.status)
		}
	}
	if got := s.Stats().Refused; got != 3 {
		t.Errorf("%d refused", got)
	}
}

// dial connects a client that reads nothing.
func dial(t *testing.T, at Origin, path string, header http.Header) (*websocket.Conn, error) {
	t.Helper()
	conn, answer, err := websocket.DefaultDialer.DialContext(t.Context(), at.url("ws", path, url.Values{"watch": {"true"}}), header)
	if err != nil {
		if answer != nil {
			err = fmt.Errorf("%s: %w", answer.Status, err)
		}
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return conn, nil
}

// A page of another origin in a browser cannot read configurations.
func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	s := NewServer(ServerOptions{})
	at, _ := serve(t, s, "127.0.0.1:0")
	if _, err := dial(t, at, apiPath, http.Header{"Origin": {"http://evil.example"}}); err == nil || !strings.Contains(err.Error(), "403") {
		t.Error(err)
	}
	if _, err := dial(t, at, apiPath, http.Header{"Origin": {at.String()}}); err != nil {
		t.Error(err)
	}
	eventually(t, "one watcher", func() bool { return s.Stats().Watchers == 1 })
}

// One address has its share of watchers, and those of others are served.
func TestAnAddressHasAShare(t *testing.T) {
	s := NewServer(ServerOptions{})
	set(t, s, "a/b", "1")
	for range MaxWatchersPerAddress {
		if _, err := s.store.subscribe(ID{}, "", "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	at, _ := serve(t, s, "127.0.0.1:0")
	if _, err := dial(t, at, apiPath, nil); err == nil || !strings.Contains(err.Error(), "503") {
		t.Error(err)
	}
	other, err := s.store.subscribe(ID{}, "", "127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	s.store.unsubscribe(other)
	if got := s.Stats(); got.Refused != 1 || got.Watchers != MaxWatchersPerAddress || len(s.store.sources) != 1 {
		t.Errorf("%+v, %v", got, s.store.sources)
	}
	for i := MaxWatchersPerAddress; i < MaxWatchers; i++ {
		if _, err := s.store.subscribe(ID{}, "", fmt.Sprint(i/MaxWatchersPerAddress)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.store.subscribe(ID{}, "", "last"); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

// A client that sends much is disconnected, and one that answers no ping; others go on.
func TestHostileWatchers(t *testing.T) {
	s := NewServer(ServerOptions{})
	s.times = serverTimes{ping: 20 * time.Millisecond, wait: 500 * time.Millisecond, write: 200 * time.Millisecond}
	at, _ := serve(t, s, "127.0.0.1:0")
	run(t, &Watcher{Origin: at, times: quick()})
	eventually(t, "the good watcher", func() bool { return s.Stats().Watchers == 1 })

	talker, err := dial(t, at, apiPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for talker.WriteMessage(websocket.TextMessage, make([]byte, maxInbound+1)) == nil { // until it is refused
		}
	}()
	eventually(t, "the talker is gone", func() bool { return s.Stats().Watchers == 1 })

	if _, err := dial(t, at, apiPath, nil); err != nil { // it reads nothing, so it answers no ping
		t.Fatal(err)
	}
	eventually(t, "the silent one is gone", func() bool { return s.Stats().Dropped == 1 && s.Stats().Watchers == 1 })
}

// A client that does not read is disconnected when the buffers of its connection are full; others receive what changes meanwhile.
func TestAWatcherThatDoesNotRead(t *testing.T) {
	s := NewServer(ServerOptions{})
	s.times = serverTimes{ping: limit, wait: limit, write: 200 * time.Millisecond}
	at, _ := serve(t, s, "127.0.0.1:0")
	good := run(t, &Watcher{Origin: at, times: quick()})
	eventually(t, "the good watcher", func() bool { return s.Stats().Watchers == 1 })
	if _, err := dial(t, at, apiPath+"/big", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sleeper is there", func() bool { return s.Stats().Watchers == 2 })
	for i := 0; s.Stats().Dropped == 0; i++ {
		set(t, s, "big/one", strings.Repeat(fmt.Sprint(i%10), MaxConfig))
		select {
		case <-good:
		case <-time.After(limit):
			t.Fatal("the good watcher receives nothing")
		}
	}
	eventually(t, "only the good one", func() bool { return s.Stats().Watchers == 1 })
}

// Bounds and names of configurations.
func TestSetRefuses(t *testing.T) {
	s := NewServer(ServerOptions{})
	for _, id := range []ID{{}, {"a", ""}, {"", "b"}, {"a/b", "c"}, {"..", "c"}, {"a", strings.Repeat("x", maxName+1)}} {
		if err := s.Set(id, nil); !errors.Is(err, errNameless) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := s.Set(ID{"a", "b"}, make([]byte, MaxConfig+1)); !errors.Is(err, errTooLong) {
		t.Error(err)
	}
	for i := range MaxConfigs {
		set(t, s, fmt.Sprintf("a/%d", i), "1")
	}
	if err := s.Set(ID{"a", "one-more"}, []byte("1")); !errors.Is(err, errTooMany) {
		t.Error(err)
	}
	set(t, s, "a/5", "2") // an existing one can change
	if err := s.Replace(nil); err != nil || s.Stats().Configs != 0 {
		t.Errorf("%v, %+v", err, s.Stats())
	}
}
