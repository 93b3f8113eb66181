package replica

import (
	"maps"
	"math"
	"slices"
	"time"
)

// line is the own entry, and what follows from it.
type line struct {
	term       uint64 // 0: there is none: no node has copies
	buddy      Process
	fenced     bool
	resuming   bool // the term is one in which the process before this one has sent: see Resume
	sealUntil  time.Duration
	heard      time.Duration // newest Ack, or when the buddy became it
	serial     uint64        // of the newest batch
	sent       [sentRing]time.Duration
	sentAt     time.Duration
	requested  time.Duration // newest Change
	avoid      Process       // was replaced
	avoidUntil time.Duration
}

// SealUntil is when the owner stops to seal, unless it is later by then: by the same clock as Tick. Ask before each batch of records.
func (n *Node) SealUntil() time.Duration {
	switch {
	case n.line.fenced:
		return math.MinInt64
	case n.line.buddy == Process{}:
		return math.MaxInt64
	}
	return n.line.sealUntil
}

// Fenced reports whether another process has taken the sessions over. The caller goes on with a new Node of another Boot.
func (n *Node) Fenced() bool { return n.line.fenced }

// Line returns the own entry: 0 if there is none. What outlives the process has to say so before a message of the new term is sent.
func (n *Node) Line() (term uint64, buddy Process) { return n.line.term, n.line.buddy }

// propose asks the engine for another buddy if the present one does not answer, and for another term to go on with after a restart.
func (n *Node) propose(o *Output) {
	l := &n.line
	answers := l.buddy != (Process{}) && n.answers(l.buddy)
	if l.fenced || answers && !l.resuming {
		return
	}
	if l.requested > 0 && n.now-l.requested < repeatEvery {
		return
	}
	to := l.buddy
	if !answers {
		if l.buddy != (Process{}) {
			l.avoid, l.avoidUntil = l.buddy, n.now+avoidFor
		}
		if to = n.choose(); to == l.buddy { // both none
			return
		}
	}
	l.requested = n.now
	o.Changes = append(o.Changes, Change{Owner: n.cfg.Self, Term: l.term, Buddy: to})
}

// answers reports whether the buddy is there. One that is not known yet, shortly after a restart, has the time that others have.
func (n *Node) answers(buddy Process) bool {
	if n.now-n.line.heard < switchAfter {
		for _, p := range n.peers {
			if p.Node == buddy.Node {
				return p.Boot == buddy.Boot
			}
		}
		return true
	}
	return false
}

// choose returns the best buddy by rendezvous hashing: of all nodes that answer, the one whose hash with this node's id is the highest. When a node
// comes or goes, only its own pairs change, and each node is the buddy of about one other.
func (n *Node) choose() (best Process) {
	var most uint64
	for _, p := range n.peers {
		if !p.Up || p.Boot == 0 || p.Node == n.cfg.Self.Node || p.Process == n.line.avoid && n.now < n.line.avoidUntil {
			continue
		}
		if h := mix(uint64(n.cfg.Self.Node)<<8 | uint64(p.Node)); best == (Process{}) || h > most {
			best, most = p.Process, h
		}
	}
	return best
}

// mix is the output function of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// own handles the own entry.
func (n *Node) own(e Entry, o *Output) {
	l := &n.line
	switch {
	case l.fenced || e.Term <= l.term:
		return
	case e.Taken:
		n.fence(e.By.Node, o)
		return
	}
	if l.resuming {
		l.resuming = false
		o.Events = append(o.Events, Event{Resumed, n.cfg.Self.Node, n.inherited()})
	}
	l.term, l.buddy, l.heard, l.requested = e.Term, e.Buddy, n.now, 0
	l.sealUntil = n.now + Hold - margin // the buddy has received nothing yet, and leaves the sessions alone for Hold from when it has
	clear(l.sent[:])
	l.sentAt = 0
	n.restart(o)
	event := Event{Kind: Replicates, Node: e.Buddy.Node, Sessions: len(n.sessions)}
	if e.Buddy == (Process{}) {
		event.Kind, event.Node = Alone, 0
	}
	o.Events = append(o.Events, event)
	n.transmit(o)
}

// fence drops all sessions: another process has them.
func (n *Node) fence(by uint8, o *Output) {
	n.line.fenced = true
	o.Events = append(o.Events, Event{Kind: Fenced, Node: by, Sessions: len(n.sessions)})
	o.Dropped = slices.AppendSeq(o.Dropped, maps.Keys(n.sessions))
	clear(n.sessions)
	clear(n.flying)
	n.urgent, n.later, n.refused = queue{}, queue{}, queue{}
	for _, p := range slices.SortedFunc(maps.Keys(n.streams), compare) { // nothing can be restored into a process that was taken over
		n.discard(p, o)
	}
}
