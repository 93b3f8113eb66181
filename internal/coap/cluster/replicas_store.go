package cluster

import (
	"context"
	"math"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
)

// storedEntry is an entry as it was read last.
type storedEntry struct {
	term  uint64
	taken bool          // by a process, for good
	idle  bool          // no process can take anything over because of it
	since time.Duration // of this term
}

// Entries that have not changed for so long are deleted: those of earlier processes of this node, those of other nodes that are taken, and those of
// nodes that have gone for good. A missing entry counts as taken, so that nothing is restored because of it: at worst a node that was cut off from this one for deleteGone, but
// not from its buddy, and not from the store afterwards, drops its sessions.
const (
	deleteIdle  = time.Minute
	deleteAny   = 10 * time.Minute
	deleteGone  = 24 * time.Hour // of a node of which nothing was received for as long
	deleteEvery = 10 * time.Second

	manyEntries = 1024    // with more, entries that are taken are deleted after deleteIdle
	maxEntries  = 1 << 16 // that are remembered
)

// probeEvery is how often the store is asked, if nothing else is requested: its failure is to be known before a node fails as well.
const probeEvery = 5 * time.Second

// probe asks the store for the own entry, by a change that it refuses.
func (r *replicas) probe() {
	r.mu.Lock()
	own := r.self
	known := r.entries[own].term > 0 // one that has never been there would count as taken
	r.mu.Unlock()
	if known {
		r.request(&replica.Change{Owner: own, Term: math.MaxInt64})
	}
}

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
	sweep, probe := time.NewTicker(deleteEvery), time.NewTicker(probeEvery)
	defer sweep.Stop()
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			r.end(ctx)
			return
		case c := <-r.changes:
			go r.change(ctx, c)
		case <-sweep.C:
			r.sweep(ctx)
		case <-probe.C:
			r.probe()
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
	if err != nil {
		r.reachableLocked(err)
	}
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
	r.reachableLocked(nil)
	if known, found := r.entries[e.Owner]; e.Term > known.term && (found || len(r.entries) < maxEntries) {
		r.entries[e.Owner] = storedEntry{e.Term, e.Taken, e.Taken || e.Buddy == replica.Process{}, now}
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

// obsoleteLocked reports whether an entry is to be deleted.
func (r *replicas) obsoleteLocked(owner replica.Process, s storedEntry, now time.Duration) bool {
	unchanged := now - s.since
	switch {
	case owner == r.self:
		return false
	case unchanged >= deleteAny && (s.taken || owner.Node == r.self.Node):
		return true
	case unchanged >= deleteIdle && (s.idle && owner.Node == r.self.Node || s.taken && len(r.entries) > manyEntries):
		return true
	}
	return unchanged >= deleteGone && now-r.seen[owner.Node] >= deleteGone
}

// sweep deletes entries that no node needs any more.
func (r *replicas) sweep(ctx context.Context) {
	now := r.clock()
	type old struct {
		owner replica.Process
		term  uint64
	}
	var all []old
	r.mu.Lock()
	for owner, s := range r.entries {
		if r.obsoleteLocked(owner, s, now) {
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

// end deletes the own entry, if no sessions are left for the buddy. A process whose sessions go on in the next one, or at its buddy, does not end the store in order: an
// embedded one waits for a second for connections of the other nodes, and so would clients. What it has agreed to is on the disk, as after kill -9.
func (r *replicas) end(ctx context.Context) {
	if r.leaving.Load() {
		return
	}
	r.mu.Lock()
	own := r.self
	term := r.entries[own].term
	r.mu.Unlock()
	if term > 0 {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		_ = r.store.Delete(limited, own, term) // it stays, and counts for nothing: the sessions have ended
	}
	_ = r.store.Close()
}
