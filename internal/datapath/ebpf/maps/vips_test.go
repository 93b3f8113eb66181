package maps

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// lookup is vip_lookup in vip.h.
func (t *VIPs) lookup(places int, address [16]byte, proto uint8, port uint16) (service uint16) {
	hi, lo := Uint64s(Words(address))
	for i := range t.Generation.Lengths {
		l := t.Generation.Length[i]
		a, b := hi&l.Mask[0], lo&l.Mask[1]
		home := home(t.Generation.Mult, a, b, l.Bits)
		for probe := range uint32(bpf.MaxProbe) {
			v, ok := t.Records[(home+probe)&uint32(places-1)]
			if !ok {
				break
			}
			if va, vb := Uint64s(v.Addr); va != a || vb != b || uint32(v.Bits) != l.Bits {
				continue
			}
			for _, p := range v.Port[:v.Ports] {
				if p.Proto == proto && p.First <= port && port <= p.Last {
					return p.Service
				}
			}
			if s, ok := t.Ports[bpf.VportKey{Vip: v.More, Port: port, Proto: proto}]; ok {
				return s
			}
			r := t.Ranges[bpf.VipRangesKey{Vip: v.More, Proto: uint32(proto)}]
			for _, p := range r.Range[:r.Count] {
				if p.First <= port && port <= p.Last {
					return p.Service
				}
			}
			break
		}
	}
	return 0
}

func TestVIPTableFindsWhatTheSnapshotFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	mode := lb.L2DSR
	var spec lb.Spec
	spec.MaglevSize = 251
	for i := range 20 {
		s := lb.ServiceSpec{Name: fmt.Sprintf("s%02d", i), Mode: &mode}
		s.Backends = []lb.BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.1.0.1"), Address2: netip.MustParseAddr("2001:db8::1")}}
		for j := range 12 {
			n := i*12 + j
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n % 5), byte(n % 7), byte(n % 3)}), 16+4*(n%5)).Masked()
			port := lb.PortRange{First: uint16(100*n + 1), Last: uint16(100*n + 1 + (n%3)*20)}
			s.VIPs = append(s.VIPs, lb.VIPSpec{Address: lb.AddressPrefix{Prefix: prefix}, Protocol: lb.Protocol(lb.UDP), Port: port})
		}
		spec.Services = append(spec.Services, s)
	}
	snapshot, err := lb.Compile(spec, nil, caps())
	if err != nil {
		t.Fatal(err)
	}
	var more uint32
	const places = 1024
	table, err := IndexVIPs(snapshot, func(s *lb.Service) uint16 { return uint16(s.Index + 1) }, places, 0, &more, [3]uint64{})
	if err != nil {
		t.Fatal(err)
	}
	if more == 0 {
		t.Fatal("no prefix has more ports than fit into its line: the test misses that path")
	}
	for range 100000 {
		address := flow.Address(netip.AddrFrom4([4]byte{10, byte(r.IntN(5)), byte(r.IntN(7)), byte(r.IntN(4))}))
		port := uint16(r.IntN(24100))
		var want uint16
		if s, _ := snapshot.Lookup(lb.UDP, address, address, port); s != nil {
			want = uint16(s.Index + 1)
		}
		if got := table.lookup(places, address, lb.UDP, port); got != want {
			t.Fatalf("%v port %d: service %d, want %d", address, port, got, want)
		}
	}
}

// TestVIPTableHoldsNeighbours: as many VIPs as there may be, each next to the
// other in each of the ways that addresses are given out.
func TestVIPTableHoldsNeighbours(t *testing.T) {
	for name, address := range map[string]func(i int) netip.Addr{
		"IPv4":          func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) },
		"IPv4 networks": func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}) },
		"IPv6": func(i int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		},
		"IPv6 networks": func(i int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(i >> 8), 7: byte(i), 15: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			mode := lb.L2DSR
			s := lb.ServiceSpec{Name: "s", Mode: &mode, Backends: []lb.BackendSpec{{Name: "a", Address: netip.MustParseAddr("198.51.100.1"), Address2: netip.MustParseAddr("fd00::1")}}}
			for i := range lb.MaxVIPs {
				a := address(i)
				s.VIPs = append(s.VIPs, lb.VIPSpec{Address: lb.AddressPrefix{Prefix: netip.PrefixFrom(a, a.BitLen())}, Protocol: lb.Protocol(lb.UDP), Port: lb.PortRange{First: 80, Last: 80}})
			}
			snapshot, err := lb.Compile(lb.Spec{Services: []lb.ServiceSpec{s}}, nil, caps())
			if err != nil {
				t.Fatal(err)
			}
			var more uint32
			places := SizesFor(snapshot.Limits).VIPs
			table, err := IndexVIPs(snapshot, func(*lb.Service) uint16 { return 7 }, places, 0, &more, [3]uint64{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range lb.MaxVIPs {
				if got := table.lookup(places, flow.Address(address(i)), lb.UDP, 80); got != 7 {
					t.Fatalf("%s: service %d", address(i), got)
				}
			}
		})
	}
}

func TestAddressesAndTicksConvert(t *testing.T) {
	for _, text := range []string{"192.0.2.1", "2001:db8::1", "::1"} {
		a := netip.MustParseAddr(text)
		if got := Address(AddressWords(a)); got != a {
			t.Errorf("%s came back as %s", a, got)
		}
	}
	if m := MaskWords(128); m != [2]uint64{^uint64(0), ^uint64(0)} {
		t.Errorf("mask of 128 bits: %x", m)
	}
	if m := MaskWords(100); m != [2]uint64{^uint64(0), 0x000000f0ffffffff} {
		t.Errorf("mask of 100 bits: %x", m)
	}
	c := Clock{Tick: 4 * time.Millisecond}
	for d, want := range map[time.Duration]uint32{time.Second: 250, time.Millisecond: 1, lb.Never: 1<<32 - 1, 0: 0} {
		if got := c.Ticks(d); got != want {
			t.Errorf("%s is %d ticks, want %d", d, got, want)
		}
	}
}

// caps are those of a data path that takes every VIP.
func caps() lb.Caps {
	return lb.Caps{
		Name: "ebpf", Protocols: []uint8{lb.TCP, lb.UDP}, Modes: []lb.Mode{lb.NAT, lb.L2DSR}, Prefixes: true, PortRanges: true,
		IPv4: true, IPv6: true, MaxFlows: MaxFlows,
	}
}
