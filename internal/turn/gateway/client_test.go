package gateway_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// attr adds one attribute to a request.
type attr func(m *stun.Message) error

func (a attr) AddTo(m *stun.Message) error { return a(m) }

func raw(kind stun.AttrType, value ...byte) stun.Setter {
	return attr(func(m *stun.Message) error { m.Add(kind, value); return nil })
}

func peerAttr(peer netip.AddrPort) stun.Setter {
	return attr(func(m *stun.Message) error {
		a := stun.XORMappedAddress{IP: peer.Addr().AsSlice(), Port: int(peer.Port())}
		return a.AddToAs(m, stun.AttrXORPeerAddress)
	})
}

func lifetime(seconds uint32) stun.Setter {
	return raw(stun.AttrLifetime, binary.BigEndian.AppendUint32(nil, seconds)...)
}

func channelNumber(n uint16) stun.Setter {
	return raw(stun.AttrChannelNumber, byte(n>>8), byte(n), 0, 0)
}

var udpTransport = raw(stun.AttrRequestedTransport, 17, 0, 0, 0)

// turnClient sends TURN by hand over a connected UDP socket (an answer from another address never arrives), or over a
// framedConn.
type turnClient struct {
	t            testing.TB
	conn         net.Conn
	realm, nonce string
	user, pass   string
	relays       []netip.AddrPort
	got          chan []byte // ChannelData and indications
	answers      chan *stun.Message
}

func dial(t testing.TB, server netip.AddrPort) *turnClient {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, conn)
}

func newClient(t testing.TB, conn net.Conn) *turnClient {
	c := &turnClient{
		t: t, conn: conn, user: "user1", pass: "passwd1",
		got: make(chan []byte, 10000), answers: make(chan *stun.Message, 100),
	}
	done := make(chan struct{})
	go func() { defer close(done); c.read() }()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return c
}

func (c *turnClient) read() {
	buf := make([]byte, 1<<16)
	for {
		n, err := c.conn.Read(buf)
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // the gateway restarts
		}
		b := append([]byte(nil), buf[:n]...)
		m := &stun.Message{Raw: b}
		if stun.IsMessage(b) && m.Decode() == nil && m.Type.Class != stun.ClassIndication {
			c.answers <- m
			continue
		}
		c.got <- b
	}
}

// request sends a request until it is answered.
func (c *turnClient) request(method stun.Method, attrs ...stun.Setter) *stun.Message {
	c.t.Helper()
	for {
		all := append([]stun.Setter{stun.TransactionID, stun.NewType(method, stun.ClassRequest)}, attrs...)
		if c.nonce != "" {
			all = append(all, stun.NewUsername(c.user), stun.NewRealm(c.realm), stun.NewNonce(c.nonce),
				stun.NewLongTermIntegrity(c.user, c.realm, c.pass))
		}
		m, err := stun.Build(all...)
		if err != nil {
			c.t.Fatal(err)
		}
		answer := c.exchange(m)
		code := codeOf(answer)
		if code != 401 && code != 438 || c.nonce != "" && code == 401 {
			return answer
		}
		var realm stun.Realm
		var nonce stun.Nonce
		if realm.GetFrom(answer) != nil || nonce.GetFrom(answer) != nil {
			c.t.Fatalf("no realm and nonce in %v", answer)
		}
		c.realm, c.nonce = realm.String(), nonce.String()
	}
}

func (c *turnClient) exchange(m *stun.Message) *stun.Message {
	c.t.Helper()
	for range 40 {
		_, _ = c.conn.Write(m.Raw)
		timer := time.NewTimer(500 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case answer := <-c.answers:
				if answer.TransactionID == m.TransactionID {
					return answer
				}
			case <-timer.C:
				waiting = false
			}
		}
	}
	c.t.Fatalf("no answer to %v", m.Type)
	return nil
}

func codeOf(m *stun.Message) int {
	var code stun.ErrorCodeAttribute
	if m.Type.Class != stun.ClassErrorResponse || code.GetFrom(m) != nil {
		return 0
	}
	return int(code.Code)
}

func (c *turnClient) must(method stun.Method, attrs ...stun.Setter) *stun.Message {
	c.t.Helper()
	m := c.request(method, attrs...)
	if code := codeOf(m); code != 0 {
		c.t.Fatalf("%v was answered %d", method, code)
	}
	return m
}

// allocate makes the allocation and notes its relay addresses.
func (c *turnClient) allocate(attrs ...stun.Setter) {
	c.t.Helper()
	m := c.must(stun.MethodAllocate, append([]stun.Setter{udpTransport}, attrs...)...)
	c.relays = nil
	for _, a := range m.Attributes {
		if a.Type != stun.AttrXORRelayedAddress {
			continue
		}
		one := &stun.Message{TransactionID: m.TransactionID, Attributes: stun.Attributes{a}}
		var addr stun.XORMappedAddress
		if err := addr.GetFromAs(one, stun.AttrXORRelayedAddress); err != nil {
			c.t.Fatal(err)
		}
		ip, _ := netip.AddrFromSlice(addr.IP)
		c.relays = append(c.relays, netip.AddrPortFrom(ip.Unmap(), uint16(addr.Port)))
	}
}

func (c *turnClient) bind(number uint16, peer netip.AddrPort) {
	c.t.Helper()
	c.must(stun.MethodChannelBind, channelNumber(number), peerAttr(peer))
}

// send sends ChannelData.
func (c *turnClient) send(number uint16, payload string) {
	b := binary.BigEndian.AppendUint16(nil, number)
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	_, _ = c.conn.Write(append(b, payload...))
}

// indicate sends a Send indication.
func (c *turnClient) indicate(peer netip.AddrPort, payload string) {
	c.t.Helper()
	m, err := stun.Build(stun.TransactionID, stun.NewType(stun.MethodSend, stun.ClassIndication), peerAttr(peer), raw(stun.AttrData, []byte(payload)...))
	if err != nil {
		c.t.Fatal(err)
	}
	_, _ = c.conn.Write(m.Raw)
}

// receive returns the next ChannelData or indication.
func (c *turnClient) receive() []byte {
	c.t.Helper()
	select {
	case b := <-c.got:
		return b
	case <-time.After(20 * time.Second):
		c.t.Fatal("nothing came")
		return nil
	}
}

func (c *turnClient) wantChannelData(number uint16, payload string) {
	c.t.Helper()
	b := c.receive()
	if len(b) < 4 || binary.BigEndian.Uint16(b) != number || int(binary.BigEndian.Uint16(b[2:])) != len(payload) || string(b[4:]) != payload {
		c.t.Fatalf("got %.60q (%d bytes), want %d bytes on channel %#x", b, len(b), len(payload), number)
	}
}
