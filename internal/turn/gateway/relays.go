package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

// client is the gateway's state of an allocation: Allocation.Data.
type client struct {
	a        *allocation.Allocation
	listener *listener
	counts   *counts
	socket   *listenerSocket // UDP: the socket that receives and sends its datagrams
	target   udpio.Target    // UDP: the client's address
	stream   stream          // other transports: the client's connection
	dirty    bool            // the stream has messages to flush
	relays   [2]*relay       // by allocation.V4 and V6; nil if it has none
	tcp      *tcpRelay
	kernel   atomic.Int64 // bytes that the kernel relayed and that the bandwidth quota was not yet charged for
	changed  bool         // its record is to be stored
	gone     bool
}

// relay is one relay address: the socket that peers of one family see.
type relay struct {
	c      *client
	socket udpio.Socket
	addr   netip.AddrPort
	token  uint64
	queue  udpio.Queue
	dirty  bool
}

// peer is the gateway's state of a channel: Channel.Data.
type peer struct {
	relay   *relay
	target  udpio.Target
	counts  *counts // of its cluster
	offload uint32  // id in the kernel, 0: none
	bound   bool    // to be added to the offload
}

// relayTo returns the relay of a peer's address family, nil if there is none.
func (c *client) relayTo(peer netip.Addr) *relay {
	if peer.Is4() {
		return c.relays[allocation.V4]
	}
	return c.relays[allocation.V6]
}

// allow charges a payload to the bandwidth quota, after charging what the kernel has relayed.
func (c *client) allow(now int64, bytes int) bool {
	if done := c.kernel.Load(); done != 0 {
		c.kernel.Add(-done)
		c.a.Charge(now, int(done))
	}
	return c.a.Allow(now, bytes)
}

// newPeer prepares a channel for packets.
func (w *worker) newPeer(c *client, ch *allocation.Channel) *peer {
	r := c.relayTo(ch.Peer.Addr())
	if r == nil {
		return nil
	}
	target, ok := udpio.NewTarget(ch.Peer, netip.Addr{}, r.socket.IPv6())
	if !ok {
		return nil
	}
	p := &peer{relay: r, target: target, counts: w.cluster(ch.Cluster)}
	ch.Data = p
	return p
}

// relays implements the table's allocation.Relays for a worker.
type relays worker

// Open makes the relay sockets of a new allocation.
func (rs *relays) Open(a *allocation.Allocation, want allocation.RelayRequest) (got [2]netip.AddrPort, err error) {
	w := (*worker)(rs)
	c := w.newClient(a)
	if c == nil {
		return got, errors.New("the listener is gone")
	}
	a.Data = c
	started := w.gateway.options.Now()
	defer func() { c.counts.allocated(time.Duration(w.gateway.options.Now() - started)) }()
	if a.TCP {
		got, err = w.openTCP(c, want)
	} else {
		got, err = w.openUDP(c, want)
	}
	for _, public := range c.listener.current().RelayPublic {
		family := allocation.V4
		if public.Is6() {
			family = allocation.V6
		}
		a.Public[family] = public
	}
	if err == nil || got[allocation.V4].IsValid() || got[allocation.V6].IsValid() {
		c.counts.opened.Add(1)
		if c.stream != nil {
			c.stream.allocated(true)
		}
	}
	return got, err
}

func (w *worker) newClient(a *allocation.Allocation) *client {
	c := &client{a: a, stream: w.opening}
	if c.stream == nil {
		if int(a.Path.Listener) >= len(w.listeners) || w.listeners[a.Path.Listener] == nil {
			return nil
		}
		c.socket = w.listeners[a.Path.Listener]
		c.listener = c.socket.l
		local := netip.Addr{}
		if c.socket.conn.Wildcard() {
			local = a.Path.Server.Addr()
		}
		var ok bool
		if c.target, ok = udpio.NewTarget(a.Path.Client, local, c.socket.conn.IPv6()); !ok {
			return nil
		}
	} else {
		c.listener = w.openingFrom
	}
	c.counts = &c.listener.counts[w.index]
	return c
}

