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

// matchesLinearly is what a rule means, spelt out: the index must agree.
func (r *FlowRule) matchesLinearly(k flow.Key, class Class, header []byte, promiscuous bool) bool {
	inside := func(list []netip.Prefix, a netip.Addr) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	within := func(list []PortRange, port uint16) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p PortRange) bool { return p.First <= port && port <= p.Last })
	}
	if !inside(r.Destinations, k.Destination().Addr()) || !inside(r.Sources, k.Source().Addr()) {
		return false
	}
	if class == ClassEcho && promiscuous {
		return true
	}
	if class == ClassEcho || class == ClassOther {
		return len(r.Protocols) == 0 && len(r.DestinationPorts) == 0 && len(r.SourcePorts) == 0
	}
	if len(r.Protocols) > 0 && !slices.Contains(r.Protocols, k.Proto) || !within(r.DestinationPorts, k.DstPort) || !within(r.SourcePorts, k.SrcPort) {
		return false
	}
	for _, m := range r.Match {
		if m.Protocol != k.Proto {
			continue
		}
		for i := range m.Length { // byte by byte
			shift := 8 * (m.Length - 1 - i)
			if m.Offset+i >= len(header) || header[m.Offset+i]&byte(m.Mask>>shift) != byte(m.Value>>shift) {
				return false
			}
		}
	}
	return true
}

// randomRules makes rules that overlap a lot.
func randomRules(r *rand.Rand, n int) []FlowSpec {
	prefixes := func() (out []AddressPrefix) {
		for range r.IntN(3) {
			var p netip.Prefix
			if r.IntN(2) == 0 {
				p, _ = netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(4))}).Prefix([]int{0, 8, 15, 16, 24, 30, 31, 32}[r.IntN(8)])
			} else {
				p, _ = netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(r.IntN(3)), 15: byte(r.IntN(4))}).Prefix([]int{0, 1, 7, 60, 63, 64, 65, 126, 128}[r.IntN(9)])
			}
			if !slices.Contains(out, AddressPrefix{p}) {
				out = append(out, AddressPrefix{p})
			}
		}
		return out
	}
	ports := func() (out []PortRange) {
		for range r.IntN(3) {
			first := uint16(r.IntN(8))
			last := first + uint16(r.IntN(4))
			out = append(out, [...]PortRange{{first, last}, {0, 65535}, {65530, 65535}, {0, first}}[r.IntN(4)])
		}
		return out
	}
	rules := make([]FlowSpec, n)
	for i := range rules {
		rule := &rules[i]
		rule.Name, rule.Priority = fmt.Sprint("r", i), r.IntN(5)-2
		for {
			rule.Destinations, rule.Sources = prefixes(), prefixes()
			plain := func(list []AddressPrefix) (out []netip.Prefix) {
				for _, p := range list {
					out = append(out, p.Prefix)
				}
				return out
			}
			if familiesMeet(plain(rule.Destinations), plain(rule.Sources)) {
				break
			}
		}
		rule.DestinationPorts, rule.SourcePorts = ports(), ports()
		for _, p := range []Protocol{Protocol(TCP), Protocol(UDP), Protocol(SCTP)} {
			if r.IntN(3) == 0 {
				rule.Protocols = append(rule.Protocols, p)
			}
		}
		if protocol := []uint8{TCP, UDP, SCTP}[r.IntN(3)]; r.IntN(3) == 0 && (len(rule.Protocols) == 0 || slices.Contains(rule.Protocols, Protocol(protocol))) {
			m := ByteMatch{Protocol: protocol, Offset: 4, Length: 1, Mask: uint32(r.IntN(3) + 1)}
			m.Value = uint32(r.IntN(4)) & m.Mask
			rule.Match = append(rule.Match, m)
			if r.IntN(2) == 0 {
				rule.Match = append(rule.Match, ByteMatch{Protocol: protocol, Offset: 0, Length: 2, Mask: 0x203, Value: uint32(r.IntN(4) & 3)})
			}
			if r.IntN(2) == 0 {
				rule.Match = append(rule.Match, ByteMatch{Protocol: protocol, Offset: 4, Length: 4, Mask: 0xff, Value: uint32(r.IntN(3))})
			}
		}
	}
	return rules
}

func flowService(rules []FlowSpec) ServiceSpec {
	return ServiceSpec{Name: "s", Mode: ptr(Mark), Flows: rules, Backends: []BackendSpec{{Name: "a", Mark: 101}}}
}

