package allocation

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// A new policy suspends what it does not admit, in every table of the allocation, and nothing else. The policy of before
// resumes it.
func TestSetPolicySuspends(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000)
	for i, peer := range []string{"10.0.0.1:5000", "10.0.0.1:5001", "10.1.0.1:5000"} {
		c.must(OK, bindMethod, channel(MinChannel+uint16(i)), c.peer(peer))
	}
	c.must(OK, permitMethod, c.peer("10.0.0.2:0"))
	if _, r := a.Inbound(address("10.0.0.2:7"), w.now); r != OK {
		t.Fatal(r)
	}
	tcp, ta := w.tcpClient(4001)
	keep := tcp.dial("10.0.0.1:5000")
	cut := tcp.dial("10.1.0.1:5000")

	p := basic()
	still := netip.MustParsePrefix("10.0.0.0/16")
	p.Admit = func(_ uint16, _ bool, peer netip.AddrPort) (uint16, bool) {
		return 8, still.Contains(peer.Addr()) && (peer.Port() == 0 || peer.Port() == 5000)
	}
	if err := w.shared.SetPolicy(p); err != nil {
		t.Fatal(err)
	}
	if done := w.table.SetPolicy(w.now); done != (Readmitted{Permissions: 1, Channels: 2, Connections: 1}) {
		t.Errorf("%+v", done)
	}
	if a.Channel(0x4000).Suspended || !a.Channel(0x4001).Suspended || !a.Channel(0x4002).Suspended || len(w.offloaded) != 1 {
		t.Errorf("channels: %+v %+v %+v, %d offloaded", a.Channel(0x4000), a.Channel(0x4001), a.Channel(0x4002), len(w.offloaded))
	}
	if a.Channel(0x4000).Cluster != 8 || a.Cluster(address("10.0.0.2:0")) != 8 {
		t.Error("the clusters are the old ones")
	}
	for peer, want := range map[string]Reason{"10.0.0.2:7": Forbidden, "10.0.0.1:5000": OK, "10.0.0.1:5001": Suspended, "10.1.0.1:5000": Suspended, "10.1.0.1:7": Suspended} {
		if _, r := a.Inbound(address(peer), w.now); r != want {
			t.Errorf("from %s: %v, want %v", peer, r, want)
		}
	}
	if _, _, _, r := w.table.Send(c.path, c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.1.0.1:5000"), attr{Type: stun.AttrData}), w.now); r != Suspended {
		t.Errorf("to a suspended peer: %v", r)
	}
	if !slices.Equal(w.cut, []uint32{cut}) || ta.connections.get(keep) == nil { // it was not made yet
		t.Errorf("cut %v, want %v", w.cut, cut)
	}
	c.must(Forbidden, permitMethod, c.peer("10.1.0.1:0"))
	c.must(Forbidden, bindMethod, channel(0x4002), c.peer("10.1.0.1:5000"))
	c.must(OK, refreshMethod)

	if err := w.shared.SetPolicy(basic()); err != nil {
		t.Fatal(err)
	}
	if done := w.table.SetPolicy(w.now); done != (Readmitted{ResumedPermissions: 1, ResumedChannels: 2}) {
		t.Errorf("%+v", done)
	}
	for i, peer := range []string{"10.0.0.1:5000", "10.0.0.1:5001", "10.1.0.1:5000"} {
		if n, r := a.Inbound(address(peer), w.now); r != OK || n != MinChannel+uint16(i) {
			t.Errorf("%s after it resumed: channel %#x, %v", peer, n, r)
		}
	}
	if len(w.offloaded) != 3 {
		t.Errorf("%d offloaded after all resumed", len(w.offloaded))
	}
}

// What is suspended expires as if it were not. What is refreshed after its peer is admitted again goes on.
func TestSuspendedExpires(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000, lifetime(3600))
	c.must(OK, bindMethod, channel(MinChannel), c.peer("10.0.0.1:5000"))
	none := basic()
	none.Admit = nil
	w.set(none)
	w.after(5 * time.Minute)
	if permissions, channels, _, suspended := a.Counts(); permissions != 0 || channels != 1 || suspended != 1 {
		t.Errorf("%d permissions, %d channels, %d suspended after five minutes", permissions, channels, suspended)
	}
	w.set(basic())
	if _, r := a.Inbound(address("10.0.0.1:5000"), w.now); r != NoPermission || len(w.offloaded) != 0 {
		t.Errorf("the permission ran out while it was suspended: %v, %d offloaded", r, len(w.offloaded))
	}
	c.must(OK, permitMethod, c.peer("10.0.0.1:0"))
	if _, r := a.Inbound(address("10.0.0.1:5000"), w.now); r != OK || len(w.offloaded) != 1 {
		t.Errorf("after the refresh: %v, %d offloaded", r, len(w.offloaded))
	}
	w.set(none)
	w.after(5 * time.Minute)
	if permissions, channels, _, _ := a.Counts(); permissions != 0 || channels != 0 {
		t.Errorf("%d permissions, %d channels after ten minutes", permissions, channels)
	}
}

