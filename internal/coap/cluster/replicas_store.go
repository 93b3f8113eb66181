package cluster

import (
	"context"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
)

// storedEntry is an entry as it was read last.
type storedEntry struct {
	term  uint64
	idle  bool          // no process can take anything over because of it
	since time.Duration // of this term
}

// Entries of earlier processes of this node are deleted when they have not changed for so long. A missing entry counts as taken, so that nothing
// is restored because of it.
const (
	deleteIdle  = time.Minute
	deleteAny   = 10 * time.Minute
	deleteEvery = 10 * time.Second
)

// request passes a change to the store, one at a time for each process. What there is no room for is requested again.
func (r *replicas) request(c *replica.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[c.Owner] {
		return
	}
	select {
	case r.changes <- *c:
		r.pending[c.Owner] = true
	default:
	}
}

// run serves the store until ctx ends.
func (r *replicas) run(ctx context.Context) {
	go r.follow(ctx)
	sweep := time.NewTicker(deleteEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			r.end(ctx)
			return
		case c := <-r.changes:
			go r.change(ctx, c)
		case <-sweep.C:
			r.sweep(ctx)
		}
	}
}

// change sends a change to the store.
func (r *replicas) change(ctx context.Context, c replica.Change) {
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	e, err := r.store.Change(limited, c)
	r.mu.Lock()
	delete(r.pending, c.Owner)
	r.reachableLocked(err)
	r.mu.Unlock()
	if err == nil {
		r.read(e)
	}
}

// reachableLocked notes whether the store has answered.
func (r *replicas) reachableLocked(err error) {
	switch was := r.counts.StoreError; {
	case err == nil && was != "":
		r.c.log.Info("the store of the cluster answers")
		r.counts.StoreError = ""
	case err != nil:
		if r.counts.StoreErrors++; was == "" {
			r.c.log.Warn("the store of the cluster does not answer: no sessions can be taken over, and no other node can be given the copies", "cause", err)
		}
		r.counts.StoreError = err.Error()
	}
}

// read takes an entry of the store.
func (r *replicas) read(e replica.Entry) {
	now := r.clock()
	r.mu.Lock()
	if known := r.entries[e.Owner]; e.Term > known.term {
		r.entries[e.Owner] = storedEntry{e.Term, e.Taken || e.Buddy == replica.Process{}, now}
		if e.Taken && e.By == (replica.Process{}) {
			delete(r.entries, e.Owner)
		}
	}
	r.agreed = append(r.agreed, e)
	r.mu.Unlock()
	if w := r.first.Load(); w != nil {
		w.Post(func() { r.do(w, func(time.Duration) (none replica.Output) { return none }) }) // if not, the next tick does it
	}
}

// follow reads the entries of all processes.
func (r *replicas) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.store.Follow(ctx, r.read)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.reachableLocked(err)
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// sweep deletes the entries of earlier processes of this node.
func (r *replicas) sweep(ctx context.Context) {
	now := r.clock()
	type old struct {
		owner replica.Process
		term  uint64
	}
	var all []old
	r.mu.Lock()
	for owner, s := range r.entries {
		if owner.Node == r.self.Node && owner != r.self && (now-s.since >= deleteAny || s.idle && now-s.since >= deleteIdle) {
			all = append(all, old{owner, s.term})
		}
	}
	r.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for _, o := range all {
		if r.store.Delete(limited, o.owner, o.term) != nil {
			return // it is tried again
		}
	}
}

// end deletes the own entry, if no sessions are left for the buddy.
func (r *replicas) end(ctx context.Context) {
	r.mu.Lock()
	own := r.self
	term := r.entries[own].term
	r.mu.Unlock()
	if !r.leaving.Load() && term > 0 {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		_ = r.store.Delete(limited, own, term) // it stays, and counts for nothing: the sessions have ended
	}
	_ = r.store.Close()
}