// The index finds what reading the rules one by one finds, for every packet.
func TestRulesAgreeWithReadingThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for round := range 60 {
		spec := Spec{MaglevSize: 251, PromiscuousPing: round%2 == 0, Services: []ServiceSpec{flowService(randomRules(r, 1+r.IntN(150)))}}
		snapshot := compile(t, spec, nil)
		if !slices.IsSortedFunc(snapshot.Rules, func(a, b *FlowRule) int { return b.Priority - a.Priority }) {
			t.Fatal("not by priority")
		}
		for range 2000 {
			k := flow.Key{SrcPort: uint16(r.IntN(12)), DstPort: uint16(r.IntN(12)), Proto: []uint8{TCP, UDP, SCTP, 47, flow.ProtoICMP}[r.IntN(5)]}
			if r.IntN(8) == 0 {
				k.DstPort = 65535
			}
			address := func() [16]byte {
				if r.IntN(2) == 0 {
					return flow.Address(netip.AddrFrom4([4]byte{byte(9 + r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(4))}))
				}
				return [16]byte{0: byte(0xfc + r.IntN(3)), 7: byte(r.IntN(3)), 15: byte(r.IntN(4))}
			}
			k.Src, k.Dst = address(), address()
			class := ClassOf(k.Proto)
			if k.Proto == flow.ProtoICMP {
				class = ClassEcho
			}
			header := make([]byte, r.IntN(9))
			for i := range header {
				header[i] = byte(r.IntN(3))
			}
			var want *FlowRule
			if i := slices.IndexFunc(snapshot.Rules, func(rule *FlowRule) bool {
				return rule.matchesLinearly(k, class, header, spec.PromiscuousPing)
			}); i >= 0 {
				want = snapshot.Rules[i]
				hits++
			}
			if got := snapshot.Match(k, class, header); got != want {
				t.Fatalf("round %d: %v class %d header %x: got %v, want %v", round, k, class, header, got, want)
			}
		}
	}
	if hits < 10000 {
		t.Errorf("only %d packets matched: the test looks at nothing", hits)
	}
}

// Rules of equal priority win in the order of the file, over services too.
func TestEqualPrioritiesGoByTheFile(t *testing.T) {
	rule := func(name string, priority int) FlowSpec { return FlowSpec{Name: name, Priority: priority} }
	b, a := flowService([]FlowSpec{rule("first", 0), rule("second", 0), rule("late", -1)}), flowService([]FlowSpec{rule("third", 0), rule("high", 7)})
	b.Name, a.Name = "b", "a"
	snapshot := compile(t, Spec{MaglevSize: 251, Services: []ServiceSpec{b, a}}, nil)
	var names []string
	for i, r := range snapshot.Rules {
		if r.Index != i {
			t.Errorf("%s has index %d, not %d", r.Name, r.Index, i)
		}
		names = append(names, r.Service.Name+"/"+r.Name)
	}
	if got := strings.Join(names, " "); got != "a/high b/first b/second a/third b/late" {
		t.Errorf("order %s", got)
	}
}

func TestRulesLeaveTheOtherFamilyAlone(t *testing.T) {
	match := func(snapshot *Snapshot, src, dst string) bool {
		return snapshot.Match(flow.NewKey(netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst), TCP), ClassTCP, nil) != nil
	}
	for _, c := range []struct {
		prefix string
		v4, v6 bool
	}{{"0.0.0.0/0", true, false}, {"::/0", false, true}, {"::/1", false, false}, {"10.0.0.0/8", true, false}, {"::ffff:0:0:0/80", false, false}} {
		for _, source := range []bool{false, true} {
			spec := FlowSpec{Name: "f"}
			if list := []AddressPrefix{prefix(c.prefix)}; source {
				spec.Sources = list
			} else {
				spec.Destinations = list
			}
			s := compile(t, Spec{MaglevSize: 251, Services: []ServiceSpec{flowService([]FlowSpec{spec})}}, nil)
			if got := match(s, "10.0.0.1:1", "10.0.0.2:2"); got != c.v4 {
				t.Errorf("%s, source %v: IPv4 matches: %v", c.prefix, source, got)
			}
			if got := match(s, "[fd00::1]:1", "[fd00::2]:2"); got != c.v6 {
				t.Errorf("%s, source %v: IPv6 matches: %v", c.prefix, source, got)
			}
			if source {
				continue
			}
			if got := s.HasAddress(flow.Address(netip.MustParseAddr("10.0.0.2"))); got != c.v4 {
				t.Errorf("%s covers IPv4: %v", c.prefix, got)
			}
		}
	}
}

func TestByteMatchText(t *testing.T) {
	for text, want := range map[string]ByteMatch{
		"tcp[13:1] & 0x02 = 0x02":    {TCP, 13, 1, 2, 2},
		"sctp[0:2]=0x1234":           {SCTP, 0, 2, 0xffff, 0x1234},
		" udp[4:4] & 0xf = 1 ":       {UDP, 4, 4, 15, 1},
		"tcp[16:4]&0xffffffff=65536": {TCP, 16, 4, 1<<32 - 1, 65536},
	} {
		var m, back ByteMatch
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
		if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m {
			t.Errorf("%q: written as %q, read as %+v, %v", text, m, back, err)
		}
	}
	for _, text := range []string{
		"", "tcp", "tcp[13:1]", "tcp[13] = 1", "tcp[20:1] = 1", "tcp[17:4] = 1", "udp[8:1] = 1", "sctp[12:1] = 1", "icmp[0:1] = 1",
		"tcp[-1:1] = 1", "tcp[0:3] = 1", "tcp[0:1] = 256", "tcp[0:1] & 0 = 0", "tcp[0:1] & 2 = 1", "tcp[0:1] & x = 1", "tcp[0:1] = ", "tcp[99999999999999999999:1] = 1", "[0:1] = 1",
	} {
		var m ByteMatch
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, m)
		}
	}
}

