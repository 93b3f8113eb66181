package ebpf

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

// differentialSpec has a service of every kind.
const differentialSpec = `
hash_key: 000102030405060708090a0b0c0d0e0f
maglev_size: 251
limits: {flows: 131072, fragments: 262144, held_fragments: 65536, held_per_datagram: 8, fragment_ttl: 2s}
services:
- name: cid
  mode: l2dsr
  vips:
  - {address: "192.0.2.1", protocol: udp, port: 5684}
  - {address: "2001:db8:f::1", protocol: udp, port: 5684}
  cid:
    protocols: [dtls12, dtls13, quic]
    layouts:
    - {length: 6, owner: {offset: 3, bits: 9}, rotation: {offset: 0, bits: 2, value: 1}}
    - {length: 8, owner: {offset: 8, bits: 32}, rotation: {offset: 0, bits: 2, value: 2}, nodes: {a: [2, 300], b: [0, 1, 70000]}}
  backends:
  - {name: a, address: "10.1.0.1", address2: "2001:db8:1::1", nodes: [0, 1, 7]}
  - {name: b, address: "10.1.0.2", address2: "2001:db8:1::2", nodes: [2, 300]}
  - {name: gone, action: drop, weight: 30}
- name: cidnat
  mode: nat
  outbound: true
  vips:
  - {address: "192.0.2.7", protocol: udp, port: 443}
  cid:
    protocols: [quic]
    layouts: [{length: 4, owner: {offset: 0, bits: 8}}]
  backends:
  - {name: a, address: "10.7.0.1", nodes: [0, 1, 2, 3]}
  - {name: b, address: "10.7.0.2", port: 4433, nodes: [4, 5, 6]}
- name: nat
  mode: nat
  ping: balancer
  timeouts: {udp: 3s, tcp_opening: 2s, tcp_established: 20s, tcp_closing: 2s}
  vips:
  - {address: "192.0.2.2", protocol: tcp, port: 80}
  - {address: "192.0.2.2", protocol: udp, port: 80-90}
  - {address: "2001:db8:f::2", protocol: tcp, port: 80}
  - {address: "2001:db8:f::2", protocol: udp, port: any}
  backends:
  - {name: a, address: "10.2.0.1", address2: "2001:db8:2::1", port: 8080}
  - {name: b, address: "10.2.0.2", address2: "2001:db8:2::2"}
  - {name: gone, action: reject, weight: 60}
- name: snat
  mode: nat
  new_flow_rate: 4
  outbound: true
  vips:
  - {address: "192.0.2.3", protocol: tcp, port: 80}
  - {address: "192.0.2.3", protocol: udp, port: 80}
  - {address: "2001:db8:f::3", protocol: udp, port: 80}
  snat: {addresses: ["198.18.1.1", "198.18.1.2", "2001:db8:5::1"], ports: 2000-2099}
  backends:
  - {name: a, address: "10.3.0.1", address2: "2001:db8:3::1", port: 8080}
  - {name: gone, action: reject, weight: 20}
- name: start
  mode: nat
  outbound: true
  timeouts: {udp: 3s}
  vips:
  - {address: "192.0.2.8", protocol: udp, port: 80}
  - {address: "2001:db8:f::5", protocol: udp, port: 80}
  backends:
  - {name: a, address: "10.8.0.1", address2: "2001:db8:8::1", port: 7000}
  - {name: b, address: "10.8.0.2", address2: "2001:db8:8::2", port: 7000}
- name: source
  mode: l3dsr
  affinity: source
  vips:
  - {address: "192.0.2.0/28", protocol: udp, port: any}
  - {address: "2001:db8:f::/64", protocol: tcp, port: any}
  backends:
  - {name: a, address: "10.4.0.1"}
  - {name: b, address: "2001:db8:4::2"}
  - {name: gone, action: reject, weight: 30}
- name: shared
  mode: nat
  affinity: destination_port
  sources: ["10.0.0.2", "10.0.0.4/30", "2001:db8:c::8/126"]
  vips:
  - {address: "192.0.2.4", protocol: tcp, port: 80}
  - {address: "2001:db8:f::4", protocol: udp, port: 80}
  backends:
  - {name: a, address: "10.6.0.1", address2: "2001:db8:6::1"}
  - {name: b, address: "10.6.0.2", address2: "2001:db8:6::2"}
- name: tunnel
  mode: l3dsr
  tunnel: gue
  affinity: no_source_port
  sources: ["10.0.0.0/30", "::/0"]
  vips:
  - {address: "192.0.2.4", protocol: tcp, port: 80}
  - {address: "2001:db8:f::4", protocol: udp, port: 80}
  backends:
  - {name: a, address: "10.5.0.1", address2: "2001:db8:5::1"}
  - {name: b, address: "10.5.0.2", address2: "2001:db8:5::2"}
`

