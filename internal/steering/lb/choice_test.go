package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// What of a packet chooses the backend: a change of these fields changes the hash, and no other change does.
func TestHashedFields(t *testing.T) {
	base := flow.NewKey(netip.MustParseAddrPort("10.1.2.3:4000"), netip.MustParseAddrPort("192.0.2.1:5000"), SCTP)
	changes := []struct {
		field  string
		change func(*flow.Key)
	}{
		{"src", func(k *flow.Key) { k.Src[15]++ }},
		{"dst", func(k *flow.Key) { k.Dst[15]++ }},
		{"sport", func(k *flow.Key) { k.SrcPort++ }},
		{"dport", func(k *flow.Key) { k.DstPort++ }},
		{"key", nil}, // the snapshot's
	}
	for _, c := range []struct {
		hash     Hash
		affinity Affinity
		sctp     SCTPHash
		proto    uint8
		want     string
	}{
		{SipHash, ByFlow, SCTPFlow, SCTP, "src dst sport dport key"},
		{SipHash, ByCID, SCTPFlow, UDP, "src dst sport dport key"},
		{SipHash, ByFlow, SCTPPorts, SCTP, "sport dport key"},
		{SipHash, ByFlow, SCTPPorts, UDP, "src dst sport dport key"},
		{SipHash, BySource, SCTPFlow, SCTP, "src key"},
		{NFQLB, ByFlow, SCTPFlow, SCTP, "src dst sport dport"},
		{NFQLB, ByFlow, SCTPPorts, SCTP, "sport dport"},
		{NFQLB, ByFlow, SCTPPorts, TCP, "src dst sport dport"},
	} {
		service := &Service{Affinity: c.affinity, SCTPHash: c.sctp}
		hash := func(key byte, k flow.Key) uint64 {
			k.Proto = c.proto
			return (&Snapshot{Hash: c.hash, HashKey: flow.HashKey{key}}).FlowHash(service, k)
		}
		var counted []string
		for _, change := range changes {
			k, key := base, byte(1)
			if change.change == nil {
				key = 2
			} else {
				change.change(&k)
			}
			if hash(key, k) != hash(1, base) {
				counted = append(counted, change.field)
			}
		}
		if got := strings.Join(counted, " "); got != c.want {
			t.Errorf("%+v: the hash is over %s", c, got)
		}
	}
}

// The balancers of a tier agree on the one that gets the fragments between two addresses, whichever of them is asked; shares
// follow the weights, and each hash has its own choice.
func TestMembersAgree(t *testing.T) {
	for _, hash := range []Hash{SipHash, NFQLB} {
		compiled := map[string]*Snapshot{}
		for _, self := range []string{"a", "b", "c"} {
			s := marked()
			s.Hash = hash
			s.Tier = &TierSpec{Self: self, Members: []MemberSpec{{Name: "c", Mark: 203}, {Name: "b", Mark: 202, Weight: ptr(0)}, {Name: "a", Mark: 201}}}
			compiled[self] = compile(t, s, nil)
		}
		counts := map[string]int{}
		src, dst := [16]byte{10: 255, 11: 255, 12: 10}, [16]byte{10: 255, 11: 255, 12: 192}
		for i := range 4000 {
			src[14], src[15], dst[15] = byte(i>>8), byte(i), byte(i>>4)
			owner := ""
			for self, s := range compiled {
				m := s.Member(src, dst)
				name := self
				if m != nil {
					if name = m.Name; name == self || m != s.Tier.Members[m.Index] {
						t.Fatalf("%s hands fragments to %+v", self, m)
					}
				}
				if owner == "" {
					owner = name
				}
				if owner != name {
					t.Fatalf("hash %s: fragments of %x go to %s, and %s says %s", hash, src, owner, self, name)
				}
			}
			counts[owner]++
		}
		if counts["b"] != 0 || counts["a"] < 1500 || counts["c"] < 1500 {
			t.Errorf("hash %s: shares %v", hash, counts)
		}
	}
	// The choice depends on the key of the tier; nfqlb has none.
	for hash, want := range map[Hash]bool{SipHash: true, NFQLB: false} {
		moved := false
		for i := range byte(100) {
			one := &Snapshot{Hash: hash, HashKey: flow.HashKey{1}, Tier: &Tier{Members: []*Member{{Name: "a"}, {Name: "b"}}, Maglev: []int32{0, 1}}}
			two := *one
			two.HashKey = flow.HashKey{2}
			moved = moved || one.Member([16]byte{i}, [16]byte{7}) != two.Member([16]byte{i}, [16]byte{7})
		}
		if moved != want {
			t.Errorf("hash %s goes by the key: %t", hash, moved)
		}
	}
	if m := compile(t, small(), nil).Member([16]byte{}, [16]byte{1}); m != nil {
		t.Errorf("without a tier fragments go to %v", m)
	}
	s := marked()
	s.Tier.Members[0].Weight, s.Tier.Members[1].Weight = ptr(0), ptr(0)
	if m := compile(t, s, nil).Member([16]byte{}, [16]byte{1}); m != nil {
		t.Errorf("no member has weight, and fragments go to %v", m)
	}
}

