package tcpscale

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var clientDefaults = ClientConfig{
	InFlight: 64, Heartbeat: time.Second, Misses: 3, Timeout: 5 * time.Second, BackoffMin: 100 * time.Millisecond, BackoffMax: time.Second,
}

// pair is a server and a client on loopback whose time is the test's.
type pair struct {
	t      *testing.T
	server *Server
	client *Client
	now    time.Duration
	events [256]unix.EpollEvent
}

func newPair(t *testing.T, change func(*ClientConfig, *ServerConfig)) *pair {
	t.Helper()
	listen, release, err := Reserve(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	server, client := ServerConfig{Listen: []netip.AddrPort{listen}, ID: "one", Zone: "z", Backlog: 1024}, clientDefaults
	client.Targets, client.Connections, client.Run = server.Listen, 100, 0xabc
	change(&client, &server)
	p := &pair{t: t}
	if p.server, err = NewServer(server); err != nil {
		t.Fatal(err)
	}
	if p.client, err = NewClient(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.server.Close() // first: no program serves it any more, and the client would wait
		p.client.Close()
	})
	return p
}

// poll lets the engines do what the kernel has for them, without time passing.
func (p *pair) poll(engines ...engine) (busy bool) {
	for _, e := range engines {
		n, err := unix.EpollWait(e.descriptor(), p.events[:], 1)
		if err != nil && err != unix.EINTR {
			p.t.Fatal(err)
		}
		if n > 0 {
			busy = true
			e.handle(p.events[:n], p.now)
		}
		e.advance(p.now)
	}
	return busy
}

// until polls at a standstill of time until done says so.
func (p *pair) until(what string, done func() bool, engines ...engine) {
	p.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !done() {
		p.poll(engines...)
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: client %+v, server %+v", what, p.client.count, p.server.count)
		}
	}
}

func (p *pair) up() {
	p.t.Helper()
	n := p.client.config.Connections
	p.until("all established", func() bool {
		return p.client.count.connections.Established == n && p.server.count.connections.Established == n
	}, p.client, p.server)
}

// pass lets time go on in ticks, both ends served at each until what is under way has arrived.
func (p *pair) pass(d time.Duration, engines ...engine) {
	for end := p.now + d; p.now < end; {
		p.now += tick
		deadline := time.Now().Add(60 * time.Second)
		for p.poll(engines...) || len(engines) == 2 && p.owed() && time.Now().Before(deadline) {
		}
	}
}

// serverStands lets time go on for the client alone. The server's kernel goes on acknowledging what is sent, as late as it
// likes: each tick waits for that.
func (p *pair) serverStands(d time.Duration) {
	p.t.Helper()
	for end := p.now + d; p.now < end; {
		p.pass(tick, p.client)
		p.until("the acknowledgements", func() bool { return !p.unacknowledged() })
	}
}

func (p *pair) unacknowledged() bool {
	for i := range p.client.fresh {
		if s := p.client.slots.at(i); s.state >= slotHello && silence(s.fd) != Hung {
			return true
		}
	}
	return false
}

// owed says whether an answer is under way: under other load the kernel may take longer to deliver it than a tick takes here,
// and a whole period would pass meanwhile.
func (p *pair) owed() bool {
	c := &p.client.count
	return !p.client.config.Plain && c.totals.Closed+c.totals.Lost == 0 && c.beats.Received < c.beats.Sent
}

func TestHeartbeatsGoBothWays(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.Payload = 1000 })
	p.up()
	p.pass(10*time.Second, p.client, p.server)
	c, s := &p.client.count, &p.server.count
	p.until("echoes", func() bool { return c.beats.Received == c.beats.Sent }, p.client, p.server)
	if c.beats.Sent < 900 || c.beats.Sent > 1100 || s.beats.Received != c.beats.Sent || c.totals.Lost+s.totals.Lost+s.totals.Evicted > 0 {
		t.Errorf("client %+v %+v, server %+v %+v", c.beats, c.totals, s.beats, s.totals)
	}
	if c.bytes.Received < c.beats.Sent*1000 {
		t.Errorf("payload did not come back: %+v", c.bytes)
	}
	var r Report
	p.client.fill(&r)
	if len(r.Peers) != 1 || r.Peers[0].ID != "one" || r.Peers[0].Zone != "z" || r.Peers[0].Connections != 100 {
		t.Errorf("distribution: %+v", r.Peers)
	}
	r = Report{}
	p.server.fill(&r)
	if len(r.Peers) != 1 || r.Peers[0].ID != "0000000000000abc/0" || r.Peers[0].Connections != 100 {
		t.Errorf("distribution at the server: %+v", r.Peers)
	}
}

