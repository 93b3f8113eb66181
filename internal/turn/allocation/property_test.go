package allocation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// model is what a TURN server keeps, in the plainest form: maps with ends.
type model struct {
	w       *world
	random  *rand.Rand
	policy  Policy
	clients []*modelClient
	refused bool // 10.0.1.0/24 is not admitted
}

type modelClient struct {
	*client
	expires     int64 // 0: has no allocation
	permissions map[netip.Addr]int64
	channels    map[uint16]modelChannel
}

type modelChannel struct {
	peer    netip.AddrPort
	expires int64
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{random: rand.New(rand.NewPCG(seed, 1)), policy: basic()}
	m.policy.Quotas = Quotas{Allocations: 7, AllocationsPerUser: 5, Permissions: 4, Channels: 3, Connections: 2}
	m.policy.Unauthenticated = RateLimit{PerPrefix: -1, Total: -1}
	m.policy.Lifetimes.Nonce = 24 * time.Hour
	m.policy.Admit = func(_ uint16, _ bool, peer netip.AddrPort) (uint16, bool) {
		return 1, !m.refused || peer.Addr().As4()[2] != 1
	}
	m.w = newWorld(t, m.policy)
	for i := range 10 {
		c := m.w.client(uint16(4000+i), Transport(i%2)) // UDP, TCP
		if i >= 5 {
			c.user, c.password = "user2", "passwd2"
		}
		m.clients = append(m.clients, &modelClient{client: c})
	}
	return m
}

func (m *model) peer() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(m.random.IntN(2)), byte(m.random.IntN(4))}), uint16(5000+m.random.IntN(2)))
}

func (m *model) admitted(peer netip.AddrPort) bool { return !m.refused || peer.Addr().As4()[2] != 1 }

func (c *modelClient) forget() { c.expires, c.permissions, c.channels = 0, nil, nil }

// A thousand random operations on ten clients, against the model; in the end nothing is left anywhere.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed)
			for step := range 1000 {
				if err := m.step(); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				if err := errors.Join(m.w.check(), m.compare()); err != nil {
					t.Fatalf("after step %d: %v", step, err)
				}
			}
			m.w.after(2 * time.Hour)
			s := m.w.shared.Stats()
			if err := m.w.check(); err != nil || s.Allocations+s.Users+s.Reserved+len(m.w.offloaded)+len(m.w.table.connections)+len(m.w.held) != 0 {
				t.Errorf("left: %+v, %d offloaded, %d connections, %v", s, len(m.w.offloaded), len(m.w.table.connections), err)
			}
			if next := m.w.table.Expire(m.w.now); next != 0 {
				t.Errorf("something waits until %d", next)
			}
		})
	}
}

func (m *model) step() error {
	c := m.clients[m.random.IntN(len(m.clients))]
	if c.nonce == "" {
		c.must(Challenged, refreshMethod)
	}
	switch m.random.IntN(13) {
	case 0, 1, 2:
		return m.allocate(c)
	case 3:
		return m.refresh(c)
	case 4, 5:
		return m.permit(c)
	case 6, 7, 8:
		return m.bind(c)
	case 9:
		m.pass(time.Duration(m.random.Int64N(int64(3 * time.Minute))))
	case 10:
		return m.reload()
	case 11:
		return m.move(c)
	case 12:
		return m.dial(c)
	}
	return nil
}

func (m *model) allocate(c *modelClient) error {
	attributes := []attr{transport(17)}
	if c.path.Transport == TCP {
		attributes[0] = transport(6)
	} else if m.random.IntN(3) == 0 {
		attributes = append(attributes, attr{Type: stun.AttrEvenPort, Value: []byte{0x80}})
	}
	if m.random.IntN(5) == 0 {
		m.w.openError = ErrNoPort
	}
	before := m.w.shared.Stats().Allocations
	_, r := c.do(allocateMethod, attributes...)
	failing := m.w.openError != nil
	m.w.openError = nil
	switch {
	case c.expires != 0 && r == AllocationExists, failing && r == InsufficientCapacity:
	case r == QuotaReached && before+len(attributes) > 4: // seven in all, five for a user: cannot be refused before
	case r == OK && c.expires == 0 && !failing:
		c.expires, c.permissions, c.channels = m.w.now+600e9, map[netip.Addr]int64{}, map[uint16]modelChannel{}
	default:
		return fmt.Errorf("allocate: %v with %d allocations, has one: %v", r, before, c.expires != 0)
	}
	return nil
}

func (m *model) refresh(c *modelClient) error {
	seconds := uint32(m.random.IntN(3) * 900)
	_, r := c.do(refreshMethod, lifetime(seconds))
	if want := OK; c.expires == 0 {
		want = NoAllocation
		if r != want {
			return fmt.Errorf("refresh: %v, want %v", r, want)
		}
		return nil
	}
	if r != OK {
		return fmt.Errorf("refresh: %v", r)
	}
	if c.expires = m.w.now + int64(max(seconds, 600))*1e9; seconds == 0 {
		c.forget()
	}
	return nil
}

