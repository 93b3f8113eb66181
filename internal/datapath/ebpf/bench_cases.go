package ebpf

import (
	"encoding/binary"
	"net/netip"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// benchCase is one thing to measure.
type benchCase struct {
	name   string
	flows  int
	spec   func() lb.Spec
	packet benchPacket
	before *benchPacket // sent once for each flow before
	tunnel bool         // not on TCX: there the kernel does not let a test take the header off again
	aged   bool         // every packet is a new flow, for a table in use: as many are alive as limits.flows says, as many expire as come
	flood  bool         // every packet is a new flow, and four times limits.flows were sent before: the table is full
	fill   int          // every packet is a new flow, and that many were sent before: the source ports are used up
	proven bool         // and each source port's flow was answered: none can be taken
	beside lruCase      // what an LRU table would do for these packets
	room   bool         // no program of ours: inserting into an LRU table that has room
}

// benchPacket is a UDP packet of which one endpoint names the flow.
type benchPacket struct {
	toVIP     bool // from a client to the VIP, else from the backend to a client
	toSNAT    bool // from the backend to a port of the SNAT address, which names the flow
	elsewhere bool // to no VIP
	cid       bool
	fragment  int // 1: the first of its datagram, 2: a later one
}

// known says how many flows the tables must have room for.
func (c *benchCase) known() int {
	if c.before != nil || c.beside == lruHit {
		return c.flows
	}
	return 0
}

func benchCases() []benchCase {
	request, fragment := benchPacket{toVIP: true}, benchPacket{toVIP: true, fragment: 1}
	dsr := func() lb.Spec { return benchSpec(lb.L2DSR, 8, false, false) }
	tunnel := func() lb.Spec { return benchSpec(lb.L3DSR, 8, false, false) }
	nat := func() lb.Spec { return benchSpec(lb.NAT, 1, false, false) }
	snat := func() lb.Spec { return benchSpec(lb.NAT, 1, true, false) }
	byCID := func() lb.Spec { return benchSpec(lb.L2DSR, 8, false, true) }
	return []benchCase{
		{name: "no match", flows: 1 << 16, spec: dsr, packet: benchPacket{elsewhere: true}},
		{name: "no match beside nat", flows: 1 << 16, spec: nat, packet: benchPacket{elsewhere: true}},
		{name: "l2dsr hit", flows: 1, spec: dsr, packet: request, before: &request, beside: lruHit},
		{name: "l2dsr hit", flows: 1 << 16, spec: dsr, packet: request, before: &request, beside: lruHit},
		{name: "l2dsr hit", flows: 1 << 19, spec: dsr, packet: request, before: &request, beside: lruHit},
		{name: "l2dsr new flow", flows: 1 << 24, spec: dsr, packet: request, aged: true, beside: lruEvict},
		{name: "cid", flows: 1 << 16, spec: byCID, packet: benchPacket{toVIP: true, cid: true}, beside: lruHit},
		{name: "fragment", flows: 1 << 12, spec: dsr, packet: benchPacket{toVIP: true, fragment: 2}, before: &fragment},
		{name: "l3dsr hit", tunnel: true, flows: 1 << 16, spec: tunnel, packet: request, before: &request, beside: lruHit},
		{name: "nat hit", flows: 1 << 16, spec: nat, packet: request, before: &request, beside: lruHit},
		{name: "nat reply", flows: 1 << 16, spec: nat, packet: benchPacket{}, before: &request, beside: lruHit},
		{name: "nat new flow", flows: 1 << 24, spec: nat, packet: request, aged: true, beside: lruEvict},
		{name: "l2dsr flood", flows: 1 << 24, spec: dsr, packet: request, flood: true},
		{name: "nat flood", flows: 1 << 24, spec: nat, packet: request, flood: true},
		{name: "snat exhausted", flows: 1 << 24, spec: snat, packet: request, fill: 1 << 18, proven: true},
		{name: "snat port taken", flows: 1 << 24, spec: snat, packet: request, fill: 1 << 18},
		{name: "snat hit", flows: 1 << 15, spec: snat, packet: request, before: &request, beside: lruHit},
		{name: "lru insert, room left", flows: 1 << 24, packet: request, room: true},
	}
}

// The addresses of the benchmark.
var (
	benchVIP     = [2]string{"192.0.2.1", "2001:db8:f::1"}
	benchBackend = [2]string{"198.18.0.2", "2001:db8:bb::2"}
	benchSNAT    = [2]string{"198.18.0.1", "2001:db8:bb::1"}
)

const (
	benchVIPPort     = 5684
	benchBackendPort = 7000
	benchClientPort  = 40000
	benchCIDLength   = 8
	snatPorts        = 1 << 16 // of which the pool has all from 1024 on
)

func benchSpec(mode lb.Mode, backends int, snat, byCID bool) lb.Spec {
	s := lb.ServiceSpec{Name: "bench", Mode: &mode, Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(lb.Never)}}
	for _, a := range benchVIP {
		address := netip.MustParseAddr(a)
		s.VIPs = append(s.VIPs, lb.VIPSpec{
			Address:  lb.AddressPrefix{Prefix: netip.PrefixFrom(address, address.BitLen())},
			Protocol: lb.Protocol(lb.UDP), Port: lb.PortRange{First: benchVIPPort, Last: benchVIPPort},
		})
	}
	a4, a6 := netip.MustParseAddr(benchBackend[0]), netip.MustParseAddr(benchBackend[1])
	for i := range backends {
		b := lb.BackendSpec{Name: string(rune('a' + i)), Address: a4, Address2: a6}
		if mode == lb.NAT {
			port := benchBackendPort
			b.Port = &port
		}
		if byCID {
			b.Nodes = []uint32{uint32(i)}
		}
		s.Backends = append(s.Backends, b)
		a4, a6 = a4.Next(), a6.Next()
	}
	if byCID {
		s.CID = &lb.CIDSpec{
			Protocols: []lb.CIDProtocol{lb.CIDProtocol(cid.DTLS12)},
			Layouts:   []lb.LayoutSpec{{Length: benchCIDLength, Owner: &lb.BitsSpec{Offset: 0, Bits: 8}}},
		}
	}
	if snat {
		s.SNAT = &lb.SNATSpec{Addresses: []netip.Addr{netip.MustParseAddr(benchSNAT[0]), netip.MustParseAddr(benchSNAT[1])}}
	}
	return lb.Spec{Services: []lb.ServiceSpec{s}}
}

