package move

import (
	"errors"
	"time"
)

// Times.
const (
	TickEvery     = 250 * time.Millisecond
	announceEvery = 2 * time.Second
	searchEvery   = 10 * time.Second // announcements to nodes that have sent none
	repeatEvery   = 500 * time.Millisecond
	// giveUp is how long a node may leave a message of a transfer without an answer.
	giveUp     = 5 * time.Second
	retryAfter = 2 * time.Second  // after a transfer that failed
	idleAfter  = 30 * time.Second // a transfer of another node of which nothing comes is forgotten
	// settleFor is how long a node that was started takes no sessions while other nodes do not answer it yet: they could not reach what it has.
	settleFor = 5 * time.Second
	// ClaimAfter is how long the owner of a shard is silent before another node may claim the shard.
	ClaimAfter = 12 * time.Second
)

// Bounds.
const (
	Shards = 256
	// Window is how many sessions are on their way at most.
	Window   = 256
	atOnce   = 32 // sessions that a worker exports in one go
	memory   = 4 * Window
	finished = 64 // transfers of other nodes that are remembered after their end
)

// ErrUnsecured says that sessions cannot be moved, because the link between nodes is not secured.
var ErrUnsecured = errors.New("sessions cannot be moved to another node: the link between the nodes is not secured, and their keys would travel in clear; set security (--dtls-cluster-group-security)")

// Config is what New needs.
type Config struct {
	Self      uint8
	Boot      uint64 // a random number of this process
	CIDLength uint8
	Workers   int           // that have sessions
	Random    func() uint64 // numbers of transfers, which must not repeat
}

// Peer is another node, as the membership knows it.
type Peer struct {
	ID uint8
	Up bool // it answers, over a secured link
}

// Local is what the caller knows of its own sessions.
type Local struct {
	Room     uint32 // sessions that there is room for
	Own      uint32 // sessions of the own shard
	Sessions uint32 // of all shards
	Silent   bool   // none of them may be served: it is not known whether another process has them
}

// Send is a message for a node.
type Send struct {
	To    uint8
	Bytes []byte
}

// Import is a session of another node. The caller makes a session of it, and calls Node.Imported.
type Import struct {
	From, Shard uint8
	Transfer    uint64
	Sequence    uint32
	Session     []byte
}

// Settled is what has become of an exported session.
type Settled struct {
	ID    string // as given to Exported
	To    uint8
	Moved bool // else it is dropped
}

// Output is what a call requests of its caller.
type Output struct {
	Send    []Send
	Imports []Import
	Settled []Settled
	Events  []Event
}

// Event is for the log.
type Event struct {
	Kind        EventKind
	Shard, Node uint8  // the other node
	Moved, Lost int    // sessions, of a transfer
	Cause       string // Failed
}

// EventKind is what has happened.
type EventKind uint8

// Kinds of events.
const (
	Started EventKind = iota // a transfer
	Completed
	Failed
	Took    // a transfer of another node is complete: this node is the owner
	Claimed // this node is the owner, because the one before is silent
	numOfKinds
)

// peer is what a node knows of another one.
type peer struct {
	up        bool
	downAt    time.Duration // since when it is not up
	boot      uint64        // 0: it has announced nothing
	serial    uint32
	draining  bool
	room      uint32
	sessions  uint32        // that it has, if counted
	counted   bool          // it has announced them
	announced time.Duration // to it
}

// capable reports whether sessions can be moved to a node.
func (p *peer) capable() bool { return p != nil && p.up && p.boot != 0 && !p.draining }

// Node is the state of one node. Not safe for concurrent use.
type Node struct {
	cfg     Config
	now     time.Duration
	started time.Duration
	peers   [Shards]*peer
	local   Local
	owners  [Shards]Entry
	issued  [Shards]uint32 // highest version of a Commit
	held    [Shards]bool   // sessions of this shard may be here
	targets [Shards]int    // node that got sessions of the shard last; -1: none

	draining bool
	wanted   int // node that is to take the sessions; -1: any
	serial   uint32
	changed  bool // announce at once
	out      *outgoing
	retryAt  time.Duration
	cause    string // why the last transfer failed
	in       map[uint8]*incoming
	ended    []ended
	stats    Stats

	routes Routes
	fresh  bool // routes are of now
}

// Stats counts sessions since New.
type Stats struct {
	Out       uint64 // moved to other nodes
	In        uint64 // taken from other nodes
	Lost      uint64 // dropped: it is not known whether the other node has them, or it could not take them
	Refused   uint64 // of other nodes, not taken
	Transfers uint64 // to other nodes, completed
	Failed    uint64 // likewise, not completed
}

// New makes the state of a node that knows no other one.
func New(cfg Config) *Node {
	n := &Node{cfg: cfg, wanted: -1, in: map[uint8]*incoming{}}
	for i := range n.owners {
		n.owners[i] = Entry{Shard: uint8(i), Owner: uint8(i)}
		n.targets[i] = -1
	}
	n.held[cfg.Self] = true
	return n
}

// Hold says that an earlier process has left sessions of a shard.
func (n *Node) Hold(shard uint8) { n.held[shard], n.fresh = true, false }

// Stats returns the counters.
func (n *Node) Stats() Stats { return n.stats }

// Tick runs what is due. Call it every TickEvery, with all other nodes.
func (n *Node) Tick(now time.Duration, peers []Peer, local Local) (o Output) {
	first := n.now == 0
	n.now, n.local = max(n.now, now, 1), local
	if first {
		n.started = n.now
	}
	n.refresh(peers, first)
	n.expire()
	n.advance(&o)
	n.claim(&o)
	if n.out == nil && n.now >= n.retryAt {
		n.begin(&o)
	}
	n.announce(&o)
	return o
}

