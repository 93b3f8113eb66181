package turn

import (
	"context"
	"log/slog"
	"sync"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/metrics"
)

// stunnerEndpoints are the HTTP servers of a STUNner file: /live and /ready for probes, /metrics.
type stunnerEndpoints struct {
	log     *slog.Logger
	token   string       // token of /status
	hosts   []string     // as of --admin-host
	probes  admin.Config // what a health endpoint answers with
	samples func() []metrics.Sample

	mu   sync.Mutex // guards open
	open map[endpointKind]*stunnerEndpoint
}

// endpointKind is the address of an HTTP server and what it serves.
type endpointKind struct {
	address, path   string
	health, metrics bool
}

// stunnerEndpoint is a running HTTP server.
type stunnerEndpoint struct {
	stop context.CancelFunc
	done chan struct{}
}

// kinds returns the endpoints of a plan: one, if health and metrics share an address.
func kinds(plan *files.GatewayPlan) map[endpointKind]string {
	health, metrics := plan.Health, plan.Metrics
	if metrics.Path == "/" {
		metrics.Path = "" // none was given
	}
	switch {
	case health.Address == "" && metrics.Address == "":
		return nil
	case metrics.Address == "":
		return map[endpointKind]string{{address: health.Address, health: true}: "admin.healthcheck_endpoint"}
	case health.Address == "":
		return map[endpointKind]string{{address: metrics.Address, path: metrics.Path, metrics: true}: "admin.metrics_endpoint"}
	case health.Address == metrics.Address:
		return map[endpointKind]string{{address: health.Address, path: metrics.Path, health: true, metrics: true}: "admin.healthcheck_endpoint"}
	}
	return map[endpointKind]string{
		{address: health.Address, health: true}:                       "admin.healthcheck_endpoint",
		{address: metrics.Address, path: metrics.Path, metrics: true}: "admin.metrics_endpoint",
	}
}

// change opens the endpoints of a plan and closes the others; unchanged ones continue. back undoes it. After an
// error, which has the key of the endpoint that cannot be opened, nothing has changed.
func (d *stunnerEndpoints) change(plan *files.GatewayPlan) (back func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := map[endpointKind]string{}
	for kind := range d.open {
		before[kind] = ""
	}
	if err := d.toLocked(kinds(plan)); err != nil {
		if undone := d.toLocked(before); undone != nil {
			d.log.Error("an HTTP server could not be opened again", "error", undone)
		}
		return nil, err
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.toLocked(before); err != nil {
			d.log.Error("an HTTP server could not be opened again", "error", err)
		}
	}, nil
}

func (d *stunnerEndpoints) toLocked(wanted map[endpointKind]string) error {
	for kind, endpoint := range d.open {
		if _, stays := wanted[kind]; !stays {
			endpoint.end()
			delete(d.open, kind)
		}
	}
	for kind, key := range wanted {
		if d.open[kind] != nil {
			continue
		}
		endpoint, err := d.start(kind)
		if err != nil {
			return keyerror.Errorf(key, "%w; name another address, or \"\" for none", err)
		}
		if d.open == nil {
			d.open = map[endpointKind]*stunnerEndpoint{}
		}
		d.open[kind] = endpoint
	}
	return nil
}

func (d *stunnerEndpoints) start(kind endpointKind) (*stunnerEndpoint, error) {
	scope := "metrics"
	if kind.health {
		scope = "health"
	}
	log := d.log.With("scope", scope)
	c := admin.Config{Address: kind.address, Log: log, Part: cli.TurnPart().Name, Token: d.token, Hosts: d.hosts}
	if kind.health {
		c.Ready, c.Status = d.probes.Ready, d.probes.Status
	}
	if kind.metrics {
		c.Metrics, c.MetricsPath = d.samples, kind.path
	}
	server, err := admin.Open(c)
	if err != nil {
		return nil, err
	}
	log.Info("STUNner's HTTP server", "address", server.Address(), "health", kind.health, "metrics", kind.metrics)
	ctx, cancel := context.WithCancel(context.Background())
	endpoint := &stunnerEndpoint{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(endpoint.done)
		if err := server.Run(ctx); err != nil {
			log.Error("STUNner's HTTP server ended", "error", err)
		}
	}()
	return endpoint, nil
}

func (d *stunnerEndpoint) end() {
	d.stop()
	<-d.done
}

// close closes all endpoints.
func (d *stunnerEndpoints) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.toLocked(nil) // without endpoints to open, this only closes
}
