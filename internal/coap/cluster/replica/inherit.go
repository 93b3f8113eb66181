package replica

import (
	"maps"
	"slices"
	"time"
)

// heritage is the sessions that an earlier process has left in memory.
type heritage struct {
	term    uint64 // of its entry; 0: not known yet
	numbers []uint64
	asked   time.Duration
}

// Inherit says that sessions in memory here are covered by the entry of an earlier process, which has ended. next is the sequence number of
// each session's next record. The sessions, whose numbers it returns (those that there is no room for have none: drop them), seal nothing
// until they are in Output.Restored: a buddy may have taken them over. The memory has to say for each session which process's entry
// covers it, and to say that it is this one only then. Call it before the first Tick, once for each earlier process.
func (n *Node) Inherit(from Process, next []uint64) (numbers []uint64) {
	h := &heritage{}
	for _, used := range next {
		if len(n.sessions) >= n.cfg.Sessions {
			break
		}
		n.last++
		s := &session{number: n.last, used: used, usable: used, offered: used, suspended: true, unfresh: true}
		n.sessions[s.number] = s
		h.numbers = append(h.numbers, s.number)
	}
	n.heritages[from] = h
	return h.numbers
}

// reclaim asks the engine for the inherited sessions.
func (n *Node) reclaim(o *Output) {
	for _, from := range slices.SortedFunc(maps.Keys(n.heritages), compare) {
		h := n.heritages[from]
		if h.term > 0 && (h.asked == 0 || n.now-h.asked >= repeatEvery) {
			h.asked = max(n.now, 1)
			o.Changes = append(o.Changes, Change{Owner: from, Term: h.term, Taken: true, By: n.cfg.Self})
		}
	}
}

// inherit handles the entry of an earlier process.
func (n *Node) inherit(e Entry, h *heritage, o *Output) {
	if e.Term <= h.term {
		return
	}
	if h.term = e.Term; !e.Taken {
		h.asked = 0
		n.reclaim(o)
		return
	}
	event := Event{Inherits, e.By.Node, len(h.numbers)}
	for _, number := range h.numbers {
		s := n.sessions[number]
		if e.By != n.cfg.Self {
			event.Kind = Disinherited
			delete(n.sessions, number)
			o.Dropped = append(o.Dropped, number)
			continue
		}
		s.suspended, s.changed = false, true
		s.usable = n.ahead(s.used)
		s.offered = s.usable
		n.enqueue(&n.urgent, s)
		o.Restored = append(o.Restored, Restored{Number: number, From: e.Owner, Start: s.used, Limit: s.usable, Inherited: true})
	}
	o.Events = append(o.Events, event)
	delete(n.heritages, e.Owner)
}
