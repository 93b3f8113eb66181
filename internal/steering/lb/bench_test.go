package lb

import (
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// What each packet costs here: service, owner, slot.
func BenchmarkLookup(b *testing.B) {
	spec := Spec{Services: []ServiceSpec{
		service("host", vip("192.0.2.1", "udp", "5684")),
		service("net", vip("192.0.2.0/24", "udp", "5000-5999"), vip("2001:db8::/64", "udp", "any")),
	}}
	snapshot := compile(b, spec, nil)
	address := flow.Address(netip.MustParseAddr("192.0.2.1"))
	b.ReportAllocs()
	hash := uint64(1)
	for b.Loop() {
		s := snapshot.Lookup(UDP, address, 5684)
		hash = hash*6364136223846793005 + uint64(s.Select(hash).Index) + 1
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := Spec{Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	for i := range 100 {
		spec.Services[0].Backends = append(spec.Services[0].Backends, backend("n"+netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}).String(), netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}).String()))
	}
	for b.Loop() {
		if _, err := Compile(spec, nil, AllCaps()); err != nil {
			b.Fatal(err)
		}
	}
}
