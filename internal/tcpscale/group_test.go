package tcpscale

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startTestServer(t *testing.T, place Launcher, id, listen string, workers int) *ServerGroup {
	t.Helper()
	s, err := StartServer(place, ServerConfig{Listen: []netip.AddrPort{netip.MustParseAddrPort(listen)}, ID: id, Backlog: 1024}, workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Two servers of two processes each, one is killed: its connections are found lost and come back on the other.
func TestKilledServerIsFoundAndReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	one, two := startTestServer(t, here, "one", "127.0.0.1:0", 2), startTestServer(t, here, "two", "127.0.0.1:0", 2)
	config := clientDefaults
	config.Targets, config.Connections = append(one.Listen[:1:1], two.Listen...), 400
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	killed, back := false, false
	var clients *Group
	run := ClientRun{Launcher: here, Config: config, Workers: 2, Started: func(c *Group) { clients = c }, Tick: func(r Report) {
		switch {
		case !killed && r.Connections.Established == 400:
			if len(r.Peers) != 2 || r.Peers[0].Connections != 200 || r.Peers[1].Connections != 200 {
				t.Errorf("distribution before: %+v", r.Peers)
			}
			killed = true
			if err := clients.Mark(ctx, "kill one"); err != nil {
				t.Error(err)
			}
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
	if err != nil || !back || r.Totals.Lost != 200 || r.Reconnect.Count() != 200 || Verdict(&r) == nil {
		t.Errorf("%v, %v: %+v %v", err, back, r.Totals, r.Failures)
	}
	if len(r.Marks) != 1 {
		t.Fatalf("marks %+v", r.Marks)
	}
	m := r.Marks[0]
	if m.Name != "kill one" || m.Lost != 200 || m.LostBy["one"] != 200 || m.Back != 200 || m.LostAfter.Count() != 200 || m.BackAfter.Min() < m.LostAfter.Min() || m.Full < m.BackAfter.Max().Seconds()-0.01 {
		t.Errorf("mark %+v", m)
	}
}

// Two that die one after the other: full is when the second one's connections are back.
func TestMarkIsFullAfterTheLastLoss(t *testing.T) {
	var m marks
	m.set("x", time.Second)
	m.lost("a", Reset, 2*time.Second)
	m.full(3 * time.Second)
	m.lost("a", Reset, 4*time.Second)
	if k := m.last(); k.Full != 0 {
		t.Errorf("full after %v s, and one is lost", k.Full)
	}
	m.full(6 * time.Second)
	if k := m.last(); k.Full != 5 {
		t.Errorf("full after %v s, want 5", k.Full)
	}
}

// Marks of workers add up; the whole is full again when all that lost something are.
func TestMarksMerge(t *testing.T) {
	lost := func(n int, full float64) []Mark {
		var m marks
		m.set("x", time.Second)
		for range n {
			m.lost("a", Reset, 3*time.Second)
		}
		m.all[0].Full = full
		return m.all
	}
	for _, c := range []struct {
		name  string
		marks [][]Mark
		lost  uint64
		full  float64
	}{
		{"both full", [][]Mark{lost(2, 4), lost(3, 5)}, 5, 5},
		{"one is not", [][]Mark{lost(2, 4), lost(3, 0)}, 5, 0},
		{"none, in the other order", [][]Mark{lost(3, 0), lost(2, 4)}, 5, 0},
		{"one had nothing to lose", [][]Mark{lost(0, 0), lost(2, 4), lost(0, 0)}, 2, 4},
	} {
		var sum []Mark
		for _, m := range c.marks {
			sum = mergeMarks(sum, m)
		}
		if len(sum) != 1 || sum[0].Lost != c.lost || sum[0].Kinds["reset"] != c.lost || sum[0].Full != c.full || sum[0].LostAfter.Count() != c.lost {
			t.Errorf("%s: %+v", c.name, sum)
		}
	}
}

// SIGSTOP: the server's kernel goes on acknowledging, its program does not. Only heartbeats find that.
func TestStoppedServerIsFoundByItsSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := startTestServer(t, here, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections, config.Heartbeat = s.Listen, 50, 200*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stopped := false
	run := ClientRun{Launcher: here, Config: config, Workers: 1, Tick: func(r Report) {
		if !stopped && r.Connections.Established == 50 {
			stopped = true
			syscall.Kill(s.PIDs()[0], syscall.SIGSTOP)
		}
		if stopped && r.Failures["hung"] >= 50 {
			cancel()
		}
	}}
	r, err := run.Run(ctx)
	if err != nil || r.Failures["hung"] < 50 || r.Detected.Min() < 500*time.Millisecond {
		t.Errorf("%v: %+v %v", err, r.Totals, r.Failures)
	}
}

// A machine that stops all workers for longer than the heartbeats' timeout: no one may be called silent for that.
func TestStoppedMachineLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := startTestServer(t, here, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections, config.Heartbeat = s.Listen, 1500, 500*time.Millisecond // more than one turn of events
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var clients *Group
	signal := func(sig syscall.Signal) {
		for _, pid := range append(s.PIDs(), clients.PIDs()...) {
			syscall.Kill(pid, sig)
		}
	}
	const stop = 3 * time.Second // twice the heartbeats' timeout
	var stoppedAt, goesOn time.Time
	beats, sent := uint64(0), uint64(0)
	run := ClientRun{Launcher: here, Config: config, Workers: 1, Started: func(c *Group) { clients = c }, Tick: func(r Report) {
		switch {
		case stoppedAt.IsZero() && r.Connections.Established == 1500 && r.Heartbeats.Received > 1500:
			signal(syscall.SIGSTOP)
			stoppedAt = time.Now()
		case !stoppedAt.IsZero() && goesOn.IsZero() && time.Since(stoppedAt) >= stop+500*time.Millisecond: // what counts begins within a period, and the next turn of a worker
			beats, goesOn = r.Heartbeats.Received, time.Now()
			signal(syscall.SIGCONT)
		case !goesOn.IsZero() && r.Heartbeats.Received > beats+3*1500 && s.Report().At.After(goesOn):
			sent = r.Heartbeats.Sent
			cancel()
		}
	}}
	r, err := run.Run(ctx)
	if server := s.Report(); err != nil || sent == 0 || r.Totals.Lost != 0 || server.Totals.Evicted != 0 || r.Connections.Established != 1500 {
		t.Errorf("%v: %+v %v, evicted %d", err, r.Totals, r.Failures, server.Totals.Evicted)
	}
	// The latencies are those of a tester that stood still, and the result says so.
	if r.Heartbeats.RTT.Max() < stop || r.Frozen < stop.Seconds() || r.Void == "" || !errors.Is(Verdict(&r), ErrVoid) {
		t.Errorf("stopped for %v: most %v, frozen %.1f s, void %q, verdict %v", stop, r.Heartbeats.RTT.Max(), r.Frozen, r.Void, Verdict(&r))
	}
	// A beat in each period of each connection was due while it was stopped.
	if due := r.Heartbeats.Unsent; due < 1500*4 || r.Heartbeats.RTT.Count() <= due {
		t.Errorf("%d beats were never sent, %d are timed, %d were answered", due, r.Heartbeats.RTT.Count(), r.Heartbeats.Received)
	}
}

func TestWorkerThatDiesEndsTheRun(t *testing.T) {
	s := startTestServer(t, here, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections = s.Listen, 10
	configs, err := ClientWorkers(config, 2, 28232)
	if err != nil {
		t.Fatal(err)
	}
	group, err := StartGroup(here, configs)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Kill()
	syscall.Kill(group.PIDs()[1], syscall.SIGKILL)
	hold := Hold{Group: group, Workers: 2}
	if _, err := hold.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v", err)
	}
	for _, pid := range group.PIDs() {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("worker %d is still there: %v", pid, err)
		}
	}
}

func TestTwoServersDoNotShareAPort(t *testing.T) {
	s := startTestServer(t, here, "one", "127.0.0.1:0", 2)
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
	_, err := StartGroup(here, []WorkerConfig{{Client: &ClientConfig{}}})
	if err == nil || !strings.Contains(err.Error(), "no target") {
		t.Errorf("error %v", err)
	}
}
