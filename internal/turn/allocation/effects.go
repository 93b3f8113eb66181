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

// RelayRequest says what relay addresses an allocation needs. a.TCP says whether they are TCP.
type RelayRequest struct {
	V4, V6  bool // one of each family; both: ADDITIONAL-ADDRESS-FAMILY
	Even    bool // an even port (EVEN-PORT)
	Reserve bool // and hold the next higher port for the caller of a later Open with Reserved, or for Release
	// Reserved, where valid, is the held address to use, whichever worker's Open held it: keep held sockets where all
	// workers find them. Open uses it up, also when it fails. Together with Exact (Restore) it is the address to hold again
	// besides.
	Reserved netip.AddrPort
	// Exact, where valid, are the very addresses to have again (Restore).
	Exact [2]netip.AddrPort
}

// Relays is what a gateway does for a table. The table calls it from within its own methods, on the worker's goroutine;
// it must not call the table back.
type Relays interface {
	// Open gives the relay addresses (IPv4, IPv6), and sets a.Public if peers see other ones. Where both families are wanted
	// and one fails, it returns the other and the error of the failed one. a.Relay is set after it returns.
	Open(a *Allocation, want RelayRequest) ([2]netip.AddrPort, error)
	// Close ends all relays and connections of an allocation that is gone. a.Relay still has the addresses.
	Close(a *Allocation)
	// CloseFamily ends the relay of one family (V4 or V6) of an allocation that goes on with the other.
	CloseFamily(a *Allocation, family int)
	// Release gives back a held address that nobody claimed within 30 s. Only the worker that held it is asked.
	Release(reserved netip.AddrPort)
	// Connect begins a TCP connection to a peer from a.Relay (RFC 6062) and reports to Table.ConnectDone later, after
	// 30 s at the latest.
	Connect(a *Allocation, id uint32, peer netip.AddrPort)
	// Disconnect ends a peer connection that no client has bound within 30 s or whose peer is not admitted any more.
	Disconnect(a *Allocation, id uint32)
	// Suspend holds back what either side of a peer connection sends, or lets it go on.
	Suspend(a *Allocation, id uint32, suspended bool)
}

// Events tells of changed state, after the change. It must not call the table back.
type Events interface {
	Changed(a *Allocation)             // new, refreshed, or other permissions or channels: Record differs
	Gone(a *Allocation, why Reason)    // before Relays.Close; every channel was Unbound before
	Bound(a *Allocation, c *Channel)   // a new channel, or its permission is back: may be offloaded
	Unbound(a *Allocation, c *Channel) // expired, not admitted any more, or its permission expired: must not be offloaded
}
