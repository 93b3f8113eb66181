package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// no program runs commands.
const nobody = 65534

// privilegeLab is a network namespace in which commands run as nobody.
type privilegeLab struct {
	t            *testing.T
	host, client *netlab.Host
	binary       string // that no one can execute
	dir, pins    string // that no one can write
}

func newPrivilegeLab(t *testing.T) *privilegeLab {
	topology := netlab.NAT()
	topology.Name = "privileges"
	lab := netlabtest.Up(t, topology)
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &privilegeLab{t: t, host: lab.Namespace("gateway"), client: lab.Namespace("zone0"), dir: dir, binary: filepath.Join(dir, "weir"), pins: filepath.Join(netlabtest.BPFFS(t), "own")}
	if err := os.Link(os.Args[0], l.binary); err != nil { // another file system
		text, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(l.binary, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(l.pins, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{l.dir, filepath.Dir(l.pins)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{l.dir, l.pins} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"nat.yaml":    privilegeSpec("nat", "192.0.2.9", `address: "10.2.0.2"`),
		"mark.yaml":   privilegeSpec("mark", "192.0.2.9", "mark: 5"),
		"udp.yaml":    privilegeSpec("nat", "127.0.0.1", `address: "127.0.0.1", port: 8081`),
		"vrrp.yaml":   privilegeSpec("nat", "10.0.0.9", `address: "10.2.0.2"`) + "announce: {vrrp: [{interface: veth0, vrid: 5}]}\n",
		"tunnel.yaml": strings.Replace(privilegeSpec("l3dsr", "10.9.9.9", `address: "10.2.0.2"`), "  vips", "  health: {type: udp, tunnel: true, interval: 200ms}\n  vips", 1),
		"snat.yaml":   "scenarios: [{name: small, connections: 1200, path: [{kind: azure-lb}]}]\n",
		"turn.yaml": `
listeners: [{name: udp, protocol: udp, address: 10.0.0.1, port: 3478}]
auth: {users: [{name: u, password: p}]}
offload: {mode: tcx, interfaces: [veth0]}
`,
	} {
		l.write(name, text)
	}
	return l
}

func privilegeSpec(mode, vip, backend string) string {
	return fmt.Sprintf(`hash_key: 000102030405060708090a0b0c0d0e0f
services:
- name: pool
  mode: %s
  vips: [{address: %q, protocol: udp, port: 8080}]
  backends: [{name: a, %s}]
`, mode, vip, backend)
}

func (l *privilegeLab) write(name, text string) {
	if err := os.WriteFile(l.file(name), []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *privilegeLab) file(name string) string { return filepath.Join(l.dir, name) }

// privileged is one way to run a command.
type privileged struct {
	args    string // DIR and PINS stand for the lab's directories
	serves  string // it runs until it is interrupted, and says this once it serves; "": it ends by itself
	before  string // name of the command that ran before it
	with    string // arguments of a command that serves at the same time
	says    string // what that one says
	packets bool   // come in for the VIP meanwhile
	softly  bool   // without a capability it goes on without what that is for, and says so
}

// privilegedRuns are the ways in which the test runs each row of the table.
func privilegedRuns() map[string][]privileged {
	const (
		lbUDP = "lb run -c DIR/udp.yaml --datapath udp --admin unix:DIR/lb"
		ebpf  = "lb run -c DIR/nat.yaml --datapath ebpf --interface veth0 --pin-path PINS/lb --admin unix:DIR/kernel"
		coap  = "coap server --listen 127.0.0.1:5783 --dtls 127.0.0.1:5784"
		turn  = "turn gateway turn://u:p@127.0.0.1:3478 --admin unix:DIR/turn"
	)
	applied, listening, serving := "configuration applied", "uri=coaps://", "msg=TURN"
	return map[string][]privileged{
		"weir lb run --datapath udp": {{args: lbUDP, serves: "msg=admin"}},
		privilege.LBRunNFQueue:       {{args: "lb run -c DIR/mark.yaml --datapath nfqueue --queue 7 --admin unix:DIR/queue", serves: applied}},
		privilege.LBRunFast:          {{args: "lb run -c DIR/mark.yaml --datapath nfqueue --queue 7 --interface veth0 --pin-path PINS/queue --keep=false --admin unix:DIR/queue", serves: applied, softly: true}},
		privilege.LBRunEBPF:          {{args: ebpf, serves: "msg=admin"}},
		privilege.LBRunVRRP:          {{args: "lb run -c DIR/vrrp.yaml --datapath udp --admin unix:DIR/vrrp", serves: "virtual router changed state"}},
		privilege.LBRunTunnel:        {{args: "lb run -c DIR/tunnel.yaml --datapath ebpf --interface veth0 --pin-path PINS/lb --admin unix:DIR/tunnel", serves: "probes go through tunnels"}},
		privilege.LBStop:             {{args: "lb stop --pin-path PINS/lb", before: privilege.LBRunEBPF}},
		privilege.LBTrace:            {{args: "lb trace --pin-path PINS/lb --limit 1", before: privilege.LBRunEBPF, packets: true}},
		privilege.LBRules:            {{args: "lb rules -c DIR/mark.yaml --apply"}, {args: "lb rules --remove"}},
		privilege.LBDecap:            {{args: "lb decap --interface veth0 --from 10.2.0.2", serves: "msg=attached"}},
		"weir lb status, show, flows, drain, undrain, down, up": {
			{args: "lb status --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
			{args: "lb show --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
			{args: "lb flows --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
			{args: "lb drain pool/a --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
			{args: "lb undrain pool/a --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
			{args: "lb down pool/a --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
			{args: "lb up pool/a --admin unix:DIR/lb", with: lbUDP, says: "msg=admin"},
		},
		"weir lb rules --print": {{args: "lb rules -c DIR/mark.yaml --print"}},
		"weir nat":              {{args: "nat 127.0.0.1:7000 127.0.0.1:7001 --admin unix:DIR/nat", serves: "UDP 127.0.0.1:7000 to"}},
		privilege.NATOffload:    {{args: "nat 127.0.0.1:7000 127.0.0.1:7001 --offload tcx --admin unix:DIR/nat", serves: "UDP 127.0.0.1:7000 to"}},
		"weir coap server":      {{args: coap, serves: listening}},
		"weir coap get":         {{args: "coap get coaps://127.0.0.1:5784/context", with: coap, says: listening}},
		"weir coap bench":       {{args: "coap bench coaps://127.0.0.1:5784/benchmark --clients 2 --requests 5", with: coap, says: listening}},
		"weir turn gateway":     {{args: turn, serves: serving}},
		privilege.TurnOffload:   {{args: "turn gateway -c DIR/turn.yaml --admin unix:DIR/turn", serves: serving}},
		"weir turn cat":         {{args: "turn cat udp://127.0.0.1:9000 turn://u:p@127.0.0.1:3478 udp://10.0.0.2:9001", serves: "127.0.0.1:9000", with: turn, says: serving}},
		"weir tcp server, client, stats": {
			{args: "tcp server --listen 127.0.0.1:7005", serves: "listening on"},
			{args: "tcp stats --listen 127.0.0.1:7006", serves: "127.0.0.1:7006"},
			{args: "tcp client --connections 5 --to 127.0.0.1:7005 --hold 1s", with: "tcp server --listen 127.0.0.1:7005", says: "listening on"},
		},
		"weir tcp bench --namespace=false": {{args: "tcp bench --connections 20 --hold 1s --namespace=false"}},
		"weir check, explain, sim": {
			{args: "check DIR/nat.yaml"},
			{args: "explain DIR/nat.yaml --packet udp_10.0.0.1:5000_>_192.0.2.9:8080"},
			{args: "sim fragments --size 100 --rate 1000 --duration 2s"},
		},
		"weir snat plan, simulate, rules": {
			{args: "snat plan azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2 --connections 5000"},
			{args: "snat simulate azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2 --rate 100 --duration 10s"},
			{args: "snat rules"},
		},
		privilege.Doctor:       {{args: "doctor"}},
		"weir demo":            {{args: "demo --clients 5 --interval 50ms --duration 6s"}},
		privilege.LabUp:        {{args: "lab up cluster"}},
		privilege.LabExec:      {{args: "lab exec cluster client1 -- true"}},
		privilege.LabDown:      {{args: "lab down cluster"}},
		privilege.SNATLab:      {{args: "snat lab DIR/snat.yaml --nat weir"}},
		privilege.SNATKernel:   {{args: "snat lab DIR/snat.yaml --nat kernel"}},
		privilege.TCPNamespace: {{args: "tcp bench --via direct --connections 20 --hold 1s"}, {args: "tcp bench --via nfqueue --connections 20 --hold 1s"}},
		privilege.TCPKernel:    {{args: "tcp bench --via tcx --connections 20 --hold 1s"}, {args: "tcp bench --via xdp --connections 20 --hold 1s"}},
		privilege.BenchNFQueue: {{args: "bench run nfqueue --loads pingpong --rounds 1 --duration 200ms"}},
		privilege.BenchDSR: {
			{args: "bench run dsr --only routing,iptables-dnat,weir-nat-xdp,weir-l2dsr-tcx --loads iperf2 --rounds 1 --duration 100ms --families ipv4"},
			{args: "bench run floods --quick --duration 1s --only later-fragments/nat-xdp"},
		},
		privilege.TCPPeers:      {{args: "tcp bench --with wrk --connections 20 --hold 1s --rounds 1"}},
		privilege.BenchFailover: {{args: "bench run failover --flows 20 --rate 200 --only weir-dsr --changes none"}},
		privilege.BenchDump:     {{args: "bench run dump --flows 1000 --rate 1000 --duration 1s"}},
		"weir bench run soak, restart": {
			{args: "bench run soak --duration 5s --every 1s"},
			{args: "bench run restart --clients 5 --times 1 --every 2s --events upgrade"},
		},
		privilege.BenchLive:  {{args: "bench ebpf --live --hook xdp --only l2dsr --families ipv4 --rounds 1 --duration 100ms"}},
		privilege.BenchEBPF:  {{args: "bench ebpf --only cid --rounds 1 --flows 65536 --packets 4096"}},
		privilege.BenchMoved: {{args: "bench coap --datapath ebpf --clients 5 --interval 20ms --warmup 100ms --duration 1s"}},
	}
}

// TestRootPrivileges runs each command of the table as nobody: it works with exactly the capabilities of its row, and without
// one of them says which is missing and changes nothing.
func TestRootPrivileges(t *testing.T) {
	clitest.TakesSeconds(t)
	runs := privilegedRuns()
	for name := range runs {
		if _, ok := privilege.Of(name); !ok {
			t.Errorf("%s is run, but not in the table", name)
		}
	}
	openTun(t)
	rest := privilege.Commands()
	for _, first := range []string{"weir nat", privilege.LabUp, privilege.TCPNamespace, privilege.BenchNFQueue, privilege.BenchDump, privilege.BenchLive, ""} { // each part begins where the one before ends
		n := slices.IndexFunc(rest, func(c privilege.Command) bool { return c.Name == first })
		if first == "" {
			n = len(rest)
		}
		part := rest[:n]
		rest = rest[n:]
		t.Run("from_"+strings.ReplaceAll(part[0].Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			newPrivilegeLab(t).runAll(part, runs)
		})
	}
}

// openTun gives the device of tun the mode that udev gives it: any user may open it, and CAP_NET_ADMIN decides.
func openTun(t *testing.T) {
	t.Helper()
	const device = "/dev/net/tun"
	info, err := os.Stat(device)
	clitest.Must(t, err)
	clitest.Must(t, os.Chmod(device, 0o666))
	t.Cleanup(func() { clitest.Must(t, os.Chmod(device, info.Mode().Perm())) })
}

// runAll runs the rows in their order: what one leaves, the next one finds.
func (l *privilegeLab) runAll(rows []privilege.Command, runs map[string][]privileged) {
	t := l.t
	l.loForwards("sh", "-c", "for f; do echo 0 > $f; done", "sh")
	for _, c := range rows {
		if len(runs[c.Name]) == 0 {
			t.Errorf("%s: the test does not run it", c.Name)
		}
		for _, run := range runs[c.Name] {
			t.Run(strings.ReplaceAll(run.args, "/", "_"), func(t *testing.T) {
				l.t = t
				if run.before != "" {
					first := runs[run.before][0]
					l.works(&first, l.row(run.before))
				}
				for i := range c.Needs { // first: these leave everything as it is
					less := c
					less.Needs = append(append([]privilege.Need{}, c.Needs[:i]...), c.Needs[i+1:]...)
					l.refused(&run, less, c.Needs[i].Capability)
				}
				l.works(&run, c)
			})
		}
		if c.Name == privilege.LBRunEBPF || c.Name == privilege.LBRunTunnel || c.Name == privilege.LBTrace {
			stop := runs[privilege.LBStop][0]
			l.t = t
			l.works(&stop, l.row(privilege.LBStop))
		}
	}
	if left, err := os.ReadDir(l.pins); err != nil || len(left) > 0 {
		t.Errorf("pins stay: %v, %v", left, err)
	}
	l.t = t
	if got := l.loForwards("cat"); strings.Join(strings.Fields(got), " ") != "0 0" {
		t.Errorf("lo forwards: %q", got)
	}
}

// loForwards runs a program on the settings that the offload of TURN changes and takes back.
func (l *privilegeLab) loForwards(program string, args ...string) string {
	l.t.Helper()
	out, err := l.host.Exec(l.t.Context(), program, append(args, "/proc/sys/net/ipv4/conf/lo/forwarding", "/proc/sys/net/ipv6/conf/lo/forwarding")...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *privilegeLab) row(name string) privilege.Command {
	c, ok := privilege.Of(name)
	if !ok {
		l.t.Fatalf("no row %s", name)
	}
	return c
}

// started is a command that runs as nobody.
type started struct {
	cmd   *exec.Cmd
	out   *clitest.LockedBuffer
	ended chan struct{}
	err   error
}

// start runs a command line with exactly the capabilities of a row.
func (l *privilegeLab) start(args string, c privilege.Command) *started {
	l.t.Helper()
	var caps []uintptr
	for _, n := range c.Needs {
		caps = append(caps, uintptr(privilege.Number(n.Capability)))
	}
	s := &started{out: new(clitest.LockedBuffer), ended: make(chan struct{})}
	var words []string
	for _, word := range strings.Fields(strings.NewReplacer("DIR", l.dir, "PINS", l.pins).Replace(args)) {
		words = append(words, strings.ReplaceAll(word, "_", " "))
	}
	s.cmd = exec.Command(l.binary, words...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = l.dir, s.out, s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: caps,
	}
	if err := l.host.Start(s.cmd); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	l.t.Cleanup(func() {
		select {
		case <-s.ended:
		default:
			s.cmd.Process.Kill()
			<-s.ended
		}
	})
	return s
}

// until waits for what the command says; false: it ended before.
func (s *started) until(says string) bool {
	for !strings.Contains(s.out.String(), says) {
		select {
		case <-s.ended:
			return strings.Contains(s.out.String(), says)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}

// interrupt ends a command that serves.
func (s *started) interrupt() error {
	s.cmd.Process.Signal(os.Interrupt)
	<-s.ended
	return s.err
}

func (l *privilegeLab) works(run *privileged, c privilege.Command) {
	l.t.Helper()
	if run.with != "" {
		server := l.start(run.with, privilege.Command{})
		if !server.until(run.says) {
			l.t.Fatalf("%s: %v\n%s", run.with, server.err, server.out)
		}
		defer server.interrupt()
	}
	s := l.start(run.args, c)
	if run.serves == "" {
		for run.packets {
			l.client.Exec(l.t.Context(), "bash", "-c", "echo > /dev/udp/192.0.2.9/8080")
			select {
			case <-s.ended:
				run.packets = false
			default:
			}
		}
		<-s.ended
		out := s.out.String()
		// A void result, or one that misses the aims of its command while other tests run, is no matter of capabilities.
		measured := strings.Contains(out, "this machine was too busy") || strings.Contains(out, "aims missed or not proven by")
		if l.t.Logf("CPU time %v", clitest.CPUTime(s.cmd)); s.err != nil && !measured {
			l.t.Errorf("weir %s: %v\n%s", run.args, s.err, s.out)
		}
		return
	}
	if !s.until(run.serves) {
		l.t.Errorf("weir %s: %v\n%s", run.args, s.err, s.out)
		return
	}
	if run.softly && strings.Contains(s.out.String(), "CAP_") {
		l.t.Errorf("weir %s lacks something:\n%s", run.args, s.out)
	}
	if err := s.interrupt(); err != nil {
		l.t.Errorf("weir %s: %v after an interrupt\n%s", run.args, err, s.out)
	}
}

func (l *privilegeLab) refused(run *privileged, c privilege.Command, capability string) {
	l.t.Helper()
	s := l.start(run.args, c)
	if run.softly && s.until(run.serves) {
		s.interrupt()
	} else if <-s.ended; s.err == nil {
		l.t.Errorf("weir %s works without %s", run.args, capability)
	}
	if out := s.out.String(); !strings.Contains(out, capability+" (to ") || !strings.Contains(out, "is missing") {
		l.t.Errorf("weir %s without %s says:\n%s", run.args, capability, out)
	}
	if run.before == "" {
		if left, err := os.ReadDir(l.pins); err != nil || len(left) > 0 {
			l.t.Errorf("weir %s without %s leaves %v, %v", run.args, capability, left, err)
		}
	}
}

// TestRootKeysStayInMemory: processes with keys cannot be dumped or traced by others of the same user, unless that is allowed;
// supervisor and serving process of a gateway work together as before.
func TestRootKeysStayInMemory(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	// So that the limit of the children is their own doing: what they inherit is not zero.
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max == 0 {
		limit.Max = unix.RLIM_INFINITY
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		t.Fatal(err)
	}
	l := newPrivilegeLab(t)
	guarded := func(pid int) bool {
		var st syscall.Stat_t
		if err := syscall.Stat(fmt.Sprintf("/proc/%d/environ", pid), &st); err != nil {
			t.Fatal(err)
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil {
			t.Fatal(err)
		}
		none := regexp.MustCompile(`Max core file size +0 +0 `).Match(limits)
		if none != (st.Uid == 0) {
			t.Errorf("no core dumps by the limit: %t, dumpable: %t", none, st.Uid != 0)
		}
		return st.Uid == 0 // of root, where the process is not dumpable
	}
	coap := "coap server --listen 127.0.0.1:5783 --dtls 127.0.0.1:5784"
	server := l.start(coap, privilege.Command{})
	if !server.until("uri=coaps://") || !guarded(server.cmd.Process.Pid) {
		t.Errorf("a CoAP server can be dumped: %s", server.out)
	}
	serves := 0
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", server.cmd.Process.Pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			serves = pid
		}
	}
	if serves == 0 || !guarded(serves) {
		t.Errorf("the serving process %d of a CoAP server can be dumped", serves)
	}
	server.interrupt()
	t.Setenv(privilege.AllowCore, "1")
	server = l.start(coap, privilege.Command{})
	if !server.until("uri=coaps://") || guarded(server.cmd.Process.Pid) {
		t.Errorf("a CoAP server that may be dumped cannot be: %s", server.out)
	}
	server.interrupt()
	os.Unsetenv(privilege.AllowCore)

	gateway := l.start("turn gateway turn://u:p@127.0.0.1:3478 --admin unix:DIR/turn", privilege.Command{})
	if !gateway.until("msg=admin") {
		t.Fatalf("%v\n%s", gateway.err, gateway.out)
	}
	admin := client.New("unix:"+l.file("turn"), "")
	serving := func(not int) (pid int) {
		for pid == 0 || pid == not {
			var status struct{ PID int }
			if admin.Get(t.Context(), "/status", nil, &status) == nil {
				pid = status.PID
			}
			select {
			case <-gateway.ended:
				t.Fatalf("the gateway ended: %v\n%s", gateway.err, gateway.out)
			case <-time.After(20 * time.Millisecond):
			}
		}
		return pid
	}
	first := serving(0)
	if first == gateway.cmd.Process.Pid || !guarded(first) || !guarded(gateway.cmd.Process.Pid) {
		t.Errorf("supervisor %d or serving process %d can be dumped", gateway.cmd.Process.Pid, first)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := serving(first)
	upgrade := l.start("turn upgrade --admin unix:DIR/turn", privilege.Command{})
	if <-upgrade.ended; upgrade.err != nil {
		t.Errorf("upgrade: %v\n%s", upgrade.err, upgrade.out)
	}
	if third := serving(second); !guarded(third) {
		t.Error("the upgraded gateway can be dumped")
	}
	if err := gateway.interrupt(); err != nil {
		t.Errorf("%v\n%s", err, gateway.out)
	}
}

// TestRootFailedStartLeavesNothing: the programs are attached before the admin address turns out to be taken.
func TestRootFailedStartLeavesNothing(t *testing.T) {
	clitest.TakesSeconds(t)
	l := newPrivilegeLab(t)
	c := l.row(privilege.LBRunEBPF)
	const args = "lb run -c DIR/nat.yaml --datapath ebpf --interface veth0 --pin-path PINS/lb --admin "
	fails := func() {
		t.Helper()
		s := l.start(args+"192.0.2.77:9", c) // no one's address here
		if <-s.ended; s.err == nil || !strings.Contains(s.out.String(), "msg=attached") && !strings.Contains(s.out.String(), "took over") {
			t.Errorf("want a start that fails after it attached: %v\n%s", s.err, s.out)
		}
	}
	fails()
	if left, err := os.ReadDir(l.pins); err != nil || len(left) > 0 {
		t.Errorf("a start that failed leaves %v, %v", left, err)
	}
	links := func() string {
		out, err := l.host.Exec(t.Context(), "ip", "-d", "neigh", "show")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := links(); strings.Contains(out, "managed") {
		t.Errorf("neighbours stay managed:\n%s", out)
	}
	// What an earlier run left at work stays at work.
	run := privileged{args: args + "unix:DIR/kernel", serves: "msg=admin"}
	l.works(&run, c)
	fails()
	if left, err := os.ReadDir(filepath.Join(l.pins, "lb", "links")); err != nil || len(left) != 1 {
		t.Errorf("programs of the run before are gone: %v, %v", left, err)
	}
	stop := privilegedRuns()[privilege.LBStop][0]
	l.works(&stop, l.row(privilege.LBStop))
}

// The page shows the table that commands check themselves against.
func TestPrivilegesPageShowsTheTable(t *testing.T) {
	page := clitest.ReadPage(t, docsFolder+"privileges.md")
	row := regexp.MustCompile("(?m)^\\| `(weir [^`]*)` \\| ([^|]*) \\| ([^|]*) \\|$")
	shown := map[string][2]string{}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		shown[m[1]] = [2]string{m[2], m[3]}
	}
	for _, c := range privilege.Commands() {
		var needs, uses []string
		for _, n := range c.Needs {
			needs = append(needs, n.Capability)
			uses = append(uses, n.For)
		}
		want := [2]string{"any user, none", "–"}
		if needs != nil {
			want = [2]string{"any user, " + strings.Join(needs, " "), strings.Join(uses, "; ")}
		}
		if shown[c.Name] != want {
			t.Errorf("docs/privileges.md: row %q is %q, want\n| `%s` | %s | %s |", c.Name, shown[c.Name], c.Name, want[0], want[1])
		}
		delete(shown, c.Name)
	}
	for name := range shown {
		t.Errorf("docs/privileges.md: %s is not in the table", name)
	}
}
