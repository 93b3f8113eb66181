package lb

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// queueLab is kernelLab with what mode mark needs in the gateway: rules and routes of marks 101 (zone1, a) and 102 (zone2,
// b), and two queues for packets to the VIP. Without a mark they would go to a.
func queueLab(t *testing.T, name string) *netlab.Lab {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip")
	lab := kernelLab(t, name)
	for _, command := range [][]string{
		{"ip", "rule", "add", "fwmark", "101", "table", "101"},
		{"ip", "route", "add", "default", "via", "10.2.0.2", "table", "101"},
		{"ip", "rule", "add", "fwmark", "102", "table", "102"},
		{"ip", "route", "add", "default", "via", "10.3.0.2", "table", "102"},
		{"ip", "route", "add", "10.9.9.9/32", "via", "10.2.0.2"},
		queueRule("-A"),
	} {
		inGateway(t, lab, command...)
	}
	return lab
}

func queueRule(verb string, more ...string) []string {
	return append([]string{"iptables", "-w", "-t", "mangle", verb, "PREROUTING", "-i", "veth0", "-d", "10.9.9.9", "-j", "NFQUEUE", "--queue-balance", "0:1"}, more...)
}

func inGateway(t *testing.T, lab *netlab.Lab, command ...string) {
	t.Helper()
	if out, err := lab.Namespace("gateway").Exec(t.Context(), command[0], command[1:]...); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
}

const queueSpec = `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
services:
- name: dsr
  mode: mark
  vips: [{address: 10.9.9.9, protocol: tcp, port: 80}, {address: 10.9.9.9, protocol: udp, port: 80}]
  backends:
  - {name: a, mark: 101, weight: %d}
  - {name: b, mark: 102}
`

// newQueueLB is newKernelLB for the queue data path: ended, nothing of it stays.
func newQueueLB(t *testing.T, host *netlab.Host, config string, more ...string) *kernelLB {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	k := &kernelLB{t: t, host: host, pins: filepath.Join(netlabtest.BPFFS(t), "queue"), config: filepath.Join(dir, "weir.yaml"), socket: filepath.Join(dir, "s"), out: new(clitest.LockedBuffer)}
	k.write(config)
	k.args = []string{"lb", "run", "-c", k.config, "--datapath", "nfqueue", "--queue", "0:1", "--admin", "unix:" + k.socket, "--pin-path", k.pins}
	k.args = append(k.args, more...)
	t.Cleanup(func() {
		select {
		case <-k.ended:
		default:
			k.end(syscall.SIGTERM)
		}
		if _, err := pins.Stop(context.Background(), k.pins, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("stop: %v", err)
		}
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("output of weir:\n%s", k.out)
		}
	})
	k.start()
	return k
}

// Weir is killed and restarted with the rules in place: flows go on to the same backends, also those that are there only because they were
// opened under other weights, and lose nothing for good. What the configuration does not allow any more is not taken over.
func TestRootNFQOutlivesKills(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := queueLab(t, "nfqkill")
	k := newQueueLB(t, lab.Namespace("gateway"), fmt.Sprintf(queueSpec, 100))
	var talkers []*talker
	for range 16 {
		talkers = append(talkers, newTalker(t, lab.Namespace("zone0"), "tcp", "10.9.9.9:80"), newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80"))
	}
	stop := keepTalking(t.Context(), talkers)
	k.reload(fmt.Sprintf(queueSpec, 1)) // of 101 new flows one would go to a
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		k.end(signal)
		k.start()
		status := k.until("status", func(*v1.LBStatus) bool { return true })
		if kept := status.Queues.Kept; kept.TookOver < len(talkers) || kept.NotConfigured+kept.NoRoom+kept.Damaged > 0 || kept.Unkept > 0 {
			t.Errorf("after signal %d: %+v", signal, kept)
		}
		before := queuedTotal(status.Queues.Services["dsr"])
		k.until("packets after the restart", func(s *v1.LBStatus) bool { return queuedTotal(s.Queues.Services["dsr"]) >= before+uint64(len(talkers)) })
	}
	names := map[string]int{}
	for i, err := range stop() {
		if err != nil {
			t.Errorf("client %d (udp %t): %v", i, talkers[i].udp, err)
		}
		names[talkers[i].name]++
	}
	if names["a"] < 4 || names["b"] < 4 {
		t.Errorf("the clients went to %v", names)
	}
	if out, code := clitest.Weir(t, "lb", "status", "--admin=unix:"+k.socket); code != 0 || !strings.Contains(out, "flows are kept in "+k.socket+".flows; ") {
		t.Errorf("%d:\n%s", code, out)
	}
	k.end(syscall.SIGKILL)
	k.write(strings.Replace(fmt.Sprintf(queueSpec, 1), "mark: 101", "mark: 103", 1)) // another backend of the same name
	k.start()
	if kept := k.until("status", func(*v1.LBStatus) bool { return true }).Queues.Kept; kept.NotConfigured < names["a"] || kept.TookOver < names["b"] {
		t.Errorf("%d flows went to a, %d to b: %+v", names["a"], names["b"], kept)
	}
}

func queuedTotal(s *v1.NFQueueService) (n uint64) {
	for _, packets := range s.Reasons {
		n += packets
	}
	return n
}

