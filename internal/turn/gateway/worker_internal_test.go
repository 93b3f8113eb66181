package gateway

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

// byHand is a gateway whose one worker the test turns, with one allocation that has one channel.
type byHand struct {
	t            testing.TB
	w            *worker
	client, peer *udpio.Conn
	relay        netip.AddrPort
	number       uint16
}

func newByHand(t testing.TB) *byHand {
	t.Helper()
	h := &byHand{t: t, number: 0x4001, relay: netlabtest.UDPAddress(t)}
	h.client, h.peer = h.open(), h.open()
	server := netlabtest.UDPAddress(t)
	g, err := Open(Config{
		Auth:      AuthConfig{Users: []UserConfig{{Name: "user1", Password: "passwd1"}}},
		Listeners: []ListenerConfig{{Name: "udp", Protocol: UDP, Address: server.Addr(), Port: server.Port(), Routes: []string{"local"}, RelayPorts: PortRange{Min: 1024, Max: 65535}}},
		Clusters:  []ClusterConfig{{Name: "local", Endpoints: []string{"127.0.0.0/8"}}},
	}, Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	now := time.Now().UnixNano()
	end := now + int64(time.Hour)
	n, err := g.Import(t.Context(), []allocation.Record{{
		Version: allocation.RecordVersion, ID: 1, Listener: "udp", User: "user1",
		Path:  allocation.Path{Client: h.client.LocalAddr(), Server: server},
		Relay: []netip.AddrPort{h.relay}, Created: now, Expires: end, Transaction: "000000000000000000000001",
		Permissions: []allocation.PermissionRecord{{Peer: h.peer.LocalAddr().Addr(), Expires: now + int64(5*time.Minute)}},
		Channels:    []allocation.ChannelRecord{{Number: h.number, Peer: h.peer.LocalAddr(), Expires: now + int64(10*time.Minute)}},
	}})
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	h.w = g.workers[0]
	return h
}

func (h *byHand) open() *udpio.Conn {
	group, err := udpio.Listen(udpio.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), NoSegment: true})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = group.Close() })
	return group.Conn(0)
}

// exchange sends messages, has the worker relay them, and reads as many at the other end.
func (h *byHand) exchange(from *udpio.Conn, messages []udpio.Message, to *udpio.Conn, in []udpio.Message) {
	if n := from.WriteAll(messages); n != len(messages) {
		h.t.Fatalf("sent %d of %d", n, len(messages))
	}
	for got := 0; got < len(messages); {
		if err := h.w.poll(20 * time.Second); err != nil {
			h.t.Fatal(err)
		}
		n, err := to.ReadBatch(in, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		got += n
	}
}

func (h *byHand) messages(n, size int, to netip.AddrPort, channel bool) []udpio.Message {
	messages := udpio.NewMessages(n, size+4)
	for i := range messages {
		m := &messages[i]
		m.Addr, m.N = to, size
		if channel {
			binary.BigEndian.PutUint16(m.Buf, h.number)
			binary.BigEndian.PutUint16(m.Buf[2:], uint16(size))
			m.N += 4
		}
	}
	return messages
}

func TestRelayingAllocatesNothing(t *testing.T) {
	h := newByHand(t)
	in := udpio.NewMessages(64, 2048)
	up := h.messages(32, 100, h.w.listeners[0].l.server, true)
	down := h.messages(32, 100, h.relay, false)
	indication := h.messages(8, 0, h.w.listeners[0].l.server, false)
	for i := range indication {
		indication[i].Buf = sendIndication(h.peer.LocalAddr(), "hello")
		indication[i].N = len(indication[i].Buf)
	}
	for _, test := range []struct {
		name     string
		from, to *udpio.Conn
		messages []udpio.Message
	}{
		{"ChannelData up", h.client, h.peer, up},
		{"ChannelData down", h.peer, h.client, down},
		{"Send indications", h.client, h.peer, indication},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := testing.AllocsPerRun(100, func() { h.exchange(test.from, test.messages, test.to, in) })
			if n != 0 {
				t.Errorf("%v allocations for %d packets, want none", n, len(test.messages))
			}
		})
	}
}

// sendIndication is a Send indication to an IPv4 peer (RFC 8656 section 11.1).
func sendIndication(peer netip.AddrPort, payload string) []byte {
	ip := peer.Addr().As4()
	b := []byte{0x00, 0x16, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x00, 0x12, 0, 8, 0, 1}
	b = binary.BigEndian.AppendUint16(b, peer.Port()^0x2112)
	b = binary.BigEndian.AppendUint32(b, binary.BigEndian.Uint32(ip[:])^0x2112a442)
	b = append(b, 0x00, 0x13, 0, byte(len(payload)))
	b = append(b, payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-20))
	return b
}

// Whatever a client with an allocation, a client without, or a peer sends: no panic, and what waits fits.
func FuzzDatagrams(f *testing.F) {
	f.Add([]byte("\x40\x01\x00\x05hello"), uint16(0))
	f.Add([]byte("\x40\x01\x00\x04abcd\x40\x01\x00\x02ab\x00\x00"), uint16(8))
	f.Add(sendIndication(netip.MustParseAddrPort("127.0.0.1:9"), "hello"), uint16(0))
	f.Add([]byte("\x00\x03\x00\x00\x21\x12\xa4\x42abcdefghijkl"), uint16(0))
	f.Add([]byte{}, uint16(3))
	f.Add([]byte{0x40}, uint16(1))
	h := newByHand(f)
	d := h.w.listeners[0]
	stranger := netip.MustParseAddrPort("127.0.0.1:9")
	f.Fuzz(func(t *testing.T, b []byte, segment uint16) {
		if len(b) > longest {
			return
		}
		for _, from := range []netip.AddrPort{h.client.LocalAddr(), stranger} {
			m := udpio.Message{Buf: append([]byte(nil), b...), N: len(b), Addr: from, Segment: int(segment)}
			h.w.fromClient(d, &m)
			h.w.flush()
		}
		c := h.w.clientAt(d, h.client.LocalAddr(), d.l.server)
		if c == nil {
			t.Skip("the allocation was ended by chance") // needs the password
		}
		for _, from := range []netip.AddrPort{h.peer.LocalAddr(), stranger} {
			m := udpio.Message{Buf: b, N: len(b), Addr: from, Segment: int(segment)}
			number, reason := c.a.Inbound(from, h.w.now)
			h.w.fromPeer(c, &m, number, reason)
			h.w.flush()
		}
		h.w.endPoll()
	})
}

func BenchmarkRelay(b *testing.B) {
	h := newByHand(b)
	in := udpio.NewMessages(64, 2048)
	up := h.messages(32, 100, h.w.listeners[0].l.server, true)
	b.ReportAllocs()
	for b.Loop() {
		h.exchange(h.client, up, h.peer, in)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/packet")
}
