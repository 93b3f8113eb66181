package cluster

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Times of the ping protocol, those of Californium 3 and later.
const (
	pingTimer  = 2 * time.Second        // how often the table is checked
	firstPing  = 100 * time.Millisecond // after the start
	refresh    = 4 * time.Second        // a node silent for this long is pinged
	expiration = 6 * time.Second        // added to refresh: silent for longer means down
	discover   = 10 * time.Second       // a node that never answered is pinged this often
)

// member is one other node. Its atomics are written by any worker.
type member struct {
	id      uint32
	address netip.AddrPort

	last      atomic.Int64  // time of the newest message, in ns; 0: none yet
	announced atomic.Uint32 // State of its newest ping or pong
	pinged    atomic.Int64  // time of our newest ping, in ns; 0: none yet
	mistaken  atomic.Bool   // its last announced id differs from the configured one
}

// markAlive records that a message of the node has arrived. A nil member is an accepted stranger.
func (m *member) markAlive(now time.Duration) {
	// Not for every frame: each write would move the cache line between workers without need.
	if m != nil && int64(now)-m.last.Load() > int64(100*time.Millisecond) {
		m.last.Store(max(1, int64(now)))
	}
}

// Liveness is what is known about a node.
type Liveness string

// States of a node.
const (
	Self    Liveness = "self"
	Unknown Liveness = "unknown" // no message yet; may be a Californium static node, which answers no ping
	Up      Liveness = "up"
	Down    Liveness = "down" // was up, then silent for 10 s
)

func (m *member) liveness(now time.Duration) Liveness {
	last := time.Duration(m.last.Load())
	switch {
	case last == 0:
		return Unknown
	case now-last > refresh+expiration:
		return Down
	}
	return Up
}

// Tick pings silent nodes. Only the first worker does. See [engine.Cluster].
func (c *Cluster) Tick(w *engine.Worker, now time.Duration) time.Duration {
	if w.ID() != 0 {
		return engine.Never
	}
	return c.tick(w, c.row(w), now)
}

func (c *Cluster) tick(w carrier, n *counters, now time.Duration) time.Duration {
	previous := time.Duration(c.clock.Load())
	if previous == 0 { // the first call only sets the timer
		c.clock.Store(max(1, int64(now)))
		return now + firstPing
	}
	c.clock.Store(int64(now))
	c.targets.refresh(now)
	up, ready := 0, 0
	for _, m := range c.members {
		state := m.liveness(now)
		if state == Up {
			up++
			if State(m.announced.Load()) >= StateUp {
				ready++
			}
			if was := time.Duration(previous); m.liveness(was) != Up {
				c.log.Info("cluster node answers", "node", m.id, "address", m.address)
			}
		} else if state == Down && m.liveness(previous) == Up {
			c.log.Warn("cluster node is silent", "node", m.id, "address", m.address, "for", refresh+expiration)
		}
		if c.due(m, state, now) {
			m.pinged.Store(max(1, int64(now)))
			c.sendPing(w, n, TypePing, m.address)
		}
	}
	c.advance(up, ready)
	return now + pingTimer
}

// due reports whether m must be pinged at this tick.
func (c *Cluster) due(m *member, state Liveness, now time.Duration) bool {
	pinged := time.Duration(m.pinged.Load())
	switch state {
	case Up:
		return now-time.Duration(m.last.Load()) >= refresh
	case Unknown: // at every tick in the first seconds after the start of this node, then once every discover
		return pinged == 0 || now < discover || now-pinged >= discover
	}
	return true
}

// advance moves the state that pings announce: first when all nodes have answered, then when all of them announce that
// too. The state never goes back, because Californium's nodes read it as progress of the start.
func (c *Cluster) advance(up, ready int) {
	state := State(c.state.Load())
	if state == StateStart && up == len(c.members) {
		state = StateUp
	}
	if state == StateUp && ready == len(c.members) {
		state = StateInitialized
	}
	c.state.Store(uint32(state))
}

// ping handles a ping or pong from a node (nil: from an accepted stranger).
func (c *Cluster) ping(w carrier, n *counters, message []byte, from netip.AddrPort, sender *member, now time.Duration) {
	p, ok := ParsePing(message)
	if !ok {
		n.malformed.Add(1)
		return
	}
	n.pingsReceived.Add(1)
	if p.Node == c.self || (sender != nil && p.Node != sender.id) {
		n.mistakenIDs.Add(1)
		if sender != nil && !sender.mistaken.Swap(true) {
			c.log.Warn("cluster node announces another id than configured", "address", from, "configured", sender.id, "announced", p.Node)
		}
		return
	}
	if sender != nil {
		sender.mistaken.Store(false)
		sender.announced.Store(uint32(p.State))
		sender.last.Store(max(1, int64(now)))
	}
	if p.Type == TypePing {
		c.sendPing(w, n, TypePong, from)
	}
}

func (c *Cluster) sendPing(w carrier, n *counters, kind byte, to netip.AddrPort) {
	b := AppendPing(w.LinkBuffer()[:0], Ping{Type: kind, Node: c.self, State: State(c.state.Load())})
	w.LinkSend(len(b), to)
	n.pingsSent.Add(1)
}

// NodeStatus is one row of [Cluster.Status].
type NodeStatus struct {
	ID         uint32   `json:"id"`
	Management string   `json:"management"`
	State      Liveness `json:"state"`
	Silent     float64  `json:"silent_s"` // seconds since its newest message; 0 when unknown or self
}

// Status lists the nodes, self first, as of the latest tick (at most 2 s ago).
func (c *Cluster) Status() []NodeStatus {
	now := time.Duration(c.clock.Load())
	rows := []NodeStatus{{ID: c.self, Management: c.link.String(), State: Self}}
	for _, m := range c.members {
		row := NodeStatus{ID: m.id, Management: m.address.String(), State: m.liveness(now)}
		if row.State != Unknown {
			row.Silent = max(0, now-time.Duration(m.last.Load())).Seconds()
		}
		rows = append(rows, row)
	}
	return rows
}

// Ready reports whether a message of every node was received at least once since the start.
func (c *Cluster) Ready() bool { return State(c.state.Load()) >= StateUp }
