package gateway

import (
	"context"
	"crypto/rand"
	"net/netip"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// newShared makes what all tables share, with the policy of a config.
func (g *Gateway) newShared(c Config) (err error) {
	g.nonceKey = make([]byte, 32)
	var seed [32]byte
	_, _ = rand.Read(g.nonceKey) // never fails
	_, _ = rand.Read(seed[:])
	g.shared, err = allocation.NewShared(g.policyLocked(&c), seed)
	return err
}

// policyLocked is the policy of a config. The caller holds g.mu, or nobody else knows g yet.
func (g *Gateway) policyLocked(c *Config) allocation.Policy {
	users := map[string]string{}
	for _, u := range c.Auth.Users {
		users[u.Name] = u.Password
	}
	mode := allocation.AuthStatic
	switch c.Auth.Mode {
	case AuthEphemeral:
		mode = allocation.AuthEphemeral
	case AuthNone:
		mode = allocation.AuthNone
	}
	p := allocation.Policy{
		Realm: c.Realm, Software: "weir",
		Auth:      allocation.Auth{Mode: mode, Users: users, Secrets: c.Auth.Secrets},
		NonceKeys: [][]byte{g.nonceKey},
		Quotas: allocation.Quotas{
			Allocations: c.Quotas.Allocations, AllocationsPerUser: c.Quotas.AllocationsPerUser,
			Permissions: c.Quotas.Permissions, Channels: c.Quotas.Channels,
			Bandwidth: float64(c.Quotas.Bandwidth), Burst: int(c.Quotas.Burst),
		},
		Unauthenticated: allocation.RateLimit{
			PerPrefix: float64(c.Limits.Unauthenticated), PrefixBurst: 2 * c.Limits.Unauthenticated,
			Total: float64(c.Limits.UnauthenticatedTotal), TotalBurst: c.Limits.UnauthenticatedTotal,
		},
		Lifetimes: allocation.Lifetimes{Default: c.Lifetimes.Default, Max: c.Lifetimes.Max, Nonce: c.Lifetimes.Nonce},
		Admit:     g.admit,
		Draining:  g.draining.Load(),
		Alternate: g.alternate,
	}
	return p
}

// admit is Policy.Admit.
func (g *Gateway) admit(listener uint16, tcp bool, peer netip.AddrPort) (cluster uint16, ok bool) {
	table := g.router.Table()
	if table == nil {
		return 0, false
	}
	return table.Admit(listener, tcp, peer)
}

// routeLocked makes the routes of a config current. The listeners are open already: routes go by their ids.
func (g *Gateway) routeLocked(ctx context.Context, c *Config) error {
	spec, err := g.routesLocked(c)
	if err != nil {
		return err
	}
	_, err = g.router.Apply(ctx, spec)
	return err
}

func (g *Gateway) routesLocked(c *Config) (routes.Spec, error) {
	var spec routes.Spec
	for i := range c.Clusters {
		cluster := &c.Clusters[i]
		endpoints := make([]routes.Endpoint, 0, len(cluster.Endpoints))
		for _, text := range cluster.Endpoints {
			e, err := routes.ParseEndpoint(text)
			if err != nil {
				return spec, err
			}
			endpoints = append(endpoints, e)
		}
		spec.Clusters = append(spec.Clusters, routes.Cluster{
			ID: g.clusterLocked(cluster.Name), Name: cluster.Name, TCP: cluster.Protocol == TCP,
			Endpoints: endpoints, Refresh: cluster.Refresh,
		})
	}
	for _, l := range g.listeners {
		if l != nil {
			spec.Listeners = append(spec.Listeners, routes.Listener{ID: l.id, Routes: l.config.Routes})
		}
	}
	return spec, nil
}

// clusterLocked is the id of a cluster by name, for as long as the process lives: counters go by it. 0 is none.
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
		w.post(func(w *worker) { w.table.SetPolicy(w.now) })
	}
}
