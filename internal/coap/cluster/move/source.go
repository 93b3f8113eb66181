package move

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// phase is how far a transfer is.
type phase uint8

const (
	asking phase = iota
	moving
	committing
)

// outgoing is a transfer of a shard to another node.
type outgoing struct {
	id          uint64
	shard, to   uint8
	phase       phase
	since, sent time.Duration // of the phase, and of its newest message
	version     uint32        // of Commit
	next        uint32
	flights     map[uint32]*flight
	empty       []bool // workers that have no session of the shard left
	moved, lost int
	late        bool // there are more sessions: they were not ready, or have come meanwhile
}

// flight is a session on its way: it is here no longer, and it is not known whether it is there.
type flight struct {
	id          string
	message     []byte
	first, last time.Duration
}

// Drain moves all sessions to other nodes, and goes on with what comes later, until Undrain. to: the node that is to take the own
// shard; -1: the one with the fewest sessions that has room for them.
func (n *Node) Drain(to int) error {
	switch {
	case to == int(n.cfg.Self):
		return fmt.Errorf("node %d cannot move its sessions to itself", to)
	case to >= Shards || to < -1:
		return fmt.Errorf("there is no node %d", to)
	case to >= 0 && !n.peers[to].capable():
		return fmt.Errorf("node %d does not take sessions: %s", to, n.why(n.peers[to]))
	}
	if to < 0 && n.target(n.cfg.Self) < 0 {
		return errors.New("no other node takes sessions: none is up, runs Weir, and does not drain itself")
	}
	n.draining, n.wanted, n.changed, n.retryAt, n.cause = true, to, true, 0, ""
	return nil
}

func (n *Node) why(p *peer) string {
	switch {
	case p == nil || !p.up:
		return "it does not answer"
	case p.boot == 0:
		return "it does not know how, as a node of Californium"
	}
	return "it drains itself"
}

// Undrain ends a drain. The shards that this node is the home of return.
func (n *Node) Undrain() { n.draining, n.wanted, n.changed = false, -1, true }

// Draining is how far a drain is.
type Draining struct {
	On    bool
	Done  bool // nothing is left to move, for now
	To    int  // node that takes sessions now; -1: none
	Cause string
}

// Draining returns how far the drain is.
func (n *Node) Draining() Draining {
	d := Draining{On: n.draining, To: -1, Cause: n.cause}
	if n.out != nil {
		d.To = int(n.out.to)
	}
	_, _, left := n.due()
	d.Done = n.draining && n.out == nil && !left
	return d
}

// due returns the next shard to move, and where to: -1 if no node takes it. left: there is one.
func (n *Node) due() (shard uint8, to int, left bool) {
	to = -1
	for i := range n.owners {
		s := uint8(i)
		owner, home := n.owners[i].Owner, n.peers[i]
		if !n.held[i] || n.receives(s) {
			continue
		}
		at := -1
		switch {
		case s == n.cfg.Self && !n.draining:
			continue
		case s == n.cfg.Self && owner != n.cfg.Self && n.local.Own == 0:
			continue
		case s != n.cfg.Self && home.capable():
			at = i
		case owner != n.cfg.Self && n.peers[owner].capable():
			at = int(owner)
		case !n.draining:
			continue
		default:
			at = n.target(s)
		}
		left = true
		if at >= 0 {
			return s, at, true
		}
		shard = s
	}
	return shard, to, left
}

// receives reports whether another node moves sessions of the shard here.
func (n *Node) receives(shard uint8) bool {
	for _, in := range n.in {
		if in.shard == shard {
			return true
		}
	}
	return false
}

// target chooses the node that a drain moves a shard to: the one requested, else the one that has got sessions of it before, else the one
// with the fewest sessions. -1: there is none.
func (n *Node) target(shard uint8) int {
	for _, id := range []int{n.wanted, n.targets[shard]} {
		if id >= 0 && n.peers[id].capable() {
			return id
		}
	}
	need := uint32(0)
	if shard == n.cfg.Self {
		need = n.local.Own
	}
	best := -1
	for id, p := range n.peers {
		if p.capable() && (best < 0 || p.before(n.peers[best], need)) {
			best = id
		}
	}
	return best
}

