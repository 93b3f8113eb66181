package gateway

// deadline is one connection's entry in deadlines. The zero value is in no list.
type deadline struct {
	conn       interface{ end(streamReason) } // a polledConn or a dtlsSession
	at         int64                          // by Options.Now; 0: in no list
	prev, next *deadline
}

// deadlines holds the deadlines of equal length of one worker's connections. They expire in the order in which they
// were put, so each operation takes constant time. The zero value is empty.
type deadlines struct{ first, last *deadline }

// put moves d to the end of the list. at must not be earlier than that of any other entry.
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

// drop removes d. An entry that is in no list is ignored.
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

// due removes the first entry if its time has come and returns its connection, else nil.
func (l *deadlines) due(now int64) interface{ end(streamReason) } {
	d := l.first
	if d == nil || d.at > now {
		return nil
	}
	l.drop(d)
	return d.conn
}

// at returns the time of the first entry, 0 if there is none.
func (l *deadlines) at() int64 {
	if l.first == nil {
		return 0
	}
	return l.first.at
}
