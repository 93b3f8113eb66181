package allocation

import (
	"net/netip"
	"sync/atomic"
)

// Shared is what the tables of all workers have in common: the policy, the users' quotas, the rate limits, reserved ports
// and the source of ids. All methods may be called by anybody at any time.
type Shared struct{ policy atomic.Pointer[Policy] }

// Stats counts what all tables hold together.
type Stats struct {
	Allocations int    `json:"allocations"`
	Users       int    `json:"users"`
	Reserved    int    `json:"reserved_ports"`
	Displaced   uint64 `json:"rate_limit_displaced"` // prefixes forgotten because the table of rates was full
}

// NewShared checks the policy, fills its defaults in and begins with it. seed must be random and secret: ids, tokens and
// the table of rates depend on it.
func NewShared(p Policy, seed [32]byte) (*Shared, error) { return &Shared{}, nil }

// SetPolicy checks and swaps the policy. Each table's SetPolicy must be called afterwards, by its own worker.
func (s *Shared) SetPolicy(p Policy) error { return nil }

// Policy is the one in force, defaults filled in. It must not be changed.
func (s *Shared) Policy() *Policy { return s.policy.Load() }

// Stats is a snapshot.
func (s *Shared) Stats() Stats { return Stats{} }

// Table holds one worker's allocations. Only that worker's goroutine may call its methods.
type Table struct{}

// NewTable makes an empty table.
func NewTable(shared *Shared, relays Relays, events Events) *Table { return &Table{} }

// Find gives the allocation of a 5-tuple, or nil.
func (t *Table) Find(p Path) *Allocation { return nil }

// Len is how many allocations there are.
func (t *Table) Len() int { return 0 }

// All visits every allocation, in no order. The visitor may delete the one it is given.
func (t *Table) All(yield func(*Allocation) bool) {}

// Request handles one STUN message of a client, other than Send indications and ConnectionBind requests, and appends the
// answer (if there is one) to out. msg is neither changed nor kept.
func (t *Table) Request(p Path, msg, out []byte, now int64) (answer []byte, r Reason) {
	return out, Malformed
}

// Send takes a Send indication apart (RFC 8656, section 11.2): from which allocation to which peer goes what. payload
// is part of msg.
func (t *Table) Send(p Path, msg []byte, now int64) (a *Allocation, peer netip.AddrPort, payload []byte, r Reason) {
	return nil, peer, nil, Malformed
}

// Expire ends what is over at now and returns when it must be called again; 0 if nothing waits.
func (t *Table) Expire(now int64) (next int64) { return 0 }

// SetPolicy applies the shared policy to what there is: permissions, channels and peer connections that are not
// admitted any more end, bandwidth limits change. Allocations stay; their next Refresh needs credentials that hold.
func (t *Table) SetPolicy(now int64) {}

// Delete ends an allocation.
func (t *Table) Delete(a *Allocation, why Reason) {}

// ConnectDone reports the end of Relays.Connect: err nil for success. It appends the answer to the client's Connect
// request to out; none if the allocation or the request is gone, then the caller closes the connection.
func (t *Table) ConnectDone(a *Allocation, id uint32, err error, out []byte, now int64) (answer []byte) {
	return out
}

// ConnectionAttempt admits a peer that connected to a TCP relay address (RFC 6062, section 5.3): the id for the
// connection and the indication for the client. Other than OK: close the connection.
func (t *Table) ConnectionAttempt(a *Allocation, peer netip.AddrPort, out []byte, now int64) (id uint32, indication []byte, r Reason) {
	return 0, out, NoPermission
}

// ConnectionBind handles a ConnectionBind request on a new client connection p. With OK the caller sends the answer and
// then joins this connection with the peer's of the id. The request must go to the table that gave the id out: see
// ConnectionID.
func (t *Table) ConnectionBind(p Path, msg, out []byte, now int64) (id uint32, answer []byte, r Reason) {
	return 0, out, Malformed
}

// ConnectionClosed reports the end of a peer connection. Unknown ids are ignored.
func (t *Table) ConnectionClosed(a *Allocation, id uint32) {}
