package allocation

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/pion/stun/v4"
)

const (
	bindingMethod  = stun.MethodBinding
	allocateMethod = stun.MethodAllocate
	refreshMethod  = stun.MethodRefresh
	permitMethod   = stun.MethodCreatePermission
	bindMethod     = stun.MethodChannelBind
	connectMethod  = stun.MethodConnect
)

// Every error code, by the request that earns it.
func TestErrorAnswers(t *testing.T) {
	tests := []struct {
		name   string
		policy func(*Policy)
		setup  func(t *testing.T, w *world) *client
		method stun.Method
		attrs  func(c *client) []attr
		want   Reason
		code   int
	}{
		{"try alternate", func(p *Policy) { p.Draining, p.Alternate = true, address("192.0.2.9:3478") }, known, allocateMethod, udp, TryAlternate, 300},
		{"alternate of the other family", func(p *Policy) { p.Draining, p.Alternate = true, address("[2001:db8::9]:3478") }, known, allocateMethod, udp, Draining, 508},
		{"draining", func(p *Policy) { p.Draining = true }, known, allocateMethod, udp, Draining, 508},
		{"no user name", nil, omitting(stun.AttrUsername), allocateMethod, udp, BadRequest, 400},
		{"no realm", nil, omitting(stun.AttrRealm), allocateMethod, udp, BadRequest, 400},
		{"no nonce", nil, omitting(stun.AttrNonce), allocateMethod, udp, BadRequest, 400},
		{"mode none", func(p *Policy) { p.Auth = Auth{Mode: AuthNone} }, stranger, allocateMethod, udp, BadRequest, 400},
		{"no transport", nil, known, allocateMethod, list(), BadRequest, 400},
		{"transport of a wrong size", nil, known, allocateMethod, list(attr{Type: stun.AttrRequestedTransport, Value: []byte{17}}), BadRequest, 400},
		{"TCP relay over UDP", nil, known, allocateMethod, list(transport(6)), BadRequest, 400},
		{"TCP relay with even port", nil, overTCP, allocateMethod, list(transport(6), attr{Type: stun.AttrEvenPort, Value: []byte{0}}), BadRequest, 400},
		{"token and even port", nil, known, allocateMethod, list(transport(17), attr{Type: stun.AttrEvenPort, Value: []byte{0}}, attr{Type: stun.AttrReservationToken, Value: make([]byte, 8)}), BadRequest, 400},
		{"token of a wrong size", nil, known, allocateMethod, list(transport(17), attr{Type: stun.AttrReservationToken, Value: make([]byte, 4)}), BadRequest, 400},
		{"token and family", nil, known, allocateMethod, list(transport(17), familyOf(stun.AttrRequestedAddressFamily, 1), attr{Type: stun.AttrReservationToken, Value: make([]byte, 8)}), BadRequest, 400},
		{"both family attributes", nil, known, allocateMethod, list(transport(17), familyOf(stun.AttrRequestedAddressFamily, 1), familyOf(attrAdditionalFamily, 2)), BadRequest, 400},
		{"additional family IPv4", nil, known, allocateMethod, list(transport(17), familyOf(attrAdditionalFamily, 1)), BadRequest, 400},
		{"additional family with a reservation", nil, known, allocateMethod, list(transport(17), familyOf(attrAdditionalFamily, 2), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}), BadRequest, 400},
		{"TCP relay with a token", nil, overTCP, allocateMethod, list(transport(6), attr{Type: stun.AttrReservationToken, Value: make([]byte, 8)}), BadRequest, 400},
		{"TCP relay without fragments", nil, overTCP, allocateMethod, list(transport(6), attr{Type: stun.AttrDontFragment}), BadRequest, 400},
		{"even port of a wrong size", nil, known, allocateMethod, list(transport(17), attr{Type: stun.AttrEvenPort, Value: []byte{0x80, 0}}), BadRequest, 400},
		{"user beyond UTF-8", nil, as("user\xff", "passwd1"), allocateMethod, udp, BadRequest, 400},
		{"channel number of a wrong size", nil, ready, bindMethod, with(peers("10.0.0.1:5"), attr{Type: stun.AttrChannelNumber, Value: []byte{0x40, 0}}), BadRequest, 400},
		{"nobody admits anything", func(p *Policy) { p.Admit = nil }, ready, permitMethod, peers("10.0.0.1:5"), Forbidden, 403},
		{"no peer", nil, ready, permitMethod, list(), BadRequest, 400},
		{"peer of a wrong size", nil, ready, permitMethod, list(attr{Type: stun.AttrXORPeerAddress, Value: []byte{0, 1, 2}}), BadRequest, 400},
		{"no channel number", nil, ready, bindMethod, peers("10.0.0.1:5"), BadRequest, 400},
		{"channel without peer", nil, ready, bindMethod, list(channel(0x4000)), BadRequest, 400},
		{"channel too low", nil, ready, bindMethod, with(peers("10.0.0.1:5"), channel(0x3fff)), BadRequest, 400},
		{"channel too high", nil, ready, bindMethod, with(peers("10.0.0.1:5"), channel(0x8000)), BadRequest, 400},
		{"channel to port 0", nil, ready, bindMethod, with(peers("10.0.0.1:0"), channel(0x4000)), BadRequest, 400},
		{"channel of another peer", nil, withChannel, bindMethod, with(peers("10.0.0.1:6"), channel(0x4000)), BadRequest, 400},
		{"peer of another channel", nil, withChannel, bindMethod, with(peers("10.0.0.1:5"), channel(0x4001)), BadRequest, 400},
		{"connect on a UDP allocation", nil, ready, connectMethod, peers("10.0.0.1:5"), BadRequest, 400},
		{"channel on a TCP allocation", nil, readyTCP, bindMethod, with(peers("10.0.0.1:5"), channel(0x4000)), BadRequest, 400},
		{"ConnectionBind over UDP", nil, known, stun.MethodConnectionBind, list(), BadRequest, 400},
		{"lifetime of a wrong size", nil, ready, refreshMethod, list(attr{Type: stun.AttrLifetime, Value: []byte{1}}), BadRequest, 400},
		{"no credentials", nil, stranger, allocateMethod, udp, Challenged, 401},
		{"unknown user", nil, as("nobody", "passwd1"), allocateMethod, udp, Unauthorized, 401},
		{"wrong password", nil, as("user1", "passwd2"), allocateMethod, udp, Unauthorized, 401},
		{"wrong realm", nil, inRealm("other"), allocateMethod, udp, Unauthorized, 401},
		{"ephemeral time over", ephemeralPolicy, as("1799999999:u", Password("secret", "1799999999:u")), allocateMethod, udp, CredentialExpired, 401},
		{"ephemeral without time", ephemeralPolicy, as("u", Password("secret", "u")), allocateMethod, udp, Unauthorized, 401},
		{"ephemeral with another secret", ephemeralPolicy, as("1900000000:u", Password("other", "1900000000:u")), allocateMethod, udp, Unauthorized, 401},
		{"peer not admitted", nil, ready, permitMethod, peers("10.9.0.1:5"), Forbidden, 403},
		{"one of two peers not admitted", nil, ready, permitMethod, peers("10.0.0.1:5", "10.9.0.1:5"), Forbidden, 403},
		{"channel to a port not admitted", nil, ready, bindMethod, with(peers("10.0.0.1:9"), channel(0x4000)), Forbidden, 403},
		{"IPv4 in IPv6", nil, readyBoth, permitMethod, peers("[::ffff:10.0.0.1]:5"), Forbidden, 403},
		{"connect to a peer not admitted", nil, readyTCP, connectMethod, peers("10.9.0.1:5"), Forbidden, 403},
		{"unknown attribute", nil, ready, refreshMethod, list(attr{Type: 0x7ff0, Value: []byte{1}}), UnknownAttribute, 420},
		{"unknown attribute in Binding", nil, stranger, bindingMethod, list(attr{Type: stun.AttrChangeRequest, Value: word(0)}), UnknownAttribute, 420},
		{"Refresh without allocation", nil, known, refreshMethod, list(), NoAllocation, 437},
		{"CreatePermission without allocation", nil, known, permitMethod, peers("10.0.0.1:5"), NoAllocation, 437},
		{"ChannelBind without allocation", nil, known, bindMethod, with(peers("10.0.0.1:5"), channel(0x4000)), NoAllocation, 437},
		{"Connect without allocation", nil, overTCP, connectMethod, peers("10.0.0.1:5"), NoAllocation, 437},
		{"Allocate twice", nil, ready, allocateMethod, udp, AllocationExists, 437},
		{"stale nonce", nil, stale, allocateMethod, udp, StaleNonce, 438},
		{"a nonce of another client", nil, foreignNonce, allocateMethod, udp, StaleNonce, 438},
		{"unknown family", nil, known, allocateMethod, list(transport(17), familyOf(stun.AttrRequestedAddressFamily, 3)), FamilyUnsupported, 440},
		{"no relay of the family", nil, failing(ErrFamily), allocateMethod, list(transport(17), familyOf(stun.AttrRequestedAddressFamily, 2)), FamilyUnsupported, 440},
		{"another user's allocation", nil, otherUser, refreshMethod, list(), WrongCredentials, 441},
		{"unknown transport", nil, known, allocateMethod, list(transport(132)), TransportUnsupported, 442},
		{"no TCP relays here", nil, tcpFailing(ErrTransport), allocateMethod, list(transport(6)), TransportUnsupported, 442},
		{"peer of the other family", nil, ready, permitMethod, peers("[2001:db8::7]:5"), FamilyMismatch, 443},
		{"channel to the other family", nil, ready, bindMethod, with(peers("[2001:db8::7]:5"), channel(0x4000)), FamilyMismatch, 443},
		{"Refresh of the other family", nil, ready, refreshMethod, list(familyOf(stun.AttrRequestedAddressFamily, 2)), FamilyMismatch, 443},
		{"Connect twice", nil, dialing, connectMethod, peers("10.0.0.1:5"), ConnectionExists, 446},
		{"quota of a user", func(p *Policy) { p.Quotas.AllocationsPerUser = 1 }, second, allocateMethod, udp, QuotaReached, 486},
		{"quota in all", func(p *Policy) { p.Quotas.Allocations = 1 }, second, allocateMethod, udp, QuotaReached, 486},
		{"quota and reservation", func(p *Policy) { p.Quotas.AllocationsPerUser = 1 }, known, allocateMethod, list(transport(17), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}), QuotaReached, 486},
		{"connections per allocation", func(p *Policy) { p.Quotas.Connections = 1 }, dialing, connectMethod, peers("10.0.0.1:6"), QuotaReached, 486},
		{"no port", nil, failing(ErrNoPort), allocateMethod, udp, InsufficientCapacity, 508},
		{"no such token", nil, known, allocateMethod, list(transport(17), attr{Type: stun.AttrReservationToken, Value: make([]byte, 8)}), InsufficientCapacity, 508},
		{"permissions per allocation", func(p *Policy) { p.Quotas.Permissions = 1 }, ready, permitMethod, peers("10.0.0.1:5", "10.0.0.2:5"), InsufficientCapacity, 508},
		{"channels per allocation", func(p *Policy) { p.Quotas.Channels = 1 }, withChannel, bindMethod, with(peers("10.0.0.1:6"), channel(0x4001)), InsufficientCapacity, 508},
	}
	seen := map[Reason]bool{OK: true, ConnectionFailed: true} // the latter by TestConnect
	for _, test := range tests {
		seen[test.want] = true
		t.Run(test.name, func(t *testing.T) {
			p := basic()
			if test.policy != nil {
				test.policy(&p)
			}
			w := newWorld(t, p)
			c := test.setup(t, w)
			m, r := c.do(test.method, test.attrs(c)...)
			if r != test.want || code(m) != test.code {
				t.Fatalf("answered %d, %v; want %d, %v", code(m), r, test.code, test.want)
			}
			if got := m.Contains(stun.AttrNonce); got != (test.code == 401 || test.code == 438) {
				t.Errorf("NONCE: %v", got)
			}
			if err := w.check(); err != nil {
				t.Error(err)
			}
		})
	}
	for r := OK; r < Malformed; r++ {
		if !seen[r] {
			t.Errorf("no request earns %v", r)
		}
	}
}

