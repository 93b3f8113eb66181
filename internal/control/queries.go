package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weir-lb/weir/internal/control/health"
	"github.com/weir-lb/weir/internal/control/owners"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// runQueries probes the backends of each applied snapshot, and queries the nodes of clusters.
func (l *Loop) runQueries(ctx context.Context) {
	probe := l.probe
	if probe == nil {
		probe = l.network.Probe
		defer func() {
			if err := l.network.Close(); err != nil {
				l.log.Error("the tunnels of probes were not removed", "error", err)
			}
		}()
	}
	prober := health.New(ctx, probe, l.log, func(states map[lb.Target]lb.Override) error {
		return l.SetOverrides(lb.FromHealth, states)
	})
	defer prober.Stop()
	follower := owners.New(ctx, l.query, l.log, l.learn)
	follower.Watch(l.watch)
	if l.kept != "" {
		follower.Remember(l.memory, func(m owners.Memory) error { return m.Write(l.kept) })
	}
	defer follower.Stop()
	var group sync.WaitGroup
	group.Go(func() { l.names.Run(ctx, l.renamed) })
	defer group.Wait()
	l.mu.Lock()
	l.prober, l.follower = prober, follower
	l.mu.Unlock()
	for {
		if snapshot := l.applied.Load(); snapshot != nil {
			prober.Follow(snapshot)
			follower.Follow(snapshot)
			l.forgetNames()
		}
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return
			case l.answers <- struct{}{}:
			case <-l.changed:
				changed = true
			}
		}
	}
}

// recall reads what the process before this one has kept of clusters. Without it services wait for answers of the nodes, as they do after
// the first start.
func (l *Loop) recall() {
	if l.kept == "" {
		return
	}
	memory, err := owners.ReadMemory(l.kept)
	if err != nil {
		l.log.Error("the owners of clusters that were kept cannot be used; the nodes are queried", "error", err)
	}
	l.memory = memory
}

// rememberedLocked returns the overrides for a spec that may come into force: those in force, the addresses of its hosts, and before the
// first generation what is remembered of its clusters.
func (l *Loop) rememberedLocked(spec lb.Spec) (*lb.Overrides, error) {
	overrides := l.resolvedLocked(&spec)
	if l.applied.Load() != nil || len(l.memory) == 0 {
		return overrides, nil
	}
	snapshot, err := lb.Compile(spec, overrides, l.datapath.Caps())
	if err != nil {
		return nil, err
	}
	return l.memory.Overrides(snapshot, overrides), nil
}

// learn applies what a cluster has reported.
func (l *Loop) learn(r owners.Report) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spec == nil {
		return fmt.Errorf("%w: nothing is configured yet", ErrNoTarget)
	}
	if err := l.overrideLocked(l.overrides.WithOwners(r.Service, r.Owned), lb.FromCluster, lb.FromCluster.String(), r.States); err != nil {
		return err
	}
	l.log.Info("owners of a cluster", "service", r.Service, "owned", ownedText(r.Owned), "snapshot_generation", l.applied.Load().Generation)
	return nil
}

// ownedText lists owner ids by backend.
func ownedText(owned map[string][]uint32) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, owned[name]))
	}
	return strings.Join(parts, ", ")
}
