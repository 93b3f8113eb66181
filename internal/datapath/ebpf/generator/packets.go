package generator

import (
	"encoding/binary"
	"net/netip"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Packet is a UDP packet of which one endpoint names the flow.
type Packet struct {
	ToVIP     bool // from a client to the VIP, else from the backend to a client
	ToSNAT    bool // from the backend to a port of the SNAT address, which names the flow
	Elsewhere bool // to no VIP
	CID       bool
	Fragment  int // 1: the first of its datagram, 2: a later one
}

// The addresses of the benchmark.
var (
	vips             = [2]string{"192.0.2.1", "2001:db8:f::1"}
	backendAddresses = [2]string{"198.18.0.2", "2001:db8:bb::2"}
	snatAddresses    = [2]string{"198.18.0.1", "2001:db8:bb::1"}
)

const (
	vipPort     = 5684
	backendPort = 7000
	clientPort  = 40000
	cidLength   = 8
	SNATPorts   = 1 << 16 // of which the pool has all from 1024 on
)

// Spec is a service whose packets Template builds.
func Spec(mode lb.Mode, backends int, snat, byCID bool) lb.Spec {
	s := lb.ServiceSpec{Name: "bench", Mode: &mode, Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(lb.Never)}}
	for _, a := range vips {
		address := netip.MustParseAddr(a)
		s.VIPs = append(s.VIPs, lb.VIPSpec{
			Address:  lb.AddressPrefix{Prefix: netip.PrefixFrom(address, address.BitLen())},
			Protocol: lb.Protocol(lb.UDP), Port: lb.PortRange{First: vipPort, Last: vipPort},
		})
	}
	a4, a6 := netip.MustParseAddr(backendAddresses[0]), netip.MustParseAddr(backendAddresses[1])
	for i := range backends {
		b := lb.BackendSpec{Name: string(rune('a' + i)), Address: a4, Address2: a6}
		if mode == lb.NAT {
			port := backendPort
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
			Layouts:   []lb.LayoutSpec{{Length: cidLength, Owner: &lb.BitsSpec{Offset: 0, Bits: 8}}},
		}
	}
	if snat {
		s.SNAT = &lb.SNATSpec{Addresses: []netip.Addr{netip.MustParseAddr(snatAddresses[0]), netip.MustParseAddr(snatAddresses[1])}}
	}
	return lb.Spec{Services: []lb.ServiceSpec{s}}
}

// Template builds the frame that the generator starts from.
func (g *Generator) Template(p Packet) (*bpf.BenchTemplate, error) {
	t := &bpf.BenchTemplate{Flows: uint32(max(g.Flows, 1)), Length: 112, Ifindex: uint32(g.Index)}
	frame := make([]byte, t.Length)
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2})
	src, dst := g.endpoints(p)
	var l4 int
	if g.Family == 6 {
		t.Vary, l4 = headerIPv6(frame, p, src.Addr(), dst.Addr())
	} else {
		t.Vary, l4 = headerIPv4(frame, p, src.Addr(), dst.Addr())
	}
	if p.Fragment == 2 {
		pack(t, frame)
		return t, nil
	}
	udp := frame[14+l4:]
	binary.BigEndian.PutUint16(udp, src.Port())
	binary.BigEndian.PutUint16(udp[2:], dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	udp[6], udp[7] = 0x12, 0x34
	if p.Fragment == 0 {
		port := 14 + l4
		if !p.ToVIP && !p.Elsewhere {
			port += 2
		}
		t.Port = fieldAt(port, 0xffff)
	}
	if p.ToSNAT {
		t.Flows, t.Vary, t.Port = SNATPorts, fieldAt(14+l4+2, SNATPorts-1), bpf.BenchVaryField{}
	}
	if p.CID {
		copy(udp[8:], []byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 7, 3, 1, 2, 3, 4, 5, 6, 7, 0, 4})
	}
	pack(t, frame)
	return t, nil
}

// endpoints are those of a packet's header.
func (g *Generator) endpoints(p Packet) (src, dst netip.AddrPort) {
	at, client := 0, "10.0.0.1"
	if g.Family == 6 {
		at, client = 1, "2001:db8:c::1"
	}
	src = netip.AddrPortFrom(netip.MustParseAddr(client), clientPort)
	dst = netip.AddrPortFrom(netip.MustParseAddr(vips[at]), vipPort)
	if p.Elsewhere {
		dst = netip.AddrPortFrom(dst.Addr().Next(), vipPort)
	}
	if !p.ToVIP && !p.Elsewhere {
		dst = src
		src = netip.AddrPortFrom(netip.MustParseAddr(backendAddresses[at]), backendPort)
	}
	if p.ToSNAT {
		dst = netip.AddrPortFrom(netip.MustParseAddr(snatAddresses[at]), 0)
	}
	return src, dst
}

// headerIPv6 writes an IPv6 header, and that of a fragment. named is where the flow, or the datagram, is named; l4 is where the
// next header begins, behind the link header.
func headerIPv6(frame []byte, p Packet, src, dst netip.Addr) (named bpf.BenchVaryField, l4 int) {
	ip := frame[14:]
	frame[12], frame[13] = 0x86, 0xdd
	ip[0], ip[6], ip[7] = 0x60, lb.UDP, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	copy(ip[8:], src.AsSlice())
	copy(ip[24:], dst.AsSlice())
	if p.Fragment != 0 {
		ip[6] = 44
		ip[40], ip[43] = lb.UDP, 1
		if p.Fragment == 2 {
			ip[42] = 1
		}
		return fieldAt(14+40+4, 0xffff), 48
	}
	address := 14 + 8 + 12
	if !p.ToVIP && !p.Elsewhere {
		address += 16
	}
	return fieldAt(address, 0xffffffff), 40
}

// headerIPv4 is headerIPv6 of the other family.
func headerIPv4(frame []byte, p Packet, src, dst netip.Addr) (named bpf.BenchVaryField, l4 int) {
	ip := frame[14:]
	frame[12] = 8
	ip[0], ip[8], ip[9] = 0x45, 64, lb.UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	if p.Fragment != 0 {
		ip[6] = 0x20
		if p.Fragment == 2 {
			ip[7] = 100
		}
		return fieldAt(14+4, 0xffff), 20
	}
	address := 14 + 12
	if !p.ToVIP && !p.Elsewhere {
		address += 4
	}
	return fieldAt(address, 0xffffffff), 20
}

// fieldAt says where the generator finds a field that starts at an offset.
func fieldAt(offset int, mask uint64) bpf.BenchVaryField {
	at := offset - bpf.BenchHead
	return bpf.BenchVaryField{Word: uint32(at / 8), Shift: uint32(at % 8 * 8), Mask: mask}
}

// pack gives a frame its form in the generator.
func pack(t *bpf.BenchTemplate, frame []byte) {
	t.Head = binary.LittleEndian.Uint64(frame)
	for i := range bpf.BenchWords {
		t.Words[i] = binary.LittleEndian.Uint64(frame[bpf.BenchHead+8*i:])
	}
	t.Plain = t.Words
}
