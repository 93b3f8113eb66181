package coap

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// draining starts a server that drains for so long, loads it, and sends it SIGTERM. The load ends with its sessions.
func draining(t *testing.T, timeout string) (at string, s *survivor, done <-chan client.BenchResult) {
	t.Helper()
	at = netlabtest.UDPAddress(t).String()
	s = startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--workers", "2", "--drain-timeout", timeout)
	started, ended := make(chan struct{}, 1), make(chan client.BenchResult, 1)
	load := client.BenchConfig{
		URI: "coaps://" + at + "/benchmark?rlen=40", Clients: survivors, Duration: time.Hour, Pause: 5 * time.Millisecond, LiveEvery: 20 * time.Millisecond, Workers: 1, Seed: 1,
	}
	go func() {
		result, err := client.Bench(context.Background(), load, func(s client.Snapshot) {
			if s.Total.Requests > 2*survivors {
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
		ended <- result
	}()
	<-started
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return at, s, ended
}

// During a drain the server is not ready and makes no new session; a second signal ends it at once.
func TestCoapDrains(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	at, s, done := draining(t, "1h")
	netlabtest.Eventually(t, "the server is not ready", func() bool {
		err := s.Admin.Get(t.Context(), "/readyz", nil, nil)
		return err != nil && strings.Contains(err.Error(), "503")
	})
	before := s.now().Listeners[0].Engine
	if _, err := client.Dial(t.Context(), "coaps://"+at, client.DialConfig{Timeout: time.Second}); err == nil {
		t.Error("a new session during the drain")
	}
	if after := s.now().Listeners[0].Engine; after.Handshakes != before.Handshakes || after.HellosIgnored == before.HellosIgnored {
		t.Errorf("%d handshakes after %d", after.Handshakes, before.Handshakes)
	}
	terminate(t, s) // the sessions that are left end
	<-done
}

// The sessions of a drain end one after the other, each behind an answer, and the server with the last one.
func TestCoapDrainLosesNothing(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	_, s, done := draining(t, "4s")
	result := <-done // each client ends with its session
	<-s.Ended
	if s.Err != nil {
		t.Errorf("SIGTERM: %v", s.Err)
	}
	if r := result.Stats; r.Lost != 0 || r.Failed != 0 || r.LostSessions != survivors || r.Handshakes != survivors {
		t.Errorf("%d requests lost, %d failed, %d of %d sessions ended", r.Lost, r.Failed, r.LostSessions, r.Handshakes)
	}
}
