package allocation

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// Binding needs no credentials, keeps the transaction id, and answers FINGERPRINT with FINGERPRINT.
func TestBinding(t *testing.T) {
	for _, mode := range []AuthMode{AuthStatic, AuthNone} {
		p := basic()
		p.Auth.Mode, p.Software = mode, "weir"
		w := newWorld(t, p)
		c := w.client(4000, UDP)
		for _, c.fingerprint = range []bool{false, true} {
			for _, client := range []string{"198.51.100.1:4000", "[2001:db8::5]:4000"} {
				c.path.Client = address(client)
				m := c.must(OK, stun.MethodBinding)
				if got := relayOf(t, m, stun.AttrXORMappedAddress); got != c.path.Client {
					t.Errorf("mapped %v, want %v", got, client)
				}
			}
		}
		c.path.Transport, c.path.Client = TCP, address("[2001:db8::5]:4000")
		if m := c.must(OK, stun.MethodBinding); !m.Contains(stun.AttrSoftware) {
			t.Error("no SOFTWARE over TCP")
		}
		if _, r := c.send(c.message(stun.MethodBinding, stun.ClassIndication)); r != OK {
			t.Errorf("binding indication: %v", r)
		}
	}
}

// What is not a request for this server gets no answer at all.
func TestDropped(t *testing.T) {
	w := newWorld(t, basic())
	c := w.client(4000, UDP)
	c.fingerprint = true
	good := c.message(stun.MethodBinding, stun.ClassRequest)
	change := func(at int, b byte) []byte {
		m := slices.Clone(good)
		m[at] = b
		return m
	}
	for _, test := range []struct {
		name string
		msg  []byte
		want Reason
	}{
		{"empty", nil, Malformed},
		{"short", good[:19], Malformed},
		{"cut", good[:len(good)-4], Malformed},
		{"too long", append(slices.Clone(good), 0, 0, 0, 0), Malformed},
		{"ChannelData", change(0, 0x40), Malformed},
		{"RFC 3489", change(4, 0), NoCookie},
		{"bad FINGERPRINT", change(len(good)-1, good[len(good)-1]^1), BadFingerprint},
		{"success response", c.message(stun.MethodBinding, stun.ClassSuccessResponse), Unexpected},
		{"unknown method", c.message(0x0f, stun.ClassRequest), Unexpected},
		{"Send on the wrong transport", c.message(stun.MethodSend, stun.ClassIndication), Unexpected},
	} {
		if m, r := c.send(test.msg); m != nil || r != test.want {
			t.Errorf("%s: %v, %v; want %v and no answer", test.name, m, r, test.want)
		}
	}
}

// A retransmitted Allocate gets the very same bytes, also after the lifetime was changed; another one gets 437.
func TestRetransmission(t *testing.T) {
	w := newWorld(t, basic())
	c := w.client(4000, UDP)
	c.must(Challenged, stun.MethodAllocate, transport(17))
	raw := c.message(stun.MethodAllocate, stun.ClassRequest, transport(17), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}, lifetime(900))
	first, _ := w.table.Request(c.path, raw, nil, w.now)
	c.must(OK, stun.MethodRefresh, lifetime(3600))
	w.now += 5e9
	again, r := w.table.Request(c.path, raw, nil, w.now)
	if r != OK || string(again) != string(first) {
		t.Errorf("%v: %x\nfirst %x", r, again, first)
	}
	if w.table.Len() != 1 || w.shared.Stats().Allocations != 2 {
		t.Errorf("%d allocations, %+v", w.table.Len(), w.shared.Stats())
	}
	c.must(AllocationExists, stun.MethodAllocate, transport(17))
}

// Lifetimes: between the default and the maximum, 0 ends.
func TestLifetimes(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000)
	for _, test := range []struct{ ask, want uint32 }{{1, 600}, {600, 600}, {601, 601}, {3600, 3600}, {3601, 3600}, {1 << 31, 3600}} {
		m := c.must(OK, stun.MethodRefresh, lifetime(test.ask))
		got, err := m.Get(stun.AttrLifetime)
		if err != nil || binary.BigEndian.Uint32(got) != test.want || a.Expires != w.now+int64(test.want)*1e9 {
			t.Errorf("requested %d, got %x, expires in %d", test.ask, got, a.Expires-w.now)
		}
	}
	c.must(OK, stun.MethodRefresh)
	if a.Expires != w.now+600e9 {
		t.Errorf("Refresh without LIFETIME gave %d ns", a.Expires-w.now)
	}
	if next := w.table.Expire(w.now); next != a.Expires {
		t.Errorf("next %d, want %d", next, a.Expires)
	}
	w.after(600*time.Second - 1)
	if w.table.Len() != 1 {
		t.Fatal("gone too early")
	}
	w.after(1)
	if w.table.Len() != 0 || w.gone[0] != Expired {
		t.Errorf("not gone: %v", w.gone)
	}
}

