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

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// The source address of translated flows moves with the VIP.
const vrrpSyncFile = `hash_key: %[4]s
maglev_size: 1009
limits: {flows: 1024}
announce:
  vrrp: [{interface: eth0, vrid: 53, priority: %[5]d, interval: 100ms, preempt: true, hold: arp, addresses: [10.9.0.100, 10.9.0.101]}]
sync:
  listen: 10.9.0.%[1]d:8477
  peers: [10.9.0.%[2]d:8477]
  key_file: %[3]s
  hold_off: 60s
services:
- name: s
  vips: [{address: 10.9.0.100, protocol: tcp, port: 5000}, {address: 10.9.0.100, protocol: udp, port: 5000}]
  snat: {addresses: [10.9.0.101], ports: 20000-20999}
  backends:
  - {name: backend1, address: 10.9.0.13, port: 5000}
  - {name: backend2, address: 10.9.0.14, port: 5000}
`

// Translated flows go on when VRRP gives the addresses to the other balancer, and when the first one comes back with empty tables and the higher
// priority: it takes the addresses back only once it has the state of the flows.
func TestRootVRRPWithSync(t *testing.T) {
	clitest.TakesSeconds(t)
	l := newVRRPLab(t, "vrrpsync", netlab.Namespace{Name: "backend1"}, netlab.Namespace{Name: "backend2"})
	for i := 1; i <= 2; i++ {
		name := fmt.Sprintf("backend%d", i)
		answerAs(t, l.all.Namespace(name), fmt.Sprintf("10.9.0.1%d:5000", 2+i), name)
	}
	for _, host := range []*netlab.Host{l.a, l.b} { // the kernel forwards the replies to the client, over the interface on which they come
		for _, set := range []string{"ip_forward=1", "conf.all.send_redirects=0", "conf.eth0.send_redirects=0"} {
			if out, err := host.Exec(t.Context(), "sysctl", "-qw", "net.ipv4."+set); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	key := filepath.Join(t.TempDir(), "key")
	clitest.Must(t, os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600))
	// By the hash of b, flows would get other backends and source ports.
	a := newKernelLB(t, l.a, "tcx", "eth0", fmt.Sprintf(vrrpSyncFile, 11, 12, key, "00112233445566778899aabbccddeeff", 200))
	b := newKernelLB(t, l.b, "tcx", "eth0", fmt.Sprintf(vrrpSyncFile, 12, 11, key, "ff112233445566778899aabbccddeeff", 100))
	is := func(state string) func(*v1.LBStatus) bool {
		return func(s *v1.LBStatus) bool {
			return s.Announce != nil && len(s.Announce.VRRP) == 1 && s.Announce.VRRP[0].State == state && s.Sync.Complete
		}
	}
	a.until("active", is("active"))
	b.until("backup", is("backup"))
	var talkers []*talker
	for i := range 32 {
		talkers = append(talkers, newTalker(t, l.c, []string{"tcp", "udp"}[i%2], vrrpVIP4+":5000"))
	}
	b.until("all flows at the backup", func(s *v1.LBStatus) bool { return s.Sync.Given == len(talkers) })
	say := func(what string) {
		t.Helper()
		for _, k := range talkers {
			if err := k.say(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}

	clitest.Must(t, l.c.SetUp("pa", false))
	a.end(syscall.SIGKILL)
	if _, err := pins.Stop(context.Background(), a.pins, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	b.until("active", func(s *v1.LBStatus) bool { return s.Announce.VRRP[0].State == "active" })
	say("the first balancer is off")

	link := func(change string) { // between the two, for the state of flows alone
		t.Helper()
		for _, chain := range []string{"INPUT", "OUTPUT"} {
			if out, err := l.b.Exec(t.Context(), "iptables", change, chain, "-p", "tcp", "--dport", "8477", "-j", "DROP"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	link("-I")
	clitest.Must(t, l.c.SetUp("pa", true))
	a.start()
	a.until("it waits for the state of its peer", func(s *v1.LBStatus) bool {
		return s.Announce != nil && len(s.Announce.VRRP) == 1 && s.Announce.VRRP[0].State == "down" && s.Announce.VRRP[0].Reason == s.Sync.Reason && s.Sync.Reason != ""
	})
	b.until("still active", is("active"))
	link("-D")
	status := a.until("active again", is("active"))
	if in := peerOf(status).In; in.Received < uint64(len(talkers)) || len(in.Refused) > 0 {
		t.Errorf("it is active with the state of %d of %d flows: %+v", in.Received, len(talkers), in)
	}
	b.until("backup again", is("backup"))
	say("the first balancer is back")
	if n := a.until("status", func(*v1.LBStatus) bool { return true }).Kernel.Flows["s"]; n["backend1"]+n["backend2"] != len(talkers) {
		t.Errorf("flows: %v, want %d", n, len(talkers))
	}
}
