package nfqueue

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// addresses of client and VIP by family.
func endpoints(is6 bool, port uint16) (client, vip netip.AddrPort) {
	if is6 {
		return netip.MustParseAddrPort(fmt.Sprintf("[fd61::2]:%d", port)), netip.MustParseAddrPort(fmt.Sprintf("[%s]:%d", vip6, servicePort))
	}
	return netip.MustParseAddrPort(fmt.Sprintf("10.61.0.2:%d", port)), netip.MustParseAddrPort(fmt.Sprintf("%s:%d", vip4, servicePort))
}

// withOptions fills the hop-by-hop and destination options headers at the front of an IPv6 packet with one option that
// hosts skip (RFC 4727: experiment): Linux discards more padding than seven bytes.
func withOptions(p []byte) []byte {
	next, at := p[6], 40
	for next == 0 || next == 60 {
		n := 8 * (1 + int(p[at+1]))
		p[at+2], p[at+3] = 0x1e, byte(n-4)
		next, at = p[at], at+n
	}
	return p
}

// number makes flows of both families different ones.
func number(is6 bool, n int) int {
	if is6 {
		return n + 1<<24
	}
	return n
}

// tag makes payloads that differ.
func tag(n, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	binary.BigEndian.PutUint32(b, uint32(n))
	return b
}

func families(t *testing.T, run func(t *testing.T, is6 bool)) {
	t.Helper()
	for name, is6 := range map[string]bool{"v4": false, "v6": true} {
		t.Run(name, func(t *testing.T) { run(t, is6) })
	}
}

// TCP and UDP arrive byte for byte, spread over the backends, and a flow stays.
func TestRootNFQTraffic(t *testing.T) {
	w := newWorld(t, 4, 2, Config{})
	w.run(worldSpec("", 0, 1, 2, 3))
	t.Run("tcp", func(t *testing.T) { families(t, func(t *testing.T, is6 bool) { tcpEcho(t, w, is6) }) })
	t.Run("udp", func(t *testing.T) { families(t, func(t *testing.T, is6 bool) { udpFlows(t, w, is6) }) })
	t.Run("icmp", func(t *testing.T) { families(t, func(t *testing.T, is6 bool) { icmpErrors(t, w, is6) }) })
	t.Run("ping", func(t *testing.T) { families(t, func(t *testing.T, is6 bool) { pings(t, w, is6) }) })
	t.Run("extensions", func(t *testing.T) { extensions(t, w) })
	s := w.d.Stats()
	for i := range s.Queues {
		if q := &s.Queues[i]; q.MissingIDs > 0 || q.OddMessages > 0 || q.CutMessages > 0 || q.RefusedAnswers > 0 || q.PortID == 0 {
			t.Errorf("queue %d: %+v", i, q)
		}
	}
	if s.Queues[0].Large+s.Queues[1].Large == 0 {
		t.Error("no large segment came: GSO is off")
	}
	if s.Reasons[lb.ReasonMalformed] > 0 || s.Reasons[lb.ReasonNoBackend] > 0 {
		t.Errorf("reasons %v", s.Reasons)
	}
}

func tcpEcho(t *testing.T, w *world, is6 bool) {
	_, vip := endpoints(is6, 0)
	reached := map[string]int{}
	for n := 0; n < 24 || len(reached) < 4 && n < 200; n++ { // the kernel draws the ports
		var c net.Conn
		if err := w.client.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", vip.String(), testTimeout)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		r := bufio.NewReader(c)
		name, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		reached[strings.TrimSpace(name)]++
		sent := tag(n, 300_000)
		wrote := make(chan error, 1)
		go func() { _, err := c.Write(sent); wrote <- err }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(r, got); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("flow %d: the echo differs, or %v", n, err)
		}
	}
	if len(reached) != 4 {
		t.Errorf("24 flows reached %v", reached)
	}
}

func udpFlows(t *testing.T, w *world, is6 bool) {
	reached := map[int]int{}
	for port := uint16(5000); port < 5024; port++ {
		client, vip := endpoints(is6, port)
		first := -1
		for n := range 5 {
			b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(number(is6, int(port)*10+n), 100)}
			at := w.where("udp", b.Payload, func() { w.inject(b.Append(nil)) })
			if first < 0 {
				first = at
			}
			if at != first {
				t.Errorf("%s: datagram %d went to %d, before to %d", client, n, at, first)
			}
		}
		reached[first]++
	}
	if len(reached) != 4 {
		t.Errorf("24 flows reached %v", reached)
	}
}

