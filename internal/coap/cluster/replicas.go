package cluster

import (
	"context"
	"encoding/binary"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Store is where the nodes agree on who has the sessions of a process: see package store. Its methods block.
type Store interface {
	// Change does what a request says, and returns the entry as it is then, changed or not.
	Change(ctx context.Context, c replica.Change) (replica.Entry, error)
	// Follow passes every entry, and each change, to entry until the context ends or the connection is lost.
	Follow(ctx context.Context, entry func(replica.Entry)) error
	// Delete removes an entry, if it has this term.
	Delete(ctx context.Context, owner replica.Process, term uint64) error
	Close() error
}

// replicas ties the state machine of package replica to the store, the link and the engine's workers. Lock order: moves.mu, then mu.
type replicas struct {
	c     *Cluster
	store Store
	clock func() time.Duration

	life  atomic.Pointer[engine.Life]
	first atomic.Pointer[engine.Worker] // runs what is due

	mu      sync.Mutex
	node    *replica.Node           // guarded by mu, as what follows
	self    replica.Process         // of the life
	copies  map[uint64]*engine.Copy // own sessions that have copies, by number
	peers   map[uint8]*process
	seen    [256]time.Duration              // when a process of each node has sent something last
	agreed  []replica.Entry                 // read, and not handled yet
	entries map[replica.Process]storedEntry // in the store
	pending map[replica.Process]bool        // owners of changes under way
	counts  ReplicationStatus
	boot    uint64 // by which other nodes name this process as their buddy

	memory     *lifeMemory // outlives the process; nil: there is none
	line       lifeLine    // that is stored there
	generation func() uint64
	resumed    bool // the process goes on as the one before

	changes chan replica.Change // to the store
	leaving atomic.Bool         // the process ends, and its sessions stay for its buddy
	at      time.Duration       // of the next tick; of the first worker
	greetAt time.Duration       // likewise
}

// process is what is known of another node's present process.
type process struct {
	boot     uint64
	received time.Duration
}

// Times of the greetings, by which nodes know each other's processes.
const (
	greetEvery   = 500 * time.Millisecond
	presentFor   = 1750 * time.Millisecond // a process of which nothing comes for so long is not up
	rememberFor  = time.Minute
	storeTimeout = 2 * time.Second
	followAgain  = time.Second
)

// kindGreeting is the kind of a message of type replica.Type that package replica does not know: the number of the sender's process follows.
const (
	kindGreeting   = 3
	greetingLength = 2 + 8
)

const maxChanges = 64 // waiting for the store; later ones are repeated

// newReplicas returns nil if sessions are not copied.
func (c *Cluster) newReplicas(cfg *Config) (*replicas, error) {
	if cfg.Replicate == nil {
		return nil, nil
	}
	store, err := cfg.Replicate.open(c, cfg)
	if err != nil {
		return nil, err
	}
	r := &replicas{
		c: c, store: store, clock: sinceBoot, peers: map[uint8]*process{}, entries: map[replica.Process]storedEntry{}, pending: map[replica.Process]bool{},
		changes: make(chan replica.Change, maxChanges),
	}
	r.beginLocked() // no other goroutine has r yet
	return r, nil
}

// sinceBoot is a clock that goes on while the machine is suspended, and is never set.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail with this clock
	return time.Duration(t.Nano())
}

// beginLocked begins a life.
func (r *replicas) beginLocked() {
	r.self = replica.Process{Node: uint8(r.c.self), Boot: random()}
	r.copies = map[uint64]*engine.Copy{}
	r.newNodeLocked(r.self.Boot)
	r.keepLocked()
	life := &engine.Life{Lease: replica.Lease}
	life.Until.Store(math.MaxInt64)
	if before := r.life.Swap(life); before != nil {
		before.Until.Store(math.MinInt64)
	}
}

// newNodeLocked makes the state of a process.
func (r *replicas) newNodeLocked(boot uint64) {
	r.boot = boot
	r.node = replica.New(replica.Config{Self: r.self, Boot: boot, Sessions: maxReplicated, Copies: maxReplicated, Slot: r.slotLocked})
}

// maxReplicated bounds the own sessions that have copies, and the copies of others'. The engine's tables are the narrower bound of the former.
const maxReplicated = 1 << 20

// slotLocked implements replica.Config.Slot.
func (r *replicas) slotLocked(number uint64) (static, changing []byte) {
	c := r.copies[number]
	return c.Static, c.Changing
}

// tick runs what is due on the first worker, and returns when to call it again.
func (r *replicas) tick(w *engine.Worker, now time.Duration) time.Duration {
	if r.first.Load() == nil {
		r.first.Store(w)
	}
	if now < r.at {
		return r.at
	}
	r.at = now + replica.TickEvery
	r.greet(w, now)
	view := r.c.view.Load()
	r.do(w, func(at time.Duration) replica.Output {
		return r.node.Tick(at, r.peersLocked(view, at))
	})
	return r.at
}

