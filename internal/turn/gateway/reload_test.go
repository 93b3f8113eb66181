package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// twoListeners is a gateway with the listeners a and b on loopback, and a cluster for each of two peers' networks.
func twoListeners(a, b uint16) gateway.Config {
	loopback := netip.MustParseAddr("127.0.0.1")
	return gateway.Config{
		Auth: gateway.AuthConfig{Users: []gateway.UserConfig{{Name: "user1", Password: "passwd1"}}},
		Listeners: []gateway.ListenerConfig{
			{Name: "a", Address: loopback, Port: a, Routes: []string{"stays", "goes"}},
			{Name: "b", Address: loopback, Port: b, Routes: []string{"stays", "goes"}},
		},
		Clusters: []gateway.ClusterConfig{{Name: "stays", Endpoints: []string{"127.0.1.0/24"}}, {Name: "goes", Endpoints: []string{"127.0.2.0/24"}}},
		Limits:   gateway.LimitConfig{Unauthenticated: 1 << 20, UnauthenticatedTotal: 1 << 20}, // all clients of the test have one address
	}
}

func at(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
}

func apply(t *testing.T, g *gateway.Gateway, c gateway.Config) v1.TurnChange {
	t.Helper()
	change, err := g.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func wantChange(t *testing.T, got, want v1.TurnChange) {
	t.Helper()
	if want.Ended == nil {
		want.Ended = map[string]int{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("change %+v\nwant   %+v", got, want)
	}
}

const (
	toStays = 0x4000 // channels of every client
	toGoes  = 0x4001
)

// prefixEntries makes clients with a channel to each of two peers.
func prefixEntries(t *testing.T, n int, server netip.AddrPort, stays, goes netip.AddrPort) []*turnClient {
	t.Helper()
	clients := make([]*turnClient, n)
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range clients {
		clients[i] = dial(t, server)
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			clients[i].allocate()
			clients[i].bind(toStays, stays)
			clients[i].bind(toGoes, goes)
		})
	}
	group.Wait()
	return clients
}

// echo answers every datagram until the test ends, and counts them.
func echo(t *testing.T, address string) (at netip.AddrPort, seen *atomic.Int64) {
	t.Helper()
	peer, count := listenUDP(t, address), new(atomic.Int64)
	go echoFrom(peer, count)
	return addrOf(peer), count
}

// echoFrom sends everything back until the socket is closed.
func echoFrom(peer *net.UDPConn, count *atomic.Int64) {
	buf := make([]byte, 2048)
	for {
		n, from, err := peer.ReadFromUDPAddrPort(buf)
		if isClosed(err) {
			return
		}
		if err == nil {
			count.Add(1)
			_, _ = peer.WriteToUDPAddrPort(buf[:n], from)
		}
	}
}

// ping sends one datagram over a channel and waits for its echo.
func (c *turnClient) ping(channel uint16, text string) {
	c.t.Helper()
	c.send(channel, text)
	c.wantChannelData(channel, text)
}

// 1,000 allocations, of which 899 talk all the time without losing a datagram while the configuration changes back and
// forth around them; the rest end because their listener moves.
func TestReloadUnderAThousandAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ports := []uint16{netlabtest.UDPPort(t), netlabtest.UDPPort(t), netlabtest.UDPPort(t)}
	before := twoListeners(ports[0], ports[1])
	after := twoListeners(ports[0], ports[2])
	after.Auth.Users = append(after.Auth.Users, gateway.UserConfig{Name: "user2", Password: "passwd2"})
	after.Clusters = append(after.Clusters[:1], gateway.ClusterConfig{Name: "new", Endpoints: []string{"127.0.3.0/24"}})
	after.Listeners[0].Routes, after.Listeners[1].Routes = []string{"new", "stays"}, []string{"stays"}
	after.Quotas.AllocationsPerUser = 950

	g := start(t, before, gateway.Options{Workers: 2})
	stays, _ := echo(t, "127.0.1.1")
	goes, received := echo(t, "127.0.2.1")
	inA, inB := prefixEntries(t, 900, at(ports[0]), stays, goes), prefixEntries(t, 100, at(ports[1]), stays, goes)
	for _, c := range append(inA[:10:10], inB[:10]...) {
		c.ping(toStays, "before")
		c.ping(toGoes, "before")
	}

	stop, talking := make(chan struct{}), sync.WaitGroup{}
	var pings atomic.Int64
	for i := range 4 { // each has a quarter of the clients but the first one, and one datagram under way
		talking.Go(func() {
			for round := 0; ; round++ {
				for n := 1 + i; n < len(inA); n += 4 {
					select {
					case <-stop:
						return
					default:
					}
					inA[n].ping(toStays, fmt.Sprint("round ", round, " client ", n))
					pings.Add(1)
				}
			}
		})
	}
	wait := func(n int64) {
		from := pings.Load()
		netlabtest.Eventually(t, "the clients go on", func() bool { return pings.Load() > from+n })
	}
	wait(100)
	wantChange(t, apply(t, g, after), v1.TurnChange{Restarted: []string{"b"}, Ended: map[string]int{"revoked": 100}, Permissions: 900, Channels: 900})
	wait(1800)
	for range 5 { // the same again, and back and forth: no one loses anything
		wantChange(t, apply(t, g, after), v1.TurnChange{})
		wait(100)
		wantChange(t, apply(t, g, before), v1.TurnChange{Restarted: []string{"b"}, Resumed: 1800})
		inA[0].ping(toGoes, "the route is back")
		wait(100)
		wantChange(t, apply(t, g, after), v1.TurnChange{Restarted: []string{"b"}, Permissions: 900, Channels: 900})
	}
	wait(1800)
	close(stop)
	talking.Wait()

	received.Store(0)
	for _, c := range inA {
		c.send(toGoes, "no more")
		c.ping(toStays, "after") // the one before is through
	}
	if n := received.Load(); n != 0 {
		t.Errorf("%d datagrams went where no route leads any more", n)
	}
	if code := codeOf(inA[0].request(stun.MethodChannelBind, channelNumber(0x4007), peerAttr(goes))); code != 403 {
		t.Errorf("a channel to a peer without a route: %d, want 403", code)
	}
	for _, c := range inA[:50] {
		c.must(stun.MethodRefresh, lifetime(600))
	}
	s := g.Stats()
	if s.Totals.Suspended != 1800 || s.Reasons["suspended"] != 900 {
		t.Errorf("%d suspended, reasons %v", s.Totals.Suspended, s.Reasons)
	}
	if s.Totals.Allocations != 900 || s.Totals.Channels != 900 || s.Totals.Permissions != 900 || s.Reasons["revoked"] != 0 && s.Reasons["revoked"] != 100 {
		t.Errorf("in the end: %+v", s.Totals)
	}
	c := dial(t, at(ports[2]))
	c.user, c.pass = "user2", "passwd2"
	c.allocate()
	c.bind(toStays, stays)
	c.ping(toStays, "at its new port")
}

