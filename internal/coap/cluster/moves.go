package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/move"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// moves ties the state machine of package move to the link and the engine's workers.
type moves struct {
	c *Cluster

	routes  atomic.Pointer[move.Routes] // for each datagram
	transit atomic.Int64                // sessions on their way to another node
	busy    atomic.Bool                 // a transfer to another node is under way

	changed func() // owners, or the drain, are not what they were; it must not block. Nil: not wanted

	mu    sync.Mutex
	drain bool               // of node, when changed was called last; guarded by mu
	node  *move.Node         // guarded by mu; nil before the first tick, which knows how many workers there are
	held  []uint8            // shards of which an earlier process has left sessions; guarded by mu
	waits map[string]waiting // datagrams of sessions on their way, by connection id; guarded by mu
	count int                // datagrams in waits; guarded by mu

	own, room [maxWorkers]atomic.Int64  // sessions with connection ids, and room for more, of each worker
	busySince [maxWorkers]time.Duration // since when a worker passes over sessions with something under way; of that worker
	at        time.Duration             // of the next tick; of the first worker
}

// Bounds of the datagrams that wait until their session has arrived at the other node: later ones are dropped, and repeated by their
// clients.
const (
	maxWaiting    = 1024
	maxWaitingOne = 8 // of one session
)

const (
	exportEvery = 5 * time.Millisecond
	// forceAfter is how long a session with something under way is left where it is.
	forceAfter = 3 * time.Second
)

// waiting is the datagrams of a session on its way.
type waiting []struct {
	datagram       []byte
	client, router netip.AddrPort
}