// Permissions end after five minutes while the channel goes on: packets of the peer are dropped, offload ends and comes back.
func TestPermissionUnderChannel(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000, lifetime(3600))
	peer := address("10.0.0.1:5000")
	c.must(OK, stun.MethodChannelBind, channel(0x4000), c.peer("10.0.0.1:5000"))
	ch := a.Channel(0x4000)
	w.after(300*time.Second - 1)
	if n, r := a.Inbound(peer, w.now); n != 0x4000 || r != OK || !w.offloaded[ch] {
		t.Fatalf("%#x %v", n, r)
	}
	if _, r := a.Inbound(peer, w.now+1); r != NoPermission {
		t.Errorf("exactly at its end, before Expire: %v", r)
	}
	raw := c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:5000"), attr{Type: stun.AttrData})
	if _, _, _, r := w.table.Send(c.path, raw, w.now); r != OK {
		t.Errorf("send: %v", r)
	}
	if _, _, _, r := w.table.Send(c.path, raw, w.now+1); r != NoPermission {
		t.Errorf("send exactly at its end, before Expire: %v", r)
	}
	w.after(1)
	if _, r := a.Inbound(peer, w.now); r != NoPermission || w.offloaded[ch] || a.Channel(0x4000) != ch {
		t.Errorf("after five minutes: %v, offloaded %v", r, w.offloaded[ch])
	}
	c.must(OK, stun.MethodCreatePermission, c.peer("10.0.0.1:1"))
	if n, r := a.Inbound(peer, w.now); n != 0x4000 || r != OK || !w.offloaded[ch] {
		t.Errorf("permitted again: %#x %v", n, r)
	}
	w.after(300 * time.Second)
	if a.Channel(0x4000) != nil || len(w.offloaded) != 0 {
		t.Error("the channel outlived ten minutes")
	}
	c.must(OK, stun.MethodChannelBind, channel(0x4000), c.peer("10.0.0.1:5001")) // the number is free again
	c.must(OK, stun.MethodChannelBind, channel(0x4001), c.peer("10.0.0.1:5000")) // and so is the peer
}

// A ChannelBind of the same pair refreshes channel and permission; a request with a refused peer changes nothing.
func TestChannelRefresh(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000, lifetime(3600))
	for range 5 {
		c.must(OK, stun.MethodChannelBind, channel(0x4000), c.peer("10.0.0.1:5000"))
		w.after(299 * time.Second)
	}
	if _, channels, _, _ := a.Counts(); channels != 1 || len(w.offloaded) != 1 {
		t.Errorf("%d channels", channels)
	}
	changes := w.changes
	c.must(Forbidden, stun.MethodCreatePermission, c.peer("10.0.0.7:1"), c.peer("10.9.0.1:1"))
	if _, r := a.Inbound(address("10.0.0.7:1"), w.now); r != NoPermission || w.changes != changes {
		t.Errorf("half of a refused request was done: %v", r)
	}
}

// A peer's port is asked about once, in both directions, and not admitted ports are refused.
func TestPortsAreAdmitted(t *testing.T) {
	p := basic()
	asked := map[netip.AddrPort]int{}
	p.Admit = func(listener uint16, tcp bool, peer netip.AddrPort) (uint16, bool) {
		asked[peer]++
		return peer.Port(), listener == 1 && !tcp && peer.Port() <= 5000
	}
	w := newWorld(t, p)
	c, a := w.allocated(4000)
	c.must(OK, stun.MethodCreatePermission, c.peer("10.0.0.1:0"))
	for range 3 {
		for _, s := range []string{"10.0.0.1:5000", "10.0.0.1:4999"} {
			peer := address(s)
			raw := c.message(stun.MethodSend, stun.ClassIndication, c.peer(s), attr{Type: stun.AttrData})
			if _, _, _, r := w.table.Send(c.path, raw, w.now); r != OK || a.Cluster(peer) != peer.Port() {
				t.Errorf("send to %v: %v, cluster %d", peer, r, a.Cluster(peer))
			}
			if _, r := a.Inbound(peer, w.now); r != OK || asked[peer] != 1 {
				t.Errorf("%v: %v, asked %d times", peer, r, asked[peer])
			}
		}
	}
	if _, r := a.Inbound(address("10.0.0.1:5001"), w.now); r != Forbidden {
		t.Errorf("inbound from a refused port: %v", r)
	}
}

