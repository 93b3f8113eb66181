package lb

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const (
	vrrpVIP4 = "10.9.0.100"
	vrrpVIP6 = "2001:db8:9::100"
)

// vrrpLab is a switch, which is the client too, with the machines a and b.
type vrrpLab struct {
	t       *testing.T
	a, b, c *netlab.Host
	all     *netlab.Lab
	mac     map[*netlab.Host]string
	dir     string
	ended   <-chan struct{} // of the last keepalived
}

// newVRRPLab makes the lab, with more machines at 10.9.0.13 and up.
func newVRRPLab(t *testing.T, name string, more ...netlab.Namespace) *vrrpLab {
	netlabtest.Root(t)
	topology := netlab.Topology{
		Name: name,
		Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}, {
			Name: "switch", Bridges: []netlab.Bridge{{Name: "br0", Addresses: netlab.Prefixes("10.9.0.1/24", "2001:db8:9::1/64")}},
		}},
		Links: []netlab.Link{
			{A: netlab.End{Namespace: "switch", Name: "pa", Bridge: "br0"}, B: netlab.End{Namespace: "a", Name: "eth0", Addresses: netlab.Prefixes("10.9.0.11/24", "2001:db8:9::11/64")}},
			{A: netlab.End{Namespace: "switch", Name: "pb", Bridge: "br0"}, B: netlab.End{Namespace: "b", Name: "eth0", Addresses: netlab.Prefixes("10.9.0.12/24", "2001:db8:9::12/64")}},
		},
	}
	for i, ns := range more {
		topology.Namespaces = append(topology.Namespaces, ns)
		topology.Links = append(topology.Links, netlab.Link{
			A: netlab.End{Namespace: "switch", Name: "p" + ns.Name, Bridge: "br0"},
			B: netlab.End{Namespace: ns.Name, Name: "eth0", Addresses: netlab.Prefixes(fmt.Sprintf("10.9.0.%d/24", 13+i), fmt.Sprintf("2001:db8:9::%d/64", 13+i))},
		})
	}
	lab := netlabtest.Up(t, topology)
	l := &vrrpLab{t: t, all: lab, a: lab.Namespace("a"), b: lab.Namespace("b"), c: lab.Namespace("switch"), mac: map[*netlab.Host]string{}, dir: shortTemp(t)}
	for _, host := range []*netlab.Host{l.a, l.b} {
		_, mac, err := host.Interface("eth0")
		clitest.Must(t, err)
		l.mac[host] = net.HardwareAddr(mac[:]).String()
	}
	return l
}

