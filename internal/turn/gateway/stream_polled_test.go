package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/pion/stun/v4"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// polledHand is a gateway with a TCP listener whose one worker the test turns, by a clock that the test sets.
type polledHand struct {
	t      testing.TB
	g      *Gateway
	w      *worker
	s      *streamServer
	server netip.AddrPort
	now    int64
}

func newPolledHand(t testing.TB) *polledHand {
	t.Helper()
	h := &polledHand{t: t, server: netlabtest.UDPAddress(t), now: int64(time.Hour)}
	g, err := Open(Config{
		Auth:      AuthConfig{Users: []UserConfig{{Name: "user1", Password: "passwd1"}}},
		Listeners: []ListenerConfig{{Name: "tcp", Protocol: TCP, Address: h.server.Addr(), Port: h.server.Port(), Routes: []string{"local"}, RelayPorts: PortRange{Min: 1024, Max: 65535}}},
		Clusters:  []ClusterConfig{{Name: "local", Endpoints: []string{"127.0.0.0/8"}}},
	}, Options{Workers: 1, Now: func() int64 { return h.now }})
	if err != nil {
		t.Fatal(err)
	}
	h.g, h.w, h.s = g, g.workers[0], g.listeners[0].stream
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if n := g.streams.guests.size() + g.streams.connections.size() + int(g.listeners[0].connections.Load()) + len(h.s.conns); n != 0 {
			t.Errorf("%d connections are counted after the end", n)
		}
	})
	return h
}

// until turns the worker until something is true.
func (h *polledHand) until(what string, is func() bool) {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); {
		if err := h.w.poll(10 * time.Millisecond); err != nil {
			h.t.Fatal(err)
		}
		if time.Now().After(end) {
			h.t.Fatalf("did not happen within 20 s: %s", what)
		}
	}
}

// after lets time go by.
func (h *polledHand) after(d time.Duration) {
	h.t.Helper()
	h.now += int64(d)
	if err := h.w.poll(0); err != nil {
		h.t.Fatal(err)
	}
}

func (h *polledHand) count(r streamReason) uint64 { return h.s.counts[r].Load() }

// polledClient is a client and its connection in the gateway.
type polledClient struct {
	h       *polledHand
	conn    *net.TCPConn
	c       *polledConn
	peer    *net.UDPConn
	request []stun.Setter // that sign
}

func (h *polledHand) dial() *polledClient {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.server.String())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	p := &polledClient{h: h, conn: conn.(*net.TCPConn)}
	h.until("the worker has the connection", func() bool {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		for c := range h.s.conns {
			if c := c.(*polledConn); c.path.Client == conn.LocalAddr().(*net.TCPAddr).AddrPort() {
				p.c = c
			}
		}
		return p.c != nil && p.c.watched
	})
	return p
}

// ask sends a request and returns its answer.
func (p *polledClient) query(method stun.Method, attrs ...stun.Setter) *stun.Message {
	p.h.t.Helper()
	m := stun.MustBuild(append(append([]stun.Setter{stun.TransactionID, stun.NewType(method, stun.ClassRequest)}, attrs...), p.request...)...)
	if _, err := p.conn.Write(m.Raw); err != nil {
		p.h.t.Fatal(err)
	}
	p.h.until("the request is read", func() bool { return p.readable() || p.c.ended })
	return p.answer()
}

func (p *polledClient) readable() bool { return readable(descriptor(p.h.t, p.conn)) }

func readable(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err == nil && n > 0
}

func (p *polledClient) answer() *stun.Message {
	p.h.t.Helper()
	head := make([]byte, stunHeader)
	if _, err := io.ReadFull(p.conn, head); err != nil {
		p.h.t.Fatal(err)
	}
	m := &stun.Message{Raw: append(head, make([]byte, binary.BigEndian.Uint16(head[2:]))...)}
	if _, err := io.ReadFull(p.conn, m.Raw[stunHeader:]); err != nil {
		p.h.t.Fatal(err)
	}
	if err := m.Decode(); err != nil {
		p.h.t.Fatal(err)
	}
	return m
}

