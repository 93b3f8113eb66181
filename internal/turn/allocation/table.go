package allocation

import (
	"net/netip"

	"github.com/pion/stun/v4"
)

// Table holds one worker's allocations. Only that worker's goroutine may call its methods.
type Table struct {
	shared *Shared
	relays Relays
	events Events

	paths        map[Path]*Allocation
	connections  map[uint32]*connection
	due          heap
	reservations []reservation // in the order of their end

	macs     *macs
	exchange exchange // the request in hand
	unknown  []stun.AttrType
	peers    []admission
}

// NewTable makes an empty table.
func NewTable(shared *Shared, relays Relays, events Events) *Table {
	return &Table{
		shared: shared, relays: relays, events: events, macs: newMACs(),
		paths: map[Path]*Allocation{}, connections: map[uint32]*connection{},
		unknown: make([]stun.AttrType, 0, 16),
	}
}

// Find gives the allocation of a 5-tuple, or nil.
func (t *Table) Find(p Path) *Allocation { return t.paths[p] }

// Len is how many allocations there are.
func (t *Table) Len() int { return len(t.paths) }

// All visits every allocation, in no order. The visitor may delete the one it is given.
func (t *Table) All(yield func(*Allocation) bool) {
	for _, a := range t.paths {
		if !yield(a) {
			return
		}
	}
}

// insert takes an allocation in whose relays are open.
func (t *Table) insert(a *Allocation) {
	t.paths[a.Path] = a
	a.bucket.set(&t.shared.Policy().Quotas)
	a.next = a.soonest()
	t.due.push(a)
}

// changed tells the journal, and moves the time at which something of an allocation ends.
func (t *Table) changed(a *Allocation) {
	a.next = a.soonest()
	t.due.fix(a)
	t.events.Changed(a)
}

// Delete ends an allocation. One that is gone already is ignored.
func (t *Table) Delete(a *Allocation, why Reason) {
	if t.paths[a.Path] != a {
		return
	}
	delete(t.paths, a.Path)
	t.due.remove(a)
	for _, c := range a.channels.values {
		t.hide(a, c)
	}
	for _, c := range a.connections.values {
		delete(t.connections, c.id)
	}
	t.shared.release(a.User)
	t.shared.giveID(a.ID)
	t.events.Gone(a, why)
	t.relays.Close(a)
}

// SetPolicy applies the shared policy to what there is: permissions, channels and peer connections that are not
// admitted any more end, bandwidth limits change. Allocations stay; their next Refresh needs credentials that hold.
func (t *Table) SetPolicy(now int64) {
	quotas := &t.shared.Policy().Quotas
	for _, a := range t.paths {
		a.bucket.set(quotas)
		before := len(a.permissions.keys) + len(a.channels.keys) + len(a.connections.keys)
		t.readmit(a)
		if before != len(a.permissions.keys)+len(a.channels.keys)+len(a.connections.keys) {
			t.changed(a)
		}
	}
}

// readmit ends what the policy does not admit any more. Lists are walked from behind, where drop fills holes from.
func (t *Table) readmit(a *Allocation) {
	for i := len(a.channels.values) - 1; i >= 0; i-- {
		c := a.channels.values[i]
		if cluster, ok := a.allowed(c.Peer); ok {
			c.Cluster = cluster
		} else {
			t.unbind(a, c)
		}
	}
	for i := len(a.permissions.values) - 1; i >= 0; i-- {
		p := a.permissions.values[i]
		p.used, p.at = 0, 0
		if cluster, ok := a.allowed(netip.AddrPortFrom(p.Peer, 0)); ok {
			p.Cluster = cluster
		} else {
			t.forbid(a, p)
		}
	}
	for i := len(a.connections.values) - 1; i >= 0; i-- {
		if c := a.connections.values[i]; !a.mayConnect(c.peer) {
			t.disconnect(c)
		}
	}
}

func (a *Allocation) mayConnect(peer netip.AddrPort) bool {
	_, ok := a.allowed(peer)
	return ok
}
