package gateway_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// clocks are those of a host: one that everybody may set, and one that no one can.
type clocks struct{ wall, monotonic atomic.Int64 }

func newClocks() *clocks {
	var c clocks
	c.wall.Store(1_800_000_000e9)
	c.monotonic.Store(1000e9)
	return &c
}

// pass lets time go by.
func (c *clocks) pass(d time.Duration) {
	c.wall.Add(int64(d))
	c.monotonic.Add(int64(d))
}

// set is what an operator does, or NTP.
func (c *clocks) set(by time.Duration) { c.wall.Add(int64(by)) }

// boot starts the host again after a while.
func (c *clocks) boot(after time.Duration) {
	c.wall.Add(int64(after))
	c.monotonic.Store(5e9)
}

func (c *clocks) options(store gateway.Store, boot string) gateway.Options {
	return gateway.Options{Workers: 1, Store: store, Now: c.monotonic.Load, Wall: c.wall.Load, Boot: boot}
}

// left is how long the only allocation lives on, as people read it.
func left(t *testing.T, g *gateway.Gateway, c *clocks) (left time.Duration) {
	t.Helper()
	n := 0
	for u := range g.Users {
		left = time.Duration(u.Expires - c.wall.Load())
		n++
	}
	if n != 1 {
		t.Fatalf("%d allocations, want 1", n)
	}
	return left
}

// A step of the wall clock by a day, either way, neither ends nor extends an allocation, in one process or across two.
func TestStepOfTheWallClock(t *testing.T) {
	const day = 24 * time.Hour
	for name, step := range map[string]time.Duration{"forward": day, "back": -day} {
		t.Run(name, func(t *testing.T) {
			port, store, c := netlabtest.UDPPort(t), newShelf(t), newClocks()
			cfg := config("127.0.0.1", port)
			g, stop := run(t, cfg, c.options(store, "first"))
			peer := listenUDP(t, peerAddress)
			client := dial(t, at(port))
			client.allocate()
			client.bind(0x4001, addrOf(peer))
			ping := func(text string) {
				t.Helper()
				client.send(0x4001, text)
				from := wantFrom(t, peer, text)
				sendTo(t, peer, from, text)
				client.wantChannelData(0x4001, text)
			}
			c.set(step)
			ping("after the step")
			if got := left(t, g, c); got != 10*time.Minute {
				t.Errorf("after the step it has %v left, want 10 minutes", got)
			}
			client.must(stun.MethodRefresh, lifetime(600)) // the nonce holds as well
			c.pass(time.Minute)
			stop()
			store.next()
			c.set(step)
			g, stop = run(t, cfg, c.options(store, "first"))
			ping("in the next process")
			if got := left(t, g, c); got != 9*time.Minute {
				t.Errorf("in the next process it has %v left, want 9 minutes", got)
			}
			stop()
			store.next()
			c.set(-step)
			g, stop = run(t, cfg, c.options(store, "first"))
			ping("in a third one")
			if got := left(t, g, c); got != 9*time.Minute {
				t.Errorf("in a third one it has %v left, want 9 minutes", got)
			}
			c.pass(9 * time.Minute)
			stop()
			store.next()
			g, _ = run(t, cfg, c.options(store, "first"))
			if n := g.Stats().Totals.Allocations; n != 0 {
				t.Errorf("%d allocations live on after their time", n)
			}
		})
	}
}

// After the host has booted, the wall clock gives how much time is left: never more than there was.
func TestRecordsOfAnotherBoot(t *testing.T) {
	for name, test := range map[string]struct{ away, want time.Duration }{
		"a minute later":             {time.Minute, 9 * time.Minute},
		"its time is over":           {11 * time.Minute, 0},
		"the clock was set back":     {-24 * time.Hour, time.Hour}, // the longest lifetime of the configuration
		"the clock was set back 1 s": {-time.Second, 10*time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			port, store, c := netlabtest.UDPPort(t), newShelf(t), newClocks()
			cfg := config("127.0.0.1", port)
			_, stop := run(t, cfg, c.options(store, "first"))
			client := dial(t, at(port))
			client.allocate()
			stop()
			store.next()
			c.boot(test.away)
			g, _ := run(t, cfg, c.options(store, "second"))
			if test.want == 0 {
				if n := g.Stats().Totals.Allocations; n != 0 {
					t.Errorf("%d allocations live on", n)
				}
				return
			}
			if got := left(t, g, c); got != test.want {
				t.Errorf("it has %v left, want %v", got, test.want)
			}
		})
	}
}

// The wall clock is set while a gateway runs: records of its boot are still right after the next one.
func TestStepBeforeABoot(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	port, store, c := netlabtest.UDPPort(t), newShelf(t), newClocks()
	cfg := config("127.0.0.1", port)
	_, stop := run(t, cfg, c.options(store, "first"))
	before := string(store.record(1 << 53))
	client := dial(t, at(port))
	client.allocate()
	c.set(24 * time.Hour)
	netlabtest.Eventually(t, "the gateway notices", func() bool { return string(store.record(1<<53)) != before })
	stop()
	store.next()
	c.boot(time.Minute)
	g, _ := run(t, cfg, c.options(store, "second"))
	if got := left(t, g, c); got != 9*time.Minute {
		t.Errorf("it has %v left, want 9 minutes", got)
	}
}

func (s *shelf) record(id uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[id]
}
