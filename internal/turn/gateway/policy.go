package gateway

import (
	"context"
	"crypto/rand"
	"net/netip"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// newShared makes the state that all tables share, with the policy of a config.
func (g *Gateway) newShared(c Config) (err error) {
	g.nonceKey = g.storedNonceKey()
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	g.shared, err = allocation.NewShared(g.policyLocked(&c), seed)
	return err
}

// policyLocked returns the policy of a config. The caller holds g.mu, or no other goroutine knows g yet.
func (g *Gateway) policyLocked(c *Config) allocation.Policy {
	p := c.policy()
	p.NonceKeys, p.Admit, p.Wall = [][]byte{g.nonceKey}, g.admit, g.options.Wall
	p.Draining, p.Alternate = g.draining.Load(), g.alternate
	return p
}

// admit implements Policy.Admit.
func (g *Gateway) admit(listener uint16, tcp bool, peer netip.AddrPort) (cluster uint16, ok bool) {
	table := g.router.Table()
	if table == nil {
		return 0, false
	}
	return table.Admit(listener, tcp, peer)
}

// routeLocked puts the routes of a config in force. The listeners are open already, because routes refer to their
// ids.
func (g *Gateway) routeLocked(ctx context.Context, c *Config) error {
	ids := map[string]uint16{}
	for _, l := range g.listeners {
		if l != nil {
			ids[l.current().Name] = l.id
		}
	}
	spec, err := c.routes(func(name string) uint16 { return ids[name] }, g.clusterLocked)
	if err != nil {
		return err
	}
	_, err = g.router.Apply(ctx, spec)
	return err
}

// clusterLocked returns the id of a cluster name. It stays the same for the life of the process, because counters
// refer to it. 0 means none.
func (g *Gateway) clusterLocked(name string) uint16 {
	id, ok := g.clusters[name]
	if !ok {
		id = uint16(len(g.clusters) + 1)
		g.clusters[name] = id
	}
	return id
}

// policyChanged has every table look again at what it admitted.
func (g *Gateway) policyChanged() {
	for _, w := range g.workers {
		w.post(func(w *worker) {
			if r := w.table.SetPolicy(w.now); r != (allocation.Readmitted{}) {
				g.options.Log.Info("peers that names or own addresses admit have changed", "worker", w.index,
					"permissions_suspended", r.Permissions, "channels_suspended", r.Channels,
					"permissions_resumed", r.ResumedPermissions, "channels_resumed", r.ResumedChannels,
					"connections_suspended", r.Connections, "connections_resumed", r.ResumedConnections)
			}
		})
	}
}