// A connection to a peer outlives a route that is gone for a moment, and ends when the route stays away. One that waits for its
// client can be bound when the route is back, in its time.
func TestSuspendedConnections(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.tcpClient(4000)
	c.must(OK, refreshMethod, lifetime(3600))
	none := basic()
	none.Admit = nil
	made := func(peer string) uint32 {
		id := c.dial(peer)
		if len(w.table.ConnectDone(a, id, nil, nil, w.now)) == 0 {
			t.Fatalf("no answer for %s", peer)
		}
		return id
	}
	used := made("10.0.0.1:5000")
	if _, _, r := c.bind(used); r != OK {
		t.Fatal(r)
	}
	waiting := made("10.0.0.1:5001")
	request := c.dial("10.0.0.1:5002")
	w.set(none)
	if _, _, connections, suspended := a.Counts(); connections != 2 || suspended != 2 || !slices.Equal(w.cut, []uint32{request}) {
		t.Errorf("%d connections, %d suspended, cut %v", connections, suspended, w.cut)
	}
	w.after(4 * time.Minute) // the bound one is kept, the other one's time to be bound is over
	if _, _, connections, _ := a.Counts(); connections != 1 || !slices.Equal(w.cut, []uint32{request, waiting}) {
		t.Errorf("%d connections, cut %v", connections, w.cut)
	}
	w.set(basic())
	w.after(5 * time.Minute)
	if a.connections.get(used) == nil || w.paused[used] {
		t.Error("the connection was not resumed")
	}
	w.set(none)
	w.after(5 * time.Minute)
	if a.connections.get(used) != nil || w.cut[len(w.cut)-1] != used {
		t.Errorf("the connection of a route that is gone for good: cut %v", w.cut)
	}
	w.set(basic())
	late := made("10.0.0.1:5003")
	w.set(none)
	if _, _, r := c.bind(late); r != Forbidden {
		t.Errorf("bound while it is suspended: %v", r)
	}
	w.set(basic())
	if _, _, r := c.bind(late); r != OK {
		t.Errorf("bound when it is resumed: %v", r)
	}
}

// A policy that cannot be is refused and the old one stays.
func TestPolicyChecks(t *testing.T) {
	w := newWorld(t, basic())
	before := w.shared.Policy()
	for name, change := range map[string]func(*Policy){
		"long realm":      func(p *Policy) { p.Realm = strings.Repeat("x", 129) },
		"long software":   func(p *Policy) { p.Software = strings.Repeat("x", 129) },
		"no nonce key":    func(p *Policy) { p.NonceKeys = nil },
		"short nonce key": func(p *Policy) { p.NonceKeys = [][]byte{[]byte("short")} },
		"empty secret":    func(p *Policy) { p.Auth.Secrets = []string{"x", ""} },
		"empty user":      func(p *Policy) { p.Auth.Users = map[string]string{"": "x"} },
		"unknown mode":    func(p *Policy) { p.Auth.Mode = 9 },
		"short lifetime":  func(p *Policy) { p.Lifetimes.Permission = time.Millisecond },
		"long lifetime":   func(p *Policy) { p.Lifetimes.Max = 48 * time.Hour },
	} {
		p := basic()
		change(&p)
		if err := w.shared.SetPolicy(p); err == nil || w.shared.Policy() != before {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := NewShared(p, [32]byte{}); err == nil {
			t.Errorf("%s: NewShared takes it", name)
		}
	}
}

// Quotas of minus one are no limit, and an allocation above a lowered quota stays.
func TestQuotas(t *testing.T) {
	p := basic()
	p.Quotas = Quotas{Permissions: -1, Channels: -1}
	w := newWorld(t, p)
	c, a := w.allocated(4000)
	for i := range 300 {
		peer := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 5000)
		c.must(OK, bindMethod, channel(MinChannel+uint16(i)), c.peer(peer.String()))
		if n, r := a.Inbound(peer, w.now); r != OK || n != MinChannel+uint16(i) || a.Channel(n).Peer != peer {
			t.Fatalf("%v: %#x %v", peer, n, r)
		}
	}
	w.allocated(4001)
	p.Quotas = Quotas{Allocations: 1, Permissions: 1}
	w.set(p)
	c.must(OK, refreshMethod)
	c.must(OK, permitMethod, c.peer("10.0.0.1:0")) // has one
	c.must(InsufficientCapacity, permitMethod, c.peer("10.3.0.1:0"))
	if w.table.Len() != 2 {
		t.Error("a lowered quota ended an allocation")
	}
	permissions, channels, _, _ := a.Counts()
	seen := 0
	for range a.Channels {
		seen++
	}
	for range a.Permissions {
		seen++
	}
	if permissions != 300 || channels != 300 || seen != 600 {
		t.Errorf("%d permissions, %d channels, %d seen", permissions, channels, seen)
	}
	w.after(10 * time.Minute)
	if err := w.check(); err != nil || w.table.Len() != 0 || w.shared.Stats().Users != 0 {
		t.Errorf("%d left, %v", w.table.Len(), err)
	}
}

// Names are what metrics and records carry: unique, and read back.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range ReasonCount {
		name := r.String()
		if text, err := r.MarshalText(); err != nil || string(text) != name || seen[name] || strings.ContainsAny(name, "() ") {
			t.Errorf("%d is %q", r, name)
		}
		seen[name] = true
		if (r.Code() != 0) != (r > OK && r < Malformed) {
			t.Errorf("%v has code %d", r, r.Code())
		}
	}
	if ReasonCount.String() != "reason(36)" {
		t.Errorf("%v is a name for no reason", ReasonCount)
	}
	for tr := UDP; tr <= DTLS; tr++ {
		text, err := tr.MarshalText()
		var back Transport
		if err != nil || back.UnmarshalText(text) != nil || back != tr {
			t.Errorf("%v: %q, %v", tr, text, err)
		}
	}
	var none Transport
	if _, err := Transport(9).MarshalText(); err == nil || none.UnmarshalText([]byte("sctp")) == nil || Transport(9).String() != "transport(9)" {
		t.Error("an unknown transport has a name")
	}
}
