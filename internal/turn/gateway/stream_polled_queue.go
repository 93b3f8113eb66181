package gateway

import (
	"errors"

	"golang.org/x/sys/unix"
)

// polledQueue is what is queued for one client: the messages of a poll in one block of memory, written by one system call. What the kernel does not accept
// stays queued until the poller reports that the socket is writable. The limits are those of outQueue.
type polledQueue struct {
	blocks  *blockPool
	block   *block // nil while nothing is queued
	sent    int    // bytes of it that were written
	waiting bool   // the poller will report that the socket is writable
	due     int    // bytes that must be written before the write deadline
}

// room reports whether size more bytes fit under limit.
func (q *polledQueue) room(size, limit int) bool {
	return q.block == nil && size <= limit || q.block != nil && len(q.block.b)-q.sent+size <= limit
}

// add queues one message, padded to four bytes (RFC 8656 §12.5).
func (q *polledQueue) add(head, body []byte) {
	q.block.b = appendPadded(q.spare(len(head)+len(body)+3), head, body)
}

// addRaw queues bytes unchanged.
func (q *polledQueue) addRaw(b []byte) {
	q.block.b = append(q.spare(len(b)), b...)
}

// spare returns the queued bytes. They are moved to the front of their memory if size more bytes would not fit behind
// them.
func (q *polledQueue) spare(size int) []byte {
	if q.block == nil {
		q.block = q.blocks.get()
	}
	b := q.block.b
	if q.sent > 0 && cap(b)-len(b) < size {
		b = b[:copy(b, b[q.sent:])]
		q.sent = 0
	}
	return b
}

func appendPadded(b, head, body []byte) []byte {
	b = append(append(b, head...), body...)
	for range -(len(head) + len(body)) & 3 {
		b = append(b, 0)
	}
	return b
}

// drop discards what is queued.
func (q *polledQueue) drop() {
	q.blocks.put(q.block)
	q.block, q.sent = nil, 0
}

// rest returns the bytes that the kernel has not accepted yet.
func (q *polledQueue) rest() []byte {
	if q.block == nil {
		return nil
	}
	return q.block.b[q.sent:]
}

// deliver implements stream.deliver, like that of streamConn. Messages after the end are lost with the connection.
func (c *polledConn) deliver(head, body []byte) bool {
	if c.ended {
		return true
	}
	size := len(head) + len(body) + 3
	if c.tls != nil {
		size += recordsRoom
	}
	if !c.out.room(size, queueBytes) {
		if isUserData(head) {
			return false
		}
		if !c.out.room(size, queueBytes+queueAnswerBytes) {
			c.end(clientSlow)
			return false
		}
	}
	if c.tls != nil {
		c.addTLS(head, body)
	} else {
		c.out.add(head, body)
	}
	return true
}

// flush implements stream.flush. It writes, unless the poller is to report when the socket is writable.
func (c *polledConn) flush() {
	if !c.out.waiting {
		c.write()
	}
}

// write writes what is queued. A client that has not accepted within writeTimeout all bytes that were queued at its
// beginning is disconnected.
func (c *polledConn) write() {
	q, w := &c.out, c.worker
	if c.ended || q.block == nil {
		return
	}
	n, err := c.socket.Write(q.rest())
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		c.end(connectionBroken)
		return
	}
	q.sent += n
	left := len(q.rest())
	if left == 0 {
		q.drop()
	}
	if (left > 0) != q.waiting {
		q.waiting = left > 0
		if err := w.poller.AwaitRoom(&c.socket, c.token, q.waiting); err != nil {
			c.end(connectionBroken)
			return
		}
		q.due = 0
	}
	if q.due -= n; q.due <= 0 {
		w.writeEnds.drop(&c.writeEnd)
		if q.due = left; left > 0 {
			w.writeEnds.put(&c.writeEnd, w.now+int64(writeTimeout))
		}
	}
}
