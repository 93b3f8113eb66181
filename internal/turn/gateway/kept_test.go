package gateway_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

func (s *shelf) names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.sockets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Whatever a reload does with names and ports, the sockets of all listeners are kept under their names of today.
func TestReloadKeepsEverySocket(t *testing.T) {
	ports := []uint16{netlabtest.UDPPort(t), netlabtest.UDPPort(t), netlabtest.UDPPort(t)}
	kept := newShelf(t)
	g := start(t, twoListeners(ports[0], ports[1]), gateway.Options{Workers: 2, Store: kept})
	want := []string{"listener/a/0", "listener/a/1", "listener/b/0", "listener/b/1"}
	for what, change := range map[string]func(c *gateway.Config){
		"two swap names": func(c *gateway.Config) { c.Listeners[0].Name, c.Listeners[1].Name = "b", "a" },
		"one moves":      func(c *gateway.Config) { c.Listeners[0].Port = ports[2] },
		"one ends, its name is another": func(c *gateway.Config) {
			c.Listeners[0].Port, c.Listeners[0].Name, c.Listeners[1].Name = ports[2], "b", "a"
		},
	} {
		c := twoListeners(ports[0], ports[1])
		change(&c)
		apply(t, g, c)
		if got := kept.names(); !slices.Equal(got, want) {
			t.Errorf("%s: kept are %v", what, got)
		}
		apply(t, g, twoListeners(ports[0], ports[1]))
		if got := kept.names(); !slices.Equal(got, want) {
			t.Errorf("%s, and back: kept are %v", what, got)
		}
	}
}

// A family that its client ends frees its socket, here and at the store.
func TestOneFamilyEndsItsSocket(t *testing.T) {
	port, kept := netlabtest.UDPPort(t), newShelf(t)
	cfg := config("127.0.0.1", port)
	cfg.Listeners[0].Relay = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")}
	start(t, cfg, gateway.Options{Workers: 1, Store: kept})
	peer := listenUDP(t, peerAddress)
	c := dial(t, at(port))
	c.allocate(raw(0x8000, 2, 0, 0, 0))
	c.bind(0x4001, addrOf(peer))
	c.must(stun.MethodRefresh, raw(stun.AttrRequestedAddressFamily, 2, 0, 0, 0), lifetime(0))
	if got := kept.names(); slices.Contains(got, "relay/"+c.relays[1].String()) {
		t.Errorf("kept are %v", got)
	}
	if conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(c.relays[1])); err != nil {
		t.Errorf("the relay address is still taken: %v", err)
	} else {
		_ = conn.Close()
	}
	c.send(0x4001, "goes on")
	wantFrom(t, peer, "goes on")
}

// A reserved port is held again after a restart, for the bearer of its token alone.
func TestRestartHoldsReservedPorts(t *testing.T) {
	port, kept := netlabtest.UDPPort(t), newShelf(t)
	cfg := config("127.0.0.1", port)
	_, stop := run(t, cfg, gateway.Options{Workers: 1, Store: kept})
	c := dial(t, at(port))
	answer := c.must(stun.MethodAllocate, udpTransport, raw(stun.AttrEvenPort, 0x80))
	token, err := answer.Get(stun.AttrReservationToken)
	if err != nil {
		t.Fatal(err)
	}
	var relay stun.XORMappedAddress
	if err := relay.GetFromAs(answer, stun.AttrXORRelayedAddress); err != nil {
		t.Fatal(err)
	}
	stop()
	kept.next()
	start(t, cfg, gateway.Options{Workers: 1, Store: kept})
	next := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(relay.Port+1))
	if conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(next)); err == nil {
		_ = conn.Close()
		t.Error("the reserved port is anybody's")
	}
	second := dial(t, at(port))
	second.allocate(raw(stun.AttrReservationToken, token...))
	if second.relays[0] != next {
		t.Errorf("the token gave %v, want %v", second.relays[0], next)
	}
}

