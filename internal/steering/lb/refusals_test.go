package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Two VIPs of one address may have ranges that are nested or disjoint; each port then belongs to the narrowest range.
func TestVIPRanges(t *testing.T) {
	const top = 6
	var all []PortRange
	for first := uint16(1); first < top; first++ {
		for last := first; last < top; last++ {
			all = append(all, PortRange{first, last})
		}
	}
	inside := func(r PortRange, port uint16) bool { return r.First <= port && port <= r.Last }
	for _, a := range all {
		for _, b := range all {
			common, onlyA, onlyB := false, false, false
			for port := range uint16(top) {
				switch inA, inB := inside(a, port), inside(b, port); {
				case inA && inB:
					common = true
				case inA:
					onlyA = true
				case inB:
					onlyB = true
				}
			}
			want := ""
			if common && onlyA && onlyB {
				want = "services[1].vips[0].port"
			} else if common && !onlyA && !onlyB {
				want = "services[1].vips[0]"
			}
			spec := Spec{MaglevSize: 251}
			for i, r := range []PortRange{a, b} {
				spec.Services = append(spec.Services, service(fmt.Sprint(i), VIPSpec{prefix("192.0.2.1"), Protocol(UDP), r}))
			}
			if path := refusal(t, spec); path != want {
				t.Errorf("%v with %v: refused at %q, want %q", b, a, path, want)
				continue
			}
			if want != "" {
				continue
			}
			snapshot := compile(t, spec, nil)
			for port := range uint16(top + 1) {
				name := ""
				switch inA, inB := inside(a, port), inside(b, port); {
				case inA && (!inB || a.Last-a.First < b.Last-b.First):
					name = "0"
				case inB:
					name = "1"
				}
				got := ""
				if s, _ := snapshot.Lookup(UDP, [16]byte{}, flow.Address(netip.MustParseAddr("192.0.2.1")), port); s != nil {
					got = s.Name
				}
				if got != name {
					t.Errorf("%v with %v: port %d is of service %q, want %q", b, a, port, got, name)
				}
			}
		}
	}
}

