package snat

import "math"

// conn is a connection: its replica, its destination, and its turn at the server nodes and servers. 8 bytes, so that ten
// million of them fit.
type conn uint64

const (
	replicaBits = 20
	dstBits     = 14
	viaBits     = 20
)

func newConn(replica, dst int) conn { return conn(replica) | conn(dst)<<replicaBits }

func (c conn) through(via uint32) conn { return c | conn(via)<<(replicaBits+dstBits) }

func (c conn) replica() int { return int(c & (1<<replicaBits - 1)) }
func (c conn) dst() int     { return int(c >> replicaBits & (1<<dstBits - 1)) }
func (c conn) via() int     { return int(c >> (replicaBits + dstBits)) }

// what happens at an event.
type what uint8

const (
	burst   what = iota // open: many come
	slot                // keep: a replica opens its next connection
	connect             // one connection's first SYN
	retry               // a SYN again
	ends                // the lifetime is over
	release             // a hold-down group's ports are free
	grow                // a node's allocation doubles
	start               // original: a process starts
	step                // original: its next connect
	beat                // original: its heartbeats
	tick                // original: the server's loop
)

const never = math.MaxUint64

// timeline is what is to come. Every event lies one of a few constant times ahead, such as the end of a hold-down, so each
// kind of event is a FIFO queue and nothing is ever sorted. Lifetimes that vary are not in here, see simulation.close.
type timeline struct {
	logs    []log
	cursors []cursor
	awake   []head // cursors with events
	first   int    // of these, the one with the earliest
	spare   *chunk
}

// log is what happened, in order. Several cursors may read it, each so much later: the hold-downs of one way to end.
type log struct {
	tail    *chunk
	write   int
	cursors []int
}

// head is the time of a cursor's first event.
type head struct {
	at     uint64
	cursor int
}

// cursor reads a log a constant time later.
type cursor struct {
	log   int
	delay uint64
	what  what
	arg   uint8 // number of the SYN, hold-down group, or stage
	awake bool
	head  *chunk
	read  int
}

type entry struct {
	at   uint64
	conn conn
}

// chunk is a piece of a log.
type chunk struct {
	entries [512]entry
	next    *chunk
	readers int // cursors that are not past it
}

// newLog makes a log that cursors may be added to before anything is written to it.
func (t *timeline) newLog() int {
	t.logs = append(t.logs, log{})
	return len(t.logs) - 1
}

// newCursor has something happen so long after each entry of a log.
func (t *timeline) newCursor(to int, delay uint64, w what, arg uint8) {
	t.cursors = append(t.cursors, cursor{log: to, delay: delay, what: w, arg: arg})
	t.logs[to].cursors = append(t.logs[to].cursors, len(t.cursors)-1)
}

// every makes a log with one cursor.
func (t *timeline) every(delay uint64, w what, arg uint8) int {
	to := t.newLog()
	t.newCursor(to, delay, w, arg)
	return to
}

// append writes an entry, at a time no earlier than those before it.
func (t *timeline) append(to int, at uint64, c conn) {
	l := &t.logs[to]
	if l.tail == nil || l.write == len(l.tail.entries) {
		fresh := t.take(len(l.cursors))
		if l.tail != nil {
			l.tail.next = fresh
		}
		l.tail, l.write = fresh, 0
	}
	l.tail.entries[l.write] = entry{at, c}
	l.write++
	for _, i := range l.cursors {
		if !t.cursors[i].awake {
			t.wake(i, at)
		}
	}
}

// wake sets a cursor that had nothing to read on the entry just written.
func (t *timeline) wake(i int, at uint64) {
	cursor, l := &t.cursors[i], &t.logs[t.cursors[i].log]
	cursor.awake, cursor.head, cursor.read = true, l.tail, l.write-1
	t.awake = append(t.awake, head{at + cursor.delay, i})
	if last := len(t.awake) - 1; t.awake[last].at < t.awake[t.first].at {
		t.first = last
	}
}

// next is the time of the earliest event, or never.
func (t *timeline) next() uint64 {
	if len(t.awake) == 0 {
		return never
	}
	return t.awake[t.first].at
}

// pop returns the earliest event and its cursor; there is one.
func (t *timeline) pop() (conn, *cursor) {
	cursor := &t.cursors[t.awake[t.first].cursor]
	l := &t.logs[cursor.log]
	c := cursor.head.entries[cursor.read].conn
	cursor.read++
	switch {
	case cursor.head == l.tail && cursor.read == l.write:
		cursor.awake = false
		last := len(t.awake) - 1
		t.awake[t.first] = t.awake[last]
		t.awake = t.awake[:last]
		if l.write == len(l.tail.entries) {
			t.leave(l, cursor.head)
		}
	case cursor.read == len(cursor.head.entries):
		done := cursor.head
		cursor.head, cursor.read = done.next, 0
		t.awake[t.first].at = cursor.head.entries[0].at + cursor.delay
		t.leave(l, done)
	default:
		t.awake[t.first].at = cursor.head.entries[cursor.read].at + cursor.delay
	}
	t.first = 0
	for i := 1; i < len(t.awake); i++ {
		if t.awake[i].at < t.awake[t.first].at {
			t.first = i
		}
	}
	return c, cursor
}

// leave ends a cursor's reading of a chunk, which is kept for later after the last.
func (t *timeline) leave(l *log, c *chunk) {
	if c.readers--; c.readers > 0 {
		return
	}
	if l.tail == c {
		l.tail = nil
	}
	c.next, t.spare = t.spare, c
}

func (t *timeline) take(readers int) *chunk {
	c := t.spare
	if c == nil {
		c = new(chunk)
	}
	t.spare, c.next, c.readers = c.next, nil, readers
	return c
}
