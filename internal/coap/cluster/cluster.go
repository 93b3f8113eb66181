package cluster

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/link"
	"github.com/weir-lb/weir/internal/coap/cluster/membership"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Cluster is the cluster as one own node sees it. It implements [engine.Cluster]: the engine's workers call Foreign, Frame, Return
// and Tick; Stats, Status and Ready may be called from any goroutine, and Run once.
type Cluster struct {
	self      uint32
	address   netip.AddrPort // of the management socket
	backward  bool
	strangers bool
	open      bool        // nodes that know the secret may come from any address
	links     *link.Links // nil: the link is not secured
	mac       bool        // frames carry one
	moves     *moves      // nil: the link is not secured
	replicas  *replicas   // nil: sessions have no copies
	log       *slog.Logger
	targets   targets
	names     names // of New, then of Run

	view  atomic.Pointer[view]
	state atomic.Uint32 // membership.State, as announced in pings

	mu         sync.Mutex
	table      *membership.Table // guarded by mu
	generation uint64            // of the table, when view was made; guarded by mu

	counters [maxWorkers]counters // by worker, so that they do not share cache lines

	// Of the first worker.
	ticking         bool
	linkAt, tableAt time.Duration // when they are due
}

// maxWorkers bounds the counter table; workers beyond it share its last row.
const maxWorkers = 64

// carrier is the part of an engine's worker that Cluster needs; tests replace it with one that records the calls.
type carrier interface {
	LinkBuffer() []byte
	LinkSend(n int, to netip.AddrPort)
	LinkSendInOrder(n int, to netip.AddrPort)
	Inject(datagram []byte, client, router netip.AddrPort)
	SendRaw(datagram []byte, to netip.AddrPort)
}

var (
	_ engine.Cluster = (*Cluster)(nil)
	_ engine.Mover   = (*Cluster)(nil)
)

// New builds the cluster as the own node self sees it and resolves the names of the others: those of Nodes once, for Group see Run.
func New(cfg Config, self uint32, log *slog.Logger) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{
		self: self, backward: cfg.SendsBackward(), strangers: cfg.AcceptStrangers, mac: cfg.UsesMAC(), log: log,
		open: cfg.Open(), names: newNames(cfg.Group),
	}
	c.targets.list, c.targets.seen.seed = hostAddresses, maphash.MakeSeed()
	c.targets.refresh(0)
	spec, err := c.spec(&cfg)
	if err != nil {
		return nil, err
	}
	if c.table, err = membership.Compile(spec); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	if cfg.Security != nil {
		c.links, err = link.New(link.Config{
			Identity: []byte(cfg.Security.identity()), Secret: cfg.Security.Secret, Node: self, Open: c.open, Log: log,
		})
		if err != nil {
			return nil, err
		}
	}
	c.moves = c.newMoves()
	if c.replicas, err = c.newReplicas(&cfg); err != nil {
		return nil, err
	}
	c.publishLocked() // no other goroutine has c yet
	return c, nil
}

// LinkMemory is how much memory KeepLink needs.
const LinkMemory = link.MemoryBytes

// KeepLink has the keys of frames outlive the process in memory that is zero at first, of LinkMemory bytes, aligned to 8, and goes on with those that are there. now is the
// time of the engine's clock. It is to be called before the engine runs; without a secured link it does nothing.
func (c *Cluster) KeepLink(memory []byte, now time.Duration) {
	if c.links != nil {
		c.links.Keep(memory, now)
	}
}

// Link is the address of the own management socket, for [engine.Config].
func (c *Cluster) Link() netip.AddrPort { return c.address }

// HeaderLength is how many bytes stand before the datagram in a frame that forwards one of an IPv4 client, for [engine.Config].
func (c *Cluster) HeaderLength() int { return 4 + 4 + c.macLength() }

func (c *Cluster) macLength() int {
	if c.mac {
		return macLength
	}
	return 0
}

func (c *Cluster) row(w *engine.Worker) *counters {
	return &c.counters[min(w.ID(), maxWorkers-1)]
}
