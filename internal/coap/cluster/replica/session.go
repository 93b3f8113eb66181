package replica

import "time"

// session is what the owner knows of one of its sessions.
type session struct {
	number  uint64
	used    uint64 // sequence numbers that its worker has reported
	usable  uint64 // the worker seals below it; every copy that can be restored has this limit or a higher one
	offered uint64 // limit that batches carry, at least usable

	// Serial numbers of batches since the buddy is the present one; 0: none.
	sentIn    uint64 // the newest that has the session
	offeredIn uint64 // the first with the offered limit
	removedIn uint64 // the first that says that it is gone
	sentAt    time.Duration
	changed   bool // since sentIn
	stored    bool // the buddy has a copy
	queued    bool
	removing  bool
	refused   bool // the buddy has no copy, and none is on its way to it
	inherited bool // the buddy may have a copy that the process before has sent
	unfresh   bool
}

// Add enters a session with the sequence number of its next record, and returns its number and limit. ok is false if there is no room: the session
// then goes on without copies, as no other node knows of it.
func (n *Node) Add(next uint64) (number, limit uint64, ok bool) {
	if n.line.fenced || len(n.sessions) >= n.cfg.Sessions {
		return 0, 0, false
	}
	s := n.add(next)
	return s.number, s.usable, true
}

func (n *Node) add(next uint64) *session {
	n.last++
	s := &session{number: n.last, used: next, usable: n.ahead(next), changed: true}
	s.offered = s.usable
	n.sessions[s.number] = s
	n.enqueue(&n.urgent, s)
	return s
}

// ahead returns the end of a lease that begins at next.
func (n *Node) ahead(next uint64) uint64 { return min(next+n.cfg.Lease, MaxSequence) }

// Used says that the worker of a session seals with next now. Call it when half of the lease is used, and again for as long as the limit has not risen.
func (n *Node) Used(number, next uint64) (o Output) {
	s := n.sessions[number]
	if s == nil || s.removing {
		return o
	}
	s.used = max(s.used, next)
	if !n.halfUsed(s) {
		return o
	}
	if n.line.buddy == (Process{}) || s.refused { // no node can restore it
		s.usable = max(s.usable, n.ahead(s.used))
		s.offered = max(s.offered, s.usable)
		o.Limits = append(o.Limits, Limit{number, s.usable})
		return o
	}
	if s.offered == s.usable { // else a higher one is on its way
		s.changed = true
		n.enqueue(&n.urgent, s)
		n.transmit(&o)
	}
	return o
}

// halfUsed reports whether the session needs another lease.
func (n *Node) halfUsed(s *session) bool { return s.used+n.cfg.Lease/2 >= s.usable }

// Changed says that the changing bytes of a session are others: its address, its replay window. How often to say so is the caller's decision; what
// is not said is lost with the process.
func (n *Node) Changed(number uint64) {
	if s := n.sessions[number]; s != nil && !s.removing {
		s.changed = true
		if !s.refused {
			n.enqueue(&n.later, s)
		}
	}
}

// Remove says that a session has ended or is to leave for another node, and seals nothing more here. It must not leave before it is in
// Output.Removed: a copy that is restored later would use the same sequence numbers as the other node.
func (n *Node) Remove(number uint64) (o Output) {
	s := n.sessions[number]
	if s == nil || s.removing {
		return o
	}
	s.removing = true
	if s.sentIn == 0 && !s.inherited || s.refused {
		n.removed(s, &o)
		return o
	}
	n.enqueue(&n.urgent, s)
	n.transmit(&o)
	return o
}

func (n *Node) removed(s *session, o *Output) {
	delete(n.sessions, s.number)
	delete(n.flying, s.number)
	o.Removed = append(o.Removed, s.number)
}

// NeedsFreshness reports whether requests with unsafe methods need a proof of freshness in this session, by Echo (RFC 9175 section 2).
func (n *Node) NeedsFreshness(number uint64) bool {
	s := n.sessions[number]
	return s != nil && s.unfresh
}

// Fresh says that the client has given the proof.
func (n *Node) Fresh(number uint64) {
	if s := n.sessions[number]; s != nil {
		s.unfresh = false
	}
}

// Len returns how many sessions and copies there are.
func (n *Node) Len() (sessions, copies int) { return len(n.sessions), n.copies }

// Unacknowledged returns how many sessions the buddy would not restore if the process ended now.
func (n *Node) Unacknowledged() (count int) {
	for _, s := range n.sessions {
		if !s.stored {
			count++
		}
	}
	return count
}