// A server that hangs is found by its silence, after misses × period, and what is lost is tried again.
func TestSilenceIsFoundInTime(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) {})
	p.up()
	p.pass(2*time.Second, p.client, p.server)
	p.until("echoes", func() bool { return p.client.count.beats.Received == p.client.count.beats.Sent }, p.client, p.server)
	p.serverStands(4200 * time.Millisecond)
	c := &p.client.count
	if c.totals.Lost != 100 || c.failures[Hung] != 100 || c.totals.Failed != 0 {
		t.Fatalf("%+v %v", c.totals, c.failures)
	}
	measured := newLatencies()
	measured.add(p.client.recorded())
	if least, most := measured.detected.Min(), measured.detected.Max(); least < 2900*time.Millisecond || most > 3200*time.Millisecond {
		t.Errorf("found after %v to %v", least, most)
	}
	p.pass(time.Second, p.client, p.server)
	p.until("back", func() bool { return c.connections.Established == 100 && c.totals.Reconnected == 100 }, p.client, p.server)
	if c.samples[0].Kind != "hung" || c.samples[0].Local == "" {
		t.Errorf("sample %+v", c.samples[0])
	}
}

// The server evicts by the period that the client announced, and says so before by a heartbeat of its own.
func TestServerEvictsByTheAnnouncedPeriod(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.Heartbeat = 2 * time.Second })
	p.up()
	p.pass(5*time.Second, p.server)
	if s := &p.server.count; s.totals.Evicted != 0 || s.beats.Missed != 100*2 || s.beats.Sent != 200 {
		t.Fatalf("after 5 s: %+v %+v", s.totals, s.beats)
	}
	p.pass(1500*time.Millisecond, p.server)
	if s := &p.server.count; s.totals.Evicted != 100 || s.connections.Established != 0 {
		t.Errorf("after 6.5 s: %+v %+v", s.totals, s.connections)
	}
}

// An eviction says why, also where the client's next heartbeat meets the reset before it is read: the path, or the client
// itself that did not send.
func TestEvictionSaysWhy(t *testing.T) {
	for _, writes := range []bool{false, true} {
		for _, sends := range []bool{false, true} {
			p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.BackoffMin, c.BackoffMax = time.Hour, time.Hour })
			p.up()
			p.pass(2*time.Second, p.client, p.server)
			want := Starved
			if sends {
				want = Evicted
				p.pass(1200*time.Millisecond, p.client) // which do not arrive
			}
			for fd := range p.server.conns.length() {
				if c := p.server.conns.at(fd); c.state == serverKnown {
					p.server.evict(fd)
				}
			}
			if writes {
				p.now += p.client.config.Heartbeat
				p.client.advance(p.now)
			}
			p.until("known", func() bool { return p.client.count.totals.Lost == 100 }, p.client)
			if c := &p.client.count; c.failures[want] != 100 {
				t.Errorf("client writes first %v, has sent %v: %v, want 100 of %v", writes, sends, c.failures, want)
			}
		}
	}
}

// One whose heartbeats are late because it was stopped is starved, whatever it has sent since.
func TestStoppedClientThatIsEvictedIsStarved(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.BackoffMin, c.BackoffMax = time.Hour, time.Hour })
	p.up()
	p.pass(2*time.Second, p.client, p.server)
	from := p.now
	p.pass(5*time.Second, p.server)
	if n := p.server.count.totals.Evicted; n != 100 {
		t.Fatalf("%d evicted", n)
	}
	p.client.stood(from, p.now)
	p.until("known", func() bool { return p.client.count.totals.Lost == 100 }, p.client)
	if c := &p.client.count; c.failures[Starved] != 100 {
		t.Errorf("%v", c.failures)
	}
}

