package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const (
	bgpSection = `  bgp:
    as: 64512
    router_id: 10.61.0.1
    listen: 10.61.0.1:179
    next_hop4: 10.62.0.1
    next_hop6: "fd62::1"
    neighbours:
    - {address: 10.62.0.2, as: 64513, local_address: 10.62.0.1, password_file: PASSWORD, bfd: {interval: 1s}}
    - {address: "fd62::2", as: 64513, local_address: "fd62::1", ttl_security: true}
`
	vrrpSection = `  vrrp: [{interface: eth0, vrid: 51, interval: 100ms}]
`
	announced = `services:
- name: dns
  vips: [{address: 10.61.0.100, protocol: udp, port: 5000}, {address: "fd61::100", protocol: udp, port: 5000}]
  backends: [{name: a, address: 10.62.0.2, address2: "fd62::2"}]
`
)

// announceWard is a ward whose file has these sections of announce. PASSWORD stands for a file with a password.
func announceWard(t *testing.T, sections string) *ward {
	t.Helper()
	netlabtest.Tools(t, "socat", "setpriv", "keepalived")
	w := newWard(t, "")
	clitest.Must(t, os.WriteFile(w.password(), []byte("secret\n"), 0o600))
	w.write(w.file, sections)
	if out, err := w.command(w.lab.Namespace("client"), "ethtool -K eth0 gro on").CombinedOutput(); err != nil { // another check wants it
		t.Fatalf("%v %s", err, out)
	}
	w.args = []string{"-c", w.file, "--datapath", "ebpf", "--interface", "eth0"}
	return w
}

func (w *ward) password() string { return filepath.Join(filepath.Dir(w.file), "password") }

func (w *ward) write(file, sections string) {
	w.t.Helper()
	text := "hash_key: 000102030405060708090a0b0c0d0e0f\nannounce:\n" + strings.ReplaceAll(sections, "PASSWORD", w.password()) + announced
	clitest.Must(w.t, os.WriteFile(file, []byte(text), 0o600))
}

// ill is something that is wrong with a machine.
type ill struct {
	check, level, what string
	as                 string // what runs the doctor
	serve              string // a program that runs meanwhile
	spoil              string // lines of the shell; CLIENT, SERVER and PASSWORD stand for namespaces and the file
	undo               string // empty: the remedy of the finding
	also               string // another check that finds it too
}

// finds spoils a healthy machine in each way. The doctor finds it, and after the remedy, or its undoing, nothing more.
func (w *ward) finds(all []ill) {
	w.t.Helper()
	w.await("at the start", w.args, healthy)
	names := strings.NewReplacer("CLIENT", w.lab.Namespace("client").NetNS(), "SERVER", w.lab.Namespace("server").NetNS(), "PASSWORD", w.password())
	for _, c := range all {
		name := strings.Join([]string{c.as, c.serve, c.spoil}, " ")
		end := func() {}
		if c.serve != "" {
			end = w.background(c.serve)
		}
		w.shell(names.Replace(c.spoil))
		w.as = c.as
		fits := func(f doctorFinding) bool {
			return f.Check == c.check && f.Level == c.level && strings.Contains(f.What, c.what)
		}
		bad := w.await(name, w.args, func(bad []doctorFinding) bool { return slices.ContainsFunc(bad, fits) })
		for _, f := range bad {
			if f.Check != c.check && f.Check != c.also {
				w.t.Errorf("%s: also %+v", name, f)
			}
		}
		w.as = ""
		switch {
		case c.undo != "":
			w.shell(names.Replace(c.undo))
		case c.as == "":
			w.shell(bad[slices.IndexFunc(bad, fits)].Remedy)
		}
		w.await("after "+name, w.args, healthy)
		end()
	}
}

