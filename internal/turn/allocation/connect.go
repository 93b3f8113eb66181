package allocation

import (
	"net/netip"
	"time"

	"github.com/pion/stun/v4"
)

// Time limits of RFC 6062 (sections 5.2, 5.3): to connect to a peer, and for the client to bind the connection. The gateway
// enforces the first; the table forgets a Connect without a result after twice that time.
const (
	connectTime = 60 * time.Second
	bindTime    = 30 * time.Second
)

type connectionState uint8

const (
	connecting connectionState = iota // Relays.Connect is in progress
	waiting                           // for ConnectionBind
	bound
)

// connection is a TCP connection between a relay address and a peer.
type connection struct {
	id          uint32
	a           *Allocation
	peer        netip.AddrPort
	state       connectionState
	expires     int64 // 0 once bound, unless it is suspended
	suspended   bool  // the policy does not admit the peer at the moment
	request     [12]byte
	cred        credential
	fingerprint bool
}

// connect starts a connection to a peer (RFC 6062, section 5.2). ConnectDone creates the answer.
func (x *exchange) connect(a *Allocation) Reason {
	peer, ok := x.m.peer()
	if !ok || !a.TCP || peer.Port() == 0 {
		return x.fail(BadRequest)
	}
	if _, r := a.check(peer); r != OK {
		return x.fail(r)
	}
	if a.connectedTo(peer) {
		return x.fail(ConnectionExists)
	}
	if len(a.connections.keys) >= x.policy.Quotas.Connections {
		return x.fail(QuotaReached)
	}
	c := x.t.connection(a, peer, connecting, x.now+int64(connectTime))
	c.request, c.cred, c.fingerprint = x.m.id(), x.cred, x.m.fingerprint
	x.t.relays.Connect(a, c.id, peer)
	return OK
}

func (a *Allocation) connectedTo(peer netip.AddrPort) bool {
	for _, c := range a.connections.values {
		if c.peer == peer {
			return true
		}
	}
	return false
}

func (t *Table) connection(a *Allocation, peer netip.AddrPort, state connectionState, expires int64) *connection {
	c := &connection{id: t.shared.connectionID(), a: a, peer: peer, state: state, expires: expires}
	t.connections[c.id] = c
	a.connections.put(c.id, c)
	t.reschedule(a)
	return c
}

// reschedule is changed for state that is not part of the record.
func (t *Table) reschedule(a *Allocation) {
	t.due.Set(a.slot, a.soonest())
}

// ConnectDone reports the result of Relays.Connect; err is nil for success. It appends the answer to the client's
// Connect request to out. If the allocation or the request is gone, there is no answer, and the caller closes the
// connection.
func (t *Table) ConnectDone(a *Allocation, id uint32, err error, out []byte, now int64) (answer []byte) {
	c := t.connections[id]
	if c == nil || c.a != a || c.state != connecting {
		return out
	}
	start := len(out)
	kind := stun.NewType(stun.MethodConnect, stun.ClassSuccessResponse)
	if err != nil {
		kind.Class = stun.ClassErrorResponse
	}
	out = appendHeader(out, kind.Value(), 0, c.request)
	if err != nil {
		text := ConnectionFailed.text()
		out = appendErrorCode(out, stun.AttrErrorCode, 0, text.code, text.phrase, true)
		t.ConnectionClosed(a, id)
	} else {
		out = appendNumber(out, stun.AttrConnectionID, id)
		c.state, c.expires = waiting, now+int64(bindTime)
		t.reschedule(a)
	}
	return t.macs.seal(out, start, &c.cred, c.fingerprint)
}

