package gateway

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueBytes is how much user data may be queued for one client. More is dropped and counted, because late media
	// is useless.
	queueBytes = 256 << 10
	// queueAnswerBytes is how much more the answers to requests may take. A client that does not read those is
	// disconnected.
	queueAnswerBytes = 64 << 10
	// writeTimeout is how long the client may accept no bytes.
	writeTimeout = 20 * time.Second
	// blockBytes is the size of the memory blocks of queues; longer queues grow theirs.
	blockBytes = 8 << 10
)

// blockPool reuses the memory of empty queues. The zero value is ready to use.
type blockPool struct{ pool sync.Pool }

type block struct{ b []byte }

func (p *blockPool) get() *block {
	if b, ok := p.pool.Get().(*block); ok {
		return b
	}
	return &block{make([]byte, 0, blockBytes)}
}

// put takes an unused block back. A block that a burst has grown is left to the garbage collector.
func (p *blockPool) put(b *block) {
	if b != nil && cap(b.b) <= 4*blockBytes {
		b.b = b.b[:0]
		p.pool.Put(b)
	}
}

// outQueue is the bounded queue to one client between its worker and the goroutine that writes. The worker adds
// without a lock and passes the messages on once per poll; the writer writes all of them at once.
//
//	worker: add, add, add, flush ─► ready ─► writer: one Write (over TLS one a message)
type outQueue struct {
	blocks *blockPool
	queued atomic.Int64 // bytes of pending, ready and what is being written

	pending *block // used by the worker only

	mu       sync.Mutex
	ready    *block
	ending   bool // nothing is added from here on; the writer ends after writing the rest
	cut      bool // the writer ends at once
	wake     chan struct{}
	finished chan struct{} // closed when the writer has ended
}

func newOutQueue(blocks *blockPool) *outQueue {
	return &outQueue{blocks: blocks, wake: make(chan struct{}, 1), finished: make(chan struct{})}
}

// room reports whether size more bytes fit under limit.
func (q *outQueue) room(size, limit int) bool { return int(q.queued.Load())+size <= limit }

// add queues one message, padded to four bytes (RFC 8656 §12.5: a must over TCP and TLS, allowed over DTLS). Only the
// worker calls it.
func (q *outQueue) add(head, body []byte) {
	if q.pending == nil {
		q.pending = q.blocks.get()
	}
	b := append(append(q.pending.b, head...), body...)
	size := len(head) + len(body)
	for range -size & 3 {
		b = append(b, 0)
		size++
	}
	q.pending.b = b
	q.queued.Add(int64(size))
}

// flush passes what was added to the writer. Only the worker calls it.
func (q *outQueue) flush() {
	if q.pending == nil {
		return
	}
	q.mu.Lock()
	if q.ready == nil {
		q.ready, q.pending = q.pending, nil
	} else {
		q.ready.b = append(q.ready.b, q.pending.b...)
		q.pending.b = q.pending.b[:0]
	}
	q.mu.Unlock()
	q.signal()
}

// put queues one message and passes it to the writer at once. Any goroutine may call it.
func (q *outQueue) put(message []byte) {
	if len(message) == 0 {
		return
	}
	q.queued.Add(int64(len(message)))
	q.mu.Lock()
	if q.ready == nil {
		q.ready = q.blocks.get()
	}
	q.ready.b = append(q.ready.b, message...)
	q.mu.Unlock()
	q.signal()
}

func (q *outQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// end makes the writer stop after it has written what was flushed. Any goroutine may call it.
func (q *outQueue) end() { q.stop(false) }

// stop is end; with cut, the writer stops after the current write.
func (q *outQueue) stop(cut bool) {
	q.mu.Lock()
	q.ending = true
	q.cut = q.cut || cut
	q.mu.Unlock()
	q.signal()
}

// take returns what is ready to be written, nil if the writer must end.
func (q *outQueue) take() *block {
	for {
		q.mu.Lock()
		b, ending, cut := q.ready, q.ending, q.cut
		q.ready = nil
		q.mu.Unlock()
		if cut || b == nil && ending {
			return nil
		}
		if b != nil {
			return b
		}
		<-q.wake
	}
}

// deadlineWriter is the part of a connection that a queue writes to.
type deadlineWriter interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// run writes until end, cut or an error. With byMessage every message is a write of its own, and over TLS a record of
// its own, because coturn's client treats a record as a message.
func (q *outQueue) run(w deadlineWriter, byMessage bool) error {
	defer close(q.finished)
	for {
		b := q.take()
		if b == nil {
			return nil
		}
		if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if err := q.write(w, b.b, byMessage); err != nil {
			return err
		}
		q.queued.Add(-int64(len(b.b)))
		q.blocks.put(b)
	}
}

func (q *outQueue) write(w io.Writer, b []byte, byMessage bool) error {
	for byMessage && len(b) > 0 {
		size, ok := frameSize(b)
		if !ok || size == 0 || size > len(b) {
			return errNotTurn // cannot happen: the queue holds messages of this package
		}
		if _, err := w.Write(b[:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := w.Write(b)
	return err
}
