package v1

// CheckResult is what `weir check --json` prints for each file.
type CheckResult struct {
	File     string          `json:"file"`                // as named
	Kind     string          `json:"kind,omitempty"`      // whose file it is; absent: not known
	Datapath string          `json:"datapath"`            // whose capabilities were checked; "any": none in particular
	OK       bool            `json:"ok"`                  // nothing is wrong
	Error    string          `json:"error,omitempty"`     // the first thing wrong; absent: nothing is
	Line     int             `json:"line,omitempty"`      // of Error; absent: not at a line of the file
	Column   int             `json:"column,omitempty"`    // of Error; absent as Line
	Errors   []CheckError    `json:"errors,omitempty"`    // all that is wrong; absent: nothing is
	Warnings []string        `json:"warnings,omitempty"`  // absent: none
	Services []ServiceStatus `json:"services,omitempty"`  // of a load balancer's file; else absent
	Tier     []MemberStatus  `json:"tier,omitempty"`      // absent: the file has no tier
	Names    []ResolvedName  `json:"names,omitempty"`     // DNS names of backends, and what they resolve to here and now; absent: none
	Announce []string        `json:"announce,omitempty"`  // prefixes that would be announced while all backends are healthy; absent: none
	Gateway  *TurnGateway    `json:"gateway,omitempty"`   // of a TURN gateway's file; else absent
	Node     string          `json:"node,omitempty"`      // of a CoAP node's file: what it listens on; else absent
	Keys     string          `json:"keys,omitempty"`      // of a file of keys of a CoAP node: what it holds, without a key; else absent
	Scenario []string        `json:"scenarios,omitempty"` // of a file of weir snat: their names; else absent
}

// CheckError is one thing that is wrong with a file.
type CheckError struct {
	Error  string `json:"error"`            // what, where and the remedy
	Line   int    `json:"line,omitempty"`   // absent: not at a line of the file
	Column int    `json:"column,omitempty"` // absent as Line
}

// Explanation is what `weir explain --json` prints.
type Explanation struct {
	Packets []ExplainedPacket `json:"packets"` // with a capture at most --limit; null: none
	Summary ExplainSummary    `json:"summary"` // of all packets
}

// ExplainedPacket is what became of one packet, and why.
type ExplainedPacket struct {
	Number  int      `json:"number"`            // in the order given, from 1; a held fragment appears again when it is released
	Time    *float64 `json:"time_s,omitempty"`  // seconds since the first packet of a capture; absent: no capture
	Flow    string   `json:"flow,omitempty"`    // protocol, source and destination; absent: the packet has none
	Kind    string   `json:"kind,omitempty"`    // what the packet is, for people; absent: it cannot be read
	Action  string   `json:"action"`            // forward, pass, drop or hold
	Reason  string   `json:"reason"`            // as docs/reasons.md lists them
	Service string   `json:"service,omitempty"` // name; absent: no service wants the packet
	Backend string   `json:"backend,omitempty"` // name; absent: none was chosen
	Rule    string   `json:"rule,omitempty"`    // the flow rule that chose the service; absent: none did
	Member  string   `json:"member,omitempty"`  // the balancer of the tier that gets it; absent: none
	Mark    uint32   `json:"mark,omitempty"`    // fwmark of the backend or member; absent: mode is not mark
	Why     []string `json:"why,omitempty"`     // steps of the decision, for people; absent: none are known
}

// ExplainSummary counts decisions.
type ExplainSummary struct {
	Packets  int            `json:"packets"`  // explained
	Reasons  map[string]int `json:"reasons"`  // packets by reason
	Backends map[string]int `json:"backends"` // packets by service/backend
}

// RulesReport is what `weir lb rules --json` prints.
type RulesReport struct {
	Commands []string `json:"commands"`        // the plan, or what --apply and --remove changed
	Notes    []string `json:"notes,omitempty"` // for people; absent: none
	Changed  bool     `json:"changed"`         // something was changed
}
