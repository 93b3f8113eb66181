package allocation

// Expire ends what is over at now and returns when it must be called again; 0 if nothing waits.
func (t *Table) Expire(now int64) (next int64) {
	for len(t.due) > 0 && t.due[0].next <= now {
		t.expire(t.due[0], now)
	}
	for len(t.reservations) > 0 && t.reservations[0].expires <= now {
		t.lapse(t.reservations[0].token)
		t.reservations = t.reservations[1:]
	}
	if len(t.due) > 0 {
		next = t.due[0].next
	}
	if len(t.reservations) > 0 && (next == 0 || t.reservations[0].expires < next) {
		next = t.reservations[0].expires
	}
	return next
}

func (t *Table) lapse(token uint64) {
	if relay, ok := t.shared.lapse(token); ok {
		t.relays.Release(relay)
	}
}

// expire ends what is over of one allocation, or itself.
func (t *Table) expire(a *Allocation, now int64) {
	if a.Expires <= now {
		t.Delete(a, Expired)
		return
	}
	for i := len(a.channels.values) - 1; i >= 0; i-- {
		if c := a.channels.values[i]; c.Expires <= now {
			t.unbind(a, c)
		}
	}
	for i := len(a.permissions.values) - 1; i >= 0; i-- {
		if p := a.permissions.values[i]; p.Expires <= now {
			t.forbid(a, p)
		}
	}
	for i := len(a.connections.values) - 1; i >= 0; i-- {
		if c := a.connections.values[i]; c.expires != 0 && c.expires <= now {
			t.disconnect(c)
		}
	}
	t.changed(a)
}

// soonest is when something of an allocation ends first.
func (a *Allocation) soonest() int64 {
	next := a.Expires
	for _, c := range a.channels.values {
		next = min(next, c.Expires)
	}
	for _, p := range a.permissions.values {
		next = min(next, p.Expires)
	}
	for _, c := range a.connections.values {
		if c.expires != 0 {
			next = min(next, c.expires)
		}
	}
	return next
}

// heap is a binary heap of allocations, the one whose turn comes first at its top.
type heap []*Allocation

func (h *heap) push(a *Allocation) {
	a.heap = len(*h)
	*h = append(*h, a)
	h.up(a.heap)
}

func (h *heap) remove(a *Allocation) {
	i, last := a.heap, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.fix((*h)[i])
	}
}

// fix moves an allocation whose time has changed.
func (h *heap) fix(a *Allocation) {
	h.up(a.heap)
	h.down(a.heap)
}

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

func (h heap) up(i int) {
	for i > 0 && h[i].next < h[(i-1)/2].next {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h heap) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h) && h[child].next < h[least].next {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
