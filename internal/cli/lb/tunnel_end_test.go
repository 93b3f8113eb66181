package lb

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const firstTier = `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
services:
- name: nat
  mode: l3dsr
  vips: [{address: 10.0.0.1, protocol: tcp, port: 80}, {address: 10.0.0.1, protocol: udp, port: 80}]
  backends: [{name: second, address: 10.2.0.2}]
- name: dsr
  mode: l3dsr
  tunnel: gue
  vips: [{address: 10.9.9.9, protocol: tcp, port: 80}, {address: 10.9.9.9, protocol: udp, port: 80}]
  backends: [{name: second, address: 10.2.0.2}]
`

const secondTier = `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
decap: {addresses: [10.2.0.2], from: [10.2.0.1]}
services:
- name: nat
  vips: [{address: 10.0.0.1, protocol: tcp, port: 80}, {address: 10.0.0.1, protocol: udp, port: 80}]
  backends: [{name: a, address: 10.3.0.2, port: 8080}, {name: b, address: 10.4.0.2, port: 8080}]
- name: dsr
  mode: l3dsr
  tunnel: gue
  vips: [{address: 10.9.9.9, protocol: tcp, port: 80}, {address: 10.9.9.9, protocol: udp, port: 80}]
  backends: [{name: a, address: 10.3.0.2}, {name: b, address: 10.4.0.2}]
`

// tiersLab is client - first - second - zone1 and zone2: two balancers one behind the other. Servers answer on addresses of their own and
// on the VIP of mode l3dsr.
func tiersLab(t *testing.T, name string) *netlab.Lab {
	t.Helper()
	open := []netlab.Sysctl{{Key: "net.ipv4.conf.all.rp_filter", Value: "0"}, {Key: "net.ipv4.conf.default.rp_filter", Value: "0"}}
	lab := netlabtest.Up(t, netlab.Topology{
		Name: name,
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: []netlab.Route{netlab.Via("0.0.0.0/0", "10.1.0.1")}},
			{Name: "first", Forward: true, Sysctls: open},
			{Name: "second", Forward: true, Sysctls: open, Routes: []netlab.Route{netlab.Via("0.0.0.0/0", "10.2.0.1")}},
			{Name: "zone1", Loopback: netlab.Prefixes("10.9.9.9/32"), Routes: []netlab.Route{netlab.Via("0.0.0.0/0", "10.3.0.1")}},
			{Name: "zone2", Loopback: netlab.Prefixes("10.9.9.9/32"), Routes: []netlab.Route{netlab.Via("0.0.0.0/0", "10.4.0.1")}},
		},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.1.0.2/24", "first clients 10.1.0.1/24"), netlab.Cable("first eth0 10.2.0.1/24", "second eth0 10.2.0.2/24"),
			netlab.Cable("second veth1 10.3.0.1/24", "zone1 eth0 10.3.0.2/24"), netlab.Cable("second veth2 10.4.0.1/24", "zone2 eth0 10.4.0.2/24"),
		},
	})
	for i, name := range []string{"a", "b"} {
		zone := lab.Namespace(fmt.Sprint("zone", i+1))
		answerAs(t, zone, fmt.Sprintf("10.%d.0.2:8080", 3+i), name)
		answerAs(t, zone, "10.9.9.9:80", name)
		clitest.StartIn(t, zone, "the tunnel's end in zone "+name, "lb", "decap", "--interface", "eth0", "--from", "10.3.0.1,10.4.0.1", "--hook", "tcx")
	}
	return lab
}

// Two balancers one behind the other: what the first one sends through its tunnels is steered by the second one in one step, in mode nat and
// into tunnels of its own, also large segments, after kill -9, and not from where no tunnel may come.
func TestRootTunnelsThroughTwoBalancers(t *testing.T) {
	for _, hook := range []string{"tcx", "xdp"} {
		t.Run(hook, func(t *testing.T) {
			clitest.TakesSeconds(t)
			lab := tiersLab(t, "tiers"+hook)
			newKernelLB(t, lab.Namespace("first"), "tcx", "clients,eth0", firstTier)
			file := secondTier
			if hook == "xdp" { // large segments stay whole on TCX, and cannot change the kind of their tunnel
				file = strings.Replace(file, "tunnel: gue", "tunnel: ipip", 1)
			}
			second := newKernelLB(t, lab.Namespace("second"), hook, "eth0,veth1,veth2", file)
			var talkers []*talker
			served := map[string]int{}
			for i := range 32 {
				k := newTalker(t, lab.Namespace("client"), []string{"tcp", "udp"}[i%2], []string{"10.0.0.1:80", "10.9.9.9:80"}[i/2%2])
				served[k.name]++
				talkers = append(talkers, k)
			}
			if served["a"] == 0 || served["b"] == 0 {
				t.Errorf("served by %v", served)
			}
			for _, k := range talkers {
				if k.udp {
					continue
				}
				line := strings.Repeat("x", 30000) // 20 segments
				for range 10 {
					if _, err := fmt.Fprintln(k.conn, line); err != nil {
						t.Fatal(err)
					}
					if text, err := k.reader.ReadString('\n'); err != nil || strings.TrimSpace(text) != k.name+" "+line {
						t.Fatalf("a long line: %d bytes, %v", len(text), err)
					}
				}
			}
			say := func(when string) {
				t.Helper()
				for i, k := range talkers {
					if err := k.say(); err != nil {
						t.Fatalf("%s: flow %d: %v", when, i, err)
					}
				}
			}
			second.end(syscall.SIGKILL)
			say("no process of the second balancer")
			second.start()
			say("after its restart")
			second.until("tunnels are counted", func(s *v1.LBStatus) bool {
				opened := s.Kernel.EBPFCounters.Decapsulated
				return opened["ipip"].Packets > 100 && opened["gue"].Packets > 100
			})
			if out, code := clitest.Weir(t, "lb", "status", "--admin", "unix:"+second.socket); code != 0 || !strings.Contains(out, "Tunnels that ended here: ") {
				t.Errorf("status: %d: %s", code, out)
			}
			second.write(strings.Replace(file, "from: [10.2.0.1]", "from: [10.2.0.9]", 1))
			clitest.Must(t, second.cmd.Process.Signal(syscall.SIGHUP))
			second.until("the new configuration", func(s *v1.LBStatus) bool { return s.Generation > 1 })
			clitest.Must(t, func() error { _, err := talkers[1].conn.Write([]byte("refused\n")); return err }())
			second.until("a tunnel from elsewhere is refused", func(s *v1.LBStatus) bool { return s.Kernel.EBPFCounters.Other["tunnel_refused"].Packets > 0 })
			second.write(file)
			clitest.Must(t, second.cmd.Process.Signal(syscall.SIGHUP))
			say("allowed again")
		})
	}
}
