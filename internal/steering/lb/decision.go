package lb

// Action is what a data path does with a packet.
type Action uint8

const (
	Pass    Action = iota // not ours: leave it to the kernel, or ignore it in user space
	Forward               // send it to Decision.Backend in the mode of Decision.Service, or to Decision.Member
	Drop                  // discard it
	Hold                  // keep it, bounded in number and time, until the first fragment says where it goes
)

var actionNames = [...]string{Pass: "pass", Forward: "forward", Drop: "drop", Hold: "hold"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "unknown"
}

// Decision is the result of steering one packet. Service is nil for packets of no service, Backend is nil unless the
// action is Forward. All point into the snapshot that decided.
type Decision struct {
	Action Action
	Reason Reason
	// Mark is the fwmark that the packet gets: of the backend (mode mark), of the member, or reserved for packets that
	// pass without a backend. 0: none is set.
	Mark    uint32
	Service *Service
	Backend *Backend
	// Rule is the flow rule that chose the service; nil: a VIP did, or memory.
	Rule *FlowRule
	// Member is the balancer of the tier that gets this fragment (ReasonTier), else nil.
	Member *Member
}

// Reason is why a packet was treated as it was, and for a forwarded packet also how its backend was found. Every exit of
// every data path has exactly one Reason and is counted by it. The numbers are shared with BPF (enum reason in types.h);
// data paths match them by name at load.
type Reason uint8

const (
	// ReasonNone is the zero value: nothing was decided. No exit carries it.
	ReasonNone Reason = iota

	// ReasonNotService passes: the destination is no VIP and the packet is no reply that we translate.
	ReasonNotService
	// ReasonNotIP passes: the frame holds neither IPv4 nor IPv6 (ARP, LLDP, ...).
	ReasonNotIP
	// ReasonNotSteered passes: to a VIP address, but of a protocol or ICMP type that no service balances.
	ReasonNotSteered
	// ReasonICMPUnknown passes: an ICMP error that quotes a flow we do not know.
	ReasonICMPUnknown
	// ReasonNoNeighbour passes: the next hop's link address is not known yet; the kernel resolves it with this packet.
	ReasonNoNeighbour
	// ReasonNoBackendMark passes: no backend can take it; it gets the service's no_backend_mark, for a reject rule.
	ReasonNoBackendMark

	// ReasonFragment forwards: a later fragment that follows its first one.
	ReasonFragment
	// ReasonCID forwards: to the owner named in the connection id.
	ReasonCID
	// ReasonCIDUnknown forwards: there is a CID, but its owner is unknown or down; conntrack or Maglev decided.
	ReasonCIDUnknown
	// ReasonConntrack forwards: by an existing conntrack entry.
	ReasonConntrack
	// ReasonMaglev forwards: a new flow (or source), by the Maglev table.
	ReasonMaglev
	// ReasonReply forwards: from a backend to its client, translated back.
	ReasonReply
	// ReasonICMPError forwards: an ICMP error, to the backend whose flow it quotes.
	ReasonICMPError
	// ReasonICMPReply forwards: an ICMP error about a reply or from behind a backend, to the client, translated back.
	ReasonICMPReply
	// ReasonEcho forwards: an ICMP echo request to a VIP, by the Maglev table of its service.
	ReasonEcho
	// ReasonOutbound forwards: a flow that a backend started, its source translated to the VIP or SNAT address.
	ReasonOutbound
	// ReasonTier forwards: a fragment, to the balancer of the tier that sees all fragments of these addresses.
	ReasonTier

	// ReasonFragmentEarly holds: a later fragment came before its first one.
	ReasonFragmentEarly

	// ReasonMalformed drops: headers that lie about lengths, or are cut short.
	ReasonMalformed
	// ReasonFragmentUnknown drops: a later fragment whose first one is unknown, where the data path cannot hold it.
	ReasonFragmentUnknown
	// ReasonHoldFull drops: a fragment that should be held, but the bounds on held packets are reached.
	ReasonHoldFull
	// ReasonFragmentTableFull drops: no room to remember a first fragment.
	ReasonFragmentTableFull
	// ReasonNoBackend drops: no backend of the service takes new flows.
	ReasonNoBackend
	// ReasonServiceDown drops: the service was taken down by an override.
	ReasonServiceDown
	// ReasonFlowTableFull drops: a new flow needs an entry and the conntrack table is full of proven ones, or its replies
	// could not be told from those of another flow.
	ReasonFlowTableFull
	// ReasonNewFlowRate drops: the service's new_flow_rate is used up, and mode NAT needs an entry.
	ReasonNewFlowRate
	// ReasonSNATExhausted drops: the service's SNAT pool has no free source port toward the backend.
	ReasonSNATExhausted
	// ReasonTooBig drops: larger than the way to the backend allows; an ICMP error with the right size was sent.
	ReasonTooBig
	// ReasonTTLExpired drops: the hop limit ran out here.
	ReasonTTLExpired
	// ReasonSendFailed drops: the kernel refused to send (no buffer, unreachable, no descriptor or port left).
	ReasonSendFailed
	// ReasonFault drops: a loss, size or order fault that the operator switched on.
	ReasonFault
	// ReasonNotDTLS drops: the DTLS filter is on and the datagram is no DTLS record.
	ReasonNotDTLS
	// ReasonUnmatched drops: no flow rule and no VIP matches, and no_service_mark is -1.
	ReasonUnmatched

	reasonEnd // keep last
)

