package gateway_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// The process ends while the route of a call is gone; the call goes on when the next process has the route again.
func TestRestartWhileSuspended(t *testing.T) {
	port, store := netlabtest.UDPPort(t), newShelf(t)
	with := config("127.0.0.1", port)
	without := config("127.0.0.1", port)
	without.Clusters[0].Endpoints = []string{"10.0.0.1"}
	g, stop := run(t, with, gateway.Options{Workers: 1, Store: store})
	peer := listenUDP(t, peerAddress)
	c := dial(t, at(port))
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	apply(t, g, without)
	stop()
	store.next()
	g, _ = run(t, without, gateway.Options{Workers: 1, Store: store})
	c.send(0x4001, "lost")
	sendTo(t, peer, c.relays[0], "lost")
	netlabtest.Eventually(t, "both directions are dropped", func() bool { return g.Stats().Reasons["suspended"] == 2 })
	if s := g.Stats().Totals; s.Suspended != 2 || s.Permissions != 0 || s.Channels != 0 || s.Allocations != 1 {
		t.Errorf("%+v", s)
	}
	if code := codeOf(c.request(stun.MethodCreatePermission, peerAttr(addrOf(peer)))); code != 403 {
		t.Errorf("the refresh of a suspended permission: %d, want 403", code)
	}
	c.must(stun.MethodRefresh, lifetime(600))
	wantChange(t, apply(t, g, with), v1.TurnChange{Resumed: 2})
	c.send(0x4001, "up")
	from := wantFrom(t, peer, "up")
	sendTo(t, peer, from, "down")
	c.wantChannelData(0x4001, "down")
}

// An answer of a name server that lacks an address for a moment ends no call.
func TestNameThatIsIncompleteForAMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	port := netlabtest.UDPPort(t)
	cfg := config("127.0.0.1", port)
	cfg.Clusters[0].Endpoints, cfg.Clusters[0].Refresh = []string{"media.example"}, time.Second
	var addresses atomic.Pointer[[]netip.Addr]
	set := func(list ...string) {
		var all []netip.Addr
		for _, a := range list {
			all = append(all, netip.MustParseAddr(a))
		}
		addresses.Store(&all)
	}
	set("198.18.0.1", "198.18.0.2")
	g := start(t, cfg, gateway.Options{Workers: 1, Routes: routes.Options{
		Own:    func() ([]netip.Addr, error) { return nil, nil },
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return *addresses.Load(), nil },
	}})
	c := dial(t, at(port))
	c.allocate()
	c.bind(0x4001, netip.MustParseAddrPort("198.18.0.1:5000"))
	c.bind(0x4002, netip.MustParseAddrPort("198.18.0.2:5000"))
	set("198.18.0.1")
	netlabtest.Eventually(t, "one peer is suspended", func() bool { s := g.Stats().Totals; return s.Suspended == 2 && s.Channels == 1 })
	set("198.18.0.1", "198.18.0.2")
	netlabtest.Eventually(t, "it resumes", func() bool { s := g.Stats().Totals; return s.Suspended == 0 && s.Channels == 2 && s.Permissions == 2 })
}