func stranger(_ *testing.T, w *world) *client { return w.client(4000, UDP) }

func challenged(w *world, transportOf Transport) *client {
	w.t.Helper()
	c := w.client(4000, transportOf)
	c.must(Challenged, allocateMethod, transport(17))
	return c
}

func known(_ *testing.T, w *world) *client { return challenged(w, UDP) }

func overTCP(_ *testing.T, w *world) *client { return challenged(w, TCP) }

func ready(_ *testing.T, w *world) *client {
	c, _ := w.allocated(4000)
	return c
}

func readyBoth(_ *testing.T, w *world) *client {
	c, _ := w.allocated(4000, familyOf(attrAdditionalFamily, 2))
	return c
}

func readyTCP(t *testing.T, w *world) *client {
	c := overTCP(t, w)
	c.must(OK, allocateMethod, transport(6))
	return c
}

func dialing(t *testing.T, w *world) *client {
	c := readyTCP(t, w)
	c.must(OK, connectMethod, c.peer("10.0.0.1:5"))
	return c
}

func withChannel(t *testing.T, w *world) *client {
	c := ready(t, w)
	c.must(OK, bindMethod, channel(0x4000), c.peer("10.0.0.1:5"))
	return c
}

// second is another client of the user who has an allocation already.
func second(t *testing.T, w *world) *client {
	ready(t, w)
	c := w.client(4001, UDP)
	c.must(Challenged, allocateMethod, transport(17))
	return c
}

