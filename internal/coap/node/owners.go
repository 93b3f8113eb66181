package node

import (
	"context"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// news wakes all who wait for a change. The zero value works; its methods may be called from any goroutine.
type news struct {
	mu sync.Mutex
	at chan struct{} // closed at the next change; nil: nothing waits
}

// signal reports a change.
func (n *news) signal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at != nil {
		close(n.at)
		n.at = nil
	}
}

// next is closed at the next change.
func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil {
		n.at = make(chan struct{})
	}
	return n.at
}

// WatchOwners writes where the sessions of the cluster are, as this server knows it, now, at each change and every [v1.OwnersEvery], until
// ctx ends. Safe from any goroutine.
func (n *Node) WatchOwners(ctx context.Context, write func(line any, flush bool) error) error {
	if len(n.clusters()) == 0 {
		return errNoCluster
	}
	ticker := time.NewTicker(v1.OwnersEvery)
	defer ticker.Stop()
	for {
		changed := n.moved.next()
		if err := write(n.owners(), true); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

// owners is what the own nodes know.
func (n *Node) owners() *v1.CoAPOwners {
	line := &v1.CoAPOwners{}
	for _, l := range n.listeners {
		if l.cluster == nil {
			continue
		}
		own := v1.CoAPOwnNode{ID: *l.nodeID}
		if m := l.cluster.Moves(); m != nil {
			own.Draining = m.Draining
			for _, o := range m.Owners {
				own.Owners = append(own.Owners, v1.CoAPOwner(o))
			}
		}
		line.Nodes = append(line.Nodes, own)
	}
	return line
}
