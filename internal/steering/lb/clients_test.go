package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
)

func withSources(s ServiceSpec, prefixes ...string) ServiceSpec {
	for _, p := range prefixes {
		s.Sources = append(s.Sources, prefix(p))
	}
	return s
}

// Of the services that share a VIP, the longest prefix with the client decides, as a search through all of them does. IPv6
// prefixes have no IPv4 clients, whatever their length.
func TestSourcesDivideClients(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var spec Spec
		taken := map[netip.Prefix]bool{}
		for i := range 1 + r.IntN(4) {
			s := service(fmt.Sprint(i), vip("192.0.2.1", "udp", "53"))
			for range 1 + r.IntN(4) {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(4))}), []int{0, 8, 16, 23, 24, 31, 32}[r.IntN(7)]).Masked()
				if r.IntN(4) == 0 {
					p = netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", r.IntN(4))), []int{0, 32, 127, 128}[r.IntN(4)]).Masked()
				}
				if !taken[p] {
					taken[p] = true
					s.Sources = append(s.Sources, AddressPrefix{p})
				}
			}
			if i == 0 && r.IntN(2) == 0 || s.Sources == nil && len(spec.Services) == 0 {
				s.Sources = nil
			}
			if s.Sources != nil || i == 0 {
				spec.Services = append(spec.Services, s)
			}
		}
		snapshot := compile(t, spec, nil)
		for range 50 {
			client := netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(2)), byte(r.IntN(5))})
			if r.IntN(3) == 0 {
				client = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", r.IntN(6)))
			}
			want, serves, best := snapshot.Services[0], false, -1
			for _, s := range snapshot.Services {
				if len(s.Sources) == 0 && best < 0 {
					want, serves = s, true
				}
				for _, p := range s.Sources {
					if p.Contains(client) && p.Bits() > best {
						want, serves, best = s, true, p.Bits()
					}
				}
			}
			got, ok := snapshot.Lookup(UDP, flow.Address(client), flow.Address(netip.MustParseAddr("192.0.2.1")), 53)
			if got != want || ok != serves {
				t.Fatalf("%s: service %s, serves %v, want %s, %v", client, got.Name, ok, want.Name, serves)
			}
		}
	}
}

func TestSourcesRefused(t *testing.T) {
	web, dns := vip("192.0.2.1", "tcp", "80"), vip("192.0.2.1", "udp", "53")
	flows := withSources(service("s", web), "10.0.0.0/8")
	flows.Mode, flows.Flows, flows.Backends = ptr(Mark), []FlowSpec{{Name: "r"}}, nil
	outbound := withSources(service("s", dns), "10.0.0.0/8")
	outbound.Outbound = true
	starts := service("s", dns)
	starts.Outbound = true
	empty := service("s", web)
	empty.Sources = []AddressPrefix{}
	var many []string
	for i := range MaxRulePrefixes + 1 {
		many = append(many, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	for _, c := range []struct {
		want     string
		services []ServiceSpec
	}{
		{"services[0].sources: the list is empty", []ServiceSpec{empty}},
		{"services[0].sources[1]: 10.0.0.0/8 is there twice", []ServiceSpec{withSources(service("s", web), "10.0.0.0/8", "10.0.0.0/8")}},
		{"services[0].sources: 257 prefixes, at most 256", []ServiceSpec{withSources(service("s", web), many...)}},
		{"services[0].sources: flow rules choose by sources of their own", []ServiceSpec{flows}},
		{"services[0].sources: flows that backends start", []ServiceSpec{outbound}},
		{"services[1].vips[0]: services[0].vips[0] is the same VIP, and flows that backends start", []ServiceSpec{starts, withSources(service("t", dns), "10.0.0.0/8")}},
		{"services[1].vips[0]: the same address, protocol and port as services[0].vips[0]", []ServiceSpec{service("s", web), service("t", web)}},
		{"services[1].vips[0]: the service of services[0].vips[0] has this VIP and the clients in 10.0.0.0/8 too", []ServiceSpec{
			withSources(service("s", web), "10.0.0.0/8"), withSources(service("t", web), "10.0.0.0/9", "10.0.0.0/8"),
		}},
		{"services[2].vips[0]: the same address, protocol and port as services[0].vips[0]", []ServiceSpec{
			service("s", web), withSources(service("t", web), "10.0.0.0/9"), service("u", web),
		}},
		{"services[0].vips[1]: the same address, protocol and port as services[0].vips[0]", []ServiceSpec{withSources(service("s", web, web), "10.0.0.0/8")}},
		{"", []ServiceSpec{withSources(service("s", web), "10.0.0.0/8"), withSources(service("t", web), "10.0.0.0/9"), service("u", web)}},
	} {
		_, err := Compile(Spec{MaglevSize: 251, Services: c.services}, nil, AllCaps())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// no_source_port and destination_port leave out what their names say, and nothing else.
func TestAffinityFields(t *testing.T) {
	k := flow.NewKey(netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort("192.0.2.1:80"), TCP)
	changes := map[string]func(*flow.Key){
		"source": func(k *flow.Key) { k.Src[15]++ }, "source port": func(k *flow.Key) { k.SrcPort++ }, "destination": func(k *flow.Key) { k.Dst[15]++ },
		"destination port": func(k *flow.Key) { k.DstPort++ }, "protocol": func(k *flow.Key) { k.Proto = UDP },
	}
	for affinity, ignored := range map[Affinity][]string{
		ByFlow: nil, BySource: {"source port", "destination", "destination port", "protocol"}, ByCID: nil,
		NoSourcePort: {"source port"}, DestinationPort: {"source", "source port"},
	} {
		s := &Service{Affinity: affinity}
		for field, change := range changes {
			other := k
			change(&other)
			if same := (&Snapshot{}).FlowHash(s, k) == (&Snapshot{}).FlowHash(s, other); same != slices.Contains(ignored, field) {
				t.Errorf("affinity %s: another %s has the same hash: %v", affinity, field, same)
			}
		}
	}
}
