package lb

import "github.com/weir-lb/weir/internal/steering/flow"

// Hash is how flows become slots of a Maglev table, and backends its owners.
type Hash uint8

const (
	SipHash Hash = iota // SipHash-2-4 under hash_key; rows of the table by name
	NFQLB               // as nfqlb: djb2; rows by slot number from the C library's rand()
)

// SCTPHash is what of an SCTP packet is hashed.
type SCTPHash uint8

const (
	sctpUnset SCTPHash = iota
	SCTPFlow           // addresses and ports, as for other protocols
	SCTPPorts          // the ports alone: an association keeps its backend over all its addresses (multihoming)
)

// DropMark in place of a reserved mark drops the packet. Mark 0 lets it pass as it came.
const DropMark int64 = -1

// FlowHash returns the hash that picks the slot of a flow in the service's table.
func (s *Snapshot) FlowHash(service *Service, k flow.Key) uint64 { return s.HashKey.Flow(k) }

// Tier is the set of balancers that share the work on fragments.
type Tier struct {
	Self    *Member
	Members []*Member // ordered by name
	Maglev  []int32   // hash % len → index in Members; empty when no member has weight
}

// Member is one balancer of a tier.
type Member struct {
	Index  int // in Tier.Members
	Name   string
	Mark   uint32
	Weight int
	Slot   int // hash nfqlb: the row of its permutation; else -1
}

// Member returns the balancer that gets the fragments between two addresses; nil: this one.
func (s *Snapshot) Member(k flow.Key) *Member { return nil }
