package gateway_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// Behind a 1:1 NAT clients receive the public relay address; sockets and peers go by the bound one, records have both
// whatever is configured later, and the public one is no peer.
func TestClientsReceiveThePublicRelayAddress(t *testing.T) {
	port := netlabtest.UDPPort(t)
	bound, public := netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("198.51.100.7")
	to := config("127.0.0.1", port)
	to.Listeners[0].Relay, to.Listeners[0].RelayPublic = []netip.Addr{bound}, []netip.Addr{public}
	to.Clusters[0].Endpoints = append(to.Clusters[0].Endpoints, "0.0.0.0/0")
	store := newShelf(t)
	g := start(t, to, gateway.Options{Workers: 2, Store: store})
	peer := listenUDP(t, peerAddress)
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	c.allocate()
	if len(c.relays) != 1 || c.relays[0].Addr() != public {
		t.Fatalf("the client received %v, want %v", c.relays, public)
	}
	relay := netip.AddrPortFrom(bound, c.relays[0].Port())
	c.bind(0x4001, addrOf(peer))
	c.send(0x4001, "up")
	if from := wantFrom(t, peer, "up"); from != relay {
		t.Errorf("the peer was sent to from %v, want %v", from, relay)
	}
	sendTo(t, peer, relay, "down")
	c.wantChannelData(0x4001, "down")
	if code := codeOf(c.request(stun.MethodCreatePermission, peerAttr(c.relays[0]))); code != 403 {
		t.Errorf("the public address as a peer: %d, want 403", code)
	}

	to.Listeners[0].RelayPublic = nil
	if _, err := g.Apply(to); err != nil {
		t.Fatal(err)
	}
	records, err := g.Export(context.Background())
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if r := records[0]; len(r.Relay) != 1 || r.Relay[0] != relay || len(r.RelayPublic) != 1 || r.RelayPublic[0] != public {
		t.Errorf("record %+v", r)
	}
	for u := range g.Users {
		if len(u.Relay) != 1 || u.Relay[0] != relay || len(u.RelayPublic) != 1 || u.RelayPublic[0] != c.relays[0] {
			t.Errorf("users %+v", u)
		}
	}
}

func TestPublicRelayAddressesAreChecked(t *testing.T) {
	addr := netip.MustParseAddr
	for _, test := range []struct {
		name          string
		relay, public []netip.Addr
		want          string // of the error; "" is good
	}{
		{"one", []netip.Addr{addr("10.0.0.1")}, []netip.Addr{addr("198.51.100.7")}, ""},
		{"without relay", nil, []netip.Addr{addr("198.51.100.7")}, ""},
		{"both", []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, []netip.Addr{addr("2001:db8::7"), addr("198.51.100.7")}, ""},
		{"twice", nil, []netip.Addr{addr("198.51.100.7"), addr("198.51.100.8")}, "relay_public[1]: a second address"},
		{"no such relay", []netip.Addr{addr("10.0.0.1")}, []netip.Addr{addr("2001:db8::7")}, "relay_public: an IPv6 address, but relay has none"},
		{"wildcard", nil, []netip.Addr{addr("0.0.0.0")}, "relay_public[0]: 0.0.0.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config("127.0.0.1", 3478)
			c.Listeners[0].Relay, c.Listeners[0].RelayPublic = test.relay, test.public
			err := c.Validate()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
