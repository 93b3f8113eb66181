package replica

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// stream is what an owner has sent to this process, its buddy.
type stream struct {
	term    uint64
	serial  uint64 // of the newest batch
	heard   time.Duration
	copies  map[uint64]replica
	asked   time.Duration // when the engine was asked to let this process take over
	closing bool          // it was: nothing is acknowledged until the engine has answered
}

// replica is a copy of a session: the bytes that never change, then the others.
type replica struct {
	limit  uint64
	bytes  []byte
	static uint16 // length
}

// store handles a batch.
func (n *Node) store(from uint8, m *batch, o *Output) {
	owner := Process{from, m.boot}
	if m.to != n.cfg.Boot || m.boot == 0 || owner == n.cfg.Self || n.line.fenced {
		return
	}
	st := n.streams[owner]
	if st == nil {
		if m.term <= n.floors[from] || len(n.streams) >= maxStreams {
			return
		}
		st = &stream{term: m.term, copies: map[uint64]replica{}}
		n.streams[owner] = st
	}
	switch {
	case m.term > st.term: // another buddy was it meanwhile: these copies are old
		n.wipe(st)
		*st = stream{term: m.term, copies: st.copies}
	case m.term < st.term || m.serial <= st.serial || st.closing:
		return
	}
	st.serial, st.heard = m.serial, n.now
	a := ack{owner: m.boot, boot: n.cfg.Boot, term: m.term, serial: m.serial}
	for i := range m.items {
		a.answers = append(a.answers, answer{m.items[i].number, n.apply(st, &m.items[i])})
	}
	o.Send = append(o.Send, Send{from, a.append(nil)})
}

// apply does what an item says.
func (n *Node) apply(st *stream, i *item) result {
	c, known := st.copies[i.number]
	switch {
	case i.op == opRemove:
		if known {
			clear(c.bytes)
			delete(st.copies, i.number)
			n.copies--
		}
		return resultStored
	case i.op == opChange && !known:
		return resultRefused
	case i.op == opChange:
		static := c.bytes[:c.static]
		if len(c.bytes)-int(c.static) == len(i.changing) {
			copy(c.bytes[c.static:], i.changing)
		} else {
			old := c.bytes
			c.bytes = slices.Concat(static, i.changing)
			clear(old)
		}
	case !known && n.copies >= n.cfg.Copies:
		return resultRefused
	default:
		if !known {
			n.copies++
		}
		clear(c.bytes)
		c.bytes, c.static = slices.Concat(i.static, i.changing), uint16(len(i.static))
	}
	c.limit = max(c.limit, i.limit)
	st.copies[i.number] = c
	return resultStored
}

// claim asks the engine for the sessions of owners that are silent.
func (n *Node) claim(o *Output) {
	for _, owner := range slices.SortedFunc(maps.Keys(n.streams), compare) {
		st := n.streams[owner]
		if n.now-st.heard < Hold || n.up(owner) && !st.closing || st.asked > 0 && n.now-st.asked < repeatEvery {
			continue
		}
		st.asked, st.closing = max(n.now, 1), true
		o.Changes = append(o.Changes, Change{Owner: owner, Term: st.term, Taken: true, By: n.here()})
	}
}

func compare(a, b Process) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Boot, b.Boot))
}

func (n *Node) up(p Process) bool { return slices.Contains(n.peers, Peer{p, true}) }

// entry handles the entry of an owner that this process has copies of.
func (n *Node) entry(e Entry, o *Output) {
	st := n.streams[e.Owner]
	switch {
	case st == nil || e.Term <= st.term:
		return
	case e.Taken && e.By == n.here():
		n.takeOver(e.Owner, st, o)
		return
	}
	n.discard(e.Owner, o) // a batch of the new term may make it the buddy again
}

// takeOver restores the copies. The engine has made the change only if the owner's term was that of the stream when it was requested, and the owner can
// raise it no more, so the copies are of its last term.
func (n *Node) takeOver(owner Process, st *stream, o *Output) {
	event := Event{Kind: TookOver, Node: owner.Node}
	lost := 0
	for _, number := range slices.Sorted(maps.Keys(st.copies)) {
		c := st.copies[number]
		if len(n.sessions) >= n.cfg.Sessions || c.limit >= MaxSequence {
			lost++
			continue
		}
		s := n.add(c.limit)
		s.unfresh = true
		event.Sessions++
		o.Restored = append(o.Restored, Restored{
			Number: s.number, From: owner, Start: c.limit, Limit: s.usable,
			Static: slices.Clone(c.bytes[:c.static]), Changing: slices.Clone(c.bytes[c.static:]),
		})
	}
	o.Events = append(o.Events, event)
	if lost > 0 {
		o.Events = append(o.Events, Event{NoRoom, owner.Node, lost})
	}
	n.end(owner, st)
}

// discard drops the copies of an owner.
func (n *Node) discard(owner Process, o *Output) {
	st := n.streams[owner]
	o.Events = append(o.Events, Event{Discarded, owner.Node, len(st.copies)})
	n.end(owner, st)
}

// end forgets a stream. Batches of it that are on their way do not begin it again.
func (n *Node) end(owner Process, st *stream) {
	n.wipe(st)
	n.floors[owner.Node] = max(n.floors[owner.Node], st.term)
	delete(n.streams, owner)
}

// wipe overwrites copies, which have keys.
func (n *Node) wipe(st *stream) {
	for _, c := range st.copies {
		clear(c.bytes)
	}
	n.copies -= len(st.copies)
	clear(st.copies)
}