// file writes a file of the lab.
func (l *vrrpLab) file(name, text string) string {
	path := filepath.Join(l.dir, name)
	clitest.Must(l.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// weir starts a load balancer on a machine.
func (l *vrrpLab) weir(host *netlab.Host, config string, args ...string) *clitest.Process {
	return clitest.StartIn(l.t, host, host.Name(), append([]string{"lb", "run", "-c", l.file("weir.yaml", config)}, args...)...)
}

// keepalived starts keepalived on b; end sends a signal to all its processes. The next one waits for their end: after SIGTERM and its last
// advertisement keepalived stays for a second.
func (l *vrrpLab) keepalived() (end func(syscall.Signal)) {
	l.t.Helper()
	if l.ended != nil {
		<-l.ended
	}
	instance := func(name, addresses string) string {
		return fmt.Sprintf("vrrp_instance %s {\n  state BACKUP\n  interface eth0\n  virtual_router_id 51\n  priority 90\n  advert_int 0.1\n  nopreempt\n  virtual_ipaddress {\n    %s\n  }\n}\n", name, addresses)
	}
	config := l.file("keepalived.conf", "global_defs {\n  vrrp_version 3\n  router_id b\n}\n"+instance("v4", vrrpVIP4+"/32")+
		instance("v6", "fe80::200:5eff:fe00:233/128\n    "+vrrpVIP6+"/128"))
	pid := filepath.Join(l.dir, "vrrp.pid") // of the child
	out := new(clitest.LockedBuffer)
	cmd := exec.Command("keepalived", "-f", config, "-P", "-n", "-l", "-D", "-p", filepath.Join(l.dir, "keepalived.pid"), "-r", pid)
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(l.t, l.b.Start(cmd))
	clitest.WaitFor(l.t, out, `(?s)\(v4\) Entering BACKUP.*VRRP sockpool.*IPv6`)
	ended, gone := false, make(chan struct{})
	l.ended = gone
	end = func(signal syscall.Signal) {
		if ended {
			return
		}
		ended = true
		if signal == syscall.SIGKILL { // or the parent starts another child
			text, err := os.ReadFile(pid)
			clitest.Must(l.t, err)
			child, err := strconv.Atoi(strings.TrimSpace(string(text)))
			clitest.Must(l.t, err)
			syscall.Kill(child, syscall.SIGSTOP) // or it notices the end of its parent, and ends as if it had been asked to
			cmd.Process.Kill()
			syscall.Kill(child, signal)
		}
		cmd.Process.Signal(signal)
		go func() {
			defer close(gone)
			cmd.Wait()
			os.Remove(pid) // the next one would take a killed child for a running one
		}()
	}
	l.t.Cleanup(func() {
		end(syscall.SIGKILL)
		<-gone
	})
	return end
}

// knows returns the MAC addresses that the client has for the VIPs, without a question.
func (l *vrrpLab) knows() (macs []string) {
	clitest.Must(l.t, l.c.Do(func() error {
		all, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, vip := range []string{vrrpVIP4, vrrpVIP6} {
			i := slices.IndexFunc(all, func(n netlink.Neigh) bool { return n.IP.String() == vip && len(n.HardwareAddr) > 0 })
			if i >= 0 {
				macs = append(macs, all[i].HardwareAddr.String())
			}
		}
		return err
	}))
	return macs
}

// taken waits until the client knows that a machine has both VIPs. It wants that soon after a moment: in 0.1 to 0.4 s on an idle machine.
func (l *vrrpLab) taken(host *netlab.Host, what string, since time.Time) {
	l.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for want := []string{l.mac[host], l.mac[host]}; !slices.Equal(l.knows(), want); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: the client has the VIPs at %v, want %v", what, l.knows(), want)
		}
	}
	took := time.Since(since)
	l.t.Logf("%s: after %s", what, took.Round(time.Millisecond))
	if took > 3*time.Second {
		l.t.Errorf("%s: after %s", what, took)
	}
	l.answers(what)
}

// answers: both VIPs answer, after which the client knows where.
func (l *vrrpLab) answers(when string) {
	l.t.Helper()
	for _, vip := range []string{vrrpVIP4, vrrpVIP6} {
		if out, err := l.c.Exec(l.t.Context(), "ping", "-c", "1", "-i", "0.1", "-w", "20", vip); err != nil {
			l.t.Fatalf("%s: %v\n%s", when, err, out)
		}
	}
}

// router waits until both families of a virtual router are as wanted.
func (l *vrrpLab) router(p *clitest.Process, what string, ok func(*v1.VirtualRouter) bool) {
	l.t.Helper()
	var last []v1.VirtualRouter
	netlabtest.Eventually(l.t, what, func() bool {
		status, err := p.Admin.LBStatus(l.t.Context())
		if err != nil || status.Announce == nil {
			return false
		}
		last = status.Announce.VRRP
		return len(last) == 2 && ok(&last[0]) && ok(&last[1])
	}, func() string { return fmt.Sprintf("%+v", last) })
}

func inState(state string) func(*v1.VirtualRouter) bool {
	return func(r *v1.VirtualRouter) bool { return r.State == state }
}

// isBackup waits until weir is active or backup, and reports whether it is the backup of keepalived.
func (l *vrrpLab) isBackup(weir *clitest.Process) bool {
	l.t.Helper()
	backups := 0
	l.router(weir, "weir is active, or the backup of keepalived", func(r *v1.VirtualRouter) bool {
		if r.State == "backup" && r.Peer != nil && r.Peer.Priority == 90 {
			backups++
			return true
		}
		backups = 0
		return r.State == "active"
	})
	return backups >= 2 // IPv4 and IPv6
}

