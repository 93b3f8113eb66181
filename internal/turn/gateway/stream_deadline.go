package gateway

// deadline is one connection's entry in deadlines. The zero value, with its connection, is in none.
type deadline struct {
	conn       *polledConn
	at         int64 // by Options.Now; 0: in no list
	prev, next *deadline
}

// deadlines holds those of one worker's connections that share a length, so that they expire in the order in which they
// were put: each operation takes constant time. The zero value is empty.
type deadlines struct{ first, last *deadline }

// put adds d at the end, from wherever it was. at is no earlier than that of any other.
func (l *deadlines) put(d *deadline, at int64) {
	l.drop(d)
	d.at, d.prev = at, l.last
	if l.last != nil {
		l.last.next = d
	} else {
		l.first = d
	}
	l.last = d
}

// drop takes d out; one that is in no list is ignored.
func (l *deadlines) drop(d *deadline) {
	if d.at == 0 {
		return
	}
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		l.first = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		l.last = d.prev
	}
	d.at, d.prev, d.next = 0, nil, nil
}

// due takes out the first whose time has come and returns its connection, nil if there is none.
func (l *deadlines) due(now int64) *polledConn {
	d := l.first
	if d == nil || d.at > now {
		return nil
	}
	l.drop(d)
	return d.conn
}

// at is the time of the first, 0 of none.
func (l *deadlines) at() int64 {
	if l.first == nil {
		return 0
	}
	return l.first.at
}