// A router's complaint about what a backend sent reaches that backend.
func icmpErrors(t *testing.T, w *world, is6 bool) {
	router, kind := netip.MustParseAddr("10.61.0.99"), "icmp"
	if is6 {
		router, kind = netip.MustParseAddr("fd61::99"), "icmpv6"
	}
	for port := uint16(6000); port < 6012; port++ {
		client, vip := endpoints(is6, port)
		b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(number(is6, int(port)), 64)}
		owner := w.where("udp", b.Payload, func() { w.inject(b.Append(nil)) })
		sent := packet.Build{Src: vip, Dst: client, Proto: flow.ProtoUDP, Payload: tag(number(is6, int(port)+1000), 64)}
		complaint := packet.Quote(router, sent.Append(nil), 1300, 512)
		if got := w.where(kind, sent.Payload, func() { w.inject(complaint) }); got != owner {
			t.Errorf("%s: the error went to %d, the flow to %d", client, got, owner)
		}
	}
}

// Pings reach a backend by their identifier, and one identifier always the same.
func pings(t *testing.T, w *world, is6 bool) {
	client, vip := endpoints(is6, 0)
	proto, kind, request := flow.ProtoICMP, "icmp", uint8(8)
	if is6 {
		proto, kind, request = flow.ProtoICMPv6, "icmpv6", 128
	}
	reached := map[int]int{}
	for ident := range uint32(16) {
		first := -1
		for n := range uint32(3) {
			b := packet.Build{Src: client, Dst: vip, Proto: proto, ICMPType: request, ICMPRest: (ident+1)<<16 | n, Payload: tag(number(is6, int(ident*100+n)), 56)}
			at := w.where(kind, b.Payload, func() { w.inject(b.Append(nil)) })
			if first < 0 {
				first = at
			}
			if at != first {
				t.Errorf("identifier %d went to %d and %d", ident, first, at)
			}
		}
		reached[first]++
	}
	if len(reached) != 4 {
		t.Errorf("16 identifiers reached %v", reached)
	}
}

// IPv6 extension headers of 8 and of 16 bytes, alone and in chains, do not change where a flow goes (nfqlb drops the
// first and sends the second astray).
func extensions(t *testing.T, w *world) {
	const hop, dest = 0, 60
	for port := uint16(6500); port < 6508; port++ {
		client, vip := endpoints(true, port)
		plain := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(int(port), 80)}
		owner := w.where("udp", plain.Payload, func() { w.inject(plain.Append(nil)) })
		for n, chain := range [][]packet.Extension{
			{{Type: hop, Units: 0}},
			{{Type: hop, Units: 1}},
			{{Type: dest, Units: 0}},
			{{Type: dest, Units: 1}},
			{{Type: hop, Units: 0}, {Type: dest, Units: 1}},
			{{Type: hop, Units: 5}, {Type: dest, Units: 0}},
		} {
			b := plain
			b.Extensions, b.Payload = chain, tag(int(port)*10+n, 90)
			if got := w.where("udp", b.Payload, func() { w.inject(withOptions(b.Append(nil))) }); got != owner {
				t.Errorf("%s with %+v went to %d, without to %d", client, chain, got, owner)
			}
		}
	}
}

// Fragments in any order: each datagram arrives whole, at the backend where its flow goes when nothing is fragmented.
func TestRootNFQFragments(t *testing.T) {
	w := newWorld(t, 4, 2, Config{})
	w.run(worldSpec("", 0, 1, 2, 3))
	random := rand.New(rand.NewPCG(5, 6))
	id := uint32(1)
	families(t, func(t *testing.T, is6 bool) {
		reached := map[int]bool{}
		for port := uint16(7000); port < 7006; port++ {
			client, vip := endpoints(is6, port)
			plain := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(number(is6, int(port)), 80)}
			owner := w.where("udp", plain.Payload, func() { w.inject(plain.Append(nil)) })
			reached[owner] = true
			for _, size := range []int{2400, 30_000} {
				for _, order := range []string{"in order", "reversed", "shuffled", "shuffled again"} {
					id++
					b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, ID: id, Payload: tag(int(id), size)}
					if is6 && order == "shuffled" {
						b.Extensions = []packet.Extension{{Type: 0}, {Type: 60, Units: 1}}
					}
					pieces := b.Fragments(1400)
					for _, piece := range pieces {
						if is6 {
							withOptions(piece)
						}
					}
					switch order {
					case "reversed":
						for i, j := 0, len(pieces)-1; i < j; i, j = i+1, j-1 {
							pieces[i], pieces[j] = pieces[j], pieces[i]
						}
					case "shuffled", "shuffled again":
						random.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
					}
					if got := w.where("udp", b.Payload, func() { w.inject(pieces...) }); got != owner {
						t.Errorf("%s, %d bytes, %s: at %d instead of %d", client, size, order, got, owner)
					}
				}
			}
		}
		if len(reached) < 2 {
			t.Errorf("all flows went to %v: this proves little", reached)
		}
	})
	s := w.d.Stats()
	released := s.Queues[0].HeldReleased + s.Queues[1].HeldReleased
	if released < 2*6*21 {
		t.Errorf("%d fragments were held and released; reversed ones alone are %d", released, 2*6*21)
	}
}

