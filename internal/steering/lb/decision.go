package lb

// Action is what a data path does with a packet.
type Action uint8

const (
	Pass    Action = iota // not ours: leave it to the kernel, or ignore it in user space
	Forward               // send it to Decision.Backend in the mode of Decision.Service, or to Decision.Member
	Drop                  // discard it
	Hold                  // keep it, bounded in number and time, until the first fragment says where it goes
	Answer                // it is a request to the balancer itself, which sends the reply
)

var actionNames = [...]string{Pass: "pass", Forward: "forward", Drop: "drop", Hold: "hold", Answer: "answer"}

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
	// Reject: the data path answers the sender of the packet that it drops: a TCP packet with a reset (RFC 9293 section 3.10.7.1),
	// others with an ICMP error, port unreachable (RFC 792, RFC 4443 section 3.1).
	Reject bool
	// Rule is the flow rule that chose the service; nil: a VIP did, or memory.
	Rule *FlowRule
	// Member is the balancer of the tier that gets this fragment (ReasonTier), else nil.
	Member *Member
}

// Reason is why a packet was treated as it was, and for a forwarded packet also how its backend was found. Every exit of
// every data path has exactly one Reason and is counted by it. The numbers are shared with BPF (enum reason in types.h);
// data paths match them by name at load.
//
// The comments are docs/reasons.md: the action, what happened, and after "Remedy:" what an operator can do.
type Reason uint8

