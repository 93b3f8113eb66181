package lb

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// clustered is a service whose backends are nodes of a cluster.
func clustered() Spec {
	s := withCID(Spec{MaglevSize: 251, Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "5684"))}}, LayoutSpec{Length: 6, Owner: &BitsSpec{Bits: 8}})
	s.Services[0].Cluster = &ClusterSpec{}
	s.Services[0].Backends = []BackendSpec{backend("a", "10.0.0.1"), backend("b", "10.0.0.2"), backend("static", "10.0.0.3", 9)}
	s.Services[0].Backends[0].Admin, s.Services[0].Backends[1].Admin = "10.0.0.1:9182", "unix:/run/b.sock"
	return s
}

// Owner ids of queried backends are those that the cluster reports, those of a static node are those of the spec, whatever else is
// reported; without cluster nothing reported counts.
func TestOwnersOfACluster(t *testing.T) {
	owned := map[string][]uint32{"a": {3, 1, 9, 256, 1}, "b": {2, 3}, "static": {4}, "gone": {5}}
	overrides := (*Overrides)(nil).WithOwners("s", owned).WithOwners("other", owned)
	nodes := func(s *Snapshot) string {
		var all []string
		for _, b := range s.Services[0].Backends {
			all = append(all, fmt.Sprint(b.Name, b.Nodes[0], b.Admin))
		}
		return strings.Join(all, " ")
	}
	spec := clustered()
	s := compile(t, spec, nil)
	if got, want := nodes(s), "a[]10.0.0.1:9182 b[]unix:/run/b.sock static[9]"; got != want {
		t.Errorf("before the first report: %s, want %s", got, want)
	}
	if c := s.Services[0].Cluster; c.Every != 500*time.Millisecond || c.Timeout != 2*time.Second || c.OldAfter != 10*time.Second {
		t.Errorf("defaults %+v", c)
	}
	s = compile(t, spec, overrides)
	if got, want := nodes(s), "a[1 3]10.0.0.1:9182 b[2]unix:/run/b.sock static[9]"; got != want {
		t.Errorf("reported: %s, want %s", got, want)
	}
	for id, want := range map[uint32]string{1: "a", 2: "b", 9: "static"} {
		if b := s.Services[0].Owner(0, id); b == nil || b.Name != want {
			t.Errorf("owner of %d: %v", id, b)
		}
	}
	if s = compile(t, spec, overrides.WithOwners("s", nil)); nodes(s) != nodes(compile(t, spec, nil)) || overrides.Owners("s") == nil {
		t.Errorf("removed: %s", nodes(s))
	}
	spec.Services[0].Cluster = nil
	spec.Services[0].Backends[0].Admin, spec.Services[0].Backends[1].Admin = "", ""
	if s = compile(t, spec, overrides); nodes(s) != "a[] b[] static[9]" {
		t.Errorf("without cluster: %s", nodes(s))
	}
}

// What a cluster reports of a backend takes precedence over the data path's own view only.
func TestPrecedenceOfACluster(t *testing.T) {
	target := Target{"s", "a"}
	o := (*Overrides)(nil).With(target, FromDatapath, OverrideDown).With(target, FromCluster, OverrideDrain)
	if value, from := o.Of(target); value != OverrideDrain || from != FromCluster {
		t.Errorf("%v by %v", value, from)
	}
	for _, from := range []Overrider{FromHealth, FromOperator} {
		if value, by := o.With(target, from, OverrideDown).Of(target); value != OverrideDown || by != from {
			t.Errorf("%v by %v, want down by %v", value, by, from)
		}
	}
	if kept := o.WithOwners("s", nil).From(target, FromCluster); kept != OverrideDrain {
		t.Errorf("after WithOwners: %v", kept)
	}
}

func TestAdminAddresses(t *testing.T) {
	for text, good := range map[string]bool{
		"unix:/run/a.sock": true, "unix:a": true, "unix:": false, "10.0.0.1:9182": true, "node-1.example:1": true, "[::1]:9182": true, "::1:9182": false,
		"10.0.0.1": false, ":9182": false, "a:0": false, "a:65536": false, "a:": false, "http://a:1": false, "u@a:1": false, "a b:1": false, "": false,
	} {
		if got := adminAddress(text); got != good {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// More backends than there are node ids are not queried.
func TestNodesOfAClusterAreBounded(t *testing.T) {
	spec := clustered()
	spec.Services[0].Backends = weightless(MaxClusterNodes + 1)
	for i := range spec.Services[0].Backends {
		spec.Services[0].Backends[i].Admin = fmt.Sprintf("n%d:1", i)
	}
	if path := refusal(t, spec); path != "services[0].cluster" {
		t.Errorf("refused at %q", path)
	}
	spec.Services[0].Backends = spec.Services[0].Backends[1:]
	if path := refusal(t, spec); path != "" {
		t.Errorf("refused at %q", path)
	}
}
