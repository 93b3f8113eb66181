package lb

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// FlowRule is a compiled flow rule: which packets a service gets, VIPs aside.
type FlowRule struct {
	Index    int // in Snapshot.Rules
	Name     string
	Priority int
	// Protocols in ascending order, or empty for any.
	Protocols             []uint8
	Destinations, Sources []netip.Prefix // masked; empty for any
	// DestinationPorts and SourcePorts are empty for any, and for packets without ports.
	DestinationPorts, SourcePorts []PortRange
	Match                         []ByteMatch
	UDPEncap                      uint16 // 0: none
	Service                       *Service
}

// Class is what a flow rule sees of a packet's kind.
type Class uint8

const (
	ClassOther Class = iota // no ports: any other protocol, ICMP that is no echo request
	ClassTCP
	ClassUDP
	ClassSCTP
	ClassEcho // an ICMP echo request
	classes
)

// ClassOf is the class of a transport protocol.
func ClassOf(protocol uint8) Class {
	switch protocol {
	case TCP:
		return ClassTCP
	case UDP:
		return ClassUDP
	case SCTP:
		return ClassSCTP
	}
	return ClassOther
}

// Match returns the flow rule that decides about a packet, nil when none matches. Header is its transport header, as
// much of it as is known: a rule that compares bytes beyond its end does not match.
func (s *Snapshot) Match(k flow.Key, class Class, header []byte) *FlowRule { return nil }

// Encapsulated reports whether a UDP packet of this flow carries SCTP for a rule with udp_encap.
func (s *Snapshot) Encapsulated(k flow.Key) bool { return false }