// What a spec may not say, under which key it is refused, and what is like it and may be said.
func TestContradictions(t *testing.T) {
	parse := netip.MustParseAddr
	health := func(h HealthSpec) func(*Spec) { return func(s *Spec) { s.Services[0].Health = &h } }
	layout := func(l LayoutSpec) func(*Spec) { return func(s *Spec) { *s = withCID(*s, l) } }
	self := func(mode Mode, port *int, address, ports string) func(*Spec) { // backend a has an address of a VIP's
		return func(s *Spec) {
			s.Services[0].Mode, s.Services[0].VIPs = &mode, []VIPSpec{vip(address, "udp", ports)}
			s.Services[0].Backends = []BackendSpec{{Name: "a", Address: parse("192.0.2.1"), Port: port}}
			if strings.HasSuffix(address, "/31") {
				s.Services[0].Backends[0].Address = parse("192.0.2.0")
			}
		}
	}
	mark := func(change func(*Spec)) func(*Spec) {
		return func(s *Spec) { *s = marked(); change(s) }
	}
	nfqlb := func(change func(*Spec)) func(*Spec) {
		return func(s *Spec) { *s = nfqlbSpec(1, 2, 3); s.MaglevSize = 3; change(s) }
	}
	rule := func(f FlowSpec) func(*Spec) {
		return mark(func(s *Spec) { f.Name = "f"; s.Services[0].Flows = []FlowSpec{f} })
	}
	sctp, tcp, udp := Protocol(SCTP), Protocol(TCP), Protocol(UDP)
	four, six := []AddressPrefix{prefix("10.0.0.0/8")}, []AddressPrefix{prefix("fd00::/8")}
	both := append(slices.Clone(four), six...)
	cidOver := func(protocols ...Protocol) func(*Spec) {
		return mark(func(s *Spec) {
			s.Services[0].Flows[0].Protocols = protocols
			*s = withCID(*s, LayoutSpec{Length: 8, Owner: &BitsSpec{8, 8}})
		})
	}
	twoLayouts := func(bits0, bits1 int, node uint32) func(*Spec) { // the nodes of backends count in the widest layout
		return func(s *Spec) {
			*s = withCID(*s, LayoutSpec{Length: 8, Owner: &BitsSpec{8, bits0}, Rotation: &RotationSpec{Bits: 2}}, LayoutSpec{Length: 8, Owner: &BitsSpec{8, bits1}, Rotation: &RotationSpec{Bits: 2, Value: 1}})
			s.Services[0].Backends[0].Nodes = []uint32{node}
		}
	}
	for what, c := range map[string]struct {
		path   string
		change func(*Spec)
	}{
		"tcp probe":                       {"", health(HealthSpec{Type: ProbeTCP})},
		"tcp probe with path":             {"services[0].health", health(HealthSpec{Type: ProbeTCP, Path: "/"})},
		"tcp probe with host":             {"services[0].health", health(HealthSpec{Type: ProbeTCP, Host: "h"})},
		"tcp probe with status":           {"services[0].health", health(HealthSpec{Type: ProbeTCP, Status: 200})},
		"tcp probe with payload":          {"services[0].health.send", health(HealthSpec{Type: ProbeTCP, Send: "x"})},
		"udp probe with payload":          {"", health(HealthSpec{Type: ProbeUDP, Send: "x"})},
		"http probe":                      {"", health(HealthSpec{Type: ProbeHTTP, Path: "/a%2Fb?q=~!%ff", Host: "h:80", Status: 204})},
		"path with fragment":              {"services[0].health.path", health(HealthSpec{Type: ProbeHTTP, Path: "/a#b"})},
		"path with space":                 {"services[0].health.path", health(HealthSpec{Type: ProbeHTTP, Path: "/a b"})},
		"path beyond ASCII":               {"services[0].health.path", health(HealthSpec{Type: ProbeHTTP, Path: "/\x7f"})},
		"path ends in an escape":          {"services[0].health.path", health(HealthSpec{Type: ProbeHTTP, Path: "/%4"})},
		"path with a bad escape":          {"services[0].health.path", health(HealthSpec{Type: ProbeHTTP, Path: "/%41%4g"})},
		"host with slash":                 {"services[0].health.host", health(HealthSpec{Type: ProbeHTTP, Host: "a/b"})},
		"host with user":                  {"services[0].health.host", health(HealthSpec{Type: ProbeHTTP, Host: "u@h"})},
		"quic_lb and length":              {"services[0].cid.layouts[0].quic_lb", layout(LayoutSpec{QUICLB: &QUICLBSpec{0, 2, 8}, Length: 1})},
		"quic_lb and rotation":            {"services[0].cid.layouts[0].quic_lb", layout(LayoutSpec{QUICLB: &QUICLBSpec{0, 2, 8}, Rotation: &RotationSpec{}})},
		"quic_lb and owner":               {"services[0].cid.layouts[0].quic_lb", layout(LayoutSpec{QUICLB: &QUICLBSpec{0, 2, 8}, Owner: &BitsSpec{}})},
		"CIDs over a udp rule":            {"", cidOver(udp)},
		"CIDs over a tcp rule":            {"services[0].cid", cidOver(tcp)},
		"CIDs over a rule of two":         {"services[0].cid", cidOver(udp, tcp)},
		"node in the widest layout":       {"", twoLayouts(8, 16, 65535)},
		"node in the widest layout first": {"", twoLayouts(16, 8, 65535)},
		"node beyond the widest layout":   {"services[0].backends[0].nodes[0]", twoLayouts(16, 8, 65536)},
		"node beyond both layouts":        {"services[0].backends[0].nodes[0]", twoLayouts(8, 8, 256)},
		"backend is the VIP":              {"services[0].backends[0].address", self(NAT, nil, "192.0.2.1", "5684")},
		"and its port":                    {"services[0].backends[0].address", self(NAT, ptr(5684), "192.0.2.1", "5684")},
		"but another port":                {"", self(NAT, ptr(5683), "192.0.2.1", "5684")},
		"port before the range":           {"", self(NAT, ptr(4), "192.0.2.1", "5-7")},
		"first port of the range":         {"services[0].backends[0].address", self(NAT, ptr(5), "192.0.2.1", "5-7")},
		"last port of the range":          {"services[0].backends[0].address", self(NAT, ptr(7), "192.0.2.1", "5-7")},
		"port after the range":            {"", self(NAT, ptr(8), "192.0.2.1", "5-7")},
		"backend in the VIP's prefix":     {"", self(NAT, nil, "192.0.2.0/24", "5684")},
		"backend is the prefix's address": {"", self(NAT, nil, "192.0.2.0/31", "5684")},
		"backend is the VIP, l2dsr":       {"services[0].backends[0].address", self(L2DSR, nil, "192.0.2.1", "5684")},
		"backend of the other family":     {"", self(NAT, nil, "2001:db8::1", "5684")},
		"l2dsr of the other family":       {"services[0].backends[0].address2", self(L2DSR, nil, "2001:db8::1", "5684")},
		"l3dsr of the other family":       {"", self(L3DSR, nil, "2001:db8::1", "5684")},
		"equal second addresses": {"", func(s *Spec) {
			for i := range s.Services[0].Backends {
				s.Services[0].Backends[i].Address2 = parse("fd00::1")
			}
		}},
		"second address multicast": {"services[0].backends[0].address2", func(s *Spec) { s.Services[0].Backends[0].Address2 = parse("ff02::1") }},
		"SNAT of the other family": {"services[0].snat.addresses", func(s *Spec) { s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("fd00::9")}} }},
		"SNAT follows the backends": {"", func(s *Spec) {
			s.Services[0].VIPs[0].Address = prefix("2001:db8::1")
			s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("::ffff:10.0.0.9")}}
		}},
		"SNAT lacks IPv6": {"services[0].snat.addresses", func(s *Spec) {
			s.Services[0].Backends[1] = BackendSpec{Name: "b", Address: parse("fd00::1")}
			s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("10.0.0.9")}}
		}},
		"SNAT to multicast": {"services[0].snat.addresses[0]", func(s *Spec) { s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("224.0.0.1")}} }},
		"SNAT to nowhere":   {"services[0].snat.addresses[0]", func(s *Spec) { s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{{}}} }},
		"SNAT twice": {"services[0].snat.addresses[1]", func(s *Spec) {
			s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("10.0.0.9"), parse("::ffff:10.0.0.9")}}
		}},
		"SNAT from port 0": {"services[0].snat.ports", func(s *Spec) {
			s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("10.0.0.9")}, Ports: PortRange{0, 65535}}
		}},
		"SNAT from port 1": {"", func(s *Spec) {
			s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{parse("10.0.0.9")}, Ports: PortRange{1, 64}}
		}},
		"rule of one family":        {"", rule(FlowSpec{Sources: four, Destinations: four})},
		"rule of both and one":      {"", rule(FlowSpec{Sources: both, Destinations: six})},
		"rule of two families":      {"services[0].flows[0].sources", rule(FlowSpec{Sources: four, Destinations: six})},
		"rule with a prefix twice":  {"services[0].flows[0].destinations[1]", rule(FlowSpec{Destinations: append(slices.Clone(four), four...)})},
		"source prefix twice":       {"services[0].flows[0].sources[1]", rule(FlowSpec{Sources: append(slices.Clone(four), four...)})},
		"encapsulated sctp":         {"", rule(FlowSpec{Protocols: []Protocol{sctp}, UDPEncap: 9899})},
		"encapsulated anything":     {"services[0].flows[0].udp_encap", rule(FlowSpec{UDPEncap: 9899})},
		"encapsulated tcp":          {"services[0].flows[0].udp_encap", rule(FlowSpec{Protocols: []Protocol{tcp}, UDPEncap: 9899})},
		"encapsulated sctp and tcp": {"services[0].flows[0].udp_encap", rule(FlowSpec{Protocols: []Protocol{sctp, tcp}, UDPEncap: 9899})},
		"sctp ports":                {"", mark(func(s *Spec) { s.Services[0].SCTPHash = SCTPPorts })},
		"sctp ports by flow":        {"", mark(func(s *Spec) { s.Services[0].SCTPHash, s.Services[0].Affinity = SCTPPorts, ptr(ByFlow) })},
		"sctp ports by source":      {"services[0].sctp_hash", mark(func(s *Spec) { s.Services[0].SCTPHash, s.Services[0].Affinity = SCTPPorts, ptr(BySource) })},
		"sctp flow by source":       {"", mark(func(s *Spec) { s.Services[0].SCTPHash, s.Services[0].Affinity = SCTPFlow, ptr(BySource) })},
		"sctp ports in mode nat":    {"services[0].sctp_hash", func(s *Spec) { s.Services[0].SCTPHash = SCTPPorts }},
		"sctp flow in mode nat":     {"", func(s *Spec) { s.Services[0].SCTPHash = SCTPFlow }},
		"nfqlb by flow":             {"", nfqlb(func(s *Spec) { s.Services[0].Affinity = ptr(ByFlow) })},
		"nfqlb by source":           {"services[0].affinity", nfqlb(func(s *Spec) { s.Services[0].Affinity = ptr(BySource) })},
		"nfqlb with more than slots": {"services[0].backends", nfqlb(func(s *Spec) {
			s.Services[0].Backends = append(s.Services[0].Backends, BackendSpec{Name: "z", Mark: 9})
		})},
		"nfqlb without weight":      {"", nfqlb(func(s *Spec) { s.Services[0].Backends[0].Weight = ptr(0) })},
		"nfqlb with another weight": {"services[0].backends[0].weight", nfqlb(func(s *Spec) { s.Services[0].Backends[0].Weight = ptr(7) })},
		"member without name":       {"tier.members[0].name", mark(func(s *Spec) { s.Tier.Members[0].Name = "" })},
		"member with index":         {"tier.members[0].index", mark(func(s *Spec) { s.Tier.Members[0].Index = ptr(1) })},
		"more members than slots": {"tier.members", nfqlb(func(s *Spec) {
			s.Tier = &TierSpec{Self: "a", Members: []MemberSpec{{Name: "a", Mark: 21}, {Name: "b", Mark: 22}, {Name: "c", Mark: 23}, {Name: "d", Mark: 24}}}
		})},
	} {
		s := small()
		c.change(&s)
		if path := refusal(t, s); path != c.path {
			t.Errorf("%s: refused at %q, want %q", what, path, c.path)
		}
	}
}

