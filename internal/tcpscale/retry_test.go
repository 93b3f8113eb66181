package tcpscale

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// several is a client of several servers, each at most so full. All are served as pair serves two.
func several(t *testing.T, connections int, files ...int) (p *pair, servers []*Server, all []engine) {
	t.Helper()
	p = newPair(t, func(c *ClientConfig, s *ServerConfig) {
		for i, most := range files {
			config := *s
			if i > 0 {
				listen, release, err := Reserve(netip.MustParseAddrPort("127.0.0.1:0"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(release)
				config.Listen = []netip.AddrPort{listen}
			}
			if config.Files = most; i == 0 {
				*s = config // made by newPair
				continue
			}
			server, err := NewServer(config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			servers = append(servers, server)
			c.Targets = append(c.Targets[:len(c.Targets):len(c.Targets)], config.Listen[0])
		}
		c.Connections, c.BackoffMax = connections, 30*time.Second
	})
	servers = append([]*Server{p.server}, servers...)
	all = []engine{p.client}
	for _, s := range servers {
		all = append(all, s)
	}
	return p, servers, all
}

// backAfterKill fills all servers evenly, ends one, and returns how long it took until all were back.
func backAfterKill(t *testing.T, p *pair, all []engine, servers []*Server, dead int) time.Duration {
	t.Helper()
	c := &p.client.count.connections
	p.until("all established", func() bool { return c.Established == c.Target }, all...)
	died := p.now
	servers[dead].Close()
	alive := append(all[:dead+1:dead+1], all[dead+2:]...)
	p.until("the loss is seen", func() bool { return c.Established < c.Target }, p.client)
	for c.Established < c.Target && p.now < died+5*time.Minute {
		p.now += tick
		// What is under way arrives: a connect that no one takes stays with a server that is full.
		p.poll(alive...)
		p.until("answers", func() bool {
			queued := 0
			for i, server := range servers {
				if server.paused && i != dead {
					queued += int(p.client.open[i])
				}
			}
			return c.Connecting <= queued && (p.client.pending() == 0 || p.client.inFlight() >= p.client.config.InFlight)
		}, alive...)
	}
	return p.now - died
}

// One of six dies, and the others have a little room: its connections spread over all of them, in a second.
func TestLostConnectionsSpreadOverTheOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	p, servers, all := several(t, 1200, 280, 280, 280, 280, 280, 280) // 200 each, then 240
	took := backAfterKill(t, p, all, servers, 5)
	if took > time.Second {
		t.Errorf("back after %v: %+v %v", took, p.client.count.connections, p.client.count.failures)
	}
	for i, s := range servers[:5] {
		if n := s.count.connections.Established; n < 205 || n > 280 {
			t.Errorf("server %d has %d connections, of 240", i, n)
		}
	}
	if f := p.client.count.failures; f[Unanswered]+f[Refused]+f[Timeout] > 40 {
		t.Errorf("tries failed: %v", f)
	}
}

// Three of the others are full, and take connections into their accept queues only: they do not hold up the rest, and
// no program waits longer than a connect's time-out and a first back-off for each full one that he comes across.
func TestFullServersDoNotHoldUpTheRest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	p, servers, all := several(t, 1200, 600, 600, 200, 200, 200, 200)
	took := backAfterKill(t, p, all, servers, 5)
	if n := p.client.count.connections.Established; n != 1200 || took > 40*time.Second {
		t.Errorf("%d are back after %v: %v", n, took, p.client.count.failures)
	}
	for i, s := range servers[:2] {
		if n := s.count.connections.Established; n < 260 || n > 340 {
			t.Errorf("server %d has %d connections, of 300", i, n)
		}
	}
}

// A heartbeat that is still under way when the client closes is no loss at the server, nor is the connection.
func TestCloseSaysGoodbye(t *testing.T) {
	p := newPair(t, func(*ClientConfig, *ServerConfig) {})
	p.up()
	p.now += time.Second
	p.client.advance(p.now) // heartbeats go out
	if p.client.count.beats.Sent == 0 {
		t.Fatal("no heartbeat")
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.client.Close()
	}()
	events := make([]unix.EpollEvent, 256)
	for end := time.Now().Add(time.Minute); p.server.count.connections.Established > 0 && time.Now().Before(end); {
		n, err := unix.EpollWait(p.server.epoll, events, 10)
		if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		p.server.handle(events[:max(n, 0)], p.now)
	}
	<-closed
	if s := &p.server.count; s.totals.Closed != 100 || s.totals.Lost != 0 {
		t.Errorf("%+v %v", s.totals, s.failures)
	}
}

// Churn by RST: the goodbye before it counts, also where an answer was to be sent first.
func TestGoodbyeBeforeAResetIsHeard(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, _ *ServerConfig) { c.Reset = true })
	p.up()
	p.now += 1200 * time.Millisecond
	p.client.advance(p.now)
	bye := frame{kind: frameBye}
	for i := range int32(100) {
		p.client.send(i, p.client.write[:bye.put(p.client.write[:])])
		p.client.release(i, true)
	}
	p.until("gone", func() bool { return p.server.count.connections.Established == 0 }, p.server)
	if s := &p.server.count; s.totals.Closed != 100 || s.totals.Lost != 0 {
		t.Errorf("%+v %v", s.totals, s.failures)
	}
}

// Who was late with a heartbeat himself does not call the peer silent for it.
func TestOwnLatenessIsNotSilence(t *testing.T) {
	p := newPair(t, func(*ClientConfig, *ServerConfig) {})
	p.up()
	p.pass(2*time.Second, p.client, p.server)
	p.now += 3500 * time.Millisecond // the client stood still in steps that are too short for loopClock to see
	p.client.advance(p.now)
	p.until("echoes", func() bool { return p.client.count.beats.Received >= p.client.count.beats.Sent }, p.client, p.server)
	if c := &p.client.count; c.totals.Lost != 0 {
		t.Errorf("%+v %v", c.totals, c.failures)
	}
}
