package engine

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// admitter is a Handler with an Admission that notes each call.
type admitter struct {
	mirror
	w      *Worker
	refuse bool
	close  bool // each session at once
	next   int  // the state of the next client
	events []string
}

func (g *admitter) Admit(from netip.AddrPort, local netip.Addr) (any, bool) {
	if g.refuse {
		g.events = append(g.events, fmt.Sprintf("refused %v", from.Addr()))
		return nil, false
	}
	g.next++
	g.events = append(g.events, fmt.Sprintf("%d admitted at %v", g.next, local))
	return g.next, true
}

func (g *admitter) Dismissed(state any, why HandshakeEnd) {
	g.events = append(g.events, fmt.Sprintf("%v dismissed %d", state, why))
}

func (g *admitter) Established(p *Peer) {
	g.events = append(g.events, fmt.Sprintf("%v established", p.State))
	if g.close {
		g.w.Close(p)
	}
}

func (g *admitter) Serve(p *Peer, in, out []byte, now time.Duration) []byte {
	g.events = append(g.events, fmt.Sprintf("%v says %s", p.State, in))
	return g.mirror.Serve(p, in, out, now)
}

func (g *admitter) Closed(p *Peer, _ time.Duration) {
	g.events = append(g.events, fmt.Sprintf("%v closed", p.State))
}

// saw compares the events since the last call.
func (g *admitter) saw(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(g.events, want) {
		t.Errorf("%q\nwant %q", g.events, want)
	}
	g.events = nil
}

func newGate(t *testing.T, change func(*Config)) (*wire, *admitter) {
	t.Helper()
	x := newWire(t, change)
	g := &admitter{w: x.w}
	x.w.setHandler(g)
	return x, g
}

