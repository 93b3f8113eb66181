package stats_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale/stats"
)

// events opens /api/events and returns what reads the next state.
func events(t *testing.T, url string) func() (stats.State, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(response.Status, response.Header)
	}
	lines := bufio.NewReader(response.Body)
	return func() (st stats.State, err error) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return st, err
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				return st, json.Unmarshal([]byte(data), &st)
			}
		}
	}
}

// A watcher gets the state at once and with each tick, from a real server and a real sender.
func TestEventsAreLive(t *testing.T) {
	b := newBed(t, stats.Config{MaxWatchers: 1})
	server := httptest.NewServer(b.Handler())
	t.Cleanup(server.Close) // after the watchers, which are cleaned up before
	next := events(t, server.URL)
	if st, err := next(); err != nil || st.Reporters != 0 {
		t.Fatalf("at first: %+v, %v", st, err)
	}
	sender, err := stats.NewSender(strings.TrimPrefix(server.URL, "http://"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 25} {
		report := client("c", "1", n)
		if err := sender.Send(t.Context(), &report); err != nil {
			t.Fatal(err)
		}
		b.Tick(b.now)
		if st, err := next(); err != nil || st.Connected != n || len(st.ClientRows) != 1 {
			t.Fatalf("with %d: %d connected, %v", n, st.Connected, err)
		}
	}
	bad := client("", "1", 1)
	if err := sender.Send(t.Context(), &bad); err == nil || !strings.Contains(err.Error(), "id is missing") {
		t.Errorf("a bad report: %v", err)
	}
	if w := b.get("/api/events"); w.Code != http.StatusServiceUnavailable || b.state().Dropped.Watchers != 1 {
		t.Errorf("a second watcher: %d, dropped %+v", w.Code, b.state().Dropped)
	}
}

// One that does not read is cut off, counted, and its place is free again.
func TestASlowWatcherIsDropped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	b := newBed(t, stats.Config{MaxWatchers: 1})
	for i := range 200 {
		b.take(server(strings.Repeat("n", 200)+string(rune('a'+i%26))+string(rune('a'+i/26)), 1), "192.0.2.1")
	}
	server := httptest.NewServer(b.Handler())
	t.Cleanup(server.Close)       // after the watchers, which are cleaned up before
	next := events(t, server.URL) // and never reads until it is cut off
	for b.state().Dropped.Slow == 0 {
		b.Tick(b.now)
	}
	var err error
	for err == nil {
		_, err = next()
	}
	again := events(t, server.URL)
	if st, err := again(); err != nil || st.Dropped.Slow != 1 {
		t.Errorf("the next one: %+v, %v", st.Dropped, err)
	}
}

// Serve ticks by itself and ends its watchers with its context.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- stats.New(stats.Config{}).Serve(ctx, listener) }()
	next := events(t, "http://"+listener.Addr().String())
	for range 2 { // that of the beginning and that of a tick
		if _, err := next(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for err = nil; err == nil; {
		_, err = next()
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve does not end")
	}
}

func TestSenderRefusesWhatIsNoAddress(t *testing.T) {
	for _, bad := range []string{"", "ftp://h", "http://", "::"} {
		if _, err := stats.NewSender(bad, ""); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
