package discovery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ServerOptions say who may ask, and who is told what became of configurations.
type ServerOptions struct {
	// Token returns the bearer token that requests must carry; nil: none is needed, because a NetworkPolicy or a Unix socket decides.
	Token func() (string, error)
	// Reported is called after each report of a node, and when a node connects or is gone. It must not block. Nil: not called.
	Reported func(NodeStatus)
	Log      *slog.Logger // nil: silent
	Now      func() time.Time
}

// NodeStatus is what a server knows of a node.
type NodeStatus struct {
	Node       string
	Connected  bool
	Wanted     string // version of the newest configuration for it; empty: there is none
	Applied    string // version in force; empty: none, or unknown
	Generation uint64 // number that the node gave it
	Refused    string // version that it refused last, unless a newer one is in force
	Error      string // why
	Seen       time.Time
}

// Current reports whether the newest configuration is in force at the node.
func (n *NodeStatus) Current() bool { return n.Wanted != "" && n.Applied == n.Wanted }

// ServerStats are a server's counters.
type ServerStats struct {
	Nodes    int    `metric:"weir_lb_discovery_nodes" help:"Nodes whose load balancers are connected to the config discovery service."`
	Relays   int    `metric:"weir_lb_discovery_relays" help:"Other operators that give the configuration of this one to load balancers."`
	Sent     uint64 `metric:"weir_lb_discovery_sent_total" help:"Configurations that were sent to load balancers."`
	Applied  uint64 `metric:"weir_lb_discovery_applied_total" help:"Reports of load balancers that a configuration is in force."`
	Refused  uint64 `metric:"weir_lb_discovery_refused_total" help:"Reports of load balancers that a configuration was refused."`
	Rejected uint64 `metric:"weir_lb_discovery_rejected_total" help:"Requests without the token, malformed, or beyond the limits."`
}

// Server has the newest configuration of each node. Its methods may be called from any goroutine.
type Server struct {
	options ServerOptions
	mux     *http.ServeMux
	alive   time.Duration

	mu      sync.Mutex
	shared  *version            // for nodes without one of their own; nil: none yet
	own     map[string]*version // by node
	nodes   map[string]*node
	relays  map[string]*relay
	changed chan struct{} // closed and replaced whenever a node's status changes
	stats   ServerStats
}

// version is one configuration.
type version struct {
	id   string
	line []byte // of the stream
}

// node is a node that has asked, or that has a configuration of its own.
type node struct {
	status NodeStatus
	stream *stream // nil: not connected
}

// stream is the connection of a node.
type stream struct {
	wake chan struct{} // capacity 1: there is something to send
	end  context.CancelFunc
}

// poke wakes the stream.
func (s *stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// NewServer returns a server without a configuration.
func NewServer(o ServerOptions) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		options: o, mux: http.NewServeMux(), alive: aliveEvery,
		own: map[string]*version{}, nodes: map[string]*node{}, relays: map[string]*relay{}, changed: make(chan struct{}),
	}
	s.mux.HandleFunc("GET "+configPath, s.guarded(s.watch))
	s.mux.HandleFunc("POST "+appliedPath, s.guarded(s.applied))
	s.mux.HandleFunc("GET "+relayPath, s.guarded(s.relay))
	s.mux.HandleFunc("POST "+relayedPath, s.guarded(s.relayed))
	return s
}

// Handler answers the requests of the protocol. Streams end with the server that uses it: see http.Server.Close.
func (s *Server) Handler() http.Handler { return s.mux }

// Set gives a configuration to every node without one of its own and returns its version. An error: it is longer than
// MaxConfig, or no UTF-8 text; then the one before stays.
func (s *Server) Set(config []byte) (string, error) { return s.set("", config) }

// SetNode gives a configuration to one node; nil: what Set has given to all applies to it again, and the version is empty.
func (s *Server) SetNode(name string, config []byte) (string, error) {
	if !validNode(name) {
		return "", fmt.Errorf("%q: %w", shortened(name, 80), errNode)
	}
	return s.set(name, config)
}

func (s *Server) set(name string, config []byte) (string, error) {
	if len(config) > MaxConfig {
		return "", fmt.Errorf("a configuration of %d bytes is %w", len(config), errTooLong)
	}
	if !utf8.Valid(config) {
		return "", errors.New("the configuration is no UTF-8 text")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" && config == nil {
		delete(s.own, name)
		s.wakeLocked()
		return "", nil
	}
	v := &version{id: Version(config)}
	text, err := json.Marshal(message{Version: v.id, Config: string(config)})
	if err != nil {
		return "", err
	}
	if v.line = append(text, '\n'); len(v.line) > maxLine {
		return "", fmt.Errorf("a configuration of %d bytes in a line of JSON: %w", len(config), errTooLong)
	}
	switch {
	case name == "":
		s.shared = v
	case s.own[name] == nil && len(s.own) >= MaxNodes:
		return "", fmt.Errorf("%d nodes have configurations of their own already", MaxNodes)
	default:
		s.own[name] = v
	}
	s.wakeLocked()
	return v.id, nil
}

// wakeLocked brings the versions that nodes should have up to date, and wakes their streams, which know what they have sent.
func (s *Server) wakeLocked() {
	for name, n := range s.nodes {
		n.status.Wanted = s.wantedLocked(name).id
		if n.stream != nil {
			n.stream.poke()
		}
	}
	for _, r := range s.relays {
		r.stream.poke()
	}
	s.changedLocked()
}