// before reports whether a shard of so many sessions is for p rather than for q.
func (p *peer) before(q *peer, need uint32) bool {
	fits := p.room >= need
	switch {
	case fits != (q.room >= need):
		return fits
	case p.counted != q.counted:
		return p.counted
	case fits && p.counted && p.sessions != q.sessions:
		return p.sessions < q.sessions
	}
	return p.room > q.room
}

// begin starts the transfer that is due.
func (n *Node) begin(o *Output) {
	shard, to, left := n.due()
	if !left || to < 0 {
		return
	}
	n.out = &outgoing{
		id: n.cfg.Random(), shard: shard, to: uint8(to), since: n.now, flights: map[uint32]*flight{}, empty: make([]bool, n.cfg.Workers),
	}
	n.fresh = false
	o.Events = append(o.Events, Event{Kind: Started, Shard: shard, Node: uint8(to)})
	n.ask(o)
}

// ask sends the message of the phase.
func (n *Node) ask(o *Output) {
	t := n.out
	t.sent = n.now
	if t.phase == committing {
		n.send(o, t.to, &Message{Kind: Commit, Transfer: t.id, Shard: t.shard, Version: t.version})
		return
	}
	count := uint32(0)
	if t.shard == n.cfg.Self {
		count = n.local.Own
	}
	n.send(o, t.to, &Message{
		Kind: Begin, Transfer: t.id, Shard: t.shard, CIDLength: n.cfg.CIDLength, Draining: n.draining, Room: count, Boot: n.cfg.Boot,
		For: n.peers[t.to].boot,
	})
}

// advance repeats what has no answer, and gives up a transfer whose other node does not answer.
func (n *Node) advance(o *Output) {
	t := n.out
	switch {
	case t == nil:
		return
	case !n.peers[t.to].up || t.phase != moving && n.now-t.since >= giveUp:
		n.abort(o, "the other node does not answer")
		return
	case t.phase != moving:
		if n.now-t.sent >= repeatEvery {
			n.ask(o)
		}
		return
	}
	for _, f := range t.flights {
		if n.now-f.first >= giveUp {
			n.abort(o, "the other node does not answer")
			return
		}
		if n.now-f.last >= repeatEvery {
			f.last = n.now
			o.Send = append(o.Send, Send{To: t.to, Bytes: f.message})
		}
	}
	n.conclude(o)
}

// Moving reports whether sessions move to another node.
func (n *Node) Moving() bool { return n.out != nil }

// Wanted returns how many sessions of which shard a worker may export now. For each of them it takes the session away from its own
// tables, so that nothing of it is sealed or kept here any more, and then calls Exported. If it has none, it calls Empty.
func (n *Node) Wanted(worker int) (shard uint8, count int) {
	t := n.out
	if t == nil || t.phase != moving || worker >= len(t.empty) || t.empty[worker] {
		return 0, 0
	}
	return t.shard, min(atOnce, Window-len(t.flights))
}

// Exported takes a session of a shard that its worker has given up. id is returned when it is settled.
func (n *Node) Exported(shard uint8, id string, session []byte, now time.Duration) (o Output) {
	t := n.out
	if t == nil || t.phase != moving || t.shard != shard || len(session) > MaxSession {
		n.stats.Lost++
		o.Settled = append(o.Settled, Settled{ID: id})
		return o
	}
	n.now = max(n.now, now)
	m := Message{Kind: Session, Transfer: t.id, Sequence: t.next, Session: session}
	f := &flight{id: id, message: m.Append(nil), first: n.now, last: n.now}
	t.flights[t.next] = f
	t.next++
	o.Send = append(o.Send, Send{To: t.to, Bytes: f.message})
	return o
}

// Empty says that a worker has no session of the shard that could be exported now. left: it has some that can be exported later.
func (n *Node) Empty(worker int, left bool) (o Output) {
	if t := n.out; t != nil && t.phase == moving && worker < len(t.empty) {
		t.empty[worker], t.late = true, t.late || left
		n.conclude(&o)
	}
	return o
}