// A flow's backend, as its client sees it.
type client struct {
	conn net.Conn
	name string
}

// requestBackend returns which backend answers.
func (c *client) queryWorkers(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, 2000)
	for range 20 {
		if _, err := fmt.Fprintf(c.conn, "%d", n); err != nil {
			t.Fatal(err)
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
		for {
			got, err := c.conn.Read(b)
			if err != nil {
				break // lost: asked again
			}
			if name, echo, _ := strings.Cut(string(b[:got]), " "); echo == fmt.Sprint(n) {
				return name
			}
		}
	}
	t.Fatalf("no answer to %s", c.conn.LocalAddr())
	return ""
}

// Ten backends come and go under 200 flows: only the ideal share moves, and 2 % at most besides; with conntrack only what
// has to.
func TestRootNFQDisruption(t *testing.T) {
	const flows, backends = 200, 10
	w := newWorld(t, backends, 2, Config{})
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	without := func(gone int) (rest []int) {
		for _, i := range all {
			if i != gone {
				rest = append(rest, i)
			}
		}
		return rest
	}
	w.run(worldSpec("conntrack: false", all...))
	_, vip := endpoints(false, 0)
	clients := make([]client, flows)
	for i := range clients {
		if err := w.client.Do(func() (err error) {
			local := &net.UDPAddr{IP: net.IPv4(10, 61, 0, 2), Port: 20000 + i}
			clients[i].conn, err = net.DialUDP("udp", local, net.UDPAddrFromAddrPort(vip))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer clients[i].conn.Close()
		clients[i].name = clients[i].queryWorkers(t, 0)
	}
	round := 0
	// change applies a spec and returns how many flows moved from and to where.
	change := func(spec string) (moved map[[2]string]int) {
		t.Helper()
		w.apply(spec)
		round++
		moved = map[[2]string]int{}
		for i := range clients {
			c := &clients[i]
			if now := c.queryWorkers(t, round); now != c.name {
				moved[[2]string{c.name, now}]++
				c.name = now
			}
		}
		return moved
	}
	for _, gone := range []int{3, 7, 0} {
		name := backendName(gone)
		had := 0
		for i := range clients {
			if clients[i].name == name {
				had++
			}
		}
		if had == 0 {
			t.Fatalf("%s has no flow", name)
		}
		for _, step := range []struct {
			what string
			spec string
			must func(from, to string) bool
		}{
			{"deactivated", worldSpec("conntrack: false", without(gone)...), func(from, _ string) bool { return from == name }},
			{"activated", worldSpec("conntrack: false", all...), func(_, to string) bool { return to == name }},
		} {
			ideal, needless := 0, 0
			for move, n := range change(step.spec) {
				if step.must(move[0], move[1]) {
					ideal += n
				} else {
					needless += n
				}
			}
			if ideal != had || needless > flows*2/100 {
				t.Errorf("%s %s: %d of its %d flows moved, and %d others; at most %d may", name, step.what, ideal, had, needless, flows*2/100)
			}
		}
	}
	// With conntrack nothing moves but what must: none when a backend comes, those of the one that goes.
	change(worldSpec("", all...))
	if moved := change(worldSpec("", without(5)...)); len(moved) == 0 {
		t.Error("no flow left a backend that was removed")
	} else {
		for move, n := range moved {
			if move[0] != backendName(5) {
				t.Errorf("with conntrack %d flows moved from %s to %s", n, move[0], move[1])
			}
		}
	}
	if moved := change(worldSpec("", all...)); len(moved) > 0 {
		t.Errorf("with conntrack flows moved to a backend that came: %v", moved)
	}
}

// A full queue drops, or with fail-open lets packets through without a mark.
func TestRootNFQFullQueue(t *testing.T) {
	netlabtest.Root(t)
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail-open=%v", open), func(t *testing.T) {
			const length, extra = 16, 20
			w := newWorld(t, 2, 1, Config{Length: length, FailOpen: open})
			if err := w.balancer.Do(func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			// Without a mark, packets to the VIP take the main table: to backend 1.
			if out, err := w.balancer.Exec(t.Context(), "ip", "route", "add", vip4+"/32", "via", "10.62.1.2"); err != nil {
				t.Fatal(err, out)
			}
			w.apply(worldSpec("", 0)) // taken, but no program answers: the queue fills up
			client, vip := endpoints(false, 5000)
			send := func(n int) {
				b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(n, 50)}
				w.inject(b.Append(nil))
			}
			for n := range length {
				send(n)
			}
			if _, err := await(w.d, func(s *Stats) bool { return s.Queues[0].Waiting == length }); err != nil {
				t.Fatal(err)
			}
			if open {
				for n := range extra {
					payload := tag(length+n, 50)
					if got := w.where("udp", payload, func() { send(length + n) }); got != 1 {
						t.Errorf("a packet that found the queue full went to %d", got)
					}
				}
				if s := w.d.Stats(); s.Queues[0].QueueDrops != 0 || s.Queues[0].Waiting != length {
					t.Errorf("%+v", s.Queues[0])
				}
				return
			}
			for n := range extra {
				send(length + n)
			}
			if s, err := await(w.d, func(s *Stats) bool { return s.Queues[0].QueueDrops == extra }); err != nil {
				t.Errorf("%v: %+v", err, s.Queues[0])
			}
			// What waited is answered once somebody runs; what was dropped stays lost.
			w.run(worldSpec("", 0))
			if got := w.where("udp", tag(0, 50), func() {}); got != 0 {
				t.Errorf("what waited went to %d", got)
			}
			if got := w.whoGot("udp", tag(length, 50)); len(got) > 0 {
				t.Errorf("what was dropped went to %v", got)
			}
		})
	}
}