const (
	// ReasonNone is the zero value: nothing was decided. No exit carries it.
	ReasonNone Reason = iota

	// ReasonNotService passes: the destination is no VIP, and the packet is no reply that Weir translates. It goes to the
	// network stack of the host.
	ReasonNotService
	// ReasonNotIP passes: the frame holds neither IPv4 nor IPv6 (ARP, LLDP, ...).
	ReasonNotIP
	// ReasonNotSteered passes: it is for the address of a VIP, but of a protocol or an ICMP type that no service balances. In
	// front of a queue: the queue decides.
	ReasonNotSteered
	// ReasonICMPUnknown passes: an ICMP error that quotes an unknown flow.
	ReasonICMPUnknown
	// ReasonNoNeighbour passes: the link address of the next hop is not known yet; the kernel resolves it with this packet.
	// Remedy: if it continues, look at `weir_next_hop_ready` and at the route to the backend.
	ReasonNoNeighbour
	// ReasonNoBackendMark passes: no backend can take it, so it has the `no_backend_mark` of the service, for a reject rule.
	// Remedy: look at probes, overrides and weights: `weir lb show`.
	ReasonNoBackendMark

	// ReasonFragment forwards: a later fragment, after its first one.
	ReasonFragment
	// ReasonCID forwards: to the owner that the connection id names.
	ReasonCID
	// ReasonCIDUnknown forwards: the connection id names no backend, or one that is down; conntrack or Maglev decided. Remedy:
	// if there are many, compare `nodes` and the layout with what the servers generate.
	ReasonCIDUnknown
	// ReasonConntrack forwards: a known flow.
	ReasonConntrack
	// ReasonMaglev forwards: a new flow or source, by the Maglev table.
	ReasonMaglev
	// ReasonEarlierTable forwards: a packet of an unknown flow, by the Maglev table before a change of the backends: another
	// balancer has opened the flow (`generations`).
	ReasonEarlierTable
	// ReasonReply forwards: from a backend to its client, translated back.
	ReasonReply
	// ReasonICMPError forwards: an ICMP error, to the backend whose flow it quotes.
	ReasonICMPError
	// ReasonICMPReply forwards: an ICMP error about a reply, or from behind a backend, to the client, translated back.
	ReasonICMPReply
	// ReasonEcho forwards: a ping of a VIP, by the Maglev table of its service.
	ReasonEcho
	// ReasonOutbound forwards: a flow that a backend started; its source becomes the VIP or an address of `snat`.
	ReasonOutbound
	// ReasonTier forwards: a fragment, to the balancer of the tier that sees all fragments of these addresses.
	ReasonTier

	// ReasonFragmentEarly holds: a later fragment came before its first one, and waits for it.
	ReasonFragmentEarly

	// ReasonEchoAnswered answers: a ping of a VIP whose service has `ping: balancer`.
	ReasonEchoAnswered

	// ReasonMalformed drops: headers with wrong lengths, or cut short; also a first fragment without the whole transport header.
	// Remedy: none; no ordinary sender makes such packets.
	ReasonMalformed
	// ReasonFragmentUnknown drops: a later fragment whose first one never came, or where the data path cannot hold it. Remedy:
	// look for loss before the balancer; raise `limits.fragment_ttl` if fragments take longer.
	ReasonFragmentUnknown
	// ReasonHoldFull drops: an early fragment, because as many as allowed wait. Remedy: raise `limits.held_fragments`.
	ReasonHoldFull
	// ReasonFragmentTableFull drops: the table has no room to remember a first fragment. Remedy: raise `limits.fragments`.
	ReasonFragmentTableFull
	// ReasonNoBackend drops: no backend of the service takes new flows. Remedy: look at probes, overrides and weights: `weir lb
	// show`.
	ReasonNoBackend
	// ReasonServiceDown drops: an override took the service down. Remedy: `weir lb undrain SERVICE`.
	ReasonServiceDown
	// ReasonFlowTableFull drops: a new flow needs an entry, and the flow table is full of proven ones, or its replies could not
	// be distinguished from those of another flow. Remedy: raise `limits.flows`.
	ReasonFlowTableFull
	// ReasonNewFlowRate drops: the `new_flow_rate` of the service is used up, and mode nat needs an entry. Remedy: raise
	// `new_flow_rate`, or find who opens so many flows: `weir lb flows`.
	ReasonNewFlowRate
	// ReasonSNATExhausted drops: the SNAT pool of the service has no free source port toward the backend. Remedy: more
	// `snat.addresses`, or more ports.
	ReasonSNATExhausted
	// ReasonTooBig drops: larger than the path to the backend admits; the sender received an ICMP error with the right size, if
	// it requested that. Remedy: if it continues, a firewall drops ICMP; raise the MTU of the path.
	ReasonTooBig
	// ReasonTTLExpired drops: the hop limit ended here; the sender received an ICMP error, at most a thousand per second.
	// Remedy: none; traceroute does this. If there are many, look for a routing loop.
	ReasonTTLExpired
	// ReasonSendFailed drops: the kernel refused to send: no route, no buffer, no file descriptor or no port left. Remedy: look
	// at the route to the backend, `weir_next_hop_ready` and `ulimit -n`.
	ReasonSendFailed
	// ReasonShareRefused drops: the share of a backend with `action` drop or reject; with reject, the sender received a TCP reset, or
	// an ICMP error, of which there are at most a thousand per second. Remedy: a server for that backend: `weir lb show`.
	ReasonShareRefused
	// ReasonEchoRefused drops: a ping that the balancer does not answer (`ping: balancer`): a fragment, with IP options or extension
	// headers, cut short, or from an address that no single host has. Remedy: a smaller ping, `ping -s`.
	ReasonEchoRefused
	// ReasonEchoRate drops: a ping that the balancer would answer, beyond a thousand per second of one service. Remedy: none; find
	// who sends so many: `weir lb trace`.
	ReasonEchoRate
	// ReasonSourceRefused drops: the VIP has services, but none whose `sources` the client is in. Remedy: add its prefix to `sources`, if
	// it should be served.
	ReasonSourceRefused
	// ReasonTunnelRefused drops: a tunnel to an address of `decap`, from a source that is not in its `from`. Remedy: add the outer address of
	// the balancer that sends it to `decap.from`, if it is yours.
	ReasonTunnelRefused
	// ReasonTunnelCongested drops: a router marked congestion on a tunnel that ends here, and the packet inside cannot say so (RFC 6040
	// section 4.2). Remedy: ECN at the sender, or less traffic on the way of the tunnel.
	ReasonTunnelCongested
	// ReasonFault drops: a loss, size or order fault that the operator switched on. Remedy: `weir nat` without faults.
	ReasonFault
	// ReasonNotDTLS drops: the DTLS filter is on, and the datagram is no DTLS record. Remedy: none; `--dtls-filter` is there for
	// this.
	ReasonNotDTLS
	// ReasonUnmatched drops: no flow rule and no VIP matches, and `no_service_mark` is -1. Remedy: a VIP or a flow rule, if the
	// packet should pass.
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
	ReasonEarlierTable:      "earlier_table",
	ReasonReply:             "reply",
	ReasonICMPError:         "icmp_error",
	ReasonICMPReply:         "icmp_reply",
	ReasonEcho:              "echo",
	ReasonOutbound:          "outbound",
	ReasonTier:              "tier",
	ReasonFragmentEarly:     "fragment_early",
	ReasonEchoAnswered:      "echo_answered",
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
	ReasonShareRefused:      "share_refused",
	ReasonEchoRefused:       "echo_refused",
	ReasonEchoRate:          "echo_rate",
	ReasonSourceRefused:     "source_refused",
	ReasonTunnelRefused:     "tunnel_refused",
	ReasonTunnelCongested:   "tunnel_congested",
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
	case r == ReasonEchoAnswered:
		return Answer
	default:
		return Drop
	}
}