// What keeps BGP sessions from being established is found.
func TestRootDoctorFindsWhatBreaksBGP(t *testing.T) {
	w := announceWard(t, bgpSection)
	w.finds([]ill{
		{
			check: "bgp_route", level: "fail", what: "no route leads to neighbour 10.62.0.2",
			spoil: "ip route add unreachable 10.62.0.2/32", undo: "ip route del unreachable 10.62.0.2/32",
		},
		{
			check: "bgp_route", level: "fail", what: "no route leads to neighbour fd62::2",
			spoil: "ip -6 route add unreachable fd62::2/128", undo: "ip -6 route del unreachable fd62::2/128",
		},
		{
			check: "bgp_route", level: "warn", what: "reached through the router 10.62.0.3 on eth1",
			spoil: "ip route add 10.62.0.2/32 via 10.62.0.3", undo: "ip route del 10.62.0.2/32",
		},
		{
			check: "bgp_route", level: "warn", what: "neighbour 10.62.0.2 did not answer ARP on eth1",
			spoil: "ip neigh replace 10.62.0.2 dev eth1 nud failed", undo: "ip neigh del 10.62.0.2 dev eth1",
		},
		{
			check: "bgp_route", level: "fail", what: "interface eth1, which leads to neighbour 10.62.0.2, has no carrier",
			spoil: "ip -n SERVER link set eth0 down", undo: "ip -n SERVER link set eth0 up",
		},
		{
			check: "bgp_source", level: "fail", what: "10.62.0.1 (local_address of neighbour 10.62.0.2) is no address",
			spoil: "ip address del 10.62.0.1/24 dev eth1", undo: "ip address add 10.62.0.1/24 dev eth1", also: "bgp_route",
		},
		{
			check: "bgp_source", level: "fail", what: "10.61.0.1 (listen) is no address",
			spoil: "ip address del 10.61.0.1/24 dev eth0", undo: "ip address add 10.61.0.1/24 dev eth0",
		},
		{
			check: "bgp_source", level: "fail", what: "fd62::1 (local_address of neighbour fd62::2) cannot be used: duplicate address detection on v0", also: "bgp_route",
			spoil: "ip link add v0 type veth peer name v1; sysctl -w net.ipv6.conf.v0.accept_dad=1 net.ipv6.conf.v0.dad_transmits=1; ip link set v0 up; " +
				"ip address del fd62::1/64 dev eth1; ip address add fd62::1/64 dev v0",
			undo: "ip link del v0; ip address add fd62::1/64 dev eth1 nodad",
		},
		{check: "bgp_listen", level: "fail", what: "socat (process ", serve: "socat -u TCP-LISTEN:179,bind=10.61.0.1 /dev/null"},
		{check: "bgp_listen", level: "warn", what: "CAP_NET_BIND_SERVICE is missing", as: "setpriv --bounding-set=-net_bind_service"},
		{check: "bgp_bfd", level: "fail", what: "socat (process ", serve: "socat -u UDP4-RECV:3784 /dev/null"},
		{
			check: "bgp_password", level: "fail", what: "read the password of neighbour 10.62.0.2",
			spoil: "rm PASSWORD", undo: "echo secret > PASSWORD",
		},
		{check: "bgp_password", level: "fail", what: "is empty", spoil: ": > PASSWORD", undo: "echo secret > PASSWORD"},
	})
}

// What keeps a virtual router from running, or makes two machines active, is found.
func TestRootDoctorFindsWhatBreaksVRRP(t *testing.T) {
	w := announceWard(t, vrrpSection)
	w.finds([]ill{
		{check: "vrrp_privileges", level: "warn", what: "CAP_NET_RAW", as: "setpriv --bounding-set=-net_raw"},
		{check: "vrrp_interface", level: "fail", what: "virtual router 51: interface eth0 is down", spoil: "ip link set eth0 down"},
		{
			check: "vrrp_interface", level: "fail", what: "interface eth0 has no carrier",
			spoil: "ip -n CLIENT link set eth0 down", undo: "ip -n CLIENT link set eth0 up",
		},
		{
			check: "vrrp_interface", level: "fail", what: "eth0 has no IPv4 address of its own",
			spoil: "ip address del 10.61.0.1/24 dev eth0", undo: "ip address add 10.61.0.1/24 dev eth0",
		},
		{check: "vrrp_interface", level: "fail", what: "IPv6 is off on interface eth0", spoil: "sysctl -w net.ipv6.conf.eth0.disable_ipv6=1"},
		{check: "vrrp_interface", level: "fail", what: "10.61.0.100 is on interface eth0 already", spoil: "ip address add 10.61.0.100/32 dev eth0"},
		{
			check: "vrrp_interface", level: "fail", what: "fd61::100 is on interface eth0 already",
			spoil: "ip address add fd61::100/128 dev eth0 nodad",
		},
		{check: "vrrp_arp", level: "fail", what: "interface eth0 has no ARP", spoil: "ip link set dev eth0 arp off", also: "vrrp_interface"},
		{check: "vrrp_arp", level: "fail", what: "arp_ignore is 8", spoil: "sysctl -w net.ipv4.conf.all.arp_ignore=8"},
		{
			check: "vrrp_arp", level: "fail", what: "10.61.0.100 is an address of lo: this machine answers ARP requests for it on eth0",
			spoil: "sysctl -w net.ipv4.conf.all.arp_ignore=0; ip address add 10.61.0.100/32 dev lo",
		},
		{
			check: "vrrp_rp_filter", level: "fail", what: "drops advertisements from 10.61.0.0/24, as packets to it leave by eth1",
			spoil: "ip route add 10.61.0.0/25 dev eth1; sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=1",
		},
	})
	w.write(w.file, strings.ReplaceAll(vrrpSection, "eth0", "eth7"))
	bad, code := w.examine(w.args...)
	if len(bad) != 1 || code != 1 || bad[0].Check != "vrrp_interface" || !strings.Contains(bad[0].What, "there is no interface eth7") {
		t.Errorf("%+v", bad)
	}
}

