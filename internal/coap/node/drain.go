package node

import (
	"errors"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

var errDraining = errors.New("the server drains: its DTLS sessions end")

// Drain begins to end the DTLS sessions, as engine.Engine.Drain does, within a time: no new ones are made, and Ready reports an error. Run goes on: see
// Sessions for how many are left.
func (n *Node) Drain(within time.Duration) {
	n.draining.Store(true)
	for _, l := range n.listeners {
		if l.engine != nil && l.secure {
			l.engine.Drain(within)
		}
	}
}

// Sessions is how many DTLS sessions there are.
func (n *Node) Sessions() (count uint64) {
	for _, l := range n.listeners {
		if l.engine != nil && l.secure {
			count += l.engine.Stats().Sessions
		}
	}
	return count
}

// Busy implements [engine.Draining]: an answer, or a block, is to come later.
func (h *handler) Busy(p *engine.Peer) bool {
	s, ok := p.State.(*session)
	return ok && s.Session.Busy()
}