// again says why a step is done once more: while many other tests run, keepalived may be silent for the 0.4 s after which weir has to be active.
func (l *vrrpLab) again(tries int) {
	l.t.Helper()
	if tries == 5 {
		l.t.Fatal("weir takes the addresses from keepalived each time")
	}
	l.t.Log("weir received nothing from keepalived in time")
}

// holds reports whether a machine has a VIP on its interface.
func (l *vrrpLab) holds(host *netlab.Host) bool {
	has := false
	clitest.Must(l.t, host.Do(func() error {
		all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		for _, a := range all {
			has = has || a.IP.String() == vrrpVIP4 || a.IP.String() == vrrpVIP6
		}
		return err
	}))
	return has
}

const vrrpServices = `announce: {vrrp: [{interface: eth0, vrid: 51, interval: 100ms, hold: %s}]}
services:
- name: s
  mode: %s
  vips: [{address: 10.9.0.100, protocol: udp, port: 5000}, {address: "2001:db8:9::100", protocol: udp, port: 5000}]
  backends: [{name: a, %s}]
`

// Weir and keepalived take over from each other, for both families: after an orderly stop, kill -9 and a lost link.
func TestRootVRRPWithKeepalived(t *testing.T) {
	t.Parallel()
	netlabtest.Tools(t, "keepalived", "ping")
	l := newVRRPLab(t, "vrrp")
	config := fmt.Sprintf(vrrpServices, "address", "nat", `address: 10.9.0.1, address2: "2001:db8:9::1", port: 5001`)
	start := func() *clitest.Process { return l.weir(l.a, config, "--datapath", "udp") }
	weir := start()
	l.router(weir, "active", inState("active"))
	l.answers("at the start")
	end := l.keepalived()
	l.router(weir, "still active", func(r *v1.VirtualRouter) bool { return r.State == "active" && r.Peer == nil && r.Problem == "" })

	since := time.Now()
	weir.Stop()
	l.taken(l.b, "keepalived from weir that was stopped", since)
	if l.holds(l.a) {
		t.Error("the address is on the interface after the end")
	}
	weir = start()
	for tries := 1; !l.isBackup(weir); tries++ {
		l.again(tries)
		weir.Stop()
		l.taken(l.b, "keepalived again", time.Now())
		weir = start()
	}
	since = time.Now()
	end(syscall.SIGTERM)
	l.taken(l.a, "weir from keepalived that was stopped", since)

	end = l.keepalived()
	for tries := 1; ; tries++ {
		since = time.Now()
		clitest.Must(t, l.c.SetUp("pa", false))
		l.taken(l.b, "keepalived from weir without a link", since)
		l.router(weir, "down without a link", func(r *v1.VirtualRouter) bool { return r.State == "down" && strings.Contains(r.Problem, "no carrier") })
		if l.holds(l.a) {
			t.Error("the address is on the interface without a link")
		}
		clitest.Must(t, l.c.SetUp("pa", true))
		if l.isBackup(weir) {
			break
		}
		l.again(tries)
	}
	since = time.Now()
	end(syscall.SIGKILL)
	l.taken(l.a, "weir from keepalived that was killed", since)
	l.router(weir, "the addresses that it left are reported", func(r *v1.VirtualRouter) bool { return r.Claimed > 0 && strings.Contains(r.Problem, l.mac[l.b]) })

	end = l.keepalived() // it removes what it left
	since = time.Now()
	clitest.Must(t, weir.Cmd.Process.Kill())
	l.taken(l.b, "keepalived from weir that was killed", since)
	netlabtest.Eventually(t, "the addresses of a weir that was killed go by themselves", func() bool { return !l.holds(l.a) })
	end(syscall.SIGTERM)
}

