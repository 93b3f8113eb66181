package engine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/steering/rate"
)

// Peer is one session, or in plain mode one remote address. It belongs to one
// worker. It may be kept until Handler.Closed is called with it.
type Peer struct {
	// State is for the Handler.
	State any

	association *record.Association // nil in plain mode
	kept        *arena.Session      // nil: it ends with the process
	addr        netip.AddrPort
	router      netip.AddrPort
	local       netip.Addr // our address that the client sent to
	byAddress   bool       // the worker's table has it by address
	closed      bool
	replaced    bool
	unproven    bool // the address: see address.go
	routable    bool // the return routability check was negotiated
	budget      int  // bytes of datagrams that may be sent to it while unproven
	last        time.Duration
	touched     time.Duration // when it last moved to the front of the list
	newer       *Peer
	older       *Peer

	path        pathCheck
	provenUntil time.Duration // end of the proof of a plain peer
	slot        int32         // in sessions or plainPeers
	forged      rate.Bucket   // limits records that fail to open, from sources other than its own; see forged.go
	finalSent   time.Duration
	final       handshake.Final
	prev        netip.AddrPort
	holder      holder // of its share of the table
	established time.Duration
	hasCID      bool
	extended    bool
	secure      bool // renegotiation

	// See replicate.go.
	watermark uint64 // the first sequence number that has to be asked for
	copy      *Copy  // nil: no other node has one
	changed   bool   // since Replicator.Changed
	leaving   bool   // to another engine
	unfresh   bool
	noted     bool // the slot in Config.Arena has a note
}

// Addr is where replies go; it changes when the client's address does.
func (p *Peer) Addr() netip.AddrPort { return p.addr }

// Local is our address that the client sends to, on wildcard sockets.
func (p *Peer) Local() netip.Addr { return p.local }

// Moves reports whether the peer's address may change, because the client sends a connection id.
func (p *Peer) Moves() bool { return p.association != nil && !p.byAddress }

// Replaced reports, in Handler.Closed, that the client has made a new session from the same address.
func (p *Peer) Replaced() bool { return p.replaced }

// Identity is the PSK identity, the subject of the certificate, or the hash of the raw public key (RFC 6920). Auth says which.
// It is empty in plain mode, and for clients without a certificate.
func (p *Peer) Identity() string {
	if p.holder.auth == handshake.AuthNone {
		return ""
	}
	return p.holder.name
}

// Auth is how the client has proven its identity.
func (p *Peer) Auth() handshake.Auth { return p.holder.auth }

// MaxPayload is the maximum length in bytes of what Worker.Send takes for p. A client may have requested less than MaxPayload
// (RFC 8449).
func (p *Peer) MaxPayload() int {
	if p.association == nil {
		return MaxPayload
	}
	return min(MaxPayload, p.association.MaxPayload())
}

// Info describes the peer, for a resource that shows it. It allocates.
func (p *Peer) Info() Info {
	i := Info{
		Addr: p.addr, PrevAddr: p.prev, Auth: p.holder.auth, Identity: p.Identity(), HasCID: p.hasCID, Router: p.router,
		ExtendedMasterSecret: p.extended, SecureRenegotiation: p.secure, Validated: !p.unproven,
		Established: p.established,
	}
	if a := p.association; a != nil {
		i.Secure = true
		i.Suite = a.Suite().String()
		i.ReadCID = slices.Clone(a.ReadCID())
		i.WriteCID = slices.Clone(a.WriteCID())
	}
	return i
}

// Info is a description of a Peer. Fields that do not apply are zero.
type Info struct {
	Addr, PrevAddr netip.AddrPort
	Secure         bool           // DTLS
	Auth           handshake.Auth // how the client has proven its Identity
	Identity       string
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
}

// peers is a worker's table of peers, with a list from the newest to the oldest.
type peers struct {
	byCID          map[cidKey]*Peer
	byAddress      map[netip.AddrPort]*Peer
	newest, oldest *Peer
	awake          *Peer // the oldest of the list that does not rest; nil: all rest
	count          int
}

// touchGrain is the precision of the order of the list. Moving a peer for every record would cost more than an exact order
// is worth.
const touchGrain = time.Second

func newPeers() peers {
	return peers{byCID: make(map[cidKey]*Peer), byAddress: make(map[netip.AddrPort]*Peer)}
}

// add enters p under its connection id, or its address if it has none.
func (t *peers) add(p *Peer, now time.Duration) {
	if p.association != nil && len(p.association.ReadCID()) > 0 {
		t.byCID[makeKey(p.association.ReadCID())] = p
	} else {
		p.byAddress = true
		t.byAddress[p.addr] = p
	}
	t.count++
	p.last, p.touched = now, now
	t.push(p)
}

func (t *peers) remove(p *Peer) {
	if p.byAddress {
		if t.byAddress[p.addr] == p {
			delete(t.byAddress, p.addr)
		}
	} else {
		delete(t.byCID, makeKey(p.association.ReadCID()))
	}
	t.count--
	t.unlink(p)
	p.closed = true
}

// touch records that a message of p has arrived. It reports whether p has become the newest of the list.
func (t *peers) touch(p *Peer, now time.Duration) (renewed bool) {
	p.last = now
	if now-p.touched < touchGrain {
		return false
	}
	p.touched = now
	t.unlink(p)
	t.push(p)
	return true
}

func (t *peers) push(p *Peer) {
	p.newer, p.older = nil, t.newest
	if t.newest != nil {
		t.newest.newer = p
	} else {
		t.oldest = p
	}
	t.newest = p
	if t.awake == nil {
		t.awake = p
	}
}

func (t *peers) unlink(p *Peer) {
	if t.awake == p {
		t.awake = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		t.newest = p.older
	}
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		t.oldest = p.newer
	}
	p.newer, p.older = nil, nil
}
