package cluster

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Foreign forwards a datagram to the node that owns its connection id. See [engine.Cluster].
func (c *Cluster) Foreign(w *engine.Worker, owner uint32, datagram []byte, from netip.AddrPort, _ time.Duration) bool {
	return c.foreign(w, c.row(w), owner, datagram, from)
}

func (c *Cluster) foreign(w carrier, n *counters, owner uint32, datagram []byte, from netip.AddrPort) bool {
	var node *member
	if owner < MaxNodes {
		node = c.view.Load().byID[c.owner(owner)]
	}
	return c.forwardTo(w, n, node, datagram, from)
}

// forwardTo forwards a datagram to a node; nil: it is not known.
func (c *Cluster) forwardTo(w carrier, n *counters, node *member, datagram []byte, from netip.AddrPort) bool {
	if node == nil || len(datagram) < MinBody {
		n.droppedForward.Add(1)
		return false
	}
	buffer := w.LinkBuffer()
	header := HeaderLength(from) + c.macLength()
	if header+len(datagram) > len(buffer) || c.mac && node.keys() == nil {
		n.droppedForward.Add(1)
		return true // the owner is known, but it cannot be forwarded now; it is not for this node either
	}
	c.targets.forwarded(from)
	copy(buffer[header:], datagram)
	c.head(buffer[:header], TypeIn, from, datagram, node)
	w.LinkSend(header+len(datagram), node.addr)
	n.forwarded.Add(1)
	return true
}

// head writes the header of a frame, with its MAC, into b, which has its length. It returns false if there is no session with the
// node to.
func (c *Cluster) head(b []byte, kind byte, client netip.AddrPort, body []byte, to *member) bool {
	head := AppendHeader(b[:0:len(b)], kind, client)
	if !c.mac {
		return true
	}
	keys := to.keys()
	if keys == nil {
		return false
	}
	code := keys.Sum(head, body)
	copy(b[len(head):], code[:])
	return true
}

// Frame handles one datagram of the management port. See [engine.Cluster].
func (c *Cluster) Frame(w *engine.Worker, frame []byte, from netip.AddrPort, now time.Duration) {
	c.frame(w, c.row(w), frame, from, now)
}

func (c *Cluster) frame(w carrier, n *counters, frame []byte, from netip.AddrPort, now time.Duration) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	sender := c.view.Load().byAddr[from]
	switch stranger := sender == nil && !c.strangers; {
	case stranger && !c.open:
		n.strangers.Add(1)
	case len(frame) == 0:
		n.malformed.Add(1)
	case frame[0] == TypeIn || frame[0] == TypeOut:
		if stranger {
			n.strangers.Add(1)
			return
		}
		c.forwarded(w, n, frame, sender, from, now)
	case frame[0] == TypeRelay && c.moves != nil:
		if relay, ok := w.(relayCarrier); ok && sender != nil {
			c.relayed(relay, n, frame, sender, now)
			return
		}
		n.strangers.Add(1)
	case c.links != nil:
		c.secured(w, n, frame, from, now)
	case frame[0] == TypePing || frame[0] == TypePong:
		c.ping(w, n, frame, from, now)
	default:
		n.malformed.Add(1)
	}
}

// forwarded handles a frame with a datagram. sender is nil for an accepted stranger.
func (c *Cluster) forwarded(w carrier, n *counters, frame []byte, sender *member, from netip.AddrPort, now time.Duration) {
	in := frame[0] == TypeIn
	dropped, bad, done := &n.droppedBackward, &n.badBackward, &n.sentBackwarded
	if in {
		dropped, bad, done = &n.droppedForward, &n.badForward, &n.processedForwarded
	}
	f, err := ParseFrame(frame, c.mac)
	if err != nil {
		dropped.Add(1)
		return
	}
	if c.mac && !sender.verifies(&f, frame) {
		bad.Add(1)
		return
	}
	if in && !c.targets.forward(f.Peer) || !in && !c.targets.backward(f.Peer) {
		n.refusedTargets.Add(1)
		return
	}
	c.alive(w, n, sender, now)
	done.Add(1)
	if in {
		w.Inject(f.Body, f.Peer, from)
	} else {
		w.SendRaw(f.Body, f.Peer)
	}
}

// verifies reports whether the MAC of a frame is that of the node.
func (m *member) verifies(f *Frame, frame []byte) bool {
	keys := m.keys()
	return keys != nil && keys.Verify(frame[:4+frame[3]], f.MAC, f.Body)
}

// Return wraps a reply for the router through which its request came. See [engine.Cluster].
func (c *Cluster) Return(w *engine.Worker, buf []byte, end int, record []byte, client, router netip.AddrPort) (int, bool) {
	return c.wrap(c.row(w), buf, end, record, client, router)
}

func (c *Cluster) wrap(n *counters, buf []byte, end int, record []byte, client, router netip.AddrPort) (int, bool) {
	header := HeaderLength(client) + c.macLength()
	if !c.backward || end < header || len(record) < MinBody {
		return 0, false
	}
	through := c.view.Load().byAddr[router]
	if through == nil && !c.strangers || !c.head(buf[end-header:end], TypeOut, client, record, through) {
		return 0, false // since the request the router has left, or its session has ended
	}
	n.backwarded.Add(1)
	return end - header, true
}
