package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// refusal returns the path of the first error of a spec, "" for none. An error always has a remedy.
func refusal(t *testing.T, spec Spec) string {
	t.Helper()
	_, err := Compile(spec, nil, AllCaps())
	if err == nil {
		return ""
	}
	var first *Error
	if !errors.As(err, &first) || first.What == "" || first.Remedy == "" {
		t.Fatalf("%v is no located error with its remedy", err)
	}
	return first.Path
}

// small is a spec with one service and two backends, which build no large table.
func small() Spec {
	return Spec{MaglevSize: 251, Services: []ServiceSpec{service("s", vip("192.0.2.1", "udp", "5684"))}}
}

// marked is small in mode mark, with a flow rule in the place of the VIP and a tier of two.
func marked() Spec {
	s := nfqlbSpec(1, 2)
	s.Hash, s.MaglevSize = SipHash, 251
	s.Tier = &TierSpec{Self: "a", Members: []MemberSpec{{Name: "a", Mark: 201}, {Name: "b", Mark: 202}}}
	return s
}

func withCID(s Spec, layouts ...LayoutSpec) Spec {
	s.Services[0].CID = &CIDSpec{Protocols: []CIDProtocol{1}, Layouts: layouts}
	return s
}

// weightless makes n backends without weight, whose tables stay empty.
func weightless(n int) []BackendSpec {
	list := make([]BackendSpec, n)
	for i := range list {
		list[i] = BackendSpec{Name: fmt.Sprint("b", i), Address: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Weight: ptr(0)}
	}
	return list
}

