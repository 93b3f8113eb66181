package bench

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

const (
	replicaNodes     = 3          // the fewest that can be a store themselves; all are on one host
	replicaStore     = "embedded" // value of paramReplicate, and of --dtls-cluster-replicate
	replicaLinkPorts = 100        // from the port of a node's DTLS address to that of its management address, in a namespace
)

// replicas are the other nodes of the cluster of a server that replicates its sessions, and what all have counted.
type replicas struct {
	stage     *programs.Stage
	addresses []netip.AddrPort // public and management address of each node; the server is the first one
	others    []*programs.Daemon
	last      replicaCounts // at the end of the window before
}

// replicaCounts are what the nodes say of the server's sessions.
type replicaCounts struct {
	process int    // of the server, with which its counters begin
	dropped uint64 // by the server
	taken   uint64 // by the other nodes
	refused uint64 // sessions that they could not go on with
	behind  int    // sessions of which no other node has a copy yet
}

// replicaAddresses are public and management address of each node, the first one at a given address.
func replicaAddresses(first netip.AddrPort) (all []netip.AddrPort) {
	for i := range uint16(replicaNodes) {
		all = append(all, netip.AddrPortFrom(first.Addr(), first.Port()+i), netip.AddrPortFrom(first.Addr(), first.Port()+i+replicaLinkPorts))
	}
	return all
}

func replicaName(i int) string { return fmt.Sprintf("node%d", i+1) }

// openReplicas starts the other nodes.
func openReplicas(ctx context.Context, stage *programs.Stage, addresses []netip.AddrPort) (*replicas, error) {
	c := &replicas{stage: stage, addresses: addresses}
	for i := 1; i < replicaNodes; i++ {
		args := slices.Concat([]string{"coap", "server", "--no-supervisor", "--workers", "1"}, c.args(i))
		node, err := stage.Daemon(ctx, "server", replicaName(i), args...)
		if err != nil {
			return nil, err
		}
		c.others = append(c.others, node)
	}
	return c, nil
}

// args are the arguments of a node, by which it replicates its sessions.
func (c *replicas) args(i int) []string {
	return append(securedNode(c.addresses, i), "--dtls-cluster-replicate", replicaStore+":"+filepath.Join(c.stage.Dir, replicaName(i)+"-store"))
}

// ready waits until all nodes know each other, and one of them takes copies of the sessions of the server, which has none yet.
func (c *replicas) ready(ctx context.Context, server *programs.Daemon) error {
	for i, node := range slices.Concat([]*programs.Daemon{server}, c.others) {
		if err := joined(ctx, node, replicaName(i), replicaNodes-1); err != nil {
			return err
		}
	}
	return copied(ctx, server, replicaName(0), 0)
}

// begin waits until all sessions are copied.
func (c *replicas) begin(ctx context.Context, server *programs.Daemon, sessions int) (err error) {
	if err := copied(ctx, server, replicaName(0), sessions); err != nil {
		return err
	}
	c.last, err = c.count(ctx, server)
	return err
}

// end writes into a window what became of the sessions since the one before.
func (c *replicas) end(ctx context.Context, server *programs.Daemon, w *restartWindow) error {
	now, err := c.count(ctx, server)
	if err != nil {
		return err
	}
	w.replicated(c.last, now)
	c.last = now
	return nil
}

// replicated enters what the nodes have counted before and after. Another process of the server counts from 0.
func (w *restartWindow) replicated(before, after replicaCounts) {
	if after.process != before.process {
		before.dropped = 0
	}
	w.taken = after.taken - before.taken
	w.dropped = after.dropped - before.dropped + after.refused - before.refused
	w.behind = after.behind
}

func (c *replicas) count(ctx context.Context, server *programs.Daemon) (now replicaCounts, err error) {
	if now.process, err = servingProcess(ctx, server); err != nil {
		return now, err
	}
	own, err := clusterListener(ctx, server, replicaName(0))
	if err != nil {
		return now, err
	}
	if own.Copies == nil {
		return now, fmt.Errorf("%s copies no sessions", replicaName(0))
	}
	now.dropped, now.behind = own.Engine.Fenced+own.Engine.RestoreLost, own.Copies.Behind
	if own.Copies.Alone {
		now.behind = own.Copies.Sessions
	}
	for i, node := range c.others {
		l, err := clusterListener(ctx, node, replicaName(i+1))
		if err != nil {
			return now, err
		}
		if l.Copies != nil {
			now.taken, now.refused = now.taken+l.Copies.TakenOver, now.refused+l.Copies.NotRestored
		}
	}
	return now, nil
}
