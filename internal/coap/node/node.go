package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/coap/stream/streamserver"
	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// Node is an open server process: its listeners and their engines.
type Node struct {
	cfg        Config
	listeners  []*listener
	plugtest   *plugtest // nil without
	extended   *extended
	contexts   *oscore.Table // of OSCORE; nil without
	diagnosis  diagnosis
	names      map[string]int // listeners by their name in the Store
	keys       keys
	resume     *handshake.Resumption // nil: DTLS sessions are not resumed
	ran        atomic.Bool
	draining   atomic.Bool // sessions end
	executions *os.File    // nil without Config.Executions; open until the process ends
	moving     atomic.Bool // sessions move to other nodes
	moved      news        // owners of a cluster have changed

	mu         sync.Mutex
	generation uint64 // of the credentials; guarded by mu
	reloadErr  error  // of the last reload; guarded by mu
}

// listener is one public address.
type listener struct {
	cfg        *Config
	secure     bool
	profile    bool   // that of the plugtest server
	exponent   uint32 // of the largest block
	nodeID     *uint32
	cluster    *cluster.Cluster     // nil outside of a cluster
	engine     *engine.Engine       // UDP, DTLS; else nil
	streams    *streamserver.Server // TCP, TLS; else nil
	tree       *resource.Tree
	plugtest   *plugtest     // of the Node; nil without
	extended   *extended     // of the Node
	diagnosis  *diagnosis    // of the Node
	contexts   *oscore.Table // of the Node; nil: OSCORE is not served
	benchmark  []byte
	executions *os.File // of the Node; nil without Config.Executions
	echo       echoKey
	member     *groupMember   // of the first worker; nil without Config.Multicast
	groups     []*groupSocket // of the member

	stored          string // name in the Store
	arenaName       string // of the arena in the Store
	arena           *arena.Arena
	copied          bool        // other nodes have copies of its sessions
	kept            *KeptStatus // nil without an arena
	taken           *os.File    // of the arena, if the Store had it
	held, heldLinks int         // sockets that the Store had
	flight          *os.File    // of what is under way; nil: that ends with the process
	flightMemory    []byte
	flightHeld      bool // the Store had it

	mu       sync.Mutex
	handlers []*core // by creation; guarded by mu
	shares   []share // last counters of each handler; guarded by mu
}

// Open checks cfg, loads the credentials and opens every socket. On error nothing stays open.
func Open(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	n := &Node{cfg: cfg, generation: 1, names: map[string]int{}, extended: newExtended(time.Now, cfg.EchoDelay)}
	if err := n.loadKeys(); err != nil {
		return nil, err
	}
	var err error
	if n.contexts, err = cfg.loadContexts(); err != nil {
		return nil, err
	}
	if n.resume, err = n.resumption(); err != nil {
		return nil, err
	}
	if cfg.Plugtest || cfg.PlugtestAt != nil {
		n.plugtest = newPlugtest(time.Now, cfg.NotifyInterval)
		if cfg.Shutdown {
			n.plugtest.shutdown = make(chan struct{}, 1)
		}
	}
	if n.executions, err = cfg.openExecutions(); err != nil {
		return nil, err
	}
	if err := n.open(); err != nil {
		_ = n.Close() // nothing was served: the sockets close, and err says why
		return nil, err
	}
	return n, nil
}

func (n *Node) open() error {
	own := Addresses{Listen: n.cfg.Listen, DTLS: n.cfg.DTLS, TCP: n.cfg.TCP, TLS: n.cfg.TLS}
	for _, profile := range []struct {
		addresses Addresses
		plugtest  bool
	}{{own, n.cfg.Plugtest}, {n.cfg.plugtestAddresses(), true}} {
		for _, kind := range []struct {
			name      string
			addresses []string
			secure    bool
			open      func(*listener, netip.AddrPort) error
		}{
			{"coap", profile.addresses.Listen, false, n.listen},
			{"coaps", profile.addresses.DTLS, true, n.listen},
			{"coap+tcp", profile.addresses.TCP, false, n.listenStream},
			{"coaps+tcp", profile.addresses.TLS, true, n.listenStream},
		} {
			for _, text := range kind.addresses {
				if err := n.openAll(text, kind.secure, profile.plugtest, kind.open); err != nil {
					return fmt.Errorf("%s listener: %w", kind.name, err)
				}
			}
		}
	}
	return n.openCluster()
}