// refresh takes over which nodes answer.
func (n *Node) refresh(peers []Peer, first bool) {
	var up [Shards]bool
	for _, p := range peers {
		up[p.ID] = p.Up
		if n.peers[p.ID] == nil && p.ID != n.cfg.Self {
			n.peers[p.ID] = &peer{downAt: n.now, announced: -searchEvery}
		}
	}
	for id, p := range n.peers {
		if p == nil || p.up == up[id] && !first {
			continue
		}
		p.up, p.downAt = up[id], n.now
		if p.up {
			p.announced, n.changed = -searchEvery, true
		}
		n.fresh = false
	}
}

// silent reports whether a node has been silent for so long that its shard may be claimed.
func (n *Node) silent(id uint8) bool {
	p := n.peers[id]
	if p == nil {
		return n.now-n.started >= ClaimAfter
	}
	return !p.up && n.now-p.downAt >= ClaimAfter
}

// claim makes this node the owner of shards whose owner is silent.
func (n *Node) claim(o *Output) {
	for shard := range n.owners {
		e := &n.owners[shard]
		if e.Owner == n.cfg.Self || !n.held[shard] || !n.silent(e.Owner) {
			continue
		}
		o.Events = append(o.Events, Event{Kind: Claimed, Shard: e.Shard, Node: e.Owner})
		n.own(e.Shard, max(e.Version, n.issued[shard])+1)
	}
}

// TakeOver says that sessions of a shard go on here, because node from, which had them, has failed. This node is the owner of the shard then, if that one was.
func (n *Node) TakeOver(shard, from uint8) {
	n.held[shard], n.fresh = true, false
	if p := n.peers[from]; p != nil {
		p.boot, p.serial = 0, 0 // nothing moves to it until it announces itself again
	}
	if e := n.owners[shard]; e.Owner == from {
		n.own(shard, max(e.Version, n.issued[shard])+1)
	}
}

// own makes this node the owner.
func (n *Node) own(shard uint8, version uint32) {
	n.owners[shard] = Entry{Shard: shard, Owner: n.cfg.Self, Version: version}
	n.held[shard], n.changed, n.fresh = true, true, false
	n.targets[shard] = -1
}

// announce sends what other nodes have to know.
func (n *Node) announce(o *Output) {
	n.serial++
	var known []Entry
	for _, e := range n.owners {
		if e.Version > 0 {
			known = append(known, e)
		}
	}
	for id, p := range n.peers {
		every := announceEvery
		if p != nil && p.boot == 0 {
			every = searchEvery
		}
		if p == nil || !p.up || n.now-p.announced < every && (!n.changed || p.boot == 0) {
			continue
		}
		p.announced = n.now
		for rest, more := known, true; more; {
			part := rest[:min(len(rest), maxEntries)]
			rest = rest[len(part):]
			more = len(rest) > 0
			n.send(o, uint8(id), &Message{Kind: Announce, Boot: n.cfg.Boot, Serial: n.serial, Draining: n.draining || n.settling(), Room: n.local.Room, Owners: part, Counted: true, Sessions: n.local.Sessions})
		}
	}
	n.changed = false
}

// settling reports whether the node was just started, and has no link with some of the others yet.
func (n *Node) settling() bool {
	if n.now-n.started >= settleFor {
		return false
	}
	for _, p := range n.peers {
		if p != nil && !p.up {
			return true
		}
	}
	return false
}

func (n *Node) send(o *Output, to uint8, m *Message) {
	o.Send = append(o.Send, Send{To: to, Bytes: m.Append(nil)})
}

// Receive handles a message of a node. It returns false if it is none.
func (n *Node) Receive(from uint8, message []byte, now time.Duration) (o Output, ok bool) {
	n.now = max(n.now, now)
	m, ok := Parse(message)
	p := n.peers[from]
	if !ok || p == nil { // a node that Tick has not named yet sends it again
		return o, ok
	}
	switch m.Kind {
	case Announce:
		n.announced(from, p, &m, &o)
	case Begin:
		n.offered(from, p, &m, &o)
	case Session:
		n.session(from, &m, &o)
	case Commit:
		n.committed(from, &m, &o)
	default:
		n.answered(from, &m, &o)
	}
	return o, true
}

// announced takes over what a node announces.
func (n *Node) announced(from uint8, p *peer, m *Message, o *Output) {
	if m.Boot == 0 || m.Boot == p.boot && int32(m.Serial-p.serial) < 0 {
		return
	}
	n.process(from, p, m.Boot, o)
	p.serial, p.draining, p.room, p.counted, p.sessions = m.Serial, m.Draining, m.Room, m.Counted, m.Sessions
	for _, e := range m.Owners {
		if newer(e, n.owners[e.Shard]) {
			n.owners[e.Shard] = e
			n.held[e.Shard] = n.held[e.Shard] || e.Owner == n.cfg.Self
		}
	}
	n.fresh = false
}

// process notes which process a node is. Another one knows nothing of earlier transfers.
func (n *Node) process(from uint8, p *peer, boot uint64, o *Output) {
	if p.boot == boot {
		return
	}
	if p.boot != 0 && n.out != nil && n.out.to == from {
		n.abort(o, "the other node was restarted")
	}
	n.forget(from)
	p.boot, p.serial, p.draining, p.announced = boot, 0, false, -searchEvery
}

// newer reports whether e replaces known.
func newer(e, known Entry) bool {
	switch {
	case e.Version != known.Version:
		return e.Version > known.Version
	case e.Owner == known.Owner || known.Owner == known.Shard:
		return false
	}
	return e.Owner == e.Shard || e.Owner < known.Owner
}
