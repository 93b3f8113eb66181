package lb

import (
	"fmt"
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
		s, _ := snapshot.Lookup(UDP, address, address, 5684)
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

// A change of one of a thousand services, as in a cluster whose Pods come and go.
func BenchmarkCompileOneOfMany(b *testing.B) {
	spec := Spec{}
	for i := range 1000 {
		s := service(fmt.Sprint("s", i), vip(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}).String(), "udp", "1"))
		s.Backends = nil
		for j := range 10 {
			address := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)}).String()
			s.Backends = append(s.Backends, backend("n"+address, address))
		}
		spec.Services = append(spec.Services, s)
	}
	spec.MaglevSize = 2039
	var last *Snapshot
	for i := 0; b.Loop(); i++ {
		weight := i%100 + 1
		spec.Services[i%1000].Backends[0].Weight = &weight
		var err error
		if last, err = CompileAfter(last, spec, nil, AllCaps()); err != nil {
			b.Fatal(err)
		}
	}
}
