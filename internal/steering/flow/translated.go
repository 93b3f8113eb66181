package flow

import (
	"net/netip"
	"time"
)

// Progress is how far a flow is, as balancers tell each other.
type Progress uint8

const (
	Plain       Progress = iota // no connection: UDP
	Established                 // a connection
	Closing                     // a connection that was closed or reset
	NumProgress
)

// Translated is the state of a flow whose packets are translated: what another balancer needs to go on with it.
type Translated struct {
	Key              Key // as the client sends
	Service, Backend string
	Server           netip.AddrPort // of the backend, as packets to it have it
	Source           netip.AddrPort // what the backend sees as the client; invalid: the client
	Progress         Progress
	Left             time.Duration // until it is idle for too long; negative: it never is
}

// Change is what has become of a flow of a table: its state now, or its end. Number names the flow until another one has the same number,
// which ends it as well.
type Change struct {
	Number uint32
	Ended  bool
	Flow   Translated // not of one that has ended
}

// Entry names a flow that came from another balancer, in the table that has it now.
type Entry struct {
	Number      uint32
	Fingerprint uint64
}

// Answer is what became of a flow that another balancer gave.
type Answer struct {
	Entry   Entry // of a flow that was accepted
	Refusal Refusal
}

// Refusal is why a table does not take the state of a flow.
type Refusal uint8

const (
	Accepted       Refusal = iota
	NotReady               // there is no table yet
	UnknownService         // there is none of that name in mode nat, or it has not that VIP
	UnknownBackend         // the service has none of that name and address
	UnknownSource          // the service does not have that source address and port
	OtherFlow              // the table has a proven flow with the same key and other ends
	SourceTaken            // a proven flow of this balancer has the source port
	TableFull              // no room, and nothing unproven that could make some
	Contended              // programs changed the table at the same time
	NumRefusals
)

// String names a refusal, as in metrics.
func (r Refusal) String() string {
	return [...]string{
		"accepted", "not_ready", "unknown_service", "unknown_backend", "unknown_source", "other_flow", "source_taken", "table_full", "contended",
	}[r]
}
