package lb

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// kernelLB is a weir lb run --datapath ebpf inside a namespace, that can be ended and started again.
type kernelLB struct {
	t            *testing.T
	host         *netlab.Host
	pins, config string
	socket       string
	args         []string
	pod          []string // what starts the program, before its name; nil: nothing
	cmd          *exec.Cmd
	ended        chan struct{}
	out          *clitest.LockedBuffer
}

func newKernelLB(t *testing.T, host *netlab.Host, hook, interfaces, config string) *kernelLB {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	k := &kernelLB{t: t, host: host, pins: filepath.Join(netlabtest.BPFFS(t), "lb"), config: filepath.Join(dir, "weir.yaml"), socket: filepath.Join(dir, "s"), out: new(clitest.LockedBuffer)}
	k.write(config)
	k.args = []string{"lb", "run", "-c", k.config, "--datapath", "ebpf", "--hook", hook, "--interface", interfaces, "--pin-path", k.pins, "--admin", "unix:" + k.socket}
	t.Cleanup(func() {
		if _, err := pins.Stop(context.Background(), k.pins, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("stop: %v", err)
		}
		if k.cmd != nil {
			<-k.ended
		}
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("output of weir:\n%s", k.out)
		}
	})
	k.start()
	return k
}

func (k *kernelLB) write(config string) {
	k.t.Helper()
	if err := os.WriteFile(k.config+".next", []byte(config), 0o600); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Rename(k.config+".next", k.config); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernelLB) start() {
	k.t.Helper()
	line := append(append(slices.Clone(k.pod), os.Args[0]), k.args...)
	k.cmd = exec.Command(line[0], line[1:]...)
	k.cmd.Stdout, k.cmd.Stderr = k.out, k.out
	if err := k.host.Start(k.cmd); err != nil {
		k.t.Fatal(err)
	}
	cmd, ended := k.cmd, make(chan struct{})
	k.ended = ended
	go func() {
		cmd.Wait()
		close(ended)
	}()
	k.until("an answer", func(*v1.LBStatus) bool { return true })
}

// end sends a signal and waits.
func (k *kernelLB) end(signal syscall.Signal) {
	k.t.Helper()
	k.cmd.Process.Signal(signal)
	<-k.ended
	if signal == syscall.SIGTERM && k.cmd.ProcessState.ExitCode() != 0 {
		k.t.Errorf("after SIGTERM: %s\n%s", k.cmd.ProcessState, k.out)
	}
}

// until waits for a state of the running weir.
func (k *kernelLB) until(what string, ok func(*v1.LBStatus) bool) *v1.LBStatus {
	k.t.Helper()
	client := client.New("unix:"+k.socket, "")
	for deadline := time.Now().Add(60 * time.Second); ; {
		status := new(v1.LBStatus)
		var text json.RawMessage
		err := client.Get(k.t.Context(), "/status", nil, &text)
		if err == nil {
			clitest.Must(k.t, clitest.ReadStrictly(text, status))
			if ok(status) {
				return status
			}
		}
		select {
		case <-k.ended:
			k.t.Fatalf("%s: weir ended: %s\n%s", what, k.cmd.ProcessState, k.out)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("%s does not come: %v\n%+v\n%s", what, err, status, k.out)
		}
	}
}

// reload writes a configuration and waits until it is in force.
func (k *kernelLB) reload(config string) {
	k.t.Helper()
	before := k.until("status", func(*v1.LBStatus) bool { return true }).Reloads
	k.write(config)
	k.until("the reload", func(s *v1.LBStatus) bool { return s.Reloads > before && s.Error == "" })
}

// answerAs serves TCP and UDP at an address inside a namespace: each line or datagram comes back behind the name.
func answerAs(t *testing.T, host *netlab.Host, address, name string) {
	t.Helper()
	err := host.Do(func() error {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				go func() {
					for lines := bufio.NewScanner(c); lines.Scan(); {
						fmt.Fprintf(c, "%s %s\n", name, lines.Text())
					}
				}()
			}
		}()
		u, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { u.Close() })
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := u.ReadFrom(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					u.WriteTo(append([]byte(name+" "), b[:n]...), from)
				}
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// talker is a client that keeps one flow.
type talker struct {
	conn   net.Conn
	reader *bufio.Reader
	udp    bool
	name   string // of the backend that answered first
	sent   atomic.Int64
}

