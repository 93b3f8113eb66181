package allocation

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pion/stun/v4"
)

// Workers share quotas, reservations and rates: a port reserved at one goes to a client of another, and whatever the
// order, nothing is left and no quota is exceeded. Run it under the race detector.
func TestSharedByWorkers(t *testing.T) {
	p := basic()
	p.Quotas.AllocationsPerUser = 3
	p.Unauthenticated = RateLimit{PerPrefix: -1, Total: -1}
	first := newWorld(t, p)
	worlds := []*world{first}
	for range 3 {
		w := newWorld(t, p)
		w.shared = first.shared
		w.table = NewTable(w.shared, w, w)
		worlds = append(worlds, w)
	}
	var group sync.WaitGroup
	var done atomic.Int32
	for i, w := range worlds {
		group.Go(func() {
			c := w.client(uint16(4000+i), UDP)
			for range 300 {
				if m, r := c.do(allocateMethod, transport(17), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}); r == OK {
					done.Add(1)
					value, err := m.Get(stun.AttrReservationToken)
					if err != nil {
						t.Error(err)
					}
					next := w.client(uint16(5000+i), UDP)
					next.nonce = c.nonce
					_, redeemed := next.do(allocateMethod, transport(17), attr{Type: stun.AttrReservationToken, Value: append([]byte(nil), value...)})
					_, ended := next.do(refreshMethod, lifetime(0))
					if _, r = c.do(refreshMethod, lifetime(0)); redeemed != OK || ended != OK || r != OK {
						t.Errorf("redeemed %v, ended %v and %v", redeemed, ended, r)
					}
				} else if r != QuotaReached && r != Challenged {
					t.Errorf("allocate: %v", r)
				}
				if s := w.shared.Stats(); s.Allocations > 3 {
					t.Errorf("%+v with a quota of three", s)
				}
				w.now += 1e9
				w.table.Expire(w.now)
			}
		})
	}
	group.Wait()
	if done.Load() == 0 {
		t.Error("nobody got anything")
	}
	if s := first.shared.Stats(); s.Allocations != 0 || s.Users != 0 || s.Reserved != 0 {
		t.Errorf("left: %+v", s)
	}
}
