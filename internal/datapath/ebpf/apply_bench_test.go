package ebpf

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// manyServices are as many as fit into a load balancer, as the operator writes them for a large cluster.
func manyServices(services, backends int) lb.Spec {
	mode := lb.NAT
	var spec lb.Spec
	for i := range services {
		var s lb.ServiceSpec
		s.Name, s.Mode, s.MaglevSize = fmt.Sprintf("bench.g%04d.5300-udp", i), &mode, 4093
		vip := netip.AddrFrom4([4]byte{198, 18, byte(1 + i>>8), byte(i)})
		s.VIPs = []lb.VIPSpec{{Address: lb.AddressPrefix{Prefix: netip.PrefixFrom(vip, 32)}, Protocol: lb.Protocol(lb.UDP), Port: lb.PortRange{First: 5300, Last: 5300}}}
		for j := range backends {
			port := 8080
			s.Backends = append(s.Backends, lb.BackendSpec{
				Name: fmt.Sprintf("g%04d-6d5f7c9b8d-%05d", i, j), Address: netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), byte(1 + j)}), Port: &port,
			})
		}
		spec.Services = append(spec.Services, s)
	}
	return spec
}

// BenchmarkRootApplyFewOfMany applies configurations that differ in one backend, or in one backend of a hundred services, from the
// one in force: they are there in one and not in the next. All backends are behind one router.
func BenchmarkRootApplyFewOfMany(b *testing.B) {
	for _, changed := range []int{1, 100} {
		b.Run(fmt.Sprint(changed), func(b *testing.B) { applyFewOfMany(b, changed) })
	}
}

func applyFewOfMany(b *testing.B, changed int) {
	lab := netlabtest.Up(b, netlab.Topology{
		Name: "ebmany",
		Namespaces: []netlab.Namespace{
			{Name: "lb", Forward: true, Routes: []netlab.Route{{To: netip.MustParsePrefix("10.128.0.0/9"), Via: netip.MustParseAddr("10.77.0.2"), Dev: "lb0"}}},
			{Name: "out"},
		},
		Links: []netlab.Link{netlab.Cable("lb lb0 10.77.255.1/16", "out out0 10.77.0.2/16")},
	})
	host := lab.Namespace("lb")
	var d *Datapath
	ebpftest.Do(b, host, func() (err error) {
		d, err = Open(Config{Interfaces: []string{"lb0"}, Hook: attach.HookTCX})
		return err
	})
	defer d.Close()
	spec, n := manyServices(1000, 10), 0
	var last *lb.Snapshot
	next := func() {
		one := spec
		one.Services = slices.Clone(spec.Services)
		if n%2 == 1 {
			for i := range changed {
				s := &one.Services[(n+i)%1000]
				s.Backends = s.Backends[:9]
			}
		}
		var err error
		if last, err = lb.CompileAfter(last, one, nil, d.Caps()); err != nil {
			b.Fatal(err)
		}
		n++
		last.Generation = uint64(n)
	}
	apply := func() error { return d.Apply(last) }
	next()
	ebpftest.Do(b, host, apply)
	defer netlabtest.Run(b, d.Run)()
	netlabtest.Eventually(b, "events of routes", d.hops.Followed)
	var spent time.Duration
	for b.Loop() {
		b.StopTimer()
		next()
		before := processTime(b)
		b.StartTimer()
		ebpftest.Do(b, host, apply)
		spent += processTime(b) - before
	}
	b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "cpu-ms/op")
}

// processTime is what the process has used of the processors.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