func (m *model) permit(c *modelClient) error {
	peer := m.peer()
	want := OK
	_, has := c.permissions[peer.Addr()]
	switch {
	case c.expires == 0:
		want = NoAllocation
	case !m.admitted(peer):
		want = Forbidden
	case !has && len(c.permissions) == 4:
		want = InsufficientCapacity
	default:
		c.permissions[peer.Addr()] = m.w.now + 300e9
	}
	if _, r := c.do(permitMethod, c.peer(peer.String())); r != want {
		return fmt.Errorf("permit %v: %v, want %v", peer, r, want)
	}
	return nil
}

func (m *model) bind(c *modelClient) error {
	peer, number := m.peer(), uint16(MinChannel+m.random.IntN(4))
	_, has := c.permissions[peer.Addr()]
	bound, taken := c.channels[number]
	other := false
	for n, v := range c.channels {
		other = other || v.peer == peer && n != number
	}
	want := OK
	switch {
	case c.expires == 0:
		want = NoAllocation
	case c.path.Transport == TCP:
		want = BadRequest
	case !m.admitted(peer):
		want = Forbidden
	case taken && bound.peer != peer, other:
		want = BadRequest
	case !has && len(c.permissions) == 4, !taken && len(c.channels) == 3:
		want = InsufficientCapacity
	default:
		c.permissions[peer.Addr()] = m.w.now + 300e9
		c.channels[number] = modelChannel{peer, m.w.now + 600e9}
	}
	if _, r := c.do(bindMethod, channel(number), c.peer(peer.String())); r != want {
		return fmt.Errorf("bind %#x to %v: %v, want %v", number, peer, r, want)
	}
	return nil
}

// pass lets time go by.
func (m *model) pass(d time.Duration) {
	m.w.after(d)
	for _, c := range m.clients {
		if c.expires <= m.w.now {
			c.forget()
		}
		m.prune(c, func(_ netip.AddrPort, expires int64) bool { return expires > m.w.now })
	}
}

func (m *model) prune(c *modelClient, keep func(netip.AddrPort, int64) bool) {
	for peer, expires := range c.permissions {
		if !keep(netip.AddrPortFrom(peer, 0), expires) {
			delete(c.permissions, peer)
		}
	}
	for n, v := range c.channels {
		if !keep(v.peer, v.expires) {
			delete(c.channels, n)
		}
	}
}

func (m *model) reload() error {
	m.refused = !m.refused
	m.w.set(m.policy)
	return nil
}

// move takes an allocation down, ends it and restores it.
func (m *model) move(c *modelClient) error {
	a := m.w.table.Find(c.path)
	if a == nil {
		return nil
	}
	r := taken(m.w, a)
	r.Reservation = nil // the old one still waits
	m.w.table.Delete(a, Moved)
	b, err := m.w.table.Restore(r, m.w.now)
	if err == nil && b.Relay != a.Relay {
		err = fmt.Errorf("relay %v, was %v", b.Relay, a.Relay)
	}
	return err
}

// dial begins and ends peer connections.
func (m *model) dial(c *modelClient) error {
	a := m.w.table.Find(c.path)
	if a == nil || !a.TCP {
		return nil
	}
	_, r := c.do(connectMethod, c.peer(m.peer().String()))
	if r != OK && r != Forbidden && r != ConnectionExists && r != QuotaReached {
		return fmt.Errorf("connect: %v", r)
	}
	for id := range m.w.dialing {
		var err error
		if m.random.IntN(2) == 0 {
			err = errors.New("refused")
		}
		m.w.table.ConnectDone(a, id, err, nil, m.w.now)
		delete(m.w.dialing, id)
	}
	return nil
}

// compare queries the table about everything that the model knows, and something that it does not.
func (m *model) compare() error {
	for _, c := range m.clients {
		a := m.w.table.Find(c.path)
		if (a != nil) != (c.expires != 0) || a != nil && a.Expires != c.expires {
			return fmt.Errorf("%v: allocation %v, the model has it until %d", c.path.Client, a, c.expires)
		}
		if a == nil {
			continue
		}
		permissions, channels, _, _ := a.Counts()
		if permissions != len(c.permissions) || channels != len(c.channels) {
			return fmt.Errorf("%v: %d permissions, %d channels, want %v %v", c.path.Client, permissions, channels, c.permissions, c.channels)
		}
		for n, v := range c.channels {
			ch := a.Channel(n)
			if ch == nil || ch.Peer != v.peer || ch.Expires != v.expires || m.w.offloaded[ch] != (c.permissions[v.peer.Addr()] != 0 && m.admitted(v.peer)) || ch.Suspended == m.admitted(v.peer) {
				return fmt.Errorf("channel %#x is %+v, want %v", n, ch, v)
			}
		}
		if err := m.checkInbound(c, a, m.peer()); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) checkInbound(c *modelClient, a *Allocation, peer netip.AddrPort) error {
	want, number := OK, uint16(0)
	if c.permissions[peer.Addr()] == 0 {
		want = NoPermission
	} else if !m.admitted(peer) {
		want = Suspended
	}
	for n, v := range c.channels {
		if v.peer == peer && want == OK {
			number = n
		}
	}
	if n, r := a.Inbound(peer, m.w.now); n != number || r != want {
		return fmt.Errorf("inbound from %v: %#x %v, want %#x %v", peer, n, r, number, want)
	}
	return nil
}
