package lb

// ruleIndex finds the winning flow rule of a packet.
type ruleIndex struct{}