// A member's next hops, whichever key they are written under; and what does not fit.
func TestMemberAddresses(t *testing.T) {
	parse := func(text string) (a netip.Addr) {
		if text != "-" {
			a = netip.MustParseAddr(text)
		}
		return a
	}
	for _, c := range []struct{ address, address2, four, six, refused string }{
		{"-", "-", "invalid IP", "invalid IP", ""},
		{"10.0.0.1", "-", "10.0.0.1", "invalid IP", ""},
		{"fd00::1", "-", "invalid IP", "fd00::1", ""},
		{"::ffff:10.0.0.1", "fd00::1", "10.0.0.1", "fd00::1", ""},
		{"fd00::1", "10.0.0.1", "10.0.0.1", "fd00::1", ""},
		{"-", "10.0.0.1", "", "", "tier.members[1].address"},
		{"10.0.0.2", "10.0.0.1", "", "", "tier.members[1].address2"},
		{"fd00::1", "fd00::2", "", "", "tier.members[1].address2"},
		{"224.0.0.1", "-", "", "", "tier.members[1].address"},
		{"10.0.0.1", "ff02::1", "", "", "tier.members[1].address2"},
		{"0.0.0.0", "-", "", "", "tier.members[1].address"},
		{"fe80::1%eth0", "-", "", "", "tier.members[1].address"},
	} {
		s := marked()
		s.Tier.Members[1].Address, s.Tier.Members[1].Address2 = parse(c.address), parse(c.address2)
		if path := refusal(t, s); path != c.refused || path != "" {
			if path != c.refused {
				t.Errorf("%s and %s: refused at %q", c.address, c.address2, path)
			}
			continue
		}
		m := compile(t, s, nil).Tier.Members[1]
		if m.Address4.String() != c.four || m.Address6.String() != c.six {
			t.Errorf("%s and %s: %v and %v", c.address, c.address2, m.Address4, m.Address6)
		}
	}
}

// Backends' own flows leave with the first VIP of their family that is one address and port.
func TestOutboundEndpoints(t *testing.T) {
	s := small()
	s.Services[0].Outbound = true
	s.Services[0].VIPs = []VIPSpec{
		vip("192.0.2.5", "udp", "5684"), vip("192.0.2.1", "udp", "1-9"), vip("192.0.2.2", "tcp", "5"), vip("192.0.2.0/24", "udp", "7"), vip("2001:db8::1", "udp", "53"),
	}
	s.Services[0].Backends = []BackendSpec{
		{Name: "a", Address: netip.MustParseAddr("10.0.0.1"), Address2: netip.MustParseAddr("fd00::1"), Port: ptr(99)},
		{Name: "b", Address: netip.MustParseAddr("fd00::2"), Address2: netip.MustParseAddr("10.0.0.2")},
	}
	snapshot := compile(t, s, nil)
	want := map[string]string{
		"10.0.0.1:99": "a 192.0.2.5:5684", "[fd00::1]:99": "a [2001:db8::1]:53", "10.0.0.2:5684": "b 192.0.2.5:5684", "[fd00::2]:53": "b [2001:db8::1]:53",
	}
	if !snapshot.Services[0].Outbound {
		t.Error("outbound is off")
	}
	write := func(o Outbound) string {
		if o.Backend == nil {
			return ""
		}
		return o.Backend.Name + " " + o.VIP.String()
	}
	got := map[string]string{}
	for e, o := range snapshot.Outbounds {
		got[e.String()] = write(o)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("endpoints %v\nwant %v", got, want)
	}
	for e, o := range want {
		at := netip.MustParseAddrPort(e)
		if got := write(snapshot.Outbound(flow.Address(at.Addr()), at.Port())); got != o {
			t.Errorf("%s leaves as %q, want %q", e, got, o)
		}
		if o := snapshot.Outbound(flow.Address(at.Addr()), at.Port()+1); o.Backend != nil {
			t.Errorf("another port of %s leaves as %v", e, o)
		}
	}
	seen := 0
	for range snapshot.Outbounds {
		seen++
		break
	}
	if seen != 1 {
		t.Error("the list does not end when yield returns false")
	}
	for what, c := range map[string]struct {
		refused string
		change  func(s *ServiceSpec)
	}{
		"no single UDP VIP of a family": {"services[0].outbound", func(s *ServiceSpec) { s.VIPs[4].Port = PortRange{53, 54} }},
		"no UDP VIP":                    {"services[0].outbound", func(s *ServiceSpec) { s.VIPs = s.VIPs[2:3] }},
		"two services, one endpoint":    {"services[1].outbound", nil},
		"other port":                    {"", nil},
	} {
		s := s
		s.Services = slices.Clone(s.Services)
		s.Services[0].VIPs = slices.Clone(s.Services[0].VIPs)
		if c.change != nil {
			c.change(&s.Services[0])
		} else {
			other := service("t", vip("192.0.2.77", "udp", "5684"))
			other.Outbound, other.Backends = true, []BackendSpec{{Name: "x", Address: netip.MustParseAddr("10.0.0.2")}}
			if c.refused == "" {
				other.Backends[0].Port = ptr(5685)
			}
			s.Services = append(s.Services, other)
		}
		if path := refusal(t, s); path != c.refused {
			t.Errorf("%s: refused at %q", what, path)
		}
	}
}

