package engine

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// busyHandler keeps the sessions of some addresses from ending.
type busyHandler struct {
	mirror
	busy map[string]bool // by address
}

func (h *busyHandler) Busy(p *Peer) bool { return h.busy[p.Addr().String()] }

// received is what a device has got: answers, and at last perhaps close_notify.
func (x *wire) received(d *device) (answers int, closed bool) {
	for _, out := range x.public {
		var r record.Record
		if _, err := record.Next(out.b, -1, &r); err != nil || out.to != d.addr {
			continue
		}
		switch typ, payload, _, v := d.a.Open(d.scratch, &r); {
		case v != record.Opened:
		case typ == record.ApplicationData && !closed:
			answers++
		case typ == record.Alert && len(payload) == 2 && payload[1] == 0:
			closed = true
		}
	}
	return answers, closed
}

// In a drain active sessions end behind an answer, silent ones by themselves, spread over three quarters of the time; no answer is lost, and no new session is made.
// Without a drain nothing of that happens.
func TestDrain(t *testing.T) {
	const sessions, within = 200, 20 * time.Second
	h := &busyHandler{busy: map[string]bool{}}
	x := newWire(t, func(c *Config) { c.NewHandler = func(*Worker) Handler { return h } })
	x.w.draining = h
	var active, silent []*device
	for i := range sessions {
		active = append(active, x.mustConnect(addr(i), "dev-a", true))
		silent = append(silent, x.mustConnect(addr(1000+i), "dev-s", i%2 == 0))
	}
	h.busy[active[0].addr.String()], h.busy[silent[0].addr.String()] = true, true
	x.w.now += time.Hour
	x.w.tick()
	if n := x.w.peers.count; n != 2*sessions {
		t.Fatalf("%d sessions before the drain", n)
	}
	x.w.drainWithin.Store(int64(within))
	ended := map[*device]time.Duration{}
	begun, longest := x.w.now, 0
	for ; x.w.now < begun+within; x.w.now += drainScan {
		before := x.w.peers.count
		x.public = x.public[:0]
		x.w.tick()
		x.w.out.flush()
		for _, d := range silent {
			if _, closed := x.received(d); closed {
				ended[d] = x.w.now - begun
			}
		}
		for i, d := range active {
			if _, gone := ended[d]; gone {
				continue
			}
			x.in(d.seal([]byte("request")), d.addr)
			answers, closed := x.received(d)
			if answers != 1 {
				t.Fatalf("after %v: %d answers to device %d", x.w.now-begun, answers, i)
			}
			if closed {
				ended[d] = x.w.now - begun
			}
		}
		longest = max(longest, before-x.w.peers.count)
	}
	if len(ended) != 2*sessions-2 || x.w.peers.count != 2 || x.stats().Drained != 2*sessions-2 {
		t.Errorf("%d sessions have ended, %d are left, %d counted", len(ended), x.w.peers.count, x.stats().Drained)
	}
	var last time.Duration
	for _, at := range ended {
		last = max(last, at)
	}
	if last < within/2 || last > within*4/5 || longest > sessions/10 {
		t.Errorf("the last session ends after %v; %d at a time", last, longest)
	}
	h.busy = nil
	if x.in(active[0].seal([]byte("request")), active[0].addr); x.w.peers.count > 1 {
		t.Error("a session whose answers have come stays")
	}
	if _, err := x.connect(addr(5000), "dev-new", true); err == nil {
		t.Error("a new session during the drain")
	}
	if x.w.drainNext() == Never && x.w.peers.count > 0 {
		t.Error("silent sessions are not looked for any more")
	}
	x.checkTables()
}
