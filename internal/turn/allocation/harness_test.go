package allocation

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

const start = int64(1_800_000_000) * 1e9

func address(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// world is a table with a gateway that only keeps books, and clients that use the library's STUN messages.
type world struct {
	t      testing.TB
	shared *Shared
	table  *Table
	now    int64

	port      uint16
	open      map[*Allocation]RelayRequest
	held      map[netip.AddrPort]bool
	dialing   map[uint32]netip.AddrPort
	cut       []uint32
	paused    map[uint32]bool // what Suspend said of a connection last
	offloaded map[*Channel]bool
	changes   int
	gone      []Reason
	openError error

	closedFamilies []int
}

func (w *world) Open(a *Allocation, want RelayRequest) (r [2]netip.AddrPort, err error) {
	if want.Exact[V4].IsValid() || want.Exact[V6].IsValid() {
		if w.openError != nil {
			return r, w.openError
		}
		w.open[a] = want
		if want.Reserve {
			w.held[want.Reserved] = true
		}
		return want.Exact, nil
	}
	if want.Reserved.IsValid() {
		if !w.held[want.Reserved] {
			return r, ErrNoPort
		}
		delete(w.held, want.Reserved)
	}
	if w.openError != nil && !want.V4 || w.openError != nil && !want.V6 {
		return r, w.openError
	}
	w.port += 2
	if want.V4 {
		r[V4] = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), w.port)
	}
	if want.V6 && w.openError == nil {
		r[V6] = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), w.port)
	}
	if want.Reserve {
		w.held[netip.AddrPortFrom(r[V4].Addr(), w.port+1)] = true
	}
	w.open[a] = want
	return r, w.openError
}

func (w *world) Close(a *Allocation) {
	if _, ok := w.open[a]; !ok {
		w.t.Errorf("closed %v, which is not open", a.Relay)
	}
	delete(w.open, a)
}

func (w *world) CloseFamily(a *Allocation, family int) {
	if want, ok := w.open[a]; !ok || !want.V4 || !want.V6 || a.Relay[1-family] == (netip.AddrPort{}) {
		w.t.Errorf("closed one family of %v, which has not both open", a.Relay)
	}
	w.closedFamilies = append(w.closedFamilies, family)
	want := w.open[a]
	want.V4, want.V6 = family != V4, family != V6
	w.open[a] = want
}

func (w *world) Release(reserved netip.AddrPort) {
	if !w.held[reserved] {
		w.t.Errorf("released %v, which is not held", reserved)
	}
	delete(w.held, reserved)
}

func (w *world) Connect(_ *Allocation, id uint32, peer netip.AddrPort) { w.dialing[id] = peer }
func (w *world) Disconnect(_ *Allocation, id uint32)                   { w.cut = append(w.cut, id) }
func (w *world) Suspend(_ *Allocation, id uint32, suspended bool) {
	if w.paused == nil {
		w.paused = map[uint32]bool{}
	}
	w.paused[id] = suspended
}
func (w *world) Changed(*Allocation)            { w.changes++ }
func (w *world) Gone(_ *Allocation, why Reason) { w.gone = append(w.gone, why) }

func (w *world) Bound(_ *Allocation, c *Channel) {
	if w.offloaded[c] {
		w.t.Errorf("channel %#x bound twice", c.Number)
	}
	w.offloaded[c] = true
}

func (w *world) Unbound(_ *Allocation, c *Channel) {
	if !w.offloaded[c] {
		w.t.Errorf("channel %#x unbound, but was not bound", c.Number)
	}
	delete(w.offloaded, c)
}

// basic is a policy that admits every peer but 10.9.0.0/16.
func basic() Policy {
	refused := netip.MustParsePrefix("10.9.0.0/16")
	return Policy{
		Realm:     "weir",
		Auth:      Auth{Users: map[string]string{"user1": "passwd1", "user2": "passwd2"}},
		NonceKeys: [][]byte{[]byte("0123456789abcdef")},
		Admit: func(_ uint16, _ bool, peer netip.AddrPort) (uint16, bool) {
			return 7, !refused.Contains(peer.Addr()) && peer.Port() != 9
		},
	}
}

func newWorld(t testing.TB, p Policy) *world {
	t.Helper()
	shared, err := NewShared(p, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, shared: shared, now: start, port: 50000, open: map[*Allocation]RelayRequest{}, held: map[netip.AddrPort]bool{},
		dialing: map[uint32]netip.AddrPort{}, offloaded: map[*Channel]bool{},
	}
	w.table = NewTable(shared, w, w)
	return w
}

