package link

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// node is one end of the link.
type node struct {
	*Links
	addr netip.AddrPort
	log  *bytes.Buffer
}

// network carries datagrams between nodes, in virtual time.
type network struct {
	t     *testing.T
	now   time.Duration
	nodes map[netip.AddrPort]*node
	// lose decides what is lost; nil: nothing.
	lose     func(from, to netip.AddrPort, datagram []byte) bool
	messages []string // what has come, as "from:message"
	busy     bool
	queue    []datagram
}

type datagram struct {
	from, to netip.AddrPort
	bytes    []byte
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, nodes: map[netip.AddrPort]*node{}}
}

func address(id int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(id)}), 5884)
}

// add starts a node, in place of an earlier one at its address.
func (w *network) add(id int, change func(*Config)) *node {
	w.t.Helper()
	n := &node{addr: address(id), log: new(bytes.Buffer)}
	cfg := Config{
		Identity: []byte("dtls-mgmt"), Secret: []byte("secret of the cluster"), Node: uint32(id),
		Log: slog.New(slog.NewTextHandler(n.log, nil)), Rand: rand.NewChaCha8([32]byte{byte(id), byte(len(w.nodes))}),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if n.Links, err = New(cfg); err != nil {
		w.t.Fatal(err)
	}
	n.Tick(w.now, func(netip.AddrPort, []byte) {}) // the time
	w.nodes[n.addr] = n
	return n
}

// send queues a datagram, and delivers all that are queued.
func (w *network) send(from, to netip.AddrPort, b []byte) {
	if w.lose == nil || !w.lose(from, to, b) {
		w.queue = append(w.queue, datagram{from, to, bytes.Clone(b)})
	}
	if w.busy {
		return
	}
	w.busy = true
	for ; len(w.queue) > 0; w.queue = w.queue[1:] {
		d := w.queue[0]
		n := w.nodes[d.to]
		if n == nil {
			continue
		}
		got := n.Receive(d.from, d.bytes, w.now, func(b []byte) { w.send(d.to, d.from, bytes.Clone(b)) })
		for _, m := range got.Messages {
			w.messages = append(w.messages, d.from.Addr().String()+":"+string(m))
		}
		if got.Established {
			w.message(n, got.Peer, "hello")
		}
	}
	w.busy = false
}

// message sends a message.
func (w *network) message(n *node, p *Peer, message string) bool {
	var out []byte
	ok := n.Send(p, []byte(message), func(b []byte) { out = bytes.Clone(b) })
	if ok {
		w.send(n.addr, p.Addr(), out)
	}
	return ok
}

// run lets time pass.
func (w *network) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now += TickEvery
		for id := range 8 {
			n := w.nodes[address(id)]
			if n == nil {
				continue
			}
			var out []datagram
			n.Tick(w.now, func(to netip.AddrPort, b []byte) { out = append(out, datagram{n.addr, to, bytes.Clone(b)}) })
			for _, d := range out {
				w.send(d.from, d.to, d.bytes)
			}
		}
	}
}

var (
	frameHeader = []byte{63, 0x73, 0x8f, 4, 127, 0, 0, 1}
	frameBody   = bytes.Repeat([]byte{25, 1, 2, 3}, 20)
)

// agree fails unless each of the two accepts frames of the other.
func agree(t *testing.T, a, b *Peer) {
	t.Helper()
	for _, pair := range [][2]*Peer{{a, b}, {b, a}} {
		from, to := pair[0].Keys(), pair[1].Keys()
		if from == nil || to == nil {
			t.Fatalf("no keys: %v, %v", from == nil, to == nil)
		}
		code := from.Sum(frameHeader, frameBody)
		if !to.Verify(frameHeader, code[:], frameBody) {
			t.Fatal("a frame is refused")
		}
		code[0] ^= 1
		if to.Verify(frameHeader, code[:], frameBody) {
			t.Fatal("a forged frame is accepted")
		}
	}
}

