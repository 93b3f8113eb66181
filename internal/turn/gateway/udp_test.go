package gateway_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// wantFrom reads one datagram at a peer.
func wantFrom(t testing.TB, peer *net.UDPConn, payload string) netip.AddrPort {
	t.Helper()
	buf := make([]byte, 1<<16)
	_ = peer.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, from, err := peer.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:n]) != payload {
		t.Fatalf("the peer got %.60q (%d bytes), %v; want %d bytes", buf[:n], n, err, len(payload))
	}
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

func sendTo(t testing.TB, peer *net.UDPConn, to netip.AddrPort, payload string) {
	t.Helper()
	if _, err := peer.WriteToUDPAddrPort([]byte(payload), to); err != nil {
		t.Fatal(err)
	}
}

func TestChannelDataBothDirections(t *testing.T) {
	for _, test := range []struct{ name, listen, dial, peer string }{
		{"IPv4", "127.0.0.1", "127.0.0.1", peerAddress},
		{"IPv6", "::1", "::1", "::1"},
		{"wildcard", "0.0.0.0", "127.0.0.5", "127.0.0.7"},
		{"IPv4 at the wildcard of both", "::", "127.0.0.6", "127.0.0.1"},
		{"IPv6 at the wildcard of both", "::", "::1", "::1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			port := netlabtest.UDPPort(t)
			g := start(t, config(test.listen, port), gateway.Options{Workers: 2})
			peer := listenUDP(t, test.peer)
			c := dial(t, netip.AddrPortFrom(netip.MustParseAddr(test.dial), port))
			if addrOf(peer).Addr().Is6() {
				c.allocate(raw(stun.AttrRequestedAddressFamily, 2, 0, 0, 0))
			} else {
				c.allocate()
			}
			if relay := c.relays[0].Addr(); relay != netip.MustParseAddr(test.dial) {
				t.Errorf("relay address %v, want the one that the client reached, %s", relay, test.dial)
			}
			c.bind(0x4001, addrOf(peer))
			for _, size := range []int{0, 1, 3, 100, 1400, 9000, 65500} {
				payload := strings.Repeat("u", size)
				c.send(0x4001, payload)
				if from := wantFrom(t, peer, payload); from != c.relays[0] {
					t.Fatalf("came from %v, want the relay address %v", from, c.relays[0])
				}
				payload = strings.Repeat("d", size)
				sendTo(t, peer, c.relays[0], payload)
				c.wantChannelData(0x4001, payload)
			}
			s := g.Stats()
			if up, down := s.Totals.Up, s.Totals.Down; up.Packets != 7 || down != up || up.Bytes != 1+3+100+1400+9000+65500 {
				t.Errorf("counted up %+v, down %+v", up, down)
			}
			if s.Clusters[0].Up != s.Totals.Up || s.Clusters[0].Channels != 1 || s.Listeners[0].Channels != 1 || s.Listeners[0].ReadBuffer == 0 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}

// Padding after ChannelData is allowed over UDP (RFC 8656 section 12.5) and goes no further.
func TestPaddedChannelData(t *testing.T) {
	port := netlabtest.UDPPort(t)
	start(t, config("127.0.0.1", port), gateway.Options{})
	peer := listenUDP(t, peerAddress)
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	_, _ = c.conn.Write([]byte("\x40\x01\x00\x05hello\x00\x00\x00"))
	wantFrom(t, peer, "hello")
}

func TestIndicationsBothDirections(t *testing.T) {
	port := netlabtest.UDPPort(t)
	g := start(t, config("127.0.0.1", port), gateway.Options{})
	peer, stranger := listenUDP(t, peerAddress), listenUDP(t, "127.0.0.9")
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	c.allocate()
	c.must(stun.MethodCreatePermission, peerAttr(addrOf(peer)))
	for _, payload := range []string{"", "a", "hello", strings.Repeat("x", 1200)} {
		c.indicate(addrOf(peer), payload)
		wantFrom(t, peer, payload)
		sendTo(t, stranger, c.relays[0], "not allowed")
		sendTo(t, peer, c.relays[0], payload)
		m := &stun.Message{Raw: c.receive()}
		if err := m.Decode(); err != nil || m.Type.Method != stun.MethodData {
			t.Fatalf("got %v, %v", m, err)
		}
		var from stun.XORMappedAddress
		data, err := m.Get(stun.AttrData)
		if err != nil || from.GetFromAs(m, stun.AttrXORPeerAddress) != nil || string(data) != payload || from.Port != int(addrOf(peer).Port()) {
			t.Fatalf("data %q from %v, %v", data, from, err)
		}
	}
	netlabtest.Eventually(t, "strangers are counted", func() bool { return g.Stats().Reasons["no_permission"] == 4 })
}

// What cannot be relayed is dropped, counted by its reason, and harms no client.
func TestDropsAreCounted(t *testing.T) {
	port := netlabtest.UDPPort(t)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	g := start(t, config("127.0.0.1", port), gateway.Options{Workers: 1})
	peer := listenUDP(t, peerAddress)
	c := dial(t, server)
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	stranger := dial(t, server)

	stranger.send(0x4001, "no allocation")
	c.send(0x4002, "no channel")
	_, _ = c.conn.Write([]byte("\x40\x01\x00\xffshort"))
	_, _ = c.conn.Write([]byte("\x40"))
	_, _ = c.conn.Write([]byte{})
	_, _ = c.conn.Write([]byte("\xffjunk"))
	c.indicate(netip.MustParseAddrPort("127.0.0.77:9"), "no permission")
	if code := codeOf(c.request(stun.MethodCreatePermission, peerAttr(netip.MustParseAddrPort("192.0.2.1:1")))); code != 403 {
		t.Errorf("a permission for a peer that no route has was answered %d, want 403", code)
	}
	c.send(0x4001, "still here")
	wantFrom(t, peer, "still here")
	want := map[string]uint64{"no_allocation": 1, "no_channel": 1, "no_permission": 1, "forbidden": 1}
	for name, n := range want { // which sockets of this machine sent first is not said
		netlabtest.Eventually(t, name, func() bool { return g.Stats().Reasons[name] >= n })
	}
	netlabtest.Eventually(t, "malformed", func() bool { return g.Stats().Reasons["malformed"] >= 3 })
	for name, n := range want {
		if got := g.Stats().Reasons[name]; got != n {
			t.Errorf("%s was counted %d times, want %d", name, got, n)
		}
	}
}

// A peer that no program listens at answers with ICMP errors; relaying goes on, to it and to others.
func TestPeerThatRefuses(t *testing.T) {
	port := netlabtest.UDPPort(t)
	start(t, config("127.0.0.1", port), gateway.Options{})
	peer := listenUDP(t, peerAddress)
	dead := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), netlabtest.UDPPort(t))
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	c.bind(0x4002, dead)
	for i := range 50 {
		c.send(0x4002, "to nobody")
		payload := fmt.Sprint("to somebody ", i)
		c.send(0x4001, payload)
		wantFrom(t, peer, payload)
		sendTo(t, peer, c.relays[0], payload)
		c.wantChannelData(0x4001, payload)
	}
}

