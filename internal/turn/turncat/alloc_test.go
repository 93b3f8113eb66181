package turncat

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

// bench is a worker with one client whose session is ready, by hand, and the sockets around it.
type bench struct {
	w            *worker
	l            *link
	user, server *net.UDPConn
	now          int64
}

func newBench(t testing.TB) *bench {
	t.Helper()
	local := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0"))
	server, err := net.ListenUDP("udp", local)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := Open(t.Context(), Config{
		Listen: Endpoint{Kind: KindUDP, Host: "127.0.0.1"}, Server: Server{Host: "127.0.0.1", Port: server.LocalAddr().(*net.UDPAddr).AddrPort().Port(), Transport: UDP},
		Peer: Endpoint{Kind: KindUDP, Host: "127.0.0.1", Port: 9}, Credentials: Static("u", "p"),
	})
	if err != nil {
		t.Fatal(err)
	}
	tunnel.ctx = t.Context()
	user, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(tunnel.group.LocalAddr()))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{w: tunnel.workers[0], user: user, server: server, now: time.Now().UnixNano()}
	t.Cleanup(func() {
		b.w.drop(b.l)
		_ = tunnel.group.Close()
		b.w.poller.Close()
		user.Close()
		server.Close()
	})
	c := &client{addr: user.LocalAddr().(*net.UDPAddr).AddrPort()}
	b.w.clients[c.addr] = c
	b.w.add(c, b.now)
	b.l = c.link
	b.l.session.stage, b.l.session.pending = ready, false
	buffer := make([]byte, 1500)
	if _, _, err := server.ReadFromUDPAddrPort(buffer); err != nil { // its Allocate
		t.Fatal(err)
	}
	return b
}

// up sends datagrams of a client, has the worker move them, and reads them as the server.
func (b *bench) up(t testing.TB, data, buffer []byte, n int) {
	for range n {
		if _, err := b.user.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.w.readNear(b.now); err != nil {
		t.Fatal(err)
	}
	for range n {
		got, err := b.server.Read(buffer)
		if err != nil || got != headerBytes+len(data) {
			t.Fatalf("%d bytes, %v", got, err)
		}
	}
}

func (b *bench) down(t testing.TB, to netip.AddrPort, frame, buffer []byte, n int) {
	for range n {
		if _, err := b.server.WriteToUDPAddrPort(frame, to); err != nil {
			t.Fatal(err)
		}
	}
	b.w.readServer(b.l, b.now)
	for range n {
		if got, err := b.user.Read(buffer); err != nil || got != len(frame)-headerBytes {
			t.Fatalf("%d bytes, %v", got, err)
		}
	}
}

func TestNothingIsAllocatedPerPacket(t *testing.T) {
	b := newBench(t)
	data, buffer := make([]byte, 1200), make([]byte, 2048)
	b.user.SetReadDeadline(time.Now().Add(time.Minute))
	b.server.SetReadDeadline(time.Now().Add(time.Minute))
	if n := testing.AllocsPerRun(200, func() { b.up(t, data, buffer, 8) }); n > 0 {
		t.Errorf("client to server: %v allocations for 8 datagrams", n)
	}
	frame := make([]byte, headerBytes+1200)
	requests.PutChannelHeader(frame, 1200)
	to := b.l.conn.LocalAddr()
	if n := testing.AllocsPerRun(200, func() { b.down(t, to, frame, buffer, 8) }); n > 0 {
		t.Errorf("server to client: %v allocations for 8 datagrams", n)
	}
	if s := b.w.t.Stats(); s.UpPackets < 1600 || s.DownPackets < 1600 || s.Strays != 0 {
		t.Errorf("%+v", s)
	}
}

// Runs that the kernel hands over in one piece (UDP_GRO) come out as the datagrams that they were.
func TestCoalescedRuns(t *testing.T) {
	b := newBench(t)
	group, err := udpio.Listen(udpio.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Peer: b.w.near.LocalAddr()})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	b.w.clients[group.LocalAddr()] = b.w.clients[b.user.LocalAddr().(*net.UDPAddr).AddrPort()]
	b.w.clients[group.LocalAddr()].addr = group.LocalAddr()
	messages := udpio.NewMessages(40, 700)
	for i := range messages {
		messages[i].N = 700
		messages[i].Buf[0] = byte(i)
	}
	messages[39].N = 300
	if n := group.Conn(0).WriteAll(messages); n != 40 || group.Stats().Segmented == 0 {
		t.Fatalf("%d sent, %+v", n, group.Stats())
	}
	b.server.SetReadDeadline(time.Now().Add(time.Minute))
	for b.w.counters.upPackets.Load() < 40 {
		if err := b.w.readNear(b.now); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 2048)
	for i := range 40 {
		n, err := b.server.Read(buffer)
		data, ok := requests.ChannelData(buffer[:n])
		if err != nil || !ok || data[0] != byte(i) || len(data) != messages[i].N {
			t.Fatalf("datagram %d: %d bytes, %v, %v", i, n, ok, err)
		}
	}
}