// One node begins, or the other, or both at once: there is a session afterwards, in which messages go both ways.
func TestHandshake(t *testing.T) {
	for name, wanted := range map[string][2]bool{"one": {true, false}, "other": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t)
			one, two := w.add(1, nil), w.add(2, nil)
			a, b := one.Peer(two.addr, wanted[0]), two.Peer(one.addr, wanted[1])
			if a.Keys() != nil || w.message(one, a, "early") {
				t.Fatal("sent without a session")
			}
			w.lose = func(_, _ netip.AddrPort, d []byte) bool { return false }
			w.run(2 * time.Second)
			agree(t, a, b)
			w.messages = nil
			if !w.message(one, a, "ping") || !w.message(two, b, "pong") || strings.Join(w.messages, " ") != "192.0.2.1:ping 192.0.2.2:pong" {
				t.Fatalf("received %q", w.messages)
			}
			if s := one.Stats(); s.Sessions != 1 || s.Failed != 0 || s.Refused != 0 {
				t.Errorf("%+v", s)
			}
			if got := strings.Count(one.log.String(), "cluster link is secured"); got != 1 {
				t.Errorf("logged %d times\n%s", got, one.log)
			}
		})
	}
}

// Both nodes send their first hello before either receives the other's. They have two sessions, agree on one in a while, and the other
// one ends.
func TestSimultaneousHandshakes(t *testing.T) {
	w := newNetwork(t)
	one, two := w.add(1, nil), w.add(2, nil)
	a, b := one.Peer(two.addr, true), two.Peer(one.addr, true)
	w.now += time.Second
	w.busy = true // hold what is sent
	for _, n := range []*node{one, two} {
		n.Tick(w.now, func(to netip.AddrPort, d []byte) { w.send(n.addr, to, d) })
	}
	if len(w.queue) != 2 {
		t.Fatalf("%d hellos", len(w.queue))
	}
	w.busy = false
	first := w.queue[0]
	w.queue = w.queue[1:]
	w.send(first.from, first.to, first.bytes)
	if len(a.sessions) != 2 || len(b.sessions) != 2 {
		t.Fatalf("%d and %d sessions", len(a.sessions), len(b.sessions))
	}
	for range 80 {
		agree(t, a, b) // which uses the keys
		w.run(TickEvery)
	}
	if len(a.sessions) != 1 || len(b.sessions) != 1 {
		t.Errorf("%d and %d sessions are left", len(a.sessions), len(b.sessions))
	}
	agree(t, a, b)
}

// A handshake ends in a session though datagrams get lost.
func TestLostDatagrams(t *testing.T) {
	w := newNetwork(t)
	random := rand.New(rand.NewPCG(1, 2))
	w.lose = func(netip.AddrPort, netip.AddrPort, []byte) bool { return random.IntN(3) == 0 }
	one, two := w.add(1, nil), w.add(2, nil)
	a, b := one.Peer(two.addr, true), two.Peer(one.addr, true)
	for range 120 {
		w.run(TickEvery)
		if a.Keys() != nil && b.Keys() != nil {
			break
		}
	}
	w.lose = nil
	w.message(one, a, "x")
	w.message(two, b, "x")
	w.run(overlap)
	agree(t, a, b)
}

// Before the keys are a day old there are new ones; at no time is a frame refused, and old keys end.
func TestKeyRoll(t *testing.T) {
	w := newNetwork(t)
	one, two := w.add(1, nil), w.add(2, nil)
	a, b := one.Peer(two.addr, true), two.Peer(one.addr, false)
	w.run(time.Second)
	agree(t, a, b)
	first := a.Keys()
	old := first.Sum(frameHeader, frameBody)
	handshakes := one.Stats().Handshakes
	for w.now < keyLife-2*rollBefore {
		w.run(time.Minute)
		agree(t, a, b)
	}
	if one.Stats().Handshakes != handshakes {
		t.Fatal("rolled too soon")
	}
	for one.Stats().Handshakes == handshakes {
		w.run(TickEvery)
		agree(t, a, b)
	}
	if w.now >= keyLife {
		t.Fatalf("rolled after %v", w.now)
	}
	if !b.Keys().Verify(frameHeader, old[:], frameBody) {
		t.Error("a frame under way during the roll is refused")
	}
	for range 2 * overlap / TickEvery {
		w.run(TickEvery)
		code := a.Keys().Sum(frameHeader, frameBody)
		if !b.Keys().Verify(frameHeader, code[:], frameBody) {
			t.Fatal("a frame is refused")
		}
	}
	if b.Keys().Verify(frameHeader, old[:], frameBody) || len(a.sessions) != 1 {
		t.Errorf("old keys are accepted, or %d sessions are left", len(a.sessions))
	}
}