// differentialLayouts are the CID layouts of differentialSpec in another order, with an owner of one moved: old CIDs must
// find their owners after a reload, new ones theirs.
const differentialLayouts = `
    - {length: 8, owner: {offset: 8, bits: 32}, rotation: {offset: 0, bits: 2, value: 2}, nodes: {a: [2, 300, 70000], b: [0, 1]}}
    - {length: 6, owner: {offset: 3, bits: 9}, rotation: {offset: 0, bits: 2, value: 1}}`

// otherLayouts is differentialSpec with differentialLayouts.
func otherLayouts() string {
	before, rest, _ := strings.Cut(differentialSpec, "    layouts:\n")
	_, after, _ := strings.Cut(rest, "\n  backends:")
	return before + "    layouts:" + differentialLayouts + "\n  backends:" + after
}

// TestRootDifferential gives the same random packets to the Go engine and to
// the program. FRAMES says how many, SEED repeats a run.
func TestRootDifferential(t *testing.T) {
	t.Parallel()
	frames, seed := 20000, uint64(time.Now().UnixNano())
	if s := os.Getenv("FRAMES"); s != "" {
		frames, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	for _, hook := range []attach.Hook{attach.HookXDP, attach.HookTCX} {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			defer w.close()
			t.Logf("SEED=%d", seed)
			ebpftest.Do(t, w.host, func() error {
				w.there = true
				defer func() { w.there = false }()
				return differ(t, w, hook, seed, frames/2)
			})
		})
	}
}

func differ(t *testing.T, w *world, hook attach.Hook, seed uint64, frames int) error {
	var specs [2]lb.Spec
	for i, text := range []string{differentialSpec, otherLayouts()} {
		var err error
		if specs[i], _, err = config.Decode[lb.Spec]("spec.yaml", []byte(text)); err != nil {
			return err
		}
	}
	caps := Caps(hook)
	snapshot, err := lb.Compile(specs[0], nil, caps)
	if err != nil {
		return err
	}
	reference := &steertest.Engine{Router: true}
	kernel := &path{t: t, w: w, hook: hook}
	for _, p := range []steertest.Path{reference, kernel} {
		if err := p.Apply(snapshot); err != nil {
			return err
		}
	}
	g := &frameGenerator{r: rand.New(rand.NewPCG(seed, 1))}
	reasons := map[lb.Reason]int{}
	var now time.Duration
	for i := range frames {
		if i%1500 == 1499 {
			if snapshot, err = lb.CompileAt(lb.Moment{Now: time.Now()}, snapshot, specs[g.r.IntN(2)], g.overrides(), caps); err != nil {
				return err
			}
			snapshot.Generation = uint64(i)
			for _, p := range []steertest.Path{reference, kernel} {
				if err := p.Apply(snapshot); err != nil {
					return err
				}
			}
		}
		if g.r.IntN(40) == 0 {
			now += time.Duration(g.r.IntN(1500)) * time.Millisecond
		}
		frame := g.frame()
		if hook == attach.HookTCX && short(frame) || unroutable(frame) {
			continue // TEST_RUN makes no skb of it; no route leads back
		}
		want, err := reference.Packet(bytes.Clone(frame), true, now)
		if err != nil {
			return err
		}
		got, err := kernel.Packet(bytes.Clone(frame), true, now)
		if err != nil {
			return fmt.Errorf("frame %d: %w\n%x", i, err, frame)
		}
		if i%64 == 0 {
			if err := w.drain(kernel.d); err != nil {
				return err
			}
		}
		// The kernel encapsulates behind a tag in the frame on XDP only; on TCX the
		// first tag is outside the frame.
		if got.Reason == lb.ReasonSendFailed && hook == attach.HookTCX && (frame[12] == 0x81 || frame[12] == 0x88) {
			continue
		}
		reasons[want.Reason]++
		if want.Reason != got.Reason || want.Service != got.Service || want.Backend != got.Backend || !bytes.Equal(want.Out, got.Out) {
			return fmt.Errorf("frame %d at %s:\n%s\nwant %s %s/%s %x\ngot  %s %s/%s %x", i, now, hex.EncodeToString(frame),
				want.Reason, want.Service, want.Backend, want.Out, got.Reason, got.Service, got.Backend, got.Out)
		}
		if want.Action == lb.Forward {
			g.saw(frame, want.Out)
		}
		if want.Reason == lb.ReasonSNATExhausted {
			now += time.Millisecond // the program searches no more in this tick (snat_waits), the Go engine does
		}
	}
	t.Logf("%d frames, no difference: %v", frames, reasons)
	if len(reasons) < 14 || min(reasons[lb.ReasonOutbound], reasons[lb.ReasonCID], reasons[lb.ReasonShareRefused]) < frames/1000 {
		return fmt.Errorf("only %d reasons were seen, outbound %d, cid %d and share_refused %d times: the packets do not reach enough of the program", len(reasons), reasons[lb.ReasonOutbound], reasons[lb.ReasonCID], reasons[lb.ReasonShareRefused])
	}
	return nil
}

