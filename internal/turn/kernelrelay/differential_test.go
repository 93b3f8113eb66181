package kernelrelay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func modelChannels() []modelChannel {
	a := netip.MustParseAddrPort
	return []modelChannel{
		{Channel: Channel{Client: a("198.51.100.1:4000"), Listener: a("192.0.2.1:3478"), Relay: a("192.0.2.1:50000"), Peer: a("203.0.113.9:5000"), Number: 0x4000}},
		{Channel: Channel{Client: a("198.51.100.1:4000"), Listener: a("192.0.2.1:3478"), Relay: a("192.0.2.1:50000"), Peer: a("203.0.113.8:5000"), Number: 0x4fff}, shut: true},
		{Channel: Channel{Client: a("[2001:db8::1]:4000"), Listener: a("[2001:db8:2::1]:3478"), Relay: a("[2001:db8:2::1]:50000"), Peer: a("[2001:db8:9::9]:5000"), Number: 0x4001}},
		{Channel: Channel{Client: a("198.51.100.2:4000"), Listener: a("192.0.2.1:3478"), Relay: a("[2001:db8:2::1]:50001"), Peer: a("[2001:db8:9::9]:5000"), Number: 0x4002}},
		{Channel: Channel{Client: a("[2001:db8::2]:4000"), Listener: a("[2001:db8:2::1]:3478"), Relay: a("192.0.2.1:50002"), Peer: a("203.0.113.9:5000"), Number: 0x4003}},
		// A peer that is another channel's client, and whose data looks like ChannelData.
		{Channel: Channel{Client: a("198.51.100.3:4000"), Listener: a("192.0.2.1:3478"), Relay: a("192.0.2.1:50003"), Peer: a("198.51.100.1:4000"), Number: 0x4004}},
	}
}

// relayBench runs frames through a detached Relay.
type relayBench struct {
	o      *Relay
	hook   attach.Hook
	counts []uint64
}

func openRelayBench(hook attach.Hook, index int) (*relayBench, error) {
	o, err := Open(Config{Hook: hook, MaxChannels: 64, detached: true, home: index})
	if err != nil {
		return nil, err
	}
	o.tables.control.Now = 1 << 20
	o.mu.Lock()
	o.findOuts()
	o.mu.Unlock()
	b := &relayBench{o: o, hook: hook}
	_, err = b.ended()
	return b, err
}

// ended names what packets since the last call became.
func (b *relayBench) ended() (ends []string, err error) {
	first := b.counts == nil
	if first {
		b.counts = make([]uint64, len(b.o.tables.ends))
	}
	var perCPU []bpf.Count
	for end, name := range b.o.tables.ends {
		var n uint64
		if err := b.o.tables.Maps[bpf.TurnMapTurnCounts].Lookup(uint32(end), &perCPU); err != nil {
			return nil, err
		}
		for _, c := range perCPU {
			n += c.Packets
		}
		for ; b.counts[end] < n; b.counts[end]++ {
			ends = append(ends, name)
		}
	}
	return ends, nil
}

// run gives one frame to the program.
func (b *relayBench) run(frame []byte) (end string, verdict uint32, out []byte, err error) {
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	if b.hook == attach.HookTCX {
		options.Context = &ebpftest.SkBuff{}
	}
	if verdict, err = relayProgram(b.o.objects[b.hook]).Run(&options); err != nil {
		return "", 0, nil, err
	}
	ends, err := b.ended()
	if err == nil && len(ends) != 1 {
		err = fmt.Errorf("one packet is counted as %v", ends)
	}
	if err != nil {
		return "", 0, nil, err
	}
	return ends[0], verdict, options.DataOut, nil
}

// wanted is the hook's verdict for an end.
func wanted(hook attach.Hook, end string) uint32 {
	pass, drop := uint32(2), uint32(1)
	if hook == attach.HookTCX {
		pass, drop = ^uint32(0), 2
	}
	switch end {
	case "up", "down":
		return ebpftest.Redirected(hook)
	case "permission", "bandwidth", "failed":
		return drop
	}
	return pass
}

