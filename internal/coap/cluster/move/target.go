package move

import "time"

// incoming is a transfer of another node.
type incoming struct {
	id      uint64
	shard   uint8
	last    time.Duration    // when something of it came
	newest  uint32           // highest number that came
	results map[uint32]uint8 // what has become of the numbers within memory of newest
}

// pending is the result of a session that the caller has not imported yet.
const pending = 0xff

// ended is a transfer that is over.
type ended struct {
	from      uint8
	id        uint64
	committed bool
}

// offered handles Begin.
func (n *Node) offered(from uint8, p *peer, m *Message, o *Output) {
	n.process(from, p, m.Boot, o)
	code := uint8(Accepted)
	in := n.in[from]
	switch {
	case in != nil && in.id == m.Transfer: // repeated
	case n.over(from, m.Transfer) != nil:
		return
	case m.For != n.cfg.Boot:
		code = OtherBoot
	case n.local.Silent: // what comes would meet the sessions that are here still
		code = IsBusy
	case n.draining:
		code = IsDraining
	case m.CIDLength != n.cfg.CIDLength:
		code = OtherLength
	case m.Room > n.local.Room:
		code = NoRoom
	case n.out != nil && n.out.shard == m.Shard:
		code = IsBusy
	default:
		n.forget(from)
		n.in[from] = &incoming{id: m.Transfer, shard: m.Shard, last: n.now, results: map[uint32]uint8{}}
		n.held[m.Shard], n.fresh = true, false
		p.draining = m.Draining // the announcement may come later
	}
	n.send(o, from, &Message{Kind: Ready, Transfer: m.Transfer, Code: code})
}

// over returns a transfer that has ended, or nil.
func (n *Node) over(from uint8, id uint64) *ended {
	for i := range n.ended {
		if e := &n.ended[i]; e.from == from && e.id == id {
			return e
		}
	}
	return nil
}

// forget ends the transfer from a node.
func (n *Node) forget(from uint8) {
	if in := n.in[from]; in != nil {
		n.end(from, in, false)
	}
}

func (n *Node) end(from uint8, in *incoming, committed bool) {
	delete(n.in, from)
	if len(n.ended) == finished {
		n.ended = append(n.ended[:0], n.ended[1:]...)
	}
	n.ended = append(n.ended, ended{from, in.id, committed})
	n.fresh = false
}

// expire forgets transfers of which nothing comes.
func (n *Node) expire() {
	for from, in := range n.in {
		if n.now-in.last >= idleAfter {
			n.forget(from)
		}
	}
}

// session handles a session: each number once.
func (n *Node) session(from uint8, m *Message, o *Output) {
	in := n.in[from]
	if in == nil || in.id != m.Transfer {
		n.send(o, from, &Message{Kind: Abort, Transfer: m.Transfer})
		return
	}
	in.last = n.now
	if m.Sequence < in.newest && in.newest-m.Sequence >= memory || m.Sequence > in.newest && m.Sequence-in.newest >= memory {
		return // not one that can be on its way
	}
	if result, known := in.results[m.Sequence]; known {
		if result != pending {
			n.send(o, from, &Message{Kind: Ack, Transfer: in.id, Sequence: m.Sequence, Code: result})
		}
		return
	}
	for ; in.newest < m.Sequence; in.newest++ {
		if in.newest >= memory {
			delete(in.results, in.newest-memory)
		}
	}
	in.results[m.Sequence] = pending
	o.Imports = append(o.Imports, Import{From: from, Shard: in.shard, Transfer: in.id, Sequence: m.Sequence, Session: m.Session})
}

// Imported says whether a session goes on here.
func (n *Node) Imported(i *Import, ok bool) (o Output) {
	code := uint8(Accepted)
	if ok {
		n.stats.In++
		n.held[i.Shard], n.fresh = true, false // the transfer may have ended meanwhile
		if n.out != nil && n.out.shard == i.Shard {
			n.out.late = true
		}
	} else {
		code = NotImported
		n.stats.Refused++
	}
	if in := n.in[i.From]; in != nil && in.id == i.Transfer {
		in.results[i.Sequence] = code
	}
	n.send(&o, i.From, &Message{Kind: Ack, Transfer: i.Transfer, Sequence: i.Sequence, Code: code})
	return o
}

// committed handles Commit.
func (n *Node) committed(from uint8, m *Message, o *Output) {
	in := n.in[from]
	known := in != nil && in.id == m.Transfer
	if e := n.over(from, m.Transfer); !known && (e == nil || !e.committed) {
		n.send(o, from, &Message{Kind: Abort, Transfer: m.Transfer})
		return
	}
	if known {
		n.end(from, in, true)
		if n.targets[m.Shard] == int(from) { // what it had comes back
			n.targets[m.Shard] = -1
		}
		e := Entry{Shard: m.Shard, Owner: n.cfg.Self, Version: m.Version}
		if m.Version > 0 && newer(e, n.owners[m.Shard]) {
			n.own(m.Shard, m.Version)
			o.Events = append(o.Events, Event{Kind: Took, Shard: m.Shard, Node: from})
		}
	}
	n.send(o, from, &Message{Kind: Committed, Transfer: m.Transfer})
}
