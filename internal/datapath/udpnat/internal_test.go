package udpnat

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// A worker that cannot watch its socket of a new VIP would lose its share of the clients: the snapshot is refused whole.
func TestApplyNeedsEveryWorker(t *testing.T) {
	d, err := Open(Config{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	at := netip.MustParseAddrPort("127.0.0.1:0")
	snapshot := func() *lb.Snapshot {
		spec := lb.Spec{MaglevSize: 251, Services: []lb.ServiceSpec{{
			Name: "s", VIPs: ListenSpec(netip.AddrPortFrom(at.Addr(), 1)),
			Backends: []lb.BackendSpec{BackendSpec("b", netip.MustParseAddrPort("127.0.0.1:9"))},
		}}}
		s, err := lb.Compile(spec, nil, Caps())
		if err != nil {
			t.Fatal(err)
		}
		s.Services[0].VIPs[0].First, s.Services[0].VIPs[0].Last = 0, 0 // the kernel chooses a free port
		return s
	}
	d.workers[1].poller.Close()
	if err := d.Apply(snapshot()); err == nil || !strings.Contains(err.Error(), "watch the socket") {
		t.Fatalf("error %v", err)
	}
	if len(d.groups) != 0 || d.workers[0].listeners[0] != nil || d.view.Load().snapshot.Generation != 0 || len(d.view.Load().listen) != 0 {
		t.Fatal("half of it is in force")
	}
}
