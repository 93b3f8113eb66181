package nat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// A cluster of CoAP nodes says itself which node has the sessions of which node ids, and which nodes drain: each node's admin API is
// queried, and the owner ids of the destinations follow.

const (
	clusterEvery   = 500 * time.Millisecond // between two queries
	clusterTimeout = 2 * time.Second        // of one
)

// clusterNode is a destination that is a node of the cluster.
type clusterNode struct {
	backend  string
	client   *client.Client
	ids      []uint32 // node ids in the connection ids that it makes
	owners   []v1.CoAPOwner
	draining bool
	answers  bool
	applied  lb.Override
}

// clusterNodes are the nodes of --cluster, in the order of the destinations.
func (f *natFlags) clusterNodes(destinations []string) ([]*clusterNode, error) {
	switch {
	case len(f.cluster) == 0:
		return nil, nil
	case f.cidLength == 0:
		return nil, errors.New("--cluster needs --cid-length")
	case len(f.nodes) > 0:
		return nil, errors.New("--cluster and --node-ids exclude each other: the nodes tell their ids")
	case len(f.cluster) != len(destinations):
		return nil, fmt.Errorf("--cluster: %d admin addresses for %d destinations", len(f.cluster), len(destinations))
	}
	token, err := cli.AdminToken(f.clusterToken)
	if err != nil {
		return nil, fmt.Errorf("--cluster-token-file: %w", err)
	}
	var nodes []*clusterNode
	for i, address := range f.cluster {
		nodes = append(nodes, &clusterNode{backend: destinations[i], client: client.New(address, token, cli.CoapPart().Name)})
	}
	return nodes, nil
}

// query asks the node for its state. What it does not answer stays as it was.
func (n *clusterNode) query(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	status, err := n.client.CoAPStatus(ctx)
	if n.answers = err == nil; !n.answers {
		return
	}
	n.ids, n.owners, n.draining = nil, nil, false
	for i := range status.Listeners {
		l := &status.Listeners[i]
		if l.Cluster == nil || l.NodeID == nil {
			continue
		}
		n.ids = append(n.ids, *l.NodeID)
		if l.Moves != nil {
			n.owners = append(n.owners, l.Moves.Owners...)
			n.draining = n.draining || l.Moves.Draining
		}
	}
}

// state is what the node's destination gets: nothing once it has drained and ended.
func (n *clusterNode) state() lb.Override {
	switch {
	case n.draining && n.answers:
		return lb.OverrideDrain
	case n.draining:
		return lb.OverrideDown
	}
	return lb.NoOverride
}

// ownerIDs returns the owner ids of each node, in their order. Of several answers about one shard the one with the highest version holds.
func ownerIDs(nodes []*clusterNode) [][]uint32 {
	newest := map[uint32]v1.CoAPOwner{}
	for _, n := range nodes {
		for _, o := range n.owners {
			if known, ok := newest[uint32(o.Shard)]; !ok || o.Version > known.Version {
				newest[uint32(o.Shard)] = o
			}
		}
	}
	at := map[uint32]int{} // node by node id
	for i, n := range nodes {
		for _, id := range n.ids {
			at[id] = i
		}
	}
	all := make([][]uint32, len(nodes))
	for id, home := range at {
		to := home
		if o, moved := newest[id]; moved {
			if i, known := at[uint32(o.Owner)]; known {
				to = i
			}
		}
		all[to] = append(all[to], id)
	}
	for _, ids := range all {
		slices.Sort(ids)
	}
	return all
}

// follow has the destinations follow the cluster until ctx ends.
func follow(ctx context.Context, nodes []*clusterNode, loop *control.Loop, log *slog.Logger) {
	if len(nodes) == 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(clusterEvery)
	defer tick.Stop()
	for {
		var group sync.WaitGroup
		for _, n := range nodes {
			group.Go(func() { n.query(ctx) })
		}
		group.Wait()
		if err := update(nodes, loop); err != nil && ctx.Err() == nil {
			log.Warn("the destinations do not follow the cluster", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// update applies what has changed. A destination that an operator has removed has none of it.
func update(nodes []*clusterNode, loop *control.Loop) error {
	spec, ok := loop.Spec()
	if !ok {
		return nil
	}
	owned, changed := map[string][]uint32{}, false
	for i, ids := range ownerIDs(nodes) {
		owned[nodes[i].backend] = ids
	}
	spec.Services = slices.Clone(spec.Services)
	service := &spec.Services[0] // natSpec makes one
	service.Backends = slices.Clone(service.Backends)
	for i := range service.Backends {
		b := &service.Backends[i]
		if ids, known := owned[b.Name]; known && !slices.Equal(ids, b.Nodes) {
			b.Nodes, changed = ids, true
		}
	}
	if changed {
		if err := loop.SetSpec(spec); err != nil {
			return err
		}
	}
	states := map[lb.Target]lb.Override{}
	for _, n := range nodes {
		target := lb.Target{Service: service.Name, Backend: n.backend}
		if value := n.state(); n.applied != value {
			states[target] = value
		}
	}
	if len(states) == 0 {
		return nil
	}
	if err := loop.SetOverrides(lb.FromHealth, states); err != nil {
		return err
	}
	for _, n := range nodes {
		n.applied = n.state()
	}
	return nil
}
