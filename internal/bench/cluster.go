package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// clusterSecret secures the link between the nodes of a measurement.
const clusterSecret = "of this measurement alone"

// securedNode is the arguments of node own (from 0) of a cluster whose link is secured; the addresses are those of clusterFlag.
func securedNode(addresses []netip.AddrPort, own int) []string {
	return []string{"--dtls-cluster", clusterFlag(addresses, own), "--dtls-cluster-group-security", clusterSecret}
}

// clusterListener is the listener of a node in its cluster.
func clusterListener(ctx context.Context, node *programs.Daemon, name string) (*v1.CoAPListener, error) {
	var status v1.CoAPStatus
	if err := node.Get(ctx, "/status", &status); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(status.Listeners, func(l v1.CoAPListener) bool { return l.Cluster != nil })
	if at < 0 {
		return nil, fmt.Errorf("%s is no node of a cluster", name)
	}
	return &status.Listeners[at], nil
}

// joined waits until a node knows so many others, over secured links.
func joined(ctx context.Context, node *programs.Daemon, name string, others int) error {
	return until(ctx, programs.ReadyTimeout, func() error {
		l, err := clusterListener(ctx, node, name)
		if err != nil {
			return err
		}
		up := 0
		for _, other := range l.Nodes {
			if other.State == "up" && other.Secured {
				up++
			}
		}
		if up < others {
			return fmt.Errorf("%s knows %d of %d other nodes", name, up, others)
		}
		return nil
	})
}

// copied waits until another node has copies of all of so many sessions of a node.
func copied(ctx context.Context, node *programs.Daemon, name string, sessions int) error {
	return until(ctx, time.Minute, func() error {
		l, err := clusterListener(ctx, node, name)
		switch {
		case err != nil:
			return err
		case l.Copies == nil:
			return fmt.Errorf("%s copies no sessions", name)
		case l.Copies.Alone:
			return fmt.Errorf("no other node takes copies of the sessions of %s; its store: %s", name, l.Copies.StoreError)
		case l.Copies.Sessions < sessions || l.Copies.Behind > 0:
			return fmt.Errorf("of %d sessions of %s, %d are copied, %d of them not yet", sessions, name, l.Copies.Sessions, l.Copies.Behind)
		}
		return nil
	})
}
