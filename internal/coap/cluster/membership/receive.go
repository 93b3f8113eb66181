package membership

import (
	"net/netip"
	"time"
)

// Received handles a ping or pong of the node id from an address. It returns false if nothing is to be answered. self: the address is
// this node's own.
func (t *Table) Received(addr netip.AddrPort, id uint32, state State, pong, self bool, now time.Duration) (answer bool, out Output) {
	t.advance(now, &out)
	e := t.entries[addr]
	if id == t.self {
		switch {
		case self && e != nil && !e.known: // our own address is among those at which nodes are searched for
			e.group = false
			t.tidy(e)
		case !self && !t.duplicate:
			t.duplicate = true
			out.report(Event{Kind: OwnID, ID: id, Addr: addr})
		}
		return false, out
	}
	switch {
	case self || id >= MaxNodes || e == nil && !t.open:
		return false, out
	case e == nil:
		if e = t.guest(addr, &out); e == nil {
			return false, out
		}
	}
	if !t.recognize(e, id, pong, &out) {
		return !e.fixed, out
	}
	if !e.answered {
		out.report(Event{Kind: Joined, ID: id, Addr: addr})
	}
	e.answered, e.last, e.announced, e.claims = true, t.now, state, false
	return true, out
}

// guest makes room for a node from an address of which nothing was known.
func (t *Table) guest(addr netip.AddrPort, out *Output) *entry {
	if len(t.entries) < MaxNodes+MaxGroup {
		e := t.add(addr)
		e.last = t.now
		return e
	}
	if !t.full {
		t.full = true
		out.report(Event{Kind: Full, Addr: addr})
	}
	return nil
}

// recognize reports whether the node id is at e. Otherwise it notes the claim.
func (t *Table) recognize(e *entry, id uint32, pong bool, out *Output) bool {
	switch holder := t.byID[id]; {
	case holder == e:
		if e.claims && !e.contested { // both ids are announced from here: the first one stays
			e.contested = true
			out.report(Event{Kind: Mistaken, ID: e.claimed, Was: e.id, Addr: e.addr})
		}
		return true
	case e.fixed:
		if !e.contested {
			e.contested = true
			out.report(Event{Kind: Mistaken, ID: id, Was: e.id, Addr: e.addr})
		}
		return false
	case e.known: // another id than that of the node that is known to be here
		t.claim(e, id, pong, out)
		return false
	case holder != nil:
		t.contend(holder, e, out)
		return false
	}
	t.assign(e, id)
	e.answered = false
	return true
}

// claim notes that a message from e announces another id, and has e pinged.
func (t *Table) claim(e *entry, id uint32, pong bool, out *Output) {
	if e.claims && e.claimed == id {
		e.pong = e.pong || pong
		return
	}
	if e.claims && t.now-e.since < answerTime {
		return // one claim at a time
	}
	e.claims, e.claimed, e.pong, e.since = true, id, false, t.now
	t.ping(e, out)
}

// contend notes that rival announces the holder's id, and has the holder pinged.
func (t *Table) contend(holder, rival *entry, out *Output) {
	rival.last = t.now
	if holder.fixed || holder.rival != nil {
		t.refuse(holder, rival, out)
		return
	}
	holder.rival, holder.since = rival, t.now
	t.ping(holder, out)
}

// refuse reports that the holder keeps its id.
func (t *Table) refuse(holder, rival *entry, out *Output) {
	if holder.fixed && !holder.contested {
		holder.contested = true
		out.report(Event{Kind: Duplicate, ID: holder.id, Addr: holder.addr, Other: rival.addr})
	}
}

// Alive notes an authentic message of another kind from an address, which shows that its node lives.
func (t *Table) Alive(addr netip.AddrPort, now time.Duration) (out Output) {
	t.advance(now, &out)
	if e := t.entries[addr]; e != nil && e.known {
		if !e.answered {
			out.report(Event{Kind: Joined, ID: e.id, Addr: addr})
		}
		e.answered, e.last = true, t.now
	}
	return out
}

// ping requests a ping to e, unless it was pinged a moment ago.
func (t *Table) ping(e *entry, out *Output) {
	e.pinged = t.now
	out.Ping = append(out.Ping, e.addr)
}

// advance takes the caller's time. It never goes back, and leaps at most as far as between two ticks.
func (t *Table) advance(now time.Duration, out *Output) {
	passed := now + t.offset - t.now
	switch {
	case !t.started:
		t.now = max(t.now, now)
		return
	case passed < -TickEvery:
		out.report(Event{Kind: Backwards, For: -passed})
		t.offset -= passed
	case passed > jump:
		out.report(Event{Kind: ClockJump, For: passed})
		t.offset -= passed - TickEvery
		passed = TickEvery
	}
	t.now += max(passed, 0)
}
