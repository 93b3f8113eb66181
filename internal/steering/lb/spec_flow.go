package lb

import "net/netip"

// FlowSpec is one flow rule of a service. A field that is not there matches everything.
type FlowSpec struct {
	Name string `yaml:"name"` // unique within its service
	// Priority: the highest matching rule of all services decides; of equal ones the first in the file. Default 0.
	Priority int `yaml:"priority"`
	// Protocols are tcp, udp or sctp. Default: any protocol, pings and what has no ports too.
	Protocols []Protocol `yaml:"protocols"`
	// Destinations and Sources are addresses or prefixes. A list of one family excludes the other.
	Destinations []AddressPrefix `yaml:"destinations"`
	Sources      []AddressPrefix `yaml:"sources"`
	// DestinationPorts and SourcePorts leave only TCP, UDP and SCTP.
	DestinationPorts []PortRange `yaml:"destination_ports"`
	SourcePorts      []PortRange `yaml:"source_ports"`
	// Match are comparisons of bytes in the transport header, such as tcp[13:1] & 0x02 = 0x02. All of the packet's
	// protocol must hold; those of other protocols say nothing about it.
	Match []ByteMatch `yaml:"match"`
	// UDPEncap is the UDP port on which SCTP in UDP comes in (RFC 6951) for these addresses. It is taken out of its UDP
	// header, to be looked up and hashed as SCTP, before any other rule is looked at. Protocols must be sctp.
	UDPEncap int `yaml:"udp_encap"`
}

// TierSpec names the balancers of a tier, the same on all of them but for Self.
type TierSpec struct {
	Self    string       `yaml:"self"` // the member that this balancer is
	Members []MemberSpec `yaml:"members"`
	// MaglevSize is the number of slots of the tier's table. Default that of the file.
	MaglevSize int `yaml:"maglev_size"`
}

// MemberSpec is one balancer of a tier.
type MemberSpec struct {
	Name     string     `yaml:"name"`
	Mark     uint32     `yaml:"mark"`     // fwmark whose route leads there
	Address  netip.Addr `yaml:"address"`  // next hop for that route, for weir lb rules; not needed otherwise
	Address2 netip.Addr `yaml:"address2"` // of the other family
	Weight   *int       `yaml:"weight"`   // share of the fragments, 0 to MaxWeight; default 100
	Index    *int       `yaml:"index"`    // hash nfqlb: the slot that nfqlb knows it by; default the one it has, else the first free
}

// Bounds of flow rules and tiers.
const (
	MaxFlowRules    = 4096 // of all services
	MaxRulePrefixes = 256  // of one list
	MaxRulePorts    = 256  // ranges of one list
	MaxRuleMatches  = 16
	MaxMembers      = 256
)