// Without weir, a plain rule drops and one with --queue-bypass lets packets through, without a mark.
func TestRootNFQWithoutWeir(t *testing.T) {
	lab := queueLab(t, "nfqaway")
	k := newQueueLB(t, lab.Namespace("gateway"), fmt.Sprintf(queueSpec, 0)) // new flows go to b
	first := newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80")
	if first.name != "b" {
		t.Fatalf("the flow went to %s, only b takes new ones", first.name)
	}
	k.end(syscall.SIGKILL)
	if _, err := first.conn.Write([]byte("lost\n")); err != nil {
		t.Fatal(err)
	}
	inGateway(t, lab, queueRule("-D")...)
	inGateway(t, lab, queueRule("-A", "--queue-bypass")...)
	// Datagrams of one flow stay in order on this way, so an answer to "lost" would come before that to "through".
	first.name = ""
	b := make([]byte, 100)
	answer := ""
	for range 60 {
		if _, err := first.conn.Write([]byte("through\n")); err != nil {
			t.Fatal(err)
		}
		first.conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := first.conn.Read(b)
		if err == nil {
			answer = strings.TrimSpace(string(b[:n]))
			break
		}
	}
	if answer != "a through" {
		t.Errorf("answer %q: fail-closed let something through, or fail-open did not take the main table", answer)
	}
	k.start()
	if back := newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80"); back.name != "b" {
		t.Errorf("with weir again, a new flow went to %s", back.name)
	}
}

// status, show, flows and metrics show what the queues do; drain and reload act.
func TestRootNFQViews(t *testing.T) {
	lab := queueLab(t, "nfqshow")
	k := newQueueLB(t, lab.Namespace("gateway"), fmt.Sprintf(queueSpec, 100)+`- name: ruled
  mode: mark
  flows: [{name: echoes, protocols: [udp], destinations: [10.9.9.9/32], destination_ports: [80], priority: 5}]
  backends: [{name: a, mark: 101}]
`)
	newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80")
	at := "--admin=unix:" + k.socket
	client := lab.Namespace("zone0")
	var old []*talker
	for range 24 {
		old = append(old, newTalker(t, client, "tcp", "10.9.9.9:80"))
	}
	if out, code := clitest.Weir(t, "lb", "drain", "dsr/b", at); code != 0 {
		t.Fatalf("drain: %d %s", code, out)
	}
	for range 8 {
		if fresh := newTalker(t, client, "tcp", "10.9.9.9:80"); fresh.name != "a" {
			t.Errorf("a new flow went to the drained %s", fresh.name)
		}
	}
	for range 8 { // more than enough packets for a hint
		for _, k := range old {
			if err := k.say(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"lb", "show"}, []string{"draining (drain by operator)", "NEW FLOWS", "maglev", "conntrack", "FLOW RULE", "echoes", "QUEUE  PACKETS", "address pairs hash there): so few pairs cannot be spread better"}},
		{[]string{"lb", "show", "--json"}, []string{`"nfqueue"`, `"conntrack"`, `"opened_flows"`}},
		{[]string{"lb", "status"}, []string{"data path nfqueue, configuration 1, snapshot 2", "queue length 4096, receive buffer ", "copy range 256", "PORT ID", "is dropped", "fragments: 0 datagrams remembered of 0 entered"}},
		{[]string{"lb", "status", "--json"}, []string{`"queue_dropped": 0`, `"missing_ids": 0`, `"address_pairs": 1`, `"fail_open": false`}},
		{[]string{"lb", "flows", "--backend", "b", "--state", "established"}, []string{"10.9.9.9:80", "established"}},
	} {
		out, code := clitest.Weir(t, append(c.args, at)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) || code != 0 {
				t.Errorf("%q: %d, lacks %q:\n%s", c.args, code, want, out)
			}
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	watch, out := clitest.Root(), new(clitest.LockedBuffer)
	watch.SetArgs([]string{"lb", "show", "--watch", "--every", "100ms", at})
	watch.SetOut(out)
	ended := make(chan error, 1)
	go func() { ended <- watch.ExecuteContext(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), "QUEUE FULL/s") && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	interrupt()
	if err := <-ended; err != nil || !strings.Contains(out.String(), "QUEUE FULL/s") {
		t.Errorf("show --watch: %v\n%s", err, out)
	}
	metrics := clitest.HTTPGet(t, k.socket, "/metrics")
	statustest.Check(t, "the queues' data path", metrics)
	for _, want := range []string{
		`weir_packets_total{datapath="nfqueue",reason="maglev",service="dsr"} 32`, `weir_table_size{datapath="nfqueue",table="flows"} 4096`, `weir_queue_length 4096`,
		`weir_flow_rule_packets_total{rule="echoes",service="ruled"} `, `weir_fragment_events_total{datapath="nfqueue",event="wait"} 0`,
		`weir_backend_flows_opened_total{backend="b",datapath="nfqueue",service="dsr"}`, `weir_queue_dropped_total{queue="1"} 0`, `weir_queue_packets_total{queue="0"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// Mistakes on the command line name the flag and what to write.
func TestQueueFlags(t *testing.T) {
	good := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(good, []byte(fmt.Sprintf(queueSpec, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, want string }{
		{"--queue=x", `--queue "x": write a number from 0 to 65535, or FIRST:LAST`},
		{"--queue=3:1", `--queue "3:1": write`},
		{"--queue=65536", `--queue "65536": write`},
		{"--queue=0:99", "queues 100: write 1 to 64"},
		{"--queue-length=0", "--queue-length 0: write a number from 1"},
		{"--copy-range=10", "copy range 10: write 64 to 65531"},
		{"--batch=5000", "batch 5000: write 1 to 1024"},
		{"--spin=-1s", "--spin -1s: write 0 (never) to 1ms"},
		{"--spin=1s", "spin 1s: write at most 1ms"},
		{"--receive-buffer=1", "receive buffer 1: write 4096"},
		{"--fast=perhaps", `--fast "perhaps": write auto, on or off`},
		{"--fast=on", "--fast on: no interface is named; name those that clients' packets come in on by --interface"},
	} {
		out, code := clitest.Weir(t, "lb", "run", "-c", good, "--datapath", "nfqueue", c.flag)
		if code != 2 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s", c.flag, code, out)
		}
	}
}
