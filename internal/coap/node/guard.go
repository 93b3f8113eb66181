package node

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// guard is the handler as [resource.Guard]. The Owner of a resource.Session is a *session.
type guard struct{ h *handler }

// emptyLength is the length of an empty acknowledgement in bytes.
const emptyLength = 4

func owner(s *resource.Session) *session { return s.Owner.(*session) }

func (guard) Proven(s *resource.Session) bool { return owner(s).peer.Proven() }

func (guard) Source(s *resource.Session) evict.Source {
	return evict.SourceOf(owner(s).peer.Addr().Addr())
}

func (guard) Empty(s *resource.Session) int { return emptyLength + owner(s).peer.Overhead() }

func (guard) Room(s *resource.Session) int { return owner(s).peer.Budget() }

// Probe starts a probe of the client's address, unless the client has a better method to prove it.
func (guard) Probe(s *resource.Session, reply *exchange.Reply) {
	if own := owner(s); !own.peer.Routable() {
		reply.Probe()
		own.probed = own.peer.Addr()
	}
}

func (g guard) Echo(s *resource.Session, now time.Duration) []byte {
	return g.h.echoes.value(owner(s).peer.Addr(), now)
}
