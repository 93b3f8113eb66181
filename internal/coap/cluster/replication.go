package cluster

import (
	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/coap/cluster/store"
	"github.com/weir-lb/weir/internal/coap/cluster/store/embedded"
)

// ReplicationStatus is how the sessions of this node are copied to another one, and what became of those of other nodes.
type ReplicationStatus struct {
	Process     string `json:"process"`         // NODE/NUMBER; another number after its sessions were taken over
	Buddy       *uint8 `json:"buddy,omitempty"` // node that has copies of the sessions here; nil: none
	Alone       bool   `json:"alone" metric:"_alone" help:"1 while no other node has copies of the sessions of this node: a crash loses them."`
	Sessions    int    `json:"sessions" metric:"_sessions" help:"DTLS sessions of this node that are copied."`
	Behind      int    `json:"behind" metric:"_sessions_behind" help:"DTLS sessions of this node of which the other node has no copy yet."`
	Copies      int    `json:"copies" metric:"_copies" help:"Copies of other nodes' DTLS sessions."`
	TakenOver   uint64 `json:"taken_over" metric:"_taken_over_total" help:"DTLS sessions of nodes that have failed, which were taken over."`
	Inherited   uint64 `json:"inherited" metric:"_inherited_total" help:"DTLS sessions of the process before this one that go on here, since no other node has taken them over."`
	NotRestored uint64 `json:"not_restored" metric:"_not_restored_total" help:"DTLS sessions of nodes that have failed which could not go on here: no room, or other connection ids."`
	TakeOvers   uint64 `json:"take_overs" metric:"_take_overs_total" help:"Processes of other nodes whose sessions were taken over."`
	Fenced      uint64 `json:"fenced" metric:"_fenced_total" help:"Times that another node has taken the sessions of this one over while it was running: they were dropped here."`
	Store       string `json:"store"` // kubernetes, etcd or embedded
	StoreErrors uint64 `json:"store_errors" metric:"_store_errors_total" help:"Requests to the store that failed."`
	StoreError  string `json:"store_error,omitempty" metric:"_store_failed" help:"1 while the store does not answer: nothing can be taken over."`
}

// Replication returns how sessions are copied; nil: they are not. Safe from any goroutine.
func (c *Cluster) Replication() *ReplicationStatus {
	r := c.replicas
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.counts
	s.Process, s.Store = r.self.String(), kindOf(r.store)
	s.Sessions, s.Copies = r.node.Len()
	s.Behind = r.node.Unacknowledged()
	s.Alone = s.Buddy == nil
	return &s
}

func kindOf(s Store) string {
	switch s.(type) {
	case *store.Leases:
		return "kubernetes"
	case *embedded.Server:
		return "embedded"
	case *store.Etcd:
		return "etcd"
	}
	return "memory"
}

// LeaveSessions says that the process ends, and that its sessions are for its buddy to take over.
func (c *Cluster) LeaveSessions() {
	if c.replicas != nil {
		c.replicas.leaving.Store(true)
	}
}

// report logs and counts what has happened.
func (r *replicas) report(e *replica.Event) {
	r.count(e)
	log := r.c.log
	switch e.Kind {
	case replica.Replicates:
		log.Info("sessions are copied to another cluster node", "to", e.Node, "sessions", e.Sessions)
	case replica.Alone:
		log.Warn("no other cluster node can take copies of the sessions: a crash of this one loses them", "sessions", e.Sessions)
	case replica.Fenced:
		log.Warn("another cluster node has taken the sessions of this one over: they are dropped here", "by", e.Node, "sessions", e.Sessions)
	case replica.TookOver:
		log.Warn("a cluster node has failed: its sessions go on here", "node", e.Node, "sessions", e.Sessions)
	case replica.Discarded:
		log.Info("copies of another cluster node's sessions are dropped", "node", e.Node, "sessions", e.Sessions)
	case replica.NoRoom:
		log.Warn("sessions of a cluster node that has failed are lost: there is no room for them", "node", e.Node, "sessions", e.Sessions)
	case replica.Resumed:
		log.Info("the sessions of the process before go on here: no other cluster node has taken them over", "sessions", e.Sessions)
	}
}

func (r *replicas) count(e *replica.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case replica.Replicates:
		r.counts.Buddy = new(e.Node)
	case replica.Alone:
		r.counts.Buddy = nil
	case replica.Fenced:
		r.counts.Buddy = nil
		r.counts.Fenced++
	case replica.Resumed:
		r.counts.Inherited += uint64(e.Sessions)
	case replica.TookOver:
		r.counts.TakeOvers++
		r.counts.TakenOver += uint64(e.Sessions)
	case replica.NoRoom:
		r.counts.NotRestored += uint64(e.Sessions)
	}
}
