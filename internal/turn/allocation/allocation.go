package allocation

import (
	"net/netip"
	"sync/atomic"
)

// Families index Allocation.Relay.
const (
	V4 = 0
	V6 = 1
)

// Traffic counts user data of one direction. Its worker adds, anybody may load.
type Traffic struct {
	Packets, Bytes atomic.Uint64
	Last           atomic.Int64 // Unix nanoseconds, 0 for never
}

// Add counts packets with their bytes of user data, the last at now.
func (t *Traffic) Add(packets, bytes int, now int64) {
	t.Packets.Add(uint64(packets))
	t.Bytes.Add(uint64(bytes))
	t.Last.Store(now)
}

// Allocation is one client's relay addresses with what it may reach (RFC 8656, section 2.2). Its exported fields are
// written by the table only, but for Data and the counters.
type Allocation struct {
	ID           uint64            // below 2^53, unique in the table
	Path         Path              // the client's 5-tuple
	User         string            // whom quotas count: the user id of an ephemeral credential if it has one, else the user name
	Relay        [2]netip.AddrPort // IPv4, IPv6; invalid if it has none
	TCP          bool              // relays TCP (RFC 6062)
	DontFragment bool              // its Allocate carried DONT-FRAGMENT
	Created      int64             // Unix nanoseconds
	Expires      int64
	Data         any // the gateway's own state of it

	Up, Down Traffic // client to peers, peers to client
}

// Channel is a number that stands for a peer (RFC 8656, section 12).
type Channel struct {
	Number  uint16
	Peer    netip.AddrPort
	Cluster uint16 // what Policy.Admit gave for the peer
	Expires int64  // Unix nanoseconds
	Data    any    // the gateway's own state of it
}

// Permission lets one IP address send to an allocation (RFC 8656, section 9).
type Permission struct {
	Peer    netip.Addr
	Cluster uint16
	Expires int64 // Unix nanoseconds
}

// Channel gives the channel of a number, nil if it is not bound. It is not bound any more once Expire has seen its end.
func (a *Allocation) Channel(number uint16) *Channel { return nil }

// Inbound says what becomes of a peer's datagram: the number of its channel, or 0 with OK for a Data indication, or
// NoPermission.
func (a *Allocation) Inbound(peer netip.AddrPort, now int64) (channel uint16, r Reason) {
	return 0, NoPermission
}

// Cluster is the cluster of a peer that Send or Inbound just let through; 0 if there is no permission.
func (a *Allocation) Cluster(peer netip.AddrPort) uint16 { return 0 }

// Allow takes bytes of user data, either direction, from the bandwidth quota. False: drop with Reason Bandwidth.
func (a *Allocation) Allow(now int64, bytes int) bool { return true }

// Channels and Permissions visit what there is, in no order.
func (a *Allocation) Channels(yield func(*Channel) bool) {}

// Permissions visits the permissions, in no order.
func (a *Allocation) Permissions(yield func(Permission) bool) {}

// Counts gives how many permissions, channels and RFC 6062 connections there are.
func (a *Allocation) Counts() (permissions, channels, connections int) { return 0, 0, 0 }
