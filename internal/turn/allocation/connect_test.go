package allocation

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// tcpClient has a TCP allocation over a TCP connection.
func (w *world) tcpClient(port uint16) (*client, *Allocation) {
	w.t.Helper()
	c := w.client(port, TCP)
	c.must(Challenged, allocateMethod, transport(6))
	c.must(OK, allocateMethod, transport(6))
	return c, w.table.Find(c.path)
}

// dial has the client connect to a peer and returns the id that the gateway received.
func (c *client) dial(peer string) uint32 {
	c.w.t.Helper()
	if m := c.must(OK, connectMethod, c.peer(peer)); m != nil {
		c.w.t.Errorf("answered before the connection is there: %v", m)
	}
	for id, to := range c.w.dialing {
		if to == address(peer) {
			delete(c.w.dialing, id)
			return id
		}
	}
	c.w.t.Fatal("nothing was dialled")
	return 0
}

// bind sends ConnectionBind on a connection of its own.
func (c *client) bind(id uint32) (uint32, *stun.Message, Reason) {
	c.w.t.Helper()
	data := *c
	data.path.Client = address("198.51.100.1:60000")
	raw := data.message(stun.MethodConnectionBind, stun.ClassRequest, attr{Type: stun.AttrConnectionID, Value: word(id)})
	if got, ok := ConnectionID(raw); !ok || got != id {
		c.w.t.Errorf("ConnectionID %d %v", got, ok)
	}
	got, out, r := c.w.table.ConnectionBind(data.path, raw, []byte("head"), c.w.now)
	c.serial = data.serial
	return got, data.answer(raw, out[4:], r), r
}

// Connect, its answer, and the client's second connection; then the same peer again.
func TestConnect(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.tcpClient(4000)
	c.fingerprint = true
	id := c.dial("10.0.0.1:5000")
	request := c.lastID
	if _, _, r := c.bind(id); r != BadRequest {
		t.Errorf("bound while it is dialled: %v", r)
	}
	out := w.table.ConnectDone(a, id, nil, nil, w.now)
	m := c.answer(append(make([]byte, 8), request[:]...), out, OK)
	if value, err := m.Get(stun.AttrConnectionID); err != nil || binary.BigEndian.Uint32(value) != id {
		t.Errorf("connection id %x, %v", value, err)
	}
	if again := w.table.ConnectDone(a, id, nil, []byte("before"), w.now); string(again) != "before" {
		t.Errorf("answered twice, or what was there is gone: %q", again)
	}
	if got, _, r := c.bind(id + 1); r != BadRequest || got != 0 {
		t.Errorf("another id: %v", r)
	}
	thief := *c
	thief.user, thief.password = "user2", "passwd2"
	if _, _, r := thief.bind(id); r != WrongCredentials {
		t.Errorf("another user: %v", r)
	}
	if got, _, r := c.bind(id); r != OK || got != id {
		t.Errorf("bind: %d %v", got, r)
	}
	if _, _, r := c.bind(id); r != BadRequest {
		t.Errorf("bound twice: %v", r)
	}
	w.after(60 * time.Second)
	if len(w.cut) != 0 {
		t.Errorf("a bound connection was cut")
	}
	c.must(ConnectionExists, connectMethod, c.peer("10.0.0.1:5000"))
	w.table.ConnectionClosed(a, id)
	c.dial("10.0.0.1:5000")
}

