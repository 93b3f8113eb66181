package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/coap/cluster/store"
)

// Bounds of the members.
const (
	MinMembers = 3
	MaxMembers = 7
)

// Config is what Open needs. Members, Prefix and Secret are the same on all nodes.
type Config struct {
	Directory string // of what this member has agreed to; nothing else uses it
	Prefix    string // of the keys
	Secret    []byte // of the link between the nodes
	Node      uint32
	Members   []Member       // all nodes, this one too
	Listen    netip.AddrPort // TCP; of this node's address
	Log       *slog.Logger
}

// Member is a node.
type Member struct {
	Node    uint32
	Address string // HOST:PORT, TCP
}

// Server is a member. Follow starts it, and starts it again after it has failed.
type Server struct {
	cfg Config

	mu      sync.Mutex
	running *running // guarded by mu, as closed
	closed  bool
}

type running struct {
	etcd  *embed.Etcd
	store *store.Etcd
}

var errStarts = errors.New("the embedded store does not run yet")

const (
	leaderEvery = 500 * time.Millisecond
	leaderless  = 3 * time.Second // elections take 1 to 2 s
	quotaBytes  = 64 << 20
	keepChanges = "1000" // the older ones of each entry are dropped
)

// Open prepares a member. It runs nothing and writes nothing.
func Open(cfg Config) *Server { return &Server{cfg: cfg} }

// Close ends the member. What it has agreed to stays in the directory.
func (s *Server) Close() error {
	s.mu.Lock()
	r := s.running
	s.running, s.closed = nil, true
	s.mu.Unlock()
	if r != nil {
		r.close()
	}
	return nil
}

func (r *running) close() {
	_ = r.store.Close()
	r.etcd.Close()
}

// Change implements the store.
func (s *Server) Change(ctx context.Context, c replica.Change) (replica.Entry, error) {
	r := s.current()
	if r == nil {
		return replica.Entry{}, errStarts
	}
	return r.store.Change(ctx, c)
}

// Delete implements the store.
func (s *Server) Delete(ctx context.Context, owner replica.Process, term uint64) error {
	r := s.current()
	if r == nil {
		return errStarts
	}
	return r.store.Delete(ctx, owner, term)
}

func (s *Server) current() *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Follow implements the store. It starts the member, and returns when that has ended, or while no majority of the members answers.
func (s *Server) Follow(ctx context.Context, entry func(replica.Entry)) error {
	r, err := s.start()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.watch(ctx, cancel)
	err = r.store.Follow(ctx, entry)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errEnded) {
		s.mu.Lock()
		s.running = nil
		s.mu.Unlock()
		r.close()
	}
	return err
}

var (
	errEnded    = errors.New("the embedded store has ended")
	errMajority = errors.New("the embedded store has no leader: a majority of its members does not run, or they do not reach each other")
)

// watch ends Follow when the member has ended, and when it has no leader for long.
func (r *running) watch(ctx context.Context, end context.CancelCauseFunc) {
	ticker := time.NewTicker(leaderEvery)
	defer ticker.Stop()
	led := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.etcd.Server.StopNotify():
			end(errEnded)
			return
		case <-ticker.C:
			if r.etcd.Server.Leader() != 0 {
				led = time.Now()
			} else if time.Since(led) > leaderless {
				end(errMajority)
				return
			}
		}
	}
}

// start starts the member, unless it runs.
func (s *Server) start() (*running, error) {
	if r := s.current(); r != nil {
		return r, nil
	}
	cfg, err := s.cfg.etcd()
	if err != nil {
		return nil, fmt.Errorf("embedded store: %w", err)
	}
	etcd, err := begin(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded store: %w", err)
	}
	r := &running{etcd, store.OnEtcd(v3client.New(etcd.Server), s.cfg.Prefix)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go r.close()
		return nil, context.Canceled
	}
	s.running = r
	return r, nil
}

// begin starts a server of etcd. Where that ends its goroutine, or panics, it is an error.
func begin(cfg *embed.Config) (server *embed.Etcd, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("cannot start from %s: %v", cfg.Dir, p)
			}
		}()
		err = fmt.Errorf("cannot start from %s; the log says why", cfg.Dir)
		server, err = embed.StartEtcd(cfg)
	}()
	<-done
	if err != nil && strings.Contains(err.Error(), "already been bootstrapped") {
		err = fmt.Errorf("%w: the other members know this one, but %s does not have what it has agreed to; bring that back, or give all nodes another prefix (cluster.replicate.prefix)", err, cfg.Dir)
	}
	return server, err
}

// etcd is the configuration of the member's server.
func (c *Config) etcd() (*embed.Config, error) {
	token := c.token()
	cfg := embed.NewConfig()
	cfg.Name, cfg.InitialClusterToken = name(c.Node), token
	cfg.Dir = filepath.Join(c.Directory, "etcd-"+token[:16])
	cfg.ListenPeerUrls = []url.URL{{Scheme: "https", Host: c.Listen.String()}}
	cfg.ListenClientUrls, cfg.ListenClientHttpUrls = nil, nil
	hosts := []string{c.Listen.Addr().String()}
	var members []string
	for _, m := range c.Members {
		members = append(members, name(m.Node)+"=https://"+m.Address)
		if m.Node != c.Node {
			continue
		}
		cfg.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: m.Address}}
		cfg.AdvertiseClientUrls = cfg.AdvertisePeerUrls // none: but a member with one is known to have run before
		host, _, err := net.SplitHostPort(m.Address)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	slices.Sort(members)
	cfg.InitialCluster = strings.Join(members, ",")
	cfg.TlsMinVersion = "TLS1.3"
	cfg.QuotaBackendBytes, cfg.MaxRequestBytes = quotaBytes, 64<<10
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keepChanges
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(c.Log))
	var err error
	cfg.PeerTLSInfo, err = writeCertificates(filepath.Join(c.Directory, "certificates"), c.Secret, c.Node, hosts)
	return cfg, err
}

// token tells this cluster's store from others: those of other members or another prefix.
func (c *Config) token() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", c.Prefix)
	members := slices.Clone(c.Members)
	slices.SortFunc(members, func(a, b Member) int { return int(a.Node) - int(b.Node) })
	for _, m := range members {
		fmt.Fprintf(h, "%d %s\n", m.Node, m.Address)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func name(node uint32) string { return fmt.Sprintf("node-%d", node) }
