package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// Class is the kind of a packet as flow rules distinguish it.
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

// takes reports whether a rule may match packets of a class.
func (r *FlowRule) takes(class Class, promiscuousPing bool) bool {
	switch class {
	case ClassEcho:
		if promiscuousPing {
			return true
		}
		fallthrough
	case ClassOther:
		return len(r.Protocols) == 0 && len(r.DestinationPorts) == 0 && len(r.SourcePorts) == 0
	}
	return len(r.Protocols) == 0 || slices.ContainsFunc(r.Protocols, func(p uint8) bool { return ClassOf(p) == class })
}

// String writes the rule for people: its name, priority and what it matches.
func (r *FlowRule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s priority %d:", r.Name, r.Priority)
	start := b.Len()
	if len(r.Protocols) > 0 {
		for i, p := range r.Protocols {
			b.WriteString([]string{" ", ","}[min(i, 1)])
			b.WriteString(Protocol(p).String())
		}
	}
	writeList(&b, " from ", r.Sources)
	writeList(&b, " port ", r.SourcePorts)
	writeList(&b, " to ", r.Destinations)
	writeList(&b, " port ", r.DestinationPorts)
	writeList(&b, " with ", r.Match)
	if r.UDPEncap != 0 {
		fmt.Fprintf(&b, " in udp port %d", r.UDPEncap)
	}
	if b.Len() == start {
		b.WriteString(" everything")
	}
	return b.String()
}

func writeList[T fmt.Stringer](b *strings.Builder, head string, list []T) {
	const shown = 4
	for i, v := range list {
		switch {
		case i == 0:
			b.WriteString(head)
		case i == shown:
			fmt.Fprintf(b, " and %d more", len(list)-shown)
			return
		default:
			b.WriteString(",")
		}
		b.WriteString(v.String())
	}
}