// allocate makes an allocation with a channel to a peer of its own.
func (p *polledClient) allocate(number uint16) (relay netip.AddrPort) {
	p.h.t.Helper()
	peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 77, 0, 1)})
	if err != nil {
		p.h.t.Fatal(err)
	}
	p.h.t.Cleanup(func() { _ = peer.Close() })
	_ = peer.SetDeadline(time.Now().Add(time.Minute))
	p.peer = peer
	transport := stun.RawAttribute{Type: stun.AttrRequestedTransport, Value: []byte{17, 0, 0, 0}}
	var realm stun.Realm
	var nonce stun.Nonce
	refused := p.query(stun.MethodAllocate, transport)
	if realm.GetFrom(refused) != nil || nonce.GetFrom(refused) != nil {
		p.h.t.Fatalf("no realm and nonce in %v", refused)
	}
	p.request = []stun.Setter{stun.NewUsername("user1"), realm, nonce, stun.NewLongTermIntegrity("user1", realm.String(), "passwd1")}
	m := p.query(stun.MethodAllocate, transport)
	var at stun.XORMappedAddress
	if err := at.GetFromAs(m, stun.AttrXORRelayedAddress); err != nil {
		p.h.t.Fatal(m, err)
	}
	if !p.c.owner {
		p.h.t.Fatal("the connection does not know of its allocation")
	}
	to := peer.LocalAddr().(*net.UDPAddr)
	m = p.query(stun.MethodChannelBind, stun.RawAttribute{Type: stun.AttrChannelNumber, Value: []byte{byte(number >> 8), byte(number), 0, 0}}, xorPeer{to})
	if m.Type.Class != stun.ClassSuccessResponse {
		p.h.t.Fatal(m)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(at.Port))
}

type xorPeer struct{ *net.UDPAddr }

func (x xorPeer) AddTo(m *stun.Message) error {
	a := stun.XORMappedAddress{IP: x.IP, Port: x.Port}
	return a.AddToAs(m, stun.AttrXORPeerAddress)
}

func (p *polledClient) ended(reason streamReason) {
	p.h.t.Helper()
	before := p.h.count(reason)
	p.h.until("the connection ends: "+reason.String(), func() bool { return !p.c.socket.IsOpen() })
	if p.h.count(reason) != max(before, 1) {
		p.h.t.Errorf("%s is counted %d times", reason, p.h.count(reason))
	}
	if p.c.worker.table.Find(p.c.path) != nil {
		p.h.t.Error("the allocation outlives its connection")
	}
}

// However the network cuts the messages of a client, each is handled once, as soon as it is whole.
func TestPolledFramesCutAtEveryByte(t *testing.T) {
	h := newPolledHand(t)
	p := h.dial()
	p.allocate(0x4001)
	parts := [][]byte{
		channelFrame(0x4001, []byte("odd")), sendIndication(p.peer.LocalAddr().(*net.UDPAddr).AddrPort(), "by indication"),
		stun.MustBuild(stun.TransactionID, stun.BindingRequest).Raw, channelFrame(0x4001, []byte("the last one")),
	}
	stream := bytes.Join(parts, nil)
	for cut := 1; cut < len(stream); cut++ {
		tail := stream[:cut]
		for size, _ := frameSize(tail); size > 0 && size <= len(tail); size, _ = frameSize(tail) {
			tail = tail[size:]
		}
		for i, rest := range []int{len(tail), 0} {
			if _, err := p.conn.Write([][]byte{stream[:cut], stream[cut:]}[i]); err != nil {
				t.Fatal(err)
			}
			h.until("the piece is read", func() bool { return unread(p.c) == 0 && len(p.c.frames.rest) == rest })
		}
		buf := make([]byte, 100)
		for _, want := range []string{"odd", "by indication", "the last one"} {
			if n, err := p.peer.Read(buf); err != nil || string(buf[:n]) != want {
				t.Fatalf("cut at %d: %q, %v; want %q", cut, buf[:n], err, want)
			}
		}
		if m := p.answer(); m.Type.Class != stun.ClassSuccessResponse {
			t.Fatalf("cut at %d: %v", cut, m)
		}
	}
}

