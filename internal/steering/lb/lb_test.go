package lb

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
)

func ptr[T any](v T) *T { return &v }

func prefix(text string) AddressPrefix {
	var p AddressPrefix
	if err := p.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return p
}

func ports(text string) PortRange {
	var p PortRange
	if err := p.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return p
}

func vip(address, protocol, port string) VIPSpec {
	v := VIPSpec{Address: prefix(address), Port: ports(port)}
	if err := v.Protocol.UnmarshalText([]byte(protocol)); err != nil {
		panic(err)
	}
	return v
}

func backend(name, address string, nodes ...uint32) BackendSpec {
	return BackendSpec{Name: name, Address: netip.MustParseAddr(address), Port: ptr(5684), Nodes: nodes}
}

func service(name string, vips ...VIPSpec) ServiceSpec {
	return ServiceSpec{Name: name, VIPs: vips, Backends: []BackendSpec{backend("a", "10.0.0.1"), backend("b", "10.0.0.2")}}
}

func compile(t testing.TB, spec Spec, overrides *Overrides) *Snapshot {
	t.Helper()
	if spec.MaglevSize == 0 {
		spec.MaglevSize = 1009
	}
	s, err := Compile(spec, overrides, AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMostSpecificVIPWins(t *testing.T) {
	caps := AllCaps()
	spec := Spec{MaglevSize: 251, Services: []ServiceSpec{
		service("any", vip("0.0.0.0/0", "udp", "any")),
		service("net", vip("192.0.2.0/24", "udp", "5000-5999"), vip("192.0.2.0/24", "udp", "7")),
		service("host", vip("192.0.2.1", "udp", "5684")),
		service("host-range", vip("192.0.2.1", "udp", "5000-6000"), vip("192.0.2.1", "udp", "5600-5700")),
		service("tcp", vip("192.0.2.1", "tcp", "5684")),
		service("six", vip("2001:db8::/32", "udp", "any"), vip("::/0", "udp", "53")),
	}}
	spec.Services[3].Name = "host-range"
	snapshot, err := Compile(spec, nil, caps)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		protocol uint8
		address  string
		port     uint16
		want     string
	}{
		{UDP, "192.0.2.1", 5684, "host"},
		{UDP, "192.0.2.1", 5683, "host-range"},
		{UDP, "192.0.2.1", 5000, "host-range"},
		{UDP, "192.0.2.1", 6000, "host-range"},
		{UDP, "192.0.2.1", 6001, "any"},
		{UDP, "192.0.2.1", 7, "net"},
		{UDP, "192.0.2.2", 5684, "net"},
		{UDP, "192.0.3.2", 5684, "any"},
		{UDP, "192.0.3.2", 0, "any"},
		{TCP, "192.0.2.1", 5684, "tcp"},
		{TCP, "192.0.2.1", 5683, ""},
		{SCTP, "192.0.2.1", 5684, ""},
		{UDP, "2001:db8::9", 1, "six"},
		{UDP, "2001:db9::9", 53, "six"},
		{UDP, "2001:db9::9", 54, ""},
		{TCP, "10.0.0.1", 53, ""}, // ::/0 is not for IPv4
	} {
		got := ""
		if s, _ := snapshot.Lookup(c.protocol, [16]byte{}, flow.Address(netip.MustParseAddr(c.address)), c.port); s != nil {
			got = s.Name
		}
		if got != c.want {
			t.Errorf("%s %s:%d → %q, want %q", Protocol(c.protocol), c.address, c.port, got, c.want)
		}
	}
	if !snapshot.HasAddress(flow.Address(netip.MustParseAddr("8.8.8.8"))) {
		t.Error("0.0.0.0/0 does not cover 8.8.8.8")
	}
	if s, _ := snapshot.LookupAddress([16]byte{}, flow.Address(netip.MustParseAddr("192.0.2.1"))); s == nil || s.Name != "host" {
		t.Errorf("the address 192.0.2.1 belongs to %v", s)
	}
}

// An IPv6 default route does not swallow IPv4 destinations.
func TestIPv6PrefixesAreNotForIPv4(t *testing.T) {
	snapshot := compile(t, Spec{Services: []ServiceSpec{service("six", vip("::/0", "udp", "any"))}}, nil)
	four := flow.Address(netip.MustParseAddr("10.0.0.1"))
	service, _ := snapshot.Lookup(UDP, four, four, 53)
	pinged, _ := snapshot.LookupAddress(four, four)
	if service != nil || snapshot.HasAddress(four) || pinged != nil {
		t.Error("::/0 matched 10.0.0.1")
	}
}

func TestSameInputSameSnapshot(t *testing.T) {
	parse := netip.MustParseAddr
	spec := Spec{Services: []ServiceSpec{
		service("b", vip("192.0.2.1", "udp", "1"), vip("2001:db8::1", "udp", "1"), vip("192.0.2.1", "udp", "1-9"), vip("192.0.2.0/24", "udp", "5-9"),
			vip("192.0.2.1", "tcp", "7"), vip("192.0.2.1", "udp", "20-22"), vip("192.0.2.1", "udp", "10-18")),
		service("a", vip("192.0.2.1", "udp", "2")),
	}}
	spec.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("10.0.0.9"), parse("fd00::9"), parse("10.0.0.8")}}
	marked := marked()
	marked.Services[0].Flows = []FlowSpec{{
		Name: "f", Protocols: []Protocol{Protocol(SCTP), Protocol(TCP), Protocol(UDP)},
		Sources:     []AddressPrefix{prefix("10.0.0.0/8"), prefix("9.0.0.0/8"), prefix("10.0.0.0/9")},
		SourcePorts: []PortRange{{5, 9}, {1, 2}, {5, 6}},
	}}
	for i, spec := range []Spec{spec, marked} {
		first := compile(t, spec, nil)
		slices.Reverse(spec.Services)
		for i := range spec.Services {
			s := &spec.Services[i]
			s.Backends, s.VIPs = reversed(s.Backends), reversed(s.VIPs)
			if s.SNAT != nil {
				s.SNAT = &SNATSpec{Addresses: reversed(s.SNAT.Addresses)}
			}
			for j := range s.Flows {
				f := &s.Flows[j]
				f.Protocols, f.Sources, f.SourcePorts = reversed(f.Protocols), reversed(f.Sources), reversed(f.SourcePorts)
			}
		}
		if spec.Tier != nil {
			spec.Tier.Members = reversed(spec.Tier.Members)
		}
		second := compile(t, spec, nil)
		if !reflect.DeepEqual(first, second) {
			t.Error("the order in the file shows in the snapshot")
		}
		if i > 0 {
			if m := first.Tier.Members; m[0].Name != "a" || m[1].Name != "b" || m[1].Index != 1 || first.Tier.Self != m[0] {
				t.Errorf("members %+v", first.Tier)
			}
			continue
		}
		if first.Services[0].Name != "a" || first.Services[1].Index != 1 || first.Services[0].Backends[1].Index != 1 {
			t.Errorf("not ordered by name: %+v", first.Services)
		}
		want := "[tcp 192.0.2.1:7 udp 192.0.2.1:1 udp 192.0.2.1:20-22 udp 192.0.2.1:1-9 udp 192.0.2.1:10-18 udp [2001:db8::1]:1 udp 192.0.2.0/24:5-9]"
		if got := fmt.Sprint(first.Services[1].VIPs); got != want {
			t.Errorf("VIPs %s\nwant %s", got, want)
		}
	}
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func TestWeightsAndOverridesShapeTheTable(t *testing.T) {
	spec := Spec{MaglevSize: 10007, Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	spec.Services[0].Backends = []BackendSpec{backend("a", "10.0.0.1"), backend("b", "10.0.0.2"), backend("c", "10.0.0.3"), backend("z", "10.0.0.4")}
	spec.Services[0].Backends[1].Weight = ptr(300)
	spec.Services[0].Backends[3].Weight = ptr(0)
	share := func(o *Overrides) map[string]float64 {
		s := compile(t, spec, o).Services[0]
		counts := map[string]float64{}
		for _, i := range s.Maglev {
			counts[s.Backends[i].Name] += 1 / float64(len(s.Maglev))
		}
		return counts
	}
	near := func(got, want float64) bool { return got > want-0.01 && got < want+0.01 }
	if got := share(nil); !near(got["a"], 0.2) || !near(got["b"], 0.6) || !near(got["c"], 0.2) || got["z"] != 0 {
		t.Errorf("shares %v", got)
	}
	var o *Overrides
	o = o.With(Target{"s", "b"}, FromOperator, OverrideDrain)
	if got := share(o); got["b"] != 0 || !near(got["a"], 0.5) {
		t.Errorf("shares with b draining: %v", got)
	}
	s := compile(t, spec, o).Services[0]
	if b := s.Backend("b"); b.State != Draining || b.TakesNew() {
		t.Errorf("b is %v", b.State)
	}
	for _, name := range []string{"a", "c"} {
		o = o.With(Target{"s", name}, FromHealth, OverrideDown)
	}
	s = compile(t, spec, o).Services[0]
	if s.Select(7) != nil {
		t.Error("a backend is selected though none takes new flows")
	}
	o = o.With(Target{"s", "a"}, FromOperator, OverrideUp) // the operator overrules the probe
	s = compile(t, spec, o).Services[0]
	if b := s.Select(7); b == nil || b.Name != "a" {
		t.Errorf("selected %v, want a", b)
	}
	s = compile(t, spec, o.With(Target{Service: "s"}, FromOperator, OverrideDown)).Services[0]
	if !s.Down {
		t.Error("the service is not down")
	}
	s = compile(t, spec, (*Overrides)(nil).With(Target{Service: "s"}, FromOperator, OverrideDrain)).Services[0]
	if s.Select(7) != nil || s.Backends[0].State != Draining {
		t.Error("the service does not drain")
	}
}

// Probes that leave no backend are ignored; an operator is not, nor are probes whose fail_open is off.
func TestProbesFailOpen(t *testing.T) {
	spec := Spec{MaglevSize: 251, Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	s := &spec.Services[0]
	s.Backends = []BackendSpec{backend("a", "10.0.0.1"), backend("b", "10.0.0.2"), backend("c", "10.0.0.3")}
	s.Backends[2].Weight = ptr(0)
	states := func(o *Overrides) string {
		s := compile(t, spec, o).Services[0]
		text := fmt.Sprint(s.FailOpen)
		for _, b := range s.Backends {
			text += " " + b.State.String()
		}
		return text
	}
	var all *Overrides
	for _, name := range []string{"a", "b", "c"} {
		all = all.With(Target{"s", name}, FromHealth, OverrideDown)
	}
	all = all.With(Target{"s", "b"}, FromDatapath, OverrideDown)
	check := func(what, want string, o *Overrides) {
		t.Helper()
		if got := states(o); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("no probe configured", "false down down down", all)
	s.Health = &HealthSpec{Type: ProbeTCP}
	check("all fail", "true up up up", all)
	check("one is well", "false down up down", all.With(Target{"s", "b"}, FromOperator, OverrideUp))
	check("an operator took one down", "true down up up", all.With(Target{"s", "a"}, FromOperator, OverrideDown))
	check("an operator drains the service", "false down down down", all.With(Target{Service: "s"}, FromOperator, OverrideDrain))
	only := (*Overrides)(nil).With(Target{"s", "a"}, FromOperator, OverrideDown).With(Target{"s", "b"}, FromOperator, OverrideDrain)
	check("nothing a probe said", "false down draining up", only)
	s.Health.FailOpen = ptr(false)
	check("switched off", "false down down down", all)
}

func TestOverridesAreValues(t *testing.T) {
	var none *Overrides
	target := Target{"s", "a"}
	one := none.With(target, FromHealth, OverrideDown)
	two := one.With(target, FromOperator, OverrideUp)
	back := two.With(target, FromOperator, NoOverride).With(target, FromHealth, NoOverride)
	if v, _ := none.Of(target); v != NoOverride {
		t.Error("the empty set changed")
	}
	if v, from := one.Of(target); v != OverrideDown || from != FromHealth {
		t.Errorf("one: %v by %v", v, from)
	}
	if v, from := two.Of(target); v != OverrideUp || from != FromOperator {
		t.Errorf("two: %v by %v", v, from)
	}
	if two.From(target, FromHealth) != OverrideDown {
		t.Error("the probe's word was lost")
	}
	for range back.All() {
		t.Error("an override taken back is still listed")
	}
	for range none.All() {
		t.Error("the empty set lists an override")
	}
	many := two.With(Target{"t", ""}, FromHealth, OverrideDrain).With(Target{"s", ""}, FromOperator, OverrideDown).With(Target{"a", "b"}, FromDatapath, OverrideUp)
	var listed []string
	for target, value := range many.All() {
		listed = append(listed, target.String()+" "+value.String())
	}
	if got := strings.Join(listed, ", "); got != "a/b up, s down, s/a up, t drain" {
		t.Errorf("overrides %s", got)
	}
	for target := range many.All() {
		if target.Service != "a" {
			t.Error("the list does not end when yield returns false")
		}
		break
	}
}

func TestOwnerTable(t *testing.T) {
	spec := Spec{Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	spec.Services[0].CID = &CIDSpec{Protocols: []CIDProtocol{1}, Layouts: []LayoutSpec{{Length: 8, Owner: &BitsSpec{Bits: 32}}}}
	spec.Services[0].Backends = []BackendSpec{backend("a", "10.0.0.1", 1, 70000, 4_000_000_000), backend("b", "10.0.0.2", 0, 65535, 65536)}
	s := compile(t, spec, nil).Services[0]
	if s.Affinity != ByCID {
		t.Errorf("affinity %v", s.Affinity)
	}
	for id, want := range map[uint32]string{0: "b", 1: "a", 2: "", 65535: "b", 65536: "b", 70000: "a", 70001: "", 4_000_000_000: "a", 1<<32 - 1: ""} {
		if got := ownerName(s, 0, id); got != want {
			t.Errorf("owner %d: %q, want %q", id, got, want)
		}
	}
}

func ownerName(s *Service, layout int, id uint32) string {
	if b := s.Owner(layout, id); b != nil {
		return b.Name
	}
	return ""
}

// A layout with nodes of its own has nothing of the backends' and of other layouts' nodes; layouts without share a table.
func TestOwnersByLayout(t *testing.T) {
	layout := func(bits int, rotation uint8, nodes map[string][]uint32) LayoutSpec {
		return LayoutSpec{Length: 8, Owner: &BitsSpec{Offset: 8, Bits: bits}, Rotation: &RotationSpec{Bits: 2, Value: rotation}, Nodes: nodes}
	}
	spec := Spec{Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	spec.Services[0].Backends = []BackendSpec{backend("b", "10.0.0.2", 2), backend("a", "10.0.0.1", 300, 1)}
	spec.Services[0].CID = &CIDSpec{Protocols: []CIDProtocol{1}, Layouts: []LayoutSpec{
		layout(16, 0, nil), layout(24, 1, map[string][]uint32{"b": {70000, 1}, "a": {2}}), layout(8, 2, nil), layout(8, 3, map[string][]uint32{"b": {7}}),
	}}
	s := compile(t, spec, nil).Services[0]
	for i, want := range []map[uint32]string{
		{1: "a", 2: "b", 300: "a", 7: "", 70000: ""},
		{1: "b", 2: "a", 300: "", 7: "", 70000: "b"},
		{1: "a", 2: "b", 300: "a", 7: "", 70000: ""},
		{1: "", 2: "", 300: "", 7: "b", 70000: ""},
	} {
		for id, backend := range want {
			if got := ownerName(s, i, id); got != backend {
				t.Errorf("layout %d, owner %d: %q, want %q", i, id, got, backend)
			}
		}
		if got, want := s.OwnersLike(i), []int{0, 1, 0, 3}[i]; got != want {
			t.Errorf("layout %d has the owners of layout %d, want %d", i, got, want)
		}
	}
	if got := fmt.Sprint(s.Backend("a").Nodes, s.Backend("b").Nodes); got != "[[1 300] [2] [1 300] []] [[2] [1 70000] [2] [7]]" {
		t.Errorf("nodes %s", got)
	}
	if got := strings.Join(spec.Warnings(), "\n"); strings.Contains(got, "CID layout") {
		t.Errorf("warnings: %s", got)
	}
	spec.Services[0].Backends[0].Nodes, spec.Services[0].Backends[1].Nodes = nil, nil
	spec.Services[0].CID.Layouts[3].Nodes = map[string][]uint32{"b": {}}
	got := strings.Join(spec.Warnings(), "\n")
	for i, want := range []bool{true, false, true, true} {
		if strings.Contains(got, fmt.Sprintf("CID layout %d: each of its CIDs is unknown", i)) != want {
			t.Errorf("layout %d, want a warning %t: %s", i, want, got)
		}
	}
}

func TestDefaults(t *testing.T) {
	s := compile(t, Spec{Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}, nil)
	if s.Limits.Flows != 262144 || s.Limits.HeldFragments != 256 || s.Limits.FragmentTTL != 2*time.Second {
		t.Errorf("limits %+v", s.Limits)
	}
	if got := s.Services[0].Timeout(UDP); got != 2*time.Minute {
		t.Errorf("UDP time-out %s", got)
	}
	caps := AllCaps()
	caps.HoldFragments, caps.MaxFlows = false, 1000
	limited, err := Compile(Spec{MaglevSize: 251, Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}, nil, caps)
	if err != nil || limited.Limits.HeldFragments != 0 || limited.Limits.Flows != 1000 {
		t.Errorf("defaults do not follow the data path: %+v, %v", limited, err)
	}
}

func TestCapsRefuse(t *testing.T) {
	base := func() Spec {
		return Spec{MaglevSize: 251, Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "1"))}}
	}
	for _, c := range []struct {
		path   string
		change func(*Spec, *Caps)
	}{
		{"services[0].mode", func(s *Spec, c *Caps) { s.Services[0].Mode = ptr(L2DSR); c.Modes = []Mode{NAT} }},
		{"services[0].tunnel", func(s *Spec, c *Caps) {
			s.Services[0].Mode, s.Services[0].Tunnel, c.Tunnels = ptr(L3DSR), GUE, []Tunnel{IPIP}
		}},
		{"services[0].vips[0].protocol", func(_ *Spec, c *Caps) { c.Protocols = []uint8{TCP} }},
		{"services[0].vips[0].address", func(_ *Spec, c *Caps) { c.IPv4 = false }},
		{"services[0].vips[0].address", func(s *Spec, c *Caps) {
			s.Services[0].VIPs[0].Address, c.Prefixes = prefix("192.0.2.0/24"), false
		}},
		{"services[0].vips[0].port", func(s *Spec, c *Caps) { s.Services[0].VIPs[0].Port, c.PortRanges = ports("1-2"), false }},
		{"services[0].cid", func(s *Spec, c *Caps) {
			s.Services[0].CID, c.CID = &CIDSpec{Protocols: []CIDProtocol{1}, Layouts: []LayoutSpec{{Length: 6, Owner: &BitsSpec{Bits: 8}}}}, false
		}},
		{"services[0].cid.layouts[0].mask_key", func(s *Spec, c *Caps) {
			s.Services[0].CID = &CIDSpec{Protocols: []CIDProtocol{1}, Layouts: []LayoutSpec{{Length: 8, Owner: &BitsSpec{Bits: 8}, MaskKey: &HexKey{}}}}
			c.MaskedCID = false
		}},
		{"services[0].cid.layouts", func(s *Spec, c *Caps) {
			layout := func(rotation uint8) LayoutSpec {
				return LayoutSpec{Length: 8, Owner: &BitsSpec{Offset: 8, Bits: 8}, Rotation: &RotationSpec{Bits: 2, Value: rotation}}
			}
			s.Services[0].CID = &CIDSpec{Protocols: []CIDProtocol{1}, Layouts: []LayoutSpec{layout(0), layout(1)}}
			c.MaxLayouts = 1
		}},
		{"services[0].snat", func(s *Spec, c *Caps) {
			s.Services[0].SNAT, c.SNAT = &SNATSpec{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}, false
		}},
		{"limits.held_fragments", func(s *Spec, c *Caps) { s.Limits.HeldFragments, c.HoldFragments = ptr(5), false }},
		{"limits.flows", func(s *Spec, c *Caps) { s.Limits.Flows, c.MaxFlows = 2000, 1000 }},
		{"maglev_size", func(s *Spec, c *Caps) { s.MaglevSize, c.MaxMaglev = 65537, 10007 }},
		{"services[0].maglev_size", func(s *Spec, c *Caps) { s.Services[0].MaglevSize, c.MaxMaglev = 65537, 10007 }},
		{"services[0].flows", func(s *Spec, c *Caps) {
			s.Services[0] = flowService([]FlowSpec{{Name: "all"}})
			c.Flows = false
		}},
		{"services[0].flows[0].protocols[1]", func(s *Spec, c *Caps) {
			s.Services[0] = flowService([]FlowSpec{{Name: "all", Protocols: []Protocol{Protocol(UDP), Protocol(SCTP)}}})
			c.Protocols = []uint8{UDP}
		}},
		{"services[0].flows[0].sources[0]", func(s *Spec, c *Caps) {
			s.Services[0] = flowService([]FlowSpec{{Name: "all", Sources: []AddressPrefix{prefix("2001:db8::/32")}}})
			c.IPv6 = false
		}},
		{"promiscuous_ping", func(s *Spec, c *Caps) { s.PromiscuousPing, c.Flows = true, false }},
		{"tier", func(s *Spec, c *Caps) {
			s.Services[0] = flowService([]FlowSpec{{Name: "all"}})
			s.Tier, c.Tier = &TierSpec{Self: "a", Members: []MemberSpec{{Name: "a", Mark: 201}}}, false
		}},
		{"no_service_mark", func(s *Spec, c *Caps) { s.NoServiceMark, c.ReservedMarks = -1, false }},
		{"services[0].no_backend_mark", func(s *Spec, c *Caps) { s.Services[0].NoBackendMark, c.ReservedMarks = ptr(int64(0)), false }},
		{"services[0].sctp_hash", func(s *Spec, c *Caps) {
			s.Services[0].Mode, s.Services[0].SCTPHash, c.SCTPPorts = ptr(L2DSR), SCTPPorts, false
		}},
		{"services[0].conntrack", func(s *Spec, c *Caps) {
			s.Services[0].Mode, s.Services[0].Conntrack, c.Stateless = ptr(L2DSR), ptr(false), false
		}},
		{"hash", func(s *Spec, c *Caps) { s.Hash, c.NFQLB = NFQLB, false }},
		{"services[0].backends[0].address2", func(s *Spec, c *Caps) {
			s.Services[0].VIPs = append(s.Services[0].VIPs, vip("2001:db8::1", "udp", "1"))
			c.CrossFamily = false
		}},
	} {
		spec, caps := base(), AllCaps()
		caps.Name = "small"
		c.change(&spec, &caps)
		_, err := Compile(spec, nil, caps)
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Path != c.path || wrong.Remedy == "" {
			t.Errorf("error %v, want one at %s", err, c.path)
		}
	}
}

// Equal VIPs are for config's bad files; here: what must be allowed.
func TestNestedRangesAreAllowed(t *testing.T) {
	compile(t, Spec{Services: []ServiceSpec{
		service("s", vip("192.0.2.1", "udp", "1-100"), vip("192.0.2.1", "udp", "20-30"), vip("192.0.2.1", "udp", "25"), vip("192.0.2.1", "udp", "200-300")),
		service("t", vip("192.0.2.1", "tcp", "1-100"), vip("192.0.2.0/24", "udp", "50-150")),
	}}, nil)
}

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for i := range NumReasons {
		r := Reason(i)
		name := r.String()
		if name == "" || seen[name] || name != strings.ToLower(name) || strings.ContainsAny(name, " -") {
			t.Errorf("reason %d has the name %q", i, name)
		}
		seen[name] = true
		if back, ok := ParseReason(name); !ok || back != r {
			t.Errorf("%q reads back as %v", name, back)
		}
	}
	for reason, want := range map[Reason]Action{
		ReasonNotService: Pass, ReasonNoNeighbour: Pass, ReasonNoBackendMark: Pass, ReasonFragment: Forward, ReasonTier: Forward, ReasonOutbound: Forward,
		ReasonFragmentEarly: Hold, ReasonMalformed: Drop, ReasonNotDTLS: Drop,
	} {
		if got := reason.Action(); got != want {
			t.Errorf("%v: %v, want %v", reason, got, want)
		}
	}
	if r, ok := ParseReason("no_such"); ok || r != ReasonNone {
		t.Errorf("no_such is read as %v", r)
	}
	if Reason(NumReasons).String() != "unknown" || Action(9).String() != "unknown" {
		t.Error("numbers out of range have a name")
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	key := HexKey{0xde, 0xad}
	text, err := json.Marshal(struct{ Key HexKey }{key})
	if err != nil || string(text) != `{"Key":"hidden"}` || key.String() != "hidden" || strings.Contains(key.String(), "dead") {
		t.Errorf("%s %s %v", text, key, err)
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	spec := Spec{Services: []ServiceSpec{
		service("s", vip("192.0.2.1", "udp", "1-100"), vip("192.0.2.0/24", "udp", "5")),
		service("t", vip("2001:db8::/64", "udp", "any")),
	}}
	snapshot := compile(t, spec, nil)
	address := flow.Address(netip.MustParseAddr("192.0.2.1"))
	var hash uint64
	if n := testing.AllocsPerRun(100, func() {
		s, _ := snapshot.Lookup(UDP, address, address, 50)
		hash++
		s.Select(hash)
		s.Owner(-1, 3)
		snapshot.HasAddress(address)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"192.0.2.1", "192.0.2.0/24", "2001:db8::/64", "5000-5999", "any", "never", "30s", "::ffff:1.2.3.4/120", "fe80::1%eth0", "65536", "nat", "dtls12", "tcp[13:1] & 0x02 = 0x02", "sctp[8:4]=1", "udp[6:2] & 65535 = 0xffff", "nfqlb", "ports"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p AddressPrefix
		if p.UnmarshalText([]byte(text)) == nil && (!p.IsValid() || p.Prefix != p.Masked() || p.Addr().Is4In6()) {
			t.Errorf("%q became %v", text, p)
		}
		var r PortRange
		if r.UnmarshalText([]byte(text)) == nil && r.Last < r.First {
			t.Errorf("%q became %v", text, r)
		}
		var d Timeout
		if d.UnmarshalText([]byte(text)) == nil && d <= 0 {
			t.Errorf("%q became %v", text, d)
		}
		var m, back ByteMatch
		if m.UnmarshalText([]byte(text)) == nil {
			if m.Offset+m.Length > headerBytes(m.Protocol) || m.Value&^m.Mask != 0 || back.UnmarshalText([]byte(m.String())) != nil || back != m {
				t.Errorf("%q became %+v", text, m)
			}
		}
		for _, u := range []interface{ UnmarshalText([]byte) error }{new(Mode), new(Tunnel), new(Affinity), new(Probe), new(Protocol), new(CIDProtocol), new(HexKey), new(Override), new(Hash), new(SCTPHash)} {
			_ = u.UnmarshalText([]byte(text))
		}
	})
}
