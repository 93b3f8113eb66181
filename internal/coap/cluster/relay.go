package cluster

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// A session that has moved may be asked for at a node that does not know that yet, as every node of Californium. The datagram then
// takes one step more, between nodes of Weir alone, in a frame that names the node where it came in, to which the reply returns:
//
//	frame 59, with a MAC behind the address if frames have one
//	+------+-----------+-----+---------+------------------+-----+---------+----------+
//	| 59   | port (LE) | n   | address | router port (LE) | n   | address | datagram |
//	+------+-----------+-----+---------+------------------+-----+---------+----------+
//
// It is never forwarded again.

// Missing implements [engine.Mover].
func (c *Cluster) Missing(w *engine.Worker, owner uint32, datagram []byte, client, router netip.AddrPort, final bool) bool {
	if c.moves == nil || owner >= MaxNodes {
		return false
	}
	n := c.row(w)
	if id := connectionID(datagram, w.CIDLength()); c.moves.wait(id, datagram, client, router) {
		n.waited.Add(1)
		return true
	}
	to := c.moves.routes.Load().Onward[owner]
	if final || to < 0 {
		return false
	}
	return c.onward(w, n, uint32(to), datagram, client, router)
}

// connectionID returns that of the first record, behind its type, version, epoch and sequence number (RFC 9146 section 4).
func connectionID(datagram []byte, length int) []byte {
	const at = 11
	return datagram[at:min(len(datagram), at+length)]
}

// onward sends a datagram to a node where its session may be.
func (c *Cluster) onward(w carrier, n *counters, to uint32, datagram []byte, client, router netip.AddrPort) bool {
	if !router.IsValid() {
		return c.forwardTo(w, n, c.view.Load().byID[to], datagram, client)
	}
	node := c.view.Load().byID[to]
	if node == nil || node.addr == router { // it has just sent it here
		return false
	}
	if c.mac && node.keys() == nil {
		n.droppedForward.Add(1)
		return true
	}
	buffer := w.LinkBuffer()
	header := HeaderLength(client) + c.macLength()
	body := appendAddress(buffer[header:header:len(buffer)], router)
	if header+len(body)+len(datagram) > len(buffer) {
		n.droppedForward.Add(1)
		return true
	}
	body = append(body, datagram...)
	c.head(buffer[:header], TypeRelay, client, body, node)
	w.LinkSend(header+len(body), node.addr)
	n.relayed.Add(1)
	return true
}

// appendAddress appends an address as in the header of a frame.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	at := len(b)
	b = AppendHeader(b, 0, a)
	return append(b[:at], b[at+1:]...)
}

// parseRouter reads the address in front of a relayed datagram.
func parseRouter(b []byte) (router netip.AddrPort, datagram []byte, ok bool) {
	if len(b) < 3 {
		return router, nil, false
	}
	n := int(b[2])
	if n != 4 && n != 16 || len(b) < 3+n+MinBody {
		return router, nil, false
	}
	addr, _ := netip.AddrFromSlice(b[3 : 3+n])
	return netip.AddrPortFrom(addr.Unmap(), binary.LittleEndian.Uint16(b)), b[3+n:], true
}

// relayed handles a frame that another node has sent on. The router that it names must be a node, too.
func (c *Cluster) relayed(w relayCarrier, n *counters, frame []byte, sender *member, now time.Duration) {
	f, err := ParseFrame(frame, c.mac)
	if err != nil {
		n.droppedForward.Add(1)
		return
	}
	if c.mac && !sender.verifies(&f, frame) {
		n.badForward.Add(1)
		return
	}
	router, datagram, ok := parseRouter(f.Body)
	switch {
	case !ok:
		n.droppedForward.Add(1)
		return
	case c.view.Load().byAddr[router] == nil:
		n.strangers.Add(1)
		return
	case !c.targets.forward(f.Peer):
		n.refusedTargets.Add(1)
		return
	}
	c.alive(w, n, sender, now)
	n.processedForwarded.Add(1)
	w.InjectFinal(datagram, f.Peer, router)
}

// relayCarrier is a carrier that takes relayed datagrams.
type relayCarrier interface {
	carrier
	InjectFinal(datagram []byte, client, router netip.AddrPort)
}
