package replica

import "time"

// Resume is what a process has left in memory that outlives it.
type Resume struct {
	Term      uint64        // of the entry in whose term it has sent messages last; 0: it has sent none
	Buddy     Process       // of that entry
	SealUntil time.Duration // SealUntil of the process before; 0: not known
	Serial    uint64        // above that of every batch of the processes before
	Now       time.Duration
}

// Resume has the node go on as the process before it, under the same Config.Self, whose memory it has: that process has ended, and the two differ from one that was stopped
// for a while only in what is forgotten. Call it first, and Inherit for each session. The sessions go on at once, below the limits that they had and for as long as that process was entitled to.
//
// What is forgotten is which sessions the buddy has, and under which numbers. So nothing is sent in the term of the process before but empty batches, which keep the buddy from taking
// over. The engine is asked for a new term, of which that process has sent nothing; then no copy of the old one can be restored, and all sessions are sent once more. If the
// buddy was earlier, the process is fenced as any other.
func (n *Node) Resume(r Resume) {
	l := &n.line
	n.now = r.Now
	l.term, l.buddy, l.serial = r.Term, r.Buddy, r.Serial
	l.resuming, l.heard = r.Buddy != (Process{}), r.Now
	if r.SealUntil <= r.Now+Hold-margin { // else it is not a time of this clock
		l.sealUntil = r.SealUntil
	}
}

// Inherit enters a session that the process before has left, with the sequence number of its next record and the limit that it was known to have. ok is false if there is no room:
// then it must be dropped.
func (n *Node) Inherit(next, limit uint64) (number, usable uint64, ok bool) {
	if len(n.sessions) >= n.cfg.Sessions {
		return 0, 0, false
	}
	s := n.add(next)
	if n.line.resuming {
		s.usable, s.offered, s.inherited = limit, limit, true
	}
	return s.number, s.usable, true
}

// inherited is how many sessions the process before has left.
func (n *Node) inherited() (count int) {
	for _, s := range n.sessions {
		if s.inherited {
			count++
		}
	}
	return count
}