// newMoves returns nil for a link that is not secured: keys must not travel in clear.
func (c *Cluster) newMoves() *moves {
	if c.links == nil {
		return nil
	}
	m := &moves{c: c, waits: map[string]waiting{}}
	m.routes.Store(move.HomeRoutes(uint8(c.self)))
	return m
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// Here implements [engine.Mover].
func (c *Cluster) Here(owner uint32) bool {
	return c.moves != nil && owner < MaxNodes && c.moves.routes.Load().Here[owner]
}

// Hold implements [engine.Mover].
func (c *Cluster) Hold(owner uint32) bool {
	m := c.moves
	if m == nil || owner >= MaxNodes {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node != nil {
		m.node.Hold(uint8(owner))
		m.publishLocked()
		return true
	}
	m.held = append(m.held, uint8(owner))
	routes := *m.routes.Load()
	routes.Here[owner] = true
	m.routes.Store(&routes)
	return true
}

// owner returns the node that records of a shard are sent to.
func (c *Cluster) owner(shard uint32) uint32 {
	if c.moves == nil {
		return shard
	}
	return uint32(c.moves.routes.Load().Owner[shard])
}

// tick runs what is due on a worker, and returns when to call it again.
func (m *moves) tick(w *engine.Worker, n *counters, now time.Duration) time.Duration {
	id := min(w.ID(), maxWorkers-1)
	m.own[id].Store(int64(w.WithCID()))
	m.room[id].Store(int64(w.Room()))
	if w.ID() == 0 && now >= m.at {
		m.at = now + move.TickEvery
		m.advance(w, n, now)
	}
	if m.busy.Load() {
		m.export(w, n, now)
		return now + exportEvery
	}
	if w.Returning() > 0 {
		return now + exportEvery
	}
	return now + move.TickEvery
}

// advance ticks the state machine.
func (m *moves) advance(w *engine.Worker, n *counters, now time.Duration) {
	var peers []move.Peer
	view := m.c.view.Load()
	m.c.mu.Lock()
	for _, p := range m.c.table.Members() {
		if p.Known {
			peers = append(peers, move.Peer{ID: uint8(p.ID), Up: p.Up && view.byAddr[p.Addr].keys() != nil})
		}
	}
	m.c.mu.Unlock()
	var local move.Local
	for i := range m.own {
		local.Own += uint32(m.own[i].Load())
		local.Room += uint32(m.room[i].Load())
	}
	local.Sessions = local.Own
	_, serving := m.c.Serving()
	local.Silent = !serving
	m.mu.Lock()
	if m.node == nil {
		m.node = move.New(move.Config{
			Self: uint8(m.c.self), Boot: random(), CIDLength: uint8(w.CIDLength()), Workers: w.Siblings(), Random: random,
		})
		for _, shard := range m.held {
			m.node.Hold(shard)
		}
	}
	out := m.node.Tick(now, peers, local)
	m.publishLocked()
	m.mu.Unlock()
	m.act(w, n, &out)
}

// publishLocked makes the state visible to all workers, and to those who follow it.
func (m *moves) publishLocked() {
	routes, changed := m.node.Routes()
	if changed {
		m.routes.Store(&routes)
	}
	m.busy.Store(m.node.Moving())
	if drain := m.node.Draining().On; (changed || drain != m.drain) && m.changed != nil {
		m.drain = drain
		m.changed()
	}
}

// export takes sessions away from a worker and sends them to the other node. The lock is held from the question whether there is a
// transfer until its sessions belong to it.
func (m *moves) export(w *engine.Worker, n *counters, now time.Duration) {
	var out move.Output
	m.mu.Lock()
	shard, count := m.node.Wanted(w.ID())
	if count > 0 {
		since := &m.busySince[min(w.ID(), maxWorkers-1)]
		given, busy, waiting := w.Detach(uint32(shard), count, *since != 0 && now-*since >= forceAfter, func(id, session []byte) {
			m.expectLocked(id)
			add(&out, m.node.Exported(shard, string(id), session, now))
		})
		switch {
		case busy == 0:
			*since = 0
		case *since == 0:
			*since = max(1, now)
		}
		if given == 0 && waiting == 0 {
			add(&out, m.node.Empty(w.ID(), busy > 0))
		}
	}
	m.publishLocked()
	m.mu.Unlock()
	m.act(w, n, &out)
}

// expectLocked has datagrams of a session wait until it has arrived at the other node.
func (m *moves) expectLocked(id []byte) {
	if _, known := m.waits[string(id)]; !known {
		m.waits[string(id)] = nil
		m.transit.Add(1)
	}
}

// forgetLocked drops them: the session stays here, or has ended.
func (m *moves) forgetLocked(id []byte) {
	if waits, known := m.waits[string(id)]; known {
		delete(m.waits, string(id))
		m.count -= len(waits)
		m.transit.Add(-1)
	}
}

func add(out *move.Output, more move.Output) {
	out.Send = append(out.Send, more.Send...)
	out.Imports = append(out.Imports, more.Imports...)
	out.Settled = append(out.Settled, more.Settled...)
	out.Events = append(out.Events, more.Events...)
}

// receive handles a message of a node.
func (m *moves) receive(w *engine.Worker, n *counters, from netip.AddrPort, message []byte, now time.Duration) {
	id, known := m.c.view.Load().ids[from]
	m.mu.Lock()
	if m.node == nil || !known {
		m.mu.Unlock()
		return // it is repeated
	}
	out, ok := m.node.Receive(uint8(id), message, now)
	m.publishLocked()
	m.mu.Unlock()
	if !ok {
		n.malformed.Add(1)
		return
	}
	m.act(w, n, &out)
}

// act does what the state machine requests.
func (m *moves) act(w *engine.Worker, n *counters, out *move.Output) {
	for i := range out.Send {
		m.send(w, &out.Send[i])
	}
	for i := range out.Settled {
		m.settle(w, n, &out.Settled[i])
	}
	for i := range out.Events {
		m.c.reportMove(&out.Events[i])
	}
	for _, session := range out.Imports {
		w.Attach(uint32(session.Shard), session.Session, func(w *engine.Worker, ok bool) {
			session.Session = nil
			m.mu.Lock()
			out := m.node.Imported(&session, ok)
			m.publishLocked()
			m.mu.Unlock()
			m.act(w, m.c.row(w), &out)
		})
	}
}

// send passes a message to a node over the secured link. If there is no session with it, the message is lost, and repeated later.
func (m *moves) send(w *engine.Worker, s *move.Send) {
	node := m.c.view.Load().byID[s.To]
	if node == nil || node.peer == nil {
		return
	}
	m.c.links.Send(node.peer, s.Bytes, func(datagram []byte) { emit(w, datagram, node.addr) })
}

// settle sends on what has come meanwhile for a session that was on its way.
func (m *moves) settle(w *engine.Worker, n *counters, s *move.Settled) {
	m.mu.Lock()
	waits, known := m.waits[s.ID]
	delete(m.waits, s.ID)
	m.count -= len(waits)
	m.mu.Unlock()
	if known {
		m.transit.Add(-1)
	}
	for _, d := range waits {
		if s.Moved {
			m.c.onward(w, n, uint32(s.To), d.datagram, d.client, d.router)
		}
	}
}

// wait keeps a datagram until its session is settled. It returns false if the session is not on its way.
func (m *moves) wait(id, datagram []byte, client, router netip.AddrPort) bool {
	if m.transit.Load() == 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	waits, known := m.waits[string(id)]
	if !known {
		return false
	}
	if len(waits) < maxWaitingOne && m.count < maxWaiting {
		m.count++
		m.waits[string(id)] = append(waits, waiting{{append([]byte(nil), datagram...), client, router}}...)
	}
	return true
}