// short says whether a frame ends inside its IP header.
func short(frame []byte) bool {
	switch {
	case frame[12] == 0x08 && frame[13] == 0:
		return len(frame) < 14+20
	case frame[12] == 0x86 && frame[13] == 0xdd:
		return len(frame) < 14+40
	}
	return false
}

// unroutable says whether the kernel forwards nothing to an address of the
// frame; 10.255.0.0/24 is the wire, whose only neighbour is the router.
func unroutable(frame []byte) bool {
	var p packet.Packet
	if packet.ParseFrame(frame, &p) != nil {
		return false
	}
	for _, a := range []netip.Addr{
		netip.AddrFrom16(p.SrcAddr()).Unmap(), netip.AddrFrom16(p.DstAddr()).Unmap(), p.Key.Source().Addr(), p.Key.Destination().Addr(),
	} {
		if b := a.AsSlice(); a.Is4() && (b[0] == 10 && b[1] == 255 && b[2] == 0 || b[0] == 0 || b[0] == 127 || b[0] >= 224) || a.Is6() && b[0]>>5 != 1 {
			return true
		}
	}
	return false
}

// frameGenerator makes frames that have something to do with each other.
type frameGenerator struct {
	r    *rand.Rand
	sent [][]byte // IP packets as they left, to be answered
	kept [][]byte // frames, to come again
	next [][]byte // fragments of one datagram, shuffled
}

// overrides takes backends and services out of the game.
func (g *frameGenerator) overrides() (o *lb.Overrides) {
	for range g.r.IntN(5) {
		target := lb.Target{Service: g.pick("cid", "cidnat", "nat", "snat", "start", "source", "tunnel"), Backend: g.pick("a", "b", "a", "b", "")}
		o = o.With(target, lb.FromOperator, []lb.Override{lb.OverrideDown, lb.OverrideDrain}[g.r.IntN(2)])
	}
	return o
}

func (g *frameGenerator) pick(s ...string) string { return s[g.r.IntN(len(s))] }

// saw keeps a packet that was forwarded.
func (g *frameGenerator) saw(frame, out []byte) {
	const keep = 64
	if len(g.sent) < keep {
		g.sent = append(g.sent, bytes.Clone(out))
		g.kept = append(g.kept, bytes.Clone(frame))
		return
	}
	i := g.r.IntN(keep)
	g.sent[i], g.kept[i] = bytes.Clone(out), bytes.Clone(frame)
}

