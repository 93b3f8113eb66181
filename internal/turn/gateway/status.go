package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Stats returns a snapshot of the counters.
func (g *Gateway) Stats() Stats {
	g.offload.count()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{
		Workers: len(g.workers), Ready: g.state == running && !g.draining.Load() && len(g.config.Listeners) > 0,
		Draining: g.draining.Load(), Reasons: map[string]uint64{}, Offload: g.offload.describe(),
	}
	shared := g.shared.Stats()
	s.Withheld, s.Displaced = shared.Withheld, shared.Displaced
	held := g.countHeldLocked()
	for _, l := range g.listeners {
		if l == nil {
			continue
		}
		ls := l.stats(held.listeners[l.id])
		s.Listeners = append(s.Listeners, ls)
		metrics.Add(&s.Totals, &ls.Counts)
		for name, n := range ls.Reasons {
			s.Reasons[name] += n
		}
	}
	s.Clusters = g.clusterStatsLocked(held.clusters)
	return s
}

func (l *listener) stats(held Counts) ListenerStats {
	s := ListenerStats{
		Name: l.current().Name, Protocol: l.transport.String(), Address: l.server, Connections: int(l.connections.Load()),
		Reasons: map[string]uint64{}, Counts: held,
	}
	for i := range l.counts {
		n := &l.counts[i]
		n.into(&s.Counts, s.Reasons)
		n.mu.Lock()
		s.AllocateTime.Add(&n.allocate)
		n.mu.Unlock()
	}
	if l.stream != nil {
		l.stream.counts.addTo(s.Reasons)
	}
	if l.dtls != nil {
		l.dtls.addTo(s.Reasons)
	}
	if l.group != nil {
		s.ReadBuffer = l.group.Conn(0).ReadBuffer()
		s.Overflowed = l.group.Overflowed()
	}
	return s
}

func (g *Gateway) clusterStatsLocked(held map[uint16]Counts) (all []ClusterStats) {
	sums := map[uint16]*Counts{}
	for _, id := range g.clusters {
		sum := held[id]
		sums[id] = &sum
	}
	for _, w := range g.workers {
		w.eachCluster(func(id uint16, n *counts) {
			if sums[id] != nil {
				n.into(sums[id], nil)
			}
		})
	}
	for name, id := range g.clusters {
		all = append(all, ClusterStats{Name: name, Counts: *sums[id]})
	}
	slices.SortFunc(all, func(a, b ClusterStats) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// held is how many allocations, permissions and channels there are.
type held struct {
	listeners map[uint16]Counts
	clusters  map[uint16]Counts
}

func (g *Gateway) countHeldLocked() held {
	h := held{listeners: map[uint16]Counts{}, clusters: map[uint16]Counts{}}
	g.doLocked(func(w *worker) {
		for _, f := range w.fronts {
			f.engine.Publish()
		}
		for a := range w.table.All {
			l := h.listeners[a.Path.Listener]
			l.Allocations++
			for p := range a.Permissions {
				countGrant(&l.Permissions, &l.Suspended, p.Suspended)
			}
			for ch := range a.Channels {
				countGrant(&l.Channels, &l.Suspended, ch.Suspended)
			}
			h.listeners[a.Path.Listener] = l
			h.countClusters(a)
		}
	})
	return h
}

// countGrant counts a permission or channel as in force or as suspended.
func countGrant(inForce, suspended *int, isSuspended bool) {
	if isSuspended {
		*suspended++
	} else {
		*inForce++
	}
}

// countClusters counts an allocation for each cluster that it has a permission for.
func (h *held) countClusters(a *allocation.Allocation) {
	seen := map[uint16]bool{}
	for p := range a.Permissions {
		c := h.clusters[p.Cluster]
		countGrant(&c.Permissions, &c.Suspended, p.Suspended)
		if !seen[p.Cluster] {
			seen[p.Cluster] = true
			c.Allocations++
		}
		h.clusters[p.Cluster] = c
	}
	for ch := range a.Channels {
		c := h.clusters[ch.Cluster]
		countGrant(&c.Channels, &c.Suspended, ch.Suspended)
		h.clusters[ch.Cluster] = c
	}
}

// Users calls yield for every allocation until it returns false.
func (g *Gateway) Users(yield func(v1.TurnUser) bool) {
	g.offload.count()
	var users []v1.TurnUser
	wall := g.offset()
	g.mu.Lock()
	g.doLocked(func(w *worker) {
		w.flush() // for the counters
		for a := range w.table.All {
			users = append(users, userOf(a, wall))
		}
	})
	g.mu.Unlock()
	for _, u := range users {
		if !yield(u) {
			return
		}
	}
}

// userOf describes an allocation. wall is what to add to its times to get wall-clock times.
func userOf(a *allocation.Allocation, wall int64) v1.TurnUser {
	last := func(t *allocation.Traffic) int64 {
		if at := t.Last.Load(); at != 0 {
			return at + wall
		}
		return 0
	}
	c := a.Data.(*client)
	u := v1.TurnUser{
		ID: a.ID, User: a.User, Client: a.Path.Client, Transport: a.Path.Transport.String(), Listener: c.listener.current().Name,
		TCP: a.TCP, Created: a.Created + wall, Expires: a.Expires + wall, LastUp: last(&a.Up), LastDown: last(&a.Down),
		Up:   Traffic{Packets: a.Up.Packets.Load(), Bytes: a.Up.Bytes.Load()},
		Down: Traffic{Packets: a.Down.Packets.Load(), Bytes: a.Down.Bytes.Load()},
	}
	for family, r := range a.Relay {
		if r.IsValid() {
			u.Relay = append(u.Relay, r)
			if public := a.AnnouncedRelay(family); public != r {
				u.RelayPublic = append(u.RelayPublic, public)
			}
		}
	}
	u.Permissions, u.Channels, _, u.Suspended = a.Counts()
	peers := map[netip.AddrPort]bool{}
	withChannel := map[netip.Addr]bool{}
	for ch := range a.Channels {
		peers[ch.Peer], withChannel[ch.Peer.Addr()] = true, true
		if p, _ := ch.Data.(*peer); p != nil && p.offload != 0 {
			u.Offloaded++
		}
	}
	for p := range a.Permissions {
		if !withChannel[p.Peer] {
			peers[netip.AddrPortFrom(p.Peer, 0)] = true // any port
		}
	}
	u.Peers = slices.SortedFunc(maps.Keys(peers), netip.AddrPort.Compare)
	return u
}