// openAll opens a listener at each address that text stands for.
func (n *Node) openAll(text string, secure, plugtest bool, open func(*listener, netip.AddrPort) error) error {
	addresses, err := n.cfg.expand(text)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if err := open(&listener{secure: secure, nodeID: n.cfg.NodeID, profile: plugtest}, address); err != nil {
			return err
		}
	}
	return nil
}

// listen opens the engine of one listener.
func (n *Node) listen(l *listener, addr netip.AddrPort) (err error) {
	n.prepare(l)
	cfg := engine.Config{
		Listen: addr, Workers: n.cfg.Workers, Plain: !l.secure, MaxSessions: n.cfg.MaxSessions, SessionIdle: n.cfg.SessionIdle,
		NewHandler: l.newHandler, Trusted: n.cfg.trusts,
		Log: n.cfg.Log.With("listener", addr), Shared: n.cfg.Multicast != nil && !l.secure,
	}
	if l.secure {
		owner := uint32(0)
		if l.nodeID != nil {
			owner = *l.nodeID
		}
		cfg.PSK = func(identity []byte) ([]byte, bool) { return n.keys.psk.Load().PSK(identity) }
		cfg.Credentials, cfg.ClientAuth, cfg.Resumption = n.keys.dtls, n.cfg.clientAuth(), n.resume
		cfg.CIDs = engine.ByteOwnerCIDs(n.cfg.CIDLength, owner)
	}
	if l.cluster != nil {
		cfg.Cluster, cfg.Link, cfg.LinkHeader = l.cluster, l.cluster.Link(), l.cluster.HeaderLength()
	}
	l.stored = n.storedName(l, addr.String())
	n.takeOver(l, &cfg)
	if l.engine, err = engine.Open(cfg); err != nil {
		l.closeArena()
		return err
	}
	n.hold(l)
	n.listeners = append(n.listeners, l)
	return n.join(l)
}

// prepare sets what listeners of every kind need.
func (n *Node) prepare(l *listener) {
	l.cfg = &n.cfg
	if l.profile {
		l.plugtest = n.plugtest
	}
	l.extended, l.diagnosis, l.contexts, l.echo = n.extended, &n.diagnosis, n.contexts, newEchoKey()
	l.executions = n.executions
	l.exponent = n.cfg.exponent(l.profile)
	l.tree = l.newTree()
	l.benchmark = benchmarkBody()
}

// listenStream opens a listener over TCP, or over TLS if it is secure.
func (n *Node) listenStream(l *listener, addr netip.AddrPort) (err error) {
	n.prepare(l)
	cfg := streamserver.Config{
		Listen: addr, Workers: n.cfg.Workers, MaxConnections: min(n.cfg.MaxSessions, maxConnections), Idle: n.cfg.StreamIdle,
		NewHandler: l.newStreamHandler, Log: n.cfg.Log.With("listener", addr),
	}
	if l.secure {
		if cfg.TLS = n.cfg.TLSConfig; cfg.TLS == nil {
			cfg.TLS = serverTLS(n.keys.certificates, n.cfg.clientAuth())
		}
	}
	if l.streams, err = streamserver.Open(cfg); err != nil {
		return err
	}
	n.listeners = append(n.listeners, l)
	return nil
}

// newHandler is called by the engine, once per worker.
func (l *listener) newHandler(w *engine.Worker) engine.Handler {
	h := newHandlerWith(l, w, randomSeed(), w.ID(), l.keptLog(w.ID()))
	l.add(&h.core)
	if l.member == nil && l.cfg.Multicast != nil && !l.secure {
		l.member = &groupMember{worker: w, handler: h, out: make([]byte, 0, groupAnswer)}
	}
	return h
}

