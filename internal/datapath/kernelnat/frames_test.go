package kernelnat

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// frameBench gives single frames to the program, with one flow of each family between machines.
type frameBench struct {
	t     testing.TB
	host  *netlab.Host
	table *Table
	flows map[int]Flow // by family
	ids   map[int]uint32
	epoch uint32 // that the flows were entered or renewed in
}

const passed = ^uint32(0) // TCX_NEXT

func newFrameBench(t testing.TB, name string) *frameBench {
	t.Helper()
	lab := netlabtest.Up(t, natNet(name))
	b := &frameBench{t: t, host: lab.Namespace("nat"), flows: map[int]Flow{}, ids: map[int]uint32{}}
	b.table = open(t, b.host, Config{MaxFlows: 64})
	a := netip.MustParseAddrPort
	b.flows[4] = Flow{Client: a("10.1.0.2:4000"), VIP: a("10.1.0.1:5784"), Local: a("10.2.0.1:50000"), Backend: a("10.2.0.2:5684"), Target: 1}
	b.flows[6] = Flow{Client: a("[fd00:1::2]:4000"), VIP: a("[fd00:1::1]:5784"), Local: a("[fd00:2::1]:50000"), Backend: a("[fd00:2::2]:5684"), Target: 1}
	b.enter()
	return b
}

// enter adds the flows in the present epoch.
func (b *frameBench) enter() {
	b.t.Helper()
	ebpftest.Do(b.t, b.host, func() error {
		b.epoch = b.table.Epoch()
		for family, f := range b.flows {
			f.Epoch = b.epoch
			id, err := b.table.Add(f)
			if err != nil {
				return err
			}
			b.ids[family] = id
		}
		return nil
	})
}

// renew renews the flows where an epoch has ended by itself: new addresses of a network do that for some seconds.
func (b *frameBench) renew() {
	ebpftest.Do(b.t, b.host, func() error {
		if epoch := b.table.Epoch(); epoch != b.epoch {
			for _, id := range b.ids {
				b.table.Renew(id, epoch) // false for a flow that failed, which stays stale
			}
			b.epoch = epoch
		}
		return nil
	})
}

// run returns the verdict on a frame, the IP packet that it became, and the end that it was counted as.
func (b *frameBench) run(build *packet.Build, ip []byte) (verdict uint32, out []byte, end string) {
	b.t.Helper()
	for {
		b.renew()
		if verdict, out, end = b.runOnce(build, ip); b.table.Epoch() == b.epoch {
			return verdict, out, end
		}
	}
}

func (b *frameBench) runOnce(build *packet.Build, ip []byte) (verdict uint32, out []byte, end string) {
	b.t.Helper()
	before := b.table.Report().Packets
	frame := build.AppendFrame(nil, [6]byte{}, [6]byte{2, 0, 0, 0, 0, 1}, ip)
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: &ebpftest.SkBuff{}, Repeat: 1}
	ebpftest.Do(b.t, b.host, func() (err error) {
		verdict, err = b.table.collection.Programs[bpf.UDPNATProgWeirUdpnat].Run(&options)
		return err
	})
	end = "other" // the interfaces' own packets, such as those of neighbour discovery, are others too
	for name, n := range b.table.Report().Packets {
		if n > before[name] && name != "other" {
			end = name
		}
	}
	return verdict, options.DataOut[14+4*len(build.VLANs):], end
}

// direction is one direction of a flow: as a datagram comes in, and as it leaves.
type direction struct {
	end              string
	in, at, from, to netip.AddrPort
}

func directions(f *Flow) []direction {
	return []direction{{"forward", f.Client, f.VIP, f.Local, f.Backend}, {"backward", f.Backend, f.Local, f.VIP, f.Client}}
}

