package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// ward is a balancer between client and server, in which a doctor looks around.
type ward struct {
	t    *testing.T
	lab  *netlab.Lab
	lb   *netlab.Host
	path string // of the shells: finds weir
	file string
	as   string   // what runs the doctor, such as setpriv with its options; empty: nothing
	args []string // of doctor
}

type doctorFinding struct {
	Check, Level, What string
	Remedy             string `json:"cure"`
}

func newWard(t *testing.T, spec string) *ward {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip6tables", "ip", "ping", "ethtool", "sysctl")
	t.Parallel() // all in a network of its own
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "nsdoctor",
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: netlab.Default("10.61.0.1", "fd61::1")},
			{Name: "lb", Forward: true, Sysctls: []netlab.Sysctl{{Key: "net.ipv6.conf.eth1.keep_addr_on_down", Value: "1"}}},
			{
				Name: "server", Loopback: netlab.Prefixes("10.96.0.1/32", "10.96.0.2/32", "fd96::1/128", "fd96::2/128"),
				Routes: netlab.Default("10.62.0.1", "fd62::1"),
			},
		},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.61.0.2/24 fd61::2/64", "lb eth0 10.61.0.1/24 fd61::1/64"),
			netlab.Cable("lb eth1 10.62.0.1/24 fd62::1/64", "server eth0 10.62.0.2/24 10.62.0.3/24 fd62::2/64 fd62::3/64"),
		},
	})
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", clitest.RunAsWeir, mustAbs(t, os.Args[0]))
	if err := os.WriteFile(filepath.Join(dir, "weir"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w := &ward{t: t, lab: lab, lb: lab.Namespace("lb"), path: dir + ":" + os.Getenv("PATH"), file: filepath.Join(dir, "weir.yaml")}
	if err := os.WriteFile(w.file, []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"-c", w.file, "--queue", "0:1", "--interface", "eth0"}
	return w
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// command is a shell line in a namespace, with weir in its path.
func (w *ward) command(h *netlab.Host, line string) *exec.Cmd {
	cmd := exec.Command("ip", "netns", "exec", h.NetNS(), "sh", "-ec", line)
	cmd.Env = append(os.Environ(), "PATH="+w.path)
	return cmd
}

func (w *ward) shell(lines ...string) {
	w.t.Helper()
	if out, err := w.command(w.lb, strings.Join(lines, "\n")).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", strings.Join(lines, "; "), err, out)
	}
}

// background starts a line that does not end by itself. The returned function ends it.
func (w *ward) background(line string) (end func()) {
	w.t.Helper()
	out := new(clitest.LockedBuffer)
	cmd := w.command(w.lb, "exec "+line)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // by our kill
		close(ended)
	}()
	end = func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if w.t.Failed() {
			w.t.Logf("output of %s:\n%s", line, out)
		}
	}
	w.t.Cleanup(end)
	return end
}

// examine runs the doctor and returns what is not ok.
func (w *ward) examine(args ...string) (bad []doctorFinding, code int) {
	w.t.Helper()
	all, code := w.findings(args...)
	return slices.DeleteFunc(all, func(f doctorFinding) bool { return f.Level == "ok" }), code
}

// findings runs the doctor and returns everything that it finds.
func (w *ward) findings(args ...string) (all []doctorFinding, code int) {
	w.t.Helper()
	cmd := w.command(w.lb, `exec `+w.as+` weir doctor --json "$@"`)
	cmd.Args = append(append(cmd.Args, "doctor"), args...)
	complaint := new(clitest.LockedBuffer)
	cmd.Stderr = complaint
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(out, &all); err != nil {
		w.t.Fatalf("doctor: %v in %s\n%s", err, out, complaint)
	}
	if len(all) == 0 {
		w.t.Fatal("the doctor found nothing")
	}
	fails := false
	for _, f := range all {
		if (f.Level == "ok") != (f.Remedy == "") {
			w.t.Errorf("%+v: a remedy without a problem, or a problem without a remedy", f)
		}
		fails = fails || f.Level == "fail"
	}
	if fails != (code == 1) || code > 1 {
		w.t.Errorf("exit code %d: %+v", code, all)
	}
	return all, code
}

// await examines until the findings please.
func (w *ward) await(what string, args []string, good func(bad []doctorFinding) bool) []doctorFinding {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		bad, _ := w.examine(args...)
		if good(bad) {
			return bad
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: still %+v", what, bad)
		}
	}
}

func healthy(bad []doctorFinding) bool { return len(bad) == 0 }