func otherUser(t *testing.T, w *world) *client {
	c := ready(t, w)
	c.user, c.password = "user2", "passwd2"
	return c
}

func stale(t *testing.T, w *world) *client {
	c := known(t, w)
	w.now += 3600e9
	return c
}

func foreignNonce(t *testing.T, w *world) *client {
	c := known(t, w)
	c.path.Client = netip.AddrPortFrom(netip.MustParseAddr("198.51.100.2"), 4000)
	return c
}

func omitting(kind stun.AttrType) func(*testing.T, *world) *client {
	return func(t *testing.T, w *world) *client {
		c := known(t, w)
		c.omit = kind
		return c
	}
}

func as(user, password string) func(*testing.T, *world) *client {
	return func(t *testing.T, w *world) *client {
		c := known(t, w)
		c.user, c.password = user, password
		return c
	}
}

func inRealm(realm string) func(*testing.T, *world) *client {
	return func(t *testing.T, w *world) *client {
		c := known(t, w)
		c.realm = realm
		return c
	}
}

func failing(err error) func(*testing.T, *world) *client {
	return func(t *testing.T, w *world) *client {
		w.openError = err
		return known(t, w)
	}
}

func tcpFailing(err error) func(*testing.T, *world) *client {
	return func(t *testing.T, w *world) *client {
		w.openError = err
		return overTCP(t, w)
	}
}

func ephemeralPolicy(p *Policy) {
	p.Auth = Auth{Mode: AuthEphemeral, Secrets: []string{"secret"}}
}

func udp(*client) []attr { return []attr{transport(17)} }

func list(attributes ...attr) func(*client) []attr {
	return func(*client) []attr { return attributes }
}

func peers(addresses ...string) func(*client) []attr {
	return func(c *client) (out []attr) {
		for _, a := range addresses {
			out = append(out, c.peer(a))
		}
		return out
	}
}

func with(first func(*client) []attr, more ...attr) func(*client) []attr {
	return func(c *client) []attr { return slices.Concat(more, first(c)) }
}