// Records of another process are taken up only where the listener itself could have made them.
func TestImportRefusesForeignRelays(t *testing.T) {
	port := netlabtest.UDPPort(t)
	cfg := config("127.0.0.1", port)
	cfg.Listeners[0].Relay = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	first, stop := run(t, cfg, gateway.Options{Workers: 1})
	c := dial(t, at(port))
	c.allocate()
	records, err := first.Export(t.Context())
	if err != nil || len(records) != 1 {
		t.Fatal(err)
	}
	stop()
	kept := newShelf(t)
	kept.Put(records[0].ID+1, encode(t, records[0])) // under another's id
	g := start(t, cfg, gateway.Options{Workers: 1, Store: kept})
	if _, n := kept.sizes(); n != 0 || g.Stats().Totals.Allocations != 0 {
		t.Errorf("%d records and %d allocations of a journal that contradicts itself", n, g.Stats().Totals.Allocations)
	}
	for _, relay := range []string{"127.0.0.1:1023", "127.0.0.1:40000", "127.0.0.2:50000", "0.0.0.0:50000", "224.0.0.1:50000", "[::]:50000"} {
		r := records[0]
		r.Relay = []netip.AddrPort{netip.MustParseAddrPort(relay)}
		if n, err := g.Import(t.Context(), []allocation.Record{r}); n != 0 || err == nil {
			t.Errorf("relay address %s: %d restored, %v", relay, n, err)
		}
	}
	other := records[0]
	other.Listener = "another"
	if n, _ := g.Import(t.Context(), []allocation.Record{other, records[0], records[0]}); n != 1 {
		t.Errorf("%d of one good record, one of no listener and one twice", n)
	}
}

// What the kernel relayed is charged to user space's share of the bandwidth.
func TestBandwidthIsNotDoubledByTheKernel(t *testing.T) {
	driver := &ledger{there: map[uint32]gateway.OffloadChannel{}, totals: gateway.OffloadTraffic{Packets: 1000, Bytes: 1 << 40, Last: 1}}
	cfg := config("127.0.0.1", netlabtest.UDPPort(t))
	cfg.Quotas.Bandwidth, cfg.Quotas.Burst = 1000, 1<<20
	g := start(t, cfg, gateway.Options{Workers: 1, Offload: driver})
	peer := listenUDP(t, peerAddress)
	c := dial(t, at(cfg.Listeners[0].Port))
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	c.indicate(addrOf(peer), "before")
	wantFrom(t, peer, "before")
	netlabtest.Eventually(t, "the channel is in the kernel", func() bool { there, _ := driver.state(); return len(there) == 1 })
	refused := cfg
	refused.Clusters = []gateway.ClusterConfig{{Name: "local", Endpoints: []string{"127.0.0.9"}}}
	apply(t, g, refused) // takes the channel back, with its counters
	apply(t, g, cfg)
	c.must(stun.MethodCreatePermission, peerAttr(addrOf(peer)))
	c.indicate(addrOf(peer), "after")
	netlabtest.Eventually(t, "the quota is used up", func() bool { return g.Stats().Reasons["bandwidth"] == 1 })
}

// A datagram that no Data indication can carry does not break the stream.
func TestStreamSurvivesTheLongestDatagram(t *testing.T) {
	port := netlabtest.UDPPort(t)
	start(t, streamConfig(gateway.TCP, "::1", port), gateway.Options{Workers: 1})
	server := netip.AddrPortFrom(netip.IPv6Loopback(), port)
	c := newClient(t, framedConn{connectStream(t, server, false)})
	c.allocate(raw(stun.AttrRequestedAddressFamily, 2, 0, 0, 0))
	peer := listenUDP(t, "::1")
	c.must(stun.MethodCreatePermission, peerAttr(addrOf(peer)))
	for _, size := range []int{65527, 65501, 100} {
		sendTo(t, peer, c.relays[0], strings.Repeat("x", size))
	}
	if m := (&stun.Message{Raw: c.receive()}); m.Decode() != nil || len(m.Attributes) != 2 || m.Attributes[1].Length != 100 {
		t.Errorf("the stream goes on with %d bytes", len(m.Raw))
	}
}

// A connection with an allocation never becomes a data connection, whichever worker the connection to the peer is of.
func TestOwnersBindNoData(t *testing.T) {
	_, server, control, relay := relayTCP(t)
	_, id := dialRelay(t, control, relay)
	for i := range 16 { // of both workers
		owner := newClient(t, framedConn{connectStream(t, server, false)})
		owner.allocate()
		if code := codeOf(owner.request(stun.MethodConnectionBind, raw(stun.AttrConnectionID, id...))); code != 400 {
			t.Fatal(fmt.Sprint("owner ", i), " was answered ", code, ", want 400")
		}
	}
	control.bindData(server, id, "")
}

func encode(t *testing.T, r allocation.Record) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