// do calls the state machine, and does what it requests.
func (r *replicas) do(w *engine.Worker, call func(now time.Duration) replica.Output) {
	r.mu.Lock()
	var todo replica.Output
	r.takeAgreedLocked(&todo)
	out := call(r.clock())
	r.applyLocked(&out)
	join(&todo, &out)
	r.mu.Unlock()
	r.act(w, &todo)
}

// takeAgreedLocked passes on what was read of the store.
func (r *replicas) takeAgreedLocked(todo *replica.Output) {
	agreed := r.agreed
	r.agreed = nil
	for _, e := range agreed {
		out := r.node.Agreed(e, r.clock())
		r.applyLocked(&out)
		join(todo, &out)
	}
}

func join(to, more *replica.Output) {
	to.Send = append(to.Send, more.Send...)
	to.Changes = append(to.Changes, more.Changes...)
	to.Restored = append(to.Restored, more.Restored...)
	to.Events = append(to.Events, more.Events...)
}

// applyLocked does what must be done before another call.
func (r *replicas) applyLocked(o *replica.Output) {
	if !r.node.Fenced() {
		r.keepLocked()
	}
	for _, l := range o.Limits {
		if c := r.copies[l.Number]; c != nil {
			c.Raise(l.Limit)
		}
	}
	for _, number := range o.Removed {
		if c := r.copies[number]; c != nil {
			c.Removed()
			delete(r.copies, number)
			wipe(c)
		}
	}
	for i := range o.Restored {
		s := &o.Restored[i]
		c := &engine.Copy{Life: r.life.Load(), Number: s.Number, Static: s.Static, Changing: s.Changing}
		c.Raise(s.Limit)
		r.copies[s.Number] = c
	}
	if !r.node.Fenced() {
		r.life.Load().Until.Store(int64(r.node.SealUntil()))
		return
	}
	for _, c := range r.copies {
		wipe(c)
	}
	r.beginLocked() // the workers see the new life in their next round, and end all sessions of this one
}

// wipe overwrites the keys. Static belongs to the replicas, but for a restored session, which is entered first.
func wipe(c *engine.Copy) { clear(c.Static) }

// act does the rest.
func (r *replicas) act(w *engine.Worker, o *replica.Output) {
	view := r.c.view.Load()
	for i := range o.Send {
		r.send(w, view, o.Send[i].To, o.Send[i].Bytes)
		clear(o.Send[i].Bytes)
	}
	for i := range o.Changes {
		r.request(&o.Changes[i])
	}
	for i := range o.Events {
		r.report(&o.Events[i])
	}
	if len(o.Restored) > 0 {
		r.restore(w, o.Restored)
	}
}

func (r *replicas) send(w *engine.Worker, view *view, to uint8, message []byte) {
	if node := view.byID[to]; node != nil && node.peer != nil {
		r.c.links.Send(node.peer, message, func(datagram []byte) { emit(w, datagram, node.addr) })
	}
}

// greet sends the number of this process to all nodes.
func (r *replicas) greet(w *engine.Worker, now time.Duration) {
	if now < r.greetAt {
		return
	}
	r.greetAt = now + greetEvery
	r.mu.Lock()
	b := binary.LittleEndian.AppendUint64([]byte{replica.Type, kindGreeting}, r.boot)
	r.mu.Unlock()
	view := r.c.view.Load()
	for id, node := range view.byID {
		if node != nil && node.keys() != nil {
			r.send(w, view, uint8(id), b)
		}
	}
}

// peersLocked are the other nodes whose processes are known.
func (r *replicas) peersLocked(view *view, now time.Duration) (all []replica.Peer) {
	for id, p := range r.peers {
		if now-p.received > rememberFor {
			delete(r.peers, id)
			continue
		}
		up := now-p.received < presentFor && view.byID[id].keys() != nil
		all = append(all, replica.Peer{Process: replica.Process{Node: id, Boot: p.boot}, Up: up})
	}
	return all
}

// receive handles a message of a node.
func (r *replicas) receive(w *engine.Worker, n *counters, from netip.AddrPort, message []byte) {
	id, known := r.c.view.Load().ids[from]
	if !known {
		n.strangers.Add(1)
		return
	}
	if len(message) == greetingLength && message[1] == kindGreeting {
		boot := binary.LittleEndian.Uint64(message[2:])
		r.mu.Lock()
		if boot != 0 {
			now := r.clock()
			r.peers[uint8(id)], r.seen[uint8(id)] = &process{boot, now}, now
		}
		r.mu.Unlock()
		return
	}
	ok := false
	r.do(w, func(now time.Duration) (out replica.Output) {
		out, ok = r.node.Receive(uint8(id), message, now)
		return out
	})
	if !ok {
		n.malformed.Add(1)
	}
}