// conclude hands the shard over when all of its sessions are there.
func (n *Node) conclude(o *Output) {
	t := n.out
	if len(t.flights) > 0 || slices.Contains(t.empty, false) {
		return
	}
	if e := n.owners[t.shard]; e.Owner == n.cfg.Self {
		n.issued[t.shard] = max(e.Version, n.issued[t.shard]) + 1
		t.version = n.issued[t.shard]
	} // else the other node is the owner, or somebody else whom it moves them to
	t.phase, t.since = committing, n.now
	n.ask(o)
}

// answered handles an answer to a message of the transfer.
func (n *Node) answered(from uint8, m *Message, o *Output) {
	t := n.out
	if t == nil || t.to != from || t.id != m.Transfer {
		return
	}
	switch {
	case m.Kind == Abort:
		n.abort(o, "the other node has given it up")
	case m.Kind == Ready && t.phase == asking && m.Code != Accepted:
		n.abort(o, refusal(m.Code))
	case m.Kind == Ready && t.phase == asking:
		t.phase, t.since = moving, n.now
		n.targets[t.shard], n.fresh = int(from), false
	case m.Kind == Ack && t.phase == moving:
		n.acknowledged(m, o)
	case m.Kind == Committed && t.phase == committing:
		n.complete(o)
	}
}

func (n *Node) acknowledged(m *Message, o *Output) {
	t := n.out
	f := t.flights[m.Sequence]
	if f == nil {
		return
	}
	delete(t.flights, m.Sequence)
	clear(f.message) // keys
	moved := m.Code == Accepted
	if moved {
		t.moved++
		n.stats.Out++
	} else {
		t.lost++
		n.stats.Lost++
	}
	o.Settled = append(o.Settled, Settled{ID: f.id, To: t.to, Moved: moved})
	n.conclude(o)
}

// complete ends the transfer: the other node is the owner.
func (n *Node) complete(o *Output) {
	t := n.out
	e := Entry{Shard: t.shard, Owner: t.to, Version: t.version}
	if t.version > 0 && newer(e, n.owners[t.shard]) {
		n.owners[t.shard] = e
	}
	if p := n.peers[t.to]; p != nil { // until it announces them, so that the next shard may go elsewhere
		p.sessions += uint32(t.moved)
		p.room -= min(p.room, uint32(t.moved))
	}
	n.held[t.shard] = t.shard == n.cfg.Self || n.owners[t.shard].Owner == n.cfg.Self || t.late
	n.out, n.cause, n.changed, n.fresh = nil, "", true, false
	n.stats.Transfers++
	o.Events = append(o.Events, Event{Kind: Completed, Shard: t.shard, Node: t.to, Moved: t.moved, Lost: t.lost})
}

// abort ends the transfer. Whether the other node has the sessions without an Ack cannot be known: they are dropped.
func (n *Node) abort(o *Output, cause string) {
	t := n.out
	for _, f := range t.flights {
		clear(f.message)
		o.Settled = append(o.Settled, Settled{ID: f.id})
		t.lost++
		n.stats.Lost++
	}
	n.send(o, t.to, &Message{Kind: Abort, Transfer: t.id})
	n.out, n.cause, n.retryAt, n.fresh = nil, cause, n.now+retryAfter, false
	n.stats.Failed++
	o.Events = append(o.Events, Event{Kind: Failed, Shard: t.shard, Node: t.to, Moved: t.moved, Lost: t.lost, Cause: cause})
}

func refusal(code uint8) string {
	switch code {
	case IsDraining:
		return "the other node drains itself"
	case OtherLength:
		return "the connection ids of the other node have another length"
	case NoRoom:
		return "the other node has no room"
	case IsBusy:
		return "the other node moves the same sessions, or waits to learn whether its own were taken over"
	case OtherBoot:
		return "the other node was restarted"
	}
	return fmt.Sprintf("the other node refuses, code %d", code)
}
