package lb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func hosted(vip string, change func(*ServiceSpec)) Spec {
	port := 80
	prefix := netip.MustParsePrefix(vip)
	service := ServiceSpec{
		Name:     "s",
		VIPs:     []VIPSpec{{Address: AddressPrefix{prefix}, Protocol: Protocol(TCP), Port: PortRange{80, 80}}},
		Backends: []BackendSpec{{Name: "web", Host: "Web.example.com", Port: &port}, {Name: "own", Address: netip.MustParseAddr("10.0.0.9")}},
	}
	if prefix.Addr().Is6() {
		service.Backends = service.Backends[:1]
	}
	if change != nil {
		change(&service)
	}
	return Spec{Services: []ServiceSpec{service}}
}

func resolvedTo(texts ...string) *Overrides {
	var addresses []netip.Addr
	for _, text := range texts {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	return (*Overrides)(nil).WithAddresses(map[string][]netip.Addr{"web.example.com": addresses})
}

func backendNames(s *Snapshot) string {
	var all []string
	for _, b := range s.Services[0].Backends {
		all = append(all, b.Name)
	}
	return strings.Join(all, " ")
}

// Each address of a host is a backend; what a resolver answers never makes a configuration invalid.
func TestHostBecomesBackends(t *testing.T) {
	for name, c := range map[string]struct {
		spec     Spec
		caps     Caps
		resolved []string
		want     string
	}{
		"not resolved":     {hosted("192.0.2.1/32", nil), AllCaps(), nil, "own"},
		"two addresses":    {hosted("192.0.2.1/32", nil), AllCaps(), []string{"10.0.0.1", "10.0.0.2"}, "own web:10.0.0.1 web:10.0.0.2"},
		"of both families": {hosted("192.0.2.1/32", nil), AllCaps(), []string{"10.0.0.1", "2001:db8::1"}, "own web:10.0.0.1"},
		"of IPv6 alone":    {hosted("2001:db8::80/128", nil), AllCaps(), []string{"10.0.0.1", "2001:db8::1"}, "web:2001:db8::1"},
		"translated":       {hosted("192.0.2.1/32", nil), AllCaps(), []string{"2001:db8::1"}, "own web:2001:db8::1"},
		"not translated":   {hosted("192.0.2.1/32", nil), CheckCaps(), []string{"2001:db8::1"}, "own"},
		"useless addresses": {
			hosted("192.0.2.1/32", nil), AllCaps(), []string{"0.0.0.0", "127.0.0.1", "169.254.1.1", "192.0.2.1", "224.0.0.1", "10.0.0.1"}, "own web:10.0.0.1",
		},
		"a name that is taken": {hosted("192.0.2.1/32", func(s *ServiceSpec) { s.Backends[1].Name = "web:10.0.0.1" }), AllCaps(), []string{"10.0.0.1", "10.0.0.2"}, "web:10.0.0.1 web:10.0.0.2"},
		"the VIP's address, another port": {
			hosted("192.0.2.1/32", func(s *ServiceSpec) { s.VIPs[0].Port = PortRange{81, 81} }), AllCaps(), []string{"192.0.2.1"}, "own web:192.0.2.1",
		},
		"localhost": {
			hosted("192.0.2.1/32", func(s *ServiceSpec) { s.Backends[0].Host = "localhost" }), AllCaps(), []string{"127.0.0.1"}, "own web:127.0.0.1",
		},
		"snat of the other family": {
			hosted("192.0.2.1/32", func(s *ServiceSpec) {
				s.SNAT = &SNATSpec{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
			}), AllCaps(), []string{"2001:db8::1"}, "own",
		},
	} {
		t.Run(name, func(t *testing.T) {
			overrides := resolvedTo(c.resolved...)
			if name == "localhost" {
				overrides = overrides.WithAddresses(map[string][]netip.Addr{"localhost": {netip.MustParseAddr("127.0.0.1")}})
			}
			snapshot, err := Compile(c.spec, overrides, c.caps)
			if err != nil {
				t.Fatal(err)
			}
			if got := backendNames(snapshot); got != c.want {
				t.Errorf("backends %s, want %s", got, c.want)
			}
			for _, b := range snapshot.Services[0].Backends {
				if strings.HasPrefix(b.Name, "web:") && b.Port != 80 && b.Service.Backend("own") != nil {
					t.Errorf("backend %s has port %d", b.Name, b.Port)
				}
			}
		})
	}
}

// The names follow from the addresses alone, so that a new address takes its share of the slots and moves few others.
func TestHostKeepsMaglevStable(t *testing.T) {
	spec := hosted("192.0.2.1/32", nil)
	first, err := Compile(spec, resolvedTo("10.0.0.1", "10.0.0.2", "10.0.0.3"), AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	next, err := CompileAfter(first, spec, resolvedTo("10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"), AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	a, b := first.Services[0], next.Services[0]
	moved, gained := 0, 0
	for slot := range a.Maglev {
		before, after := a.Backends[a.Maglev[slot]].Name, b.Backends[b.Maglev[slot]].Name
		switch {
		case before == after:
		case after == "web:10.0.0.0":
			gained++
		default:
			moved++
		}
	}
	if total := len(a.Maglev); gained < total/6 || moved > total/20 {
		t.Errorf("of %d slots the new address has %d, and %d others moved", total, gained, moved)
	}
}

func TestHostIsBounded(t *testing.T) {
	many := make([]string, MaxHostAddresses+5)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}).String()
	}
	snapshot, err := Compile(hosted("192.0.2.1/32", nil), resolvedTo(many...), AllCaps())
	if err != nil || len(snapshot.Services[0].Backends) != MaxHostAddresses+1 {
		t.Fatalf("%d backends, %v", len(snapshot.Services[0].Backends), err)
	}
	spec := hosted("192.0.2.1/32", func(s *ServiceSpec) {
		s.Backends = slices.Repeat(s.Backends[:1], MaxBackends/MaxHostAddresses+1)
	})
	if _, err := Compile(spec, nil, AllCaps()); err == nil || !strings.Contains(err.Error(), "a host counts for 16") {
		t.Errorf("more backends than there may be: %v", err)
	}
	if got := (&Spec{Services: []ServiceSpec{spec.Services[0], hosted("192.0.2.2/32", nil).Services[0]}}).Hosts(); len(got) != 1 || got[0] != "web.example.com" {
		t.Errorf("hosts %q", got)
	}
}

func TestHostRefused(t *testing.T) {
	port := 80
	for want, change := range map[string]func(*ServiceSpec){
		"services[0].backends[0].address: a host may have several": func(s *ServiceSpec) { s.Backends[0].Address = netip.MustParseAddr("10.0.0.1") },
		"services[0].backends[0].nodes: a host may have several":   func(s *ServiceSpec) { s.Backends[0].Nodes = []uint32{1} },
		`services[0].backends[0].host: "10.0.0.1" is no DNS name`:  func(s *ServiceSpec) { s.Backends[0].Host = "10.0.0.1" },
		"services[0].backends[0].host: the name of a backend":      func(s *ServiceSpec) { s.Backends[0].Name = strings.Repeat("n", 24) },
		"services[0].backends[0].host: mode mark needs": func(s *ServiceSpec) {
			mode := Mark
			s.Mode = &mode
			s.Backends = s.Backends[:1]
			s.Backends[0].Port = nil
		},
		"services[0].backends[0].host: a flow that a backend starts": func(s *ServiceSpec) { s.Outbound = true },
		"services[0].backends[0].host: the service has VIPs of both": func(s *ServiceSpec) {
			s.VIPs = append(s.VIPs, VIPSpec{Address: AddressPrefix{netip.MustParsePrefix("2001:db8::80/128")}, Protocol: Protocol(TCP), Port: PortRange{80, 80}})
			s.Backends = []BackendSpec{{Name: "web", Host: "web.example.com", Port: &port}}
		},
		"services[0].backends[0].host: a backend with action drop": func(s *ServiceSpec) {
			s.Backends[0].Port, s.Backends[0].Action = nil, ActDrop
		},
	} {
		caps := CheckCaps()
		_, err := Compile(hosted("192.0.2.1/32", change), nil, caps)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
