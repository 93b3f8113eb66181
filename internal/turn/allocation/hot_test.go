package allocation

import (
	"net/netip"
	"testing"

	"github.com/pion/stun/v4"
)

// hot is a client with a channel, a permission and a thousand neighbours.
type hot struct {
	w                   *world
	c                   *client
	a                   *Allocation
	bound, unbound      netip.AddrPort
	send, data, refresh []byte
	challenge, binding  []byte
	dst                 []byte
	id                  [12]byte
	path                Path
}

func newHot(t testing.TB) *hot {
	p := basic()
	p.Unauthenticated = RateLimit{PerPrefix: 1e9, PrefixBurst: 1 << 30, Bindings: 1e9, Proven: 1e9, Total: 1e9, TotalBurst: 1 << 30}
	h := &hot{w: newWorld(t, p), bound: address("10.0.0.1:5000"), unbound: address("10.0.0.1:5001"), dst: make([]byte, 0, 2048)}
	for port := range uint16(1000) {
		h.w.allocated(10000 + port)
	}
	h.c, h.a = h.w.allocated(4000)
	h.path = h.c.path
	h.c.must(OK, bindMethod, channel(0x4000), h.c.peer(h.bound.String()))
	h.send = h.c.message(stun.MethodSend, stun.ClassIndication, h.c.peer(h.unbound.String()), attr{Type: stun.AttrData, Value: make([]byte, 100)})
	h.data = append([]byte{0x40, 0, 0, 100}, make([]byte, 100)...)
	h.refresh = h.c.message(refreshMethod, stun.ClassRequest, lifetime(600))
	h.c.nonce = ""
	h.challenge = h.c.message(allocateMethod, stun.ClassRequest, transport(17))
	h.binding = h.c.message(stun.MethodBinding, stun.ClassRequest)
	return h
}

// steps is what a packet costs, by name. Each returns whether it did what it should.
func (h *hot) steps() []hotStep {
	return []hotStep{
		{"find", func() bool { return h.w.table.Find(h.path) == h.a }},
		{"channel", func() bool { return h.a.Channel(0x4000) != nil }},
		{"inbound-channel", func() bool { n, _ := h.a.Inbound(h.bound, h.w.now); return n == 0x4000 }},
		{"inbound-data", func() bool { n, r := h.a.Inbound(h.unbound, h.w.now); return n == 0 && r == OK }},
		{"send", func() bool { _, _, _, r := h.w.table.Send(h.path, h.send, h.w.now); return r == OK }},
		{"parse-channel-data", func() bool { n, _, _ := ParseChannelData(h.data); return n == 0x4000 }},
		{"append-data-header", func() bool { return len(AppendDataHeader(h.dst, h.bound, 100, h.id)) == 36 }},
		{"allow", func() bool { return h.a.Allow(h.w.now, 100) }},
		{"cluster", func() bool { return h.a.Cluster(h.unbound) == 7 }},
		{"count", func() bool { h.a.Up.Add(1, 100, h.w.now); return true }},
	}
}

// requests is what a request costs.
func (h *hot) requests() []hotStep {
	request := func(msg []byte, want Reason) func() bool {
		return func() bool { _, r := h.w.table.Request(h.path, msg, h.dst, h.w.now); return r == want }
	}
	return []hotStep{
		{"binding", request(h.binding, OK)},
		{"challenge", request(h.challenge, Challenged)},
		{"refresh", request(h.refresh, OK)},
	}
}

type hotStep struct {
	name string
	do   func() bool
}

// Packets make no garbage, and neither does a flood of requests without credentials.
func TestNoAllocationPerPacket(t *testing.T) {
	h := newHot(t)
	for _, s := range append(h.steps(), h.requests()[:2]...) {
		if !s.do() {
			t.Errorf("%s does not do its work", s.name)
		}
		worked := true // as often as a benchmark repeats it: no rate limit may end it
		if n := testing.AllocsPerRun(50_000, func() { worked = s.do() && worked }); n != 0 || !worked {
			t.Errorf("%s: %v allocations, does its work each time: %t", s.name, n, worked)
		}
	}
}

func BenchmarkHot(b *testing.B) {
	h := newHot(b)
	for _, s := range append(h.steps(), h.requests()...) {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !s.do() {
					b.Fatal("does not do its work")
				}
			}
		})
	}
}

// One allocation's whole life: allocate, bind, end. The requests are signed outside of the clock.
func BenchmarkAllocation(b *testing.B) {
	h := newHot(b)
	c := h.w.client(4001, UDP)
	c.must(Challenged, allocateMethod, transport(17))
	messages := [][]byte{
		c.message(allocateMethod, stun.ClassRequest, transport(17)),
		c.message(bindMethod, stun.ClassRequest, channel(0x4000), c.peer("10.0.0.1:5000")),
		c.message(refreshMethod, stun.ClassRequest, lifetime(0)),
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range messages {
			if _, r := h.w.table.Request(c.path, m, h.dst, h.w.now); r != OK {
				b.Fatal(r)
			}
		}
	}
}
