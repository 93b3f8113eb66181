package udpnat_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Two services share a VIP: each client reaches the one that has its address, a third client none. When the file gives a client to
// the other service, its next datagram goes there.
func TestServicesShareAVIP(t *testing.T) {
	sources := func(of *lb.ServiceSpec, addresses ...string) {
		of.Sources = nil
		for _, a := range addresses {
			of.Sources = append(of.Sources, lb.AddressPrefix{Prefix: netip.MustParsePrefix(a + "/32")})
		}
	}
	f := start(t, udpnat.Config{}, 2, func(s *lb.Spec) {
		other := s.Services[0]
		other.Name, other.Backends = "other", other.Backends[1:]
		s.Services[0].Backends = s.Services[0].Backends[:1]
		sources(&s.Services[0], "127.0.0.1")
		sources(&other, "127.0.0.2")
		s.Services = append(s.Services, other)
	})
	from := func(address string) *client {
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)}, net.UDPAddrFromAddrPort(f.vip))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &client{t: t, conn: conn}
	}
	serviceOf := func(c *client) string {
		for _, e := range f.datapath.Entries(10) {
			if e.Client == c.conn.LocalAddr().(*net.UDPAddr).AddrPort() {
				return e.Backend.Service
			}
		}
		return ""
	}
	first, second, third := from("127.0.0.1"), from("127.0.0.2"), from("127.0.0.3")
	first.exchange("a")
	second.exchange("b")
	third.send([]byte("c"))
	for start := time.Now(); f.datapath.Stats().Reasons[lb.ReasonSourceRefused.String()] == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > testTimeout {
			t.Fatal("the third client's datagram is not refused")
		}
	}
	if a, b, c := serviceOf(first), serviceOf(second), serviceOf(third); a != "nat" || b != "other" || c != "" {
		t.Errorf("services of the clients: %q, %q, %q", a, b, c)
	}
	spec, _ := f.intent.Spec()
	spec.Services = append([]lb.ServiceSpec(nil), spec.Services...)
	sources(&spec.Services[0], "127.0.0.3")
	sources(&spec.Services[1], "127.0.0.1", "127.0.0.2")
	if err := f.intent.SetSpec(spec); err != nil {
		t.Fatal(err)
	}
	first.exchange("d")
	third.exchange("e")
	if a, c := serviceOf(first), serviceOf(third); a != "other" || c != "nat" {
		t.Errorf("services of the clients after the change: %q, %q", a, c)
	}
}