// treat runs the remedies of the findings until there are none of that check.
func (w *ward) treat(what string, bad []doctorFinding, args []string) {
	w.t.Helper()
	for range 4 {
		for _, f := range bad {
			w.shell(f.Remedy)
		}
		if bad, _ = w.examine(args...); len(bad) == 0 {
			return
		}
	}
	w.t.Fatalf("%s: after the remedies still %+v", what, bad)
}

const wardSpec = `
services:
- name: dns
  mode: mark
  bypass: true
  vips: [{address: 10.96.0.2, protocol: udp, port: any}, {address: "fd96::2", protocol: udp, port: any}]
  backends:
  - {name: a, address: 10.62.0.2, address2: "fd62::2", mark: 101}
  - {name: b, address: 10.62.0.3, address2: "fd62::3", mark: 102}
- name: web
  mode: mark
  no_backend_mark: 2
  vips: [{address: 10.96.0.1, protocol: tcp, port: any}, {address: "fd96::1", protocol: tcp, port: any}]
  backends: [{name: a, address: 10.62.0.2, address2: "fd62::2", mark: 101}]
`

// A healthy balancer has no finding. Each thing that spoils it is found, and gone after the remedy that was printed.
func TestRootDoctorFindsAndRemedies(t *testing.T) {
	w := newWard(t, wardSpec)
	w.shell("weir lb rules " + strings.Join(w.args, " ") + " --apply")
	w.background("weir lb run -c " + w.file + " --datapath nfqueue --queue 0:1 --admin unix:" + filepath.Join(t.TempDir(), "s"))
	w.await("at the start", w.args, healthy)

	for _, c := range []struct {
		check, level, what string
		spoil              []string
	}{
		{"rules", "fail", "ip rule add fwmark 101", []string{"ip rule del fwmark 101 lookup 101"}},
		{"rules", "fail", "iptables -w -t mangle -F WEIR", []string{"iptables -t mangle -F WEIR"}},
		{"rules", "fail", "ip route replace default via 10.62.0.2 table 101", []string{"ip link set eth1 down", "ip link set eth1 up"}},
		{"rules", "fail", "takes mark 101 of web/a to table 9 first", []string{"ip rule add fwmark 0x65/0xff lookup 9 priority 50"}},
		{"rules", "fail", "queue 1 is fed by another rule", []string{"iptables -t mangle -A FORWARD -p icmp -j NFQUEUE --queue-balance 1:2"}},
		{"marks", "warn", "gives mark 102, which is that of dns/b", []string{"iptables -t mangle -A PREROUTING -p icmp -j MARK --set-mark 102"}},
		{"marks", "warn", "gives mark 2, which is that of no_backend_mark", []string{"ip6tables -t mangle -A PREROUTING -p icmpv6 -j MARK --set-mark 2"}},
		{"local_vip", "fail", "10.96.0.1 of service web is an address of lo", []string{"ip address add 10.96.0.1/32 dev lo"}},
		{"local_vip", "fail", "fd96::2 of service dns is an address of eth1", []string{"ip address add fd96::2/128 dev eth1 nodad"}},
		{"forwarding", "fail", "IPv4 packets are not forwarded by this machine", []string{"sysctl -w net.ipv4.ip_forward=0"}},
		{"forwarding", "fail", "IPv6 packets are not forwarded by this machine", []string{"sysctl -w net.ipv6.conf.all.forwarding=0"}},
		{"forwarding", "fail", "IPv4 packets that come in on eth0 are not", []string{"sysctl -w net.ipv4.conf.eth0.forwarding=0"}},
		{"rp_filter", "warn", "whose way back is another interface", []string{"sysctl -w net.ipv4.conf.eth0.rp_filter=1"}},
		{"rp_filter", "fail", "drops every marked packet", []string{"sysctl -w net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.eth0.src_valid_mark=1"}},
		{"fwmark_reflect", "fail", "IPv4 errors of this machine", []string{"sysctl -w net.ipv4.fwmark_reflect=1"}},
		{"fwmark_reflect", "fail", "IPv6 errors of this machine", []string{"sysctl -w net.ipv6.fwmark_reflect=1"}},
		{"conntrack", "warn", "connections are tracked", []string{"iptables -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT"}},
		{"conntrack", "warn", "addresses are translated", []string{"ip6tables -t nat -A POSTROUTING -o eth9 -j MASQUERADE"}},
		{"bridge", "warn", "bridges send what they only switch", []string{"ip link add br0 type bridge"}},
	} {
		w.shell(c.spoil...)
		bad, _ := w.examine(w.args...)
		if !slices.ContainsFunc(bad, func(f doctorFinding) bool {
			return f.Check == c.check && f.Level == c.level && strings.Contains(f.What, c.what)
		}) {
			t.Errorf("%s: found %+v", strings.Join(c.spoil, "; "), bad)
		}
		for _, f := range bad {
			if f.Check != c.check {
				t.Errorf("%s: also %+v", strings.Join(c.spoil, "; "), f)
			}
		}
		w.treat(strings.Join(c.spoil, "; "), bad, w.args)
	}
}