func TestPlainStreamsAreCountedAndNeverAnswered(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, s *ServerConfig) { c.Plain, s.PlainTimeout = true, 5*time.Second })
	p.until("connected", func() bool { return p.client.count.connections.Established == 100 }, p.client, p.server)
	p.pass(10*time.Second, p.client, p.server)
	p.until("bytes", func() bool { return p.server.count.beats.Received == p.client.count.beats.Sent }, p.client, p.server)
	if s := &p.server.count; s.connections.Established != 100 || s.bytes.Sent != 0 || s.totals.Evicted != 0 {
		t.Errorf("%+v %+v", s.connections, s.bytes)
	}
	p.pass(6*time.Second, p.server)
	if s := &p.server.count; s.totals.Evicted != 100 {
		t.Errorf("silent for 6 s: %+v", s.totals)
	}
}

// A connection that the server's program does not take is not one.
func TestAcceptQueueIsNotAConnection(t *testing.T) {
	p := newPair(t, func(_ *ClientConfig, s *ServerConfig) { s.Files = 60 })
	p.until("the server is full", func() bool {
		return p.server.count.connections.Established == 60 && p.client.count.connections.Established == 60 && p.client.count.connections.Unanswered == 40
	}, p.client, p.server)
	p.pass(6*time.Second, p.client, p.server)
	if c := &p.client.count; c.failures[Unanswered] < 40 || c.connections.Established != 60 || c.totals.Lost != 0 {
		t.Errorf("%+v %v", c.connections, c.failures)
	}
	if len(p.server.count.limits) != 1 {
		t.Errorf("limits hit: %v", p.server.count.limits)
	}
}

func TestChurnAndDrain(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.Churn, c.Reset = 50, true })
	p.up()
	p.pass(4*time.Second, p.client, p.server)
	p.client.churn.cost = 0
	// A connect that has failed waits for its back-off: time must go on.
	for end := p.now + time.Minute; p.now < end && (p.client.count.connections.Established < 100 || p.server.count.connections.Established != 100); {
		p.pass(tick, p.client, p.server)
	}
	p.up()
	if c := &p.client.count; c.totals.Closed < 150 || c.totals.Lost != 0 {
		t.Errorf("%+v %v", c.totals, c.failures)
	}
	p.server.command(Command{Op: OpDrain})
	p.until("drained", p.server.done, p.server, p.client)
	p.until("the client knows", func() bool { return p.client.count.connections.Established == 0 }, p.client)
	if c := &p.client.count; c.totals.Lost != 0 {
		t.Errorf("a goodbye counts as a loss: %+v %v", c.totals, c.failures)
	}
}

// A heartbeat that crosses a goodbye is no loss: a close with bytes unread, or before the peer's last ones, would be a RST.
func TestHeartbeatCrossesDrain(t *testing.T) {
	p := newPair(t, func(*ClientConfig, *ServerConfig) {})
	p.up()
	p.pass(p.client.config.Heartbeat, p.client) // the server has not read them
	sent := p.client.count.beats.Sent
	p.server.command(Command{Op: OpDrain})
	p.server.advance(p.now)
	p.now += p.client.config.Heartbeat
	p.client.advance(p.now) // the next ones go before the goodbye is read
	if again := p.client.count.beats.Sent - sent; sent == 0 || again == 0 {
		t.Fatalf("%d heartbeats before, %d after", sent, again)
	}
	p.until("drained", func() bool { return p.server.done() && p.client.count.connections.Established == 0 }, p.client, p.server)
	if c := &p.client.count; c.totals.Lost != 0 || c.totals.Closed != 100 {
		t.Errorf("%+v %v", c.totals, c.failures)
	}
	if s := &p.server.count; s.totals.Lost != 0 || s.totals.Closed != 100 {
		t.Errorf("server %+v %v", s.totals, s.failures)
	}
}