func TestEncapsulated(t *testing.T) {
	s := compile(t, Spec{MaglevSize: 251, Services: []ServiceSpec{flowService([]FlowSpec{
		{Name: "all", Priority: 9},
		{Name: "encap", Protocols: []Protocol{Protocol(SCTP)}, Destinations: []AddressPrefix{prefix("192.0.2.1"), prefix("2001:db8::1")}, Sources: []AddressPrefix{prefix("10.0.0.0/8"), prefix("fd00::/8")}, UDPEncap: 9899},
	})}}, nil)
	for _, c := range []struct {
		proto    uint8
		src, dst string
		want     bool
	}{
		{UDP, "10.0.0.1:1", "192.0.2.1:9899", true},
		{UDP, "[fd00::1]:1", "[2001:db8::1]:9899", true},
		{UDP, "10.0.0.1:1", "192.0.2.1:9898", false},
		{UDP, "10.0.0.1:1", "192.0.2.2:9899", false},
		{UDP, "11.0.0.1:1", "192.0.2.1:9899", false},
		{SCTP, "10.0.0.1:1", "192.0.2.1:9899", false},
	} {
		if got := s.Encapsulated(flow.NewKey(netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst), c.proto)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestRulesDoNotExplode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rules := make([]FlowSpec, MaxFlowRules)
	for i := range rules {
		rules[i].Name = fmt.Sprint("r", i)
		for range 16 {
			first := uint16(r.IntN(65000) + 1)
			rules[i].DestinationPorts = append(rules[i].DestinationPorts, PortRange{first, first + 500})
			rules[i].SourcePorts = append(rules[i].SourcePorts, PortRange{first + 7, first + 400})
		}
	}
	_, err := Compile(Spec{MaglevSize: 251, Services: []ServiceSpec{flowService(rules)}}, nil, AllCaps())
	if err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("error %v", err)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := compile(t, benchRules(1000), nil)
	k := flow.NewKey(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("192.0.2.1:9999"), TCP)
	header := make([]byte, 20)
	if n := testing.AllocsPerRun(100, func() { s.Match(k, ClassTCP, header); s.Encapsulated(k) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// benchRules is n rules that differ in each field; the last one takes everything.
func benchRules(n int) Spec {
	rules := make([]FlowSpec, n)
	for i := range rules {
		rules[i] = FlowSpec{
			Name: fmt.Sprint("r", i), Priority: n - i, Protocols: []Protocol{Protocol(TCP)},
			Destinations:     []AddressPrefix{{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 32)}},
			Sources:          []AddressPrefix{{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}},
			DestinationPorts: []PortRange{{uint16(i + 1), uint16(i + 100)}},
			Match:            []ByteMatch{{TCP, 13, 1, 2, 2}},
		}
	}
	rules[n-1] = FlowSpec{Name: "last", Priority: -1}
	return Spec{MaglevSize: 251, Services: []ServiceSpec{flowService(rules)}}
}

// The worst case: the rule of least priority is the one that matches. The index must not care how many there are.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := compile(b, benchRules(n), nil)
			header := make([]byte, 20)
			header[13] = 2
			r := rand.New(rand.NewPCG(5, 6)) // as traffic is: no branch can be foreseen
			keys := make([]flow.Key, 1<<13)
			for i := range keys {
				src := netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.Uint32()), byte(r.Uint32())})
				dst := netip.AddrFrom4([4]byte{192, 0, byte(r.IntN(4)), byte(r.Uint32())})
				keys[i] = flow.NewKey(netip.AddrPortFrom(src, uint16(r.Uint32())), netip.AddrPortFrom(dst, uint16(20000+r.IntN(20000))), TCP)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if r := s.Match(keys[i%len(keys)], ClassTCP, header); r == nil || r.Index != n-1 {
					b.Fatal("another rule")
				}
			}
		})
	}
}

func TestWarningsOfRules(t *testing.T) {
	web := func(name string, priority int) FlowSpec {
		return FlowSpec{Name: name, Priority: priority, Protocols: []Protocol{Protocol(TCP)}, Destinations: []AddressPrefix{prefix("192.0.2.1")}}
	}
	other := web("other", 0)
	other.Destinations = append(other.Destinations, prefix("192.0.2.2"))
	spec := Spec{HashKey: &HexKey{}, Services: []ServiceSpec{flowService([]FlowSpec{web("a", 0), other, web("b", 0)}), flowService([]FlowSpec{web("c", 1)})}}
	got := strings.Join(spec.Warnings(), "\n")
	want := "services[0].flows[2] matches only what services[0].flows[0] matches already: it never wins\n" +
		"services[1].flows[0] matches everything that services[0].flows[0] matches: the latter never wins"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	spec = Spec{Hash: NFQLB, MaglevSize: 10000, Services: []ServiceSpec{flowService([]FlowSpec{web("a", 0)})}}
	if got := spec.Warnings(); len(got) != 2 || !strings.Contains(got[1], "9973") {
		t.Errorf("%q", got)
	}
}
