package allocation

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// A new policy ends what it does not admit, in every table of the allocation, and nothing else.
func TestSetPolicyReadmits(t *testing.T) {
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
	changes := w.changes
	w.set(p)
	if a.Channel(0x4000) == nil || a.Channel(0x4001) != nil || a.Channel(0x4002) != nil || len(w.offloaded) != 1 {
		t.Errorf("channels: %v %v %v", a.Channel(0x4000), a.Channel(0x4001), a.Channel(0x4002))
	}
	if a.Channel(0x4000).Cluster != 8 || a.Cluster(address("10.0.0.2:0")) != 8 {
		t.Error("the clusters are the old ones")
	}
	if _, r := a.Inbound(address("10.0.0.2:7"), w.now); r != Forbidden {
		t.Errorf("a port of before: %v", r)
	}
	if _, r := a.Inbound(address("10.1.0.1:5000"), w.now); r != NoPermission {
		t.Errorf("a peer of before: %v", r)
	}
	if !slices.Equal(w.cut, []uint32{cut}) || ta.connections.get(keep) == nil {
		t.Errorf("cut %v, want %v", w.cut, cut)
	}
	if w.changes != changes+2 {
		t.Errorf("%d changes told for two allocations", w.changes-changes)
	}
	if w.table.Len() != 2 {
		t.Error("an allocation ended")
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
	permissions, channels, _ := a.Counts()
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
	if ReasonCount.String() != "reason(35)" {
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