// wantedLocked is the newest configuration of a node; without one its id is empty.
func (s *Server) wantedLocked(name string) *version {
	if v := s.own[name]; v != nil {
		return v
	}
	if s.shared != nil {
		return s.shared
	}
	return &version{}
}

func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Nodes lists the nodes that are known, in the order of their names, with those that are connected to relays.
func (s *Server) Nodes() []NodeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[string]NodeStatus, len(s.nodes))
	for name, n := range s.nodes {
		known[name] = n.status
	}
	for _, r := range s.relays {
		for name, n := range r.nodes {
			if other, ok := known[name]; ok && other.Connected && other.Seen.After(n.Seen) {
				continue
			}
			n.Wanted = s.wantedLocked("").id
			known[name] = n
		}
	}
	all := make([]NodeStatus, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		all = append(all, known[name])
	}
	return all
}

// Stats are the counters.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	for _, n := range s.nodes {
		if n.stream != nil {
			stats.Nodes++
		}
	}
	stats.Relays = len(s.relays)
	return stats
}

// Forget removes a node that is gone for good, and the configuration of its own. Its stream, if it has one, ends.
func (s *Server) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil && n.stream != nil {
		n.stream.end()
	}
	delete(s.nodes, name)
	delete(s.own, name)
	s.changedLocked()
}

// ErrRefused is wrapped by the error of Wait when a node refuses the configuration.
var ErrRefused = errors.New("refused")

// Wait returns when a version is in force at all these nodes: nil. It returns an error that wraps ErrRefused when one of them
// refuses it, and the cause of ctx when that ends. Nodes that are not connected are waited for.
func (s *Server) Wait(ctx context.Context, version string, nodes ...string) error {
	for {
		s.mu.Lock()
		changed, missing := s.changed, ""
		for _, name := range nodes {
			n := s.nodes[name]
			switch {
			case n != nil && n.status.Applied == version:
			case n != nil && n.status.Refused == version:
				err := fmt.Errorf("node %s: %w: %s", name, ErrRefused, n.status.Error)
				s.mu.Unlock()
				return err
			default:
				missing = name
			}
		}
		s.mu.Unlock()
		if missing == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("node %s has not applied the configuration: %w", missing, context.Cause(ctx))
		}
	}
}

// guarded checks the token and the name of the node.
func (s *Server) guarded(next func(http.ResponseWriter, *http.Request, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if s.options.Token != nil {
			want, err := s.options.Token()
			given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if err != nil || want == "" || !ok || subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1 {
				if err != nil {
					s.options.Log.Error("config discovery: no token to compare with", "error", err)
				}
				s.reject(w, http.StatusUnauthorized, "missing or wrong token")
				return
			}
		}
		name := r.URL.Query().Get("node")
		if !validNode(name) {
			s.reject(w, http.StatusBadRequest, "node: "+errNode.Error())
			return
		}
		next(w, r, name)
	}
}

func (s *Server) reject(w http.ResponseWriter, status int, reason string) {
	s.mu.Lock()
	s.stats.Rejected++
	s.mu.Unlock()
	http.Error(w, reason, status)
}

// applied takes the report of a node.
func (s *Server) applied(w http.ResponseWriter, r *http.Request, name string) {
	var report Report
	var body bytes.Buffer
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxReport))
	if err == nil {
		err = json.Unmarshal(body.Bytes(), &report)
	}
	if err != nil || report.Version == "" || !validVersion(report.Version) {
		s.reject(w, http.StatusBadRequest, "the body is no report with a version")
		return
	}
	s.mu.Lock()
	n := s.nodeLocked(name)
	if n == nil {
		s.mu.Unlock()
		s.reject(w, http.StatusServiceUnavailable, "too many nodes")
		return
	}
	status := s.reportedLocked(n, &report)
	s.mu.Unlock()
	s.notify(status)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) reportedLocked(n *node, report *Report) NodeStatus {
	n.status.Seen = s.options.Now()
	if report.Error == "" {
		s.stats.Applied++
		n.status.Applied, n.status.Generation, n.status.Refused, n.status.Error = report.Version, report.Generation, "", ""
	} else {
		s.stats.Refused++
		n.status.Refused, n.status.Error = report.Version, shortened(report.Error, MaxReason)
	}
	s.changedLocked()
	return n.status
}

// nodeLocked returns the record of a node, and makes it; nil: there are too many, and all are connected.
func (s *Server) nodeLocked(name string) *node {
	n := s.nodes[name]
	if n != nil {
		return n
	}
	if len(s.nodes) >= MaxNodes && !s.evictLocked() {
		return nil
	}
	n = &node{status: NodeStatus{Node: name, Wanted: s.wantedLocked(name).id}}
	s.nodes[name] = n
	return n
}

// evictLocked removes the node without a connection that was seen longest ago.
func (s *Server) evictLocked() bool {
	oldest := ""
	for name, n := range s.nodes {
		if n.stream == nil && (oldest == "" || n.status.Seen.Before(s.nodes[oldest].status.Seen)) {
			oldest = name
		}
	}
	delete(s.nodes, oldest)
	return oldest != ""
}

func (s *Server) notify(status NodeStatus) {
	if s.options.Reported != nil {
		s.options.Reported(status)
	}
}
