package gateway

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// policy converts a config with defaults to the policy of the tables. The gateway sets NonceKeys, Admit and the drain
// state.
func (c *Config) policy() allocation.Policy {
	return allocation.Policy{
		Realm: c.Realm, Software: "weir", Auth: c.Auth.policy(),
		Quotas: allocation.Quotas{
			Allocations: c.Quotas.Allocations, AllocationsPerUser: c.Quotas.AllocationsPerUser,
			Permissions: c.Quotas.Permissions, Channels: c.Quotas.Channels, Connections: c.Quotas.Connections,
			Bandwidth: float64(c.Quotas.Bandwidth), Burst: int(c.Quotas.Burst),
		},
		Unauthenticated: allocation.RateLimit{
			PerPrefix: float64(c.Limits.Unauthenticated), PrefixBurst: 10 * c.Limits.Unauthenticated,
			Bindings: float64(c.Limits.Bindings), Proven: float64(c.Limits.Proven),
			Total: float64(c.Limits.UnauthenticatedTotal), TotalBurst: c.Limits.UnauthenticatedTotal,
		},
		Lifetimes: allocation.Lifetimes{Default: c.Lifetimes.Default, Max: c.Lifetimes.Max, Nonce: c.Lifetimes.Nonce},
	}
}

func (a *AuthConfig) policy() allocation.Auth {
	auth := allocation.Auth{SHA256: a.SHA256}
	switch a.Mode {
	case AuthEphemeral:
		auth.Mode, auth.Secrets = allocation.AuthEphemeral, a.Secrets
	case AuthNone:
		auth.Mode = allocation.AuthNone
	default:
		auth.Mode, auth.Users = allocation.AuthStatic, make(map[string]string, len(a.Users))
		for _, user := range a.Users {
			auth.Users[user.Name] = user.Password
		}
	}
	return auth
}

// routes converts a config to the Spec of package routes. The functions map listeners and clusters to numbers, which
// stay the same through every reload.
func (c *Config) routes(listener, cluster func(name string) uint16) (spec routes.Spec, err error) {
	for i := range c.Clusters {
		from := &c.Clusters[i]
		to := routes.Cluster{ID: cluster(from.Name), Name: from.Name, TCP: from.Protocol == TCP, Refresh: from.Refresh}
		to.Endpoints = make([]routes.Endpoint, len(from.Endpoints))
		for j, text := range from.Endpoints {
			if to.Endpoints[j], err = routes.ParseEndpoint(text); err != nil {
				return spec, keyerror.At(fmt.Sprintf("clusters[%d].endpoints[%d]", i, j), err)
			}
		}
		spec.Clusters = append(spec.Clusters, to)
	}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		spec.Listeners = append(spec.Listeners, routes.Listener{ID: listener(l.Name), Routes: l.Routes})
		if host, _, err := net.SplitHostPort(l.Public); err == nil {
			if public, err := netip.ParseAddr(host); err == nil {
				spec.Own = append(spec.Own, public)
			}
		}
		spec.Own = append(append(spec.Own, l.Relay...), l.RelayPublic...)
	}
	return spec, nil
}
