package v1

import "time"

// TraceLine is one line of the stream that POST /trace answers: a packet, or a sign that the trace continues. The first line has no
// packet.
type TraceLine struct {
	Packet *TracedPacket `json:"packet,omitempty"` // absent: none came in the last two seconds
	Head   []byte        `json:"head,omitempty"`   // the first bytes of the packet, from its IP header on, in base64; absent: no packet
	Missed uint64        `json:"missed"`           // packets since the first line that came faster than the lines were read
}

// TracedPacket is one packet with what became of it, a line of `weir lb trace --json`.
type TracedPacket struct {
	Time        time.Time `json:"time"`                  // when the decision was made
	Interface   string    `json:"interface"`             // that it came in on; "-": none
	Protocol    string    `json:"protocol,omitempty"`    // tcp, udp, ...; absent: the packet has no flow
	Source      string    `json:"source,omitempty"`      // address and port; absent as Protocol
	Destination string    `json:"destination,omitempty"` // address and port; absent as Protocol
	Length      int       `json:"length"`                // bytes
	Action      string    `json:"action"`                // forward, pass, drop or hold
	Reason      string    `json:"reason"`                // as docs/reasons.md lists them
	Service     string    `json:"service,omitempty"`     // name; absent: no service wants the packet
	Backend     string    `json:"backend,omitempty"`     // name; absent: none was chosen
	New         bool      `json:"new_flow,omitempty"`    // the packet opened a flow
	Mark        uint32    `json:"mark,omitempty"`        // fwmark of the verdict; absent: none, or not the data path NFQUEUE
	Queue       *uint16   `json:"queue,omitempty"`       // number; absent: not the data path NFQUEUE
}
