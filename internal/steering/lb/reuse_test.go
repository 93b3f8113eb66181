package lb

import (
	"reflect"
	"testing"
)

// After a change the snapshot is what it would be without one before; services that have not changed share their tables with it, and
// no change of what a table depends on is missed.
func TestCompileAfterSharesTables(t *testing.T) {
	base := func() Spec {
		return Spec{MaglevSize: 1009, Services: []ServiceSpec{
			service("changes", vip("192.0.2.1", "udp", "1")), service("stays", vip("192.0.2.2", "udp", "1")),
		}}
	}
	drained := (&Overrides{}).With(Target{"changes", "a"}, FromOperator, OverrideDrain)
	for name, change := range map[string]func(*Spec) *Overrides{
		"weight": func(s *Spec) *Overrides { s.Services[0].Backends[0].Weight = ptr(7); return nil },
		"name":   func(s *Spec) *Overrides { s.Services[0].Backends[0].Name = "c"; return nil },
		"address": func(s *Spec) *Overrides {
			s.Services[0].Backends[0].Address = backend("a", "10.0.0.9").Address
			return nil
		},
		"more": func(s *Spec) *Overrides {
			s.Services[0].Backends = append(s.Services[0].Backends, backend("c", "10.0.0.3"))
			return nil
		},
		"fewer":   func(s *Spec) *Overrides { s.Services[0].Backends = s.Services[0].Backends[:1]; return nil },
		"size":    func(s *Spec) *Overrides { s.Services[0].MaglevSize = 2039; return nil },
		"drained": func(*Spec) *Overrides { return drained },
		"all size": func(s *Spec) *Overrides {
			s.Services[0].MaglevSize, s.Services[1].MaglevSize, s.MaglevSize = 2039, 1009, 4093
			return nil
		},
	} {
		before := compile(t, base(), nil)
		spec := base()
		overrides := change(&spec)
		want := compile(t, spec, overrides)
		got, err := CompileAfter(before, spec, overrides, AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Services {
			if !reflect.DeepEqual(got.Services[i].Maglev, want.Services[i].Maglev) {
				t.Errorf("%s: service %s has another table than without a snapshot before", name, want.Services[i].Name)
			}
		}
		if &got.Service("stays").Maglev[0] != &before.Service("stays").Maglev[0] {
			t.Errorf("%s: the table of a service that has not changed was built again", name)
		}
	}
}
