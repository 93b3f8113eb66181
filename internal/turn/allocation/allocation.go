package allocation

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/steering/rate"
)

// Families index Allocation.Relay.
const (
	V4 = 0
	V6 = 1
)

func family(a netip.Addr) int {
	if a.Is4() {
		return V4
	}
	return V6
}

// AnnouncedRelay is the relay address of a family as the client and its peers know it: Relay, or its replacement in
// Public.
func (a *Allocation) AnnouncedRelay(family int) netip.AddrPort {
	if public := a.Public[family]; public.IsValid() && a.Relay[family].IsValid() {
		return netip.AddrPortFrom(public, a.Relay[family].Port())
	}
	return a.Relay[family]
}

// Traffic counts user data of one direction. Its worker adds; any goroutine may load.
type Traffic struct {
	Packets, Bytes atomic.Uint64
	Last           atomic.Int64 // by the clock of the table, 0 for never
}

// Add counts packets with their bytes of user data, the last at now.
func (t *Traffic) Add(packets, bytes int, now int64) {
	t.Packets.Add(uint64(packets))
	t.Bytes.Add(uint64(bytes))
	t.Last.Store(now)
}

// Allocation is one client's relay addresses with the permissions and channels of its peers (RFC 8656, section 2.2).
// Only the table writes its exported fields, except for Data and the counters.
type Allocation struct {
	ID    uint64            // below 2^53, unique in all tables
	Path  Path              // the client's 5-tuple
	User  string            // the user for quotas: the user id of an ephemeral credential if it has one, else the user name
	Relay [2]netip.AddrPort // IPv4, IPv6; invalid if it has none
	// Public is the address that the client received instead of Relay's, if a 1:1 NAT is in front of it; else invalid.
	// Relays.Open sets it; Restore takes it from the record. The port is that of Relay.
	Public       [2]netip.Addr
	TCP          bool  // relays TCP (RFC 6062)
	DontFragment bool  // its Allocate carried DONT-FRAGMENT
	Created      int64 // by the clock of the table
	Expires      int64
	Data         any // the gateway's own state of it

	Up, Down Traffic // client to peers, peers to client

	table       *Table
	permissions lookup[netip.Addr, *permission]
	channels    lookup[uint16, *Channel]
	peers       lookup[netip.AddrPort, *Channel]
	connections lookup[uint32, *connection]
	bucket      bucket
	slot        int32 // its number in the table

	realm      string   // the realm that its client knows
	request    [12]byte // transaction id of the Allocate; a retransmission gets the same answer
	granted    uint32   // seconds
	second     Reason   // why it has only one of two requested families, else OK
	reservedAt int64    // when the reservation ends
	token      uint64   // token of the port that it reserved
	reserved   netip.AddrPort
}

// Channel is a number that identifies a peer (RFC 8656, section 12).
type Channel struct {
	Number  uint16
	Peer    netip.AddrPort
	Cluster uint16 // the result of Policy.Admit for the peer
	Expires int64  // by the clock of the table
	Data    any    // the gateway's own state of it
	// Suspended says that the policy does not admit the peer at the moment: nothing is relayed until it does again, or
	// the channel expires.
	Suspended bool

	permitted bool // Events.Bound was called for it
}

// Permission lets one IP address send to an allocation (RFC 8656, section 9).
type Permission struct {
	Peer    netip.Addr
	Cluster uint16
	Expires int64 // by the clock of the table
	// Suspended is as Channel.Suspended.
	Suspended bool
}

// permission is a Permission with the ports of the peer that were admitted recently.
type permission struct {
	Permission
	ports [8]admitted
	used  uint8
	at    uint8
}

type admitted struct{ port, cluster uint16 }

// Channel returns the channel of a number, nil if it is not bound. A channel counts as bound until Expire has removed
// it.
func (a *Allocation) Channel(number uint16) *Channel { return a.channels.get(number) }

