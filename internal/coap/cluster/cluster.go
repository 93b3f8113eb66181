package cluster

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Cluster is the static membership as one own node sees it. It implements [engine.Cluster]: the engine's workers call
// Foreign, Frame, Return and Tick; Stats, Status and Ready may be called from any goroutine.
type Cluster struct {
	self      uint32
	link      netip.AddrPort
	members   []*member                  // without self, in the order configured
	byID      [MaxNodes]*member          // nil: no such node, or self
	byAddress map[netip.AddrPort]*member // management address, unmapped
	backward  bool
	strangers bool
	log       *slog.Logger
	targets   targets

	counters [maxWorkers]counters // by worker, so that they do not share cache lines
	clock    atomic.Int64         // time of the latest Tick, in ns
	state    atomic.Uint32        // State, as announced in pings
}

// maxWorkers bounds the counter table; workers beyond it share its last row.
const maxWorkers = 64

// carrier is the part of an engine's worker that Cluster needs; tests replace it with one that records the calls.
type carrier interface {
	LinkBuffer() []byte
	LinkSend(n int, to netip.AddrPort)
	Inject(datagram []byte, client, router netip.AddrPort)
	SendRaw(datagram []byte, to netip.AddrPort)
}

var _ engine.Cluster = (*Cluster)(nil)

// New builds the cluster as the own node self sees it and resolves the names of the others, once.
func New(cfg Config, self uint32, log *slog.Logger) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{
		self: self, backward: cfg.SendsBackward(), strangers: cfg.AcceptStrangers, log: log,
		byAddress: make(map[netip.AddrPort]*member, len(cfg.Nodes)),
	}
	found := false
	for i, n := range cfg.Nodes {
		address, err := resolve(n.Management)
		if err != nil {
			return nil, fmt.Errorf("nodes[%d].management: %w", i, err)
		}
		if n.ID == self {
			if !n.Own() {
				return nil, fmt.Errorf("nodes[%d]: node %d is %q, but this process is to run it", i, self, Foreign)
			}
			c.link, found = address, true
			c.targets.ports = [2]uint16{portOf(n.DTLS), address.Port()}
			continue
		}
		if address.Addr().IsUnspecified() { // another own node of this process that binds every interface
			address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), address.Port())
		}
		if other, taken := c.byAddress[address]; taken {
			return nil, fmt.Errorf("nodes[%d].management: %s is also the address of node %d", i, address, other.id)
		}
		m := &member{id: n.ID, address: address}
		c.members = append(c.members, m)
		c.byID[n.ID] = m
		c.byAddress[address] = m
	}
	if !found {
		return nil, fmt.Errorf("nodes: no node %d", self)
	}
	c.targets.loopback = !slices.ContainsFunc(c.members, func(m *member) bool { return !m.address.Addr().IsLoopback() })
	c.targets.list, c.targets.seen.seed = hostAddresses, maphash.MakeSeed()
	c.targets.refresh(0)
	return c, nil
}

// Link is the address of the own management socket, for [engine.Config].
func (c *Cluster) Link() netip.AddrPort { return c.link }

// Foreign forwards a datagram to the node that owns its connection id. See [engine.Cluster].
func (c *Cluster) Foreign(w *engine.Worker, owner uint32, datagram []byte, from netip.AddrPort, _ time.Duration) bool {
	return c.foreign(w, c.row(w), owner, datagram, from)
}

func (c *Cluster) foreign(w carrier, n *counters, owner uint32, datagram []byte, from netip.AddrPort) bool {
	if owner >= MaxNodes || c.byID[owner] == nil || len(datagram) < MinBody {
		n.droppedForward.Add(1)
		return false
	}
	buffer := w.LinkBuffer()
	length := HeaderLength(from) + len(datagram)
	if length > len(buffer) {
		n.droppedForward.Add(1)
		return true // the owner is known, but the datagram is too long to forward; it is not for this node either
	}
	c.targets.forwarded(from)
	head := AppendHeader(buffer[:0], TypeIn, from)
	copy(buffer[len(head):], datagram)
	w.LinkSend(length, c.byID[owner].address)
	n.forwarded.Add(1)
	return true
}

// Frame handles one datagram of the management port. See [engine.Cluster].
func (c *Cluster) Frame(w *engine.Worker, frame []byte, from netip.AddrPort, now time.Duration) {
	c.frame(w, c.row(w), frame, from, now)
}

func (c *Cluster) frame(w carrier, n *counters, frame []byte, from netip.AddrPort, now time.Duration) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	sender := c.byAddress[from]
	if sender == nil && !c.strangers {
		n.strangers.Add(1)
		return
	}
	if len(frame) == 0 {
		n.malformed.Add(1)
		return
	}
	switch frame[0] {
	case TypeIn:
		f, err := ParseFrame(frame, false)
		if err != nil {
			n.droppedForward.Add(1)
			return
		}
		if !c.targets.forward(f.Peer) {
			n.refusedTargets.Add(1)
			return
		}
		sender.markAlive(now)
		n.processedForwarded.Add(1)
		w.Inject(f.Body, f.Peer, from)
	case TypeOut:
		f, err := ParseFrame(frame, false)
		if err != nil {
			n.droppedBackward.Add(1)
			return
		}
		if !c.targets.backward(f.Peer) {
			n.refusedTargets.Add(1)
			return
		}
		sender.markAlive(now)
		n.sentBackwarded.Add(1)
		w.SendRaw(f.Body, f.Peer)
	case TypePing, TypePong:
		c.ping(w, n, frame, from, sender, now)
	default:
		n.malformed.Add(1)
	}
}

// Return wraps a reply for the router through which its request came. See [engine.Cluster].
func (c *Cluster) Return(w *engine.Worker, buf []byte, end int, record []byte, client, router netip.AddrPort) (int, bool) {
	return c.wrap(c.row(w), buf, end, record, client)
}

func (c *Cluster) wrap(n *counters, buf []byte, end int, record []byte, client netip.AddrPort) (int, bool) {
	header := HeaderLength(client)
	if !c.backward || end < header || len(record) < MinBody {
		return 0, false
	}
	AppendHeader(buf[end-header:end-header:end], TypeOut, client)
	n.backwarded.Add(1)
	return end - header, true
}

func (c *Cluster) row(w *engine.Worker) *counters {
	return &c.counters[min(w.ID(), maxWorkers-1)]
}