func unread(c *polledConn) int {
	n, _ := unix.IoctlGetInt(c.socket.FD(), unix.TIOCINQ)
	return n
}

// A client has guestTime for its allocation, however it drips its bytes; with one it may stay, and without one again it has
// guestTime again.
func TestPolledGuestTime(t *testing.T) {
	h := newPolledHand(t)
	drip, owner := h.dial(), h.dial()
	owner.allocate(0x4001)
	frame := stunFrame(1000)
	for i := range 29 {
		if _, err := drip.conn.Write(frame[i : i+1]); err != nil {
			t.Fatal(err)
		}
		h.until("the byte is read", func() bool { return len(drip.c.frames.rest) == i+1 })
		h.after(time.Second)
	}
	if drip.c.ended {
		t.Fatal("cut before its time")
	}
	if wait := h.w.pollTimeout(); wait > time.Second {
		t.Errorf("the worker would sleep for %v", wait)
	}
	h.after(time.Second)
	drip.ended(guestTimeout)
	h.after(4 * time.Minute)
	if owner.c.ended || h.g.streams.guests.size() != 0 {
		t.Error("a client with an allocation was cut, or counts as a guest")
	}
	owner.query(stun.MethodRefresh, stun.RawAttribute{Type: stun.AttrLifetime, Value: []byte{0, 0, 0, 0}})
	h.after(guestTime - 1)
	if owner.c.ended || h.g.streams.guests.size() != 1 {
		t.Error("a client whose allocation has ended is no guest again")
	}
	h.after(1)
	owner.ended(guestTimeout)
	if _, err := owner.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v", err)
	}
}

// Of a client that does not read, user data is dropped beyond the bound and answers are kept a little longer; when it reads
// again, it gets all that was taken, in order.
func TestPolledSlowClient(t *testing.T) {
	h := newPolledHand(t)
	p := h.dial()
	p.allocate(0x4001)
	payload := make([]byte, 1201)
	sent, refused := 0, 0
	for refused < 3 {
		binary.BigEndian.PutUint32(payload, uint32(sent))
		var head [4]byte
		allocation.PutChannelHeader(head[:], 0x4001, len(payload))
		if p.c.deliver(head[:], payload) {
			sent++
		} else {
			refused++
		}
		p.c.flush()
	}
	if waits := len(p.c.out.rest()); waits > queueBytes || waits < queueBytes-2*len(payload) {
		t.Errorf("%d bytes wait", waits)
	}
	if !p.c.deliver(stunFrame(8), nil) {
		t.Error("no room for an answer")
	}
	h.after(writeTimeout - 1)
	if p.c.ended {
		t.Fatal("cut before its time")
	}
	got, answered := 0, make(chan error, 1)
	go func() {
		frame := make([]byte, 4+(len(payload)+3)&^3)
		for ; got < sent; got++ {
			if _, err := io.ReadFull(p.conn, frame); err != nil {
				answered <- err
				return
			}
			if int(binary.BigEndian.Uint32(frame[4:])) != got {
				answered <- errors.New("out of order")
				return
			}
		}
		_, err := io.ReadFull(p.conn, frame[:28])
		answered <- err
	}()
	h.until("all is written", func() bool { return p.c.out.block == nil })
	if err := <-answered; err != nil || p.c.out.waiting || p.c.writeEnd.at != 0 {
		t.Errorf("message %d of %d: %v; waiting %v until %d", got, sent, err, p.c.out.waiting, p.c.writeEnd.at)
	}
	h.after(writeTimeout) // of before
	if p.c.ended {
		t.Error("a client that reads again was cut")
	}
}