func (w *worker) openUDP(c *client, want allocation.RelayRequest) (got [2]netip.AddrPort, err error) {
	for family, wanted := range [2]bool{want.V4, want.V6} {
		if !wanted && !want.Exact[family].IsValid() {
			continue
		}
		r, failed := w.openRelay(c, want, family)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		c.relays[family], got[family] = r, r.addr
	}
	return got, err
}

// openRelay binds one relay socket and watches it.
func (w *worker) openRelay(c *client, want allocation.RelayRequest, family int) (*relay, error) {
	socket, addr, err := w.bindRelay(c, want, family)
	if err != nil {
		return nil, err
	}
	r := &relay{c: c, socket: socket, addr: addr}
	r.token = w.watched.Add(watched{relay: r})
	if err := w.poller.Add(&r.socket, r.token); err != nil {
		w.watched.Remove(r.token)
		w.gateway.ports.release(addr)
		r.socket.Close()
		return nil, fmt.Errorf("%w: %w", allocation.ErrNoPort, err)
	}
	if k := w.gateway.options.Store; k != nil {
		if err := k.Hold(relayName(addr), r.socket.FD()); err != nil {
			w.gateway.options.Log.Warn("a relay address will not outlive this process", "relay", addr, "error", err)
		}
	}
	return r, nil
}

// Close ends the relays of a removed allocation. Queued datagrams to its peers are still sent.
func (rs *relays) Close(a *allocation.Allocation) {
	w := (*worker)(rs)
	c, _ := a.Data.(*client)
	if c == nil {
		return
	}
	if c.socket != nil {
		if recent := &c.socket.recent[a.Path.Client.Port()%recentSize]; *recent == c {
			*recent = nil
		}
	}
	if c.tcp != nil {
		w.closeTCP(c)
	}
	if c.stream != nil {
		c.stream.allocated(false)
	}
	for i, r := range c.relays {
		if r != nil {
			w.closeRelay(r)
			c.relays[i] = nil
		}
	}
}

// CloseFamily ends one relay of an allocation that continues with the other.
func (rs *relays) CloseFamily(a *allocation.Allocation, family int) {
	w := (*worker)(rs)
	c, _ := a.Data.(*client)
	if c == nil {
		return
	}
	if c.tcp != nil {
		c.tcp.closeFamily(family)
	}
	if r := c.relays[family]; r != nil {
		w.closeRelay(r)
		c.relays[family] = nil
	}
}

func (w *worker) closeRelay(r *relay) {
	if n := w.writer.Flush(&r.socket, &r.queue); n > 0 {
		r.c.counts.add(reasonSendRefused, n)
	}
	w.watched.Remove(r.token)
	r.socket.Close()
	if k := w.gateway.options.Store; k != nil {
		k.Drop(relayName(r.addr))
	}
	w.gateway.ports.release(r.addr)
}

func relayName(addr netip.AddrPort) string { return "relay/" + addr.String() }

// Release gives a reserved address back.
func (rs *relays) Release(reserved netip.AddrPort) { rs.gateway.ports.drop(reserved) }

// Connect opens a connection to a peer (RFC 6062).
func (rs *relays) Connect(a *allocation.Allocation, id uint32, peer netip.AddrPort) {
	(*worker)(rs).connectTCP(a.Data.(*client), id, peer)
}

// Suspend stops relaying on a connection to a peer in both directions, or resumes it.
func (rs *relays) Suspend(a *allocation.Allocation, id uint32, suspended bool) {
	if d := a.Data.(*client).tcp.conns[id]; d != nil {
		d.suspend(suspended)
	}
}

// Disconnect ends a connection to a peer.
func (rs *relays) Disconnect(a *allocation.Allocation, id uint32) {
	(*worker)(rs).disconnectTCP(a.Data.(*client), id)
}
