package flow

import (
	"net/netip"
	"testing"
)

// What nfqlb 1.2.0 prints for these flows.
func TestNFQLBHashes(t *testing.T) {
	key := func(proto uint8, src, dst string) Key {
		return NewKey(netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst), proto)
	}
	tcp := key(ProtoTCP, "10.61.0.2:4000", "10.96.0.1:5001")
	udp := key(ProtoUDP, "[fd61::2]:4003", "[fd96::1]:5001")
	sctp := key(ProtoSCTP, "10.61.0.2:4000", "10.96.0.1:5001")
	for _, c := range []struct {
		name      string
		got, want uint32
		slot      uint32
	}{
		{"tcp", NFQLBFlow(tcp), 3684100678, 236},
		{"udp, IPv6", NFQLBFlow(udp), 3458611896, 950},
		{"sctp by ports", NFQLBPorts(sctp), 2087187664, 2087187664 % 997},
		{"sctp whole", NFQLBFlow(sctp), 25225604, 25225604 % 997},
		{"addresses", NFQLBAddresses(tcp.Src, tcp.Dst), 2262674485, 2262674485 % 997},
	} {
		if c.got != c.want || c.got%997 != c.slot {
			t.Errorf("%s: %d, slot %d; want %d, slot %d", c.name, c.got, c.got%997, c.want, c.slot)
		}
	}
	if a, b := key(ProtoICMP, "10.61.0.2:1", "10.96.0.1:0"), key(ProtoICMP, "10.61.0.2:2", "10.96.0.1:0"); NFQLBFlow(a) == NFQLBFlow(b) {
		t.Error("pings are not distinguished by their identifier")
	}
}

// A ping goes by its identifier, which is where other protocols have nothing; it has no second port.
func TestPingsGoByIdentifier(t *testing.T) {
	for _, proto := range []uint8{ProtoICMP, ProtoICMPv6} {
		one := NFQLBFlow(Key{Proto: proto, SrcPort: 7})
		if one == NFQLBFlow(Key{Proto: proto, SrcPort: 8}) || one != NFQLBFlow(Key{Proto: proto, SrcPort: 7, DstPort: 9}) {
			t.Errorf("protocol %d: the identifier does not count, or a port does", proto)
		}
	}
}