// TestRootDifferentialOffload gives the same random frames to a model in Go and to the programs: same end, same bytes.
// FRAMES says how many, SEED repeats a run.
func TestRootDifferentialOffload(t *testing.T) {
	t.Parallel()
	frames, seed := 20000, uint64(time.Now().UnixNano())
	if s := os.Getenv("FRAMES"); s != "" {
		frames, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	for _, hook := range ebpftest.Hooks() {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			host, index := ebpftest.Namespace(t)
			t.Logf("SEED=%d", seed)
			ebpftest.Do(t, host, func() error { return differRelay(t, host, index, hook, seed, frames) })
		})
	}
}

func differRelay(t *testing.T, host *netlab.Host, index int, hook attach.Hook, seed uint64, frames int) error {
	b, err := openRelayBench(hook, index)
	if err != nil {
		return err
	}
	defer b.o.Close()
	_, mac, err := host.Interface("lb0")
	if err != nil {
		return err
	}
	model := &relayModel{channels: modelChannels(), mtu: 1500, partial: hook == attach.HookXDP}
	copy(model.macs[:], []byte{2, 0, 0, 0, 0, 9})
	copy(model.macs[6:], mac[:])
	traffic := make([][2]Traffic, len(model.channels))
	for _, c := range model.channels {
		id, err := b.o.Add(c.Channel)
		if err != nil {
			return err
		}
		if err := b.o.Permit(id, !c.shut); err != nil {
			return err
		}
	}
	g := &frameMaker{Rand: rand.New(rand.NewPCG(seed, 1)), model: model, hook: hook}
	seen := map[string]int{}
	for i := range frames {
		frame := g.frame()
		end, out, channel := model.frame(frame)
		seen[end]++
		gotEnd, verdict, got, err := b.run(frame)
		if gotEnd == "no_next_hop" && seen["up"]+seen["down"] == 1 && (end == "up" || end == "down") { // the network has just been made
			netlabtest.Eventually(t, "the first relayed frame has a next hop", func() bool {
				gotEnd, verdict, got, err = b.run(frame)
				return gotEnd != "no_next_hop"
			})
		}
		if err != nil {
			return fmt.Errorf("frame %d %x: %w", i, frame, err)
		}
		if gotEnd != end || verdict != wanted(hook, end) {
			return fmt.Errorf("frame %d %x:\n%s, verdict %d, want %s, %d", i, frame, gotEnd, int32(verdict), end, int32(wanted(hook, end)))
		}
		if out == nil {
			out = frame // untouched
		} else if !sameFrame(got, out) {
			return fmt.Errorf("frame %d %x: %s:\n%x, want\n%x", i, frame, end, got, out)
		} else {
			at := &traffic[channel][0]
			bytes := len(out) - 14 - transportOf(out[14:]) - 8
			if end == "down" {
				at, bytes = &traffic[channel][1], bytes-4
			}
			at.Packets++
			at.Bytes += uint64(bytes)
			continue
		}
		if verdict == wanted(hook, "other") && string(got) != string(out) {
			return fmt.Errorf("frame %d %x: passed as %s, but changed:\n%x", i, frame, end, got)
		}
	}
	t.Log(seen)
	for _, end := range []string{"other", "unsuited", "ttl", "too_big", "no_checksum", "up", "down", "permission"} {
		if seen[end] == 0 {
			t.Errorf("no frame was %s", end)
		}
	}
	return b.o.Counters(func(id uint32, up, down Traffic) {
		if want := traffic[id-1]; up != want[0] || down != want[1] {
			t.Errorf("channel %d counts %v, %v, want %v", id, up, down, want)
		}
	})
}

// frameMaker makes frames around the channels of a model.
type frameMaker struct {
	*rand.Rand
	model *relayModel
	hook  attach.Hook
}

func (g *frameMaker) one(in int) bool { return g.IntN(in) == 0 }

// size is one of user data: small, usual, around the MTU.
func (g *frameMaker) size() int {
	switch g.IntN(4) {
	case 0:
		return g.IntN(12)
	case 1:
		return 1420 + g.IntN(60)
	}
	return g.IntN(1400)
}

