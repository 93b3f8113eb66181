package gateway

import (
	"context"
	"time"
)

// watchInterval is how often the kernel's counters are read.
const watchInterval = time.Second

// logInterval is how often troubles are logged at most.
const logInterval = 10 * time.Second

// watch reads the kernel's counters and tells of troubles that grow, until ctx ends.
func (g *Gateway) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var told time.Time
	var before troubles
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			g.offload.count()
			if now.Sub(told) >= logInterval {
				told = now
				before = g.complain(before)
			}
		}
	}
}

// troubles are totals that should not grow.
type troubles struct{ overflowed, refused uint64 }

func (g *Gateway) complain(before troubles) troubles {
	g.mu.Lock()
	var now troubles
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
	return now
}