// nftables rules track connections too; without the program nft there are none to find.
func TestRootDoctorFindsNFTables(t *testing.T) {
	netlabtest.Tools(t, "nft")
	w := newWard(t, wardSpec)
	w.shell("nft add table inet t", "nft add chain inet t c '{ type filter hook forward priority 0; }'", "nft add rule inet t c ct state new counter accept")
	bad, code := w.examine("--interface", "eth0")
	if len(bad) != 1 || code != 0 || bad[0].Check != "conntrack" || !strings.HasPrefix(bad[0].Remedy, "nft delete rule inet t c handle ") {
		t.Fatalf("%+v", bad)
	}
	w.treat("nft", bad, []string{"--interface", "eth0"})
}

// No one at a queue, somebody else at one of them, and queues that dropped packets.
func TestRootDoctorWatchesQueues(t *testing.T) {
	w := newWard(t, wardSpec)
	w.shell("weir lb rules " + strings.Join(w.args, " ") + " --apply")
	admin := " --admin unix:" + filepath.Join(t.TempDir(), "s")
	only := func(check, what string) func([]doctorFinding) bool {
		return func(bad []doctorFinding) bool {
			return len(bad) > 0 && bad[0].Check == check && strings.Contains(bad[0].What, what)
		}
	}

	bad := w.await("nobody", w.args, only("listener", "no program listens to queue 0, 1"))
	end := w.background(bad[0].Remedy + admin)
	w.await("served", w.args, healthy)
	end()

	first := w.background("weir lb run -c " + w.file + " --datapath nfqueue --queue 0" + admin)
	second := w.background("weir lb run -c " + w.file + " --datapath nfqueue --queue 1" + admin + "2")
	bad = w.await("two", w.args, only("listener", "several programs serve these queues"))
	w.shell(bad[0].Remedy)
	bad = w.await("one was stopped", w.args, only("listener", "no program listens to queue"))
	if slices.ContainsFunc(bad, func(f doctorFinding) bool { return strings.Contains(f.What, "several programs") }) {
		t.Errorf("still several programs: %+v", bad)
	}
	first()
	second()

	for _, c := range []struct{ options, what string }{
		{" --queue-length 1", "was full: it dropped"},
		{" --queue-length 100000 --receive-buffer 4096", "the socket of queue"},
	} {
		out := new(clitest.LockedBuffer)
		cmd := w.command(w.lb, "exec weir lb run -c "+w.file+" --datapath nfqueue --queue 0:1"+admin+c.options)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
		w.await("with"+c.options, w.args, healthy)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		bad = w.await("flooded with"+c.options+"\n"+out.String(), w.args, func(bad []doctorFinding) bool {
			// The flood is a part of the wait: a packet more each time, until the queue has dropped one.
			flood := w.command(w.lab.Namespace("client"), "ping -q -c 200 -i 0.002 -W 1 -s 1200 10.96.0.1 || true")
			if text, err := flood.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			return only("queue_drops", c.what)(bad)
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // by our kill
		end := w.background(bad[0].Remedy + admin)
		w.await("restarted as the remedy says", w.args, healthy)
		end()
	}
}

// A backend without an address in the file needs routing by hand.
func TestRootDoctorMissesRoutesByHand(t *testing.T) {
	w := newWard(t, `
services:
- name: web
  mode: mark
  vips: [{address: 10.96.0.1, protocol: tcp, port: any}]
  backends: [{name: a, mark: 101}]
`)
	w.shell("weir lb rules " + strings.Join(w.args, " ") + " --apply")
	w.background("weir lb run -c " + w.file + " --datapath nfqueue --queue 0:1 --admin unix:" + filepath.Join(t.TempDir(), "s"))
	for _, step := range []string{"", "ip route flush table 101"} {
		if step != "" {
			w.shell(step)
		}
		bad := w.await("by hand", w.args, func(bad []doctorFinding) bool { return len(bad) == 1 && bad[0].Check == "mark_routes" })
		w.shell(strings.ReplaceAll(bad[0].Remedy, "ADDRESS", "10.62.0.2"))
		w.await("made by hand", w.args, healthy)
	}
}

// What no backend takes is answered, by weir's mark and the rules together, and a service with a backend works at the same time.
func TestRootRulesAnswerOnlyForTheirOwn(t *testing.T) {
	netlabtest.Tools(t, "socat")
	w := newWard(t, `
no_service_mark: 3
services:
- name: off
  mode: mark
  no_backend_mark: 2
  vips: [{address: 10.96.0.1, protocol: tcp, port: 80}, {address: "fd96::1", protocol: tcp, port: 80}]
  backends: [{name: a, address: 10.62.0.2, address2: "fd62::2", mark: 101, weight: 0}]
- name: on
  mode: mark
  vips: [{address: 10.96.0.2, protocol: tcp, port: 80}]
  backends: [{name: b, address: 10.62.0.3, mark: 102}]
`)
	w.shell("weir lb rules " + strings.Join(w.args, " ") + " --apply")
	w.background("weir lb run -c " + w.file + " --datapath nfqueue --queue 0:1 --admin unix:" + filepath.Join(t.TempDir(), "s"))
	server := w.command(w.lab.Namespace("server"), "exec socat TCP-LISTEN:80,reuseaddr,fork EXEC:'echo hello'")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() }) // by our kill
	w.await("at the start", w.args, healthy)
	expect := func(address, want string) {
		t.Helper()
		answer := ""
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(answer, want); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%s: %q, want %q", address, answer, want)
				return
			}
			out, _ := w.command(w.lab.Namespace("client"), "exec socat -T 10 - TCP:"+address+",connect-timeout=10 < /dev/null").CombinedOutput() // refused by design; what it says counts
			answer = string(out)
		}
	}
	// Without a way to the VIPs in the main table, the kernel answers before the rules do.
	for _, address := range []string{"10.96.0.1:80", "[fd96::1]:80", "10.96.0.1:81"} {
		expect(address, "Network is unreachable")
	}
	expect("10.96.0.2:80", "hello")
	w.shell("ip route add 10.96.0.0/24 via 10.62.0.2", "ip -6 route add fd96::/64 via fd62::2")
	for _, address := range []string{"10.96.0.1:80", "[fd96::1]:80", "10.96.0.1:81"} {
		expect(address, "Connection refused") // no backend, no backend, no service
	}
	expect("10.96.0.2:80", "hello")
}