// A configuration that cannot be had changes nothing, however late that shows.
func TestReloadIsAllOrNothing(t *testing.T) {
	ports := []uint16{netlabtest.UDPPort(t), netlabtest.UDPPort(t)}
	good := twoListeners(ports[0], ports[1])
	g := start(t, good, gateway.Options{Workers: 2})
	stays, _ := echo(t, "127.0.1.1")
	goes, _ := echo(t, "127.0.2.1")
	c := prefixEntries(t, 1, at(ports[0]), stays, goes)[0]
	for name, test := range map[string]struct {
		change func(c *gateway.Config)
		want   string
	}{
		"not valid":    {func(c *gateway.Config) { c.Listeners[1].Name = "" }, "listeners[1].name: "},
		"no such host": {func(c *gateway.Config) { c.Listeners[1].Address = netip.MustParseAddr("192.0.2.77") }, "listeners[1]: "},
		"no such certificate": {func(c *gateway.Config) {
			c.Listeners[1].Protocol, c.Listeners[1].Certificate, c.Listeners[1].Key = gateway.TLS, "/nowhere.pem", "/nowhere.key"
		}, "listeners[1].certificate: "},
		"a new one after a good new one": {func(c *gateway.Config) {
			c.Listeners = append(c.Listeners, c.Listeners[0], c.Listeners[0])
			c.Listeners[2].Name, c.Listeners[2].Address = "c", netip.MustParseAddr("127.0.0.2")
			c.Listeners[3].Name, c.Listeners[3].Address = "d", netip.MustParseAddr("192.0.2.77")
		}, "listeners[3]: "},
	} {
		t.Run(name, func(t *testing.T) {
			bad := twoListeners(ports[0], ports[1])
			bad.Clusters = bad.Clusters[:1]
			bad.Listeners[0].Routes, bad.Listeners[1].Routes = []string{"stays"}, nil
			bad.Auth.Users[0].Password = "other"
			test.change(&bad)
			if _, err := g.Apply(bad); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Fatalf("error %v, want %s", err, test.want)
			}
			c.ping(toStays, "as before")
			c.ping(toGoes, "as before")
			c.must(stun.MethodRefresh, lifetime(600))
			prefixEntries(t, 1, at(ports[1]), stays, goes)[0].ping(toGoes, "a new one too")
			if got := g.Config(); len(got.Listeners) != 2 || len(got.Clusters) != 2 || len(g.Stats().Listeners) != 2 {
				t.Errorf("left behind: %+v", got)
			}
		})
	}
	wantChange(t, apply(t, g, good), v1.TurnChange{})
}