// A connection that fails is answered 447, one that no program binds is cut after 30 s, an unknown one is ignored.
func TestConnectFails(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.tcpClient(4000)
	id := c.dial("10.0.0.1:5000")
	request := c.lastID
	out := w.table.ConnectDone(a, id, errors.New("refused"), nil, w.now)
	if m := c.answer(append(make([]byte, 8), request[:]...), out, ConnectionFailed); code(m) != 447 {
		t.Errorf("answer %v", m)
	}
	id = c.dial("10.0.0.1:5000")
	w.table.ConnectDone(a, id, nil, nil, w.now)
	w.after(30*time.Second - 1)
	if len(w.cut) != 0 {
		t.Fatal("cut too early")
	}
	w.after(1)
	if !slices.Equal(w.cut, []uint32{id}) {
		t.Errorf("cut %v, want %d", w.cut, id)
	}
	if _, _, r := c.bind(id); r != BadRequest {
		t.Errorf("bound too late: %v", r)
	}
	id = c.dial("10.0.0.1:5000")
	w.after(connectTime)
	if out := w.table.ConnectDone(a, id, nil, nil, w.now); out != nil || !slices.Contains(w.cut, id) {
		t.Errorf("a Connect is answered after a minute: %x", out)
	}
	id = c.dial("10.0.0.1:5000")
	c.must(OK, refreshMethod, lifetime(0))
	if out := w.table.ConnectDone(a, id, nil, nil, w.now); out != nil || len(w.table.connections) != 0 {
		t.Errorf("answered after the allocation's end: %x", out)
	}
}

// Peers connect by permission; the client is notified, and binds.
func TestConnectionAttempt(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.tcpClient(4000)
	peer := address("10.0.0.1:5000")
	if _, _, r := w.table.ConnectionAttempt(a, peer, nil, w.now); r != NoPermission {
		t.Errorf("without permission: %v", r)
	}
	c.must(OK, permitMethod, c.peer("10.0.0.1:0"))
	id, out, r := w.table.ConnectionAttempt(a, peer, []byte("head"), w.now)
	if r != OK {
		t.Fatal(r)
	}
	m := &stun.Message{}
	if err := stun.Decode(out[4:], m); err != nil || m.Type.Value() != typeConnectionAttempt {
		t.Fatalf("%v %v", m, err)
	}
	if value, err := m.Get(stun.AttrConnectionID); err != nil || binary.BigEndian.Uint32(value) != id || relayOf(t, m, stun.AttrXORPeerAddress) != peer {
		t.Errorf("indication %v, %v", m, err)
	}
	if _, _, r := w.table.ConnectionAttempt(a, peer, nil, w.now); r != ConnectionExists {
		t.Errorf("the same peer again: %v", r)
	}
	if _, _, r := c.bind(id); r != OK {
		t.Errorf("bind: %v", r)
	}
	_, u := w.allocated(4001)
	if _, _, r := w.table.ConnectionAttempt(u, peer, nil, w.now); r != NoAllocation {
		t.Errorf("on a UDP allocation: %v", r)
	}
	if raw := c.message(stun.MethodConnectionBind, stun.ClassRequest); true {
		if _, ok := ConnectionID(raw); ok {
			t.Error("an id where there is none")
		}
	}
}

// ConnectionBind over UDP, without credentials and as another message.
func TestConnectionBindRefused(t *testing.T) {
	w := newWorld(t, basic())
	c, _ := w.tcpClient(4000)
	raw := c.message(stun.MethodConnectionBind, stun.ClassRequest, attr{Type: stun.AttrConnectionID, Value: word(1)})
	c.path.Transport = UDP
	if _, out, r := w.table.ConnectionBind(c.path, raw, nil, w.now); r != BadRequest || len(out) == 0 {
		t.Errorf("over UDP: %v", r)
	}
	c.path.Transport, c.noIntegrity = TLS, true
	raw = c.message(stun.MethodConnectionBind, stun.ClassRequest)
	if _, out, r := w.table.ConnectionBind(c.path, raw, nil, w.now); r != Challenged || code(c.answer(raw, out, r)) != 401 {
		t.Errorf("without credentials: %v", r)
	}
	if _, out, r := w.table.ConnectionBind(c.path, c.message(stun.MethodBinding, stun.ClassRequest), nil, w.now); r != Unexpected || out != nil {
		t.Errorf("Binding: %v", r)
	}
}

// Every connection id is given once.
func TestConnectionIDs(t *testing.T) {
	w := newWorld(t, basic())
	seen := map[uint32]bool{}
	for range 1 << 17 {
		seen[w.shared.connectionID()] = true
	}
	if len(seen) != 1<<17 {
		t.Errorf("%d different ids", len(seen))
	}
}