// The end of a veth pair that loses redirected frames is found in the other namespace.
func TestRootDoctorFindsSilentVeth(t *testing.T) {
	w := newWard(t, wardSpec)
	args := []string{"--datapath", "ebpf", "--interface", "eth0"}
	if out, err := w.command(w.lab.Namespace("client"), "ethtool -K eth0 gro off").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	bad, code := w.examine(args...)
	if len(bad) != 1 || code != 1 || bad[0].Check != "veth" || !strings.Contains(bad[0].What, "the other end of eth0 loses") {
		t.Fatalf("%+v", bad)
	}
	w.treat("veth", bad, args)
}

func TestDoctorMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"doctor --datapath xdp":     "nfqueue, ebpf or udp",
		"doctor --queue x":          "--queue",
		"doctor -c no-such.yaml":    "no-such.yaml",
		"doctor -c ../../../go.mod": "go.mod",
		"doctor --chain=A/B -c " + "../../../examples/nfqueue-rules.yaml": "chain",
	} {
		_, err := clitest.Execute(t, strings.Fields(line)...)
		var exit *cli.ExitError
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("weir %s: got %v, want a usage error with %q", line, err, want)
		}
	}
}

// A remedy repeats every option that makes the rules: one that is left out would undo it.
func TestDoctorRemedyKeepsOptions(t *testing.T) {
	given := []string{
		"-c", "/weir.yaml", "--queue", "1:3", "--interface", "eth1,eth2", "--local", "--unmarked", "--chain", "OURS", "--priority", "77",
		"--table-base", "78", "--route-protocol", "79", "--fragments",
	}
	parse := func(args []string) (*cobra.Command, *balancing.RulesFlags) {
		t.Helper()
		f, cmd := new(balancing.RulesFlags), &cobra.Command{Use: "rules"}
		f.Add(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		return cmd, f
	}
	cmd, want := parse(given)
	c := reflect.ValueOf(want.Config)
	for i := range c.NumField() {
		if name := c.Type().Field(i).Name; c.Field(i).IsZero() && name != "First" && name != "Count" { // those are --queue
			t.Errorf("an option for %s is missing here", name)
		}
	}
	words := arguments(want, cmd)
	if _, got := parse(strings.Fields(words)); !reflect.DeepEqual(got, want) {
		t.Errorf("%q gives %+v, want %+v", words, got, want)
	}
}
