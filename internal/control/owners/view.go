package owners

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxShards is how many node ids there are: they have one byte.
const maxShards = 256

// answer is what a node has reported last. The zero value: it has never answered.
type answer struct {
	ids      []uint32 // node ids in the connection ids that it makes
	owners   []v1.CoAPOwner
	draining bool
}

// answerOf reads the status of a node.
func answerOf(status *v1.CoAPStatus) (a answer, err error) {
	for i := range status.Listeners {
		l := &status.Listeners[i]
		if l.Cluster == nil || l.NodeID == nil {
			continue
		}
		if *l.NodeID >= maxShards {
			return answer{}, fmt.Errorf("node id %d has more than one byte", *l.NodeID)
		}
		a.ids = append(a.ids, *l.NodeID)
		if l.Moves != nil {
			a.owners = append(a.owners, l.Moves.Owners...)
			a.draining = a.draining || l.Moves.Draining
		}
	}
	switch {
	case len(a.ids) == 0:
		return answer{}, fmt.Errorf("no listener is a node of a cluster")
	case len(a.ids) > maxShards || len(a.owners) > maxShards*len(a.ids):
		return answer{}, fmt.Errorf("%d node ids and %d owners are more than a cluster has", len(a.ids), len(a.owners))
	}
	slices.Sort(a.ids)
	return a, nil
}

// answerTo reads a line of POST /owners.
func answerTo(line *v1.CoAPOwners) (answer, error) {
	status := &v1.CoAPStatus{Listeners: make([]v1.CoAPListener, len(line.Nodes))}
	for i := range line.Nodes {
		n := &line.Nodes[i]
		status.Listeners[i] = v1.CoAPListener{NodeID: &n.ID, Cluster: &v1.CoAPCluster{}, Moves: &v1.CoAPMoves{Draining: n.Draining, Owners: n.Owners}}
	}
	return answerOf(status)
}

func (a *answer) equal(b *answer) bool {
	return a.draining == b.draining && slices.Equal(a.ids, b.ids) && slices.Equal(a.owners, b.owners)
}

// node is one queried node as the view knows it.
type node struct {
	answer
	answers bool      // to the newest query
	last    time.Time // when it has answered last; zero: never
	old     bool      // that was long ago
}

// state is what the backend of the node gets: nothing once it has drained and ended.
func (n *node) state() lb.Override {
	switch {
	case n.draining && n.answers:
		return lb.OverrideDrain
	case n.draining:
		return lb.OverrideDown
	}
	return lb.NoOverride
}

// newest returns the owner with the highest version of each shard that was ever moved. What a node has reported long ago counts only if no
// node has reported anything since: versions begin at 0 when all nodes were started again.
func newest(nodes map[string]*node) map[uint32]v1.CoAPOwner {
	all := map[uint32]v1.CoAPOwner{}
	recent := slices.ContainsFunc(slices.Collect(maps.Values(nodes)), func(n *node) bool { return len(n.ids) > 0 && !n.old })
	for _, n := range nodes {
		if n.old && recent {
			continue
		}
		for _, o := range n.owners {
			if known, ok := all[uint32(o.Shard)]; !ok || o.Version > known.Version || o.Version == known.Version && o.Owner < known.Owner {
				all[uint32(o.Shard)] = o
			}
		}
	}
	return all
}

// merge returns the owner ids of each backend. A shard whose owner is no queried node stays with its home. conflict: two nodes claim one
// id, which then belongs to the first of them by name.
func merge(nodes map[string]*node) (owned map[string][]uint32, conflict string) {
	homes := map[uint32]string{}
	owned = make(map[string][]uint32, len(nodes))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		for _, id := range nodes[name].ids {
			if other, ok := homes[id]; ok {
				if conflict == "" {
					conflict = fmt.Sprintf("%s and %s both have the node id %d; %s gets its records: give each node an id of its own", other, name, id, other)
				}
				continue
			}
			homes[id] = name
		}
		owned[name] = nil
	}
	at := maps.Clone(homes)
	for shard, o := range newest(nodes) { // also of a home that has not answered yet
		if owner, known := homes[uint32(o.Owner)]; known {
			at[shard] = owner
		}
	}
	for id, name := range at {
		owned[name] = append(owned[name], id)
	}
	for _, ids := range owned {
		slices.Sort(ids)
	}
	return owned, conflict
}

// view is what the nodes of a service have reported together.
type view struct {
	owned    map[string][]uint32
	states   map[string]lb.Override // by backend; without those that have none
	conflict string
}

func viewOf(nodes map[string]*node) view {
	v := view{states: map[string]lb.Override{}}
	v.owned, v.conflict = merge(nodes)
	for name, n := range nodes {
		if state := n.state(); state != lb.NoOverride {
			v.states[name] = state
		}
	}
	return v
}

func (v *view) equal(w *view) bool {
	return maps.EqualFunc(v.owned, w.owned, slices.Equal[[]uint32]) && maps.Equal(v.states, w.states)
}