// Send indications are dropped, never answered, with the reason why.
func TestSendDropped(t *testing.T) {
	w := newWorld(t, basic())
	c, _ := w.allocated(4000)
	c.must(OK, stun.MethodCreatePermission, c.peer("10.0.0.1:0"))
	data := attr{Type: stun.AttrData, Value: []byte("x")}
	stranger := w.client(4001, UDP)
	for _, test := range []struct {
		name string
		c    *client
		msg  func(*client) []byte
		want Reason
	}{
		{"no allocation", stranger, func(c *client) []byte {
			return c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:1"), data)
		}, NoAllocation},
		{"no peer", c, func(c *client) []byte { return c.message(stun.MethodSend, stun.ClassIndication, data) }, Malformed},
		{"no data", c, func(c *client) []byte { return c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:1")) }, Malformed},
		{"no permission", c, func(c *client) []byte {
			return c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.2:1"), data)
		}, NoPermission},
		{"port 0", c, func(c *client) []byte {
			return c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:0"), data)
		}, Forbidden},
		{"unknown attribute", c, func(c *client) []byte {
			return c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:1"), data, attr{Type: 0x7ff0})
		}, UnknownAttribute},
		{"a request", c, func(c *client) []byte { return c.message(stun.MethodSend, stun.ClassRequest, data) }, Unexpected},
		{"garbage", c, func(*client) []byte { return []byte("garbage") }, Malformed},
	} {
		if _, _, payload, r := w.table.Send(test.c.path, test.msg(test.c), w.now); r != test.want || (r != OK && r != Forbidden && payload != nil) {
			t.Errorf("%s: %v, want %v", test.name, r, test.want)
		}
	}
}

// Both families: RFC 8656's ADDITIONAL-ADDRESS-FAMILY, its failure, and the end of one of the two.
func TestFamilies(t *testing.T) {
	w := newWorld(t, basic())
	c := w.client(4000, UDP)
	c.must(Challenged, stun.MethodAllocate, transport(17))
	m := c.must(OK, stun.MethodAllocate, transport(17), familyOf(attrAdditionalFamily, 2))
	a := w.table.Find(c.path)
	if a.Relay != [2]netip.AddrPort{address("192.0.2.1:50002"), address("[2001:db8::1]:50002")} {
		t.Errorf("relays %v", a.Relay)
	}
	relays := 0
	for _, at := range m.Attributes {
		if at.Type == stun.AttrXORRelayedAddress {
			relays++
		}
	}
	if relays != 2 || m.Contains(attrAddressErrorCode) {
		t.Errorf("%d relay addresses in the answer", relays)
	}
	c.must(OK, stun.MethodChannelBind, channel(0x4000), c.peer("10.0.0.1:5000"))
	c.must(OK, stun.MethodChannelBind, channel(0x4001), c.peer("[2001:db8::7]:5000"))
	c.must(OK, stun.MethodRefresh, familyOf(stun.AttrRequestedAddressFamily, 1), lifetime(0))
	if a.Relay[V4].IsValid() || a.Channel(0x4000) != nil || a.Channel(0x4001) == nil || w.table.Find(c.path) != a {
		t.Error("only IPv4 should have ended")
	}
	c.must(FamilyMismatch, stun.MethodCreatePermission, c.peer("10.0.0.1:1"))
	c.must(OK, stun.MethodRefresh, familyOf(stun.AttrRequestedAddressFamily, 2), lifetime(0))
	if w.table.Len() != 0 {
		t.Error("the allocation has no family left and lives")
	}

	w.openError = ErrFamily
	m = c.must(OK, stun.MethodAllocate, transport(17), familyOf(attrAdditionalFamily, 2))
	if e, err := m.Get(attrAddressErrorCode); err != nil || e[0] != 2 || int(e[2])*100+int(e[3]) != 440 {
		t.Errorf("ADDRESS-ERROR-CODE %x, %v", e, err)
	}
	w.openError = nil
	c6 := w.client(4001, UDP)
	c6.must(Challenged, stun.MethodAllocate, transport(17))
	m = c6.must(OK, stun.MethodAllocate, transport(17), familyOf(stun.AttrRequestedAddressFamily, 2))
	if got := relayOf(t, m, stun.AttrXORRelayedAddress); !got.Addr().Is6() {
		t.Errorf("relay %v", got)
	}
}

// EVEN-PORT with reservation: the next port goes to the bearer of the token, once, within 30 s, to the same user.
func TestReservation(t *testing.T) {
	w := newWorld(t, basic())
	reserve := attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}
	c := w.client(4000, UDP)
	c.must(Challenged, stun.MethodAllocate, transport(17))
	m := c.must(OK, stun.MethodAllocate, transport(17), reserve)
	value, err := m.Get(stun.AttrReservationToken)
	if err != nil || len(value) != 8 || len(w.held) != 1 {
		t.Fatalf("token %x, %v, held %v", value, err, w.held)
	}
	token := attr{Type: stun.AttrReservationToken, Value: slices.Clone(value)}
	thief := w.client(4001, UDP)
	thief.must(Challenged, stun.MethodAllocate, transport(17))
	thief.user, thief.password = "user2", "passwd2"
	thief.must(InsufficientCapacity, stun.MethodAllocate, transport(17), token)
	c2 := w.client(4002, UDP)
	c2.must(Challenged, stun.MethodAllocate, transport(17))
	c2.must(OK, stun.MethodAllocate, transport(17), token)
	if want := w.open[w.table.Find(c2.path)]; want.Reserved != address("192.0.2.1:50003") || len(w.held) != 0 {
		t.Errorf("opened %+v", want)
	}
	thief.user, thief.password = "user1", "passwd1"
	thief.must(InsufficientCapacity, stun.MethodAllocate, transport(17), token)
	m = thief.must(OK, stun.MethodAllocate, transport(17), reserve)
	value, _ = m.Get(stun.AttrReservationToken)
	w.openError = ErrNoPort
	failing := w.client(4004, UDP)
	failing.must(Challenged, stun.MethodAllocate, transport(17))
	failing.must(InsufficientCapacity, stun.MethodAllocate, transport(17), attr{Type: stun.AttrReservationToken, Value: slices.Clone(value)})
	w.openError = nil
	if err := w.check(); err != nil {
		t.Error(err)
	}
	c.must(OK, stun.MethodRefresh, lifetime(0))
	m = c.must(OK, stun.MethodAllocate, transport(17), reserve)
	value, _ = m.Get(stun.AttrReservationToken)
	w.now += int64(30 * time.Second)
	late := w.client(4003, UDP)
	late.must(Challenged, stun.MethodAllocate, transport(17))
	late.must(InsufficientCapacity, stun.MethodAllocate, transport(17), attr{Type: stun.AttrReservationToken, Value: slices.Clone(value)})
	w.table.Expire(w.now)
	if err := w.check(); err != nil || len(w.held) != 0 {
		t.Errorf("held %v, %v", w.held, err)
	}
}

// Draining refuses the new and keeps the old.
func TestDrain(t *testing.T) {
	w := newWorld(t, basic())
	c, _ := w.allocated(4000)
	p := basic()
	p.Draining, p.Alternate = true, address("192.0.2.9:3478")
	w.set(p)
	c.must(OK, stun.MethodRefresh)
	other := w.client(4001, UDP)
	other.must(Challenged, stun.MethodAllocate, transport(17))
	m := other.must(TryAlternate, stun.MethodAllocate, transport(17))
	var alternate stun.AlternateServer
	if err := alternate.GetFrom(m); err != nil || alternate.Port != 3478 || alternate.IP.String() != "192.0.2.9" {
		t.Errorf("alternate %+v, %v", alternate, err)
	}
	if w.table.Len() != 1 {
		t.Error("the old allocation is gone")
	}
}
