package doctor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// hops is client, balancer and server in a row, the last link too narrow for a full packet.
func hops(t *testing.T) *netlab.Lab {
	t.Helper()
	narrow := netlab.Cable("lb eth1 10.62.0.1/24", "server eth0 10.62.0.2/24")
	narrow.MTU = 1400
	return netlabtest.Up(t, netlab.Topology{
		Name: "nshops",
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: netlab.Default("10.61.0.1")},
			{Name: "lb", Forward: true},
			{Name: "server", Loopback: netlab.Prefixes("10.96.0.1/32"), Routes: netlab.Default("10.62.0.1")},
		},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.61.0.2/24", "lb eth0 10.61.0.1/24"),
			narrow,
		},
	})
}

// Why fwmark_reflect fails: with routing by mark, what the balancer has to say about the MTU goes to the backend.
func TestRootReflectedMarksLoseMTUErrors(t *testing.T) {
	netlabtest.Tools(t, "iptables", "ip", "ping")
	lab := hops(t)
	run := func(host, line string) string {
		out, _ := lab.Namespace(host).Exec(t.Context(), "sh", "-c", line) // ping fails by design; what it says counts
		return out
	}
	run("lb", "iptables -t mangle -A PREROUTING -d 10.96.0.1 -j MARK --set-mark 101; ip rule add fwmark 101 lookup 101; ip route add default via 10.62.0.2 table 101")
	if out := run("client", "ping -c 3 -i 0.1 -W 5 10.96.0.1"); !strings.Contains(out, " 0% packet loss") {
		t.Fatalf("no way through: %s", out)
	}
	for value, want := range map[int]bool{0: true, 1: false} {
		run("lb", fmt.Sprintf("sysctl -w net.ipv4.fwmark_reflect=%d", value))
		run("client", "ip route flush cache")
		out := run("client", "ping -M do -s 1450 -c 5 -i 0.3 -W 2 10.96.0.1")
		if got := strings.Contains(out, "Frag needed") || strings.Contains(out, "message too long"); got != want {
			t.Errorf("fwmark_reflect=%d: the client learns the MTU: %v\n%s", value, got, out)
		}
	}
}

// Why conntrack is a finding and GRO is none: what a rule in the place of the queue's counts of 5 pings of 3 fragments.
func TestRootTrackingReassemblesAndGRODoesNot(t *testing.T) {
	netlabtest.Tools(t, "iptables", "ip", "ping", "ethtool")
	lab := hops(t)
	run := func(host, line string) string {
		t.Helper()
		out, err := lab.Namespace(host).Exec(t.Context(), "sh", "-ec", line)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("lb", "ip route add 10.96.0.1 via 10.62.0.2; iptables -t mangle -A PREROUTING -d 10.96.0.1")
	for _, c := range []struct {
		name, prepare, undo string
		want                string
	}{
		{"GRO off", "ethtool -K eth0 gro off", "true", "15"},
		{"GRO on", "ethtool -K eth0 gro on", "true", "15"},
		{"a rule that tracks", "iptables -A FORWARD -m conntrack --ctstate INVALID", "iptables -F FORWARD", "5"},
		{"that rule gone", "true", "true", "15"},
	} {
		run("lb", c.prepare+"; iptables -t mangle -Z")
		if out := run("client", "ping -c 5 -i 0.05 -W 10 -s 4000 10.96.0.1"); !strings.Contains(out, " 0% packet loss") {
			t.Fatalf("%s: %s", c.name, out)
		}
		rows := strings.Split(strings.TrimSpace(run("lb", "iptables -t mangle -L PREROUTING -v -x -n")), "\n")
		if got := strings.Fields(rows[len(rows)-1])[0]; got != c.want {
			t.Errorf("%s: %s packets, want %s", c.name, got, c.want)
		}
		run("lb", c.undo)
	}
}

// Replies of a DSR backend that pass the machine which owns the VIP: what the kernel forwards, and what the check says of it.
func TestRootRepliesFromTheVIPNeedAcceptLocal(t *testing.T) {
	netlabtest.Tools(t, "iptables", "ip", "ping")
	lab := hops(t)
	balancer := lab.Namespace("lb")
	run := func(host, line string) string {
		out, _ := lab.Namespace(host).Exec(t.Context(), "sh", "-c", line) // ping gets no answer: the client's goes to the balancer
		return out
	}
	run("lb", "ip address add 10.96.0.1/32 dev eth0; iptables -A FORWARD -s 10.96.0.1")
	run("lb", "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth1.rp_filter=0")
	run("server", "sysctl -w net.ipv4.conf.all.arp_announce=2") // as on every DSR backend: ARP does not ask with the VIP
	mode := lb.L2DSR
	snapshot, err := lb.Compile(lb.Spec{Services: []lb.ServiceSpec{{
		Name: "web", Mode: &mode,
		VIPs:     []lb.VIPSpec{{Address: lb.AddressPrefix{Prefix: netip.MustParsePrefix("10.96.0.1/32")}, Protocol: lb.Protocol(lb.TCP), Port: lb.PortRange{First: 80, Last: 80}}},
		Backends: []lb.BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.62.0.2")}},
	}}}, nil, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	forwarded := func() string {
		run("lb", "iptables -Z")
		run("server", "ping -c 3 -i 0.05 -W 1 -I 10.96.0.1 10.61.0.2")
		rows := strings.Split(strings.TrimSpace(run("lb", "iptables -L FORWARD -v -x -n")), "\n")
		return strings.Fields(rows[len(rows)-1])[0]
	}
	for _, c := range []struct{ prepare, forwarded, remedy string }{
		{"true", "0", "sysctl -w net/ipv4/conf/eth1/accept_local=1"},
		{"sysctl -w net/ipv4/conf/eth1/accept_local=1", "3", ""},
		{"sysctl -w net/ipv4/conf/eth1/rp_filter=1", "0", "sysctl -w net/ipv4/conf/eth1/rp_filter=2"},
		{"sysctl -w net/ipv4/conf/eth1/rp_filter=2", "3", ""},
	} {
		run("lb", c.prepare)
		if got := forwarded(); got != c.forwarded {
			t.Errorf("after %s: the kernel forwards %s of 3 replies, want %s", c.prepare, got, c.forwarded)
		}
		var findings []finding.Finding
		if err := balancer.Do(func() (err error) {
			findings, err = OwnSource(snapshot)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.remedy == "" && len(findings) > 0:
			t.Errorf("after %s: %+v", c.prepare, findings)
		case c.remedy != "" && (len(findings) != 1 || findings[0].Remedy != c.remedy || !strings.Contains(findings[0].What, "10.96.0.1 of service web")):
			t.Errorf("after %s: %+v, want %s", c.prepare, findings, c.remedy)
		}
	}
}
