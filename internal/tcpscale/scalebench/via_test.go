package scalebench

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

func TestParseMetrics(t *testing.T) {
	b := balancerOf(programs.ParseMetrics([]byte(`# HELP weir_table_entries Entries
weir_table_entries{datapath="nfqueue",table="flows"} 12
weir_table_entries{table="fragments"} 5
weir_table_size{table="flows"} 100
weir_packets_total{service="bench",reason="conntrack"} 7
weir_packets_total{service="",reason="conntrack"} 1
weir_packets_total{service="bench",reason="flow_table_full"} 3
weir_table_refused_total{table="flows"} 2
weir_queue_dropped_total{queue="0"} 4
weir_queue_user_dropped_total{queue="1"} 5
weir_table_entries{datapath="ebpf",table="flows"} 30
nonsense
weir_packets_total{reason="x"} many
`)))
	if b.Flows != 42 || b.FlowsMax != 100 || b.TableFull != 3 || b.QueueFull != 9 || b.Packets["conntrack"] != 8 {
		t.Errorf("%+v", b)
	}
}

// A loss belongs to the event that took its backend, however late it is found; any other is unexplained.
func TestAccount(t *testing.T) {
	late := func() *measure.Latency { return measure.NewLatency() }
	done := []Event{{Kind: KillBackend, Target: "backend3"}, {Kind: RestartBalancer}, {Kind: DrainBackend, Target: "backend2"}}
	client := tcpscale.Report{Totals: tcpscale.Totals{Lost: 20}, Marks: []tcpscale.Mark{
		{Lost: 10, LostBy: map[string]uint64{"backend3": 10}, LostAfter: late()},
		{Lost: 6, LostBy: map[string]uint64{"backend3": 2, "backend1": 4}, LostAfter: late()},
		{Lost: 3, LostBy: map[string]uint64{"backend2": 3}, LostAfter: late(), Moved: 50},
	}}
	if n := account(done, &client); n != 8 { // 4, 3 of a drain, and one before any event
		t.Errorf("%d unexplained", n)
	}
	if done[0].Lost != 12 || done[0].LostOthers != 0 || done[1].LostOthers != 4 || done[2].LostOthers != 3 || done[2].Moved != 50 {
		t.Errorf("%+v", done)
	}
}

func TestViaRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		config ViaConfig
		wants  string
	}{
		{ViaConfig{Path: "carrier-pigeon", Backends: 2}, "there are loopback, direct"},
		{ViaConfig{Path: "tcx"}, "0 backends"},
		{ViaConfig{Path: "tcx", Backends: 2, Events: []Plan{{KillBackend, time.Second}, {CutBackend, time.Second}}}, "2 backends go: at least 3"},
		{ViaConfig{Path: "tcx", Backends: 2, Events: []Plan{{KillBalancer, time.Minute}}}, "not within the hold"},
	} {
		if err := c.config.Validate(time.Minute); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%+v: %v", c.config, err)
		}
	}
	if ports := len(sources(100000, 6)); ports < 6 || ports%6 != 0 {
		t.Errorf("%d sources for 6 workers", ports)
	}
}

// An event that begins late, as the one before it took long, makes the hold longer by as much.
func TestLateEventsProlongTheHold(t *testing.T) {
	full := time.Now()
	e := &events{plan: []Plan{{KillBackend, 6 * time.Second}, {KillBalancer, 2 * time.Second}}}
	at := func(s, want time.Duration) {
		t.Helper()
		if got := e.late(full.Add(s * time.Second)); got != want*time.Second {
			t.Errorf("late by %v after %d s, want %d s", got, s, want)
		}
	}
	at(20, 0) // not all connections are established
	e.start(full)
	at(1, 0)
	e.begin(full.Add(2 * time.Second)) // and it takes until 14
	at(5, 0)
	at(13, 7)
	e.begin(full.Add(14 * time.Second))
	at(14, 8)
	at(21, 8)
}