// TestRootFrames: what leaves is, byte by byte, what a host with the new addresses would have sent, one hop further; checksums that are
// wrong stay wrong, and none stays none.
func TestRootFrames(t *testing.T) {
	t.Parallel()
	b := newFrameBench(t, "knatframe")
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		family := 4 + 2*(i%2)
		f := b.flows[family]
		d := directions(&f)[i/2%2]
		payload := make([]byte, random.IntN(1400))
		for at := range payload {
			payload[at] = byte(random.Uint32())
		}
		in := packet.Build{
			Src: d.in, Dst: d.at, Proto: flow.ProtoUDP, TTL: uint8(2 + random.IntN(250)), Class: uint8(random.Uint32()),
			ID: random.Uint32() & 0xffff, DontFrag: random.IntN(2) == 0, NoChecksum: family == 4 && random.IntN(4) == 0, Payload: payload,
		}
		out := in
		out.Src, out.Dst, out.TTL = d.from, d.to, in.TTL-1
		ip, want := in.Append(nil), out.Append(nil)
		if !in.NoChecksum && random.IntN(4) == 0 { // damaged on its way here
			at := len(ip) - len(payload) - 2
			ip[at+1] ^= 0x55
			verdict, got, end := b.run(&in, ip)
			if verdict != ebpftest.Redirected(attach.HookTCX) || end != d.end || bytes.Equal(got, want) {
				t.Fatalf("frame %d with a wrong checksum: verdict %d, %s; repaired: %v", i, verdict, end, bytes.Equal(got, want))
			}
			continue
		}
		verdict, got, end := b.run(&in, ip)
		if verdict != ebpftest.Redirected(attach.HookTCX) || end != d.end || !bytes.Equal(got, want) {
			t.Fatalf("frame %d, IPv%d, %d bytes: verdict %d, %s\n%x want\n%x", i, family, len(payload), verdict, end, got, want)
		}
	}
	to, back := b.table.Traffic(1)
	if to.Packets < 200 || back.Packets < 200 { // some were given to the program twice
		t.Errorf("counted %+v and %+v, want 200 each", to, back)
	}
}

// TestRootFramesThatPass: the program leaves to user space, unchanged, whatever it cannot forward exactly.
func TestRootFramesThatPass(t *testing.T) {
	t.Parallel()
	b := newFrameBench(t, "knatpass")
	cases := []struct {
		name, end string
		family    int
		change    func(*packet.Build)
		damage    func(ip []byte) []byte
	}{
		{name: "another port", end: "other", family: 4, change: func(p *packet.Build) { p.Src = netip.AddrPortFrom(p.Src.Addr(), 4001) }},
		{name: "TCP", end: "other", family: 4, change: func(p *packet.Build) { p.Proto = flow.ProtoTCP }},
		{name: "hop limit", end: "ttl", family: 4, change: func(p *packet.Build) { p.TTL = 1 }},
		{name: "hop limit", end: "ttl", family: 6, change: func(p *packet.Build) { p.TTL = 1 }},
		{name: "beyond the MTU", end: "too_big", family: 4, change: func(p *packet.Build) { p.Payload = make([]byte, 1473) }},
		{name: "beyond the MTU", end: "too_big", family: 6, change: func(p *packet.Build) { p.Payload = make([]byte, 1453) }},
		{name: "options", end: "unsuited", family: 4, change: func(p *packet.Build) { p.IPv4Options = []byte{1, 1, 1, 1} }},
		{name: "extension header", end: "unsuited", family: 6, change: func(p *packet.Build) { p.Extensions = []packet.Extension{{Type: 60}} }},
		{name: "tag", end: "unsuited", family: 4, change: func(p *packet.Build) { p.VLANs = []uint16{7} }},
		{name: "no checksum", end: "no_checksum", family: 6, change: func(p *packet.Build) { p.NoChecksum = true }},
		{name: "bytes behind the datagram", end: "unsuited", family: 4, damage: func(ip []byte) []byte { ip[25]--; return ip }},
		{name: "cut", end: "unsuited", family: 4, damage: func(ip []byte) []byte { return ip[:len(ip)-3] }},
		{name: "first fragment", end: "unsuited", family: 4, damage: func(ip []byte) []byte { ip[6] |= 0x20; return ip }},
		{name: "later fragment", end: "other", family: 4, damage: func(ip []byte) []byte { ip[7] = 9; return ip }},
	}
	for _, c := range cases {
		f := b.flows[c.family]
		in := packet.Build{Src: f.Client, Dst: f.VIP, Proto: flow.ProtoUDP, Payload: []byte("twenty bytes of data")}
		if c.change != nil {
			c.change(&in)
		}
		ip := in.Append(nil)
		if c.damage != nil {
			ip = c.damage(ip)
		}
		verdict, got, end := b.run(&in, bytes.Clone(ip))
		if verdict != passed || end != c.end || !bytes.Equal(got, ip) {
			t.Errorf("%s, IPv%d: verdict %d, %s, want %s; unchanged: %v", c.name, c.family, int32(verdict), end, c.end, bytes.Equal(got, ip))
		}
	}
	// Directions that are suspended, and an epoch that is over.
	f := b.flows[4]
	for i, d := range directions(&f) {
		b.table.Suspend(i == 0, i == 1)
		for j, other := range directions(&f) {
			in := packet.Build{Src: other.in, Dst: other.at, Proto: flow.ProtoUDP, Payload: []byte("data")}
			want := other.end
			if i == j {
				want = "suspended"
			}
			if _, _, end := b.run(&in, in.Append(nil)); end != want {
				t.Errorf("%s suspended: %s became %s", d.end, other.end, end)
			}
		}
	}
	b.table.Suspend(false, false)
	b.table.Advance()
	in := packet.Build{Src: f.Client, Dst: f.VIP, Proto: flow.ProtoUDP, Payload: []byte("data")}
	if _, _, end := b.runOnce(&in, in.Append(nil)); end != "stale" {
		t.Errorf("in another epoch: %s", end)
	}
	if _, _, end := b.run(&in, in.Append(nil)); end != "forward" {
		t.Errorf("renewed: %s", end)
	}
}

