package announce

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const file = `
announce:
  %s
  bgp: {as: 64512, router_id: 10.0.0.1, next_hop6: "2001:db8::9", neighbours: [{address: 10.0.0.254, as: 64513}]}
services:
- name: web
  health: {type: tcp, port: 80}
  vips: [{address: 192.0.2.1, protocol: tcp, port: 80}, {address: "2001:db8::1", protocol: tcp, port: 80}]
  backends: [{name: a, address: 10.0.0.11, address2: "fd00::11"}, {name: b, address: 10.0.0.12, address2: "fd00::12"}]
- name: dns
  vips: [{address: 192.0.2.1, protocol: udp, port: 53}, {address: 192.0.2.8/30, protocol: udp, port: 53}]
  backends: [{name: c, address: 10.0.0.13}, {name: gone, action: drop}]
`

func snapshotOf(t *testing.T, keys string, overrides *lb.Overrides) *lb.Snapshot {
	t.Helper()
	spec, _, err := config.Decode[lb.Spec]("file", fmt.Appendf(nil, file, keys))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := lb.Compile(spec, overrides, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func text(routes []Route) string {
	var all []string
	for _, r := range routes {
		all = append(all, r.Prefix.String()+" "+r.State.String())
	}
	return strings.Join(all, ", ")
}

// Which prefixes are announced follows from health, overrides, the data path, the phase and the settings.
func TestDecide(t *testing.T) {
	down := func(from lb.Overrider, value lb.Override, names ...string) *lb.Overrides {
		var o *lb.Overrides
		for _, name := range names {
			service, backend, _ := strings.Cut(name, "/")
			o = o.With(lb.Target{Service: service, Backend: backend}, from, value)
		}
		return o
	}
	const all = "192.0.2.1/32 announced, 192.0.2.8/30 announced, 2001:db8::1/128 announced"
	for name, c := range map[string]struct {
		keys      string
		overrides *lb.Overrides
		node      Node
		want      string
	}{
		"all well":                        {want: all},
		"one of two backends is down":     {overrides: down(lb.FromHealth, lb.OverrideDown, "web/a"), want: all},
		"two are needed":                  {keys: "min_healthy: 2", overrides: down(lb.FromHealth, lb.OverrideDown, "web/a"), want: "192.0.2.1/32 withdrawn, 192.0.2.8/30 withdrawn, 2001:db8::1/128 withdrawn"},
		"probes fail open, not announced": {overrides: down(lb.FromHealth, lb.OverrideDown, "web/a", "web/b"), want: "192.0.2.1/32 announced, 192.0.2.8/30 announced, 2001:db8::1/128 withdrawn"},
		"an operator knows better":        {overrides: down(lb.FromHealth, lb.OverrideDown, "web/a", "web/b").With(lb.Target{Service: "web", Backend: "a"}, lb.FromOperator, lb.OverrideUp), want: all},
		"drained backends serve":          {overrides: down(lb.FromOperator, lb.OverrideDrain, "web/a", "web/b", "dns/c"), want: all},
		"drained and dead":                {overrides: down(lb.FromHealth, lb.OverrideDown, "web/a", "web/b").With(lb.Target{Service: "web", Backend: "a"}, lb.FromOperator, lb.OverrideDrain), want: "192.0.2.1/32 announced, 192.0.2.8/30 announced, 2001:db8::1/128 withdrawn"},
		"all services are required":       {keys: "require: all", overrides: down(lb.FromOperator, lb.OverrideDown, "dns"), want: "192.0.2.1/32 withdrawn, 192.0.2.8/30 withdrawn, 2001:db8::1/128 announced"},
		"a service is down":               {overrides: down(lb.FromOperator, lb.OverrideDown, "dns"), want: "192.0.2.1/32 announced, 192.0.2.8/30 withdrawn, 2001:db8::1/128 announced"},
		"none is needed":                  {keys: "min_healthy: 0", overrides: down(lb.FromOperator, lb.OverrideDown, "dns", "web"), want: all},
		"one service":                     {keys: "services: [dns]", want: "192.0.2.1/32 announced, 192.0.2.8/30 announced"},
		"aggregates":                      {keys: "aggregates: [192.0.2.0/24, 192.0.2.0/29]", want: "192.0.2.0/24 announced, 192.0.2.0/29 announced, 2001:db8::1/128 announced"},
		"an aggregate of one dead service": {
			keys: "aggregates: [192.0.2.0/24, 192.0.2.0/29]", overrides: down(lb.FromOperator, lb.OverrideDown, "dns"),
			want: "192.0.2.0/24 withdrawn, 192.0.2.0/29 announced, 2001:db8::1/128 announced",
		},
		"detached":                      {node: Node{Detached: "x"}, want: strings.ReplaceAll(all, "announced", "withdrawn")},
		"leaving":                       {node: Node{Phase: Leaving}, want: strings.ReplaceAll(all, "announced", "retiring")},
		"leaving, and one cannot serve": {node: Node{Phase: Leaving}, overrides: down(lb.FromOperator, lb.OverrideDown, "dns"), want: "192.0.2.1/32 retiring, 192.0.2.8/30 withdrawn, 2001:db8::1/128 retiring"},
		"gone":                          {node: Node{Phase: Gone}, want: strings.ReplaceAll(all, "announced", "withdrawn")},
	} {
		routes := Decide(snapshotOf(t, c.keys, c.overrides), c.node)
		if got := text(routes); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
		for _, r := range routes {
			if (r.Reason == "") != (r.State == Announced) || len(r.Services) == 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	if Decide(nil, Node{}) != nil || Decide(&lb.Snapshot{}, Node{}) != nil {
		t.Error("something is announced without a configuration")
	}
}