// A queue that another has is named as such; one that is closed can be taken at once.
func TestRootNFQTaken(t *testing.T) {
	w := newWorld(t, 1, 2, Config{})
	w.apply(worldSpec("", 0))
	var second *Datapath
	if err := w.balancer.Do(func() (err error) { second, err = Open(Config{First: 1, Count: 2}); return err }); err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	var another *Datapath
	if err := w.balancer.Do(func() (err error) { another, err = Open(Config{First: 2, Count: 2}); return err }); err != nil {
		t.Fatal(err)
	}
	if err := another.Apply(compile(t, worldSpec("", 0))); err != nil {
		t.Errorf("a second one, on other queues: %v", err)
	}
	if err := another.Close(); err != nil {
		t.Error(err)
	}
	err := second.Apply(compile(t, worldSpec("", 0)))
	if err == nil || !strings.Contains(err.Error(), "take queue 1: port id") || !strings.Contains(err.Error(), "has it; end that process") {
		t.Fatalf("the second data path: %v", err)
	}
	if s := w.d.Stats(); s.Queues[1].PortID == 0 || len(s.Queues) != 2 {
		t.Errorf("%+v", s.Queues)
	}
	if err := w.d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Apply(compile(t, worldSpec("", 0))); err != nil {
		t.Errorf("after the first one closed: %v", err)
	}
}

// What the socket's buffer has no room for is dropped by the kernel, counted by it, and seen by weir as missing numbers.
func TestRootNFQLosesCounted(t *testing.T) {
	w := newWorld(t, 1, 1, Config{ReceiveBuffer: 4096})
	w.apply(worldSpec("", 0)) // no program reads
	client, vip := endpoints(false, 5000)
	const sent = 200
	for n := range sent {
		b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(n, 50)}
		w.inject(b.Append(nil))
	}
	s, err := await(w.d, func(s *Stats) bool { return s.Queues[0].LastID == sent })
	if err != nil || s.Queues[0].UserDrops == 0 || s.Queues[0].UserDrops+s.Queues[0].Waiting != sent {
		t.Fatalf("%v: %+v", err, s.Queues[0])
	}
	w.run(worldSpec("", 0))
	payload := tag(sent+1000, 50)
	w.where("udp", payload, func() {
		b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: payload}
		w.inject(b.Append(nil))
	})
	if s := w.d.Stats(); s.Queues[0].MissingIDs == 0 || s.Queues[0].MissingIDs != uint64(s.Queues[0].UserDrops) {
		t.Errorf("%+v", s.Queues[0])
	}
}