func TestDualAllocation(t *testing.T) {
	port := netlabtest.UDPPort(t)
	cfg := config("127.0.0.1", port)
	cfg.Listeners[0].Relay = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")}
	g := start(t, cfg, gateway.Options{})
	peers := []*net.UDPConn{listenUDP(t, peerAddress), listenUDP(t, "::1")}
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	c.allocate(raw(0x8000, 2, 0, 0, 0))
	if len(c.relays) != 2 || c.relays[0].Addr() != cfg.Listeners[0].Relay[0] || c.relays[1].Addr() != cfg.Listeners[0].Relay[1] {
		t.Fatalf("relay addresses %v", c.relays)
	}
	for i, peer := range peers {
		number := uint16(0x4001 + i)
		c.bind(number, addrOf(peer))
		c.send(number, "hello")
		if from := wantFrom(t, peer, "hello"); from != c.relays[i] {
			t.Errorf("came from %v, want %v", from, c.relays[i])
		}
		sendTo(t, peer, c.relays[i], "back")
		c.wantChannelData(number, "back")
	}
	for u := range g.Users {
		if u.User != "user1" || len(u.Relay) != 2 || u.Channels != 2 || u.Permissions != 2 || len(u.Peers) != 2 || u.Up.Packets != 2 || u.LastDown == 0 || u.Client != addrOf(c.conn) {
			t.Errorf("user %+v", u)
		}
	}
}