// Inbound returns what happens to a peer's datagram: the number of its channel, or 0 with OK for a Data indication,
// or NoPermission, or Suspended, or Forbidden for a port that is not admitted.
func (a *Allocation) Inbound(peer netip.AddrPort, now int64) (channel uint16, r Reason) {
	p := a.permissions.get(peer.Addr())
	if p == nil || p.Expires <= now {
		return 0, NoPermission
	}
	if p.Suspended {
		return 0, Suspended
	}
	if c := a.peers.get(peer); c != nil && c.Expires > now {
		if c.Suspended {
			return 0, Suspended
		}
		return c.Number, OK
	}
	return 0, a.admit(p, peer)
}

// admit queries the policy about a peer's port, and caches the answer until the next SetPolicy.
func (a *Allocation) admit(p *permission, peer netip.AddrPort) Reason {
	port := peer.Port()
	for i := range p.used {
		if p.ports[i].port == port {
			return OK
		}
	}
	cluster, ok := a.allowed(peer)
	if !ok || port == 0 {
		return Forbidden
	}
	p.ports[p.at] = admitted{port, cluster}
	p.at = (p.at + 1) % uint8(len(p.ports))
	p.used = min(p.used+1, uint8(len(p.ports)))
	return OK
}

// allowed queries the policy. An IPv4-mapped IPv6 address would bypass the IPv4 prefixes, so it is always refused.
func (a *Allocation) allowed(peer netip.AddrPort) (cluster uint16, ok bool) {
	admit := a.table.shared.Policy().Admit
	if admit == nil || !peer.IsValid() || peer.Addr().Is4In6() {
		return 0, false
	}
	return admit(a.Path.Listener, a.TCP, peer)
}

// Cluster returns the cluster of a peer that Send or Inbound has just admitted; 0 if there is no permission.
func (a *Allocation) Cluster(peer netip.AddrPort) uint16 {
	if c := a.peers.get(peer); c != nil {
		return c.Cluster
	}
	p := a.permissions.get(peer.Addr())
	if p == nil {
		return 0
	}
	for i := range p.used {
		if p.ports[i].port == peer.Port() {
			return p.ports[i].cluster
		}
	}
	return p.Cluster
}

// Allow charges bytes of user data, in either direction, to the bandwidth quota. If it returns false, drop the data
// with Reason Bandwidth.
func (a *Allocation) Allow(now int64, bytes int) bool { return a.bucket.take(now, bytes) }

// Charge charges bytes to the bandwidth quota that another data path has relayed already. Allow then grants the
// remaining ones.
func (a *Allocation) Charge(now int64, bytes int) { a.bucket.charge(now, bytes) }

// Channels calls yield for each channel, in no particular order.
func (a *Allocation) Channels(yield func(*Channel) bool) {
	for _, c := range a.channels.values {
		if !yield(c) {
			return
		}
	}
}

// Permissions calls yield for each permission, in no particular order.
func (a *Allocation) Permissions(yield func(Permission) bool) {
	for _, p := range a.permissions.values {
		if !yield(p.Permission) {
			return
		}
	}
}

// Counts returns how many permissions, channels and RFC 6062 connections are in force, and how many of all of them
// are suspended.
func (a *Allocation) Counts() (permissions, channels, connections, suspended int) {
	for _, p := range a.permissions.values {
		if p.Suspended {
			suspended++
		}
	}
	for _, c := range a.channels.values {
		if c.Suspended {
			suspended++
		}
	}
	for _, c := range a.connections.values {
		if c.suspended {
			suspended++
		}
	}
	return len(a.permissions.keys), len(a.channels.keys), len(a.connections.keys), suspended
}

// bucket limits the bytes per second of an allocation.
type bucket struct {
	rate.Bucket
	bandwidth float64 // bytes per second; 0: no limit
	burst     time.Duration
}

func (b *bucket) set(q *Quotas) {
	b.bandwidth, b.burst = q.Bandwidth, 0
	if q.Bandwidth > 0 {
		b.burst = rate.Cost(float64(q.Burst), q.Bandwidth)
	}
}

func (b *bucket) charge(now int64, bytes int) {
	if b.bandwidth > 0 {
		b.Spend(time.Duration(now), rate.Cost(float64(bytes), b.bandwidth))
	}
}

func (b *bucket) take(now int64, bytes int) bool {
	if b.bandwidth <= 0 {
		return true
	}
	cost := rate.Cost(float64(bytes), b.bandwidth)
	return cost <= b.burst && b.Take(time.Duration(now), cost, b.burst)
}
