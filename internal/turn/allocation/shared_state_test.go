package allocation

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// A family that its client ends takes its relay and its peers' connections along; the other one goes on.
func TestOneFamilyEnds(t *testing.T) {
	w := newWorld(t, basic())
	c := w.client(4000, TCP)
	c.must(Challenged, stun.MethodAllocate, transport(6))
	c.must(OK, stun.MethodAllocate, transport(6), familyOf(attrAdditionalFamily, familyV6))
	a := w.table.Find(c.path)
	four, six := c.dial("10.0.0.1:5000"), c.dial("[2001:db8::5]:5000")
	c.must(OK, stun.MethodRefresh, lifetime(0), familyOf(stun.AttrRequestedAddressFamily, familyV6))
	if a.Relay[V6].IsValid() || len(w.closedFamilies) != 1 || w.closedFamilies[0] != V6 {
		t.Errorf("relay %v, closed families %v", a.Relay, w.closedFamilies)
	}
	if len(w.cut) != 1 || w.cut[0] != six || a.connections.get(four) == nil {
		t.Errorf("cut %v, want %d only", w.cut, six)
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// No two allocations of any worker share an id, whatever the records of another process say: journal and kernel go by it.
func TestIDsAreUniqueInAllTables(t *testing.T) {
	w := newWorld(t, basic())
	_, a := w.allocated(4000)
	record := w.table.Record(a)
	record.Path.Client = netip.MustParseAddrPort("198.51.100.1:4001")
	other := NewTable(w.shared, w, w)
	b, err := other.Restore(record, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if b.ID == a.ID {
		t.Errorf("two allocations have id %d", a.ID)
	}
	other.Delete(b, Deleted)
	w.openError = ErrNoPort
	if _, err := other.Restore(record, w.now); err == nil {
		t.Fatal("restored without a port")
	}
	w.openError = nil
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// What the kernel relays is not there for user space as well: together they stay within the quota.
func TestChargedBandwidth(t *testing.T) {
	p := basic()
	p.Quotas.Bandwidth, p.Quotas.Burst = 1000, 500
	w := newWorld(t, p)
	_, a := w.allocated(4000)
	passed := 0
	for range 100 { // seconds in which the kernel relays 600 bytes and the client tries 1000 more by Send indications
		for range 10 {
			w.now += int64(time.Second / 10)
			if a.Allow(w.now, 100) {
				passed += 100
			}
		}
		a.Charge(w.now, 600)
	}
	if passed < 39_000 || passed > 41_500 {
		t.Errorf("%d bytes passed in addition to 60,000 in 100 s of 1000 bytes/s, want some 40,000", passed)
	}
}
