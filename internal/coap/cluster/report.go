package cluster

import "github.com/weir-lb/weir/internal/coap/cluster/membership"

const (
	ownIDs    = "give each node an id of its own: the last part of --dtls-cluster, cluster.nodes[].id"
	sameLists = "make the lists of the nodes equal: --dtls-cluster, cluster.nodes"
)

// report logs what has happened to the membership.
func (c *Cluster) report(e *membership.Event) {
	switch e.Kind {
	case membership.Joined:
		c.log.Info("cluster node answers", "other", e.ID, "address", e.Addr)
	case membership.Silent:
		c.log.Warn("cluster node is silent", "other", e.ID, "address", e.Addr, "for", e.For)
	case membership.Left:
		c.log.Warn("cluster node is silent and no longer a member", "other", e.ID, "address", e.Addr, "for", e.For)
	case membership.Moved:
		c.log.Info("cluster node has moved", "other", e.ID, "address", e.Addr, "before", e.Other)
	case membership.Renamed:
		c.log.Warn("cluster node has another id now", "other", e.ID, "address", e.Addr, "before", e.Was)
	case membership.Duplicate:
		c.log.Error("two cluster nodes have the same id: the second one gets no records", "other", e.ID, "first", e.Addr, "second", e.Other, "remedy", ownIDs)
	case membership.OwnID:
		c.log.Error("another cluster node has the id of this one", "other", e.ID, "address", e.Addr, "remedy", ownIDs)
	case membership.Mistaken:
		c.log.Warn("cluster node announces another id than is known", "address", e.Addr, "known", e.Was, "announced", e.ID, "remedy", sameLists)
	case membership.Full:
		c.log.Warn("the cluster has no room for another node", "address", e.Addr, "maximum", MaxNodes)
	case membership.ClockJump:
		c.log.Warn("this process was stopped, or the clock jumped: no cluster node is given up for it", "for", e.For)
	case membership.Backwards:
		c.log.Warn("the clock went back", "for", e.For)
	case membership.Complete:
		c.log.Info("the cluster is complete")
	}
}
