package publish

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/discovery"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/readfile"
)

// Discovery gives the configuration of one plane to all load balancers that connect to its config discovery service, and learns from
// their reports what they have applied.
type Discovery struct {
	plane    string
	options  DiscoveryOptions
	server   *discovery.Server
	nonempty chan struct{} // closed when there is a configuration
	first    sync.Once
	leads    chan struct{} // closed when this process has published one
	leader   func(context.Context) (discovery.Origin, error)

	mu      sync.Mutex
	order   []string // the last versions, the newest one last
	changed func()   // of Run
}

// DiscoveryOptions say where the service is and who may use it.
type DiscoveryOptions struct {
	Listen string // HOST:PORT
	// CertFile and KeyFile are PEM files, read for each connection, so that a certificate can be replaced; empty: no TLS.
	CertFile, KeyFile string
	Token             func() (string, error) // the bearer token that requests need; nil: none
	TokenFile         string                 // from which Token reads it
	Name              string                 // of this process among those that serve; empty: it is the only one
	Log               *slog.Logger           // nil: silent
}

const (
	maxVersions    = 64                        // whose order is remembered, as the operator does their pieces
	maxConnections = 2*discovery.MaxNodes + 64 // a stream and a report of each node
	maxPEM         = 1 << 20
)

// NewDiscovery returns a publisher whose Run serves. An error: the certificate cannot be used.
func NewDiscovery(plane string, o DiscoveryOptions) (*Discovery, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	d := &Discovery{plane: plane, options: o, nonempty: make(chan struct{}), leads: make(chan struct{}), changed: func() {}}
	if o.CertFile != "" {
		if _, err := d.certificate(nil); err != nil {
			return nil, err
		}
	}
	d.server = discovery.NewServer(discovery.ServerOptions{Token: o.Token, Reported: d.reported, Log: o.Log})
	return d, nil
}

// Stats are the counters of the service.
func (d *Discovery) Stats() discovery.ServerStats { return d.server.Stats() }

// Follow makes Run serve also in a process that does not lead, and before it does: the configuration is that of the leader, whose service is where
// leader says, and which learns what became of it at the nodes of this one. It is called before Run.
func (d *Discovery) Follow(leader func(context.Context) (discovery.Origin, error)) { d.leader = leader }

// Relays says whether Run works in processes that do not lead.
func (d *Discovery) Relays() bool { return d.leader != nil }

// Publish gives the plane's configuration to all nodes. It does not wait for them.
func (d *Discovery) Publish(configs []operator.Config) error {
	at := slices.IndexFunc(configs, func(c operator.Config) bool { return c.Plane == d.plane })
	if at < 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	revision := configs[at].Revision()
	if len(d.order) > 0 && d.order[len(d.order)-1] == revision {
		return nil
	}
	if _, err := d.server.Set(configs[at].Text); err != nil {
		return err
	}
	if d.order == nil {
		close(d.leads)
		d.first.Do(func() { close(d.nonempty) })
	}
	d.order = append(slices.DeleteFunc(d.order, func(old string) bool { return old == revision }), revision)
	d.order = d.order[max(0, len(d.order)-maxVersions):]
	return nil
}

// Applied returns the oldest revision among those that the connected nodes run. It returns nil while none is connected, or one of them
// runs none, or one that this process has not published.
func (d *Discovery) Applied() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest := len(d.order)
	for _, n := range d.server.Nodes() {
		if n.Connected {
			oldest = min(oldest, slices.Index(d.order, n.Applied))
		}
	}
	if oldest < 0 || oldest == len(d.order) {
		return nil
	}
	return map[string]string{d.plane: d.order[oldest]}
}

// Refused returns why connected nodes refuse the newest configuration.
func (d *Discovery) Refused() map[string]string {
	reason, more := "", 0
	for _, n := range d.server.Nodes() {
		switch {
		case !n.Connected || n.Wanted == "" || n.Refused != n.Wanted:
		case reason == "":
			reason = fmt.Sprintf("node %s: %s", n.Node, n.Error)
		default:
			more++
		}
	}
	if reason == "" {
		return nil
	}
	if more > 0 {
		reason += fmt.Sprintf(" (and %d more nodes)", more)
	}
	return map[string]string{d.plane: reason}
}

// reported is called by the server.
func (d *Discovery) reported(n discovery.NodeStatus) {
	if n.Refused != "" && n.Refused == n.Wanted {
		d.options.Log.Warn("a load balancer refuses the configuration", "plane", d.plane, "node", n.Node, "error", n.Error)
	}
	d.mu.Lock()
	changed := d.changed
	d.mu.Unlock()
	changed()
}

// Run serves from the first configuration on until ctx ends.
func (d *Discovery) Run(ctx context.Context, changed func()) error {
	var relaying sync.WaitGroup
	defer relaying.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.leader != nil {
		relaying.Go(func() { d.relay(ctx) })
	}
	select {
	case <-d.nonempty:
	case <-ctx.Done():
		return nil
	}
	d.mu.Lock()
	d.changed = changed
	d.mu.Unlock()
	listener, err := (&net.ListenConfig{Control: dropsSilent}).Listen(ctx, "tcp", d.options.Listen)
	if err != nil {
		return fmt.Errorf("config discovery service of load balancers: %w", err)
	}
	d.options.Log.Info("config discovery service of load balancers", "address", listener.Addr(), "tls", d.options.CertFile != "")
	return d.serve(ctx, netutil.LimitListener(listener, maxConnections))
}

// relay gives the leader's configuration to the nodes of this process, until that leads itself or ctx ends.
func (d *Discovery) relay(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select { // in which most operators that lead have become so
	case <-time.After(electionTime):
	case <-d.leads:
	case <-ctx.Done():
	}
	go func() {
		select {
		case <-d.leads:
			cancel()
		case <-ctx.Done():
		}
	}()
	w := &discovery.Watcher{
		Find: d.leader, Node: d.options.Name, TokenFile: d.options.TokenFile, Relay: d.server, Log: d.options.Log,
		Certificate: func() ([]byte, error) {
			own, err := d.certificate(nil)
			if err != nil {
				return nil, err
			}
			return own.Certificate[0], nil
		},
		Apply: func(config []byte) (uint64, error) {
			if _, err := d.server.Set(config); err != nil {
				return 0, err
			}
			d.first.Do(func() { close(d.nonempty) })
			return 0, nil
		},
	}
	_ = w.Run(ctx) // nil: ctx has ended
}

const electionTime = time.Second

// silence is how long a load balancer may acknowledge nothing. Then its connection ends, and it is waited for no longer.
const silence = 30 * time.Second

// dropsSilent sets that limit on the sockets that a listening one accepts.
func dropsSilent(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return cmp.Or(err, failed)
}

func (d *Discovery) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: d.server.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	serve := server.Serve
	if d.options.CertFile != "" {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: d.certificate}
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("config discovery service of load balancers at %v: %w", listener.Addr(), err)
	}
	return nil
}

// certificate reads the files.
func (d *Discovery) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, err := readfile.Once(d.options.CertFile, maxPEM)
	if err != nil {
		return nil, err
	}
	key, err := readfile.Once(d.options.KeyFile, maxPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", d.options.CertFile, d.options.KeyFile, err)
	}
	return &pair, nil
}
