package allocation

import (
	"testing"

	"github.com/pion/stun/v4"
)

// A client allocates, is allowed a peer, binds a channel, refreshes and ends; every answer is read by the library.
func TestSession(t *testing.T) {
	w := newWorld(t, basic())
	c := w.client(4000, UDP)
	c.fingerprint = true
	m := c.must(Challenged, stun.MethodAllocate, transport(17))
	if realm, err := m.Get(stun.AttrRealm); err != nil || string(realm) != "weir" {
		t.Fatalf("realm %q, %v", realm, err)
	}
	m = c.must(OK, stun.MethodAllocate, transport(17), lifetime(1200))
	if got := relayOf(t, m, stun.AttrXORRelayedAddress); got != address("192.0.2.1:50002") {
		t.Errorf("relay %v", got)
	}
	if got := relayOf(t, m, stun.AttrXORMappedAddress); got != c.path.Client {
		t.Errorf("mapped %v", got)
	}
	a := w.table.Find(c.path)
	if a == nil || a.User != "user1" || a.Expires != start+1200e9 {
		t.Fatalf("allocation %+v", a)
	}
	peer := address("10.0.0.1:5000")
	if _, r := a.Inbound(peer, w.now); r != NoPermission {
		t.Errorf("inbound without permission: %v", r)
	}
	c.must(OK, stun.MethodCreatePermission, c.peer("10.0.0.1:1"))
	if n, r := a.Inbound(peer, w.now); r != OK || n != 0 || a.Cluster(peer) != 7 {
		t.Errorf("inbound: %v %v", n, r)
	}
	raw := c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:5000"), attr{Type: stun.AttrData, Value: []byte("hello")})
	if got, to, payload, r := w.table.Send(c.path, raw, w.now); got != a || to != peer || string(payload) != "hello" || r != OK {
		t.Errorf("send: %v %q %v", to, payload, r)
	}
	c.must(OK, stun.MethodChannelBind, channel(0x4001), c.peer("10.0.0.1:5000"))
	if n, r := a.Inbound(peer, w.now); r != OK || n != 0x4001 || a.Channel(0x4001).Peer != peer {
		t.Errorf("inbound on channel: %#x %v", n, r)
	}
	c.must(OK, stun.MethodRefresh, lifetime(0))
	if w.table.Find(c.path) != nil || len(w.offloaded) != 0 || w.gone[0] != Deleted {
		t.Error("the allocation is still there")
	}
	c.must(NoAllocation, stun.MethodRefresh, lifetime(0))
	if err := w.check(); err != nil {
		t.Error(err)
	}
}
