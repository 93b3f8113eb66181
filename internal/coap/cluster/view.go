package cluster

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/link"
)

// member is an address of the membership table, as workers see it.
type member struct {
	addr     netip.AddrPort
	peer     *link.Peer    // nil: the link is not secured
	reported atomic.Int64  // when the table was last notified of a frame, in ns
	renewed  time.Duration // when a new session was last requested; guarded by Cluster.mu
}

// keys returns the keys of frames from and to the node; nil: there is no session with it.
func (m *member) keys() *link.Keys {
	if m == nil || m.peer == nil {
		return nil
	}
	return m.peer.Keys()
}

// view is what workers know of the membership. It is immutable: a change makes a new one.
type view struct {
	byID   [MaxNodes]*member          // nil: no such node, or self
	byAddr map[netip.AddrPort]*member // management address, unmapped
	ids    map[netip.AddrPort]uint32  // of the nodes that are known to be there
}

// publishLocked makes the state of the table, and its addresses if they have changed, visible to all workers.
func (c *Cluster) publishLocked() {
	c.state.Store(uint32(c.table.State()))
	if c.generation == c.table.Generation() {
		return
	}
	c.generation = c.table.Generation()
	before, after := c.view.Load(), &view{byAddr: map[netip.AddrPort]*member{}, ids: map[netip.AddrPort]uint32{}}
	if before == nil {
		before = &view{}
	}
	loopback := true
	for _, m := range c.table.Members() {
		node := before.byAddr[m.Addr]
		if node == nil {
			node = &member{addr: m.Addr}
			if c.links != nil {
				node.peer = c.links.Peer(m.Addr, true)
			}
		}
		after.byAddr[m.Addr] = node
		if m.Known {
			after.byID[m.ID], after.ids[m.Addr] = node, m.ID
		}
		loopback = loopback && m.Addr.Addr().IsLoopback()
	}
	for addr := range before.byAddr {
		if c.links != nil && after.byAddr[addr] == nil {
			c.links.Forget(addr)
		}
	}
	c.targets.loopback.Store(loopback)
	c.view.Store(after)
}

// aliveEvery is how often at most frames of a node are reported to the table, so that not every frame takes the lock.
const aliveEvery = 100 * time.Millisecond

// alive notes that an accepted frame of a node has come. m is nil for an accepted stranger.
func (c *Cluster) alive(w carrier, n *counters, m *member, now time.Duration) {
	if m == nil {
		return
	}
	last := m.reported.Load()
	if last != 0 && now-time.Duration(last) < aliveEvery || !m.reported.CompareAndSwap(last, max(1, int64(now))) {
		return
	}
	c.mu.Lock()
	out := c.table.Alive(m.addr, now)
	c.publishLocked()
	c.mu.Unlock()
	c.act(w, n, out)
}