// Other machines with the same virtual router id are found by what they advertise: those of another group, and those that speak version 2.
// A machine that is configured alike is none.
func TestRootDoctorFindsOtherVirtualRouters(t *testing.T) {
	w := announceWard(t, vrrpSection)
	client := w.lab.Namespace("client")
	run := func(file string) *clitest.Process {
		return clitest.StartIn(t, client, "client", "lb", "run", "-c", file, "--datapath", "udp")
	}
	says := func(level, what string) {
		t.Helper()
		var last []doctorFinding
		netlabtest.Eventually(t, what, func() bool {
			last, _ = w.findings(w.args...)
			return slices.ContainsFunc(last, func(f doctorFinding) bool {
				return f.Check == "vrrp_peer" && f.Level == level && strings.Contains(f.What, what)
			})
		}, func() string { return fmt.Sprintf("%+v", last) })
	}
	says("ok", "no other machine advertised")

	alike := run(w.file)
	says("ok", "10.61.0.2 on eth0 advertises virtual router 51 with the same addresses")
	alike.Stop()

	file := filepath.Join(filepath.Dir(w.file), "other.yaml")
	text, err := os.ReadFile(w.file)
	clitest.Must(t, err)
	clitest.Must(t, os.WriteFile(file, []byte(strings.NewReplacer("10.61.0.100", "10.61.0.200", "fd61::100", "fd61::200").Replace(string(text))), 0o600))
	other := run(file)
	says("fail", "10.61.0.2 on eth0 advertises virtual router 51 with the addresses [10.61.0.200], not [10.61.0.100]")
	says("fail", "with the addresses [fe80::200:5eff:fe00:233 fd61::200], not [fe80::200:5eff:fe00:233 fd61::100]")
	other.Stop()

	dir := t.TempDir()
	config := filepath.Join(dir, "keepalived.conf")
	clitest.Must(t, os.WriteFile(config, []byte("vrrp_instance v4 {\n  state MASTER\n  interface eth0\n  virtual_router_id 51\n  priority 255\n  advert_int 1\n"+
		"  virtual_ipaddress {\n    10.61.0.100/32\n  }\n}\n"), 0o600))
	out := new(clitest.LockedBuffer)
	cmd := exec.Command("keepalived", "-f", config, "-P", "-n", "-l", "-D", "-p", filepath.Join(dir, "pid"), "-r", filepath.Join(dir, "vrrp.pid"))
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(t, client.Start(cmd))
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if t.Failed() {
			t.Logf("output of keepalived:\n%s", out)
		}
	})
	says("fail", "10.61.0.2 on eth0 advertises virtual router 51 in version 2 of VRRP")
}

// A weir that announces already is no finding: its ports and addresses are expected.
func TestRootDoctorOfRunningAnnouncements(t *testing.T) {
	w := announceWard(t, bgpSection+vrrpSection)
	p := clitest.StartIn(t, w.lb, "lb", "lb", "run", "-c", w.file, "--datapath", "udp")
	netlabtest.Eventually(t, "both virtual routers are active", func() bool {
		status, err := p.Admin.LBStatus(t.Context())
		if err != nil || status.Announce == nil || len(status.Announce.VRRP) != 2 {
			return false
		}
		return status.Announce.VRRP[0].State == "active" && status.Announce.VRRP[1].State == "active"
	})
	args := []string{w.file, "--datapath", "udp"}
	all := []string{
		fmt.Sprintf("bgp_listen: %s (process %d) listens at 10.61.0.1:179", filepath.Base(os.Args[0]), p.Cmd.Process.Pid),
		fmt.Sprintf("bgp_bfd: %s (process %d) receives BFD packets on UDP port 3784", filepath.Base(os.Args[0]), p.Cmd.Process.Pid),
		"vrrp_interface: the interfaces of 1 virtual routers can be used",
	}
	w.await("a running weir", args, healthy)
	found, _ := w.findings(args...)
	for _, want := range all {
		if !slices.ContainsFunc(found, func(f doctorFinding) bool { return f.Check+": "+f.What == want }) {
			t.Errorf("%q is not in %+v", want, found)
		}
	}
}
