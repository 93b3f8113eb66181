package allocation

import (
	"net/netip"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/steering/heap"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// Table holds one worker's allocations. Only that worker's goroutine may call its methods.
type Table struct {
	shared *Shared
	relays Relays
	events Events

	paths        map[Path]*Allocation
	connections  map[uint32]*connection
	slots        slab.Numbers[Allocation]
	due          heap.Heap[int64] // slots by the time at which a part of them expires
	reservations []reservation    // in the order of expiry

	macs     *macs
	exchange exchange // the current request
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

// Find returns the allocation of a 5-tuple, or nil.
func (t *Table) Find(p Path) *Allocation { return t.paths[p] }

// Len returns the number of allocations.
func (t *Table) Len() int { return len(t.paths) }

// All calls yield for every allocation, in no particular order. yield may delete the allocation that it receives.
func (t *Table) All(yield func(*Allocation) bool) {
	for _, a := range t.paths {
		if !yield(a) {
			return
		}
	}
}

// insert adds an allocation whose relays are open.
func (t *Table) insert(a *Allocation) {
	t.paths[a.Path] = a
	a.bucket.set(&t.shared.Policy().Quotas)
	a.slot = t.slots.Put(a)
	t.due.Set(a.slot, a.soonest())
}

// Move gives an allocation another 5-tuple, because the address of its client has changed. No other allocation may have it, which
// Path.Session ensures.
func (t *Table) Move(a *Allocation, to Path) {
	if t.paths[a.Path] == a {
		delete(t.paths, a.Path)
		a.Path = to
		t.paths[to] = a
	}
}

// changed calls Events.Changed, and updates the time at which a part of the allocation expires.
func (t *Table) changed(a *Allocation) {
	t.due.Set(a.slot, a.soonest())
	t.events.Changed(a)
}

// Delete ends an allocation. An allocation that has already ended is ignored.
func (t *Table) Delete(a *Allocation, why Reason) {
	if t.paths[a.Path] != a {
		return
	}
	delete(t.paths, a.Path)
	t.due.Remove(a.slot)
	t.slots.Remove(a.slot)
	for _, c := range a.channels.values {
		t.withdraw(a, c)
	}
	for _, c := range a.connections.values {
		delete(t.connections, c.id)
	}
	t.shared.release(a.User)
	t.shared.giveID(a.ID)
	t.events.Gone(a, why)
	t.relays.Close(a)
}

// Readmitted is what SetPolicy changed.
type Readmitted struct {
	Permissions, Channels               int // suspended now
	ResumedPermissions, ResumedChannels int
	Connections, ResumedConnections     int // of RFC 6062
}

// SetPolicy applies the shared policy to the existing allocations. Permissions and channels whose peers are no longer admitted are
// suspended: nothing is relayed for them, their lifetimes continue, and a later SetPolicy that admits the peers resumes them,
// so that a route may be missing for a short time. Their clients receive 403 if they refresh them meanwhile. Peer connections
// (RFC 6062) are suspended and resumed likewise; bytes sent on them are held back, and they end after being suspended for as long as a
// permission lasts. Bandwidth limits change. Allocations stay; their next Refresh needs valid credentials.
func (t *Table) SetPolicy(now int64) (r Readmitted) {
	quotas := &t.shared.Policy().Quotas
	for _, a := range t.paths {
		a.bucket.set(quotas)
		t.readmit(a, now, &r)
	}
	return r
}

// readmit suspends what the policy does not admit and resumes what it admits again. It iterates over the connections
// backwards, because drop moves the last entry to the removed one's position.
func (t *Table) readmit(a *Allocation, now int64, r *Readmitted) {
	for _, p := range a.permissions.values {
		p.used, p.at = 0, 0
		cluster, ok := a.allowed(netip.AddrPortFrom(p.Peer, 0))
		switch {
		case !ok && !p.Suspended:
			p.Suspended = true
			r.Permissions++
			t.withdrawAll(a, p.Peer)
		case ok && p.Suspended:
			p.Suspended = false
			r.ResumedPermissions++
		}
		if ok {
			p.Cluster = cluster
		}
	}
	for _, c := range a.channels.values {
		cluster, ok := a.allowed(c.Peer)
		if !ok {
			if !c.Suspended {
				c.Suspended = true
				r.Channels++
				t.withdraw(a, c)
			}
			continue
		}
		if c.Suspended {
			c.Suspended = false
			r.ResumedChannels++
		}
		c.Cluster = cluster
		t.show(a, c)
	}
	for i := len(a.connections.values) - 1; i >= 0; i-- {
		switch c, may := a.connections.values[i], a.mayConnect(a.connections.values[i].peer); {
		case !may && !c.suspended:
			t.suspend(c, now)
			r.Connections++
		case may && c.suspended:
			t.resume(c)
			r.ResumedConnections++
		}
	}
}

func (a *Allocation) mayConnect(peer netip.AddrPort) bool {
	_, ok := a.allowed(peer)
	return ok
}