func (g *frameGenerator) frame() []byte {
	for {
		var frame []byte
		if len(g.next) > 0 && g.r.IntN(2) == 0 {
			frame, g.next = g.next[0], g.next[1:]
			return g.mutate(frame)
		}
		switch n := g.r.IntN(10); {
		case n < 5 || len(g.sent) == 0:
			frame = g.fresh(g.line())
		case n < 7:
			frame = bytes.Clone(g.kept[g.r.IntN(len(g.kept))])
		default:
			frame = g.answer(g.sent[g.r.IntN(len(g.sent))])
		}
		if frame == nil {
			continue
		}
		return g.mutate(frame)
	}
}

// line writes a packet to a VIP or near one.
func (g *frameGenerator) line() string {
	is6 := g.r.IntN(2) == 0
	client, vip := fmt.Sprintf("10.0.0.%d", g.r.IntN(12)), fmt.Sprintf("192.0.2.%d", g.r.IntN(9))
	if is6 {
		client, vip = fmt.Sprintf("2001:db8:c::%x", g.r.IntN(12)), fmt.Sprintf("2001:db8:f::%x", g.r.IntN(6))
	}
	if g.r.IntN(30) == 0 {
		vip = g.pick("10.2.0.1", "203.0.113.9")
		if is6 {
			vip = g.pick("2001:db8:2::1", "2001:db8:99::1")
		}
	}
	if g.r.IntN(6) == 0 {
		return g.started(is6, client, vip)
	}
	options := ""
	if g.r.IntN(6) == 0 {
		options += fmt.Sprintf(" ttl=%d", 1+g.r.IntN(3))
	}
	if g.r.IntN(10) == 0 {
		options += " vlan=" + g.pick("7", "10,20")
	}
	if is6 && g.r.IntN(5) == 0 {
		options += " ext=" + g.pick("hop:0", "hop:1,dest:0,routing:2", "auth:1", "dest:0")
	}
	if is6 && g.r.IntN(5) == 0 {
		options += " inner=" + g.pick("dest:0", "dest:1,auth:1", "routing:2")
	}
	if !is6 && g.r.IntN(5) == 0 {
		options += " opt=" + g.pick("4", "8", "40")
	}
	if g.r.IntN(8) == 0 {
		return fmt.Sprintf("%s %s > %s ident=%d%s", g.pick("ping", "pong"), client, vip, g.r.IntN(4), options)
	}
	if g.r.IntN(4) == 0 { // where connection ids are looked for
		if is6 {
			return fmt.Sprintf("udp [%s]:%d > [2001:db8:f::1]:5684 %s%s", client, 5000+g.r.IntN(4), g.payload(), options)
		}
		return fmt.Sprintf("udp %s:%d > %s %s%s", client, 5000+g.r.IntN(4), g.pick("192.0.2.1:5684", "192.0.2.7:443"), g.payload(), options)
	}
	port := g.pick("80", "80", "443", "5684", "5684", "85", "7")
	from, to := fmt.Sprintf("%s:%d", client, 5000+g.r.IntN(4)), vip+":"+port
	if is6 {
		from, to = fmt.Sprintf("[%s]:%d", client, 5000+g.r.IntN(4)), "["+vip+"]:"+port
	}
	if g.r.IntN(3) == 0 {
		return fmt.Sprintf("tcp %s > %s flags=%s%s %s", from, to, g.pick("syn", "ack", "ack", "fin,ack", "rst", "syn,ack"), options, g.pick("", "0102"))
	}
	if g.r.IntN(20) == 0 {
		options += " csum=0"
	}
	if g.r.IntN(4) == 0 {
		return fmt.Sprintf("udp %s > %s payload=1500 id=%d frag=%d%s", from, to, g.r.IntN(6), 8*(20+g.r.IntN(100)), options)
	}
	return fmt.Sprintf("udp %s > %s %s%s", from, to, g.payload(), options)
}