func newTalker(t *testing.T, host *netlab.Host, network, address string) *talker {
	t.Helper()
	k := &talker{udp: network == "udp"}
	err := host.Do(func() (err error) {
		k.conn, err = net.DialTimeout(network, address, 20*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.conn.Close() })
	k.reader = bufio.NewReader(k.conn)
	if err := k.say(); err != nil {
		t.Fatal(err)
	}
	return k
}

// say sends one line and wants it back from the same backend. UDP may lose some, and asks again.
func (k *talker) say() error {
	line := fmt.Sprintf("%d", k.sent.Add(1))
	timeout := 20 * time.Second
	if k.udp {
		timeout = time.Second
	}
	for range 20 {
		if _, err := k.conn.Write([]byte(line + "\n")); err != nil {
			return err
		}
		k.conn.SetReadDeadline(time.Now().Add(timeout))
		for {
			text, err := k.reader.ReadString('\n')
			if errors.Is(err, os.ErrDeadlineExceeded) && k.udp {
				break
			}
			if err != nil {
				return fmt.Errorf("after %s answers of %s: %w", line, k.name, err)
			}
			name, echo, _ := strings.Cut(strings.TrimSpace(text), " ")
			if k.name == "" {
				k.name = name
			}
			if name != k.name {
				return fmt.Errorf("answer %s came from %s instead of %s", line, name, k.name)
			}
			if echo == line {
				return nil
			} // else: an answer to what was asked again
		}
	}
	return fmt.Errorf("no answer to %s from %s", line, k.name)
}

// keepTalking lets all say something again and again until stop, and returns what went wrong.
func keepTalking(ctx context.Context, talkers []*talker) func() []error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	failures := make([]error, len(talkers))
	for i, k := range talkers {
		group.Go(func() {
			for ctx.Err() == nil && failures[i] == nil {
				failures[i] = k.say()
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
			if failures[i] == nil {
				failures[i] = k.say() // once more, after all that happened
			}
		})
	}
	return func() []error {
		cancel()
		group.Wait()
		return failures
	}
}

// kernelLab is a client, a gateway for weir and two backends; the VIP of mode l2dsr is on both backends' loopback.
func kernelLab(t *testing.T, name string) *netlab.Lab {
	topology := netlab.NAT()
	topology.Name = name
	for i := range topology.Namespaces {
		ns := &topology.Namespaces[i]
		switch ns.Name {
		case "zone1", "zone2":
			ns.Loopback = netlab.Prefixes("10.9.9.9/32")
		case "gateway":
			ns.Sysctls = append(ns.Sysctls, netlab.Sysctl{Key: "net.ipv4.conf.all.rp_filter", Value: "0"})
		}
	}
	end := &topology.Links[2].B
	end.Addresses = append(end.Addresses, netip.MustParsePrefix("10.3.0.3/24"))
	lab := netlabtest.Up(t, topology)
	answerAs(t, lab.Namespace("zone1"), "10.2.0.2:8080", "a")
	answerAs(t, lab.Namespace("zone2"), "10.3.0.2:8080", "b")
	answerAs(t, lab.Namespace("zone2"), "10.3.0.3:8080", "c")
	answerAs(t, lab.Namespace("zone1"), "10.9.9.9:80", "a")
	answerAs(t, lab.Namespace("zone2"), "10.9.9.9:80", "b")
	return lab
}

const kernelInterfaces = "veth0,veth2,veth3"

// kernelSpec has a service of each mode; extra backends are added behind a and b.
func kernelSpec(weight int, extra bool) string {
	nat, dsr := "", ""
	if extra {
		nat = "\n  - {name: c, address: 10.3.0.3, port: 8080}"
		dsr = "\n  - {name: c, address: 10.3.0.3}"
	}
	return fmt.Sprintf(`hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
services:
- name: nat
  vips: [{address: 10.0.0.1, protocol: tcp, port: 80}, {address: 10.0.0.1, protocol: udp, port: 80}]
  backends:
  - {name: a, address: 10.2.0.2, port: 8080, weight: %[1]d}
  - {name: b, address: 10.3.0.2, port: 8080}%[2]s
- name: dsr
  mode: l2dsr
  vips: [{address: 10.9.9.9, protocol: tcp, port: 80}, {address: 10.9.9.9, protocol: udp, port: 80}]
  backends:
  - {name: a, address: 10.2.0.2, weight: %[1]d}
  - {name: b, address: 10.3.0.2}%[3]s
`, weight, nat, dsr)
}

func TestRootKernelFlowsOutliveWeirTCX(t *testing.T) { flowsOutliveWeir(t, "tcx") }
func TestRootKernelFlowsOutliveWeirXDP(t *testing.T) { flowsOutliveWeir(t, "xdp") }

// 64 clients keep talking, TCP and UDP, through mode nat and l2dsr, while the configuration changes six times, backends
// come and go, and weir is restarted three times and killed twice: not one answer is lost or comes from elsewhere.
func flowsOutliveWeir(t *testing.T, hook string) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "kflows"+hook)
	k := newKernelLB(t, lab.Namespace("gateway"), hook, kernelInterfaces, kernelSpec(100, false))
	client := lab.Namespace("zone0")
	var talkers []*talker
	for range 16 {
		for _, vip := range []string{"10.0.0.1:80", "10.9.9.9:80"} {
			talkers = append(talkers, newTalker(t, client, "tcp", vip), newTalker(t, client, "udp", vip))
		}
	}
	stop := keepTalking(t.Context(), talkers)
	for i := range 6 {
		k.reload(kernelSpec(100+i, i%2 == 0))
		switch i {
		case 0, 3, 4: // with the extra backends, without them, and with them again
			k.end(syscall.SIGTERM)
			k.start()
		case 1, 2:
			k.end(syscall.SIGKILL)
			k.start()
		}
	}
	if !k.until("status", func(*v1.LBStatus) bool { return true }).Kernel.TookOver {
		t.Error("the last start found nothing in the pins")
	}
	names := map[string]int{}
	for i, err := range stop() {
		if err != nil {
			t.Errorf("client %d (udp %t): %v", i, talkers[i].udp, err)
		}
		names[talkers[i].name]++
	}
	if names["a"] < 8 || names["b"] < 8 {
		t.Errorf("the clients went to %v", names)
	}
}

