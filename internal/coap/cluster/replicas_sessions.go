package cluster

import (
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

var _ engine.Replicator = (*Cluster)(nil)

// Serving implements [engine.Replicator].
func (c *Cluster) Serving() (life *engine.Life, now bool) {
	r := c.replicas
	if r == nil {
		return nil, true
	}
	life = r.life.Load()
	return life, int64(r.clock()) < life.Until.Load()
}

// Enter implements [engine.Replicator].
func (c *Cluster) Enter(session *engine.Copy, next uint64) bool {
	r := c.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	if session.Life != r.life.Load() {
		return false
	}
	number, limit, ok := r.node.Add(next)
	if !ok {
		return false
	}
	session.Number = number
	session.Raise(limit)
	r.copies[number] = session
	return true
}

// Inherit implements [engine.Replicator].
func (c *Cluster) Inherit(session *engine.Copy, next, limit, generation uint64) bool {
	r := c.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	if session.Life != r.life.Load() || !r.resumed || generation <= r.line.floor {
		return false
	}
	number, limit, ok := r.node.Inherit(next, limit)
	if !ok {
		return false
	}
	session.Number = number
	session.Raise(limit)
	r.copies[number] = session
	return true
}

// Used implements [engine.Replicator].
func (c *Cluster) Used(w *engine.Worker, session *engine.Copy, next uint64) {
	c.replicas.of(w, session, func() replica.Output { return c.replicas.node.Used(session.Number, next) })
}

// of calls the state machine for a session of the present life.
func (r *replicas) of(w *engine.Worker, session *engine.Copy, call func() replica.Output) {
	r.do(w, func(time.Duration) replica.Output {
		if session.Life != r.life.Load() {
			return replica.Output{}
		}
		return call()
	})
}

// Changed implements [engine.Replicator].
func (c *Cluster) Changed(each func(report func(session *engine.Copy, changing []byte))) {
	r := c.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	life := r.life.Load()
	each(func(session *engine.Copy, changing []byte) {
		if session.Life == life {
			session.Changing = append(session.Changing[:0], changing...)
			r.node.Changed(session.Number)
		}
	})
}

// Leave implements [engine.Replicator]. The caller of Detach holds moves.mu.
func (c *Cluster) Leave(w *engine.Worker, session *engine.Copy, id []byte) {
	c.moves.expectLocked(id)
	c.Remove(w, session)
}

// Stay implements [engine.Replicator].
func (c *Cluster) Stay(_ *engine.Copy, id []byte) {
	c.moves.mu.Lock()
	defer c.moves.mu.Unlock()
	c.moves.forgetLocked(id)
}

// Remove implements [engine.Replicator].
func (c *Cluster) Remove(w *engine.Worker, session *engine.Copy) {
	c.replicas.of(w, session, func() replica.Output { return c.replicas.node.Remove(session.Number) })
}

// restore makes sessions of the copies of a process that has ended.
func (r *replicas) restore(w *engine.Worker, restored []replica.Restored) {
	all := make([]engine.Restore, 0, len(restored))
	r.mu.Lock()
	for i := range restored {
		s := &restored[i]
		if c := r.copies[s.Number]; c != nil { // another worker may wipe it once the lock is given back
			all = append(all, engine.Restore{Copy: c, Static: slices.Clone(c.Static), Changing: slices.Clone(c.Changing), Start: s.Start})
		}
	}
	r.mu.Unlock()
	from := restored[0].From.Node
	w.Restore(all, func(w *engine.Worker, c *engine.Copy, owner uint32, ok bool) {
		if !ok {
			r.c.Remove(w, c)
			r.mu.Lock()
			r.counts.NotRestored++
			r.mu.Unlock()
			return
		}
		r.c.moves.takeOver(uint8(owner), from)
	})
}

// takeOver has records of a shard sent here, of which sessions go on here.
func (m *moves) takeOver(shard, from uint8) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node != nil {
		m.node.TakeOver(shard, from)
		m.publishLocked()
	}
}
