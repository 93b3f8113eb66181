package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/lab/netlab"
	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
)

// Why fwmark_reflect fails: with routing by mark, what the balancer has to say about the MTU goes to the backend.
func TestRootReflectedMarksLoseMTUErrors(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip", "ping")
	end := func(ns, name string, addresses ...string) netlab.End {
		return netlab.End{Namespace: ns, Name: name, Addresses: netlab.Prefixes(addresses...)}
	}
	gateway := func(via string) []netlab.Route {
		return []netlab.Route{{To: netlab.Prefixes("0.0.0.0/0")[0], Via: netlab.Prefixes(via + "/32")[0].Addr()}}
	}
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "nsreflect",
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: gateway("10.61.0.1")},
			{Name: "lb", Forward: true},
			{Name: "server", Loopback: netlab.Prefixes("10.96.0.1/32"), Routes: gateway("10.62.0.1")},
		},
		Links: []netlab.Link{
			{A: end("client", "eth0", "10.61.0.2/24"), B: end("lb", "eth0", "10.61.0.1/24")},
			{A: end("lb", "eth1", "10.62.0.1/24"), B: end("server", "eth0", "10.62.0.2/24"), MTU: 1400},
		},
	})
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
			t.Errorf("fwmark_reflect=%d: the client hears of the MTU: %v\n%s", value, got, out)
		}
	}
}
