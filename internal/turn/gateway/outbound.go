package gateway

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

// longestData is the longest payload in bytes whose Data indication fits the length field of its header. Over UDP no
// such payload can be sent; on a stream a wrong length would corrupt all that follows.
const longestData = 65500

// readRelay reads one batch from the peers of an allocation.
func (w *worker) readRelay(r *relay) {
	if len(w.in)-w.inUsed < readBatch/4 {
		w.flush()
	}
	in := w.in[w.inUsed:]
	n, err := w.reader.Read(&r.socket, in)
	if err != nil {
		// EAGAIN: the kernel reported a network error to epoll and has cleared it since.
		if !errors.Is(err, unix.EAGAIN) {
			r.c.counts.add(reasonPeerError, 1)
		}
		return
	}
	w.inUsed += n
	from, number, reason := netip.AddrPort{}, uint16(0), allocation.OK
	for i := range in[:n] {
		m := &in[i]
		if i == 0 || m.Addr != from {
			from = m.Addr
			number, reason = r.c.a.Inbound(from, w.now)
		}
		w.fromPeer(r.c, m, number, reason)
	}
}

// fromPeer relays a peer's datagram, or a run of datagrams of equal length, to the client.
func (w *worker) fromPeer(c *client, m *udpio.Message, number uint16, reason allocation.Reason) {
	size := m.Segment
	if size == 0 {
		size = max(m.N, 1)
	}
	if reason != allocation.OK {
		c.counts.add(reason, max(1, (m.N+size-1)/size))
		return
	}
	cluster := w.peerCounts(c, m.Addr, number)
	for at := 0; at == 0 || at < m.N; at += size { // at == 0: an empty datagram is relayed too
		payload := m.Buf[at:min(at+size, m.N)]
		if !c.allow(w.now, len(payload)) {
			c.counts.add(allocation.Bandwidth, 1)
			continue
		}
		if number == 0 && c.stream != nil && len(payload) > longestData {
			c.counts.add(reasonSendRefused, 1)
			continue
		}
		if number != 0 {
			w.channelDown(c, number, payload)
		} else {
			w.dataDown(c, m.Addr, payload)
		}
		w.tally.add(c, cluster, true, len(payload), w.now)
	}
}

// peerCounts returns the counters of the cluster of a peer.
func (w *worker) peerCounts(c *client, from netip.AddrPort, number uint16) *counts {
	if number != 0 {
		if ch := c.a.Channel(number); ch != nil {
			if p, _ := ch.Data.(*peer); p != nil {
				return p.counts
			}
		}
	}
	return w.cluster(c.a.Cluster(from))
}

// channelDown queues ChannelData for a client.
func (w *worker) channelDown(c *client, number uint16, payload []byte) {
	allocation.PutChannelHeader(w.head[:], number, len(payload))
	if c.stream != nil {
		w.deliver(c, w.head[:], payload)
		return
	}
	if w.writer.Room() == 0 {
		w.send()
	}
	w.writer.AddHead(&c.socket.queue, &c.target, w.head, payload)
	w.markDirty(c.socket)
}

// dataDown queues a Data indication for a client.
func (w *worker) dataDown(c *client, from netip.AddrPort, payload []byte) {
	w.reserve()
	w.transaction++
	id := w.seed
	binary.BigEndian.PutUint64(id[4:], binary.BigEndian.Uint64(id[4:])^w.transaction)
	b := allocation.AppendData(w.slab[w.slabUsed:w.slabUsed], from, payload, id)
	if c.stream != nil {
		w.deliver(c, b, nil)
		return
	}
	w.slabUsed += len(b)
	w.writer.Add(&c.socket.queue, &c.target, b)
	w.markDirty(c.socket)
}

func (w *worker) deliver(c *client, head, body []byte) {
	if !c.stream.deliver(head, body) {
		c.counts.add(reasonQueueFull, 1)
		return
	}
	if !c.dirty {
		c.dirty = true
		w.dirtyClients = append(w.dirtyClients, c)
	}
}

// markDirty records that a listener socket has queued datagrams.
func (w *worker) markDirty(ls *listenerSocket) {
	if !ls.dirty {
		ls.dirty = true
		w.dirtySockets = append(w.dirtySockets, ls)
	}
}

// flush sends what is queued and frees the memory of this poll.
func (w *worker) flush() {
	w.send()
	w.inUsed = 0
}

// send sends what is queued; the read buffers stay in use.
func (w *worker) send() {
	w.storeChanges() // before the answers that confirm the changes are sent
	w.tally.flush()
	for i, r := range w.dirtyRelays {
		r.dirty = false
		w.dirtyRelays[i] = nil
		if n := w.writer.Flush(&r.socket, &r.queue); n > 0 {
			r.c.counts.add(reasonSendRefused, n)
		}
	}
	w.dirtyRelays = w.dirtyRelays[:0]
	for i, ls := range w.dirtySockets {
		ls.dirty = false
		w.dirtySockets[i] = nil
		if n := w.writer.FlushConn(ls.conn, &ls.queue); n > 0 {
			ls.counts.add(reasonSendRefused, n)
		}
	}
	w.dirtySockets = w.dirtySockets[:0]
	for i, c := range w.dirtyClients {
		c.dirty = false
		w.dirtyClients[i] = nil
		c.stream.flush()
	}
	w.dirtyClients = w.dirtyClients[:0]
	for _, f := range w.fronts {
		f.engine.Flush()
	}
	w.offloadBound()
	w.writer.Reset()
	w.slabUsed, w.targetsUsed = 0, 0
}