// A client that does not receive the goodbye is not waited for: its server ends without it.
func TestDrainDoesNotWaitForTheDeaf(t *testing.T) {
	p := newPair(t, func(*ClientConfig, *ServerConfig) {})
	p.up()
	p.server.command(Command{Op: OpDrain})
	p.pass(6*time.Second, p.server)
	if c := &p.server.count; !p.server.done() || c.totals.Closed != 100 || c.totals.Lost != 0 {
		t.Errorf("%+v %+v", c.connections, c.totals)
	}
}

// The ramp goes on past errors, over the other targets.
func TestRefusedIsCountedAndTriedElsewhere(t *testing.T) {
	nobody, release, err := Reserve(netip.MustParseAddrPort("127.0.0.1:0")) // bound, and no program listens
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.Targets = append(c.Targets[:1:1], nobody) })
	for p.client.count.connections.Established < 100 && p.now < time.Minute {
		p.pass(tick, p.client, p.server)
	}
	if c := &p.client.count; c.connections.Established != 100 || c.failures[Refused] != 50 || c.totals.Failed != 50 {
		t.Errorf("%+v %+v %v", c.connections, c.totals, c.failures)
	}
}

// freePorts returns the first and last of n ports in the kernel's range to which nothing is bound, on any address: the kernel
// gives no connection a port that somebody has bound, whatever the address.
func freePorts(t *testing.T, n int) (low, high uint16) {
	t.Helper()
	first, last := ephemeralRange()
	for range 1000 {
		low = uint16(first + rand.IntN(last-first-n))
		high = low + uint16(n-1)
		port := low
		for ; port <= high; port++ {
			bound, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				break
			}
			bound.Close()
		}
		if port > high {
			return low, high
		}
	}
	t.Fatalf("no %d free ports one after the other from %d to %d", n, first, last)
	return 0, 0
}

// 20 ports are 20 connections: then the client says what has run out.
func TestOutOfPortsIsNamed(t *testing.T) {
	low, high := freePorts(t, 20)
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) {
		c.PortLow, c.PortHigh, c.Sources, c.Connections = low, high, []netip.Addr{netip.MustParseAddr("127.86.75.30")}, 30
	})
	p.until("20", func() bool {
		return p.client.count.connections.Established == 20 && p.client.count.failures[OutOfPorts] >= 10
	}, p.client, p.server)
	f := Finder{Workers: 1, Ports: 20, Tuples: 1}
	var r Report
	p.client.fill(&r)
	f.Watch(0, &r)
	f.Watch(time.Second, &r)
	p.pass(3*time.Second, p.client, p.server)
	r = Report{}
	p.client.fill(&r)
	plateau := f.Watch(7*time.Second, &r)
	if plateau == nil || plateau.At != 20 || plateau.Connections != 20 || plateau.Remedy != OutOfPorts.Remedy() {
		t.Errorf("%+v", plateau)
	}
}

func TestServerRefusesOtherProtocols(t *testing.T) {
	p := newPair(t, func(*ClientConfig, *ServerConfig) {})
	conn, err := net.Dial("tcp", p.server.config.Listen[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	p.until("refused", func() bool { return p.server.count.totals.Refused == 1 }, p.server)
	if c := p.server.count.connections; c != (Connections{}) {
		t.Errorf("%+v", c)
	}
}

// At most 16 B of tables for a connection of the server, 100 B of the client, no goroutine for either, nothing
// allocated by a heartbeat.
func TestMemoryOfAConnection(t *testing.T) {
	before := runtime.NumGoroutine()
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.Connections = 2000 })
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	empty := heap()
	p.up()
	p.pass(3*time.Second, p.client, p.server)
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	both := float64(int64(heap())-int64(empty)) / 2000
	server, client := sizeOf[serverConn](), sizeOf[slot]()+sizeOf[link]()
	t.Logf("server %d B, client %d B a connection; heap of both grew by %.0f B", server, client, both)
	// Both ends are in one process here: descriptors are twice as many, and the last chunk of a table is not full.
	if server > 16 || client > 100 || both > 150 {
		t.Errorf("server %d B, client %d B a connection; heap of both grew by %.0f B", server, client, both)
	}
	if n := testing.AllocsPerRun(3, func() { p.pass(time.Second, p.client, p.server) }); n > 5 {
		t.Errorf("%v allocations for 2000 heartbeats there and back", n)
	}
}