// numbered makes n different numbers.
func numbered(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// Each number of a spec is taken at its bounds, and refused under its own key beyond them.
func TestBounds(t *testing.T) {
	health := func(h HealthSpec) Spec {
		s := small()
		s.Services[0].Health = &h
		return s
	}
	quicLB := func(q QUICLBSpec) Spec { return withCID(small(), LayoutSpec{QUICLB: &q}) }
	rule := func(f FlowSpec) Spec {
		s := marked()
		f.Name = "f"
		s.Services[0].Flows = []FlowSpec{f}
		return s
	}
	second, minute := int(time.Second), int(time.Minute)
	for _, c := range []struct {
		path string
		spec func(n int) Spec
		good []int
		bad  []int
	}{
		{"limits.flows", func(n int) Spec { s := small(); s.Limits.Flows = n; return s }, []int{1, 1 << 26}, []int{-1, 1<<26 + 1}},
		{"limits.fragments", func(n int) Spec { s := small(); s.Limits.Fragments = n; return s }, []int{1, 1 << 22}, []int{-1, 1<<22 + 1}},
		{"limits.held_fragments", func(n int) Spec { s := small(); s.Limits.HeldFragments = &n; return s }, []int{0, 1 << 16}, []int{-1, 1<<16 + 1}},
		{"limits.held_per_datagram", func(n int) Spec { s := small(); s.Limits.HeldPerDatagram = n; return s }, []int{1, 64}, []int{-1, 65}},
		{"limits.fragment_ttl", func(n int) Spec { s := small(); s.Limits.FragmentTTL = time.Duration(n); return s }, []int{second / 100, minute}, []int{-1, second/100 - 1, minute + 1}},
		{"maglev_size", func(n int) Spec { s := small(); s.MaglevSize = n; s.Services[0].Backends = weightless(2); return s }, []int{251, 16777213}, []int{-251, 1, 241, 252, 16777259}},
		{"maglev_size", func(n int) Spec {
			s := nfqlbSpec(1, 2)
			s.MaglevSize = n
			s.Services[0].Backends[0].Weight = ptr(0)
			return s
		}, []int{3, 4, 994009}, []int{-3, 2, 994010}},
		{"services[0].maglev_size", func(n int) Spec {
			s := small()
			s.Services[0].MaglevSize, s.Services[0].Backends = n, weightless(2)
			return s
		}, []int{251, 16777213}, []int{-251, 1, 241, 252, 16777259}},
		{"tier.maglev_size", func(n int) Spec { s := marked(); s.Tier.MaglevSize = n; return s }, []int{251, 257}, []int{241, 252}},
		{"services[0].new_flow_rate", func(n int) Spec { s := small(); s.Services[0].NewFlowRate = n; return s }, []int{0, 1}, []int{-1}},
		{"services[0].backends[0].weight", func(n int) Spec { s := small(); s.Services[0].Backends[0].Weight = &n; return s }, []int{0, 10000}, []int{-1, 10001}},
		{"services[0].backends[0].port", func(n int) Spec { s := small(); s.Services[0].Backends[0].Port = &n; return s }, []int{1, 65535}, []int{-1, 0, 65536}},
		{"services[0].backends[0].index", func(n int) Spec { s := nfqlbSpec(1, 2); s.Services[0].Backends[0].Index = &n; return s }, []int{0, 9972}, []int{-1, 9973}},
		{"services[0].timeouts.udp", func(n int) Spec { s := small(); s.Services[0].Timeouts.UDP = Timeout(n); return s }, []int{second, int(Never)}, []int{1, second - 1}},
		{"services[0].snat.ports", func(n int) Spec {
			s := small()
			s.Services[0].SNAT = &SNATSpec{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Ports: PortRange{1000, uint16(n)}}
			return s
		}, []int{1063, 65535}, []int{1000, 1062}},
		{"services[0].health.port", func(n int) Spec { return health(HealthSpec{Type: ProbeTCP, Port: n}) }, []int{0, 1, 65535}, []int{-1, 65536}},
		{"services[0].health.interval", func(n int) Spec { return health(HealthSpec{Type: ProbeTCP, Interval: time.Duration(n)}) }, []int{second / 10, 60 * minute}, []int{-1, second/10 - 1, 60*minute + 1}},
		{"services[0].health.timeout", func(n int) Spec { return health(HealthSpec{Type: ProbeTCP, Timeout: time.Duration(n)}) }, []int{second / 100, 2*second - 1}, []int{-1, second/100 - 1, 2 * second}},
		{"services[0].health.rise", func(n int) Spec { return health(HealthSpec{Type: ProbeTCP, Rise: n}) }, []int{1, 100}, []int{-1, 101}},
		{"services[0].health.fall", func(n int) Spec { return health(HealthSpec{Type: ProbeTCP, Fall: n}) }, []int{1, 100}, []int{-1, 101}},
		{"services[0].health.status", func(n int) Spec { return health(HealthSpec{Type: ProbeHTTP, Status: n}) }, []int{0, 100, 599}, []int{-1, 99, 600}},
		{"services[0].cid.layouts[0].quic_lb.rotation", func(n int) Spec { return quicLB(QUICLBSpec{uint8(n), 2, 8}) }, []int{0, 6}, []int{7}},
		{"services[0].cid.layouts[0].quic_lb.server_id_length", func(n int) Spec { return quicLB(QUICLBSpec{0, n, 8}) }, []int{1, 4}, []int{0, 5}},
		{"services[0].cid.layouts[0].quic_lb.nonce_length", func(n int) Spec { return quicLB(QUICLBSpec{0, 1, n}) }, []int{4, 18}, []int{3, 19}},
		{"services[0].cid.layouts[0].quic_lb.nonce_length", func(n int) Spec { return quicLB(QUICLBSpec{0, 4, n}) }, []int{4, 15}, []int{3, 16}},
		{"services[0].cid.layouts[0].rotation.bits", func(n int) Spec {
			return withCID(small(), LayoutSpec{Length: 8, Owner: &BitsSpec{8, 8}, Rotation: &RotationSpec{Bits: n}})
		}, []int{1, 8}, []int{0}},
		{"no_service_mark", func(n int) Spec { s := marked(); s.NoServiceMark = int64(n); return s }, []int{-1, 0, 1<<32 - 1}, []int{-2, 1 << 32}},
		{"services[0].no_backend_mark", func(n int) Spec { s := marked(); s.Services[0].NoBackendMark = ptr(int64(n)); return s }, []int{-1, 0, 1<<32 - 1}, []int{-2, 1 << 32}},
		{"services[0].flows[0].udp_encap", func(n int) Spec { return rule(FlowSpec{Protocols: []Protocol{Protocol(SCTP)}, UDPEncap: n}) }, []int{0, 1, 65535}, []int{-1, 65536}},
		{"tier.members[0].weight", func(n int) Spec { s := marked(); s.Tier.Members[0].Weight = &n; return s }, []int{0, 10000}, []int{-1, 10001}},
		// Lengths of lists.
		{"services[0].name", func(n int) Spec { s := small(); s.Services[0].Name = strings.Repeat("n", n); return s }, []int{1, 63}, []int{0, 64}},
		{"services", func(n int) Spec {
			s := small()
			s.Services = nil
			for i := range n {
				one := service(fmt.Sprint("s", i), vip("192.0.2.1", "udp", fmt.Sprint(1+i)))
				one.Backends = weightless(1)
				s.Services = append(s.Services, one)
			}
			return s
		}, []int{1, MaxServices}, []int{0, MaxServices + 1}},
		{"services[0].vips", func(n int) Spec {
			s := small()
			s.Services[0].VIPs = nil
			for i := range n {
				s.Services[0].VIPs = append(s.Services[0].VIPs, vip("192.0.2.1", "udp", fmt.Sprint(1+i)))
			}
			return s
		}, []int{1, MaxVIPs}, []int{0, MaxVIPs + 1}},
		{"services[0].backends", func(n int) Spec { s := small(); s.Services[0].Backends = weightless(n); return s }, []int{0, MaxBackends}, []int{MaxBackends + 1}},
		{"services[0].backends[0].nodes", func(n int) Spec {
			s := withCID(small(), LayoutSpec{Length: 8, Owner: &BitsSpec{8, 16}})
			s.Services[0].Backends[0].Nodes = numbered(n)
			return s
		}, []int{0, MaxNodes}, []int{MaxNodes + 1}},
		{"services[0].flows", func(n int) Spec {
			s := marked()
			s.Services[0].Flows = make([]FlowSpec, n)
			for i := range n {
				s.Services[0].Flows[i].Name = fmt.Sprint("f", i)
			}
			return s
		}, []int{1, MaxFlowRules}, []int{MaxFlowRules + 1}},
		{"services[0].flows[0].sources", func(n int) Spec {
			var f FlowSpec
			for i := range n {
				f.Sources = append(f.Sources, prefix(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String()))
			}
			return rule(f)
		}, []int{0, MaxRulePrefixes}, []int{MaxRulePrefixes + 1}},
		{"services[0].flows[0].source_ports", func(n int) Spec { return rule(FlowSpec{SourcePorts: make([]PortRange, n)}) }, []int{0, MaxRulePorts}, []int{MaxRulePorts + 1}},
		{"services[0].flows[0].match", func(n int) Spec {
			var f FlowSpec
			for i := range n {
				f.Match = append(f.Match, ByteMatch{TCP, i, 1, 1, 1})
			}
			return rule(f)
		}, []int{0, MaxRuleMatches}, []int{MaxRuleMatches + 1}},
		{"services[0].flows[2].match[0]", func(n int) Spec {
			s := marked()
			s.Services[0].Flows = make([]FlowSpec, 3)
			for i := range n {
				f := &s.Services[0].Flows[i/16]
				f.Match = append(f.Match, ByteMatch{TCP, i % 16, 1, uint32(i/16 + 1), 1})
				f.Match[len(f.Match)-1].Value &= f.Match[len(f.Match)-1].Mask
			}
			for i := range s.Services[0].Flows {
				s.Services[0].Flows[i].Name = fmt.Sprint("f", i)
			}
			return s
		}, []int{16, maxPlaces}, []int{maxPlaces + 1}},
		{"tier.members", func(n int) Spec {
			s := marked()
			s.Tier = &TierSpec{Self: "m0"}
			for i := range n {
				s.Tier.Members = append(s.Tier.Members, MemberSpec{Name: fmt.Sprint("m", i), Mark: uint32(1000 + i)})
			}
			return s
		}, []int{1, MaxMembers}, []int{0, MaxMembers + 1}},
		{"maglev_size", func(n int) Spec { // 2^28 slots in all
			s := small()
			s.MaglevSize = 16777213
			for i := range n - 1 {
				s.Services = append(s.Services, service(fmt.Sprint("s", i), vip("192.0.2.1", "udp", fmt.Sprint(1+i))))
			}
			for i := range s.Services {
				s.Services[i].Backends = weightless(1)
			}
			return s
		}, []int{16}, []int{17}},
	} {
		for _, n := range c.good {
			if path := refusal(t, c.spec(n)); path != "" {
				t.Errorf("%s: %d is refused at %q", c.path, n, path)
			}
		}
		for _, n := range c.bad {
			if path := refusal(t, c.spec(n)); path != c.path {
				t.Errorf("%s: %d is refused at %q", c.path, n, path)
			}
		}
	}
}
