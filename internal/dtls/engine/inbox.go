package engine

import (
	"sync"
	"sync/atomic"
)

const (
	inboxSlots = 256  // datagrams on their way from other workers
	inboxSize  = 2048 // bytes that each has room for; a larger one makes its slot larger, up to receiveSize
	inboxPosts = 1024
)

// inbox holds what other goroutines have put there for a worker. It is bounded: put refuses what does not fit, and its
// caller counts it.
type inbox struct {
	any   atomic.Bool // the inbox is not empty; reading this is cheaper than locking, and it is rarely true
	mu    sync.Mutex
	ended bool
	wake  func() // ends the worker's wait; not called once ended
	posts []func()
	// items and slots belong together. They are made when first needed.
	items []handed
	spare []handed // the list that was drained last
}

type handed struct {
	buf  []byte
	n    int
	from source
}

// put copies a datagram in.
func (b *inbox) put(d []byte, from source) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || len(d) > receiveSize || len(b.items) >= inboxSlots {
		return false
	}
	if len(b.items) < cap(b.items) {
		b.items = b.items[:len(b.items)+1]
	} else {
		b.items = append(b.items, handed{})
	}
	h := &b.items[len(b.items)-1]
	if len(h.buf) < len(d) {
		h.buf = make([]byte, max(inboxSize, len(d)))
	}
	h.n = copy(h.buf, d)
	h.from = from
	b.any.Store(true)
	b.wake()
	return true
}

func (b *inbox) post(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || len(b.posts) >= inboxPosts {
		return false
	}
	b.posts = append(b.posts, f)
	b.any.Store(true)
	b.wake()
	return true
}

// nudge wakes the worker without a post.
func (b *inbox) nudge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.wake()
	}
}

// take returns everything; the items are valid until the next call.
func (b *inbox) take() ([]handed, []func()) {
	if !b.any.Load() {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.any.Store(false)
	items, posts := b.items, b.posts
	b.items, b.spare = b.spare[:0], items
	b.posts = nil
	return items, posts
}

func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