// Who may allocate changes at once; what is allocated flows on and ends with its lifetime.
func TestReloadOfCredentials(t *testing.T) {
	port := netlabtest.UDPPort(t)
	c := config("127.0.0.1", port)
	g := start(t, c, gateway.Options{Workers: 1})
	peer, _ := echo(t, "127.0.1.1")
	old := dial(t, at(port))
	old.allocate()
	old.bind(toStays, peer)
	c.Auth.Users = []gateway.UserConfig{{Name: "user2", Password: "passwd2"}}
	wantChange(t, apply(t, g, c), v1.TurnChange{})
	old.ping(toStays, "flows on")
	if code := codeOf(old.request(stun.MethodRefresh, lifetime(600))); code != 401 {
		t.Errorf("refresh of a user who is gone: %d, want 401", code)
	}
	if code := codeOf(dial(t, at(port)).request(stun.MethodAllocate, udpTransport)); code != 401 {
		t.Errorf("allocate of a user who is gone: %d, want 401", code)
	}
	other := dial(t, at(port))
	other.user, other.pass = "user2", "passwd2"
	other.allocate()
	c.Quotas.AllocationsPerUser = 1
	wantChange(t, apply(t, g, c), v1.TurnChange{})
	another := dial(t, at(port))
	another.user, another.pass = "user2", "passwd2"
	if code := codeOf(another.request(stun.MethodAllocate, udpTransport)); code != 486 {
		t.Errorf("a second allocation: %d, want 486", code)
	}
}

// Names, relay addresses and ports of a listener change without a restart, two listeners may swap names, and a process
// that takes over finds all by the new names.
func TestReloadKeepsRenamedListeners(t *testing.T) {
	ports := []uint16{netlabtest.UDPPort(t), netlabtest.UDPPort(t)}
	kept := newShelf(t)
	c := twoListeners(ports[0], ports[1])
	g, stop := run(t, c, gateway.Options{Workers: 2, Store: kept})
	stays, _ := echo(t, "127.0.1.1")
	goes, _ := echo(t, "127.0.2.1")
	inA := prefixEntries(t, 5, at(ports[0]), stays, goes)
	inB := prefixEntries(t, 5, at(ports[1]), stays, goes)
	c = twoListeners(ports[0], ports[1])
	c.Listeners[0].Name, c.Listeners[1].Name = "b", "renamed"
	c.Listeners[0].Relay = []netip.Addr{netip.MustParseAddr("127.0.0.99")}
	wantChange(t, apply(t, g, c), v1.TurnChange{})
	s := g.Stats()
	if len(s.Listeners) != 2 || s.Listeners[0].Name != "b" || s.Listeners[0].Allocations != 5 || s.Listeners[1].Name != "renamed" || s.Listeners[1].Allocations != 5 {
		t.Errorf("listeners %+v", s.Listeners)
	}
	check := func() {
		t.Helper()
		for _, clients := range [][]*turnClient{inA, inB} {
			for _, c := range clients {
				c.ping(toStays, "the same")
				c.ping(toGoes, "the same")
			}
		}
	}
	check()
	fresh := dial(t, at(ports[0]))
	fresh.allocate()
	if got := fresh.relays[0].Addr().String(); got != "127.0.0.99" {
		t.Errorf("a new allocation has relay address %s, want the one of the new configuration", got)
	}
	stop()
	kept.next()
	g, stop = run(t, c, gateway.Options{Workers: 2, Store: kept})
	defer stop()
	check()
	if n := g.Stats().Totals.Allocations; n != 11 {
		t.Errorf("%d allocations after the take-over, want 11", n)
	}
}

// :: holds the port for both families: its successor at 0.0.0.0 can be opened only once it is closed.
func TestReloadOfAListenerWhoseAddressIsTaken(t *testing.T) {
	port := netlabtest.UDPPort(t)
	c := config("::", port)
	g := start(t, c, gateway.Options{Workers: 2})
	old := dial(t, at(port))
	old.allocate()
	c = config("0.0.0.0", port)
	wantChange(t, apply(t, g, c), v1.TurnChange{Restarted: []string{"udp"}, Ended: map[string]int{"revoked": 1}})
	dial(t, at(port)).allocate()
}

// A name that a reload brings is looked up before the routes change: nothing is refused meanwhile.
func TestReloadFindsNamesFirst(t *testing.T) {
	port := netlabtest.UDPPort(t)
	c := config("127.0.0.1", port)
	c.Clusters[0].Endpoints = []string{"198.18.0.0/24"}
	lookups := atomic.Int64{}
	g := start(t, c, gateway.Options{Workers: 1, Routes: routes.Options{
		Own: func() ([]netip.Addr, error) { return nil, nil },
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			lookups.Add(1)
			return []netip.Addr{netip.MustParseAddr("198.18.0.7")}, nil
		},
	}})
	client := dial(t, at(port))
	client.allocate()
	client.bind(toStays, netip.MustParseAddrPort("198.18.0.7:5000"))
	c.Clusters[0].Endpoints = []string{"media.example:5000"}
	wantChange(t, apply(t, g, c), v1.TurnChange{})
	if lookups.Load() == 0 || len(g.Names()) != 1 {
		t.Error("the name was not looked up")
	}
	c.Clusters[0].Endpoints = []string{"media.example:5001"}
	wantChange(t, apply(t, g, c), v1.TurnChange{Channels: 1})
}
