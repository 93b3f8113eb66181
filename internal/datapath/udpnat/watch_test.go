package udpnat

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// watched is the destinations of a service, which have answered once, and all take new flows.
func watched(n int) (*watch, []*destination) {
	w := &watch{timeout: 15 * time.Second, limit: 3, after: 2 * time.Second, all: map[destinationKey]*destination{}, everAnswered: map[string]*atomic.Bool{}}
	var all []*destination
	for i := range n {
		d := w.get(lb.Target{Service: "s", Backend: string(rune('a' + i))}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 7))
		d.replied(time.Second)
		all = append(all, d)
	}
	return w, all
}

// If no destination answers, none is stale: moving all flows to one of them would end sessions and overload it. Once one of them answers
// again, the others get a moment to do so, too, and are stale without.
func TestSilenceOfAllProvesNothing(t *testing.T) {
	w, all := watched(3)
	usual := func(*destination) (live, takesNew bool) { return true, true }
	at := time.Minute
	send := func(silent ...*destination) {
		for _, d := range silent {
			for range w.limit {
				d.forwarded(at, true)
			}
		}
	}
	expect := func(after time.Duration, want ...*destination) {
		t.Helper()
		at += after
		fallen := w.check(at, usual)
		if len(fallen) != len(want) || len(want) > 0 && fallen[0] != want[0] {
			t.Fatalf("at %v %v are stale, want %v", at, fallen, want)
		}
	}
	send(all[0])
	expect(0) // first one, then the others: their silence has one cause
	at += 100 * time.Millisecond
	send(all[1:]...)
	expect(2 * time.Second)
	expect(20 * time.Second) // longer than the time-out
	all[2].replied(at)
	expect(1900 * time.Millisecond)
	all[0].replied(at)
	all[2].replied(at)
	expect(200*time.Millisecond, all[1])
	send(all[0]) // two are left
	all[2].replied(at)
	expect(2100*time.Millisecond, all[0])
}

// A destination that refuses is not only silent: its flows go to another one, whatever that does.
func TestRefusalDoesNotWaitForOthers(t *testing.T) {
	w, all := watched(2)
	for _, d := range all {
		for range w.limit {
			d.forwarded(time.Minute, true)
		}
	}
	all[0].refused.Store(w.limit)
	if fallen := w.check(time.Minute+3*time.Second, func(*destination) (live, takesNew bool) { return true, true }); len(fallen) != 1 || fallen[0] != all[0] {
		t.Fatalf("%v", fallen)
	}
}
