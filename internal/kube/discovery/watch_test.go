package discovery

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// A watcher receives what there is, what changes and what is deleted, as it is for its node, and nothing of others.
func TestWatch(t *testing.T) {
	s := NewServer(options())
	set(t, s, "media/udp", `{"at":"NODE","n":1}`)
	at, _ := serve(t, s, "127.0.0.1:0")
	one := &Watcher{Origin: at, ID: ID{"media", "udp"}, Node: "n1", times: quick()}
	received := run(t, one)
	namespace := run(t, &Watcher{Origin: at, ID: ID{Namespace: "media"}, times: quick()})
	all := run(t, &Watcher{Origin: at, times: quick()})
	want(t, received, `{"at":"n1","n":1}`)
	want(t, namespace, `{"at":"NODE","n":1}`)
	want(t, all, `{"at":"NODE","n":1}`)
	set(t, s, "media/udp", `{"at":"NODE","n":1}`) // unchanged: not sent
	set(t, s, "other/udp", `{"n":9}`)
	want(t, all, `{"n":9}`)
	set(t, s, "media/udp", `{"n":2}`)
	want(t, received, `{"n":2}`)
	want(t, namespace, `{"n":2}`)
	want(t, all, `{"n":2}`)
	s.Push("n2") // none of these runs there
	s.Push("n1")
	want(t, received, `{"n":2}`)
	s.Delete(ID{"media", "udp"})
	want(t, received, `{"gone":"media/udp"}`)
	want(t, namespace, `{"gone":"media/udp"}`)
	want(t, all, `{"gone":"media/udp"}`)
	if err := s.Replace(map[ID][]byte{{"media", "udp"}: []byte(`{"n":3}`), {"media", "tcp"}: []byte(`{"n":4}`)}); err != nil {
		t.Fatal(err)
	}
	want(t, received, `{"n":3}`)
	if got := s.Stats(); got.Configs != 2 || got.Watchers != 3 || got.Refused+got.Dropped != 0 {
		t.Errorf("%+v", got)
	}
	if got := one.Status(); !got.Connected || got.Connects != 1 || got.Received != 5 || got.ID != "media/udp" || got.Error != "" {
		t.Errorf("%+v", got)
	}
}

// A slow watcher receives the newest of each configuration, not all that were there meanwhile.
func TestASlowWatcherSkips(t *testing.T) {
	s := NewServer(ServerOptions{})
	sub, err := s.store.subscribe(ID{}, "", "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"1", "2", "3"} {
		set(t, s, "a/b", text)
		set(t, s, "a/a", text)
	}
	if got := s.store.changes(sub); len(got) != 2 || string(got[0].config) != "3" || got[0].id.Name != "a" || string(got[1].config) != "3" {
		t.Errorf("%v", got)
	}
	if got := s.store.changes(sub); len(got) != 0 {
		t.Errorf("sent again: %v", got)
	}
}

// A watcher connects again to a service that comes back at its address, however often it fails meanwhile.
func TestWatcherConnectsAgain(t *testing.T) {
	first := NewServer(ServerOptions{})
	set(t, first, "a/b", "1")
	at, end := serve(t, first, "127.0.0.1:0")
	w := &Watcher{Origin: at, ID: ID{"a", "b"}, times: quick()}
	received := run(t, w)
	want(t, received, "1")
	end()
	eventually(t, "several failures", func() bool { got := w.Status(); return !got.Connected && got.Failures > 3 && got.Error != "" })
	second := NewServer(ServerOptions{})
	set(t, second, "a/b", "2")
	serve(t, second, strings.TrimPrefix(at.String(), "http://"))
	want(t, received, "2")
	if got := w.Status(); !got.Connected || got.Connects != 2 || got.Error != "" {
		t.Errorf("%+v", got)
	}
}

// hostile is a service that speaks to its watchers through f, one call for each connection.
func hostile(t *testing.T, f func(conn *websocket.Conn)) Origin {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		f(conn)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return origin(t, listener.Addr().String())
}

