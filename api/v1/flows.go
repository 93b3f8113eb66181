package v1

// MaxFlows is the maximum number of flows in one answer of GET /flows.
const MaxFlows = 1 << 20

// FlowList is the answer of GET /flows, and the output of `weir lb flows --json`.
type FlowList struct {
	Flows []Flow `json:"flows"` // in no order unless the request names one
	More  bool   `json:"more"`  // the limit cut the list
}

// Flow is one flow that a data path remembers.
type Flow struct {
	Protocol string `json:"protocol"` // tcp, udp, sctp or icmp
	Client   string `json:"client"`   // address and port
	VIP      string `json:"vip"`      // address and port that the client uses
	Service  string `json:"service"`  // name
	Backend  string `json:"backend"`  // name
	// Expires is when a silent flow is forgotten, in seconds from now; -1: never.
	Expires float64 `json:"expires_s"`
	Packets uint64  `json:"packets,omitempty"` // of the flow; absent: the data path does not count them
	Bytes   uint64  `json:"bytes,omitempty"`   // of those; absent as Packets
	State   string  `json:"state,omitempty"`   // plain, opening, established or closing; absent: the data path udp
	Source  string  `json:"source,omitempty"`  // address and port that the backend sees; absent: the client's
	// Given says that another balancer has told of the flow, and that no packet of it has come here. Absent: it is this one's own.
	Given bool `json:"given,omitempty"`
}
