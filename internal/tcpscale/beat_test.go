package tcpscale

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// One heartbeat there and back through the kernel, both ends in this process: what a connection costs while it is held.
func BenchmarkHeartbeat(b *testing.B) {
	p := benchmarkPair(b)
	step := func() {
		p.client.now, p.server.now = p.now, p.now
		s := p.client.slots.at(0)
		if !p.client.heartbeat(0, s, ticks(p.now)) {
			b.Fatal("lost")
		}
		for want := s.seq; s.echo != want; {
			p.turn(b, p.server)
			p.turn(b, p.client)
		}
	}
	step()
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}

// The server's part without the kernel's: a heartbeat is read from a buffer and its answer is put into one.
func BenchmarkServerFrame(b *testing.B) {
	beat := frame{kind: frameHeartbeat, seq: 1, sent: 1}
	in, out := make([]byte, heartbeatLength), make([]byte, heartbeatLength)
	n := beat.put(in)
	b.ReportAllocs()
	for b.Loop() {
		f, _, err := parseFrame(in[:n])
		if err != nil {
			b.Fatal(err)
		}
		answer := frame{kind: frameHeartbeat, seq: f.seq, sent: 2, echo: f.seq, since: f.sent}
		answer.put(out)
	}
}

// A look for silence through a full worker's table.
func BenchmarkSweepOf19500(b *testing.B) {
	s := &Server{shortest: 600}
	for fd := range int32(19500) {
		*s.conns.at(fd) = serverConn{state: serverKnown, seen: 1, period: 600, misses: 3}
	}
	at := uint32(2)
	b.ReportAllocs()
	for b.Loop() {
		s.sweep(at)
		at = at%500 + 1
	}
}

func benchmarkPair(b *testing.B) *pair {
	listen, release, err := Reserve(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(release)
	p := &pair{now: time.Second}
	if p.server, err = NewServer(ServerConfig{Listen: []netip.AddrPort{listen}, ID: "one", Backlog: 16}); err != nil {
		b.Fatal(err)
	}
	config := clientDefaults
	config.Targets, config.Connections, config.Heartbeat = []netip.AddrPort{listen}, 1, time.Hour
	if p.client, err = NewClient(config); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.server.Close(); p.client.Close() })
	for p.client.count.connections.Established < 1 {
		p.client.advance(p.now)
		p.turn(b, p.server)
		p.turn(b, p.client)
	}
	return p
}

func (p *pair) turn(b *testing.B, e engine) {
	n, err := unix.EpollWait(e.descriptor(), p.events[:], 0)
	if err != nil && err != unix.EINTR {
		b.Fatal(err)
	}
	e.handle(p.events[:max(n, 0)], p.now)
}
