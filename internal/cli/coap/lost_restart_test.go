package coap

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A server that was killed with all it held has a successor without the sessions: Weir's client gets its answer in another session after two
// retransmissions, and its observation goes on there. Each client makes one handshake.
func TestClientLeavesALostSession(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	start := func() (at string, s *survivor) {
		at = netlabtest.UDPAddress(t).String()
		return at, startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--no-supervisor", "--plugtest")
	}
	at, s := start()
	var paths []*losing
	dial := func() *client.Conn {
		paths = append(paths, newLosing(t, at))
		conn, err := client.Dial(t.Context(), "coaps://"+paths[len(paths)-1].conn.LocalAddr().String(), client.DialConfig{AckTimeout: repeatSoon, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	asks, observes := dial(), dial()
	exchange(t, asks, client.Request{Path: []string{"mycontext"}}, message.Content)
	registered := make(chan int, 64)
	observing := make(chan error, 1)
	go func() {
		observing <- observes.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}, Refresh: time.Second}, func(n client.Notification) bool {
			registered <- n.Registrations
			return true
		})
	}()
	<-registered
	if err := s.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Ended
	at, s = start()
	for _, path := range paths {
		path.moveTo(at)
	}
	before := asks.Session().ID
	exchange(t, asks, client.Request{Path: []string{"mycontext"}}, message.Content)
	if asks.Session().ID == before {
		t.Error("an answer in a session that is lost")
	}
	netlabtest.Eventually(t, "the observation is registered in another session", func() bool {
		status := s.now()
		return status.Listeners[0].Engine.Handshakes == 2
	})
	for len(registered) > 0 {
		<-registered
	}
	select {
	case <-registered:
	case err := <-observing:
		t.Fatalf("the observation ends: %v", err)
	case <-time.After(time.Minute):
		t.Error("no notification in another session")
	}
	if e := s.now().Listeners[0].Engine; e.Handshakes != 2 || e.UnknownCIDs == 0 {
		t.Errorf("%d handshakes, %d records of unknown sessions", e.Handshakes, e.UnknownCIDs)
	}
}

// What anybody can send in a lost session's place neither hastens nor hinders another one: it comes after a request and two retransmissions.
func TestClientOfALostSessionBeginsAnother(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	at := netlabtest.UDPAddress(t).String()
	startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--no-supervisor")
	l := newLosing(t, at)
	conn, err := client.Dial(t.Context(), "coaps://"+l.conn.LocalAddr().String(), client.DialConfig{AckTimeout: repeatSoon, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	exchange(t, conn, client.Request{Path: []string{"mycontext"}}, message.Content)
	l.lose()
	go func() { _, _ = conn.Do(t.Context(), &client.Request{Path: []string{"mycontext"}}) }()
	var seen []string
	for range 4 {
		if n := <-l.reaction; n == 0 {
			seen = append(seen, "hello")
		} else {
			seen = append(seen, "record")
		}
	}
	if got := strings.Join(seen, " "); got != "record record record hello" {
		t.Errorf("%s", got)
	}
}
