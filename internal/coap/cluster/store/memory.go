package store

import (
	"context"
	"errors"
	"sync"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
)

// ErrUnreachable is the error of a Memory that is cut off.
var ErrUnreachable = errors.New("the store cannot be reached")

// Memory is a store within the process. The zero value is empty.
type Memory struct {
	mu        sync.Mutex
	revision  uint64
	entries   map[replica.Process]replica.Entry
	followers map[chan replica.Entry]struct{}
	cut       bool
}

// followed is how many changes a follower may be behind before it begins again.
const followed = 256

// Change implements the store.
func (m *Memory) Change(ctx context.Context, c replica.Change) (replica.Entry, error) {
	if err := ctx.Err(); err != nil {
		return replica.Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut {
		return replica.Entry{}, ErrUnreachable
	}
	e, known := m.entries[c.Owner]
	switch {
	case !known && c.Term > 0:
		return gone(c.Owner, m.revision), nil
	case e.Term != c.Term:
		return e, nil
	}
	m.revision++
	e = replica.Entry{Owner: c.Owner, Term: m.revision, Buddy: c.Buddy, Taken: c.Taken, By: c.By}
	if m.entries == nil {
		m.entries = map[replica.Process]replica.Entry{}
	}
	m.entries[c.Owner] = e
	m.publishLocked(e)
	return e, nil
}

// Delete implements the store.
func (m *Memory) Delete(_ context.Context, owner replica.Process, term uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e, known := m.entries[owner]; {
	case m.cut:
		return ErrUnreachable
	case known && e.Term == term:
		delete(m.entries, owner)
		m.revision++
		m.publishLocked(gone(owner, m.revision))
	}
	return nil
}

// publishLocked passes a change to all followers. One that has not taken the changes before loses its channel, and begins again.
func (m *Memory) publishLocked(e replica.Entry) {
	for f := range m.followers {
		select {
		case f <- e:
		default:
			delete(m.followers, f)
			close(f)
		}
	}
}

// Follow implements the store.
func (m *Memory) Follow(ctx context.Context, entry func(replica.Entry)) error {
	changes := make(chan replica.Entry, followed)
	m.mu.Lock()
	if m.cut {
		m.mu.Unlock()
		return ErrUnreachable
	}
	if m.followers == nil {
		m.followers = map[chan replica.Entry]struct{}{}
	}
	m.followers[changes] = struct{}{}
	all := make([]replica.Entry, 0, len(m.entries))
	for _, e := range m.entries {
		all = append(all, e)
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.followers, changes)
	}()
	for _, e := range all {
		entry(e)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-changes:
			if !ok {
				return ErrUnreachable
			}
			entry(e)
		}
	}
}

// Cut makes the store unreachable, or reachable again.
func (m *Memory) Cut(off bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = off
	for f := range m.followers {
		if off {
			delete(m.followers, f)
			close(f)
		}
	}
}

// Close implements the store.
func (*Memory) Close() error { return nil }
