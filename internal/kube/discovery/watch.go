package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/weir-lb/weir/api/v1"
)

// Times of the client, as STUNner's has them; only the pause after failures grows here.
const (
	pingEvery    = 5 * time.Second
	silenceLimit = 8 * time.Second // a connection on which nothing arrives for so long is closed
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
	dialTimeout  = 10 * time.Second
)

// keepAlive is the payload of a ping, as STUNner sends it.
const keepAlive = "keepalive"

// Watcher follows a configuration, or several, of a service. Its fields do not change while Run runs.
type Watcher struct {
	Origin Origin
	ID     ID     // without a name: all of a namespace, or all
	Node   string // name of the node this process runs at; empty: unknown
	Log    *slog.Logger
	// Opened is called after each new connection, before its first configuration; an error ends the connection. It may read what there
	// is with List, because no message says what was deleted while there was no connection. nil: nothing is called.
	Opened func(ctx context.Context) error
	// Dial connects to the service in place of Origin, such as one that is found in a cluster; nil: Origin is dialled.
	Dial func(ctx context.Context, path string, query url.Values) (*websocket.Conn, error)
	// Service is what the service that Dial reaches is called, in status and messages.
	Service string

	times clientTimes

	mu     sync.Mutex
	status v1.ConfigDiscovery
}

// clientTimes are the times of a client; zero means the constants above.
type clientTimes struct{ ping, silence, first, longest time.Duration }

func (t clientTimes) orDefaults() clientTimes {
	if t == (clientTimes{}) {
		return clientTimes{pingEvery, silenceLimit, firstRetry, longestRetry}
	}
	return t
}

// Status is the state of the watch now. Any goroutine may call it.
func (w *Watcher) Status() v1.ConfigDiscovery {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Service, s.ID, s.Node = w.service(), w.ID.String(), w.Node
	return s
}

// URL is where the service has what is watched.
func (w *Watcher) URL() string {
	if w.Dial != nil {
		return w.Service + "://" + w.ID.String()
	}
	return w.Origin.url("http", w.ID.path(), nil)
}

func (w *Watcher) service() string {
	if w.Dial != nil {
		return w.Service
	}
	return w.Origin.String()
}

// Run calls received with each configuration that the service sends, in one goroutine, until ctx ends; then it returns nil. It connects
// again whenever a connection ends. An error means that the Watcher can never work. received owns the bytes.
func (w *Watcher) Run(ctx context.Context, received func(config []byte)) error {
	if w.Origin.IsZero() && w.Dial == nil || !w.ID.valid() {
		return fmt.Errorf("watch %q at %q: no such configuration or service", w.ID, w.service())
	}
	log, times := w.Log, w.times.orDefaults()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	pause := times.first
	for reported := ""; ; {
		got, err := w.once(ctx, times, log, received)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller has ended it
		}
		if got {
			pause, reported = times.first, ""
		}
		if text := err.Error(); text != reported { // once, not for each attempt
			reported = text
			log.Warn("no connection to the config discovery service; the last configuration stays in force", "service", w.service(), "id", w.ID.String(), "error", text)
		}
		w.failed(err)
		timer := time.NewTimer(pause + time.Duration(rand.Int64N(int64(pause)/4+1))) //nolint:gosec // spreads clients, no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		pause = min(2*pause, times.longest)
	}
}

func (w *Watcher) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.Connected || w.status.Since.IsZero() {
		w.status.Since = time.Now()
	}
	w.status.Connected, w.status.Error = false, err.Error()
	w.status.Failures++
}

// once makes one connection and reads until it ends. got: a configuration was received.
func (w *Watcher) once(ctx context.Context, times clientTimes, log *slog.Logger, received func([]byte)) (got bool, err error) {
	query := nodeQuery(w.Node)
	query.Set("watch", "true")
	dial := w.Dial
	if dial == nil {
		dial = w.Origin.Dial
	}
	conn, err := dial(ctx, w.ID.path(), query)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
		conn.Close() // ends a read
	})
	defer stop()
	w.connected()
	log.Info("connected to the config discovery service", "service", w.service(), "id", w.ID.String())
	ended := make(chan struct{})
	defer close(ended)
	go ping(conn, times, ended)
	if w.Opened != nil {
		if err := w.Opened(ctx); err != nil {
			return false, err
		}
	}
	return w.read(conn, times, log, received)
}

// Dial connects to the service for a watch.
func (o Origin) Dial(ctx context.Context, path string, query url.Values) (*websocket.Conn, error) {
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTimeout, ReadBufferSize: 4096, WriteBufferSize: 1024}
	conn, answer, err := dialer.DialContext(ctx, o.url("ws", path, query), http.Header{"Origin": []string{o.url("http", "", nil)}})
	if err != nil && answer != nil {
		err = fmt.Errorf("the service answers %s", answer.Status)
	}
	return conn, err
}

func (w *Watcher) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Connected, w.status.Since, w.status.Error = true, time.Now(), ""
	w.status.Connects++
}

// ping sends pings until the connection ends. An error ends the reads of the connection, too.
func ping(conn *websocket.Conn, times clientTimes, ended <-chan struct{}) {
	ticker := time.NewTicker(times.ping)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		if err := conn.WriteControl(websocket.PingMessage, []byte(keepAlive), time.Now().Add(times.silence)); err != nil {
			conn.Close()
			return
		}
	}
}

var errBinary = errors.New("the service sent a binary message, not a configuration")

// read passes on what arrives until the connection ends.
func (w *Watcher) read(conn *websocket.Conn, times clientTimes, log *slog.Logger, received func([]byte)) (got bool, err error) {
	conn.SetReadLimit(MaxConfig)
	alive := func(string) error { return conn.SetReadDeadline(time.Now().Add(times.silence)) }
	conn.SetPongHandler(alive)
	answer := conn.PingHandler()
	conn.SetPingHandler(func(payload string) error { return errors.Join(alive(""), answer(payload)) })
	for {
		if err := alive(""); err != nil {
			return got, err
		}
		kind, text, err := conn.ReadMessage()
		switch {
		case errors.Is(err, websocket.ErrReadLimit):
			return got, fmt.Errorf("the service sent a configuration of more than %d bytes", MaxConfig)
		case err != nil:
			return got, err
		case kind != websocket.TextMessage || !utf8.Valid(text): // RFC 6455, section 8.1
			return got, errBinary
		case len(text) == 0:
			log.Warn("the config discovery service sent an empty configuration; it is ignored")
			continue
		}
		got = true
		w.mu.Lock()
		w.status.Received++
		w.mu.Unlock()
		received(text)
	}
}
