package allocation

import (
	"net/netip"

	"github.com/pion/stun/v4"
)

// admission is a checked peer of a request, before anything is changed.
type admission struct {
	peer    netip.AddrPort
	cluster uint16
}

// createPermission installs or refreshes either all permissions of the request or none (RFC 8656, section 10.2).
func (x *exchange) createPermission(a *Allocation) Reason {
	peers := x.t.peers[:0]
	for at := headerSize; at < x.m.end; {
		kind, value, next := attribute(x.m.raw, at)
		at = next
		if kind != stun.AttrXORPeerAddress {
			continue
		}
		peer, ok := readXORAddress(value, x.m.raw)
		if !ok {
			return x.fail(BadRequest)
		}
		peer = netip.AddrPortFrom(peer.Addr(), 0)
		cluster, r := a.check(peer)
		if r != OK {
			return x.fail(r)
		}
		peers = append(peers, admission{peer, cluster})
	}
	x.t.peers = peers
	if len(peers) == 0 {
		return x.fail(BadRequest)
	}
	if !a.roomFor(peers, x.policy.Quotas.Permissions) {
		return x.fail(InsufficientCapacity)
	}
	for _, p := range peers {
		x.t.permit(a, p.peer.Addr(), p.cluster, x.now+int64(x.policy.Lifetimes.Permission))
	}
	x.t.changed(a)
	x.open(stun.ClassSuccessResponse)
	return x.succeed()
}

// check reports whether an allocation may reach a peer; port 0 stands for any of its ports.
func (a *Allocation) check(peer netip.AddrPort) (cluster uint16, r Reason) {
	if peer.Addr().Is4In6() {
		return 0, Forbidden
	}
	if !a.Relay[family(peer.Addr())].IsValid() {
		return 0, FamilyMismatch
	}
	cluster, ok := a.allowed(peer)
	if !ok {
		return 0, Forbidden
	}
	return cluster, OK
}

// roomFor reports whether the peers that have no permission yet fit under limit. A peer that occurs twice counts
// twice.
func (a *Allocation) roomFor(peers []admission, limit int) bool {
	more := 0
	for _, p := range peers {
		if a.permissions.get(p.peer.Addr()) == nil {
			more++
		}
	}
	return more == 0 || len(a.permissions.keys)+more <= limit
}

// permit installs or refreshes a permission of an admitted peer. If it had expired or was suspended, Events.Bound is
// called for the channels of the peer.
func (t *Table) permit(a *Allocation, peer netip.Addr, cluster uint16, expires int64) {
	p := a.permissions.get(peer)
	if p == nil {
		p = &permission{Permission: Permission{Peer: peer}}
		a.permissions.put(peer, p)
	}
	p.Cluster, p.Expires, p.Suspended = cluster, expires, false
	for _, c := range a.channels.values {
		if c.Peer.Addr() == peer {
			t.show(a, c)
		}
	}
}

// show calls Events.Bound for a channel, once, if it is admitted and its peer has a permission.
func (t *Table) show(a *Allocation, c *Channel) {
	p := a.permissions.get(c.Peer.Addr())
	if p != nil && !p.Suspended && !c.Suspended && !c.permitted {
		c.permitted = true
		t.events.Bound(a, c)
	}
}

// forbid removes a permission. Channels of its peer stay, because the client may still send on them.
func (t *Table) forbid(a *Allocation, p *permission) {
	a.permissions.drop(p.Peer)
	t.withdrawAll(a, p.Peer)
}

// withdrawAll withdraws the channels of a peer's address.
func (t *Table) withdrawAll(a *Allocation, peer netip.Addr) {
	for _, c := range a.channels.values {
		if c.Peer.Addr() == peer {
			t.withdraw(a, c)
		}
	}
}

// channelBind binds a channel or refreshes it (RFC 8656, section 12.2).
func (x *exchange) channelBind(a *Allocation) Reason {
	number, _, _ := x.m.number(stun.AttrChannelNumber) // 0, which is no channel, if there is none
	number >>= 16
	peer, hasPeer := x.m.peer()
	if !hasPeer || a.TCP || peer.Port() == 0 || number < MinChannel || number > MaxChannel {
		return x.fail(BadRequest)
	}
	cluster, r := a.check(peer)
	if r != OK {
		return x.fail(r)
	}
	c := a.channels.get(uint16(number))
	if other := a.peers.get(peer); c != other {
		return x.fail(BadRequest) // the number belongs to another peer, or the peer has another number
	}
	if !a.roomFor([]admission{{peer: peer}}, x.policy.Quotas.Permissions) || c == nil && len(a.channels.keys) >= x.policy.Quotas.Channels {
		return x.fail(InsufficientCapacity)
	}
	if c == nil {
		c = &Channel{Number: uint16(number), Peer: peer}
		a.channels.put(c.Number, c)
		a.peers.put(peer, c)
	}
	c.Cluster, c.Expires, c.Suspended = cluster, x.now+int64(x.policy.Lifetimes.Channel), false
	x.t.permit(a, peer.Addr(), cluster, x.now+int64(x.policy.Lifetimes.Permission))
	x.t.changed(a)
	x.open(stun.ClassSuccessResponse)
	return x.succeed()
}

// unbind ends a channel.
func (t *Table) unbind(a *Allocation, c *Channel) {
	a.channels.drop(c.Number)
	a.peers.drop(c.Peer)
	t.withdraw(a, c)
}

// withdraw calls Events.Unbound for a channel, once: it must no longer be offloaded.
func (t *Table) withdraw(a *Allocation, c *Channel) {
	if c.permitted {
		c.permitted = false
		t.events.Unbound(a, c)
	}
}

// Send parses a Send indication (RFC 8656, section 11.2) and returns the allocation, the peer and the payload, which
// aliases msg.
func (t *Table) Send(p Path, msg []byte, now int64) (a *Allocation, peer netip.AddrPort, payload []byte, r Reason) {
	m, r := parse(msg)
	if r != OK {
		return nil, peer, nil, r
	}
	if m.class != stun.ClassIndication || m.method != stun.MethodSend {
		return nil, peer, nil, Unexpected
	}
	a = t.paths[p]
	if a == nil {
		return nil, peer, nil, NoAllocation
	}
	peer, ok := m.peer()
	payload, hasData := m.get(stun.AttrData)
	if !ok || !hasData || a.TCP {
		return a, peer, nil, Malformed
	}
	if t.unknown = m.unknown(t.unknown[:0]); len(t.unknown) > 0 {
		return a, peer, nil, UnknownAttribute
	}
	permission := a.permissions.get(peer.Addr())
	if permission == nil || permission.Expires <= now {
		return a, peer, nil, NoPermission
	}
	if permission.Suspended {
		return a, peer, nil, Suspended
	}
	return a, peer, payload, a.admit(permission, peer)
}
