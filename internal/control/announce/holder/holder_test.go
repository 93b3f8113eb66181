package holder

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func TestRoutersTakePartWhileTheyCanServe(t *testing.T) {
	up := announce.Route{Prefix: netip.MustParsePrefix("192.0.2.10/32"), State: announce.Announced}
	down := announce.Route{Prefix: netip.MustParsePrefix("2001:db8::10/128"), State: announce.Withdrawn, Reason: "service b has 0 healthy backends"}
	leaving := announce.Route{Prefix: up.Prefix, State: announce.Retiring, Reason: "this balancer withdraws soon"}
	other := announce.Route{Prefix: netip.MustParsePrefix("198.51.100.1/32"), State: announce.Announced}
	settings := &lb.VRRP{Interface: "eth0", ID: 1, Addresses: []netip.Addr{
		up.Prefix.Addr(), netip.MustParseAddr("fe80::1"), down.Prefix.Addr(),
	}}
	for _, c := range []struct {
		name   string
		routes []announce.Route
		all    bool
		idle   string
	}{
		{"all serve", []announce.Route{up}, true, ""},
		{"one of two", []announce.Route{up, down}, false, ""},
		{"all are required", []announce.Route{up, down}, true, down.Reason},
		{"none", []announce.Route{down, other}, false, down.Reason},
		{"the end", []announce.Route{leaving}, false, leaving.Reason},
		{"no route", nil, false, "no service has these addresses"},
	} {
		want := map[key]*wanted{}
		addWanted(want, settings, c.routes, c.all)
		four, six := want[key{device: "eth0", id: 1}], want[key{device: "eth0", id: 1, is6: true}]
		if len(want) != 2 || four == nil || six == nil || len(four.addresses) != 1 || len(six.addresses) != 2 {
			t.Fatalf("%s: routers %+v", c.name, want)
		}
		if four.idle != c.idle || six.idle != c.idle {
			t.Errorf("%s: idle because of %q and %q, want %q", c.name, four.idle, six.idle, c.idle)
		}
	}
}

// A takeover is announced at once, after 5 s and each minute; others can cause one a second.
func TestPlanOfAnnouncements(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p plan
	p.begin(now)
	for _, c := range []struct {
		after time.Duration
		count int
	}{{secondBurst, burst}, {repeatEvery, 1}, {repeatEvery, 1}} {
		if got := p.announce.Sub(now); got != c.after {
			t.Fatalf("the next one after %s, want %s", got, c.after)
		}
		now = p.announce
		if n := p.next(now); n != c.count {
			t.Errorf("%d at once, want %d", n, c.count)
		}
	}
	p.announced = now
	p.hasten(now.Add(time.Millisecond))
	if got := p.announce.Sub(now); got != repeatLimit || !p.second {
		t.Errorf("after %s", got)
	}
	p.hasten(now.Add(2 * time.Second))
	if got := p.announce.Sub(now); got != repeatLimit {
		t.Errorf("hastened into the future: after %s", got)
	}
}
