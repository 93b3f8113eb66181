// Package workers runs the workers of a user-space data path: one goroutine each, and what others ask of them done between
// two batches, so that a worker's state needs no lock.
//
//	Apply, console ── Do(f) ──► inbox ─ wake ─► worker: batch │ Inbox.Serve │ batch …
//	Run(ctx) ─ one goroutine per worker ─ the first error, or the end of ctx, ends them all
//
// It knows nothing of sockets or steering: a worker is any value, and how it is woken a function. The data path's own
// mutex guards the group, so that what is applied before and after Run begins is in order.
//
//	c := workers.New[*worker](&d.mu)
//	w.inbox = c.Add(w, w.poller.Wake)
//	err := c.Run(ctx, d.begin, (*worker).run, d.watch)
package workers

import (
	"context"
	"sync"
)

// inboxSize is how many requests may wait for one worker before their senders do.
const inboxSize = 16

// Group is the workers of one data path. Its methods want the lock that New got, except for Run, which takes it.
type Group[W any] struct {
	lock    sync.Locker
	members []member[W]
	running bool
}

type member[W any] struct {
	worker W
	inbox  Inbox[W]
	wake   func()
}

// Inbox holds what others asked of one worker.
type Inbox[W any] chan func(W)

// New returns a group without workers, guarded by lock.
func New[W any](lock sync.Locker) *Group[W] { return &Group[W]{lock: lock} }

// Add takes a worker on, before Run. wake ends its wait; any goroutine may call it.
func (c *Group[W]) Add(worker W, wake func()) Inbox[W] {
	inbox := make(Inbox[W], inboxSize)
	c.members = append(c.members, member[W]{worker, inbox, wake})
	return inbox
}

// Running says whether the workers serve their inboxes.
func (c *Group[W]) Running() bool { return c.running }

// Do runs f for every worker, one after the other, on the worker's goroutine while Run is under way, and waits.
func (c *Group[W]) Do(f func(W)) {
	for i := range c.members {
		c.One(i, f)
	}
}

// One is Do for one worker, by the order of Add.
func (c *Group[W]) One(i int, f func(W)) {
	m := &c.members[i]
	if !c.running {
		f(m.worker)
		return
	}
	done := make(chan struct{})
	m.inbox <- func(w W) { defer close(done); f(w) }
	m.wake()
	<-done
}

// Steps is for what would stop a worker for too long: for each worker it runs step(w, 0), then step(w, next) with what
// the last one returned, until that is 0. between, if not nil, runs after each step, while the worker goes on. Whoever
// holds the lock may give it up in between, so that others' requests need not wait for the last step.
func (c *Group[W]) Steps(step func(w W, from int) (next int), between func()) {
	for i := range c.members {
		for from, last := 0, false; !last; last = from == 0 {
			c.One(i, func(w W) { from = step(w, from) })
			if between != nil {
				between()
			}
		}
	}
}

// Run starts work for every worker and beside(ctx) next to them, and returns when all have ended: after ctx, with nil, or
// after the first error, with it. begin is asked first, under the lock, and may refuse. work must return once its
// Inbox.Serve says false. The lock must be free.
func (c *Group[W]) Run(ctx context.Context, begin func() error, work func(W) error, background func(context.Context)) error {
	c.lock.Lock()
	err := begin()
	c.running = c.running || err == nil
	c.lock.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(c.members))
	var workers sync.WaitGroup
	for _, m := range c.members {
		workers.Go(func() {
			err := work(m.worker)
			errs <- err
			for err != nil && m.inbox.serveNext(m.worker) { // broken, but nobody shall wait for it in vain
			}
		})
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		background(ctx)
	}()
	var first error
	select {
	case <-ctx.Done():
	case first = <-errs:
	}
	cancel()
	<-watching
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, m := range c.members {
		m.inbox <- nil
		m.wake()
	}
	workers.Wait()
	c.running = false
	close(errs)
	for err := range errs {
		if first == nil {
			first = err
		}
	}
	return first
}

// Waiting says whether something was asked. For the worker.
func (i Inbox[W]) Waiting() bool { return len(i) > 0 }

// Serve does what was asked; false: the worker shall end. For the worker, between two batches.
func (i Inbox[W]) Serve(worker W) bool {
	for {
		select {
		case request := <-i:
			if request == nil {
				return false
			}
			request(worker)
		default:
			return true
		}
	}
}

// serveNext waits for one request; false: to stop.
func (i Inbox[W]) serveNext(worker W) bool {
	request := <-i
	if request != nil {
		request(worker)
	}
	return request != nil
}