// A node that has lost its sessions makes a new one at once; one that does not begin handshakes gets one as soon as Renew says that it is
// silent.
func TestRestart(t *testing.T) {
	w := newNetwork(t)
	one, two := w.add(1, nil), w.add(2, nil)
	a, b := one.Peer(two.addr, true), two.Peer(one.addr, true)
	w.run(2 * time.Second)
	agree(t, a, b)

	two = w.add(2, nil)
	b = two.Peer(one.addr, true)
	w.run(2 * time.Second)
	w.message(two, b, "x")
	agree(t, a, b)

	two = w.add(2, nil)
	b = two.Peer(one.addr, false)
	w.run(20 * time.Second)
	if b.Keys() != nil {
		t.Fatal("a session without a reason")
	}
	one.Renew(a)
	w.run(2 * time.Second)
	agree(t, a, b)
}

// Another secret, or another identity: no session, one warning for all attempts, and a session once the secret is right.
func TestOtherSecret(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"secret":   func(c *Config) { c.Secret = []byte("another one") },
		"identity": func(c *Config) { c.Identity = []byte("another one") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t)
			one, two := w.add(1, nil), w.add(2, change)
			a, b := one.Peer(two.addr, true), two.Peer(one.addr, true)
			w.run(time.Minute)
			if a.Keys() != nil || b.Keys() != nil || one.Stats().Failed < 5 {
				t.Fatalf("%+v", one.Stats())
			}
			if got := strings.Count(one.log.String(), "level=WARN"); got != 1 {
				t.Errorf("%d warnings\n%s", got, one.log)
			}
			two = w.add(2, nil)
			b = two.Peer(one.addr, true)
			w.run(10 * time.Second)
			agree(t, a, b)
		})
	}
}

// Addresses that are no node's: ignored, or, with Open, bounded in number; those with the secret get a session.
func TestStrangers(t *testing.T) {
	w := newNetwork(t)
	closed := w.add(1, nil)
	stranger := w.add(3, nil)
	stranger.Peer(closed.addr, true)
	w.run(5 * time.Second)
	if s := closed.Stats(); s.Handshakes != 0 || s.Refused == 0 || len(closed.pendings)+len(closed.peers) != 0 {
		t.Fatalf("%+v", s)
	}
	open := w.add(2, func(c *Config) { c.Open = true })
	p := stranger.Peer(open.addr, true)
	w.run(5 * time.Second)
	if p.Keys() == nil || open.Stats().Sessions != 1 {
		t.Fatal("a node with the secret has no session")
	}

	// A thousand addresses that answer the cookie, and then nothing.
	w.lose = func(from, to netip.AddrPort, d []byte) bool { return to == open.addr && d[13] == clientKeyExchange }
	for i := range 1000 {
		w.now += verifyEvery
		l := w.add(4, nil)
		l.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 5)
		w.nodes[l.addr] = l
		delete(w.nodes, address(4))
		l.Peer(open.addr, true)
		var hello []byte
		l.Tick(w.now+time.Second, func(_ netip.AddrPort, b []byte) { hello = bytes.Clone(b) })
		w.send(l.addr, open.addr, hello)
		delete(w.nodes, l.addr)
	}
	if len(open.pendings) != maxPendings {
		t.Fatalf("%d handshakes are kept", len(open.pendings))
	}
	if !w.message(stranger, p, "still here") {
		t.Error("the session is gone")
	}
	w.run(pendingLife + time.Second)
	if len(open.pendings) != 0 {
		t.Errorf("%d handshakes are kept for ever", len(open.pendings))
	}
	if got := strings.Count(open.log.String(), "level=WARN"); got == 0 || got > 3 {
		t.Errorf("%d warnings about strangers", got)
	}
}

