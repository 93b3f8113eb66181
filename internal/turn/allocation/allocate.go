package allocation

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/pion/stun/v4"
)

const (
	protocolUDP     = 17
	protocolTCP     = 6
	familyV4        = 1
	familyV6        = 2
	reservationTime = 30 * time.Second
)

// allocateOptions is what an Allocate request contains.
type allocateOptions struct {
	RelayRequest
	tcp, dontFragment bool
	token             uint64
	redeem            bool
}

// allocate answers an Allocate request in the order of RFC 8656, section 7.2. a is the allocation that the path has
// already, or nil.
func (x *exchange) allocate(a *Allocation) Reason {
	if a != nil {
		if a.request == x.m.id() && a.User == x.cred.user {
			return x.allocated(a)
		}
		return x.fail(AllocationExists)
	}
	w, r := x.parseAllocate()
	if r != OK {
		return x.fail(r)
	}
	if x.policy.Draining {
		return x.fail(x.elsewhere())
	}
	if a, r = x.create(w); r != OK {
		return x.fail(r)
	}
	x.t.insert(a)
	x.t.events.Changed(a)
	return x.allocated(a)
}

// elsewhere refuses an Allocate request while the server is draining.
func (x *exchange) elsewhere() Reason {
	other := x.policy.Alternate
	if other.IsValid() && family(other.Addr()) == family(x.path.Client.Addr().Unmap()) {
		return TryAlternate
	}
	return Draining
}

// parseAllocate reads and checks the attributes of an Allocate request.
func (x *exchange) parseAllocate() (w allocateOptions, r Reason) {
	transport, present, ok := x.m.number(stun.AttrRequestedTransport)
	if !present || !ok {
		return w, BadRequest
	}
	switch transport >> 24 {
	case protocolUDP:
	case protocolTCP:
		w.tcp = true
	default:
		return w, TransportUnsupported
	}
	w.dontFragment = x.m.has(stun.AttrDontFragment)
	if r := x.parsePort(&w); r != OK {
		return w, r
	}
	if r := x.parseFamily(&w); r != OK {
		return w, r
	}
	if w.tcp && (!x.path.Transport.stream() || w.Even || w.redeem || w.dontFragment) {
		return w, BadRequest // RFC 6062, section 5.1
	}
	return w, OK
}

func (x *exchange) parsePort(w *allocateOptions) Reason {
	if value, ok := x.m.get(stun.AttrEvenPort); ok {
		if len(value) != 1 {
			return BadRequest
		}
		w.Even, w.Reserve = true, value[0]&0x80 != 0
	}
	if value, ok := x.m.get(stun.AttrReservationToken); ok {
		if len(value) != 8 || w.Even {
			return BadRequest
		}
		w.redeem, w.token = true, binary.BigEndian.Uint64(value)
	}
	return OK
}

func (x *exchange) parseFamily(w *allocateOptions) Reason {
	value, one := x.m.get(stun.AttrRequestedAddressFamily)
	second, two := x.m.get(attrAdditionalFamily)
	switch {
	case one && len(value) != 4 || two && len(second) != 4:
		return BadRequest
	case one && (two || w.redeem), two && (w.redeem || w.Reserve || second[0] != familyV6):
		return BadRequest
	case !one, value[0] == familyV4:
		w.V4, w.V6 = true, two
	case value[0] == familyV6:
		w.V6 = true
	default:
		return FamilyUnsupported
	}
	return OK
}

// create opens the relays of a new allocation and counts it. After a failure it releases what it has taken.
func (x *exchange) create(w allocateOptions) (*Allocation, Reason) {
	t, user := x.t, x.cred.user
	if w.redeem {
		relay, ok := t.shared.take(w.token, user, x.now)
		if !ok {
			return nil, InsufficientCapacity
		}
		w.Reserved, w.V4, w.V6 = relay, relay.Addr().Is4(), !relay.Addr().Is4()
	}
	units := 1
	if w.Reserve {
		units = 2
	}
	if !w.redeem && !t.shared.acquire(user, units, false) {
		return nil, QuotaReached
	}
	a := &Allocation{ID: t.shared.takeID(0), Path: x.path, User: user, TCP: w.tcp, DontFragment: w.dontFragment, Created: x.now, table: t}
	relay, err := t.relays.Open(a, w.RelayRequest)
	if !relay[V4].IsValid() && !relay[V6].IsValid() {
		for range units {
			t.shared.release(user)
		}
		t.shared.giveID(a.ID)
		return nil, openFailed(err)
	}
	a.Relay = relay
	if err != nil {
		a.second = openFailed(err)
	}
	if w.Reserve {
		t.reserve(a, next(relay), x.now+int64(reservationTime))
	}
	a.request, a.realm = x.m.id(), x.realm
	a.granted = x.lifetime()
	a.Expires = x.now + int64(a.granted)*1e9
	return a, OK
}

