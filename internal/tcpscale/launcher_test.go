package tcpscale

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A server and a client in a namespace each: addresses, ports and the ceiling found are of those namespaces, not of ours.
func TestRootGroupsInNamespaces(t *testing.T) {
	t.Parallel()
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "groups",
		Namespaces: []netlab.Namespace{
			{Name: "client", Sysctls: []netlab.Sysctl{{Key: "net.ipv4.ip_local_port_range", Value: "40001 40100"}}},
			{Name: "server"},
		},
		Links: []netlab.Link{netlab.Cable("client c 10.9.0.2/24", "server s 10.9.0.1/24")},
	})
	there, afar := Launcher{Command: workerCommand, Do: lab.Namespace("server").Do}, Launcher{Command: workerCommand, Do: lab.Namespace("client").Do}
	server, err := StartServer(there, ServerConfig{Listen: []netip.AddrPort{netip.MustParseAddrPort("10.9.0.1:0")}, ID: "there", Backlog: 1024}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	config := clientDefaults
	config.Targets, config.Connections = server.Listen, 150
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	run := ClientRun{Launcher: afar, Config: config, Workers: 2, Plateau: time.Second, Server: server.Report, Tick: func(r Report) {
		if r.Plateau != nil {
			cancel()
		}
	}}
	r, err := run.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Plateau; p == nil || p.Connections != 100 || p.At != 100 || !strings.Contains(p.Ceiling, "source ports: 100") || !r.Reconciled.Agree {
		t.Errorf("plateau %+v, ends %+v, failures %v", p, r.Reconciled, r.Failures)
	}
	if len(r.Peers) != 1 || r.Peers[0].ID != "there" {
		t.Errorf("peers %+v", r.Peers)
	}
}