// ConnectionAttempt admits a peer that connected to a TCP relay address (RFC 6062, section 5.3). It returns the id
// for the connection and the indication for the client. For a Reason other than OK, the caller closes the connection.
func (t *Table) ConnectionAttempt(a *Allocation, peer netip.AddrPort, out []byte, now int64) (id uint32, indication []byte, r Reason) {
	if t.paths[a.Path] != a || !a.TCP {
		return 0, out, NoAllocation
	}
	if _, r := a.Inbound(peer, now); r != OK {
		return 0, out, r
	}
	if a.connectedTo(peer) {
		return 0, out, ConnectionExists
	}
	if len(a.connections.keys) >= t.shared.Policy().Quotas.Connections {
		return 0, out, QuotaReached
	}
	c := t.connection(a, peer, waiting, now+int64(bindTime))
	start := len(out)
	out = appendHeader(out, typeConnectionAttempt, 0, t.shared.transaction())
	out = appendNumber(out, stun.AttrConnectionID, c.id)
	out = appendXORAddress(out, stun.AttrXORPeerAddress, peer, out[start:])
	return c.id, t.macs.seal(out, start, &credential{}, false), OK
}

// ConnectionBind handles a ConnectionBind request on a new client connection p. With OK, the caller sends the answer
// and then joins this connection with the peer connection of the id. The request must go to the table that assigned
// the id, see ConnectionID.
func (t *Table) ConnectionBind(p Path, msg, out []byte, now int64) (id uint32, answer []byte, r Reason) {
	x, r := t.begin(p, msg, out, now)
	if r != OK {
		return 0, out, r
	}
	if x.m.class != stun.ClassRequest || x.m.method != stun.MethodConnectionBind {
		return 0, out, Unexpected
	}
	c, r := x.bind()
	if r != OK {
		return 0, x.out, r
	}
	return c.id, x.out, OK
}

func (x *exchange) bind() (*connection, Reason) {
	if x.policy.Auth.Mode == AuthNone || !x.path.Transport.stream() {
		return nil, x.refuse(BadRequest)
	}
	if r := x.authenticate(); r != OK {
		x.cred = credential{}
		return nil, x.refuse(r)
	}
	if x.unknown() {
		return nil, x.fail(UnknownAttribute)
	}
	id, present, ok := x.m.number(stun.AttrConnectionID)
	c := x.t.connections[id]
	if !present || !ok || c == nil || c.state != waiting || c.expires <= x.now || x.t.Find(x.path) != nil {
		return nil, x.fail(BadRequest)
	}
	if c.a.User != x.cred.user {
		return nil, x.fail(WrongCredentials)
	}
	if c.suspended { // it may be bound after it is resumed, before it expires
		return nil, x.fail(Forbidden)
	}
	c.state, c.expires = bound, 0
	x.t.reschedule(c.a)
	x.open(stun.ClassSuccessResponse)
	x.number(stun.AttrConnectionID, id)
	return c, x.succeed()
}

// suspend stops relaying on a connection until it is resumed. A bound connection then ends after the lifetime of a
// permission; a connection that is still being set up ends at once.
func (t *Table) suspend(c *connection, now int64) {
	if c.state == connecting {
		t.disconnect(c)
		return
	}
	if c.suspended = true; c.state == bound {
		c.expires = now + int64(t.shared.Policy().Lifetimes.Permission)
	}
	t.reschedule(c.a)
	t.relays.Suspend(c.a, c.id, true)
}

// resume resumes a connection whose peer is admitted again.
func (t *Table) resume(c *connection) {
	if c.suspended = false; c.state == bound {
		c.expires = 0
	}
	t.reschedule(c.a)
	t.relays.Suspend(c.a, c.id, false)
}

// ConnectionClosed reports the end of a peer connection. Unknown ids are ignored.
func (t *Table) ConnectionClosed(a *Allocation, id uint32) {
	if c := t.connections[id]; c != nil && c.a == a {
		delete(t.connections, id)
		a.connections.drop(id)
		t.reschedule(a)
	}
}

// disconnect ends a connection from this side.
func (t *Table) disconnect(c *connection) {
	t.ConnectionClosed(c.a, c.id)
	t.relays.Disconnect(c.a, c.id)
}