// A client that takes nothing is cut after writeTimeout, one that takes little when it has not taken in time what waited.
func TestPolledWriteTimeout(t *testing.T) {
	h := newPolledHand(t)
	for _, takes := range []int{0, 100} {
		p := h.dial()
		p.allocate(0x4001)
		for p.c.deliver([]byte{0x40, 1, 4, 0xAC}, make([]byte, 1196)) {
			p.c.flush()
		}
		for range 4 {
			if _, err := io.ReadFull(p.conn, make([]byte, takes)); err != nil {
				t.Fatal(err)
			}
			h.after(writeTimeout/4 - 1)
		}
		if p.c.ended {
			t.Fatal("cut before its time")
		}
		h.after(4)
		before := h.count(clientSlow)
		p.ended(clientSlow)
		if before != h.count(clientSlow) {
			t.Error("not cut by the time alone")
		}
	}
}

// A client that leaves its answers unread is cut.
func TestPolledAnswersUnread(t *testing.T) {
	h := newPolledHand(t)
	p := h.dial()
	p.allocate(0x4001)
	for answer := stunFrame(200); p.c.deliver(answer, nil); {
		p.c.flush()
	}
	if waits := len(p.c.out.rest()); waits > queueBytes+queueAnswerBytes || !p.c.ended {
		t.Errorf("%d bytes wait, ended %v", waits, p.c.ended)
	}
	p.ended(clientSlow)
}

// What a listener closes before its worker ever ran is gone as well.
func TestPolledCloseBeforeRun(t *testing.T) {
	h := newPolledHand(t)
	var conns []net.Conn
	for range 5 {
		conn, err := net.Dial("tcp", h.server.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for end := time.Now().Add(20 * time.Second); h.g.listeners[0].connections.Load() < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connections are not accepted")
		}
	}
	if err := h.g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, unix.EAGAIN) {
			t.Errorf("a connection outlives the gateway: %v", err)
		}
	}
}

// An accepted socket has the options of the listening one: a client that is gone is found.
func TestPolledSocketOptions(t *testing.T) {
	p := newPolledHand(t).dial()
	for _, o := range []struct{ level, option, want int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30000},
	} {
		if got, err := unix.GetsockoptInt(p.c.socket.FD(), o.level, o.option); got != o.want || err != nil {
			t.Errorf("option %d of level %d is %d, want %d: %v", o.option, o.level, got, o.want, err)
		}
	}
}

// Relaying over TCP allocates nothing, in either direction.
func TestPolledRelayingAllocatesNothing(t *testing.T) {
	h := newPolledHand(t)
	p := h.dial()
	relay := p.allocate(0x4001)
	frame, buf := bytes.Repeat(channelFrame(0x4001, make([]byte, 160)), 8), make([]byte, 4096)
	peerFD, connFD := descriptor(t, p.peer), descriptor(t, p.conn)
	up := func() {
		if _, err := p.conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			for !readable(peerFD) {
				_ = h.w.poll(10 * time.Millisecond)
			}
			if _, err := p.peer.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	down := func() {
		for range 8 {
			if _, err := p.peer.WriteToUDPAddrPort(frame[4:164], relay); err != nil {
				t.Fatal(err)
			}
		}
		for got := 0; got < len(frame); {
			for !readable(connFD) {
				_ = h.w.poll(10 * time.Millisecond)
			}
			n, err := p.conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	for name, f := range map[string]func(){"up": up, "down": down} {
		least := 1000.0
		for range 50 { // a pool is emptied when memory is collected, and drops some under the race detector
			least = min(least, testing.AllocsPerRun(1, f))
		}
		if least > 0 {
			t.Errorf("%s: at least %v allocations for 8 packets", name, least)
		}
	}
}

func descriptor(t testing.TB, conn syscall.Conn) (at int) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { at = int(fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}