// With hold arp the VIPs are on no interface and found all the same. A service that cannot serve gives them up.
func TestRootVRRPAnswersARP(t *testing.T) {
	t.Parallel()
	l := newVRRPLab(t, "vrrparp")
	weir := l.weir(l.a, fmt.Sprintf(vrrpServices, "arp", "mark", "mark: 7"), "--datapath", "nfqueue", "--queue", "3")
	l.router(weir, "active", inState("active"))
	if l.holds(l.a) {
		t.Error("the address is on the interface")
	}
	found := func() bool {
		clitest.Must(t, l.c.Do(func() error {
			for _, vip := range []string{vrrpVIP4, vrrpVIP6} {
				conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(vip), 9)))
				if err != nil {
					return err
				}
				conn.Write([]byte("who has it?"))
				conn.Close()
			}
			return nil
		}))
		return slices.Equal(l.knows(), []string{l.mac[l.a], l.mac[l.a]})
	}
	netlabtest.Eventually(t, "the client finds the VIPs", found)
	l.router(weir, "answers", func(r *v1.VirtualRouter) bool { return r.Answered > 0 })
	_, err := weir.Admin.Down(t.Context(), "s", "a")
	clitest.Must(t, err)
	l.router(weir, "down without a backend", func(r *v1.VirtualRouter) bool {
		return r.State == "down" && strings.Contains(r.Reason, "0 healthy backends") && r.Problem == ""
	})
	_, err = weir.Admin.Up(t.Context(), "s", "a")
	clitest.Must(t, err)
	l.router(weir, "active again", inState("active"))
}

// Two Weirs share the VIPs, with the kernel data path and hold arp: when one dies, its connections go on over the other one, although the
// kernel of the dead one still forwards. The first comes back as a backup.
func TestRootVRRPBetweenWeirs(t *testing.T) {
	clitest.TakesSeconds(t)
	l := newVRRPLab(t, "vrrptwo", netlab.Namespace{Name: "backend", Loopback: netlab.Prefixes(vrrpVIP4+"/32", vrrpVIP6+"/128"), Sysctls: []netlab.Sysctl{
		{Key: "net.ipv4.conf.all.arp_ignore", Value: "1"}, {Key: "net.ipv4.conf.all.arp_announce", Value: "2"},
	}})
	backend := l.all.Namespace("backend")
	answerAs(t, backend, vrrpVIP4+":5000", "backend")
	answerAs(t, backend, "["+vrrpVIP6+"]:5000", "backend")
	const config = "hash_key: 00112233445566778899aabbccddeeff\nmaglev_size: 1009\nlimits: {flows: 1024}\n" +
		"announce: {vrrp: [{interface: eth0, vrid: 52, interval: 100ms, hold: arp}]}\nservices:\n- name: s\n  mode: l2dsr\n  vips:\n" +
		"  - {address: 10.9.0.100, protocol: tcp, port: 5000}\n  - {address: 10.9.0.100, protocol: udp, port: 5000}\n  - {address: \"2001:db8:9::100\", protocol: tcp, port: 5000}\n" +
		"  backends: [{name: a, address: 10.9.0.13, address2: \"2001:db8:9::13\"}]\n"
	in := func(state string) func(*v1.LBStatus) bool {
		return func(s *v1.LBStatus) bool {
			return s.Announce != nil && len(s.Announce.VRRP) == 2 && s.Announce.VRRP[0].State == state && s.Announce.VRRP[1].State == state
		}
	}
	first := newKernelLB(t, l.a, "tcx", "eth0", config)
	first.until("active", in("active"))
	second := newKernelLB(t, l.b, "tcx", "eth0", config)
	second.until("backup", in("backup"))
	var talkers []*talker
	for _, to := range []string{"tcp 10.9.0.100:5000", "udp 10.9.0.100:5000", "tcp [2001:db8:9::100]:5000"} {
		network, address, _ := strings.Cut(to, " ")
		talkers = append(talkers, newTalker(t, l.c, network, address))
	}
	if knows := l.knows(); !slices.Equal(knows, []string{l.mac[l.a], l.mac[l.a]}) {
		t.Errorf("the client has the VIPs at %v", knows)
	}
	killed := time.Now()
	first.cmd.Process.Kill()
	<-first.ended
	netlabtest.Eventually(t, "the client has the VIPs at the other machine", func() bool { return slices.Equal(l.knows(), []string{l.mac[l.b], l.mac[l.b]}) })
	t.Logf("weir from weir that was killed: after %s", time.Since(killed).Round(time.Millisecond))
	for _, k := range talkers {
		if err := k.say(); err != nil {
			t.Error(err)
		}
	}
	first.start()
	first.until("backup", in("backup"))
	second.until("still active", in("active"))
}
