package stats_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// serve runs a service on an address until stop is called.
func serve(t *testing.T, address string, config stats.Config) (service *stats.Service, at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	service = stats.New(config)
	go func() {
		defer close(ended)
		if err := service.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return service, listener.Addr().String(), stop
}

// feed starts one whose words come through the channel.
func feed(t *testing.T, to, token string) (*stats.Feed, chan string) {
	t.Helper()
	sender, err := stats.NewSender(to, token)
	if err != nil {
		t.Fatal(err)
	}
	words := make(chan string, 100)
	return stats.NewFeed(sender, func(format string, args ...any) { words <- fmt.Sprintf(format, args...) }), words
}

// A service that is not there at first, comes, goes and comes again: the feed reports each change once, nothing waits, and
// what arrives is the newest.
func TestFeedOutlivesTheService(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	_, at, stop := serve(t, "127.0.0.1:0", stats.Config{})
	stop()
	f, words := feed(t, at, "")
	for n := range 5 {
		f.Post(tcpscale.Report{}, client("c", "1", n)) // who has not spoken yet is no reporter
	}
	if word := <-words; !strings.Contains(word, "refused") {
		t.Errorf("without a service: %s", word)
	}
	for range 2 {
		service, _, stop := serve(t, at, stats.Config{})
		netlabtest.Eventually(t, "the newest report", func() bool { return service.State(time.Now()).Connected == 4 })
		if word := <-words; !strings.Contains(word, "takes reports again") {
			t.Errorf("with a service: %s", word)
		}
		if st := service.State(time.Now()); st.Reporters != 1 || st.Dropped != (stats.Dropped{}) {
			t.Errorf("%d reporters, dropped %+v", st.Reporters, st.Dropped)
		}
		stop()
		f.Post(client("c", "1", 4))
		if word := <-words; !strings.Contains(word, at) {
			t.Errorf("without it again: %s", word)
		}
	}
	f.Close()
	if len(words) > 0 {
		t.Errorf("more than once: %s", <-words)
	}
}

// The last report arrives though it came right after another one, and the reporter has then ended.
func TestFeedFlushesTheLastReport(t *testing.T) {
	service, at, _ := serve(t, "127.0.0.1:0", stats.Config{})
	f, words := feed(t, at, "")
	last := []tcpscale.Report{client("c-0", "1", 3), client("c-1", "2", 4)}
	f.Post(last...)
	for i := range last {
		last[i].Final = true
	}
	f.Post(last...)
	f.Close()
	if s := service.State(time.Now()); s.Clients.Ended != 2 || s.Connected != 0 || len(words) > 0 {
		t.Errorf("%+v, %d words", s.Clients, len(words))
	}
	var none *stats.Feed
	none.Post(last...)
	none.Close()
}

// A service that takes connections and never answers holds nothing up: Close returns, and says what was not delivered.
func TestFeedDoesNotWaitForAMuteService(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	f, words := feed(t, mute.Addr().String(), "")
	for n := range 1000 {
		f.Post(client("c", "1", n))
	}
	f.Close()
	if word := <-words; !strings.Contains(word, mute.Addr().String()) {
		t.Error(word)
	}
}

// One report that is refused does not keep the others back.
func TestFeedPassesOverWhatIsRefused(t *testing.T) {
	service, at, _ := serve(t, "127.0.0.1:0", stats.Config{})
	f, words := feed(t, at, "")
	bad := client("", "1", 1)
	f.Post(bad, client("c", "1", 7))
	if word := <-words; !strings.Contains(word, "id is missing") {
		t.Error(word)
	}
	f.Close()
	if s := service.State(time.Now()); s.Connected != 7 {
		t.Errorf("%d connected", s.Connected)
	}
}