// answeredHello is the second hello of a client, with the cookie, in fragments if the MTU is small.
func (x *wire) answeredHello(from netip.AddrPort, cfg handshake.ClientConfig) (datagrams [][]byte) {
	x.t.Helper()
	c, err := handshake.NewClient(cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	send := func(b []byte) { datagrams = append(datagrams, bytes.Clone(b)) }
	c.Start(x.w.now, send)
	first := datagrams
	datagrams = nil
	for _, d := range first {
		for _, reply := range x.in(d, from) {
			c.Receive(new(record.Scratch), reply.b, x.w.now, send)
		}
	}
	return datagrams
}

var dev = handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key")}

func isState(state int, what string) string { return fmt.Sprintf("%d %s", state, what) }

func dismissed(state int, why HandshakeEnd) string {
	return isState(state, fmt.Sprintf("dismissed %d", why))
}

const anyLocal = "admitted at invalid IP"

// A client is admitted once, when it has returned its cookie; its session has that state from its first message to its end.
func TestAdmissionOfASession(t *testing.T) {
	x, g := newGate(t, nil)
	hello := x.answeredHello(addr(1), dev)
	g.saw(t) // the cookie alone asks nothing
	for range 3 {
		x.w.datagram(bytes.Clone(hello[0]), source{addr: addr(1), local: netip.MustParseAddr("192.0.2.9")}, false)
	}
	x.w.out.flush()
	g.saw(t, "1 admitted at 192.0.2.9") // once for a repeated hello
	d := x.mustConnect(addr(1), "dev", true)
	g.saw(t, isState(2, anyLocal), dismissed(1, HandshakeReplaced), "2 established")
	x.in(d.seal([]byte("hello")), addr(1))
	x.w.Close(x.w.peers.newest)
	g.saw(t, "2 says hello", "2 closed")

	g.close = true
	d = x.mustConnect(addr(2), "dev", true)
	x.in(d.seal([]byte("hello")), addr(2))
	g.saw(t, isState(3, anyLocal), "3 established", "3 closed")
}

// A client that is not admitted leaves nothing, and may try again.
func TestAdmissionRefuses(t *testing.T) {
	x, g := newGate(t, nil)
	hello := x.answeredHello(addr(1), dev)
	g.refuse = true
	if out := x.in(hello[0], addr(1)); len(out) != 0 {
		t.Errorf("%d answers", len(out))
	}
	if s := x.stats(); s.HalfOpen != 0 || s.HellosIgnored != 1 || s.HandshakesFailed != 0 {
		t.Errorf("%+v", s)
	}
	g.saw(t, fmt.Sprintf("refused %v", addr(1).Addr()))
	g.refuse = false
	if out := x.in(hello[0], addr(1)); len(out) == 0 {
		t.Error("no answer to a client that is admitted")
	}
	g.saw(t, isState(1, anyLocal))
}

// Each client that is admitted is dismissed once if it gets no session, with the reason and its own state.
func TestAdmissionDismisses(t *testing.T) {
	foreign := handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key")}
	foreign.Suites = []record.Suite{record.PSKWithAES256CCM8}
	only := func(c *Config) { c.Suites = []record.Suite{record.PSKWithAES128CCM8} }
	t.Run("nothing in common", func(t *testing.T) {
		x, g := newGate(t, only)
		x.in(x.answeredHello(addr(1), foreign)[0], addr(1))
		g.saw(t, isState(1, anyLocal), dismissed(1, HandshakeFailed))
		x.halfOpenClient(addr(1))
		g.saw(t, isState(2, anyLocal))
		x.in(x.answeredHello(addr(1), foreign)[0], addr(1)) // the new hello counts, not the one under way
		g.saw(t, isState(3, anyLocal), dismissed(3, HandshakeFailed), dismissed(2, HandshakeReplaced))
	})
	t.Run("nothing in common, in fragments", func(t *testing.T) {
		x, g := newGate(t, only)
		cfg := foreign
		cfg.MTU, cfg.OfferCID, cfg.CID = 128, true, make([]byte, 32)
		hello := x.answeredHello(addr(1), cfg)
		if len(hello) < 2 {
			t.Fatalf("%d fragments", len(hello))
		}
		for _, d := range hello {
			x.in(d, addr(1))
		}
		g.saw(t, isState(1, anyLocal), dismissed(1, HandshakeFailed))
		if s := x.stats(); s.HalfOpen != 0 || s.HandshakesFailed != 1 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("wrong key", func(t *testing.T) {
		x, g := newGate(t, nil)
		if _, err := x.connectWith(addr(1), handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("wrong")}); err == nil {
			t.Error("no error")
		}
		g.saw(t, isState(1, anyLocal)) // a forged record is no reason to end the handshake at once
		x.w.now = x.w.next()
		x.w.tick()
		g.saw(t, dismissed(1, HandshakeFailed))
	})
	t.Run("silence", func(t *testing.T) {
		x, g := newGate(t, nil)
		x.halfOpenClient(addr(1))
		for x.w.next() != Never {
			x.w.now = x.w.next()
			x.w.tick()
		}
		g.saw(t, isState(1, anyLocal), dismissed(1, HandshakeTimedOut))
	})
	t.Run("full table", func(t *testing.T) {
		x, g := newGate(t, func(c *Config) { c.MaxHalfOpen = 1 })
		x.halfOpenClient(addr(1 << 8))
		x.halfOpenClient(addr(2 << 8))
		g.saw(t, isState(1, anyLocal), isState(2, anyLocal), dismissed(1, HandshakeEvicted))
	})
	t.Run("abandoned", func(t *testing.T) {
		x, g := newGate(t, nil)
		x.halfOpenClient(addr(1))
		x.w.Abandon(addr(1), 7) // another one's state
		x.w.Abandon(addr(2), 1) // another one's address
		g.saw(t, isState(1, anyLocal))
		x.w.Abandon(addr(1), 1)
		x.w.Abandon(addr(1), 1)
		g.saw(t, dismissed(1, HandshakeAbandoned))
	})
}