// Where backends are probed: the probe's port, then the backend's, then the one port of all VIPs.
func TestProbeTargets(t *testing.T) {
	for _, c := range []struct {
		probe int
		port  *int
		ports string // of the VIPs
		want  string // "": refused
	}{
		{7, ptr(8), "9", "10.0.0.1:7"},
		{0, ptr(8), "9", "10.0.0.1:8"},
		{0, nil, "9", "10.0.0.1:9"},
		{0, nil, "9 9", "10.0.0.1:9"},
		{0, nil, "9 10", ""},
		{0, nil, "9-10", ""},
		{0, nil, "9 9-10", ""},
		{7, nil, "9 10", "10.0.0.1:7"},
	} {
		s := small()
		s.Services[0].VIPs = nil
		for i, port := range strings.Fields(c.ports) {
			s.Services[0].VIPs = append(s.Services[0].VIPs, vip(fmt.Sprint("192.0.2.", i), "udp", port))
		}
		s.Services[0].Health = &HealthSpec{Type: ProbeTCP, Port: c.probe}
		s.Services[0].Backends = []BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.0.0.1"), Port: c.port}}
		if path := refusal(t, s); (path == "") != (c.want != "") {
			t.Errorf("%+v: refused at %q", c, path)
		} else if path == "" {
			service := compile(t, s, nil).Services[0]
			if got := service.ProbeTarget(service.Backends[0]).String(); got != c.want {
				t.Errorf("%+v: probed at %s", c, got)
			}
		}
	}
	throughTunnel(t)
	s := marked()
	s.Services[0].Health = &HealthSpec{Type: ProbeTCP, Port: 7}
	if path := refusal(t, s); path != "services[0].health" {
		t.Errorf("backends without address: refused at %q", path)
	}
	s.Services[0].Backends = []BackendSpec{{Name: "a", Mark: 1, Address: netip.MustParseAddr("fd00::1")}}
	service := compile(t, s, nil).Services[0]
	if got := service.ProbeTarget(service.Backends[0]).String(); got != "[fd00::1]:7" {
		t.Errorf("IPv6 backend: probed at %s", got)
	}
	s.Services[0].Health.Port = 0
	if path := refusal(t, s); path != "services[0].health.port" {
		t.Errorf("no port at all: refused at %q", path)
	}
}

// The counts of services and of none add up to the total; a service that counted later than the total takes no more than it.
func TestCountsAddUp(t *testing.T) {
	one, two := ReasonCounts{ReasonCID: 3, ReasonEcho: 1}, ReasonCounts{ReasonCID: 4}
	total := one
	total.Add(&two)
	total.Add(&ReasonCounts{ReasonNotIP: 5, ReasonCID: 2})
	two[ReasonEcho] = 9 // since
	all := WithoutService(total, map[string]ReasonCounts{"one": one, "two": two})
	if len(all) != 3 || all["one"] != one || all["two"] != two || all[""] != (ReasonCounts{ReasonNotIP: 5, ReasonCID: 2}) {
		t.Errorf("%v", all)
	}
	if got := one.Key(int(ReasonEcho)); got != "echo" {
		t.Errorf("the key of echo is %q", got)
	}
}

// With a tunnel the probe goes to a VIP of the backend's family, at the port that clients use; the backend is the tunnel's other end.
func throughTunnel(t *testing.T) {
	t.Helper()
	s := small()
	s.Services[0].VIPs = []VIPSpec{vip("2001:db8::9", "udp", "53"), vip("192.0.2.9", "udp", "53")}
	s.Services[0].Health = &HealthSpec{Type: ProbeUDP, Tunnel: true}
	s.Services[0].Backends = []BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.0.0.1")}, {Name: "b", Address: netip.MustParseAddr("fd00::1")}}
	if path := refusal(t, s); path != "services[0].health.tunnel" {
		t.Errorf("mode nat: refused at %q", path)
	}
	s.Services[0].Mode = ptr(L3DSR)
	service := compile(t, s, nil).Services[0]
	for i, want := range []string{"192.0.2.9:53 10.0.0.1", "[2001:db8::9]:53 fd00::1"} {
		b := service.Backends[i]
		if got := fmt.Sprint(service.ProbeTarget(b), " ", service.ProbeTunnel(b)); got != want {
			t.Errorf("%s: probed at %s, want %s", b.Name, got, want)
		}
	}
}
