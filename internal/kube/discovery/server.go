package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Limits of a service.
const (
	MaxWatchers           = 8192
	MaxWatchersPerAddress = 256

	maxHeader    = 16 << 10
	writeTimeout = 10 * time.Second // a watcher that does not read for so long is disconnected
	serverPing   = 20 * time.Second
	serverWait   = time.Minute
)

// ServerOptions is how a service treats configurations, which it does not understand itself. Functions may be called concurrently.
type ServerOptions struct {
	// Patch returns a configuration as it is for a node; nil: as it is. It does not change its argument.
	Patch func(config []byte, node string) []byte
	// Deleted returns what watchers of a configuration that was deleted receive; nil, or an empty result: nothing.
	Deleted func(id ID) []byte
	// Authorize returns why a client may not read a configuration, or without a name all of a namespace, or all; nil: every client may.
	Authorize func(r *http.Request, id ID) error
	Log       *slog.Logger
}

// Server is a config discovery service. Its methods may be called from any goroutine.
type Server struct {
	options ServerOptions
	store   store
	times   serverTimes
	mux     *http.ServeMux

	endMu   sync.Mutex
	ended   chan struct{} // closed by Close
	closed  bool
	clients sync.WaitGroup
}

// serverTimes are the times of a server; see the constants above.
type serverTimes struct{ ping, wait, write time.Duration }

// ServerStats is the state of a service, for metrics.
type ServerStats struct {
	Configs  int    `metric:"weir_discovery_configs" help:"Configurations that the config discovery service has."`
	Watchers int    `metric:"weir_discovery_watchers" help:"Clients that watch configurations."`
	Changes  uint64 `metric:"weir_discovery_changes_total" help:"Configurations that were added, changed or deleted."`
	Sent     uint64 `metric:"weir_discovery_sent_total" help:"Configurations that were sent to watchers."`
	Refused  uint64 `metric:"weir_discovery_refused_total" help:"Requests that were refused: too many watchers, or not authorized."`
	Dropped  uint64 `metric:"weir_discovery_dropped_total" help:"Watchers that were disconnected because they did not read, or did not answer."`
}

// NewServer makes a service without configurations.
func NewServer(o ServerOptions) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{
		options: o, ended: make(chan struct{}), times: serverTimes{serverPing, serverWait, writeTimeout}, mux: http.NewServeMux(),
		store: store{configs: map[ID][]byte{}, watchers: map[*subscription]struct{}{}, sources: map[string]int{}},
	}
	s.mux.HandleFunc("GET /api/v1/license", license)
	s.mux.HandleFunc("GET "+apiPath, s.answer)
	s.mux.HandleFunc("GET "+apiPath+"/{namespace}", s.answer)
	s.mux.HandleFunc("GET "+apiPath+"/{namespace}/{name}", s.answer)
	return s
}

// Set adds or replaces a configuration; its watchers receive it if it has changed. Errors: it has no name of Kubernetes, or a limit of
// the package is reached; the configuration before it stays.
func (s *Server) Set(id ID, config []byte) error { return s.store.set(id, config) }

// Delete removes a configuration; its watchers receive what ServerOptions.Deleted says.
func (s *Server) Delete(id ID) { s.store.remove(id) }

// Replace makes the service have these configurations and no others. What could be done is done when it returns an error.
func (s *Server) Replace(all map[ID][]byte) error {
	s.store.mu.Lock()
	var gone []ID
	for id := range s.store.configs {
		if _, stays := all[id]; !stays {
			gone = append(gone, id)
		}
	}
	s.store.mu.Unlock()
	for _, id := range gone {
		s.Delete(id)
	}
	var errs []error
	for _, id := range sorted(all) {
		errs = append(errs, s.Set(id, all[id]))
	}
	return errors.Join(errs...)
}

// Push sends the watchers that run at a node their configurations again, because what Patch does there has changed.
func (s *Server) Push(node string) { s.store.again(node) }

// Stats is the state of the service.
func (s *Server) Stats() ServerStats {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	stats := s.store.stats
	stats.Configs, stats.Watchers = len(s.store.configs), len(s.store.watchers)
	return stats
}

// Handler answers the requests of the protocol.
func (s *Server) Handler() http.Handler { return s.mux }

// Serve answers requests at a listener, which it closes, until ctx ends; then it ends all watches and returns nil.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("config discovery at %v: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.Close()
	return errors.Join(err, server.Close())
}

// Close ends all watches and waits for them. The service takes no new ones.
func (s *Server) Close() {
	s.endMu.Lock()
	if !s.closed {
		s.closed = true
		close(s.ended)
	}
	s.endMu.Unlock()
	s.clients.Wait()
}

// license answers as a STUNner without a license does: nothing here needs one.
func license(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"enabledFeatures":[],"subscriptionType":"free","lastUpdated":"N/A","lastError":""}`))
}

// answer answers a request about one configuration, those of a namespace, or all.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	id := ID{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	query := r.URL.Query()
	node, watch := query.Get("node"), false
	if text := query.Get("watch"); text != "" {
		var err error
		if watch, err = strconv.ParseBool(text); err != nil {
			writeError(w, http.StatusBadRequest, "watch is true or false")
			return
		}
	}
	switch {
	case !id.valid() || node != "" && !validName(node):
		writeError(w, http.StatusBadRequest, "a namespace, a name and a node are names of Kubernetes")
		return
	case s.options.Authorize != nil:
		if err := s.options.Authorize(r, id); err != nil {
			s.count(func(n *ServerStats) { n.Refused++ })
			writeError(w, http.StatusForbidden, err.Error())
			return
		}
	}
	switch {
	case watch:
		s.watch(w, r, id, node)
	case id.Name == "":
		s.list(w, id.Namespace)
	default:
		s.one(w, id, node)
	}
}

func (s *Server) one(w http.ResponseWriter, id ID, node string) {
	config, ok := s.store.get(id)
	if !ok {
		writeError(w, http.StatusNotFound, fmt.Sprintf("there is no configuration %v", id))
		return
	}
	writeJSON(w, http.StatusOK, s.patched(config, node))
}

func (s *Server) patched(config []byte, node string) []byte {
	if s.options.Patch == nil || node == "" {
		return config
	}
	return s.options.Patch(config, node)
}

func (s *Server) list(w http.ResponseWriter, namespace string) {
	text := []byte(`{"version":"v1","items":[`)
	for i, config := range s.store.list(namespace) {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, config...)
	}
	writeJSON(w, http.StatusOK, append(text, "]}"...))
}

func (s *Server) count(f func(*ServerStats)) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	f(&s.store.stats)
}

func writeJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store") // it holds secrets
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func writeError(w http.ResponseWriter, status int, message string) {
	text, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, message})
	if err != nil {
		text = []byte(`{}`)
	}
	writeJSON(w, status, text)
}

// source is the address that a request comes from, to which a share of the watchers belongs.
func source(r *http.Request) string {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return address.Addr().Unmap().String()
}
