package workers

import (
	"sync"
	"sync/atomic"
)

// Limits bounds what a Mailbox holds. 0 means no bound.
type Limits struct {
	Messages int
	// Bytes is the number of queued bytes beyond which no message with bytes is accepted. The last one accepted may
	// exceed it.
	Bytes int
}

// Mailbox passes messages from any goroutine to one worker, each with bytes that it copies. Its memory is reused:
// after the first messages nothing allocates. A worker with an empty mailbox reads one atomic variable per iteration.
// A message that is a function is run by the worker (Inbox).
type Mailbox[M any] struct {
	limits Limits
	wake   func()
	filled atomic.Bool

	mu       sync.Mutex
	changed  sync.Cond // there is space, or a message, or the end
	ended    bool
	messages []M
	data     []byte
	// What Take returned last.
	taken     []M
	takenData []byte
}

// NewMailbox returns a mailbox. wake ends the worker's wait, any goroutine may call it; it is called when the mailbox
// is no longer empty.
func NewMailbox[M any](limits Limits, wake func()) *Mailbox[M] {
	b := &Mailbox[M]{limits: limits, wake: wake}
	b.changed.L = &b.mu
	return b
}

// Put adds a message and a copy of its bytes. It never blocks; false means that the mailbox is full or has ended.
func (b *Mailbox[M]) Put(m M, data ...byte) bool {
	b.mu.Lock()
	if b.ended || b.full(len(data)) {
		b.mu.Unlock()
		return false
	}
	b.messages = append(b.messages, m)
	b.data = append(b.data, data...)
	b.unlockFilled(1)
	return true
}

// PutAll adds messages and a copy of their bytes. It blocks while the mailbox is full; the last messages may exceed
// the limit. False means that the mailbox has ended.
func (b *Mailbox[M]) PutAll(messages []M, data ...byte) bool {
	b.mu.Lock()
	for !b.ended && b.full(len(data)) {
		b.changed.Wait()
	}
	if b.ended {
		b.mu.Unlock()
		return false
	}
	b.messages = append(b.messages, messages...)
	b.data = append(b.data, data...)
	b.unlockFilled(len(messages))
	return true
}

func (b *Mailbox[M]) full(bytes int) bool {
	return b.limits.Messages > 0 && len(b.messages) >= b.limits.Messages ||
		bytes > 0 && b.limits.Bytes > 0 && len(b.data) >= b.limits.Bytes
}

// unlockFilled releases the lock and wakes the worker if the last added messages are the first ones.
func (b *Mailbox[M]) unlockFilled(added int) {
	first := added > 0 && len(b.messages) == added
	if first {
		b.filled.Store(true)
		b.changed.Broadcast()
	}
	b.mu.Unlock()
	if first {
		b.wake()
	}
}

// Waiting reports whether there are messages.
func (b *Mailbox[M]) Waiting() bool { return b.filled.Load() }

// Take returns all messages in order, and their bytes back to back. They are valid until the next call. Only the
// worker calls it, and it clears messages that would keep memory alive.
func (b *Mailbox[M]) Take() (messages []M, data []byte) {
	if !b.filled.Load() {
		return nil, nil
	}
	return b.take()
}

func (b *Mailbox[M]) take() (messages []M, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filled.Store(false)
	b.messages, b.taken = b.taken[:0], b.messages
	b.data, b.takenData = b.takenData[:0], b.data
	b.changed.Broadcast()
	return b.taken, b.takenData
}

// await blocks until there is a message. It is for a worker that does not wait in its own way.
func (b *Mailbox[M]) await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.messages) == 0 {
		b.changed.Wait()
	}
}

// End makes every Put fail and unblocks PutAll. The worker no longer takes messages.
func (b *Mailbox[M]) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.changed.Broadcast()
}