// What a hostile or broken service sends ends its connection with a reason, and the next configuration arrives over the next one.
func TestWatcherOfAHostileService(t *testing.T) {
	for name, c := range map[string]struct {
		send func(conn *websocket.Conn)
		want string
	}{
		"too long": {func(conn *websocket.Conn) { conn.WriteMessage(websocket.TextMessage, make([]byte, MaxConfig+1)) }, "more than 1048576 bytes"},
		"endless": {func(conn *websocket.Conn) {
			w, err := conn.NextWriter(websocket.TextMessage)
			for i := 0; err == nil && i < 100; i++ { // fragments of one message
				_, err = w.Write(make([]byte, 64<<10))
			}
		}, "more than 1048576 bytes"},
		"binary":      {func(conn *websocket.Conn) { conn.WriteMessage(websocket.BinaryMessage, []byte("1")) }, "binary message"},
		"bad frame":   {func(conn *websocket.Conn) { conn.NetConn().Write([]byte{0xff, 0xff, 0xff, 0xff}) }, "websocket"},
		"wrong UTF-8": {func(conn *websocket.Conn) { conn.WriteMessage(websocket.TextMessage, []byte{0xff}); conn.Close() }, "binary message"},
		"cut short":   {func(conn *websocket.Conn) { conn.NetConn().Write([]byte{0x81, 0x7e, 0x10}); conn.Close() }, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			first := make(chan struct{}, 1)
			first <- struct{}{}
			at := hostile(t, func(conn *websocket.Conn) {
				select {
				case <-first:
					c.send(conn)
				default:
					conn.WriteMessage(websocket.TextMessage, nil) // ignored
					conn.WriteMessage(websocket.TextMessage, []byte("good"))
				}
				conn.ReadMessage()
			})
			log := new(lockedText)
			w := &Watcher{Origin: at, ID: ID{"a", "b"}, times: quick(), Log: slog.New(slog.NewTextHandler(log, nil))}
			want(t, run(t, w), "good")
			if !strings.Contains(log.String(), c.want) || len(log.String()) > 4000 {
				t.Errorf("the log lacks %q: %s", c.want, log.String())
			}
		})
	}
}

// lockedText is what a log has.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A service that stops to answer is left after a while, though its connection stays open.
func TestASilentServiceIsLeft(t *testing.T) {
	connections := make(chan struct{}, 16)
	at := hostile(t, func(conn *websocket.Conn) {
		conn.SetPingHandler(func(string) error { return nil }) // no pong
		conn.WriteMessage(websocket.TextMessage, []byte("1"))
		connections <- struct{}{}
		conn.ReadMessage()
	})
	times := quick()
	times.silence = 200 * time.Millisecond
	w := &Watcher{Origin: at, ID: ID{"a", "b"}, times: times}
	received := run(t, w)
	want(t, received, "1")
	want(t, received, "1")
	if got := w.Status(); got.Connects < 2 || got.Failures < 1 {
		t.Errorf("%+v", got)
	}
}

// Pongs keep a connection on which nothing else arrives.
func TestPongsKeepAConnection(t *testing.T) {
	s := NewServer(ServerOptions{})
	at, _ := serve(t, s, "127.0.0.1:0")
	times := quick()
	times.silence = 5 * time.Second
	w := &Watcher{Origin: at, ID: ID{"a", "b"}, times: times}
	received := run(t, w)
	eventually(t, "a watcher", func() bool { return s.Stats().Watchers == 1 })
	set(t, s, "a/b", "1")
	want(t, received, "1")
	if got := w.Status(); got.Connects != 1 || got.Failures != 0 {
		t.Errorf("%+v", got)
	}
}

// What answers without being a service is named with its answer, not followed, and bounded.
func TestGetOfAHostileService(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   string
	}{
		"redirect":    {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "302"},
		"not found":   {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ErrNotFound.Error()},
		"error":       {"HTTP/1.1 500 Oops\r\nContent-Length: 25\r\n\r\n{\"message\":\"out of luck\"}", "out of luck"},
		"no HTTP":     {"SSH-2.0-OpenSSH\r\n", "malformed HTTP"},
		"cut short":   {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "unexpected EOF"},
		"too long":    {"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", MaxConfig+2), "longer than"},
		"long header": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", "header"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						http.ReadRequest(newReader(conn))
						io.WriteString(conn, c.answer)
					}()
				}
			}()
			_, err = Get(t.Context(), origin(t, listener.Addr().String()), ID{"a", "b"}, "")
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
				t.Errorf("%v, want %s", err, c.want)
			}
			if name == "not found" && !errors.Is(err, ErrNotFound) {
				t.Error("it is not ErrNotFound")
			}
		})
	}
}
