package gateway_test

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// ledger is an Offload that relays nothing and remembers everything.
type ledger struct {
	mu      sync.Mutex
	last    uint32
	there   map[uint32]gateway.OffloadChannel
	added   []gateway.OffloadChannel
	totals  gateway.OffloadTraffic // of each channel, each way
	refuses bool
}

func (l *ledger) Add(c gateway.OffloadChannel) (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses {
		return 0, errors.New("full")
	}
	l.last++
	l.there[l.last] = c
	l.added = append(l.added, c)
	return l.last, nil
}

func (l *ledger) Permit(uint32, bool) error { return nil }

func (l *ledger) Remove(id uint32) (up, down gateway.OffloadTraffic, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.there[id]; !ok {
		return up, down, errors.New("not there")
	}
	delete(l.there, id)
	return l.totals, l.totals, nil
}

func (l *ledger) Counters(f func(id uint32, up, down gateway.OffloadTraffic)) error { return nil }

func (l *ledger) Describe() string { return "a ledger" }

func (l *ledger) state() (there, added []gateway.OffloadChannel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.there {
		there = append(there, c)
	}
	return there, slices.Clone(l.added)
}

// A channel goes to the kernel when it is bound, once, with its allocation's quota; again when the quota changes; it is taken
// back with its last counters when it is not admitted any more and when its allocation ends.
func TestOffloadFollowsChannels(t *testing.T) {
	driver := &ledger{there: map[uint32]gateway.OffloadChannel{}, totals: gateway.OffloadTraffic{Packets: 7, Bytes: 700, Last: 1}}
	c := config("127.0.0.1", netlabtest.UDPPort(t))
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.Listeners[0].Port)
	g := start(t, c, gateway.Options{Workers: 1, Offload: driver})
	peer := addrOf(listenUDP(t, "127.0.0.1"))
	client := dial(t, server)
	client.allocate()
	client.bind(0x4001, peer)
	client.bind(0x4001, peer) // refreshed
	netlabtest.Eventually(t, "the channel is in the kernel", func() bool { there, _ := driver.state(); return len(there) == 1 })
	there, added := driver.state()
	if c := there[0]; len(added) != 1 || c.Server != server || c.Peer != peer || c.Number != 0x4001 || c.BytesPerSecond != 0 || c.Allocation == 0 {
		t.Fatalf("%d added, the kernel has %+v", len(added), c)
	}
	limited := c
	limited.Quotas.Bandwidth, limited.Quotas.Burst = 100_000, 5000
	apply(t, g, limited)
	if there, added = driver.state(); len(there) != 1 || len(added) != 2 || there[0].BytesPerSecond != 100_000 || there[0].Burst != 5000 {
		t.Fatalf("under a new quota: %d added, the kernel has %+v", len(added), there)
	}
	apply(t, g, limited)
	if _, added = driver.state(); len(added) != 2 {
		t.Errorf("the same config again: %d added", len(added))
	}
	refused := limited
	refused.Clusters = []gateway.ClusterConfig{{Name: "local", Endpoints: []string{"127.0.0.2"}}}
	apply(t, g, refused)
	if there, _ = driver.state(); len(there) != 0 {
		t.Fatalf("a peer that no route allows: the kernel has %+v", there)
	}
	apply(t, g, limited)
	netlabtest.Eventually(t, "the channel is in the kernel again", func() bool { there, _ := driver.state(); return len(there) == 1 })
	client.must(stun.MethodRefresh, lifetime(0))
	netlabtest.Eventually(t, "nothing is in the kernel", func() bool { there, _ := driver.state(); return len(there) == 0 })
	if up, down := g.Stats().Totals.Up, g.Stats().Totals.Down; up.Packets != 21 || up.Bytes != 2100 || down.Packets != 21 {
		t.Errorf("three entries of 7 packets each way count as %+v and %+v", up, down)
	}
}

// A kernel that takes no channel leaves all to user space.
func TestOffloadThatRefuses(t *testing.T) {
	driver := &ledger{there: map[uint32]gateway.OffloadChannel{}, refuses: true}
	c := config("127.0.0.1", netlabtest.UDPPort(t))
	start(t, c, gateway.Options{Workers: 1, Offload: driver, NoCoalesce: true})
	peer := listenUDP(t, "127.0.0.1")
	client := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.Listeners[0].Port))
	client.allocate()
	client.bind(0x4001, addrOf(peer))
	client.send(0x4001, "up")
	from := wantFrom(t, peer, "up")
	sendTo(t, peer, from, "down")
	client.wantChannelData(0x4001, "down")
}
