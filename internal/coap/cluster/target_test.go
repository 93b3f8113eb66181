package cluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/membership"
)

// away is a cluster whose nodes are on several hosts; this one has the addresses 192.0.2.1 and 2001:db8::1.
func away(t *testing.T) *Cluster {
	t.Helper()
	c := open(t, 1, func(cfg *Config) {
		cfg.Nodes = []Node{
			{ID: 1, DTLS: ":15784", Management: "192.0.2.1:15884"},
			{ID: 2, DTLS: Foreign, Management: "192.0.2.2:15884"},
		}
	})
	c.targets.list = func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	}
	c.targets.own.Store(nil)
	c.targets.refresh(0)
	return c
}

// frames hands c one frame of each direction that names a client, from node 2, and returns which were taken.
func frames(c *Cluster, client string) (in, out bool) {
	var w worker
	var from netip.AddrPort
	for address := range c.view.Load().byAddr {
		from = address
	}
	for _, kind := range []byte{TypeIn, TypeOut} {
		c.frame(&w, &c.counters[0], append(AppendHeader(nil, kind, netip.MustParseAddrPort(client)), record...), from, 0)
	}
	return len(w.injected) == 1, len(w.raw) == 1
}

// A frame, which anybody can forge who can forge a node's address, has nothing sent to loopback, to this host, to metadata
// services or to everybody; each one refused is counted.
func TestRefusedTargets(t *testing.T) {
	c := away(t)
	refused := uint64(0)
	for client, want := range map[string]struct{ in, out bool }{
		"192.0.2.9:0": {}, "0.0.0.0:5": {}, "224.0.0.1:5": {}, "255.255.255.255:5": {}, "[::]:5": {}, "[ff02::1]:5": {},
		"127.0.0.1:53": {}, "127.9.9.9:53": {}, "[::1]:53": {}, "[::ffff:127.0.0.1]:53": {},
		"[64:ff9b::7f00:1]:53": {}, "[2002:7f00:1::1]:53": {}, "[::7f00:1]:53": {},
		"169.254.169.254:80": {}, "[fd00:ec2::254]:80": {}, "[fe80::1]:5": {}, "[64:ff9b::a9fe:a9fe]:80": {}, "[2002:a9fe:a9fe::1]:80": {},
		// Clients behind a balancer on this host have its address. Nothing goes there that was not requested here.
		"192.0.2.1:40000": {in: true}, "[2001:db8::1]:40000": {in: true}, "[::ffff:192.0.2.1]:40000": {in: true},
		"192.0.2.1:15784": {}, "192.0.2.1:15884": {}, "[2001:db8::1]:15784": {},
		"192.0.2.9:40000": {true, true}, "[2001:db8::9]:40000": {true, true}, "10.0.0.1:15784": {true, true}, "[fd00::1]:7": {true, true},
		"[64:ff9b::c000:209]:5": {true, true}, "192.0.2.2:15784": {true, true},
	} {
		in, out := frames(c, client)
		if in != want.in || out != want.out {
			t.Errorf("%s: in %t, out %t, want %+v", client, in, out, want)
		}
		for _, taken := range []bool{want.in, want.out} {
			if !taken {
				refused++
			}
		}
	}
	if s := c.Stats(); s.RefusedTargets != refused || s.DroppedForward != 0 || s.DroppedBackward != 0 {
		t.Errorf("%d refused, counted %+v", refused, s)
	}
}

// A client behind a balancer on this host gets the answers to what was forwarded for it, and no other port does.
func TestClientsOnThisHost(t *testing.T) {
	c := away(t)
	var w worker
	if !c.foreign(&w, &c.counters[0], 2, record, netip.MustParseAddrPort("192.0.2.1:40000")) {
		t.Fatal("not forwarded")
	}
	if _, out := frames(c, "192.0.2.1:40000"); !out {
		t.Error("the answer is refused")
	}
	if _, out := frames(c, "192.0.2.1:40001"); out {
		t.Error("bytes for another port of this host are sent")
	}
}

// In a cluster on loopback, as in a test or a demo, the clients are there, too; its own sockets are no clients.
func TestLoopbackCluster(t *testing.T) {
	c := open(t, 1, nil)
	for client, want := range map[string]bool{
		"127.0.0.1:40000": true, "127.0.0.1:15784": false, "127.0.0.1:15884": false, "169.254.169.254:80": false, "192.0.2.9:5": true,
	} {
		if in, out := frames(c, client); in != want || out != want {
			t.Errorf("%s: in %t, out %t", client, in, out)
		}
	}
}

// Addresses that the host gets later are its own, too.
func TestOwnAddressesAreReadAgain(t *testing.T) {
	c := away(t)
	c.targets.list = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.77")} }
	var w worker
	for _, step := range []struct {
		at   time.Duration
		want bool
	}{{time.Second, true}, {ownEvery - 1, true}, {ownEvery + membership.TickEvery, false}} {
		c.tick(&w, &c.counters[0], step.at)
		if _, out := frames(c, "192.0.2.77:5000"); out != step.want {
			t.Errorf("after %v: sent %t", step.at, out)
		}
	}
}
