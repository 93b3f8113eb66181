package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/web"
)

// statusServer serves the page of a part with a status that is not easy to bring about.
func statusServer(t *testing.T, part string, status any) (url string) {
	t.Helper()
	text, err := json.Marshal(status)
	clitest.Must(t, err)
	mux := http.NewServeMux()
	say := func(path, text string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Weir-Part", part)
			_, _ = w.Write([]byte(text))
		})
	}
	say("/metrics", "")
	say("/readyz", "ready")
	say("/routes", `[{"pattern": "GET /status"}]`)
	say("/status", string(text))
	mux.Handle("GET /", web.Handler())
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// shows waits for a text in a section, or in the findings.
func shows(b *clitest.Page, id string, texts ...string) {
	for _, text := range texts {
		b.Await(fmt.Sprintf(`document.getElementById(%q)?.hidden === false && document.getElementById(%[1]q).textContent.includes(%q)`, id, text))
	}
}

// narrow looks at the page at both widths, in both schemes.
func narrow(t *testing.T, b *clitest.Page, name string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{420, 1300} {
			b.Look(width, scheme)
			b.Shot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			var wide int
			if b.Evaluate("document.scrollingElement.scrollWidth", &wide); wide > width {
				t.Errorf("at %d px the page is %d px wide", width, wide)
			}
		}
		if pale := b.PaleTexts(); len(pale) > 0 {
			t.Errorf("%s: contrast below 4.5: %q", scheme, pale)
		}
	}
	b.Look(1300, "light")
}

// The page names what fails of announcements.
func announcementsPage(t *testing.T, b *clitest.Page) {
	defer b.Open("about:blank") // or it asks a server that has ended
	since := time.Now().Add(-time.Hour)
	b.Open(statusServer(t, "lb", v1.LBStatus{BalancerStatus: v1.BalancerStatus{Generation: 1, AppliedAt: since, Datapath: "ebpf", Services: []v1.ServiceStatus{}, Announce: &v1.AnnounceStatus{
		State: "serving", Error: "netlink: no such device",
		Prefixes: []v1.AnnouncePrefix{
			{Prefix: "192.0.2.1/32", State: "announced", Services: []string{"web", "dns"}},
			{Prefix: "192.0.2.2/32", State: "withdrawn", Reason: "0 healthy backends, 1 are needed", Services: []string{"mail"}},
		},
		BGP: &v1.BGPStatus{AS: 64512, RouterID: "192.0.2.11", Filtered: []string{"2001:db8::1/128"}, Neighbours: []v1.BGPNeighbour{
			{Address: "192.0.2.253", AS: 64513, State: "established", Since: since, Advertised: 1, BFD: "up"},
			{Address: "192.0.2.254", AS: 4200000001, State: "active", Since: since, Problem: "no session for 1h0m0s: compare the password", Losses: 3, BFD: "down"},
		}},
		VRRP: []v1.VirtualRouter{
			{
				Interface: "eth0", ID: 5, Family: "ipv4", State: "active", Since: since, Priority: 200, Addresses: []string{"198.51.100.1"}, Entered: map[string]uint64{"active": 17},
				Problem: "198.51.100.9 is active, too", Peer: &v1.VirtualRouterPeer{Address: "198.51.100.9", Priority: 100},
			},
			{Interface: "eth1", ID: 6, Family: "ipv6", State: "down", Since: since, Priority: 100, Reason: "the interface is gone", Addresses: []string{"2001:db8::5"}},
		},
	}}}))
	shows(b, "prefixes", "192.0.2.1/32announcedweb, dns", "192.0.2.2/32withdrawnmail0 healthy backends, 1 are needed")
	shows(b, "neighbours", "192.0.2.25364513established60 minup100", "192.0.2.2544200000001active60 mindown003no session for 1h0m0s")
	shows(b, "routers", "eth05ipv4active60 min200198.51.100.1198.51.100.9, priority 10017", "eth16ipv6down60 min1002001:db8::5none0the interface is gone")
	shows(b, "findings", "it is tried again: netlink: no such device", "BGP neighbour 192.0.2.254: no session", "drops prefixes that should be announced: 2001:db8::1/128",
		"Virtual router 5 on eth0 (ipv4) is active: 198.51.100.9 is active, too", "Virtual router 6 on eth1 (ipv6) is down: the interface is gone", "Prefix 192.0.2.2/32 is withdrawn: 0 healthy backends")
	narrow(t, b, "announcements")
}

// The page names what fails of a cluster: shards at a node that is down, failed transfers, a store that does not answer.
func shardsPage(t *testing.T, b *clitest.Page) {
	defer b.Open("about:blank") // or it asks a server that has ended
	one, two, buddy := uint32(1), uint32(2), uint8(3)
	address := netip.MustParseAddrPort("192.0.2.1:5784")
	b.Open(statusServer(t, "coap", v1.CoAPStatus{Listeners: []v1.CoAPListener{{
		URI: "coaps://192.0.2.1:5684", NodeID: &one, Management: address,
		Nodes:  []v1.CoAPNode{{ID: &one, Management: address.String(), State: "self"}, {ID: &two, Management: "192.0.2.2:5784", State: "down"}},
		Moves:  &v1.CoAPMoves{Draining: true, Cause: "node 2 does not answer", Sessions: 700, Transit: 4, Out: 30, In: 20, Lost: 1, Owners: []v1.CoAPOwner{{Shard: 7, Owner: 2, Version: 9}, {Shard: 8, Owner: 1, Version: 3}}},
		Copies: &v1.CoAPReplication{Process: "1/1", Buddy: &buddy, Sessions: 700, Behind: 6, Copies: 500, TakenOver: 40, Store: "etcd", StoreError: "connection refused"},
	}}}))
	shows(b, "sessions", "1drains700430201node 3650040")
	shows(b, "shards", "7129", "8113")
	shows(b, "findings", "Shard 7 is at node 2, which is down, as node 1 sees it", "sessions could not be moved: node 2 does not answer", "(etcd) does not answer: connection refused", "Node 2 is down", "Node 1 drains")
	narrow(t, b, "shards")
}
