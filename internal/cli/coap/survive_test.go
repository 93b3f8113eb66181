package coap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	weirclient "github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const (
	survivors = 40  // clients
	perClient = 300 // requests
)

// survivor is a server process whose sessions are to outlive it.
type survivor struct {
	*clitest.Process
	args []string
}

func startSurvivor(t *testing.T, args ...string) *survivor {
	t.Helper()
	return &survivor{clitest.Start(t, "server", args...), args}
}

func (s *survivor) now() (status v1.CoAPStatus) {
	s.T.Helper()
	var text json.RawMessage
	s.Status(&text)
	if err := clitest.ReadStrictly(text, &status); err != nil {
		s.T.Fatal(err)
	}
	return status
}

// becomes waits until another process than that of before serves.
func (s *survivor) becomes(before int) (status v1.CoAPStatus) {
	s.T.Helper()
	netlabtest.Eventually(s.T, "another process serves", func() bool {
		err := s.Admin.Get(s.T.Context(), "/status", nil, &status)
		return err == nil && status.PID != before
	})
	return status
}

// repeatSoon is a first retransmission that keeps the tests short in which datagrams may be lost.
const repeatSoon = 400 * time.Millisecond

// under runs three events under load, and checks that no session ended and every request was answered. A request is repeated after
// ackTimeout.
func under(t *testing.T, uri string, noCID bool, ackTimeout time.Duration, event func()) client.BenchResult {
	t.Helper()
	progress := make(chan uint64, 1)
	done := make(chan client.BenchResult, 1)
	go func() {
		defer close(progress)
		result, err := client.Bench(context.Background(), client.BenchConfig{
			URI: uri, Clients: survivors, Requests: perClient, Pause: 5 * time.Millisecond, AckTimeout: ackTimeout,
			LiveEvery: 20 * time.Millisecond, Workers: 1, Seed: 1, NoCID: noCID,
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
	const all = survivors * perClient
	for i := range uint64(3) {
		for n := range progress {
			if n > (i+1)*all/6 {
				break
			}
		}
		event()
	}
	if n := <-progress; n == 0 {
		t.Error("the load was over before the last event")
	}
	for range progress { // until the load ends
		continue
	}
	result := <-done
	if s := result.Stats; s.Requests != all || s.Lost+s.LostSessions+s.Rehandshakes+s.Errors+s.HandshakeErrors > 0 || s.Handshakes != survivors {
		t.Errorf("%d of %d requests, %d lost, %d sessions lost, %d handshakes, %d repeated, %d errors", s.Requests, all, s.Lost, s.LostSessions, s.Handshakes, s.Rehandshakes, s.Errors)
	}
	t.Logf("%d retransmissions, longest wait %v", result.Stats.Retransmissions, result.RTT.Max())
	return result
}

// restored checks that a process has taken over every session.
func restored(t *testing.T, what string, status v1.CoAPStatus) {
	t.Helper()
	if e := &status.Listeners[0].Engine; e.Restored != survivors || e.RestoreLost != 0 || e.Kept != survivors || e.Handshakes != 0 {
		t.Errorf("%s: %d sessions restored, %d lost, %d kept, %d handshakes", what, e.Restored, e.RestoreLost, e.Kept, e.Handshakes)
	}
}

// The serving process is killed under load, three times: no session ends, with connection ids and without.
func TestCoapSurvivesKill(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	for name, noCID := range map[string]bool{"connection ids": false, "none": true} {
		t.Run(name, func(t *testing.T) {
			at := netlabtest.UDPAddress(t).String()
			s := startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--workers", "2")
			under(t, "coaps://"+at+"/benchmark?rlen=40", noCID, repeatSoon, func() {
				before := s.now()
				if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				after := s.becomes(before.PID)
				restored(t, "kill -9", after)
				if after.Handover.Starts != before.Handover.Starts+1 || after.Handover.Supervisor != "yes" || after.Listeners[0].Kept.SlotBytes >= 1024 {
					t.Errorf("%+v, %+v", after.Handover, after.Listeners[0].Kept)
				}
			})
		})
	}
}

// By SIGUSR2 and by `weir coap upgrade` another process takes over, and not one request has to be repeated.
func TestCoapSurvivesUpgrade(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	at := netlabtest.UDPAddress(t).String()
	s := startSurvivor(t, "coap", "server", "--dtls-only", "--dtls", at, "--workers", "2")
	upgrades, drops := 0, netlabtest.QueueDrops(t)
	// Whatever is repeated after so long was lost: a new process takes less to start on any machine.
	result := under(t, "coaps://"+at+"/benchmark?rlen=40", false, 20*time.Second, func() {
		before := s.now()
		if upgrades++; upgrades == 1 {
			if err := s.Cmd.Process.Signal(syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
		} else {
			command := exec.Command(os.Args[0], "coap", "upgrade", "--admin", "unix:"+s.Socket)
			command.Env = append(os.Environ(), clitest.RunAsWeir+"=1")
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("weir coap upgrade: %v\n%s", err, out)
			}
		}
		after := s.becomes(before.PID)
		restored(t, "upgrade", after)
		if after.Handover.Upgrades != upgrades || after.Handover.Last != "upgrade" {
			t.Errorf("%+v", after.Handover)
		}
	})
	noneRepeated(t, s, result, drops)
}

// Ended by SIGTERM and started again with the same state directory, a server has all sessions it had, also with other numbers
// of workers and sessions. With a supervisor its sockets stay open meanwhile: no request is repeated.
func TestCoapSurvivesRestart(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	for _, flag := range []string{"--no-supervisor=false", "--no-supervisor"} {
		t.Run(flag, func(t *testing.T) {
			at := netlabtest.UDPAddress(t).String()
			args := []string{"coap", "server", "--dtls-only", "--dtls", at, "--workers", "2", "--state", filepath.Join(t.TempDir(), "state"), flag}
			s, starts, first, again, drops := startSurvivor(t, args...), 0, 1, repeatSoon, netlabtest.QueueDrops(t)
			supervised := flag != "--no-supervisor"
			if supervised {
				// What waits in the socket of a worker that is no longer there would be lost. What is repeated after so long was lost: see above.
				first, again = 2, 20*time.Second
			}
			result := under(t, "coaps://"+at+"/benchmark?rlen=40", false, again, func() {
				terminate(t, s)
				// each with an arena of another size
				s = startSurvivor(t, append(args, "--workers", strconv.Itoa(first+starts), "--max-sessions", strconv.Itoa(100*(starts+1)))...)
				starts++
				restored(t, "restart", s.now())
			})
			if supervised {
				noneRepeated(t, s, result, drops)
			}
		})
	}
}

// noneRepeated checks that no request was repeated, but for those that the kernel may have dropped for floods of other tests since it had
// counted so many drops.
func noneRepeated(t *testing.T, s *survivor, result client.BenchResult, drops uint64) {
	t.Helper()
	drops = netlabtest.QueueDrops(t) - drops
	if n := result.Stats.Retransmissions; n > drops {
		t.Errorf("%d requests were repeated, %d datagrams dropped by the kernel; %+v", n, drops, s.now().Listeners[0].Engine)
	}
}

func terminate(t *testing.T, s *survivor) {
	t.Helper()
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.Ended
	if s.Err != nil {
		t.Errorf("SIGTERM: %v", s.Err)
	}
}

// systemd holds the sockets and sessions of a server without a supervisor: a restart, a kill and a hang under load end no session.
func TestRootCoapSurvivesUnderSystemd(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log, _ := os.ReadFile(filepath.Join(dir, "log")); t.Failed() {
			t.Logf("server:\n%s", log)
		}
		_ = os.RemoveAll(dir)
	})
	at, socket := netlabtest.UDPAddress(t).String(), filepath.Join(dir, "s")
	binary, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	start := fmt.Sprintf("%s coap server --dtls-only --dtls %s --workers 2 --no-supervisor --admin unix:%s", binary, at, socket)
	d := clitest.StartSystemd(t, clitest.SystemdUnit(t, "coap-restart.md", start, clitest.RunAsWeir+"=1", filepath.Join(dir, "log")))
	s := &survivor{Process: &clitest.Process{T: t, Name: "server", Admin: weirclient.New("unix:"+socket, ""), Socket: socket, Ended: make(chan struct{})}}
	s.becomes(0)
	netlabtest.Eventually(t, "the service is active", func() bool { state, _ := d.Systemctl("is-active", "weir"); return state == "active" })
	commands := [][]string{
		{"restart", "weir"},
		{"kill", "--kill-who=main", "--signal=KILL", "weir"},
		{"kill", "--kill-who=main", "--signal=STOP", "weir"}, // it no longer answers the watchdog
	}
	under(t, "coaps://"+at+"/benchmark?rlen=40", false, repeatSoon, func() {
		before := s.now()
		for ; before.Handover.Waiting > 0; before = s.now() {
		}
		if before.Handover.Supervisor != "systemd" || before.Handover.Stored != 5 || before.Handover.Refused != 0 {
			t.Errorf("%+v", before.Handover)
		}
		if out, err := d.Systemctl(commands[0]...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		restored(t, "systemctl "+commands[0][0], s.becomes(before.PID))
		commands = commands[1:]
	})
	if out, err := d.Systemctl("stop", "weir"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