// A backend is killed and the balancer too, which comes back: the backend's connections move, no others are lost.
func TestRootConnectionsSurviveTheBalancer(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip6tables")
	binary := netlabtest.Weir(t)
	for _, path := range []string{"tcx", "nfqueue"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			config := Config{
				Launcher: tcpscale.Launcher{Command: func() *exec.Cmd { return exec.Command(binary, "tcp", "worker") }},
				Client: tcpscale.ClientConfig{
					ID: "test", Connections: 2000, InFlight: 256, Heartbeat: time.Second, Misses: 15, Timeout: 10 * time.Second,
					BackoffMin: 200 * time.Millisecond, BackoffMax: time.Second,
				},
				Hold: 14 * time.Second, Plateau: time.Minute,
			}
			via := ViaConfig{
				Path: path, Backends: 3, Binary: binary, Away: 300 * time.Millisecond,
				Events: []Plan{{KillBalancer, 2 * time.Second}, {RestartBalancer, 4 * time.Second}, {KillBackend, 6 * time.Second}},
			}
			result, err := RunVia(ctx, config, via)
			if err == nil && result.Client.Void != "" {
				t.Log("once more: " + result.Client.Void) // the tester itself was not scheduled
				result, err = RunVia(ctx, config, via)
			}
			if err != nil {
				t.Fatal(err)
			}
			v := result.Via
			// A busy machine may make it void again. What is counted holds all the same.
			if !result.OK && result.Client.Void == "" || v.Unexplained != 0 || result.Held != 2000 || len(v.Events) != 3 {
				t.Fatalf("%s: %+v, failures %v", result.Verdict, v.Events, result.Client.Failures)
			}
			killed := v.Events[2]
			if killed.Target != "backend3" || killed.Held == 0 || int(killed.Lost) != killed.Held || killed.BackAfter.Count() != killed.Lost || killed.AllBack == 0 {
				t.Errorf("the killed backend: %+v", killed)
			}
			if len(killed.Before) != 3 || len(killed.After) != 2 || connectionsOf(killed.After, "backend1")+connectionsOf(killed.After, "backend2") != 2000 {
				t.Errorf("distribution %v, then %v", killed.Before, killed.After)
			}
			if b := v.Balancer; b == nil || b.Flows < 2000 || b.FlowsMax < b.Flows || b.TableFull != 0 {
				t.Errorf("balancer %+v", b)
			}
			var page bytes.Buffer
			if err := result.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "kill-backend backend3") {
				t.Errorf("report: %v", err)
			}
		})
	}
}

// A figure that nothing was idle for is not there: 0 would be a claim.
func TestWhatWasNotMeasuredIsNotZero(t *testing.T) {
	r := &Result{Connections: 10, Held: 10, OK: true, Verdict: "fine", Via: &Via{Path: "tcx", Backends: 2, Balancer: &Balancer{Flows: 1, FlowsMax: 2, RSS: 1 << 20}}}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"idle_cpu_percent", "machine_others_cpu_percent", "machine_softirq_cpu_percent", "heartbeats_per_s", "kernel_bytes_per_connection", "server_user_bytes", "client_table_bytes"} {
		if bytes.Contains(text, []byte(key)) {
			t.Errorf("%s is there: %s", key, text)
		}
	}
	other := *r
	via := *r.Via
	other.Via, other.ServerCPU, via.Machine, via.Others = &via, measured(0), measured(30), measured(10)
	var out bytes.Buffer
	if err := WriteAll(&out, []*Result{r, &other}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not measured", `kernel B/connection +- +-`, `servers' processor +- +0\.0 %`, `machine's processor +- +20\.0 %`, `balancer's processor +- +-`} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// Five events and what they did fit a page: a column each, and the distribution between them.
func TestEventTables(t *testing.T) {
	v := &Via{Backends: 3, Events: []Event{
		{
			Kind: KillBackend, Target: "backend3", AtSeconds: 8, Held: 4, Lost: 4, AllBack: 4.47,
			Before: []tcpscale.Peer{{ID: "backend1", Connections: 6}, {ID: "backend3", Connections: 4}}, After: []tcpscale.Peer{{ID: "backend1", Connections: 10}},
		},
		{
			Kind: RestartBalancer, AtSeconds: 17, TookSeconds: 6.9, Held: 10,
			Before: []tcpscale.Peer{{ID: "backend1", Connections: 10}}, After: []tcpscale.Peer{{ID: "backend1", Connections: 9}, {ID: "backend2", Connections: 1}},
		},
	}}
	var out bytes.Buffer
	if err := writeEvents(&out, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^CONNECTIONS +KILL-BACKEND BACKEND3 +RESTART-BALANCER$`, `(?m)^lost +4 +0$`, `(?m)^all back after +4\.5 s +-$`, `(?m)^balancer back after +- +6\.9 s$`,
		`(?m)^BACKEND +BEFORE KILL-BACKEND BACKEND3 +BEFORE RESTART-BALANCER +AT THE END$`, `(?m)^backend1 +6 +10 +9$`, `(?m)^backend3 +4 +0 +0$`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
