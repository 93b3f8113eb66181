package gateway_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// fuzzListeners is a gateway with a listener of each kind, and an attacker's connection to each.
type fuzzListeners struct {
	t       testing.TB
	g       *gateway.Gateway
	servers map[gateway.Protocol]netip.AddrPort
	conns   map[gateway.Protocol]net.Conn
	client  *turnClient // an honest one, with a channel
	peer    *net.UDPConn
	raw     net.Conn // to the DTLS listener, without DTLS
}

func everyKind() []gateway.Protocol {
	return []gateway.Protocol{gateway.UDP, gateway.TCP, gateway.TLS, gateway.DTLS}
}

func newFuzzListeners(t testing.TB) *fuzzListeners {
	d := &fuzzListeners{t: t, servers: map[gateway.Protocol]netip.AddrPort{}, conns: map[gateway.Protocol]net.Conn{}}
	c := streamConfig(gateway.TCP, "127.0.0.1", 1)
	one := c.Listeners[0]
	c.Listeners = nil
	c.Limits = gateway.LimitConfig{Unauthenticated: 1 << 20, UnauthenticatedTotal: 1 << 20}
	for _, protocol := range everyKind() {
		one.Name, one.Protocol, one.Port, one.SelfSigned = string(protocol), protocol, netlabtest.UDPPort(t), protocol.Secure()
		c.Listeners = append(c.Listeners, one)
		d.servers[protocol] = netip.AddrPortFrom(one.Address, one.Port)
	}
	d.g = start(t, c, gateway.Options{Workers: 2})
	d.peer = listenUDP(t, peerAddress)
	d.client = dial(t, d.servers[gateway.UDP])
	d.client.allocate()
	d.client.bind(0x4001, addrOf(d.peer))
	conn, err := net.Dial("udp", d.servers[gateway.DTLS].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	d.raw = conn
	return d
}

// attack writes to a listener, over a new connection where the gateway has ended the one before.
func (d *fuzzListeners) attack(protocol gateway.Protocol, b []byte) {
	for range 2 {
		conn := d.conns[protocol]
		if conn == nil {
			conn = d.connect(protocol)
			d.conns[protocol] = conn
		}
		_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Write(b); err == nil {
			return
		}
		_ = conn.Close()
		d.conns[protocol] = nil
	}
}

func (d *fuzzListeners) connect(protocol gateway.Protocol) net.Conn {
	server := d.servers[protocol]
	switch protocol {
	case gateway.TCP, gateway.TLS:
		return connectStream(d.t, server, protocol == gateway.TLS)
	case gateway.DTLS:
		conn := dialDTLS(d.t, listenUDP(d.t, "127.0.0.1"), server)
		d.t.Cleanup(func() { _ = conn.Close() }) // says goodbye: it is no guest any more
		return conn
	default:
		conn, err := net.Dial("udp", server.String())
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// serves says whether every listener still answers, and the honest client's channel still carries.
func (d *fuzzListeners) serves() {
	d.t.Helper()
	for _, protocol := range everyKind() {
		conn := d.connect(protocol)
		binding(d.t, conn)
		_ = conn.Close()
	}
	d.client.send(0x4001, "still here")
	wantFrom(d.t, d.peer, "still here")
}

// templates are messages that lead deep into the server once they are well formed.
func (d *fuzzListeners) templates() [][]byte {
	c := d.client
	known := []stun.Setter{stun.NewUsername(c.user), stun.NewRealm(c.realm), stun.NewNonce(c.nonce), stun.NewLongTermIntegrity(c.user, c.realm, c.pass)}
	signed := func(method stun.Method, attrs ...stun.Setter) []byte {
		all := append([]stun.Setter{stun.TransactionID, stun.NewType(method, stun.ClassRequest)}, attrs...)
		return stun.MustBuild(append(all, known...)...).Raw
	}
	peer := peerAttr(addrOf(listenUDP(d.t, "127.77.0.2"))) // some of it arrives
	return [][]byte{
		stun.MustBuild(stun.TransactionID, stun.BindingRequest, stun.Fingerprint).Raw,
		stun.MustBuild(stun.TransactionID, stun.NewType(stun.MethodAllocate, stun.ClassRequest), udpTransport).Raw,
		stun.MustBuild(stun.TransactionID, stun.NewType(stun.MethodSend, stun.ClassIndication), peer, raw(stun.AttrData, make([]byte, 100)...)).Raw,
		signed(stun.MethodAllocate, udpTransport, raw(stun.AttrEvenPort, 0x80)),
		signed(stun.MethodAllocate, tcpTransport),
		signed(stun.MethodRefresh, lifetime(600)),
		signed(stun.MethodCreatePermission, peer),
		signed(stun.MethodChannelBind, channelNumber(0x4001), peer),
		signed(stun.MethodConnect, peer),
		signed(stun.MethodConnectionBind, raw(stun.AttrConnectionID, 0, 0, 0, 1)),
		{0x40, 0x01, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8},
		{22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	}
}

// spoil changes some bytes of a message, or its length.
func spoil(random *rand.Rand, b []byte) []byte {
	b = append([]byte(nil), b...)
	for range random.IntN(4) {
		b[random.IntN(len(b))] = byte(random.Uint32())
	}
	switch random.IntN(6) {
	case 0:
		b = b[:random.IntN(len(b)+1)]
	case 1:
		for range random.IntN(1200) {
			b = append(b, byte(random.Uint32()))
		}
	case 2:
		if len(b) >= 4 {
			binary.BigEndian.PutUint16(b[2:], uint16(random.Uint32()))
		}
	}
	return b
}

// Thousands of messages that are almost right go to every listener, inside of TLS and DTLS and without it; all of them go on
// serving, and nothing is left once the attackers are gone.
func TestEveryListenerStandsJunk(t *testing.T) {
	d := newFuzzListeners(t)
	random := rand.New(rand.NewPCG(1, 5))
	templates := d.templates()
	for round := range 8 {
		for range 100 {
			for _, protocol := range everyKind() {
				d.attack(protocol, spoil(random, templates[random.IntN(len(templates))]))
			}
			_, _ = d.raw.Write(spoil(random, templates[random.IntN(len(templates))]))
		}
		if round%4 == 3 {
			d.serves()
		}
	}
	for _, conn := range d.conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
	netlabtest.Eventually(t, "the attackers' connections are gone", func() bool {
		s := d.g.Stats()
		for i := range s.Listeners {
			if s.Listeners[i].Connections > 0 {
				return false
			}
		}
		return true
	})
}

// FuzzListeners sends anything to every listener of a gateway that runs.
func FuzzListeners(f *testing.F) {
	d := newFuzzListeners(f)
	for _, b := range d.templates() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d.t, d.client.t = t, t
		clear(d.conns) // they end with their test
		if len(b) > 1400 {
			b = b[:1400]
		}
		for _, protocol := range everyKind() {
			d.attack(protocol, b)
		}
		_, _ = d.raw.Write(b)
		d.client.send(0x4001, "still here")
		wantFrom(d.t, d.peer, "still here")
	})
}
