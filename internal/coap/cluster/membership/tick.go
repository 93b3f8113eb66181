package membership

import (
	"slices"
	"time"
)

// Tick runs what is due. Call it every TickEvery.
func (t *Table) Tick(now time.Duration) (out Output) {
	t.advance(now, &out)
	first := !t.started
	if first {
		t.started, t.begin = true, t.now
	}
	gone, up, ready, initialized := false, 0, 0, false
	for _, e := range slices.Clone(t.order) {
		t.decide(e, &out)
		if t.alive(e) {
			up++
			if e.announced >= StateUp {
				ready++
			}
			initialized = initialized || e.announced == StateInitialized
		} else if e.up || e.known && !e.fixed {
			gone = t.lost(e, &out) || gone
		}
		e.up = t.alive(e)
		if t.now-e.last > Refresh+Expiration {
			t.tidy(e)
		}
	}
	if gone || first || up == 0 || t.now-t.begin < Discover || t.now >= t.searchAt {
		t.search(&out)
	}
	for _, e := range t.order {
		if e.answered && t.now-e.last >= Refresh && t.now > e.pinged {
			t.ping(e, &out)
		}
	}
	t.progress(up, ready, initialized, &out)
	return out
}

func (t *Table) alive(e *entry) bool {
	return e.answered && t.now-e.last <= Refresh+Expiration
}

// lost notes that a node is silent. It reports whether its id is free now.
func (t *Table) lost(e *entry, out *Output) bool {
	kind := Silent
	if !e.fixed {
		kind = Left
	}
	out.report(Event{Kind: kind, ID: e.id, Addr: e.addr, For: t.now - e.last})
	if e.fixed {
		return false
	}
	t.release(e)
	e.answered = false
	t.tidy(e)
	return true
}

// decide resolves the claims on a node's id or address that have been open for answerTime.
func (t *Table) decide(e *entry, out *Output) {
	if e.rival != nil && t.now-e.since >= answerTime {
		t.contest(e, out)
	}
	if e.claims && t.now-e.since >= answerTime {
		e.claims = false
		holder := t.byID[e.claimed]
		if e.known && e.pong && (holder == nil || holder == e) {
			was := e.id
			t.assign(e, e.claimed)
			e.last = t.now
			out.report(Event{Kind: Renamed, ID: e.id, Was: was, Addr: e.addr})
		}
	}
}

// contest decides between the holder of an id and an address that claims it.
func (t *Table) contest(e *entry, out *Output) {
	rival, id := e.rival, e.id
	e.rival = nil
	switch {
	case e.last >= e.since: // it has answered
		if !e.contested {
			e.contested = true
			out.report(Event{Kind: Duplicate, ID: id, Addr: e.addr, Other: rival.addr})
		}
	case t.now-rival.last <= answerTime+TickEvery && !rival.known:
		t.release(e)
		e.answered = false
		t.assign(rival, id)
		rival.answered, rival.last = true, t.now
		out.report(Event{Kind: Moved, ID: id, Addr: rival.addr, Other: e.addr})
		t.tidy(e)
	}
}

// search pings the addresses of which no node has answered.
func (t *Table) search(out *Output) {
	t.searchAt = t.now + Discover
	for _, e := range t.order {
		if !e.answered || e.fixed && !t.alive(e) {
			t.ping(e, out)
		}
	}
}

// complete reports whether this node has found the others. up is how many answer.
func (t *Table) complete(up int) bool {
	if t.discovered {
		return t.grouped && (up == len(t.order) || t.now-t.groupedAt >= Discover)
	}
	return up == len(t.order)
}

// progress moves the state that pings announce: first when every address has a node that answers, then when all of them announce that,
// or one of them that the cluster has got there before. It never goes back, because Californium's nodes read it as progress of the start.
func (t *Table) progress(up, ready int, initialized bool, out *Output) {
	before := t.state
	if t.state == StateStart && t.complete(up) {
		t.state = StateUp
		out.report(Event{Kind: Complete})
	}
	if t.state == StateUp && (ready == len(t.order) || initialized) {
		t.state = StateInitialized
	}
	if t.state == before {
		return
	}
	for _, e := range t.order {
		if t.alive(e) && e.pinged < t.now {
			t.ping(e, out)
		}
	}
}