// A data path without an ability refuses only what needs it, and names what it can do instead.
func TestCapsRefuseNoMore(t *testing.T) {
	for what, c := range map[string]struct {
		remedy string // of the refusal; "": none
		change func(*Spec, *Caps)
	}{
		"IPv6 alone":       {"use the other family", func(_ *Spec, c *Caps) { c.IPv4 = false }},
		"IPv4 alone":       {"", func(_ *Spec, c *Caps) { c.IPv6 = false }},
		"single addresses": {"", func(_ *Spec, c *Caps) { c.Prefixes = false }},
		"single ports":     {"", func(_ *Spec, c *Caps) { c.PortRanges = false }},
		"one mode":         {"write l2dsr,", func(_ *Spec, c *Caps) { c.Modes = []Mode{L2DSR} }},
		"two modes":        {"write l2dsr or mark,", func(_ *Spec, c *Caps) { c.Modes = []Mode{L2DSR, Mark} }},
		"three modes":      {"write l2dsr, l3dsr or mark,", func(_ *Spec, c *Caps) { c.Modes = []Mode{L2DSR, L3DSR, Mark} }},
		"no mode":          {"write none,", func(_ *Spec, c *Caps) { c.Modes = nil }},
		"other protocols":  {"write tcp or sctp,", func(_ *Spec, c *Caps) { c.Protocols = []uint8{TCP, SCTP} }},
		"stateless":        {"", func(_ *Spec, c *Caps) { c.Stateless, c.SCTPPorts = false, false }},
		"as large a table": {"", func(_ *Spec, c *Caps) { c.MaxMaglev = 251 }},
		"as many layouts": {"", func(s *Spec, c *Caps) {
			*s = withCID(*s, LayoutSpec{Length: 8, Owner: &BitsSpec{8, 8}})
			c.MaxLayouts = 1
		}},
		"layouts without limit": {"", func(s *Spec, c *Caps) {
			*s = withCID(*s, LayoutSpec{Length: 8, Owner: &BitsSpec{8, 8}})
			c.MaxLayouts = 0
		}},
		"no outbound": {"remove it,", func(s *Spec, c *Caps) { s.Services[0].Outbound, c.Outbound = true, false }},
		"rules of IPv4": {"", func(s *Spec, c *Caps) {
			*s = marked()
			s.Services[0].Flows[0].Sources = []AddressPrefix{prefix("10.0.0.0/8")}
			c.IPv6 = false
		}},
		"rules of IPv6": {"", func(s *Spec, c *Caps) {
			*s = marked()
			s.Services[0].Flows[0].Sources = []AddressPrefix{prefix("fd00::/8")}
			c.IPv4 = false
		}},
		"rules of neither": {"use the other family,", func(s *Spec, c *Caps) {
			*s = marked()
			s.Services[0].Flows[0].Sources = []AddressPrefix{prefix("fd00::/8")}
			c.IPv6 = false
		}},
		"l2dsr, both families": {"add an address of that family", func(s *Spec, _ *Caps) {
			s.Services[0].Mode, s.Services[0].VIPs = ptr(L2DSR), []VIPSpec{vip("2001:db8::1", "udp", "1")}
			s.Services[0].Backends = []BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.0.0.1")}}
		}},
	} {
		s, caps := small(), AllCaps()
		caps.Name = "small"
		c.change(&s, &caps)
		_, err := Compile(s, nil, caps)
		if (err != nil) != (c.remedy != "") || err != nil && !strings.Contains(err.Error(), "; "+c.remedy) {
			t.Errorf("%s: error %v, want %q", what, err, c.remedy)
		}
	}
	if caps := CheckCaps(); caps.CrossFamily || !caps.NFQLB || !caps.IPv6 {
		t.Errorf("check's capabilities: %+v", caps)
	}
}

