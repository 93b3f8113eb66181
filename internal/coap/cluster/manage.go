package cluster

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/link"
	"github.com/weir-lb/weir/internal/coap/cluster/membership"
	"github.com/weir-lb/weir/internal/coap/cluster/move"
	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// firstPing is how long after the start nodes are pinged first.
const firstPing = 100 * time.Millisecond

// Tick pings nodes and runs handshakes of the link, which only the first worker does, and moves sessions. See [engine.Cluster].
func (c *Cluster) Tick(w *engine.Worker, now time.Duration) time.Duration {
	next := engine.Never
	if w.ID() == 0 {
		next = c.tick(w, c.row(w), now)
	}
	if c.moves != nil {
		next = min(next, c.moves.tick(w, c.row(w), now))
	}
	if c.replicas != nil && w.ID() == 0 {
		next = min(next, c.replicas.tick(w, now))
	}
	return next
}

func (c *Cluster) tick(w carrier, n *counters, now time.Duration) time.Duration {
	if !c.ticking {
		c.ticking, c.linkAt, c.tableAt = true, engine.Never, now+firstPing
		if c.links != nil {
			c.linkAt = now
		}
	}
	if now >= c.linkAt {
		c.linkAt = now + link.TickEvery
		c.links.Tick(now, func(to netip.AddrPort, datagram []byte) { emit(w, datagram, to) })
	}
	if now >= c.tableAt {
		c.tableAt = now + membership.TickEvery
		c.targets.refresh(now)
		c.mu.Lock()
		out := c.table.Tick(now)
		c.renewLocked(now)
		c.publishLocked()
		c.mu.Unlock()
		c.act(w, n, out)
	}
	return min(c.linkAt, c.tableAt)
}

// silentFor is how long a node is silent, and pinged in vain, before it gets a new session: it may have lost the present one.
const silentFor = membership.Refresh + membership.TickEvery

// renewLocked requests new sessions with silent nodes.
func (c *Cluster) renewLocked(now time.Duration) {
	if c.links == nil {
		return
	}
	known := c.view.Load().byAddr
	for _, m := range c.table.Members() {
		node := known[m.Addr]
		never := m.Known && !m.Answered // a node that answers no ping at all, as a static one of Californium
		if node.keys() == nil || never || m.Silent <= silentFor || node.renewed != 0 && now-node.renewed < membership.Discover {
			continue
		}
		node.renewed = now
		c.links.Renew(node.peer)
	}
}

// emit sends a datagram to a node.
func emit(w carrier, datagram []byte, to netip.AddrPort) {
	w.LinkSendInOrder(copy(w.LinkBuffer(), datagram), to)
}

// secured handles a datagram of the secured link.
func (c *Cluster) secured(w carrier, n *counters, datagram []byte, from netip.AddrPort, now time.Duration) {
	if first := datagram[0]; first < 20 || first > 25 { // neither a DTLS record nor one with a connection id: perhaps a ping in the clear
		n.malformed.Add(1)
		return
	}
	got := c.links.Receive(from, datagram, now, func(reply []byte) { emit(w, reply, from) })
	for _, message := range got.Messages {
		worker, ok := w.(*engine.Worker)
		if ok && c.moves != nil && len(message) > 0 && message[0] == move.Type {
			c.moves.receive(worker, n, from, message, now)
			continue
		}
		if ok && c.replicas != nil && len(message) > 1 && message[0] == replica.Type {
			c.replicas.receive(worker, n, from, message)
			continue
		}
		c.ping(w, n, message, from, now)
	}
	if got.Established { // the other node learns from a message that it may use the session
		c.send(w, n, TypePing, got.Peer)
	}
}

// ping handles a ping or pong.
func (c *Cluster) ping(w carrier, n *counters, message []byte, from netip.AddrPort, now time.Duration) {
	p, ok := ParsePing(message)
	if !ok {
		n.malformed.Add(1)
		return
	}
	n.pingsReceived.Add(1)
	own := c.isOwn(from)
	c.mu.Lock()
	answer, out := c.table.Received(from, p.Node, p.State, p.Type == TypePong, own, now)
	if !own && !c.table.Holds(from, p.Node) {
		n.mistakenIDs.Add(1)
	}
	c.publishLocked()
	c.mu.Unlock()
	if answer && p.Type == TypePing {
		c.sendTo(w, n, TypePong, from)
	}
	c.act(w, n, out)
}

// sendTo sends a ping or pong to an address, if it is in the table.
func (c *Cluster) sendTo(w carrier, n *counters, kind byte, to netip.AddrPort) {
	if c.links == nil {
		b := c.message(w.LinkBuffer()[:0], kind)
		w.LinkSend(len(b), to)
		n.pingsSent.Add(1)
		return
	}
	if m := c.view.Load().byAddr[to]; m != nil && m.peer != nil {
		c.send(w, n, kind, m.peer)
	}
}

// send sends a ping or pong over the secured link, if there is a session.
func (c *Cluster) send(w carrier, n *counters, kind byte, to *link.Peer) {
	var b [pingLength]byte
	if c.links.Send(to, c.message(b[:0], kind), func(datagram []byte) { emit(w, datagram, to.Addr()) }) {
		n.pingsSent.Add(1)
	}
}

func (c *Cluster) message(b []byte, kind byte) []byte {
	return AppendPing(b, Ping{Type: kind, Node: c.self, State: membership.State(c.state.Load())})
}

// act does what the table asks for.
func (c *Cluster) act(w carrier, n *counters, out membership.Output) {
	for _, to := range out.Ping {
		c.sendTo(w, n, TypePing, to)
	}
	for i := range out.Events {
		c.report(&out.Events[i])
	}
}

// SetGroup replaces the addresses at which further nodes are searched for, and leaves out the own one. It may be called from any
// goroutine; the next tick pings what is new.
func (c *Cluster) SetGroup(addresses []netip.AddrPort) {
	others := make([]netip.AddrPort, 0, len(addresses))
	for _, a := range addresses {
		if !c.isOwn(a) {
			others = append(others, a)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.SetGroup(others)
	c.publishLocked()
}
