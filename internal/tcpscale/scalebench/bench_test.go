package scalebench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// asWorker in the environment makes the test binary a worker.
const asWorker = "WEIR_SCALEBENCH_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := tcpscale.RunWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func benchConfig() Config {
	return Config{
		Launcher: tcpscale.Launcher{Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), asWorker+"=1")
			return cmd
		}},
		Client: tcpscale.ClientConfig{
			Connections: 600, InFlight: 64, Heartbeat: time.Second, Misses: 100, Timeout: time.Minute, BackoffMin: 100 * time.Millisecond, BackoffMax: time.Second,
		},
		ClientWorkers: 3, Hold: 4 * time.Second, Plateau: time.Minute,
	}
}

// Three pairs of workers in a namespace that is gone afterwards: ports, hash table and congestion control of its own, and
// nothing of it on the machine.
func TestRootBenchInItsOwnNamespace(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	settings := []string{"ipv4/tcp_child_ehash_entries", "ipv4/ip_local_port_range", "ipv4/tcp_congestion_control"}
	var before []string
	for _, s := range settings {
		before = append(before, sys(s))
	}
	c := benchConfig()
	c.Namespace = true
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.Held != 600 || r.Server.Workers != 3 || len(r.Server.Peers) != 3 {
		t.Errorf("%s; %d held, servers %+v", r.Verdict, r.Held, r.Server.Peers)
	}
	for _, p := range r.Server.Peers {
		if p.Connections != 200 {
			t.Errorf("a worker of the client has %d of 200 connections: %+v", p.Connections, r.Server.Peers)
		}
	}
	got := map[string]string{}
	for _, c := range r.Conditions {
		got[c.Name] = c.Value
	}
	for name, want := range map[string]string{"network namespace": "its own", "source ports": "1024 65535", "established hash": "65536 buckets", "congestion control": "reno"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	for i, s := range settings {
		if now := sys(s); now != before[i] {
			t.Errorf("%s of the machine was %q and is %q", s, before[i], now)
		}
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "65536 buckets") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// Other numbers of servers than of clients share one port.
func TestBenchOnTheMachinesLoopback(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := benchConfig()
	c.ServerWorkers = 2
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.Held != 600 || r.Server.Workers != 2 || len(r.Conditions) == 0 || r.Conditions[0].Value != "this one" {
		t.Errorf("%s; %d held by %d servers, %+v", r.Verdict, r.Held, r.Server.Workers, r.Conditions)
	}
}

// An interrupt before both ends could report what they hold is one, and not a disagreement.
func TestBenchSaysThatItWasInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	c := benchConfig()
	c.Client.Connections, c.ClientWorkers, c.ServerWorkers, c.Hold = 60, 1, 1, time.Hour
	c.Client.Rate = 5 // full after 12 s
	c.Tick = func(r tcpscale.Report) {
		if r.Connections.Established > 0 {
			interrupt()
		}
	}
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if r.OK || !strings.HasPrefix(r.Verdict, "interrupted after ") || !strings.HasSuffix(r.Verdict, " of 60 connections were established") {
		t.Errorf("%v: %s", r.OK, r.Verdict)
	}
	full := time.Now()
	for _, c := range []struct {
		name            string
		interrupted     float64
		hold            time.Duration
		lost            uint64
		agree, ok       bool
		begins, without string
	}{
		{"at once", 0.7, 100 * time.Millisecond, 0, false, false, "interrupted after 0.7 s: 60 of 60", "agree"},
		{"late", 60, 58 * time.Second, 0, false, false, "the ends do not agree", "interrupted"},
		{"late, and all is well", 60, 58 * time.Second, 0, true, true, "60 connections held for 58 s", "interrupted"},
		{"with a loss", 2, time.Second, 3, false, false, "3 connections were lost", "agree"},
		{"not at all", 0, 2 * time.Second, 0, false, false, "the ends do not agree", "interrupted"},
	} {
		r := Result{Connections: 60, Held: 60, InterruptedAfter: c.interrupted, HoldSeconds: c.hold.Seconds(), Lost: c.lost}
		r.Client.FullAt, r.Client.Reconciled = full, &tcpscale.Reconciled{Agree: c.agree, Finding: "59"}
		if r.judge(); r.OK != c.ok || !strings.HasPrefix(r.Verdict, c.begins) || strings.Contains(r.Verdict, c.without) {
			t.Errorf("%s: %v %s", c.name, r.OK, r.Verdict)
		}
	}
}