// Settings and defaults arrive in the snapshot.
func TestSettingsArrive(t *testing.T) {
	s := marked()
	s.HashKey, s.NoServiceMark, s.PromiscuousPing = &HexKey{1, 2}, 77, true
	s.Services[0].NoBackendMark, s.Services[0].Conntrack, s.Services[0].SCTPHash, s.Services[0].NewFlowRate = ptr(int64(78)), ptr(true), SCTPPorts, 5
	c := compile(t, s, nil)
	one := c.Services[0]
	if c.HashKey != (flow.HashKey{1, 2}) || c.NoServiceMark != 77 || !c.PromiscuousPing || one.NoBackendMark != 78 || one.Stateless || one.SCTPHash != SCTPPorts || one.NewFlowRate != 5 {
		t.Errorf("%+v of %+v", one, c)
	}
	// The defaults of the two hashes.
	one = compile(t, small(), nil).Services[0]
	if one.Stateless || one.SCTPHash != SCTPFlow || one.NoBackendMark != DropMark || len(one.Maglev) != 251 || one.Tunnel != NoTunnel || one.Outbound {
		t.Errorf("siphash: %+v", one)
	}
	s = nfqlbSpec(1, 2)
	s.MaglevSize = 0
	snapshot, err := Compile(s, nil, AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	if one = snapshot.Services[0]; !one.Stateless || one.SCTPHash != SCTPPorts || len(one.Maglev) != 997 || one.Backends[1].Slot != 1 {
		t.Errorf("nfqlb: %+v", one)
	}
	s.MaglevSize = 10000
	if snapshot, err = Compile(s, nil, AllCaps()); err != nil || len(snapshot.Services[0].Maglev) != 9973 {
		t.Errorf("nfqlb takes the prime below: %d, %v", len(snapshot.Services[0].Maglev), err)
	}
	if snapshot, err = Compile(Spec{Services: small().Services}, nil, AllCaps()); err != nil || len(snapshot.Services[0].Maglev) != 65537 {
		t.Errorf("default size %d, %v", len(snapshot.Services[0].Maglev), err)
	}
	// A wrong size of the file is one error, not one of each service too.
	s = small()
	s.MaglevSize = 252
	if _, err := Compile(s, nil, AllCaps()); err == nil || strings.Contains(err.Error(), "more)") {
		t.Errorf("a wrong size: %v", err)
	}
	s = nfqlbSpec(1)
	s.MaglevSize = 2
	if _, err := Compile(s, nil, AllCaps()); err == nil || strings.Contains(err.Error(), "more)") {
		t.Errorf("a wrong size for nfqlb: %v", err)
	}
	s = small()
	s.Services[0].Mode, s.Services[0].Outbound = ptr(L3DSR), false
	s.Services[0].Backends = []BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.0.0.1")}}
	s.Services[0].Health = &HealthSpec{Type: ProbeHTTP, Interval: 1e9, FailOpen: ptr(true)}
	if one = compile(t, s, nil).Services[0]; one.Tunnel != IPIP || one.Health.Path != "/" || one.Health.Timeout != 5e8 || one.Health.Rise != 2 || one.Health.Fall != 3 || !one.Health.FailOpen || one.Timeout(TCP) != 7440e9 || one.Timeout(SCTP) != 600e9 || one.Timeout(UDP) != 120e9 {
		t.Errorf("%+v, %+v", one, one.Health)
	}
	// The owners of two layouts that are alike, and of one that is like the second.
	layout := func(rotation uint8, nodes map[string][]uint32) LayoutSpec {
		return LayoutSpec{Length: 8, Owner: &BitsSpec{8, 8}, Rotation: &RotationSpec{Bits: 2, Value: rotation}, Nodes: nodes}
	}
	s = withCID(small(), layout(0, map[string][]uint32{"a": {1}}), layout(1, map[string][]uint32{"a": {2}}), layout(2, map[string][]uint32{"a": {2}}))
	if one = compile(t, s, nil).Services[0]; one.OwnersLike(2) != 1 || one.OwnersLike(1) != 1 || one.OwnersLike(0) != 0 {
		t.Error("layout 2 has the owners of layout 1")
	}
	// A draining or weightless backend takes no new flow.
	b := Backend{State: Up, Weight: 1}
	if b.TakesNew() != true || (&Backend{State: Up}).TakesNew() || (&Backend{State: Draining, Weight: 1}).TakesNew() {
		t.Error("new flows")
	}
}

// Each warning, when it is due and when not.
func TestWarnings(t *testing.T) {
	for what, c := range map[string]struct {
		want   string // "": no warning but the usual one of the spec
		change func(*Spec)
	}{
		"as usual":         {"", func(*Spec) {}},
		"no key":           {"hash_key is not set", func(s *Spec) { s.HashKey = nil }},
		"no backend":       {"has no backend: ", func(s *Spec) { s.Services[0].Backends = nil }},
		"no weight":        {"no backend with weight", func(s *Spec) { s.Services[0].Backends = weightless(2) }},
		"one has weight":   {"", func(s *Spec) { s.Services[0].Backends = append(weightless(2), BackendSpec{Name: "z", Weight: ptr(1)}) }},
		"unknown CIDs":     {"CID layout 0", func(s *Spec) { *s = withCID(*s, LayoutSpec{}) }},
		"known CIDs":       {"", func(s *Spec) { *s = withCID(*s, LayoutSpec{}); s.Services[0].Backends[1].Nodes = []uint32{1} }},
		"CIDs, no backend": {"has no backend: ", func(s *Spec) { *s = withCID(*s, LayoutSpec{}); s.Services[0].Backends = nil }},
		"own nodes": {"CID layout 0", func(s *Spec) {
			*s = withCID(*s, LayoutSpec{Nodes: map[string][]uint32{"x": {1}}})
			s.Services[0].Backends[1].Nodes = []uint32{1}
		}},
		"rules three times": {"flows[1] matches everything that services[0].flows[0] matches", func(s *Spec) {
			s.Services[0].Flows = []FlowSpec{{Name: "a"}, {Name: "b", Priority: 1}}
		}},
	} {
		s := small()
		s.HashKey = &HexKey{1}
		s.Services[0].Backends = slices.Clone(s.Services[0].Backends)
		c.change(&s)
		got := s.Warnings()
		if len(got) != min(len(c.want), 1) || len(got) > 0 && !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	for size, want := range map[int]bool{2: false, 3: false, 4: true, 9973: false, 994008: true, 994009: true, 994010: false} {
		s := nfqlbSpec(1)
		s.MaglevSize = size
		if got := len(s.Warnings()) > 1; got != want {
			t.Errorf("nfqlb with %d slots: %q", size, s.Warnings())
		}
	}
	for n, want := range map[int]string{5: "b1, b2, b3, b4, b5; ", 6: "b1, b2, b3, b4, b5 and 1 more; "} {
		s := nfqlbSpec([]uint32{1, 2, 3, 4, 5, 6}[:n]...)
		if got := s.Warnings(); len(got) != 2 || !strings.Contains(got[1], want) {
			t.Errorf("%d without index: %q", n, got)
		}
	}
	// Of three equal rules, the one that wins is named.
	s := marked()
	s.HashKey = &HexKey{1}
	s.Services[0].Flows = []FlowSpec{{Name: "a"}, {Name: "b", Priority: 2}, {Name: "c", Priority: 1}}
	if got := s.Warnings(); len(got) != 2 || !strings.HasPrefix(got[1], "services[0].flows[2] matches only what services[0].flows[1] matches") {
		t.Errorf("%q", got)
	}
}
