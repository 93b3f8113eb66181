package netlab_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestNamedTopologiesAreValidAndNoOthersExist(t *testing.T) {
	for _, line := range netlab.Names() {
		name, about, _ := strings.Cut(line, "\t")
		topology, err := netlab.Named(name)
		if err != nil || topology.Name != name || about == "" {
			t.Errorf("%q: %v", line, err)
		}
		if err := topology.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := netlab.Named("dsx"); err == nil || !strings.Contains(err.Error(), "dsr, nat, cluster, chain, nfqueue, nfqueue-dsr") {
		t.Errorf("an unknown name: %v", err)
	}
}

// Every far end of every named topology answers, over both families, before any balancer runs.
func TestRootNamedTopologiesCarryTraffic(t *testing.T) {
	pairs := map[string][][3]string{ // client, server, server's address
		"dsr":         {{"zone0", "zone1", "10.2.0.2"}, {"zone0", "zone1", "2001:db8::2:2"}},
		"nat":         {{"zone0", "zone1", "10.2.0.2"}, {"zone0", "zone2", "2001:db8::3:2"}},
		"cluster":     {{"client1", "backend1", "10.2.0.101"}, {"client4", "backend8", "2001:db8::2:6c"}, {"client2", "lb2", "10.2.0.12"}},
		"nfqueue":     {{"client", "server", "10.62.0.104"}, {"client", "server", "fd62::2"}},
		"nfqueue-dsr": {{"client", "server", "10.62.0.2"}, {"client", "server", "fd62::101"}},
		"chain":       {{"client", "backend", "10.4.0.2"}, {"client", "backend", "2001:db8:4::2"}},
	}
	for _, line := range netlab.Names() {
		name, _, _ := strings.Cut(line, "\t")
		t.Run(name, func(t *testing.T) {
			topology, err := netlab.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			lab := netlabtest.Up(t, topology)
			if len(pairs[name]) == 0 {
				t.Fatal("no pair of hosts to try")
			}
			for _, pair := range pairs[name] {
				echo(t, lab.Namespace(pair[0]), lab.Namespace(pair[1]), pair[2])
			}
		})
	}
}

// The kernel spreads flows toward the VIP over both balancers of the cluster.
func TestRootClusterSpreadsOverBalancers(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Cluster())
	seen := map[string]bool{}
	for port := range 64 {
		out, err := lab.Namespace("router").Exec(t.Context(), "ip", "route", "get", "10.0.0.1", "from", "10.1.1.2", "iif", "to-client1",
			"ipproto", "udp", "sport", fmt.Sprint(1000+port), "dport", "7")
		if err != nil {
			t.Fatal(err)
		}
		for _, gateway := range []string{"10.2.0.11", "10.2.0.12"} {
			seen[gateway] = seen[gateway] || strings.Contains(out, "via "+gateway)
		}
	}
	if !seen["10.2.0.11"] || !seen["10.2.0.12"] {
		t.Errorf("balancers used: %v", seen)
	}
}
