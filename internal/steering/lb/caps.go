package lb

// Caps is what a data path can do. Compile refuses everything else, and its error names the data path.
type Caps struct {
	Name      string // as in --datapath
	Protocols []uint8
	Modes     []Mode
	Tunnels   []Tunnel
	// CID: the data path steers by connection ids; MaskedCID: also by masked ones.
	CID, MaskedCID bool
	MaxLayouts     int // of the CIDs of one service; 0: no limit of its own
	// Prefixes: VIPs may be prefixes. PortRanges: VIPs may be port ranges or any port.
	Prefixes, PortRanges bool
	IPv4, IPv6           bool
	// CrossFamily: NAT between IPv4 and IPv6.
	CrossFamily bool
	// SNAT: NAT mode can translate the source to addresses and ports of the user's choice.
	SNAT bool
	// Outbound: UDP flows that backends start can leave with the VIP, and be remembered.
	Outbound bool
	// HoldFragments: early fragments can wait for their first one.
	HoldFragments bool
	// Flows: services may have flow rules in addition to VIPs; this includes the spec's promiscuous_ping.
	Flows bool
	// Sync: the state of translated flows can be given to other balancers.
	Sync bool
	// Decap: tunnels of other balancers can end here.
	Decap bool
	// Tier: fragments can be handed to another balancer of the tier.
	Tier bool
	// ReservedMarks: packets without backend or service can pass with a fwmark.
	ReservedMarks bool
	// Reject: packets of a backend with action reject can be answered; mode mark leaves that to a rule (ReservedMarks).
	Reject bool
	// SCTPPorts: SCTP can be hashed by its ports alone. Stateless: services can work without conntrack.
	SCTPPorts, Stateless bool
	// NFQLB: flows can be hashed as nfqlb does.
	NFQLB bool
	// LocalVIPs: VIPs must be addresses of an interface to receive their packets.
	LocalVIPs bool
	// FixedLimits: tables are sized by the first snapshot; limits cannot change after it.
	FixedLimits bool
	MaxFlows    int // greatest limits.flows; 0: no limit of its own
	MaxMaglev   int // greatest maglev_size; 0: no limit of its own
}

// CheckCaps are the capabilities for weir check without a data path: what several data paths can do. They exclude NAT
// between IPv4 and IPv6, which one data path can do, because in a configuration it is more often a mistake.
func CheckCaps() Caps {
	caps := AllCaps()
	caps.CrossFamily = false
	return caps
}

// AllCaps has every capability: for tools that serve any data path, and for tests.
func AllCaps() Caps {
	return Caps{
		Name:      "any",
		Protocols: []uint8{TCP, UDP, SCTP},
		Modes:     []Mode{NAT, L2DSR, L3DSR, Mark},
		Tunnels:   []Tunnel{IPIP, GUE},
		CID:       true, MaskedCID: true,
		Prefixes: true, PortRanges: true,
		IPv4: true, IPv6: true,
		CrossFamily: true, SNAT: true, Outbound: true, HoldFragments: true,
		Flows: true, Sync: true, Decap: true, Tier: true, ReservedMarks: true, Reject: true, SCTPPorts: true, Stateless: true, NFQLB: true,
	}
}
