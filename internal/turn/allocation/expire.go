package allocation

// Expire removes what has expired at now. It returns when it must be called again; 0 if nothing will expire.
func (t *Table) Expire(now int64) (next int64) {
	for slot, due, ok := t.due.First(); ok && due <= now; slot, due, ok = t.due.First() {
		t.expire(t.slots.At(slot), now)
	}
	for len(t.reservations) > 0 && t.reservations[0].expires <= now {
		t.expireReservation(t.reservations[0].token)
		t.reservations = t.reservations[1:]
	}
	if _, due, ok := t.due.First(); ok {
		next = due
	}
	if len(t.reservations) > 0 && (next == 0 || t.reservations[0].expires < next) {
		next = t.reservations[0].expires
	}
	return next
}

func (t *Table) expireReservation(token uint64) {
	if relay, ok := t.shared.expireReservation(token); ok {
		t.relays.Release(relay)
	}
}

// expire removes what has expired of one allocation, or the allocation itself.
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

// soonest returns the earliest time at which a part of an allocation expires.
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
