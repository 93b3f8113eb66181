package lb

import "net/netip"

// FlowSpec is one flow rule of a service. A field that is not there matches everything.
type FlowSpec struct {
	Name string `yaml:"name" bounds:"1 to 63 characters"` // unique in its service
	// Priority: the highest matching rule of all services decides; of equal ones the first in the file.
	Priority         int             `yaml:"priority" default:"0"`
	Protocols        []Protocol      `yaml:"protocols" default:"any" values:"tcp, udp, sctp"`      // transport protocols; without it also pings and what has no ports
	Destinations     []AddressPrefix `yaml:"destinations" default:"any" bounds:"at most 256"`      // addresses or prefixes; a list of one family excludes the other
	Sources          []AddressPrefix `yaml:"sources" default:"any" bounds:"at most 256"`           // addresses or prefixes; a list of one family excludes the other
	DestinationPorts []PortRange     `yaml:"destination_ports" default:"any" bounds:"at most 256"` // ports or ranges; leaves only TCP, UDP and SCTP
	SourcePorts      []PortRange     `yaml:"source_ports" default:"any" bounds:"at most 256"`      // ports or ranges; leaves only TCP, UDP and SCTP
	// Match: comparisons of bytes in the transport header, such as tcp[13:1] & 0x02 = 0x02. All of the protocol of the packet
	// must hold; those of other protocols do not matter.
	Match []ByteMatch `yaml:"match" default:"none" bounds:"at most 16"`
	// UDPEncap: UDP port on which SCTP in UDP comes in for these addresses (RFC 6951). It is taken out of its UDP header
	// before any other rule is looked at. Protocols must be sctp.
	UDPEncap int `yaml:"udp_encap" default:"none" range:"1 to 65535"`
}

// TierSpec names the balancers of a tier, the same on all of them but for Self.
type TierSpec struct {
	Self       string       `yaml:"self"`                                   // name of the member that this balancer is
	Members    []MemberSpec `yaml:"members" bounds:"at most 256"`           // the balancers, the same on all of them
	MaglevSize int          `yaml:"maglev_size" default:"that of the file"` // slots of the table of the tier
}

// MemberSpec is one balancer of a tier.
type MemberSpec struct {
	Name     string     `yaml:"name" bounds:"1 to 63 characters"`                    // unique in the tier
	Mark     uint32     `yaml:"mark"`                                                // fwmark whose route leads there
	Address  netip.Addr `yaml:"address" default:"none"`                              // next hop of that route, for `weir lb rules`
	Address2 netip.Addr `yaml:"address2" default:"none"`                             // that of the other family
	Weight   *int       `yaml:"weight" default:"100" range:"0 to 10000"`             // share of the fragments
	Index    *int       `yaml:"index" default:"the one it has, else the first free"` // hash nfqlb: the slot by which nfqlb knows the member
}

// Bounds of flow rules and tiers.
const (
	MaxFlowRules    = 4096 // of all services
	MaxRulePrefixes = 256  // of one list
	MaxRulePorts    = 256  // ranges of one list
	MaxRuleMatches  = 16
	MaxMembers      = 256
)