// Ports of the range are given out once each, an end gives them back, and none left is 508.
func TestRelayPorts(t *testing.T) {
	port := netlabtest.UDPPort(t)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	first := freeRange(t, 4)
	cfg := config("127.0.0.1", port)
	cfg.Listeners[0].RelayPorts = gateway.PortRange{Min: first, Max: first + 3}
	g := start(t, cfg, gateway.Options{Workers: 2})
	seen := map[uint16]bool{}
	var clients []*turnClient
	for range 4 {
		c := dial(t, server)
		c.allocate()
		seen[c.relays[0].Port()] = true
		clients = append(clients, c)
	}
	if len(seen) != 4 {
		t.Fatalf("ports %v, want all four from %d on", seen, first)
	}
	late := dial(t, server)
	if code := codeOf(late.request(stun.MethodAllocate, udpTransport)); code != 508 {
		t.Fatalf("without a port left the answer is %d, want 508", code)
	}
	clients[2].must(stun.MethodRefresh, lifetime(0))
	late.allocate()
	if late.relays[0] != clients[2].relays[0] {
		t.Errorf("relay address %v, want the one given back, %v", late.relays[0], clients[2].relays[0])
	}
	for _, c := range append(clients, late) {
		c.request(stun.MethodRefresh, lifetime(0))
	}
	// EVEN-PORT with a reservation: the next port is the token's.
	clients[0] = dial(t, server)
	m := clients[0].must(stun.MethodAllocate, udpTransport, raw(stun.AttrEvenPort, 0x80))
	token, err := m.Get(stun.AttrReservationToken)
	if err != nil {
		t.Fatal(err)
	}
	clients[1] = dial(t, server)
	clients[1].allocate(raw(stun.AttrReservationToken, token...))
	if s := g.Stats(); s.Totals.Allocations != 2 {
		t.Errorf("%d allocations, want 2", s.Totals.Allocations)
	}
	ports := map[uint16]bool{}
	for u := range g.Users {
		ports[u.Relay[0].Port()] = true
	}
	odd := clients[1].relays[0].Port()
	if odd%2 != 1 || !ports[odd] || !ports[odd-1] {
		t.Errorf("ports %v, want a pair that begins even", ports)
	}
}

// freeRange finds n ports in a row, from an even one on, that are free.
func freeRange(t testing.TB, n int) uint16 {
	t.Helper()
	for range 1000 {
		first := netlabtest.UDPPort(t) &^ 1
		var probes []*net.UDPConn
		for i := range n {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(first) + i})
			if err == nil {
				probes = append(probes, conn)
			}
		}
		for _, p := range probes {
			_ = p.Close()
		}
		if len(probes) == n {
			return first
		}
	}
	t.Fatal("no free range")
	return 0
}

func TestBandwidth(t *testing.T) {
	port := netlabtest.UDPPort(t)
	cfg := config("127.0.0.1", port)
	cfg.Quotas.Bandwidth, cfg.Quotas.Burst = 1, 10_000 // one byte a second
	g := start(t, cfg, gateway.Options{})
	peer := listenUDP(t, peerAddress)
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	for range 20 {
		c.send(0x4001, strings.Repeat("x", 1000))
	}
	netlabtest.Eventually(t, "all are counted", func() bool {
		s := g.Stats()
		return s.Totals.Up.Packets+s.Reasons["bandwidth"] == 20
	})
	if n := g.Stats().Reasons["bandwidth"]; n != 10 {
		t.Errorf("%d packets were over the quota, want 10", n)
	}
}

func TestDrain(t *testing.T) {
	port := netlabtest.UDPPort(t)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	g := start(t, config("127.0.0.1", port), gateway.Options{})
	peer := listenUDP(t, peerAddress)
	c := dial(t, server)
	c.allocate()
	c.bind(0x4001, addrOf(peer))
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
	g.Drain(true, netip.AddrPort{})
	if g.Ready() == nil {
		t.Error("ready while it drains")
	}
	if code := codeOf(dial(t, server).request(stun.MethodAllocate, udpTransport)); code != 508 {
		t.Errorf("a new allocation was answered %d, want 508", code)
	}
	g.Drain(true, netip.MustParseAddrPort("192.0.2.9:3478"))
	if code := codeOf(dial(t, server).request(stun.MethodAllocate, udpTransport)); code != 300 {
		t.Errorf("a new allocation was answered %d, want 300", code)
	}
	c.send(0x4001, "goes on")
	wantFrom(t, peer, "goes on")
	g.Drain(false, netip.AddrPort{})
	dial(t, server).allocate()
}

// Many clients on several workers: every one is served, and by the relay that is its own.
func TestManyClients(t *testing.T) {
	port := netlabtest.UDPPort(t)
	g := start(t, config("127.0.0.1", port), gateway.Options{Workers: 3})
	peer := listenUDP(t, peerAddress)
	var clients []*turnClient
	for i := range 60 {
		c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
		c.allocate()
		c.bind(0x4000+uint16(i), addrOf(peer))
		clients = append(clients, c)
	}
	for i, c := range clients {
		c.send(0x4000+uint16(i), fmt.Sprint("client ", i))
		if from := wantFrom(t, peer, fmt.Sprint("client ", i)); from != c.relays[0] {
			t.Fatalf("client %d came from %v, want %v", i, from, c.relays[0])
		}
		sendTo(t, peer, c.relays[0], fmt.Sprint("peer ", i))
	}
	for i, c := range clients {
		c.wantChannelData(0x4000+uint16(i), fmt.Sprint("peer ", i))
	}
	if s := g.Stats(); s.Totals.Allocations != 60 || s.Totals.Channels != 60 || s.Totals.Opened != 60 {
		t.Errorf("stats %+v", s.Totals)
	}
}