func (g *frameMaker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g *frameMaker) frame() []byte {
	c := g.model.channels[g.IntN(len(g.model.channels))]
	b := packet.Build{Proto: 17, TTL: byte(2 + g.IntN(254)), Class: byte(g.Uint32()), ID: g.Uint32(), DontFrag: g.one(2), NoChecksum: g.one(12)}
	if g.one(2) {
		b.Src, b.Dst = c.Client, c.Listener
		data := g.bytes(g.size())
		n := len(data)
		if g.one(20) {
			n += g.IntN(9) - 4
		}
		b.Payload = binary.BigEndian.AppendUint16(nil, c.Number)
		b.Payload = binary.BigEndian.AppendUint16(b.Payload, uint16(n))
		b.Payload = append(append(b.Payload, data...), g.bytes(g.IntN(5)*g.IntN(2))...)
	} else {
		b.Src, b.Dst = c.Peer, c.Relay
		b.Payload = g.bytes(g.size())
		if g.one(8) && len(b.Payload) > 0 {
			b.Payload[0] = 0x40
		}
	}
	g.bend(&b)
	mac := [6]byte{} // lo's, by which TEST_RUN takes it for our own
	if g.hook == attach.HookXDP && g.one(50) {
		mac[0] = 1
	}
	ip := b.Append(nil)
	if g.one(10) {
		g.damage(ip)
	}
	frame := b.AppendFrame(nil, mac, [6]byte{2, 0, 0, 0, 0, 5}, ip)
	short := g.hook == attach.HookTCX || g.one(2) // TEST_RUN takes no shorter skb
	for g.one(8) || len(frame) < 60 && short {
		frame = append(frame, byte(g.Uint32())) // what Ethernet pads with
	}
	return frame
}

// bend makes some packets of kinds that stay in user space.
func (g *frameMaker) bend(b *packet.Build) {
	switch g.IntN(40) {
	case 0:
		b.TTL = 1
	case 1:
		b.VLANs = []uint16{7}
	case 2:
		b.IPv4Options = []byte{1, 1, 1, 0}
		b.Extensions = []packet.Extension{{Type: 60}}
	case 3:
		b.Src = netip.AddrPortFrom(b.Src.Addr(), b.Src.Port()+1)
	case 4:
		b.Proto = 6
	case 5:
		if len(b.Payload) > 1 {
			b.Payload[1] ^= byte(g.Uint32())
		}
	case 6:
		b.Payload = b.Payload[:min(len(b.Payload), g.IntN(5))]
	}
}

// damage changes bytes of an IP packet.
func (g *frameMaker) damage(ip []byte) {
	transport := transportOf(ip)
	switch g.IntN(6) {
	case 0: // anywhere in the headers
		ip[g.IntN(min(len(ip), transport+12))] ^= 1 << g.IntN(8)
	case 1: // a wrong checksum
		if ip[transport+6]|ip[transport+7] != 0 {
			ip[transport+6] ^= 0x55
		}
	case 2: // fragments
		if ip[0] == 0x45 {
			binary.BigEndian.PutUint16(ip[6:], uint16(1+g.IntN(0x3fff)))
			binary.BigEndian.PutUint16(ip[10:], 0)
			binary.BigEndian.PutUint16(ip[10:], packet.Checksum(ip[:20], 0))
		}
	case 3: // lengths that disagree
		binary.BigEndian.PutUint16(ip[transport+4:], uint16(len(ip)-transport+g.IntN(5)-2))
	case 4: // left to the card
		var p packet.Packet
		if packet.Parse(ip, &p) == nil && p.Kind == packet.KindUDP && len(ip) < 1600 {
			src, dst := p.SrcAddr(), p.DstAddr()
			binary.BigEndian.PutUint16(ip[transport+6:], ^packet.Checksum(nil, packet.PseudoSum(src, dst, 17, len(ip)-transport)))
		}
	case 5:
		ip[transport+g.IntN(8)] = byte(g.Uint32())
	}
}
