package routes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func endpoints(t testing.TB, texts ...string) []Endpoint {
	t.Helper()
	var list []Endpoint
	for _, text := range texts {
		e, err := ParseEndpoint(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func compile(t testing.TB, spec *Spec, resolved Resolved, own ...string) *Table {
	t.Helper()
	var addresses []netip.Addr
	for _, a := range own {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	table, err := Compile(spec, resolved, addresses)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestAdmit(t *testing.T) {
	spec := &Spec{
		Clusters: []Cluster{
			{ID: 7, Name: "media", Endpoints: endpoints(t, "10.0.0.0/8", "10.1.0.0/16:10000-20000", "2001:db8::/32", "[2001:db9::1]:5000")},
			{ID: 8, Name: "one", Endpoints: endpoints(t, "10.1.2.3:5000", "10.0.0.0/8:53")},
			{ID: 9, Name: "tcp", TCP: true, Endpoints: endpoints(t, "10.9.0.0/16")},
			{ID: 10, Name: "names", Endpoints: endpoints(t, "media.example:5000", "other.example")},
		},
		Listeners: []Listener{{ID: 1, Routes: []string{"media", "one", "tcp"}}, {ID: 2, Routes: []string{"one", "media"}}, {ID: 3, Routes: []string{"names"}}, {ID: 4}},
	}
	resolved := Resolved{"media.example": {netip.MustParseAddr("192.0.2.7")}, "other.example": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.100")}}
	table := compile(t, spec, resolved, "192.0.2.100")
	for _, c := range []struct {
		listener uint16
		tcp      bool
		peer     string
		cluster  uint16 // 0: refused
	}{
		{1, false, "10.2.0.1:1", 7},
		{1, false, "10.1.2.4:15000", 7},
		{1, false, "10.1.2.4:9", 7}, // the /8 has any port
		{1, false, "10.1.2.3:5000", 8},
		{1, false, "10.1.2.3:5001", 7},
		{1, false, "10.3.0.1:53", 7}, // equal prefixes: the first route
		{2, false, "10.3.0.1:53", 8},
		{2, false, "10.3.0.1:54", 7},
		{1, false, "11.0.0.1:1", 0},
		{1, true, "10.9.1.1:80", 9},
		{2, true, "10.9.1.1:80", 0},
		{1, true, "10.8.1.1:80", 0},
		{1, false, "[2001:db8::7]:1", 7},
		{1, false, "[2001:db9::1]:5000", 7},
		{1, false, "[2001:db9::1]:5001", 0},
		{1, false, "[2001:db9::1]:0", 7},
		{1, false, "[::ffff:10.2.0.1]:1", 7},
		{3, false, "192.0.2.7:5000", 10},
		{3, false, "192.0.2.7:0", 10},
		{3, false, "192.0.2.7:5001", 0},
		{3, false, "127.0.0.1:1", 0},   // a name opens no loopback
		{3, false, "192.0.2.100:1", 0}, // and no own address
		{4, false, "10.2.0.1:1", 0},
		{5, false, "10.2.0.1:1", 0},
	} {
		cluster, ok := table.Admit(c.listener, c.tcp, netip.MustParseAddrPort(c.peer))
		if ok != (c.cluster != 0) || cluster != c.cluster {
			t.Errorf("listener %d, tcp %v, %s: cluster %d, %v; want %d", c.listener, c.tcp, c.peer, cluster, ok, c.cluster)
		}
	}
	if _, ok := table.Admit(1, false, netip.AddrPort{}); ok {
		t.Error("no address is admitted")
	}
	if _, ok := new(Table).Admit(1, false, netip.MustParseAddrPort("10.0.0.1:1")); ok {
		t.Error("an empty table admits")
	}
}

func TestDefaultRefusals(t *testing.T) {
	inside := []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.0.1", "169.254.169.254", "224.0.0.1", "239.1.2.3", "255.255.255.255",
		"::", "::1", "fe80::1", "ff02::1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "::ffff:127.0.0.1", "192.0.2.9", "2001:db8::9",
	}
	open := []string{"0.0.0.0/0", "::/0", "126.0.0.0/7", "128.0.0.0/1", "192.0.2.0/24", "2001:db8::/64", "fe00::/7", "::/1"}
	spec := &Spec{Clusters: []Cluster{{ID: 1, Name: "all", Endpoints: endpoints(t, open...)}}, Listeners: []Listener{{ID: 1, Routes: []string{"all"}}}}
	table := compile(t, spec, nil, "192.0.2.9", "2001:db8::9", "127.0.0.1", "::1", "fe80::1%eth0")
	for _, a := range inside {
		if cluster, ok := table.Admit(1, false, netip.AddrPortFrom(netip.MustParseAddr(a), 5000)); ok {
			t.Errorf("%s is admitted by cluster %d", a, cluster)
		}
	}
	for _, a := range []string{"192.0.2.8", "1.2.3.4", "2001:db8::8", "2620::1", "223.255.255.255", "240.0.0.1", "126.0.0.1", "128.0.0.1", "169.253.0.1", "169.255.0.1"} {
		if _, ok := table.Admit(1, false, netip.AddrPortFrom(netip.MustParseAddr(a), 5000)); !ok {
			t.Errorf("%s is refused", a)
		}
	}
	for opener, peer := range map[string]string{
		"127.0.0.0/8": "127.0.0.1:1", "127.0.0.1:5000": "127.0.0.1:5000", "127.0.0.0/16": "127.0.3.1:1", "169.254.1.0/24": "169.254.1.1:9",
		"192.0.2.9": "192.0.2.9:1", "192.0.2.9:5000-6000": "192.0.2.9:5500", "[2001:db8::9]:77": "[2001:db8::9]:77", "::1": "[::1]:5",
		"ff02::/16": "[ff02::1]:5", "fe80::/10": "[fe80::1]:1",
	} {
		spec.Clusters[0].Endpoints = endpoints(t, append([]string{opener}, open...)...)
		table := compile(t, spec, nil, "192.0.2.9", "2001:db8::9", "127.0.0.1")
		if _, ok := table.Admit(1, false, netip.MustParseAddrPort(peer)); !ok {
			t.Errorf("%s does not open %s", opener, peer)
		}
	}
	// An opener with ports opens no other port.
	spec.Clusters[0].Endpoints = endpoints(t, "127.0.0.1:5000", "0.0.0.0/0")
	if _, ok := compile(t, spec, nil).Admit(1, false, netip.MustParseAddrPort("127.0.0.1:5001")); ok {
		t.Error("127.0.0.1:5000 opens port 5001")
	}
	// A public address of ours is one of the host's.
	spec.Clusters[0].Endpoints, spec.Own = endpoints(t, "0.0.0.0/0"), []netip.Addr{netip.MustParseAddr("198.51.100.7")}
	if _, ok := compile(t, spec, nil).Admit(1, false, netip.MustParseAddrPort("198.51.100.7:3478")); ok {
		t.Error("the public address of a listener is a peer")
	}
}

// What is refused is refused in every IPv6 address that a translator, a tunnel or an old stack may turn into it. Addresses of
// the same form that stand for others are peers like all.
func TestRefusalsInDisguise(t *testing.T) {
	spec := &Spec{Clusters: []Cluster{{ID: 1, Name: "all", Endpoints: endpoints(t, "0.0.0.0/0", "::/0", "::/1", "2000::/3")}}, Listeners: []Listener{{ID: 1, Routes: []string{"all"}}}}
	table := compile(t, spec, nil, "192.0.2.9")
	refused := []string{"127.0.0.1", "127.8.9.10", "169.254.169.254", "169.254.170.2", "0.0.0.1", "224.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.9"}
	admitted := []string{"10.0.0.7", "198.51.100.7", "100.100.100.201", "192.0.2.8", "8.8.8.8"}
	forms := map[string]func(v4 [4]byte) [16]byte{
		"mapped":     func(v [4]byte) [16]byte { return [16]byte{10: 0xff, 11: 0xff, 12: v[0], 13: v[1], 14: v[2], 15: v[3]} },
		"compatible": func(v [4]byte) [16]byte { return [16]byte{12: v[0], 13: v[1], 14: v[2], 15: v[3]} },
		"translated": func(v [4]byte) [16]byte { return [16]byte{8: 0xff, 9: 0xff, 12: v[0], 13: v[1], 14: v[2], 15: v[3]} },
		"NAT64":      func(v [4]byte) [16]byte { return [16]byte{0, 0x64, 0xff, 0x9b, 12: v[0], 13: v[1], 14: v[2], 15: v[3]} },
		"local NAT64 of /96": func(v [4]byte) [16]byte {
			return [16]byte{0, 0x64, 0xff, 0x9b, 0, 1, 9, 9, 9, 9, 9, 9, v[0], v[1], v[2], v[3]}
		},
		"local NAT64 of /64": func(v [4]byte) [16]byte { return [16]byte{0, 0x64, 0xff, 0x9b, 0, 1, 9, 9, 0, v[0], v[1], v[2], v[3]} },
		"local NAT64 of /56": func(v [4]byte) [16]byte { return [16]byte{0, 0x64, 0xff, 0x9b, 0, 1, 9, v[0], 0, v[1], v[2], v[3]} },
		"local NAT64 of /48": func(v [4]byte) [16]byte { return [16]byte{0, 0x64, 0xff, 0x9b, 0, 1, v[0], v[1], 0, v[2], v[3]} },
		"6to4":               func(v [4]byte) [16]byte { return [16]byte{0x20, 0x02, v[0], v[1], v[2], v[3], 7: 1, 15: 1} },
		"Teredo server": func(v [4]byte) [16]byte {
			return [16]byte{0x20, 0x01, 0, 0, v[0], v[1], v[2], v[3], 12: 0x55, 13: 0x55}
		},
		"Teredo client": func(v [4]byte) [16]byte {
			return [16]byte{0x20, 0x01, 0, 0, 8, 8, 8, 8, 0, 0, 1, 1, ^v[0], ^v[1], ^v[2], ^v[3]}
		},
		"ISATAP": func(v [4]byte) [16]byte {
			return [16]byte{0x20, 0x01, 0x0d, 0xb8, 10: 0x5e, 11: 0xfe, 12: v[0], 13: v[1], 14: v[2], 15: v[3]}
		},
		"ISATAP, global": func(v [4]byte) [16]byte {
			return [16]byte{0x20, 0x01, 0x0d, 0xb8, 8: 2, 10: 0x5e, 11: 0xfe, 12: v[0], 13: v[1], 14: v[2], 15: v[3]}
		},
	}
	for form, write := range forms {
		for want, list := range map[bool][]string{false: refused, true: admitted} {
			for _, text := range list {
				if text == "0.0.0.1" && strings.HasPrefix(form, "local NAT64") && form != "local NAT64 of /96" {
					continue // cannot be distinguished from another form; no translator sends to it
				}
				a := netip.AddrFrom16(write(netip.MustParseAddr(text).As4()))
				if _, ok := table.Admit(1, false, netip.AddrPortFrom(a, 5000)); ok != want {
					t.Errorf("%s as %s, %v: admitted is %v", text, form, a, ok)
				}
			}
		}
	}
	for _, text := range []string{"fd00:ec2::254", "fd00:ec2::123", "fd20:ce::254"} {
		if _, ok := table.Admit(1, false, netip.AddrPortFrom(netip.MustParseAddr(text), 80)); ok {
			t.Errorf("%s is admitted", text)
		}
	}
	for opener, peer := range map[string]string{
		"2002:7f00::/24": "2002:7f00:1::1", "fd00:ec2::254": "fd00:ec2::254", "::127.0.0.0/104": "::127.0.0.1", "64:ff9b::192.0.2.9": "64:ff9b::192.0.2.9",
		"64:ff9b:1:7f00:0:100::": "64:ff9b:1:7f00:0:100::",
	} {
		spec.Clusters[0].Endpoints = endpoints(t, opener, "::/0")
		if _, ok := compile(t, spec, nil, "192.0.2.9").Admit(1, false, netip.AddrPortFrom(netip.MustParseAddr(peer), 80)); !ok {
			t.Errorf("%s does not open %s", opener, peer)
		}
	}
}

// naive says the same as Table.Admit, one endpoint after the other.
func naive(spec *Spec, resolved Resolved, own []netip.Addr, listener uint16, tcp bool, peer netip.AddrPort) (uint16, bool) {
	address := peer.Addr().Unmap()
	var routes []string
	for _, l := range spec.Listeners {
		if l.ID == listener {
			routes = l.Routes
		}
	}
	best, answer := -1, uint16(0)
	for _, route := range routes {
		for _, c := range spec.Clusters {
			if c.Name != route || c.TCP != tcp {
				continue
			}
			for _, e := range c.Endpoints {
				prefixes := []netip.Prefix{e.Prefix}
				if e.Name != "" {
					prefixes = nil
					for _, a := range resolved[e.Name] {
						prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
					}
				}
				for _, p := range prefixes {
					if p.Contains(address) && (peer.Port() == 0 || e.MinPort == 0 || peer.Port() >= e.MinPort && peer.Port() <= e.MaxPort) &&
						opens(p, e.Name != "", address, own) && p.Bits() > best {
						best, answer = p.Bits(), c.ID
					}
				}
			}
		}
	}
	return answer, best >= 0
}

func opens(p netip.Prefix, byName bool, a netip.Addr, own []netip.Addr) bool {
	for _, text := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "::/128", "::1/128", "fe80::/10", "ff00::/8"} {
		if special := netip.MustParsePrefix(text); special.Contains(a) {
			return !byName && special.Contains(p.Addr()) && p.Bits() >= special.Bits()
		}
	}
	if slices.Contains(own, a) {
		return !byName && p.IsSingleIP()
	}
	compatible := netip.MustParsePrefix("::/104") // 0.0.0.0/8 as IPv4-compatible addresses
	return !compatible.Contains(a) || !byName && compatible.Contains(p.Addr()) && p.Bits() >= compatible.Bits()
}

// Random tables and peers from a small world, so that they meet.
func TestAdmitAgreesWithANaiveMatcher(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	interesting := []string{
		"0.0.0.0", "10.0.0.0", "10.0.0.1", "10.1.2.3", "10.255.255.255", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "128.0.0.0",
		"::", "::1", "2001:db8::1", "2001:db8:ffff::", "fe80::1", "ff02::1", "8000::",
	}
	address := func() netip.Addr {
		a := netip.MustParseAddr(interesting[random.IntN(len(interesting))])
		raw := a.AsSlice()
		if random.IntN(3) == 0 {
			raw[len(raw)-1] ^= byte(1 << random.IntN(8))
		}
		a, _ = netip.AddrFromSlice(raw)
		return a
	}
	admitted := 0
	for range 300 {
		spec, resolved := &Spec{}, Resolved{}
		for i := range 6 {
			c := Cluster{ID: uint16(i + 1), Name: fmt.Sprint("c", i), TCP: random.IntN(4) == 0}
			for range random.IntN(6) {
				var e Endpoint
				if random.IntN(4) == 0 {
					e.Name = fmt.Sprint("n", random.IntN(4))
				} else {
					a := address()
					e.Prefix = netip.PrefixFrom(a, random.IntN(a.BitLen()+1)).Masked()
				}
				if random.IntN(2) == 0 {
					e.MinPort = uint16(1 + random.IntN(10))
					e.MaxPort = e.MinPort + uint16(random.IntN(10))
				}
				c.Endpoints = append(c.Endpoints, e)
			}
			spec.Clusters = append(spec.Clusters, c)
		}
		for id := range uint16(3) {
			l := Listener{ID: id}
			for _, i := range random.Perm(6)[:random.IntN(5)] {
				l.Routes = append(l.Routes, fmt.Sprint("c", i))
			}
			spec.Listeners = append(spec.Listeners, l)
		}
		for i := range 4 {
			for range random.IntN(3) {
				name := fmt.Sprint("n", i)
				resolved[name] = append(resolved[name], address())
			}
		}
		own := []netip.Addr{address(), address()}
		table, err := Compile(spec, resolved, own)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			peer, listener, tcp := netip.AddrPortFrom(address(), uint16(random.IntN(20))), uint16(random.IntN(4)), random.IntN(3) == 0
			got, ok := table.Admit(listener, tcp, peer)
			want, wantOK := naive(spec, resolved, own, listener, tcp, peer)
			if got != want || ok != wantOK {
				t.Fatalf("listener %d, tcp %v, %s: %d %v, want %d %v\n%+v\n%v\n%v", listener, tcp, peer, got, ok, want, wantOK, spec, resolved, own)
			}
			if ok {
				admitted++
			}
		}
	}
	if admitted < 1000 {
		t.Errorf("only %d of 90000 were admitted: the worlds do not meet", admitted)
	}
}

func TestCompileRefuses(t *testing.T) {
	many := make([]Endpoint, MaxEndpoints+1)
	names := make([]Endpoint, MaxNames+1)
	for i := range names {
		names[i].Name = fmt.Sprintf("n%d.example", i)
	}
	for name, spec := range map[string]*Spec{
		"a route to nowhere": {Listeners: []Listener{{ID: 1, Routes: []string{"x"}}}},
		"two of a name":      {Clusters: []Cluster{{Name: "a"}, {Name: "a"}}},
		"too many endpoints": {Clusters: []Cluster{{Name: "a", Endpoints: many}}},
		"too many names":     {Clusters: []Cluster{{Name: "a", Endpoints: names}}},
	} {
		if _, err := Compile(spec, nil, nil); err == nil {
			t.Errorf("%s compiles", name)
		}
	}
}

func largeTable(t testing.TB) *Table {
	c := Cluster{ID: 1, Name: "c"}
	for i := range 10000 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		c.Endpoints = append(c.Endpoints, Endpoint{Prefix: netip.PrefixFrom(a, 24+i%9).Masked(), MinPort: 5000, MaxPort: 6000})
	}
	c.Endpoints = append(c.Endpoints, endpoints(t, "0.0.0.0/0")...)
	return compile(t, &Spec{Clusters: []Cluster{c}, Listeners: []Listener{{ID: 3, Routes: []string{"c"}}}}, nil, "192.0.2.1")
}

func TestAdmitAllocatesNothing(t *testing.T) {
	table := largeTable(t)
	four, mapped, six := netip.MustParseAddrPort("10.3.4.5:5500"), netip.MustParseAddrPort("[::ffff:10.3.4.5]:1"), netip.MustParseAddrPort("[2001:db8::1]:1")
	if n := testing.AllocsPerRun(1000, func() {
		table.Admit(3, false, four)
		table.Admit(3, false, mapped)
		table.Admit(3, false, six)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdmit(b *testing.B) {
	small := compile(b, &Spec{Clusters: []Cluster{{ID: 1, Name: "c", Endpoints: endpoints(b, "0.0.0.0/0", "::/0")}}, Listeners: []Listener{{ID: 3, Routes: []string{"c"}}}}, nil, "192.0.2.1")
	for _, c := range []struct {
		name  string
		table *Table
	}{{"open", small}, {"10000 endpoints", largeTable(b)}} {
		b.Run(c.name, func(b *testing.B) {
			peer := netip.MustParseAddrPort("10.3.4.5:5500")
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := c.table.Admit(3, false, peer); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
