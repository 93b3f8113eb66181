// Package workers runs the workers of a user-space data path or server, one goroutine each. Requests of other goroutines
// run between two batches of a worker, so that a worker's state needs no lock.
//
//	Apply, console ── Do(f) ──► inbox ─ wake ─► worker: batch │ Inbox.Serve │ batch …
//	Run(ctx) ─ one goroutine per worker ─ the first error, or the end of ctx, ends them all
//
// Mailbox is the queue behind it, also for messages with bytes. Tokens numbers what a worker's poller watches.
//
// It does not depend on sockets or steering: a worker is any value, and a function wakes it. The data path's own
// mutex guards the group, so that requests before and after the start of Run are ordered.
//
//	c := workers.New[*worker](&d.mu, workers.Limits{})
//	w.inbox = c.Add(w, w.poller.Wake)
//	err := c.Run(ctx, d.begin, (*worker).run, d.watch)
package workers

import (
	"context"
	"sync"
)

// Group is the workers of one data path. The caller of its methods holds the lock that New received, except for Run,
// which takes it.
type Group[W any] struct {
	lock    sync.Locker
	limits  Limits
	members []member[W]
	running bool
}

type member[W any] struct {
	worker W
	inbox  *Inbox[W]
}

// Inbox is the queue of requests to one worker. The request nil ends the worker.
type Inbox[W any] struct{ *Mailbox[func(W)] }

// New returns a group without workers, guarded by lock. limits bounds each inbox: what is beyond makes Do wait, and
// Inbox.Put refuse.
func New[W any](lock sync.Locker, limits Limits) *Group[W] {
	return &Group[W]{lock: lock, limits: limits}
}

// Add adds a worker, before Run. wake ends the worker's wait; any goroutine may call it.
func (c *Group[W]) Add(worker W, wake func()) *Inbox[W] {
	inbox := &Inbox[W]{NewMailbox[func(W)](c.limits, wake)}
	c.members = append(c.members, member[W]{worker, inbox})
	return inbox
}

// Running reports whether the workers serve their inboxes.
func (c *Group[W]) Running() bool { return c.running }

// Do runs f for every worker, one after the other, and waits. While Run is active, f runs on the worker's goroutine.
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
	m.inbox.PutAll([]func(W){func(w W) { defer close(done); f(w) }})
	<-done
}

// Steps is for work that would block a worker for too long. For each worker it runs step(w, 0), then step(w, next)
// with the result of the last call, until that is 0. between, if not nil, runs after each step, while the worker
// continues. The holder of the lock may release it in between, so that requests of others need not wait for the last
// step.
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

// Run starts work for every worker and background(ctx) in parallel. It returns after all have ended: nil after the
// end of ctx, or the first error. begin is called first, under the lock, and may refuse. work must return after its
// Inbox.Serve has returned false. The lock must be free.
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
			for serving := err != nil; serving; serving = m.inbox.Serve(m.worker) { // requests to a failed worker must still be answered
				m.inbox.await()
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
		m.inbox.PutAll([]func(W){nil})
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

// Serve runs the queued requests. It returns false if the worker must end. Only the worker calls it, between two
// batches.
func (i *Inbox[W]) Serve(worker W) bool {
	requests, _ := i.Take()
	for n, request := range requests {
		requests[n] = nil
		if request == nil {
			return false
		}
		request(worker)
	}
	return true
}
