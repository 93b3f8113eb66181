package lb

import (
	"errors"
	"math"
	"net/netip"
	"testing"
)

// A backend without a server has its share of the table as any other, is not probed, and does not count as a backend that is
// left where probes fail.
func TestBackendsWithoutServer(t *testing.T) {
	spec := Spec{Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	spec.Services[0].Backends = append(spec.Services[0].Backends[:2:2],
		BackendSpec{Name: "gone", Action: ActReject, Weight: ptr(100)}, BackendSpec{Name: "gone2", Action: ActDrop, Weight: ptr(0)})
	spec.Services[0].Health = &HealthSpec{Type: ProbeTCP}
	spec.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}
	down := (*Overrides)(nil).With(Target{"s", "a"}, FromHealth, OverrideDown)
	s := compile(t, spec, down).Services[0]
	shares := map[string]float64{}
	for _, i := range s.Maglev {
		shares[s.Backends[i].Name] += 1 / float64(len(s.Maglev))
	}
	if math.Abs(shares["gone"]-0.5) > 0.02 || shares["gone2"] != 0 || shares["a"] != 0 || s.FailOpen {
		t.Errorf("shares %v, fail_open %v", shares, s.FailOpen)
	}
	s = compile(t, spec, down.With(Target{"s", "b"}, FromHealth, OverrideDown)).Services[0]
	if !s.FailOpen || !s.Backend("a").TakesNew() {
		t.Error("with every server failed, probes still count")
	}
	caps := AllCaps()
	caps.Reject = false
	_, err := Compile(spec, nil, caps)
	if wrong := (*Error)(nil); !errors.As(err, &wrong) || wrong.Path != "services[0].backends[2].action" {
		t.Errorf("a data path that cannot answer: %v", err)
	}
}