// template builds the frame that the generator starts from.
func (b *bencher) template(p benchPacket) (*bpf.BenchTemplate, error) {
	t := &bpf.BenchTemplate{Flows: uint32(max(b.c.flows, 1)), Length: 112, Ifindex: uint32(b.index)}
	frame := make([]byte, t.Length)
	vary, id := 0, 0 // where the flow is named
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2})
	is6 := b.family == 6
	at, client := 0, "10.0.0.1"
	if is6 {
		at, client = 1, "2001:db8:c::1"
	}
	src := netip.AddrPortFrom(netip.MustParseAddr(client), benchClientPort)
	dst := netip.AddrPortFrom(netip.MustParseAddr(benchVIP[at]), benchVIPPort)
	if p.elsewhere {
		dst = netip.AddrPortFrom(dst.Addr().Next(), benchVIPPort)
	}
	if !p.toVIP && !p.elsewhere {
		dst = src
		src = netip.AddrPortFrom(netip.MustParseAddr(benchBackend[at]), benchBackendPort)
	}
	if p.toSNAT {
		dst = netip.AddrPortFrom(netip.MustParseAddr(benchSNAT[at]), 0)
	}
	ip := frame[14:]
	l4 := 20
	if is6 {
		l4 = 40
		frame[12], frame[13] = 0x86, 0xdd
		ip[0], ip[6], ip[7] = 0x60, lb.UDP, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		copy(ip[8:], src.Addr().AsSlice())
		copy(ip[24:], dst.Addr().AsSlice())
		vary = 14 + 8 + 12
		if !p.toVIP && !p.elsewhere {
			vary += 16
		}
		if p.fragment != 0 {
			ip[6] = 44
			ip[40], ip[43] = lb.UDP, 1
			if p.fragment == 2 {
				ip[42] = 1
			}
			vary, id, l4 = 0, 14+40+4, 48
		}
	} else {
		frame[12] = 8
		ip[0], ip[8], ip[9] = 0x45, 64, lb.UDP
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		copy(ip[12:], src.Addr().AsSlice())
		copy(ip[16:], dst.Addr().AsSlice())
		vary = 14 + 12
		if !p.toVIP && !p.elsewhere {
			vary += 4
		}
		if p.fragment != 0 {
			ip[6] = 0x20
			if p.fragment == 2 {
				ip[7] = 100
			}
			vary, id = 0, 14+4
		}
	}
	if p.fragment != 0 {
		t.Vary = benchField(id, 0xffff)
	} else {
		t.Vary = benchField(vary, 0xffffffff)
	}
	if p.fragment == 2 {
		pack(t, frame)
		return t, nil
	}
	udp := ip[l4:]
	binary.BigEndian.PutUint16(udp, src.Port())
	binary.BigEndian.PutUint16(udp[2:], dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	udp[6], udp[7] = 0x12, 0x34
	if p.fragment == 0 {
		port := 14 + l4
		if !p.toVIP && !p.elsewhere {
			port += 2
		}
		t.Port = benchField(port, 0xffff)
	}
	if p.toSNAT {
		t.Flows, t.Vary, t.Port = snatPorts, benchField(14+l4+2, snatPorts-1), bpf.BenchVaryField{}
	}
	if p.cid {
		copy(udp[8:], []byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 7, 3, 1, 2, 3, 4, 5, 6, 7, 0, 4})
	}
	pack(t, frame)
	return t, nil
}

// Words of the generator's frames start behind head bytes (bench.bpf.c).
const benchHead, benchWords = 6, 13

// benchField says where the generator finds a field that starts at an offset.
func benchField(offset int, mask uint64) bpf.BenchVaryField {
	at := offset - benchHead
	return bpf.BenchVaryField{Word: uint32(at / 8), Shift: uint32(at % 8 * 8), Mask: mask}
}

// pack gives a frame its form in the generator.
func pack(t *bpf.BenchTemplate, frame []byte) {
	t.Head = binary.LittleEndian.Uint64(frame)
	for i := range benchWords {
		t.Words[i] = binary.LittleEndian.Uint64(frame[benchHead+8*i:])
	}
	t.Plain = t.Words
}
