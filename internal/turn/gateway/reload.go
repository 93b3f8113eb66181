package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// applyTimeout bounds how long a reload waits for name servers.
const applyTimeout = 5 * time.Second

// Apply changes to another config completely or, with an error, not at all. The error is a [keyerror.Error] with the path of
// the key that cannot be applied, as with Validate.
//
// A listener is identified by its protocol, address and port. If anything else changes (name, certificate, relay addresses,
// routes), it continues, and so do its allocations. If a listener is closed, its allocations end. Routes, credentials, quotas,
// limits and lifetimes apply immediately: permissions and channels that the routes do not allow are suspended at once, and
// an allocation whose credentials were removed ends at its next Refresh. Any goroutine may call Apply. It may wait for name
// servers; nothing else is blocked during that time.
func (g *Gateway) Apply(c Config) (v1.TurnChange, error) {
	if err := c.Validate(); err != nil {
		return v1.TurnChange{}, err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	r, err := g.plan(c.WithDefaults())
	if err != nil {
		return v1.TurnChange{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == closed {
		return v1.TurnChange{}, errors.New("apply to the TURN gateway: it is closed")
	}
	if err := r.open(); err != nil {
		return v1.TurnChange{}, errors.Join(err, r.undo())
	}
	r.commit()
	return r.change, nil
}

// reload is a change of configuration. It is planned completely before anything is changed.
type reload struct {
	g         *Gateway
	to        Config
	routes    *routes.Prepared
	continued []continuedListener
	opened    []openedListener
	closed    []*listener
	done      []*listener      // of opened: those that are open already
	gone      []ListenerConfig // of closed: those that were closed already because a new listener needs their address
	change    v1.TurnChange
}

// continuedListener is a listener that continues under a new config.
type continuedListener struct {
	*listener
	config      ListenerConfig
	certificate *tls.Certificate // nil: unchanged
}

// openedListener is a listener to open, and the listeners to close that have its address now.
type openedListener struct {
	index    int // in the config
	config   ListenerConfig
	blocking []*listener
}

// open binds the new listeners. The caller holds g.mu. It changes the policy first, because a failure of that leaves
// no trace.
func (r *reload) open() error {
	if err := r.g.shared.SetPolicy(r.g.policyLocked(&r.to)); err != nil {
		return err
	}
	for i := range r.opened {
		o := &r.opened[i]
		for _, l := range o.blocking {
			if r.g.listeners[l.id] != nil {
				r.gone = append(r.gone, *l.current())
				r.end(l)
			}
		}
		l, err := r.g.openListenerLocked(o.config)
		if err != nil {
			return keyerror.At(fmt.Sprintf("listeners[%d]", o.index), err)
		}
		r.done = append(r.done, l)
	}
	return nil
}

func (r *reload) end(l *listener) {
	if n := r.g.closeListenerLocked(l, allocation.Revoked); n > 0 {
		r.change.Ended[allocation.Revoked.String()] += n
	}
}

// undo returns to the previous config. Its error reports what cannot be undone: a listener that was closed to free
// its address has lost its allocations.
func (r *reload) undo() error {
	g := r.g
	for _, l := range r.done {
		g.closeListenerLocked(l, allocation.Revoked)
	}
	err := g.shared.SetPolicy(g.policyLocked(&g.config))
	for i := range r.gone {
		if _, failed := g.openListenerLocked(r.gone[i]); failed != nil {
			err = errors.Join(err, fmt.Errorf("open %s again: %w", r.gone[i].Name, failed))
		} else {
			g.options.Log.Warn("a listener had made place for a new one that could not be had; it is open again, its allocations ended", "listener", r.gone[i].Name)
		}
	}
	if len(r.gone) > 0 {
		err = errors.Join(err, g.routeLocked(context.Background(), &g.config))
	}
	g.holdListenersLocked()
	return err
}

// commit does the part of the change that cannot fail. The caller holds g.mu.
func (r *reload) commit() {
	g := r.g
	g.router.Commit(r.routes)
	for i := range r.continued {
		r.continued[i].reload(g)
	}
	for _, l := range r.closed {
		if g.listeners[l.id] != nil {
			r.end(l)
		}
	}
	g.holdListenersLocked()
	g.config = r.to
	g.limitStreams(r.to.Limits)
	limited := g.offload.limit(r.to.Quotas)
	g.doLocked(func(w *worker) {
		done := w.table.SetPolicy(w.now)
		if limited {
			w.offloadAgain()
		}
		r.change.Permissions += done.Permissions
		r.change.Channels += done.Channels
		r.change.Connections += done.Connections
		r.change.Resumed += done.ResumedPermissions + done.ResumedChannels + done.ResumedConnections
	})
}

// reload gives the listener its new config.
func (k *continuedListener) reload(g *Gateway) {
	renamed := k.current().Name
	if k.certificate != nil {
		k.showCertificate(k.certificate)
	}
	k.reloaded.Store(&k.config)
	if renamed == k.config.Name || g.options.Store == nil {
		return
	}
	if k.kept() { // sockets and records are stored under the listener's name
		for i := range g.workers {
			g.options.Store.Drop(listenerName(renamed, i))
		}
	}
	g.doLocked(func(w *worker) {
		for a := range w.table.All {
			if c := a.Data.(*client); c.listener == k.listener {
				(*events)(w).Changed(a)
			}
		}
	})
}

// Names returns the state of the DNS names in the gateway's clusters.
func (g *Gateway) Names() []v1.DNSName { return g.router.Names() }

// DrainConfig returns the drain settings in force.
func (g *Gateway) DrainConfig() DrainConfig {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config.Drain
}

// Config returns the configuration in force, with its defaults and without its secrets.
func (g *Gateway) Config() Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config.Redacted()
}