// started is a packet that a backend sends of its own accord, at times from
// another port or to where no one may start a flow.
func (g *frameGenerator) started(is6 bool, client, vip string) string {
	from, to := g.pick("10.3.0.1:8080", "10.7.0.1:443", "10.7.0.2:4433", "10.8.0.1:7000", "10.8.0.2:7000", "10.8.0.2:7001", "10.2.0.1:8080"), client
	other := "10.3.0.1"
	if is6 {
		from = g.pick("[2001:db8:3::1]:8080", "[2001:db8:8::1]:7000", "[2001:db8:8::2]:7000", "[2001:db8:8::1]:7001", "[2001:db8:2::1]:8080")
		other = "2001:db8:3::1"
	}
	if g.r.IntN(10) == 0 {
		to = g.pick(vip, other)
	}
	if is6 {
		to = "[" + to + "]"
	}
	to = fmt.Sprintf("%s:%d", to, 5000+g.r.IntN(4))
	switch g.r.IntN(10) {
	case 0:
		return fmt.Sprintf("tcp %s > %s flags=syn", from, to)
	case 1, 2:
		return fmt.Sprintf("udp %s > %s payload=1500 id=%d frag=%d", from, to, g.r.IntN(6), 8*(20+g.r.IntN(100)))
	case 3:
		return fmt.Sprintf("udp %s > %s ttl=%d 0102", from, to, 1+g.r.IntN(2))
	}
	return fmt.Sprintf("udp %s > %s 0102", from, to)
}

// payload is a datagram, often with a connection id.
func (g *frameGenerator) payload() string {
	b := make([]byte, 40)
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	// Rotation 1: nine bits of owner from bit 3. Rotation 2: 32 bits from bit 8.
	owner := []int{0, 1, 2, 7, 300, 9, 70000}[g.r.IntN(7)]
	id := []byte{byte(1<<6 | owner>>4&0x1f), byte(owner << 4), 0, 0, 0, 1, 2, 3, 4}
	switch g.r.IntN(4) {
	case 0:
		id = []byte{2 << 6, 0, byte(owner >> 16), byte(owner >> 8), byte(owner), 1, 2, 3, 4}
	case 1:
		id[0], id[1] = byte(g.r.IntN(256)), byte(g.r.IntN(8))
	case 2: // one byte of owner
		id[0] = byte(g.r.IntN(8))
	}
	switch g.r.IntN(7) {
	case 0:
		return g.pick("", "00", "16")
	case 1: // DTLS 1.2, at times behind plain records
		record := append([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 7}, id[:6+2*g.r.IntN(2)]...)
		record = append(record, 0, byte(g.r.IntN(8)), 1, 2, 3, 4)
		for range g.r.IntN(2) * g.r.IntN(10) {
			record = append([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 9, 9}, record...)
		}
		return hex.EncodeToString(record)
	case 2: // DTLS 1.3
		return hex.EncodeToString(append([]byte{byte(0x20 | g.r.IntN(32))}, append(id, b[:g.r.IntN(20)]...)...))
	case 3: // QUIC short
		return hex.EncodeToString(append([]byte{byte(g.r.IntN(128))}, append(id, b[:g.r.IntN(20)]...)...))
	case 4: // QUIC long
		long := []byte{byte(0x80 | g.r.IntN(128)), 0, 0, 0, byte(g.r.IntN(4)), byte(g.r.IntN(22))}
		if g.r.IntN(2) == 0 {
			long[5] = []byte{4, 6, 8}[g.r.IntN(3)]
		}
		if g.r.IntN(4) == 0 {
			copy(long[1:], []byte{0x6b, 0x33, 0x43, 0xcf})
		}
		return hex.EncodeToString(append(long, append(id, b[:g.r.IntN(30)]...)...))
	}
	return hex.EncodeToString(b[:g.r.IntN(len(b))])
}

