package engine

import (
	"net/netip"
	"time"
)

// Peer is one session, or in plain mode one remote address. It belongs to one
// worker. It may be kept until Handler.Closed is called with it.
type Peer struct {
	// State is for the Handler.
	State any

	addr   netip.AddrPort
	router netip.AddrPort
}

// Addr is where replies go; it changes when the client's address does.
func (p *Peer) Addr() netip.AddrPort { return p.addr }

// Info describes the peer, for a resource that shows it. It allocates.
func (p *Peer) Info() Info { return Info{Addr: p.addr, Router: p.router} }

// Info is a description of a Peer. Fields that do not apply are zero.
type Info struct {
	Addr, PrevAddr netip.AddrPort
	Secure         bool   // DTLS
	Identity       string // PSK identity
	Suite          string // IANA name
	HasCID         bool   // connection ids are in use
	ReadCID        []byte // what the client sends to us
	WriteCID       []byte // what we send to the client; may be empty
	Router         netip.AddrPort
	// Router is the node by way of which the newest record came; invalid: none.
	ExtendedMasterSecret bool
	SecureRenegotiation  bool
	Validated            bool // the address has been proven since it last changed
	Established          time.Duration
	LastReceived         time.Duration
}
