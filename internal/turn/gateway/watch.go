package gateway

import (
	"context"
	"time"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// watchInterval is how often the kernel's counters are read.
const watchInterval = time.Second

// logInterval is the shortest time between two logs of growing error counters.
const logInterval = 10 * time.Second

// watch reads the kernel's counters and logs error counters that grow, until ctx ends.
func (g *Gateway) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var logged time.Time
	var before troubles
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			g.offload.count()
			g.followClock()
			if now.Sub(logged) >= logInterval {
				logged = now
				before = g.logTroubles(before)
			}
		}
	}
}

// troubles are counters that should not grow.
type troubles struct {
	overflowed, refused uint64
	withheld            allocation.WithheldStats
}

func (g *Gateway) logTroubles(before troubles) troubles {
	g.mu.Lock()
	now := troubles{withheld: g.shared.Stats().Withheld}
	for _, l := range g.listeners {
		if l == nil {
			continue
		}
		if l.group != nil {
			now.overflowed += l.group.Overflowed()
		}
		for i := range l.counts {
			now.refused += l.counts[i].reasons[reasonSendRefused].Load()
		}
	}
	g.mu.Unlock()
	if now.overflowed > before.overflowed {
		g.options.Log.Warn("datagrams of clients were lost before they were read", "count", now.overflowed-before.overflowed,
			"remedy", "raise net.core.rmem_max, or use more cores")
	}
	if now.refused > before.refused {
		g.options.Log.Warn("datagrams were refused by the kernel", "count", now.refused-before.refused,
			"remedy", "see the routes and the firewall of this host")
	}
	for _, limit := range []struct {
		now, before uint64
		key, source string
	}{
		{now.withheld.Unproven, before.withheld.Unproven, "limits.unauthenticated", "sources that returned no nonce"},
		{now.withheld.Bindings, before.withheld.Bindings, "limits.bindings", "Binding requests of sources that returned no nonce"},
		{now.withheld.Total, before.withheld.Total, "limits.unauthenticated_total", "all sources that returned no nonce"},
		{now.withheld.Proven, before.withheld.Proven, "limits.proven", "sources that returned a nonce"},
	} {
		if limit.now > limit.before {
			g.options.Log.Warn("requests without valid credentials were not answered", "count", limit.now-limit.before, "of", limit.source,
				"remedy", "raise "+limit.key+", or --unauthenticated, if these are your clients and not a flood")
		}
	}
	return now
}
