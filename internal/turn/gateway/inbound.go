package gateway

import (
	"encoding/binary"
	"net/netip"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

// readListener reads one batch from clients and relays it.
func (w *worker) readListener(ls *listenerSocket) {
	if w.inUsed > 0 {
		w.flush()
	}
	n, err := ls.conn.ReadBatch(w.in, 0)
	if err != nil {
		ls.counts.add(reasonReceiveError, 1)
		return
	}
	for i := range w.in[:n] {
		w.fromClient(ls, &w.in[i])
	}
	w.inUsed = len(w.in) // all buffers may be queued for sending
	w.flush()
}

// fromClient splits a run of datagrams of equal length, or a single datagram, from a client and handles each.
func (w *worker) fromClient(ls *listenerSocket, m *udpio.Message) {
	server := ls.l.server
	if m.Local.IsValid() {
		server = netip.AddrPortFrom(m.Local, server.Port())
	}
	c := w.clientAt(ls, m.Addr, server)
	size := m.Segment
	if size == 0 {
		size = max(m.N, 1)
	}
	for at := 0; at < m.N; at += size {
		b := m.Buf[at:min(at+size, m.N)]
		if c != nil && b[0]>>6 == 1 {
			w.channelData(c, b)
			continue
		}
		w.other(ls, m.Addr, server, b)
		c = w.clientAt(ls, m.Addr, server)
	}
}

// clientAt returns the client of an address, nil if it has no allocation.
func (w *worker) clientAt(ls *listenerSocket, from, server netip.AddrPort) *client {
	recent := &ls.recent[from.Port()%recentSize]
	if c := *recent; c != nil && c.a.Path.Client == from && c.a.Path.Server == server {
		return c
	}
	a := w.table.Find(allocation.Path{Client: from, Server: server, Transport: allocation.UDP, Listener: ls.l.id})
	if a == nil {
		return nil
	}
	c := a.Data.(*client)
	*recent = c
	return c
}

// channelData relays one ChannelData message.
func (w *worker) channelData(c *client, b []byte) {
	number, payload, r := allocation.ParseChannelData(b)
	if r != allocation.OK {
		c.counts.add(r, 1)
		return
	}
	ch := c.a.Channel(number)
	if ch == nil {
		c.counts.add(allocation.NoChannel, 1)
		return
	}
	if ch.Suspended {
		c.counts.add(allocation.Suspended, 1)
		return
	}
	p, _ := ch.Data.(*peer)
	if p == nil {
		if p = w.newPeer(c, ch); p == nil {
			c.counts.add(reasonSendRefused, 1)
			return
		}
	}
	if !c.allow(w.now, len(payload)) {
		c.counts.add(allocation.Bandwidth, 1)
		return
	}
	w.toPeer(c, p.relay, &p.target, p.counts, payload)
}

// toPeer queues a payload on a relay socket.
func (w *worker) toPeer(c *client, r *relay, to *udpio.Target, cluster *counts, payload []byte) {
	if w.writer.Room() == 0 {
		w.send()
	}
	w.writer.Add(&r.queue, to, payload)
	if !r.dirty {
		r.dirty = true
		w.dirtyRelays = append(w.dirtyRelays, r)
	}
	w.tally.add(c, cluster, false, len(payload), w.now)
}

// other handles UDP datagrams other than ChannelData of a known client: requests, Send indications, invalid data.
func (w *worker) other(ls *listenerSocket, from, server netip.AddrPort, b []byte) {
	path := allocation.Path{Client: from, Server: server, Transport: allocation.UDP, Listener: ls.l.id}
	w.reserve()
	answer, _ := w.message(path, ls.counts, b)
	if len(answer) == 0 {
		return
	}
	w.slabUsed += len(answer)
	local := netip.Addr{}
	if ls.conn.Wildcard() {
		local = server.Addr()
	}
	to := w.target(from, local, ls.conn.IPv6())
	if to == nil {
		ls.counts.add(reasonSendRefused, 1)
		return
	}
	w.writer.Add(&ls.queue, to, answer)
	w.markDirty(ls)
}

// message handles a message other than ChannelData of a known client. It returns the answer, which lies in the free
// part of the slab, and what became of a request.
func (w *worker) message(path allocation.Path, n *counts, b []byte) (answer []byte, r allocation.Reason) {
	if len(b) > 0 && b[0]>>6 == 1 {
		n.add(allocation.NoAllocation, 1)
		return nil, allocation.NoAllocation
	}
	if len(b) >= 2 && binary.BigEndian.Uint16(b) == allocation.TypeSend {
		w.sendIndication(path, n, b)
		return nil, allocation.OK
	}
	answer, r = w.table.Request(path, b, w.slab[w.slabUsed:w.slabUsed], w.now)
	n.add(r, 1)
	w.next = 0 // lifetimes may have changed
	return answer, r
}

// sendIndication relays a Send indication (RFC 8656, section 11.2).
func (w *worker) sendIndication(path allocation.Path, n *counts, b []byte) {
	a, to, payload, r := w.table.Send(path, b, w.now)
	if r != allocation.OK {
		n.add(r, 1)
		return
	}
	c := a.Data.(*client)
	relay := c.relayTo(to.Addr())
	if relay == nil {
		n.add(allocation.FamilyMismatch, 1)
		return
	}
	target := w.target(to, netip.Addr{}, relay.socket.IPv6())
	if target == nil {
		n.add(reasonSendRefused, 1)
		return
	}
	if !c.allow(w.now, len(payload)) {
		n.add(allocation.Bandwidth, 1)
		return
	}
	w.toPeer(c, relay, target, w.cluster(a.Cluster(to)), payload)
}

// fromStream handles whole messages, without padding, that a stream client sent. The worker may use their memory
// until fromStream returns.
func (w *worker) fromStream(s stream, l *listener, path allocation.Path, messages [][]byte) {
	n, c, known := &l.counts[w.index], (*client)(nil), false
	for _, b := range messages {
		if !known { // a request may create or end the allocation
			c, known = w.clientOf(path), true
		}
		if c != nil && len(b) > 0 && b[0]>>6 == 1 {
			w.channelData(c, b)
			continue
		}
		w.opening, w.openingFrom, known = s, l, false
		w.reserve()
		answer, _ := w.message(path, n, b)
		w.opening, w.openingFrom = nil, nil
		if len(answer) > 0 && !s.deliver(answer, nil) {
			n.add(reasonQueueFull, 1)
		}
	}
	w.flush() // the caller may reuse the messages now
	s.flush()
}

// clientOf returns the client of a path, nil if it has no allocation.
func (w *worker) clientOf(path allocation.Path) *client {
	if a := w.table.Find(path); a != nil {
		return a.Data.(*client)
	}
	return nil
}

// streamGone ends the allocation of a connection that ended.
func (w *worker) streamGone(path allocation.Path) {
	if a := w.table.Find(path); a != nil {
		w.table.Delete(a, allocation.Disconnected)
	}
}

// reserve ensures that there is memory for one answer and its target.
func (w *worker) reserve() {
	if len(w.slab)-w.slabUsed < answerRoom || w.targetsUsed == len(w.targets) || w.writer.Room() == 0 {
		w.send()
	}
}

// target makes a target that is valid until the end of the poll, nil if the address family cannot reach it.
func (w *worker) target(to netip.AddrPort, local netip.Addr, v6 bool) *udpio.Target {
	if w.targetsUsed == len(w.targets) {
		w.send()
	}
	t, ok := udpio.NewTarget(to, local, v6)
	if !ok {
		return nil
	}
	w.targetsUsed++
	slot := &w.targets[w.targetsUsed-1]
	*slot = t
	return slot
}