// fresh builds the line's packet.
func (g *frameGenerator) fresh(line string) []byte {
	d, err := packet.ParseText(line)
	if err != nil || len(d.Packets) == 0 {
		return nil
	}
	b := d.Packets[g.r.IntN(len(d.Packets))]
	if len(d.Packets) > 1 {
		for _, i := range g.r.Perm(len(d.Packets)) {
			piece := d.Packets[i]
			if !d.Frame {
				piece = frameOf(piece)
			}
			g.next = append(g.next, piece)
		}
		return nil
	}
	if !d.Frame {
		return frameOf(b)
	}
	return b
}

// answer replies to a packet that left, or complains about it.
func (g *frameGenerator) answer(out []byte) []byte {
	var p packet.Packet
	if packet.Parse(out, &p) != nil {
		return nil
	}
	back := p.Key.Reverse()
	if p.Kind == packet.KindTCP || p.Kind == packet.KindUDP {
		name := map[packet.Kind]string{packet.KindTCP: "tcp", packet.KindUDP: "udp"}[p.Kind]
		quoted := p.Key
		if g.r.IntN(3) == 0 { // the answer that a backend sent by itself
			quoted = back
		}
		about := fmt.Sprintf("%s %s > %s", name, quoted.Source(), quoted.Destination())
		router := g.pick("10.9.9.9", back.Source().Addr().String())
		if p.Version == 6 {
			router = g.pick("2001:db8:99::9", back.Source().Addr().String())
		}
		switch g.r.IntN(4) {
		case 0:
			return g.fresh(fmt.Sprintf("toobig %s 1300 about %s %s", router, about, g.pick("", "0102030405")))
		case 1:
			return g.fresh(fmt.Sprintf("unreachable %s quote=%d about %s 01020304", router, 20+g.r.IntN(60), about))
		case 2:
			if name == "udp" {
				return g.fresh(fmt.Sprintf("udp %s > %s payload=1000 id=%d frag=400", back.Source(), back.Destination(), g.r.IntN(6)))
			}
		}
		flags := ""
		if name == "tcp" {
			flags = " flags=" + g.pick("syn,ack", "ack", "fin,ack", "rst")
		}
		return g.fresh(fmt.Sprintf("%s %s > %s%s 0a0b", name, back.Source(), back.Destination(), flags))
	}
	if p.Kind == packet.KindEcho {
		return g.fresh(fmt.Sprintf("pong %s > %s ident=%d", back.Source().Addr(), back.Destination().Addr(), p.Key.SrcPort))
	}
	// A later fragment: complain about the datagram it belongs to.
	if p.Later && len(out) < 1200 {
		return g.complain(out, &p)
	}
	return nil
}

// complain quotes a packet as it is.
func (g *frameGenerator) complain(out []byte, p *packet.Packet) []byte {
	quote := out[:min(len(out), 60)]
	dst := p.Key.Source().Addr()
	if p.Version == 4 {
		icmp := append([]byte{11, 1, 0, 0, 0, 0, 0, 0}, quote...)
		n := 20 + len(icmp)
		ip := []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 9, 9}
		ip = append(ip, dst.AsSlice()...)
		return frameOf(append(ip, icmp...))
	}
	icmp := append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, quote...)
	ip := []byte{0x60, 0, 0, 0, byte(len(icmp) >> 8), byte(len(icmp)), 58, 64}
	ip = append(ip, []byte{0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}...)
	return frameOf(append(append(ip, dst.AsSlice()...), icmp...))
}

// mutate breaks one frame in six: bytes changed, cut off, or appended.
func (g *frameGenerator) mutate(frame []byte) []byte {
	if g.r.IntN(6) != 0 {
		return frame
	}
	switch g.r.IntN(4) {
	case 0: // padding
		frame = append(frame, make([]byte, g.r.IntN(20))...)
	case 1:
		frame = frame[:14+g.r.IntN(len(frame)-13)]
	default:
		for range 1 + g.r.IntN(3) {
			at := 12 + g.r.IntN(min(len(frame)-12, 100))
			frame[at] = byte(g.r.Uint32())
		}
	}
	if len(frame) < 15 {
		frame = append(frame, make([]byte, 15-len(frame))...) // TEST_RUN wants more than a link header
	}
	return frame
}