// Packets whose interface goes away leave the queue without weir: a verdict for them is refused, and nothing else happens.
func TestRootNFQInterfaceGone(t *testing.T) {
	w := newWorld(t, 1, 1, Config{})
	w.run(worldSpec("", 0))
	client, vip := endpoints(false, 5000)
	b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, ID: 7, Payload: tag(1, 4000)}
	pieces := b.Fragments(1400)
	w.inject(pieces[1], pieces[2])
	if _, err := await(w.d, func(s *Stats) bool { return s.Queues[0].Held == 2 && s.Queues[0].Waiting == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := w.balancer.SetUp("in0", false); err != nil {
		t.Fatal(err)
	}
	if s, err := await(w.d, func(s *Stats) bool { return s.Queues[0].Waiting == 0 }); err != nil {
		t.Fatalf("the kernel keeps packets of an interface that is down: %+v", s.Queues[0])
	}
	if err := w.balancer.SetUp("in0", true); err != nil {
		t.Fatal(err)
	}
	if got := w.where("udp", b.Payload, func() { w.inject(pieces...) }); got != 0 {
		t.Errorf("went to %d", got)
	}
	if s, err := await(w.d, func(s *Stats) bool { return s.Queues[0].RefusedAnswers == 2 }); err != nil {
		t.Errorf("%+v", s.Queues[0])
	}
}

// An ICMP error reaches the backend that its flow was kept on, although another queue got it and the table says otherwise.
func TestRootNFQErrorsAcrossQueues(t *testing.T) {
	w := newWorld(t, 3, 2, Config{})
	for i, c := range []struct{ command, vip, icmp string }{{"iptables", vip4, "icmp"}, {"ip6tables", vip6, "ipv6-icmp"}} {
		for queue, protocol := range []string{"udp", c.icmp} {
			args := []string{"-w", "-t", "mangle", "-I", "PREROUTING", "-i", "in0", "-d", c.vip, "-p", protocol, "-j", "NFQUEUE", "--queue-num", fmt.Sprint(queue)}
			if out, err := w.balancer.Exec(t.Context(), c.command, args...); err != nil {
				t.Fatalf("%d: %v\n%s", i, err, out)
			}
		}
	}
	all := worldSpec("", 0, 1, 2)
	w.run(all)
	families(t, func(t *testing.T, is6 bool) {
		w.apply(all)
		router, kind := netip.MustParseAddr("10.61.0.99"), "icmp"
		if is6 {
			router, kind = netip.MustParseAddr("fd61::99"), "icmpv6"
		}
		client, vip := endpoints(is6, 6100)
		b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(number(is6, 6100), 64)}
		owner := w.where("udp", b.Payload, func() { w.inject(b.Append(nil)) })
		kept := fmt.Sprintf("{name: %s, mark: %d", backendName(owner), firstMark+owner)
		w.apply(strings.Replace(all, kept, kept+", weight: 0", 1))
		sent := packet.Build{Src: vip, Dst: client, Proto: flow.ProtoUDP, Payload: tag(number(is6, 6101), 64)}
		complaint := packet.Quote(router, sent.Append(nil), 1300, 512)
		if got := w.where(kind, sent.Payload, func() { w.inject(complaint) }); got != owner {
			t.Errorf("the error went to %d, its flow is kept on %d", got, owner)
		}
		// One about a flow that no one knows goes by the table, which has no place for that backend.
		sent.Dst, sent.Payload = netip.AddrPortFrom(client.Addr(), 6200), tag(number(is6, 6102), 64)
		complaint = packet.Quote(router, sent.Append(nil), 1300, 512)
		if got := w.where(kind, sent.Payload, func() { w.inject(complaint) }); got == owner {
			t.Errorf("an error about no flow went to %d, which takes nothing new", got)
		}
	})
	if s := w.d.Stats(); s.Queues[1].Queries < 4 || s.Queues[0].Queries != 0 {
		t.Errorf("%d and %d questions, want none and 4 at least", s.Queues[0].Queries, s.Queues[1].Queries)
	}
}