func (w *world) set(p Policy) {
	w.t.Helper()
	if err := w.shared.SetPolicy(p); err != nil {
		w.t.Fatal(err)
	}
	w.table.SetPolicy(w.now)
}

func (w *world) after(d time.Duration) {
	w.now += int64(d)
	w.table.Expire(w.now)
}

// client is one 5-tuple with its credentials.
type client struct {
	w              *world
	path           Path
	user, password string
	realm, nonce   string
	serial         uint64
	lastID         [12]byte
	fingerprint    bool
	noIntegrity    bool
	omit           stun.AttrType // of USERNAME, REALM, NONCE
}

func (w *world) client(port uint16, transport Transport) *client {
	return &client{
		w: w, user: "user1", password: "passwd1", realm: w.shared.Policy().Realm,
		path: Path{Client: netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), port), Server: address("203.0.113.1:3478"), Transport: transport, Listener: 1},
	}
}

type attr = stun.RawAttribute

func word(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func transport(protocol byte) attr {
	return attr{Type: stun.AttrRequestedTransport, Value: []byte{protocol, 0, 0, 0}}
}
func lifetime(s uint32) attr { return attr{Type: stun.AttrLifetime, Value: word(s)} }
func familyOf(kind stun.AttrType, f byte) attr {
	return attr{Type: kind, Value: []byte{f, 0, 0, 0}}
}

func channel(n uint16) attr { return attr{Type: stun.AttrChannelNumber, Value: word(uint32(n) << 16)} }

// peer is XOR-PEER-ADDRESS by the library's own code.
func (c *client) peer(s string) attr {
	a := address(s)
	m := &stun.Message{TransactionID: c.nextID()}
	m.WriteHeader()
	x := stun.XORMappedAddress{IP: a.Addr().AsSlice(), Port: int(a.Port())}
	if err := x.AddToAs(m, stun.AttrXORPeerAddress); err != nil {
		c.w.t.Fatal(err)
	}
	if a.Addr().Is4In6() { // the library would unmap it
		var zero [20]byte
		copy(zero[4:], m.Raw[4:20])
		m.Raw = appendXORAddress(m.Raw[:20], stun.AttrXORPeerAddress, a, zero[:])
		return attr{Type: stun.AttrXORPeerAddress, Value: m.Raw[24:]}
	}
	return m.Attributes[0]
}

func (c *client) nextID() (id [12]byte) {
	binary.BigEndian.PutUint64(id[:], c.serial+1)
	binary.BigEndian.PutUint16(id[10:], c.path.Client.Port())
	return id
}

// message builds a message, with integrity if the client has a nonce.
func (c *client) message(method stun.Method, class stun.MessageClass, attributes ...attr) []byte {
	c.w.t.Helper()
	m := &stun.Message{Type: stun.NewType(method, class), TransactionID: c.nextID()}
	c.serial++
	c.lastID = m.TransactionID
	m.WriteHeader()
	for _, a := range attributes {
		m.Add(a.Type, a.Value)
	}
	if c.nonce != "" && class == stun.ClassRequest && !c.noIntegrity {
		for _, a := range []attr{{Type: stun.AttrUsername, Value: []byte(c.user)}, {Type: stun.AttrRealm, Value: []byte(c.realm)}, {Type: stun.AttrNonce, Value: []byte(c.nonce)}} {
			if a.Type != c.omit {
				m.Add(a.Type, a.Value)
			}
		}
		if err := stun.NewLongTermIntegrity(c.user, c.realm, c.password).AddTo(m); err != nil {
			c.w.t.Fatal(err)
		}
	}
	if c.fingerprint {
		if err := stun.Fingerprint.AddTo(m); err != nil {
			c.w.t.Fatal(err)
		}
	}
	return m.Raw
}

// do sends a request and gives the answer, checked and parsed by the library; nil if there was none.
func (c *client) do(method stun.Method, attributes ...attr) (*stun.Message, Reason) {
	c.w.t.Helper()
	return c.send(c.message(method, stun.ClassRequest, attributes...))
}

func (c *client) send(raw []byte) (*stun.Message, Reason) {
	c.w.t.Helper()
	before := slices.Clone(raw)
	out, r := c.w.table.Request(c.path, raw, []byte("head"), c.w.now)
	if string(raw) != string(before) {
		c.w.t.Error("the request was changed")
	}
	if string(out[:4]) != "head" {
		c.w.t.Fatal("the answer was not appended")
	}
	return c.answer(raw, out[4:], r), r
}

func (c *client) answer(raw, out []byte, r Reason) *stun.Message {
	c.w.t.Helper()
	if len(out) == 0 {
		return nil
	}
	m := &stun.Message{}
	if err := stun.Decode(slices.Clone(out), m); err != nil {
		c.w.t.Fatalf("%v: answer %x: %v", r, out, err)
	}
	if string(m.TransactionID[:]) != string(raw[8:20]) {
		c.w.t.Errorf("answer to %x has transaction %x", raw[8:20], m.TransactionID)
	}
	if nonce, err := m.Get(stun.AttrNonce); err == nil {
		c.nonce = string(nonce)
	}
	if m.Contains(stun.AttrMessageIntegrity) {
		if err := stun.NewLongTermIntegrity(c.user, c.realm, c.password).Check(m); err != nil {
			c.w.t.Errorf("%v: %v", r, err)
		}
	} else if code(m) != 401 && code(m) != 438 && m.Type.Method != stun.MethodBinding && code(m) != 400 && !m.Contains(stun.AttrMessageIntegritySHA256) {
		c.w.t.Errorf("%v: the answer has no integrity", r)
	}
	sealed := m.Contains(stun.AttrFingerprint)
	if omitted := c.fingerprint && !sealed; sealed && !c.fingerprint || omitted && (c.path.Transport != UDP || len(m.Raw)+8 <= 3*len(raw)) {
		c.w.t.Errorf("%v: FINGERPRINT is %v", r, sealed)
	}
	if sealed {
		if err := stun.Fingerprint.Check(m); err != nil {
			c.w.t.Errorf("%v: %v", r, err)
		}
	}
	if code(m) != r.Code() || (m.Type.Class == stun.ClassErrorResponse) != (code(m) != 0) {
		c.w.t.Errorf("answered %d as %v, reason %v", code(m), m.Type, r)
	}
	return m
}

func code(m *stun.Message) int {
	var e stun.ErrorCodeAttribute
	if m == nil || e.GetFrom(m) != nil {
		return 0
	}
	return int(e.Code)
}

// must is do that ends the test unless the request ends as wanted.
func (c *client) must(want Reason, method stun.Method, attributes ...attr) *stun.Message {
	c.w.t.Helper()
	m, r := c.do(method, attributes...)
	if r != want {
		c.w.t.Fatalf("%v: %v, want %v", method, r, want)
	}
	return m
}

// allocated is a client with an allocation.
func (w *world) allocated(port uint16, attributes ...attr) (*client, *Allocation) {
	w.t.Helper()
	c := w.client(port, UDP)
	c.must(Challenged, stun.MethodAllocate, transport(17))
	c.must(OK, stun.MethodAllocate, append([]attr{transport(17)}, attributes...)...)
	return c, w.table.Find(c.path)
}

// relay reads an address attribute by the library's own code.
func relayOf(t testing.TB, m *stun.Message, kind stun.AttrType) netip.AddrPort {
	t.Helper()
	var x stun.XORMappedAddress
	if err := x.GetFromAs(m, kind); err != nil {
		t.Fatalf("%v: %v", kind, err)
	}
	ip, _ := netip.AddrFromSlice(x.IP)
	return netip.AddrPortFrom(ip.Unmap(), uint16(x.Port))
}

// check says what cannot be: relays without allocation, quotas that do not add up.
func (w *world) check() error {
	s := w.shared.Stats()
	if len(w.open) != w.table.Len() || s.Allocations != w.table.Len()+s.Reserved || len(w.held) != s.Reserved {
		return fmt.Errorf("%d relays open, %d allocations, %d held, %+v", len(w.open), w.table.Len(), len(w.held), s)
	}
	if w.table.due.Len() != w.table.Len() || len(w.shared.ids) != w.table.Len() {
		return fmt.Errorf("%d due, %d ids, %d allocations", w.table.due.Len(), len(w.shared.ids), w.table.Len())
	}
	users := map[string]int{}
	for _, a := range w.table.paths {
		users[a.User]++
	}
	for _, r := range w.shared.reserved {
		users[r.user]++
	}
	if !maps.Equal(users, w.shared.users) {
		return fmt.Errorf("users %v, counted %v", users, w.shared.users)
	}
	return nil
}