// A drained backend keeps its flows and gets no new one; the counters and lb show say so; then stop ends it all.
func TestRootKernelDrain(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "kdrain")
	k := newKernelLB(t, lab.Namespace("gateway"), "auto", kernelInterfaces, kernelSpec(100, false))
	at := "--admin=unix:" + k.socket
	client := lab.Namespace("zone0")
	var old []*talker
	for range 30 { // by chance none of 12 goes to b once in 4096 runs
		old = append(old, newTalker(t, client, "tcp", "10.0.0.1:80"))
	}
	opened := func() uint64 {
		return k.until("status", func(*v1.LBStatus) bool { return true }).Kernel.Backends["nat"]["b"].Opened
	}
	if out, code := clitest.Weir(t, "lb", "drain", "nat/b", at); code != 0 {
		t.Fatalf("drain: %d %s", code, out)
	}
	before := opened()
	for range 12 {
		if fresh := newTalker(t, client, "tcp", "10.0.0.1:80"); fresh.name != "a" {
			t.Errorf("a new flow went to the drained %s", fresh.name)
		}
	}
	if after := opened(); after != before || before == 0 {
		t.Errorf("the drained backend was given %d flows, then %d", before, after)
	}
	for _, k := range old {
		if err := k.say(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"lb", "show", "nat"}, []string{"draining (drain by operator)", "PACKETS IN", "maglev", "reply"}},
		{[]string{"lb", "show", "--json"}, []string{`"carried"`, `"conntrack"`}},
		{[]string{"lb", "status"}, []string{"tcx   veth: large segments", "flows ", "nat/b"}},
		{[]string{"lb", "flows", "--backend", "b", "--state", "established", "--sort", "client"}, []string{"10.0.0.1:80", "established"}},
		{[]string{"lb", "flows", "--client", "10.0.0.0/24", "--json"}, []string{`"state": "established"`}},
	} {
		out, code := clitest.Weir(t, append(c.args, at)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) || code != 0 {
				t.Errorf("%q: %d, lacks %q:\n%s", c.args, code, want, out)
			}
		}
	}
	// --watch goes on until interrupted, and then ends well.
	ctx, interrupt := context.WithCancel(t.Context())
	watch, out := clitest.Root(), new(clitest.LockedBuffer)
	watch.SetArgs([]string{"lb", "show", "nat", "--watch", "--every", "100ms", at})
	watch.SetOut(out)
	ended := make(chan error, 1)
	go func() { ended <- watch.ExecuteContext(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), "PACKETS IN/s") && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	interrupt()
	if err := <-ended; err != nil || !strings.Contains(out.String(), "PACKETS IN/s") || !strings.Contains(out.String(), "snapshot 2") {
		t.Errorf("show --watch: %v\n%s", err, out)
	}
	metrics := clitest.HTTPGet(t, k.socket, "/metrics")
	statustest.Check(t, "the kernel's data path", metrics)
	for _, want := range []string{
		`weir_packets_total{datapath="ebpf",reason="maglev",service="nat"} 42`, `weir_table_size{datapath="ebpf",table="flows"}`, `weir_table_evicted_total{datapath="ebpf",table="flows"} 0`, `weir_table_displaced_total{datapath="ebpf",table="flows"} 0`, `weir_table_proven{datapath="ebpf",table="flows"} `,
		`weir_backend_flows_opened_total{backend="b",datapath="ebpf",service="nat"}`, `weir_next_hop_ready{address="10.2.0.2",backend="a",service="nat"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// A backend that no longer answers its probe gets no new flow once it missed `fall` of them, and gets some again later.
func TestRootKernelDeadBackend(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "kdead")
	spec := `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
services:
- name: nat
  vips: [{address: 10.0.0.1, protocol: tcp, port: 80}]
  health: {type: tcp, interval: 1s, timeout: 900ms, rise: 1, fall: 2}
  backends:
  - {name: a, address: 10.2.0.2, port: 8080}
  - {name: c, address: 10.3.0.3, port: 8080}
`
	k := newKernelLB(t, lab.Namespace("gateway"), "auto", kernelInterfaces, spec)
	share := func(want bool) func(*v1.LBStatus) bool {
		return func(s *v1.LBStatus) bool { return (s.Services[0].Backends[1].Share > 0) == want }
	}
	k.until("c is up", share(true))
	if err := lab.Namespace("zone2").SetUp("eth0", false); err != nil {
		t.Fatal(err)
	}
	k.until("c is out", share(false))
	for range 12 {
		if fresh := newTalker(t, lab.Namespace("zone0"), "tcp", "10.0.0.1:80"); fresh.name != "a" {
			t.Errorf("a new flow went to the dead %s", fresh.name)
		}
	}
	if err := lab.Namespace("zone2").SetUp("eth0", true); err != nil {
		t.Fatal(err)
	}
	k.until("c is back", share(true))
}

// What is refused, and how.
func TestRootKernelRefusals(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "krefuse")
	gateway := lab.Namespace("gateway")
	k := newKernelLB(t, gateway, "tcx", "veth0", kernelSpec(100, false))
	run := func(args ...string) (string, int) {
		cmd := exec.Command(os.Args[0], args...)
		out := new(clitest.LockedBuffer)
		cmd.Stdout, cmd.Stderr = out, out
		gateway.Run(cmd)
		return out.String(), cmd.ProcessState.ExitCode()
	}
	base := []string{"lb", "run", "-c", k.config, "--datapath", "ebpf", "--admin", ""}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--interface", "veth0", "--pin-path", k.pins}, cli.ExitFailure, fmt.Sprintf("(process %d) serves it", k.cmd.Process.Pid)},
		{[]string{"--interface", "veth9", "--pin-path", k.pins + "2"}, cli.ExitFailure, "interface veth9"},
		{[]string{"--interface", "veth0,veth0", "--pin-path", k.pins + "2"}, cli.ExitFailure, "named twice"},
		{[]string{"--pin-path", k.pins + "2"}, cli.ExitUsage, "no interface; name those"},
		{[]string{"--interface", "veth0", "--hook", "tc"}, cli.ExitUsage, "write auto, xdp or tcx"},
		{[]string{"--interface", "veth0", "--pin-path", t.TempDir()}, cli.ExitFailure, "is on no bpf file system"},
		{[]string{"--interface", "veth0", "--tcx-order", "middle"}, cli.ExitUsage, "write first or last"},
	} {
		out, code := run(append(base, c.args...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%q: %d %s; want %d %s", c.args, code, out, c.code, c.want)
		}
	}
	if _, err := os.Stat(k.pins + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("refused starts left their pins: %v", err)
	}
	// An XDP program of somebody else: here another weir's.
	other := newKernelLB(t, gateway, "xdp", "veth2", kernelSpec(100, false))
	out, code := run(append(base, "--interface", "veth2", "--hook", "xdp", "--pin-path", k.pins+"2")...)
	if code != cli.ExitFailure || !strings.Contains(out, "has an XDP program already: weir_xdp (program ") || !strings.Contains(out, "--hook tcx") {
		t.Errorf("an occupied XDP hook: %d %s", code, out)
	}
	other.end(syscall.SIGKILL)
	if out, code := clitest.Weir(t, "lb", "trace", "--pin-path", k.pins+"3"); code != cli.ExitFailure || !strings.Contains(out, "no data path is kept at") {
		t.Errorf("trace of nothing: %d %s", code, out)
	}
	if out, code := clitest.Weir(t, "lb", "stop", "--pin-path", k.pins+"3"); code != 0 || !strings.Contains(out, "nothing is kept") {
		t.Errorf("stop of nothing: %d %s", code, out)
	}
	k.end(syscall.SIGTERM)
	if _, err := os.Stat(k.pins); err != nil {
		t.Errorf("the data path has ended with its process: %v", err)
	}
	k.args = append(k.args, "--keep=false")
	k.start()
	k.end(syscall.SIGTERM)
	if _, err := os.Stat(k.pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("--keep=false has left its pins: %v", err)
	}
}

// A trace shows packets with their reasons while weir is dead, and its capture is read by weir explain.
func TestRootKernelTrace(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "ktrace")
	k := newKernelLB(t, lab.Namespace("gateway"), "tcx", kernelInterfaces, kernelSpec(100, false))
	k.end(syscall.SIGKILL)
	last := 0
	for _, step := range []string{"msg=starting ", `msg="loading the programs"`, "attaching the programs", `msg="configuration applied"`} {
		at := strings.Index(k.out.String(), step)
		if at < last {
			t.Errorf("the start does not say %s in its place:\n%s", step, k.out)
		}
		last = max(last, at)
	}
	capture := filepath.Join(t.TempDir(), "t.pcapng")
	stop := keepTalking(t.Context(), []*talker{newTalker(t, lab.Namespace("zone0"), "udp", "10.0.0.1:80")})
	out, code := clitest.Weir(t, "lb", "trace", "--pin-path", k.pins, "--service", "nat", "--reason", "conntrack,reply", "--host", "10.0.0.2", "--limit", "4", "--pcap", capture)
	for _, err := range stop() {
		if err != nil {
			t.Error(err)
		}
	}
	if code != 0 || !strings.Contains(out, "> 10.0.0.1:80, ") || !strings.Contains(out, "forward conntrack nat/") || !strings.Contains(out, "forward reply nat/") || strings.Count(out, "\n") != 4 {
		t.Errorf("trace: %d\n%s", code, out)
	}
	raw, err := os.ReadFile(capture)
	if err != nil || !strings.Contains(string(raw), "forward conntrack nat/") {
		t.Errorf("capture: %v", err)
	}
	if out, code := clitest.Weir(t, "explain", k.config, "--pcap", capture); code != 0 || !strings.Contains(out, "10.0.0.1:80") {
		t.Errorf("explain: %d\n%s", code, out)
	}
}