// newStreamHandler is called by the server of connections, once per worker.
func (l *listener) newStreamHandler(w *streamserver.Worker) streamserver.Handler {
	h := newStreamHandler(l, w, randomSeed())
	l.add(&h.core)
	return h
}

func (l *listener) add(c *core) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handlers = append(l.handlers, c)
}

func randomSeed() uint64 {
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(seed[:])
}

// addr is the address of the listener, with the port that was taken.
func (l *listener) addr() netip.AddrPort {
	if l.streams != nil {
		return l.streams.Addr()
	}
	return l.engine.Addr()
}

// serve runs the listener until ctx ends.
func (l *listener) serve(ctx context.Context) error {
	if l.streams != nil {
		return l.streams.Run(ctx)
	}
	return l.engine.Run(ctx)
}

// Close closes the sockets of a Node whose Run was never called; after Run it does nothing.
func (n *Node) Close() error {
	if n.ran.Swap(true) {
		return nil
	}
	n.Leave() // the next process may come to serve
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return n.run(ctx)
}

// Run serves until ctx ends, or a client ends it if Config.Shutdown permits that, then closes every session and returns. If one
// engine fails, the others end too. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	if n.ran.Swap(true) {
		return errors.New("coap node: Run was called before, or Close")
	}
	return n.run(ctx)
}

func (n *Node) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failures []error // guarded by n.mu
	var group sync.WaitGroup
	run := func(what string, serve func(context.Context) error) {
		group.Go(func() {
			defer cancel()
			if err := serve(ctx); err != nil && !errors.Is(err, context.Canceled) {
				n.mu.Lock()
				failures = append(failures, fmt.Errorf("serve %s: %w", what, err))
				n.mu.Unlock()
			}
		})
	}
	if n.cfg.Diagnose {
		group.Go(func() { n.diagnosis.follow(ctx, n) })
	}
	if n.plugtest != nil && n.plugtest.shutdown != nil {
		run("shutdown", n.plugtest.awaitShutdown)
	}
	for _, l := range n.listeners {
		run(l.uri(), l.serve)
		if l.cluster != nil {
			run("cluster of "+l.uri(), l.cluster.Run)
		}
		for _, socket := range l.groups {
			run("multicast at "+socket.conn.LocalAddr().String(), socket.serve)
		}
	}
	group.Wait()
	for _, l := range n.listeners {
		l.closeArena()
	}
	return errors.Join(failures...)
}

// Address describes one open listener.
type Address struct {
	URI        string         `json:"uri" label:"listener"` // coap://127.0.0.1:5683
	Addr       netip.AddrPort `json:"address"`
	Secure     bool           `json:"secure"`
	NodeID     *uint32        `json:"node_id,omitempty" label:"node"`
	Management netip.AddrPort `json:"management,omitzero"` // of a cluster node
}

// Addresses lists the listeners in the configured order: plain, DTLS, TCP, TLS, cluster nodes. Ports are the actual ones.
func (n *Node) Addresses() []Address {
	var all []Address
	for _, l := range n.listeners {
		a := Address{URI: l.uri(), Addr: l.addr(), Secure: l.secure, NodeID: l.nodeID}
		if l.cluster != nil {
			a.Management = l.engine.LinkAddr()
		}
		all = append(all, a)
	}
	return all
}

func (l *listener) uri() string {
	scheme := "coap"
	if l.secure {
		scheme = "coaps"
	}
	if l.streams != nil {
		scheme += "+tcp"
	}
	return scheme + "://" + l.addr().String()
}

// LogStart writes one line per listener, for people and machines.
func (n *Node) LogStart(log *slog.Logger) {
	for _, a := range n.Addresses() {
		attributes := []any{"uri", a.URI}
		if a.NodeID != nil {
			attributes = append(attributes, "node", *a.NodeID)
		}
		if a.Management.IsValid() {
			attributes = append(attributes, "management", a.Management)
		}
		log.Info("listening", attributes...)
	}
}
