package allocation

import (
	"errors"
	"net/netip"
)

// Errors that Relays.Open may wrap. Any other error counts as ErrNoPort.
var (
	ErrNoPort    = errors.New("no relay port is free")                                 // 508
	ErrFamily    = errors.New("no relay address of this family")                       // 440
	ErrTransport = errors.New("no relays of this transport protocol on this listener") // 442
)

// RelayRequest describes the relay addresses that an allocation needs. a.TCP says whether they are TCP.
type RelayRequest struct {
	V4, V6  bool // one of each family; both: ADDITIONAL-ADDRESS-FAMILY
	Even    bool // an even port (EVEN-PORT)
	Reserve bool // reserve also the next higher port, for a later Open with Reserved, or for Release
	// Reserved, if valid, is the reserved address to use. Any worker's Open may have reserved it, so keep reserved sockets where all
	// workers find them. Open consumes the reservation, also if it fails. Together with Exact (Restore) it is the address to
	// reserve again in addition.
	Reserved netip.AddrPort
	// Exact, if valid, are the relay addresses to bind again (Restore).
	Exact [2]netip.AddrPort
}

// Relays are the operations that a gateway performs for a table. The table calls them from within its own methods, on
// the worker's goroutine; they must not call the table.
type Relays interface {
	// Open returns the relay addresses (IPv4, IPv6), and sets a.Public if peers see other ones. If both families are
	// requested and one fails, it returns the other and the error of the failed one. a.Relay is set after Open
	// returns.
	Open(a *Allocation, want RelayRequest) ([2]netip.AddrPort, error)
	// Close ends all relays and connections of a removed allocation. a.Relay still has the addresses.
	Close(a *Allocation)
	// CloseFamily ends the relay of one family (V4 or V6) of an allocation that continues with the other.
	CloseFamily(a *Allocation, family int)
	// Release releases a reserved address that no request claimed within 30 s. Only the worker that reserved it receives
	// the call.
	Release(reserved netip.AddrPort)
	// Connect starts a TCP connection to a peer from a.Relay (RFC 6062) and later reports the result to
	// Table.ConnectDone, after 30 s at the latest.
	Connect(a *Allocation, id uint32, peer netip.AddrPort)
	// Disconnect ends a peer connection that no client has bound within 30 s, or whose peer is no longer admitted.
	Disconnect(a *Allocation, id uint32)
	// Suspend stops relaying on a peer connection in both directions, or resumes it.
	Suspend(a *Allocation, id uint32, suspended bool)
}

// Events receives state changes, after each change. It must not call the table.
type Events interface {
	Changed(a *Allocation)             // the allocation is new or refreshed, or its permissions or channels changed: its Record differs
	Gone(a *Allocation, why Reason)    // called before Relays.Close; Unbound was called for every channel before
	Bound(a *Allocation, c *Channel)   // the channel is new, or its permission was renewed: it may be offloaded
	Unbound(a *Allocation, c *Channel) // the channel or its permission expired, or its peer is no longer admitted: it must not be offloaded
}
