package tcpscale

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestReplicaWorkersAreClientsOfTheirOwn(t *testing.T) {
	base := clientDefaults
	base.Targets, base.Connections, base.Rate, base.Churn, base.ID = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, 10001, 600, 6, "c"
	for i := range 7 {
		base.Sources = append(base.Sources, netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}))
	}
	configs, err := ReplicaWorkers(base, 5, 2, 28232)
	if err != nil || len(configs) != 10 {
		t.Fatal(len(configs), err)
	}
	runs, owners, held := map[uint64]string{}, map[netip.Addr]string{}, map[string]int{}
	churn := 0.0
	for i, w := range configs {
		c := w.Client
		held[c.ID] += c.Connections
		churn += c.Churn
		if c.Rate != 300 || c.Client != uint32(i%2) || c.Worker != i || c.Wait != (i >= 6) {
			t.Errorf("worker %d: rate %g, client %d, worker %d, wait %v", i, c.Rate, c.Client, c.Worker, c.Wait)
		}
		if id, ok := runs[c.Run]; ok && id != c.ID {
			t.Errorf("%s and %s have one run", id, c.ID)
		}
		runs[c.Run] = c.ID
		for _, s := range c.Sources {
			if id, ok := owners[s]; ok && id != c.ID {
				t.Errorf("%s and %s share source %v", id, c.ID, s)
			}
			owners[s] = c.ID
		}
	}
	if len(runs) != 5 || len(held) != 5 || held["c-0"] != 10001 || held["c-4"] != 10001 || len(owners) != 7 || churn < 29.9 || churn > 30.1 {
		t.Errorf("runs %v, connections %v, sources of %v, churn %g", runs, held, owners, churn)
	}
	for _, bad := range [][2]int{{-1, 1}, {MaxReplicas + 1, 1}, {2, 10002}} {
		if _, err := ReplicaWorkers(base, bad[0], bad[1], 28232); err == nil {
			t.Errorf("%d replicas of %d workers are taken", bad[0], bad[1])
		}
	}
}

// The sum says from its first report on who it is, whichever worker reports first: another PID would be another client.
func TestMergedReportsKeepTheirIdentity(t *testing.T) {
	workers := []*groupWorker{{cmd: &exec.Cmd{Process: &os.Process{Pid: 7}}, number: 4}, {cmd: &exec.Cmd{Process: &os.Process{Pid: 8}}, number: 5}}
	if r := mergeWorkers(workers); r.Role != "" || r.PID != 0 {
		t.Errorf("of nothing: %+v", r)
	}
	for i := range 2 {
		number := 1 - i // the second one reports first
		workers[number].report = &Report{Role: RoleClient, PID: 7 + number, Worker: 4 + number, FullAt: time.Now()}
		if r := mergeWorkers(workers); r.PID != 7 || r.Worker != 4 || r.FullAt.IsZero() != (i == 0) {
			t.Errorf("with %d reports: PID %d, worker %d, full at %v", i+1, r.PID, r.Worker, r.FullAt)
		}
	}
}

// Three clients of two workers each: the sum, each one's report, and what the server calls them agree.
func TestReplicasAreSeenAsClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	server := startTestServer(t, here, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections, config.ID = server.Listen, 20, "pod"
	var each []Report
	run := ClientRun{
		Launcher: here, Config: config, Workers: 2, Replicas: 3, For: 2 * time.Second, Plateau: time.Minute,
		Each: func(reports []Report) { each = reports },
	}
	sum, err := run.Run(t.Context())
	if err != nil || Verdict(&sum) != nil || !sum.Final || sum.ID != "pod" || sum.Connections.Established != 60 {
		t.Fatalf("%v: %+v", err, sum.Connections)
	}
	if *sum.Replicas != (Replicas{Replicas: 3, Connections: 20, Whole: 3, Held: 60}) || len(each) != 3 {
		t.Errorf("%+v, %d reports", sum.Replicas, len(each))
	}
	for i, r := range each {
		if r.ID != fmt.Sprintf("pod-%d", i) || r.Connections.Established != 20 || r.Workers != 2 || !r.Final {
			t.Errorf("replica %d: %s %+v, %d workers, final %v", i, r.ID, r.Connections, r.Workers, r.Final)
		}
	}
}

// alone is where no other program binds a port: a network namespace, if we may make one, and the test then runs at the same time as others.
func alone(t *testing.T) Launcher {
	t.Helper()
	if netlab.Privileged() != nil {
		return here
	}
	lab := netlabtest.Up(t, netlab.Topology{Name: "alone", Namespaces: []netlab.Namespace{{Name: "alone"}}})
	t.Parallel()
	return Launcher{Command: workerCommand, Do: lab.Namespace("alone").Do}
}

// Of eight workers six begin. Where they come to the ceiling side by side none of them ever has its share: the others begin
// all the same, and the ceiling is named.
func TestCeilingBelowEveryShare(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	place := alone(t)
	server := startTestServer(t, place, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections, config.ID, config.Rate = server.Listen, 30, "pod", 60
	config.Sources = []netip.Addr{netip.MustParseAddr("127.77.7.8")} // its ports are no other program's
	_ = place.do(func() error { config.PortLow, config.PortHigh = freePorts(t, 60); return nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := ClientRun{Launcher: place, Config: config, Workers: 1, Replicas: 8, For: time.Second, Plateau: 2 * time.Second}
	sum, err := run.Run(ctx)
	if err != nil || ctx.Err() != nil || sum.Plateau == nil || sum.Plateau.Kind != OutOfPorts.String() || sum.Connections.Established != 60 {
		t.Fatalf("%v, %v: %+v, %+v", err, ctx.Err(), sum.Connections, sum.Plateau)
	}
}

// Where ports end, as behind one masquerade, whole replicas are those that have all that they want.
func TestWholeReplicasAtACeiling(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	place := alone(t)
	server := startTestServer(t, place, "one", "127.0.0.1:0", 1)
	config := clientDefaults
	config.Targets, config.Connections, config.ID = server.Listen, 30, "pod"
	config.Sources = []netip.Addr{netip.MustParseAddr("127.77.7.7")} // its ports are no other program's
	_ = place.do(func() error { config.PortLow, config.PortHigh = freePorts(t, 100); return nil })
	var each []Report
	run := ClientRun{
		Launcher: place, Config: config, Workers: 1, Replicas: 8, For: time.Second, Plateau: 3 * time.Second,
		Each: func(reports []Report) { each = reports },
	}
	sum, err := run.Run(t.Context())
	if err != nil || sum.Connections.Established != 100 || sum.Plateau == nil || sum.Failures["out_of_ports"] == 0 {
		t.Fatalf("%v: %+v, %+v", err, sum.Connections, sum.Failures)
	}
	whole, all := 0, 0
	for _, r := range each {
		all += r.Connections.Established
		if r.Connections.Established == 30 {
			whole++
		} else if r.Plateau == nil || r.Plateau.Connections != r.Connections.Established {
			t.Errorf("%s stands still at %d and says %+v", r.ID, r.Connections.Established, r.Plateau)
		}
	}
	if all != 100 || *sum.Replicas != (Replicas{Replicas: 8, Connections: 30, Whole: whole, Held: 30 * whole}) {
		t.Errorf("%d connections, %d whole; reported %+v", all, whole, sum.Replicas)
	}
}