// NumReasons is the size of an array indexed by Reason.
const NumReasons = int(reasonEnd)

var reasonNames = [NumReasons]string{
	ReasonNone:              "none",
	ReasonNotService:        "not_service",
	ReasonNotIP:             "not_ip",
	ReasonNotSteered:        "not_steered",
	ReasonICMPUnknown:       "icmp_unknown",
	ReasonNoNeighbour:       "no_neighbour",
	ReasonNoBackendMark:     "no_backend_mark",
	ReasonFragment:          "fragment",
	ReasonCID:               "cid",
	ReasonCIDUnknown:        "cid_unknown",
	ReasonConntrack:         "conntrack",
	ReasonMaglev:            "maglev",
	ReasonReply:             "reply",
	ReasonICMPError:         "icmp_error",
	ReasonICMPReply:         "icmp_reply",
	ReasonEcho:              "echo",
	ReasonOutbound:          "outbound",
	ReasonTier:              "tier",
	ReasonFragmentEarly:     "fragment_early",
	ReasonMalformed:         "malformed",
	ReasonFragmentUnknown:   "fragment_unknown",
	ReasonHoldFull:          "hold_full",
	ReasonFragmentTableFull: "fragment_table_full",
	ReasonNoBackend:         "no_backend",
	ReasonServiceDown:       "service_down",
	ReasonFlowTableFull:     "flow_table_full",
	ReasonNewFlowRate:       "new_flow_rate",
	ReasonSNATExhausted:     "snat_exhausted",
	ReasonTooBig:            "too_big",
	ReasonTTLExpired:        "ttl_expired",
	ReasonSendFailed:        "send_failed",
	ReasonFault:             "fault",
	ReasonNotDTLS:           "not_dtls",
	ReasonUnmatched:         "unmatched",
}

func (r Reason) String() string {
	if int(r) < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// ParseReason is the inverse of String.
func ParseReason(name string) (Reason, bool) {
	for i, n := range reasonNames {
		if n == name {
			return Reason(i), true
		}
	}
	return ReasonNone, false
}

// Action is what a packet with this reason gets.
func (r Reason) Action() Action {
	switch {
	case r <= ReasonNoBackendMark:
		return Pass
	case r <= ReasonTier:
		return Forward
	case r == ReasonFragmentEarly:
		return Hold
	default:
		return Drop
	}
}
