package node

import (
	"errors"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/cluster/move"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

var (
	_ engine.Moving  = (*handler)(nil)
	_ engine.Copying = (*handler)(nil)
)

// Export implements [engine.Moving]: message ids and stored answers go with the session. What was to be sent later is lost with it, which
// the engine waits for.
func (h *handler) Export(p *engine.Peer, b []byte, room int, now time.Duration) (out []byte, ready bool) {
	s := h.sessionOf(p)
	busy := h.Busy(p)
	out, ready = h.endpoint.Export(&s.Session.Session, b, room, now)
	return out, ready && !busy
}

// Copy implements [engine.Copying].
func (h *handler) Copy(p *engine.Peer, b []byte, room int, now time.Duration) []byte {
	return h.endpoint.Copy(&h.sessionOf(p).Session.Session, b, room, now)
}

// Import implements [engine.Moving].
func (h *handler) Import(p *engine.Peer, b []byte, now time.Duration) {
	h.endpoint.Import(&h.sessionOf(p).Session.Session, b, now)
}

var (
	errNoCluster = errors.New("the server is no node of a cluster: there is no other one that its sessions could move to")
	errMoving    = errors.New("the server moves its DTLS sessions to other nodes")
)

// MoveAway moves the DTLS sessions of all own nodes of the cluster to other nodes, also those that are made meanwhile, until MoveBack; to:
// the node that takes them, nil: the one with the fewest sessions. Safe from any goroutine.
func (n *Node) MoveAway(to *uint32) error {
	if err := n.CanMove(); err != nil {
		return err
	}
	clusters := n.clusters()
	for i, c := range clusters {
		if err := c.Drain(to); err != nil {
			for _, before := range clusters[:i] {
				_ = before.Undrain() // it was drained
			}
			return err
		}
	}
	n.moving.Store(true)
	return nil
}

// MoveBack ends MoveAway: the sessions return.
func (n *Node) MoveBack() error {
	if err := n.CanMove(); err != nil {
		return err
	}
	n.moving.Store(false)
	var errs []error
	for _, c := range n.clusters() {
		errs = append(errs, c.Undrain())
	}
	return errors.Join(errs...)
}

// CanMove reports nil if the server is a node whose sessions can move at all.
func (n *Node) CanMove() error {
	clusters := n.clusters()
	if len(clusters) == 0 {
		return errNoCluster
	}
	for _, c := range clusters {
		if c.Moves() == nil {
			return move.ErrUnsecured
		}
	}
	return nil
}

// Moved sums up how the sessions of all own nodes move. Drained: nothing is left to move anywhere.
func (n *Node) Moved() (total cluster.MoveStatus) {
	total.Drained = true
	for _, c := range n.clusters() {
		s := c.Moves()
		if s == nil {
			total.Drained = false
			continue
		}
		total.Draining, total.Drained = total.Draining || s.Draining, total.Drained && s.Drained
		total.Sessions += s.Sessions
		total.Transit += s.Transit
		total.Out += s.Out
		total.In += s.In
		total.Lost += s.Lost
		total.Refused += s.Refused
		if s.Cause != "" {
			total.Cause = s.Cause
		}
	}
	return total
}