// next returns the port above an allocation's only relay address.
func next(relay [2]netip.AddrPort) netip.AddrPort {
	for _, r := range relay {
		if r.IsValid() {
			return netip.AddrPortFrom(r.Addr(), r.Port()+1)
		}
	}
	return netip.AddrPort{}
}

// reserve holds a port, whose quota was acquired, for the bearer of the token.
func (t *Table) reserve(a *Allocation, relay netip.AddrPort, expires int64) {
	r := reservation{token: a.token, user: a.User, relay: relay, expires: expires}
	r.token = t.shared.reserve(r)
	a.token, a.reserved, a.reservedAt = r.token, relay, expires
	t.queue(r)
}

func openFailed(err error) Reason {
	switch {
	case errors.Is(err, ErrFamily):
		return FamilyUnsupported
	case errors.Is(err, ErrTransport):
		return TransportUnsupported
	}
	return InsufficientCapacity
}

// lifetime returns how many seconds a request is granted (RFC 8656, sections 7.2, 8.2): what it requests, but at
// least the default and at most the maximum.
func (x *exchange) lifetime() uint32 {
	l := &x.policy.Lifetimes
	seconds, _, _ := x.m.number(stun.AttrLifetime) // 0 if there is none
	minimum, maximum := l.Default/time.Second, l.Max/time.Second
	return uint32(min(max(time.Duration(seconds), minimum), maximum, math.MaxUint32))
}

// allocated answers an Allocate request with the addresses of the allocation. A retransmission gets the same answer.
func (x *exchange) allocated(a *Allocation) Reason {
	x.open(stun.ClassSuccessResponse)
	for family := range a.Relay {
		if relay := a.AnnouncedRelay(family); relay.IsValid() {
			x.address(stun.AttrXORRelayedAddress, relay)
		}
	}
	if a.second != OK {
		text := a.second.text()
		missing := byte(familyV6)
		if a.Relay[V6].IsValid() {
			missing = familyV4
		}
		x.out = appendErrorCode(x.out, attrAddressErrorCode, missing, text.code, text.phrase, true)
	}
	x.number(stun.AttrLifetime, a.granted)
	if a.token != 0 {
		x.attribute(stun.AttrReservationToken, binary.BigEndian.AppendUint64(nil, a.token))
	}
	x.address(stun.AttrXORMappedAddress, x.path.Client)
	return x.succeed()
}

// refresh extends an allocation or ends it (RFC 8656, section 8.2).
func (x *exchange) refresh(a *Allocation) Reason {
	which, one := x.m.get(stun.AttrRequestedAddressFamily)
	if one && len(which) != 4 {
		return x.fail(BadRequest)
	}
	at := V4
	if one {
		switch which[0] {
		case familyV4:
		case familyV6:
			at = V6
		default:
			return x.fail(FamilyMismatch)
		}
		if !a.Relay[at].IsValid() {
			return x.fail(FamilyMismatch)
		}
	}
	seconds, present, ok := x.m.number(stun.AttrLifetime)
	if !ok {
		return x.fail(BadRequest)
	}
	if present && seconds == 0 {
		return x.end(a, one, at)
	}
	seconds = x.lifetime()
	a.Expires = x.now + int64(seconds)*1e9
	x.t.changed(a)
	return x.refreshed(seconds)
}

// end answers a Refresh with lifetime 0: it ends the allocation, or one of its two families.
func (x *exchange) end(a *Allocation, one bool, at int) Reason {
	if one && a.Relay[1-at].IsValid() {
		x.t.dropFamily(a, at)
		return x.refreshed(0)
	}
	r := x.refreshed(0)
	x.t.Delete(a, Deleted)
	return r
}

func (x *exchange) refreshed(seconds uint32) Reason {
	x.open(stun.ClassSuccessResponse)
	x.number(stun.AttrLifetime, seconds)
	return x.succeed()
}

// dropFamily removes the relay address of one family from an allocation of both, with the permissions, channels and
// connections that use it.
func (t *Table) dropFamily(a *Allocation, at int) {
	for i := len(a.channels.values) - 1; i >= 0; i-- {
		if c := a.channels.values[i]; family(c.Peer.Addr()) == at {
			t.unbind(a, c)
		}
	}
	for i := len(a.permissions.values) - 1; i >= 0; i-- {
		if p := a.permissions.values[i]; family(p.Peer) == at {
			t.forbid(a, p)
		}
	}
	for i := len(a.connections.values) - 1; i >= 0; i-- {
		if c := a.connections.values[i]; family(c.peer.Addr()) == at {
			t.disconnect(c)
		}
	}
	a.Relay[at] = netip.AddrPort{}
	t.relays.CloseFamily(a, at)
	t.changed(a)
}