// Hellos with forged sources: each of the sources gets fewer bytes than were sent in its name, all together get few, and a node with a
// session makes a new one meanwhile.
func TestForgedHellos(t *testing.T) {
	w := newNetwork(t)
	one, two := w.add(1, func(c *Config) { c.Open = true }), w.add(2, nil)
	a, b := one.Peer(two.addr, false), two.Peer(one.addr, true)
	w.run(time.Second)
	agree(t, a, b)
	var hello []byte
	forger := w.add(3, nil)
	forger.Peer(one.addr, true)
	forger.Tick(w.now+time.Second, func(_ netip.AddrPort, d []byte) { hello = bytes.Clone(d) })
	sent := 0
	for i := range 5000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 5)
		one.Receive(from, bytes.Clone(hello), w.now, func(d []byte) {
			if sent++; len(d) >= len(hello) {
				t.Fatalf("%d bytes for %d", len(d), len(hello))
			}
		})
	}
	if sent != verifyBurst {
		t.Errorf("%d answers to 5000 hellos", sent)
	}
	two = w.add(2, nil) // which has lost its session
	b = two.Peer(one.addr, true)
	w.run(2 * time.Second)
	w.message(two, b, "x")
	agree(t, a, b)
}

// Forged records, alerts in the clear and replays change nothing.
func TestForgery(t *testing.T) {
	w := newNetwork(t)
	one, two := w.add(1, nil), w.add(2, nil)
	a, b := one.Peer(two.addr, true), two.Peer(one.addr, true)
	var captured [][]byte
	w.lose = func(from, _ netip.AddrPort, d []byte) bool {
		if from == one.addr {
			captured = append(captured, bytes.Clone(d))
		}
		return false
	}
	w.run(2 * time.Second)
	w.message(one, a, "once")
	w.messages = nil
	sent := 0
	w.lose = func(netip.AddrPort, netip.AddrPort, []byte) bool { sent++; return false }
	for _, d := range captured {
		for flip := range d {
			forged := bytes.Clone(d)
			forged[flip] ^= 1
			two.Receive(one.addr, forged, w.now, func([]byte) {})
		}
		w.send(one.addr, two.addr, d)
	}
	two.Receive(one.addr, record.AppendPlain(nil, record.Alert, 9, []byte{2, 0}), w.now, func([]byte) {})
	if len(w.messages) != 0 {
		t.Errorf("replayed: %q", w.messages)
	}
	agree(t, a, b)
}

func TestMACIsHMAC(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for _, header := range []int{8, 20} {
		for length := 26; length < 200; length++ {
			key, h, body := make([]byte, 16), make([]byte, header), make([]byte, length)
			for _, b := range [][]byte{key, h, body} {
				_, _ = random.Read(b)
			}
			mac := hmac.New(sha256.New, key)
			mac.Write(h)
			if length > 64-header {
				mac.Write(body[:32])
				mac.Write(body[length-32:])
			} else {
				mac.Write(body)
			}
			k := Keys{write: newMACKey(key)}
			if got := k.Sum(h, body); !bytes.Equal(got[:], mac.Sum(nil)[:MACLength]) {
				t.Fatalf("header of %d, body of %d bytes: %x", header, length, got)
			}
		}
	}
	k := Keys{write: newMACKey(make([]byte, 16))}
	if n := testing.AllocsPerRun(100, func() { k.Sum(frameHeader, frameBody) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzReceive: nothing that comes can break a session.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1})
	f.Add([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 2, 1, 2, 3, 4, 5, 0, 1, 7})
	f.Add([]byte{20, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 21, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newNetwork(t)
		one, two := w.add(1, nil), w.add(2, nil)
		p, q := one.Peer(two.addr, true), two.Peer(one.addr, true)
		w.run(time.Second)
		w.send(one.addr, two.addr, b)
		w.send(two.addr, one.addr, b)
		w.run(time.Second)
		agree(t, p, q)
	})
}
