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
	"time"

	"golang.org/x/net/netutil"

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
	d := &Discovery{plane: plane, options: o, nonempty: make(chan struct{}), changed: func() {}}
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
		close(d.nonempty)
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
	select {
	case <-d.nonempty:
	case <-ctx.Done():
		return nil
	}
	d.mu.Lock()
	d.changed = changed
	d.mu.Unlock()
	listener, err := net.Listen("tcp", d.options.Listen)
	if err != nil {
		return fmt.Errorf("config discovery service of load balancers: %w", err)
	}
	d.options.Log.Info("config discovery service of load balancers", "address", listener.Addr(), "tls", d.options.CertFile != "")
	return d.serve(ctx, netutil.LimitListener(listener, maxConnections))
}

func (d *Discovery) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: d.server.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	if d.options.CertFile != "" {
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: d.certificate})
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
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
