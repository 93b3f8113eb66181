package cluster

import (
	"errors"

	"github.com/weir-lb/weir/internal/coap/cluster/move"
)

// errStarting says that the cluster does not run yet.
var errStarting = errors.New("the node has just been started; try again")

// Drain moves all sessions with connection ids to other nodes, and those that are made later; to: the node that takes them, nil: the one
// with the fewest sessions. It returns an error if no node can take them. Safe from any goroutine.
func (c *Cluster) Drain(to *uint32) error {
	if c.moves == nil {
		return move.ErrUnsecured
	}
	target := -1
	if to != nil {
		target = int(min(*to, MaxNodes))
	}
	m := c.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return errStarting
	}
	err := m.node.Drain(target)
	m.publishLocked()
	return err
}

// Undrain ends the drain: what has moved from this node returns. Safe from any goroutine.
func (c *Cluster) Undrain() error {
	if c.moves == nil {
		return move.ErrUnsecured
	}
	c.moves.mu.Lock()
	defer c.moves.mu.Unlock()
	if c.moves.node == nil {
		return errStarting
	}
	c.moves.node.Undrain()
	c.moves.publishLocked()
	return nil
}

// OnMove has changed called when the owner of a shard, or whether the node drains, has changed. It must not block, nor call the cluster.
// Call it before the engine runs.
func (c *Cluster) OnMove(changed func()) {
	if c.moves != nil {
		c.moves.changed = changed
	}
}

// MoveStatus is how sessions move between this node and others.
type MoveStatus struct {
	Draining bool   `json:"draining" metric:"_draining" help:"1 while the node moves its sessions to other nodes."`
	Drained  bool   `json:"drained" metric:"_drained" help:"1 if it does and has nothing left to move."`
	To       *uint8 `json:"to,omitempty"` // node that sessions move to now
	Cause    string `json:"cause,omitempty" metric:"_move_failed" help:"1 if the newest transfer of sessions to another node has failed."`
	Sessions int64  `json:"sessions" metric:"_sessions_with_cid" help:"DTLS sessions with connection ids, which can be moved."`
	Transit  int64  `json:"transit" metric:"_sessions_in_transit" help:"DTLS sessions on their way to another node."`
	Out      uint64 `json:"moved_out" metric:"_moved_out_total" help:"DTLS sessions that another node has taken."`
	In       uint64 `json:"moved_in" metric:"_moved_in_total" help:"DTLS sessions taken from another node."`
	Lost     uint64 `json:"moved_lost" metric:"_moved_lost_total" help:"DTLS sessions dropped, because it is not known whether they arrived, or the other node could not take them."`
	Refused  uint64 `json:"moved_refused" metric:"_moved_refused_total" help:"DTLS sessions of another node that could not go on here."`

	Owners []OwnerStatus `json:"owners,omitempty" metric:"weir_coap_cluster"` // of shards that were ever moved; all others are at home
}

// OwnerStatus is which node has the sessions whose connection ids name another one.
type OwnerStatus struct {
	Shard   uint8  `json:"shard" label:"shard"`                                                                                                                                 // node id in the connection ids
	Owner   uint8  `json:"owner" metric:"_shard_owner" help:"Node that has the sessions whose connection ids name the node of the label shard, of those that were ever moved."` // node that has the sessions
	Version uint32 `json:"version"`                                                                                                                                             // the highest one holds
}

// Moves returns how sessions move; nil: the link is not secured, and they do not. Safe from any goroutine.
func (c *Cluster) Moves() *MoveStatus {
	m := c.moves
	if m == nil {
		return nil
	}
	s := &MoveStatus{Transit: m.transit.Load()}
	for i := range m.own {
		s.Sessions += m.own[i].Load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return s
	}
	d, counted := m.node.Draining(), m.node.Stats()
	s.Draining, s.Drained, s.Cause = d.On, d.Done, d.Cause
	if d.To >= 0 {
		s.To = new(uint8(d.To))
	}
	s.Out, s.In, s.Lost, s.Refused = counted.Out, counted.In, counted.Lost, counted.Refused
	for _, e := range m.node.Owners() {
		s.Owners = append(s.Owners, OwnerStatus{Shard: e.Shard, Owner: e.Owner, Version: e.Version})
	}
	return s
}

// reportMove logs what has become of a transfer.
func (c *Cluster) reportMove(e *move.Event) {
	switch e.Kind {
	case move.Started:
		c.log.Info("sessions move to another cluster node", "of", e.Shard, "to", e.Node)
	case move.Completed:
		c.log.Info("sessions have moved to another cluster node", "of", e.Shard, "to", e.Node, "moved", e.Moved, "lost", e.Lost)
	case move.Failed:
		c.log.Warn("sessions could not be moved to another cluster node", "of", e.Shard, "to", e.Node, "moved", e.Moved, "lost", e.Lost, "cause", e.Cause)
	case move.Took:
		c.log.Info("sessions were taken from another cluster node", "of", e.Shard, "from", e.Node)
	case move.Claimed:
		c.log.Warn("the cluster node with these sessions is silent: this node has them now, as far as they are here", "of", e.Shard, "from", e.Node)
	}
}
