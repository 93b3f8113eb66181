package lb

import (
	"net/netip"
	"strings"
	"testing"
)

func staying(protocol Protocol, change func(*ServiceSpec)) Spec {
	no := false
	service := ServiceSpec{
		Name: "s", UDPMigration: &no, Health: &HealthSpec{Type: ProbeTCP},
		VIPs:     []VIPSpec{{Address: AddressPrefix{netip.MustParsePrefix("192.0.2.1/32")}, Protocol: protocol, Port: PortRange{80, 80}}},
		Backends: []BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.0.0.1")}, {Name: "b", Address: netip.MustParseAddr("10.0.0.2")}},
	}
	if change != nil {
		change(&service)
	}
	return Spec{Services: []ServiceSpec{service}}
}

// With udp_migration: false a probe takes a backend out for new flows alone; the operator's word still takes all.
func TestUDPFlowsStay(t *testing.T) {
	a := Target{Service: "s", Backend: "a"}
	for name, c := range map[string]struct {
		from  Overrider
		moves bool
		want  State
	}{
		"probe":           {FromHealth, false, Draining},
		"data path":       {FromDatapath, false, Draining},
		"operator":        {FromOperator, false, Down},
		"cluster":         {FromCluster, false, Down},
		"probe, as usual": {FromHealth, true, Down},
	} {
		spec := staying(Protocol(UDP), func(s *ServiceSpec) {
			if c.moves {
				s.UDPMigration = nil
			}
		})
		snapshot, err := Compile(spec, (*Overrides)(nil).With(a, c.from, OverrideDown), AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		service := snapshot.Services[0]
		b := service.Backend("a")
		if b.State != c.want || b.Failing != (c.from == FromHealth || c.from == FromDatapath) {
			t.Errorf("%s: state %v, failing %v, want %v", name, b.State, b.Failing, c.want)
		}
		for _, i := range service.Maglev {
			if service.Backends[i] == b {
				t.Fatalf("%s: it gets new flows", name)
			}
		}
	}
	all := (*Overrides)(nil).With(a, FromHealth, OverrideDown).With(Target{Service: "s", Backend: "b"}, FromHealth, OverrideDown)
	snapshot, err := Compile(staying(Protocol(UDP), nil), all, AllCaps())
	if err != nil || !snapshot.Services[0].FailOpen || snapshot.Services[0].Backend("a").State != Up {
		t.Errorf("fail-open: %+v, %v", snapshot.Services[0], err)
	}
}

func TestUDPMigrationRefused(t *testing.T) {
	for want, spec := range map[string]Spec{
		"services[0].udp_migration: flows of udp alone may stay, a VIP is tcp": staying(Protocol(TCP), nil),
		"services[0].udp_migration: without conntrack": staying(Protocol(UDP), func(s *ServiceSpec) {
			mode, no := L2DSR, false
			s.Mode, s.Conntrack = &mode, &no
		}),
		`services[0].udp_migration: flows of udp alone may stay, flow rule "r"`: staying(Protocol(UDP), func(s *ServiceSpec) {
			mode := Mark
			s.Mode, s.VIPs, s.Health, s.Backends = &mode, nil, nil, nil
			s.Flows = []FlowSpec{{Name: "r"}}
		}),
	} {
		if _, err := Compile(spec, nil, AllCaps()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
