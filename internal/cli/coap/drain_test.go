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

// During a drain the server is not ready and makes no new session; a second signal ends it at once.
func TestCoapDrains(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	at := netlabtest.UDPAddress(t).String()
	s := startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--workers", "2", "--drain-timeout", "1h")
	progress, done := make(chan uint64, 1), make(chan client.BenchResult, 1)
	go func() {
		result, err := client.Bench(context.Background(), client.BenchConfig{
			URI: "coaps://" + at + "/benchmark?rlen=40", Clients: survivors, Duration: time.Hour, Pause: 5 * time.Millisecond, AckTimeout: repeatSoon, Workers: 1, Seed: 1, LiveEvery: 20 * time.Millisecond,
		}, func(s client.Snapshot) {
			select {
			case progress <- s.Total.Requests:
			default:
			}
		})
		if err != nil {
			t.Error(err)
		}
		done <- result
	}()
	for n := range progress {
		if n > 2*survivors {
			break
		}
	}
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil { // the second one: those that are left end
		t.Fatal(err)
	}
	<-s.Ended
	if s.Err != nil {
		t.Errorf("SIGTERM: %v", s.Err)
	}
	<-done
}

// The sessions of a drain end one after the other, each behind an answer, and the server with the last one.
func TestCoapDrainLosesNothing(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	at := netlabtest.UDPAddress(t).String()
	s := startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--workers", "2", "--drain-timeout", "4s")
	started, done := make(chan struct{}, 1), make(chan client.BenchResult, 1)
	go func() {
		result, err := client.Bench(context.Background(), client.BenchConfig{
			URI: "coaps://" + at + "/benchmark?rlen=40", Clients: survivors, Duration: time.Hour, Pause: 5 * time.Millisecond, AckTimeout: 2 * time.Second, Workers: 1, Seed: 1, LiveEvery: 20 * time.Millisecond,
		}, func(s client.Snapshot) {
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
		done <- result
	}()
	<-started
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	result := <-done // each client ends with its session
	<-s.Ended
	if s.Err != nil {
		t.Errorf("SIGTERM: %v", s.Err)
	}
	if r := result.Stats; r.Lost != 0 || r.Failed != 0 || r.LostSessions != survivors || r.Handshakes != survivors {
		t.Errorf("%d requests lost, %d failed, %d of %d sessions ended", r.Lost, r.Failed, r.LostSessions, r.Handshakes)
	}
}