// TestRootFrameErrors: an ICMP error about either direction, about what the kernel forwarded, passes and hands the flow back; one about
// something else does not.
func TestRootFrameErrors(t *testing.T) {
	t.Parallel()
	b := newFrameBench(t, "knaticmp")
	routers := map[int]netip.Addr{4: netip.MustParseAddr("10.2.0.9"), 6: netip.MustParseAddr("fd00:2::9")}
	for _, family := range []int{4, 6} {
		f := b.flows[family]
		for _, d := range directions(&f) {
			sent := packet.Build{Src: d.from, Dst: d.to, Proto: flow.ProtoUDP, DontFrag: true, Payload: make([]byte, 1400)}
			strange := sent
			strange.Src = netip.AddrPortFrom(d.from.Addr(), 9)
			for _, about := range []*packet.Build{&strange, &sent} {
				ip := packet.Quote(routers[family], about.Append(nil), 1300, 200)
				verdict, got, _ := b.run(about, bytes.Clone(ip))
				if verdict != passed || !bytes.Equal(got, ip) {
					t.Fatalf("IPv%d, %s: verdict %d", family, d.end, verdict)
				}
				handedBack := false
				ebpftest.Do(t, b.host, func() error {
					handedBack = !b.table.Renew(b.ids[family], b.table.Epoch())
					return nil
				})
				if handedBack != (about == &sent) {
					t.Errorf("IPv%d, %s, about the flow: %v, handed back: %v", family, d.end, about == &sent, handedBack)
				}
			}
			in := packet.Build{Src: d.in, Dst: d.at, Proto: flow.ProtoUDP, Payload: []byte("data")}
			if _, _, end := b.run(&in, in.Append(nil)); end != "stale" {
				t.Errorf("IPv%d, %s after the error: %s", family, d.end, end)
			}
			for _, id := range b.ids {
				b.table.Remove(id)
			}
			b.enter()
		}
	}
}
