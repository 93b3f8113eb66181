package membership

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Times of the ping protocol, those of Californium 3 and later.
const (
	TickEvery  = 2 * time.Second
	Refresh    = 4 * time.Second  // a node silent for this long is pinged
	Expiration = 6 * time.Second  // added to Refresh: silent for longer means down
	Discover   = 10 * time.Second // addresses without a node are pinged this often
	answerTime = 2 * time.Second  // how long the holder of an id has to answer when another address claims it
	jump       = 5 * TickEvery    // between two calls: the process was stopped, or the clock is wrong
)

// MaxNodes bounds the members, and MaxGroup the addresses at which they are searched for.
const (
	MaxNodes = 256
	MaxGroup = 256
)

// Node is a member at an address.
type Node struct {
	ID   uint32
	Addr netip.AddrPort
}

// Spec says which nodes there may be.
type Spec struct {
	Self  uint32           // id of this node
	Fixed []Node           // the others that are known beforehand
	Group []netip.AddrPort // where others are searched for
	Open  bool             // others may come from any address
	// Discovered: the addresses of others come with SetGroup. Until then the cluster is not complete, and afterwards at the latest
	// when they have had Discover to answer: one that never does must not keep this node out of service.
	Discovered bool
}

// State is the sender's view of the cluster's start, the last byte of a ping or pong.
type State byte

// The states that Californium announces since 3.0.
const (
	StateStart       State = 0
	StateUp          State = 1
	StateInitialized State = 2
)

// entry is an address.
type entry struct {
	addr  netip.AddrPort
	id    uint32
	known bool // which node is there
	fixed bool
	group bool

	answered  bool          // there was a message of the node that is known to be here, since it is known
	last      time.Duration // of the newest message
	pinged    time.Duration // by us
	announced State
	up        bool // at the last tick

	rival     *entry        // claims our id; nil: none does
	claimed   uint32        // the id that a message from here has claimed
	claims    bool          // one does
	pong      bool          // it was repeated in a pong after our ping
	since     time.Duration // of the rival's claim, or of the other id's
	contested bool          // a claim was refused, which was reported
}

// Table is the membership as one node sees it. Not safe for concurrent use.
type Table struct {
	self       uint32
	open       bool
	entries    map[netip.AddrPort]*entry
	order      []*entry // by the time they were added
	byID       map[uint32]*entry
	now        time.Duration
	offset     time.Duration // now less the time of the caller
	started    bool
	begin      time.Duration // of the first tick
	state      State
	generation uint64
	searchAt   time.Duration // of the next pings to addresses without a node
	discovered bool          // SetGroup says where others are
	grouped    bool          // it has
	groupedAt  time.Duration // first
	duplicate  bool          // of our own id, which was reported
	full       bool          // likewise
}

// Compile makes the table of a Spec, or returns what contradicts in it.
func Compile(s Spec) (*Table, error) {
	t := &Table{self: s.Self, open: s.Open, discovered: s.Discovered, entries: map[netip.AddrPort]*entry{}, byID: map[uint32]*entry{}, generation: 1}
	if s.Self >= MaxNodes {
		return nil, fmt.Errorf("node id %d does not fit in one byte", s.Self)
	}
	if len(s.Group) > MaxGroup {
		return nil, fmt.Errorf("%d addresses to search at, at most %d", len(s.Group), MaxGroup)
	}
	for _, n := range s.Fixed {
		switch other := t.entries[n.Addr]; {
		case n.ID >= MaxNodes:
			return nil, fmt.Errorf("node id %d does not fit in one byte", n.ID)
		case n.ID == s.Self || t.byID[n.ID] != nil:
			return nil, fmt.Errorf("two nodes have the id %d", n.ID)
		case other != nil:
			return nil, fmt.Errorf("nodes %d and %d have the same address %s", other.id, n.ID, n.Addr)
		}
		e := t.add(n.Addr)
		e.id, e.known, e.fixed = n.ID, true, true
		t.byID[n.ID] = e
	}
	for _, addr := range s.Group {
		t.addGroup(addr)
	}
	return t, nil
}

func (t *Table) add(addr netip.AddrPort) *entry {
	e := &entry{addr: addr}
	t.entries[addr] = e
	t.order = append(t.order, e)
	t.generation++
	return e
}

func (t *Table) addGroup(addr netip.AddrPort) {
	e := t.entries[addr]
	if e == nil {
		e = t.add(addr)
	}
	e.group = true
}

// SetGroup replaces the addresses at which nodes are searched for. A node that answers stays, though its address is not among them any
// more; a new address is pinged at the next tick.
func (t *Table) SetGroup(addresses []netip.AddrPort) {
	if !t.grouped {
		t.grouped, t.groupedAt = true, t.now
	}
	for _, e := range t.entries {
		e.group = false
	}
	for _, addr := range addresses[:min(len(addresses), MaxGroup)] {
		if t.entries[addr] == nil {
			t.searchAt = t.now
		}
		t.addGroup(addr)
	}
	for _, e := range slices.Clone(t.order) {
		t.tidy(e)
	}
}

// tidy removes an address at which there is no node, and none is expected.
func (t *Table) tidy(e *entry) {
	if e.known || e.fixed || e.group {
		return
	}
	delete(t.entries, e.addr)
	t.order = slices.DeleteFunc(t.order, func(other *entry) bool { return other == e })
	for _, other := range t.order {
		if other.rival == e {
			other.rival = nil
		}
	}
	t.generation++
}

// assign enters a node. release must have freed its id.
func (t *Table) assign(e *entry, id uint32) {
	t.release(e)
	e.id, e.known, e.claims, e.contested = id, true, false, false
	t.byID[id] = e
	t.generation++
}

// release frees the id of an address.
func (t *Table) release(e *entry) {
	if e.known {
		delete(t.byID, e.id)
		e.known, e.up, e.rival = false, false, nil
		t.generation++
	}
}

// Member is one address, as of the last call.
type Member struct {
	Addr     netip.AddrPort
	ID       uint32
	Known    bool          // which node is there; else it is only searched for there
	Answered bool          // there was a message
	Up       bool          // there was one in the last 10 s
	Silent   time.Duration // since the newest message
}

// Members lists all addresses in the order in which they were added.
func (t *Table) Members() []Member {
	all := make([]Member, 0, len(t.order))
	for _, e := range t.order {
		all = append(all, Member{
			Addr: e.addr, ID: e.id, Known: e.known, Answered: e.answered, Up: e.answered && t.now-e.last <= Refresh+Expiration, Silent: t.now - e.last,
		})
	}
	return all
}

// Holds reports whether the node id is at an address.
func (t *Table) Holds(addr netip.AddrPort, id uint32) bool {
	e := t.entries[addr]
	return e != nil && e.known && e.id == id
}

// Generation changes whenever Members lists other nodes or addresses.
func (t *Table) Generation() uint64 { return t.generation }

// State is what this node announces.
func (t *Table) State() State { return t.state }

// Allowed reports whether a message from an address is taken: a node is there, or is searched for there, or may come from anywhere.
func (t *Table) Allowed(addr netip.AddrPort) bool { return t.open || t.entries[addr] != nil }
