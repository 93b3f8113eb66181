package tcpscale

import (
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startTestServer(t *testing.T, id, listen string, workers int) *ServerCrew {
	t.Helper()
	s, err := StartServer(here, ServerConfig{Listen: []netip.AddrPort{netip.MustParseAddrPort(listen)}, ID: id, Backlog: 1024}, workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Two servers of two processes each, one is killed: its connections are found lost and come back on the other.
func TestKilledServerIsFoundAndReplaced(t *testing.T) {
	one, two := startTestServer(t, "one", "127.0.0.1:0", 2), startTestServer(t, "two", "127.0.0.1:0", 2)
	config := clientDefaults
	config.Targets, config.Connections = append(one.Listen[:1:1], two.Listen...), 400
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	killed, back := false, false
	run := ClientRun{Place: here, Config: config, Workers: 2, Tick: func(r Report) {
		switch {
		case !killed && r.Connections.Established == 400:
			if len(r.Peers) != 2 || r.Peers[0].Connections != 200 || r.Peers[1].Connections != 200 {
				t.Errorf("distribution before: %+v", r.Peers)
			}
			killed = true
			one.Close()
		case killed && !back && r.Totals.Reconnected == 200 && r.Connections.Established == 400:
			back = true
			if len(r.Peers) != 1 || r.Peers[0].ID != "two" || r.Peers[0].Connections != 400 {
				t.Errorf("distribution after: %+v", r.Peers)
			}
			cancel()
		}
	}}
	r, err := run.Run(ctx)
	if err != nil || !back || r.Totals.Lost != 200 || r.Reconnect.Count() != 200 || r.Verdict() == nil {
		t.Errorf("%v, %v: %+v %v", err, back, r.Totals, r.Failures)
	}
}

// SIGSTOP: the server's kernel goes on acknowledging, its program does not. Only heartbeats find that.
func TestStoppedServerIsFoundByItsSilence(t *testing.T) {
	s := startTestServer(t, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections, config.Heartbeat = s.Listen, 50, 200*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stopped := false
	run := ClientRun{Place: here, Config: config, Workers: 1, Tick: func(r Report) {
		if !stopped && r.Connections.Established == 50 {
			stopped = true
			syscall.Kill(s.PIDs()[0], syscall.SIGSTOP)
		}
		if stopped && r.Failures["silent"] >= 50 {
			cancel()
		}
	}}
	r, err := run.Run(ctx)
	if err != nil || r.Failures["silent"] < 50 || r.Detected.Min() < 500*time.Millisecond {
		t.Errorf("%v: %+v %v", err, r.Totals, r.Failures)
	}
}

func TestWorkerThatDiesEndsTheRun(t *testing.T) {
	s := startTestServer(t, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections = s.Listen, 10
	configs, err := ClientWorkers(config, 2, 28232)
	if err != nil {
		t.Fatal(err)
	}
	crew, err := StartCrew(here, configs)
	if err != nil {
		t.Fatal(err)
	}
	defer crew.Kill()
	syscall.Kill(crew.PIDs()[1], syscall.SIGKILL)
	hold := Hold{Crew: crew, Workers: 2}
	if _, err := hold.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v", err)
	}
	for _, pid := range crew.PIDs() {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("worker %d is still there: %v", pid, err)
		}
	}
}

func TestTwoServersDoNotShareAPort(t *testing.T) {
	s := startTestServer(t, "one", "127.0.0.1:0", 2)
	other, err := StartServer(here, ServerConfig{Listen: s.Listen, ID: "two", Backlog: 16}, 1)
	if err == nil {
		other.Close()
		t.Fatal("a second server shares the port")
	}
	if !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
}

func TestWorkerSaysWhyItCannotStart(t *testing.T) {
	_, err := StartCrew(here, []WorkerConfig{{Client: &ClientConfig{}}})
	if err == nil || !strings.Contains(err.Error(), "no target") {
		t.Errorf("error %v", err)
	}
}
