package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/readfile"
)

// openCluster opens a listener for each own node of the cluster.
func (n *Node) openCluster() error {
	if n.cfg.Cluster == nil {
		return nil
	}
	configured, err := n.cfg.clusterWithSecret()
	if err != nil {
		return err
	}
	for _, own := range configured.Own() {
		members, err := cluster.New(configured, own.ID, n.cfg.Log.With("node", own.ID))
		if err != nil {
			return keyerror.At("cluster", err)
		}
		members.OnMove(n.moved.signal)
		l := &listener{secure: true, nodeID: &own.ID, cluster: members, profile: n.cfg.Plugtest}
		address, err := resolve(own.DTLS)
		if err != nil {
			return fmt.Errorf("cluster node %d: %w", own.ID, err)
		}
		if err := n.listen(l, address); err != nil {
			return fmt.Errorf("cluster node %d: %w", own.ID, err)
		}
	}
	return nil
}

const (
	maxClusterSecret = 4096 // bytes of the file
	shortSecret      = 16   // fewer bytes can be guessed (RFC 9257 section 6)
)

// clusterWithSecret returns the cluster with the secret of its file.
func (c *Config) clusterWithSecret() (cluster.Config, error) {
	if c.Cluster == nil {
		return cluster.Config{}, nil
	}
	configured := *c.Cluster
	if configured.Security == nil || configured.Security.File == "" {
		return configured, nil
	}
	security := *configured.Security
	text, err := readfile.Read(security.File, maxClusterSecret)
	if err != nil {
		return configured, keyerror.At("cluster.security.file", err)
	}
	if security.Secret, err = decodeKey(strings.TrimSpace(string(text))); err == nil && len(security.Secret) == 0 {
		err = errors.New("it is empty; make a secret with: head -c 16 /dev/urandom | base64")
	}
	if err != nil {
		return configured, keyerror.At("cluster.security.file", fmt.Errorf("%s: %w", security.File, err))
	}
	configured.Security = &security
	return configured, nil
}

// ShortClusterSecret reports whether the secret between nodes can be guessed.
func (n *Node) ShortClusterSecret() bool {
	configured, err := n.cfg.clusterWithSecret()
	return err == nil && configured.Security != nil && len(configured.Security.Secret) < shortSecret
}

// clusters returns the clusters of the own nodes.
func (n *Node) clusters() []*cluster.Cluster {
	var all []*cluster.Cluster
	for _, l := range n.listeners {
		if l.cluster != nil {
			all = append(all, l.cluster)
		}
	}
	return slices.Clip(all)
}

// SetClusterGroup replaces the management addresses at which every cluster node of this process searches for others.
func (n *Node) SetClusterGroup(addresses []netip.AddrPort) {
	for _, c := range n.clusters() {
		c.SetGroup(addresses)
	}
}

// Ready reports nil when every cluster node of this process considers its cluster up, and outside of a cluster always; of a server that drains an error.
func (n *Node) Ready() error {
	switch {
	case n.draining.Load():
		return errDraining
	case n.moving.Load():
		return errMoving
	}
	for _, c := range n.clusters() {
		if !c.Ready() {
			return errors.New("cluster is not complete")
		}
	}
	return nil
}
