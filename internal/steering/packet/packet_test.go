package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
)

func one(t testing.TB, line string) []byte {
	t.Helper()
	d, err := ParseText(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if len(d.Packets) != 1 {
		t.Fatalf("%s: %d packets", line, len(d.Packets))
	}
	return d.Packets[0]
}

func parsed(t testing.TB, b []byte) *Packet {
	t.Helper()
	var p Packet
	if err := Parse(b, &p); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return &p
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ line, key, kind string }{
		{"udp 10.0.0.1:5000 > 192.0.2.1:5684 0102", "udp 10.0.0.1:5000 > 192.0.2.1:5684", "udp"},
		{"udp 10.0.0.1:5000 > 192.0.2.1:5684 opt=8", "udp 10.0.0.1:5000 > 192.0.2.1:5684", "udp"},
		{"tcp [2001:db8::1]:5 > [2001:db8::2]:443 flags=syn", "tcp [2001:db8::1]:5 > [2001:db8::2]:443", "tcp"},
		{"sctp 10.0.0.1:1 > 10.0.0.2:2", "sctp 10.0.0.1:1 > 10.0.0.2:2", "sctp"},
		{"udp [::1]:5 > [::2]:6 ext=hop:0", "udp [::1]:5 > [::2]:6", "udp"},
		{"udp [::1]:5 > [::2]:6 ext=hop:1,dest:0,routing:2,auth:1", "udp [::1]:5 > [::2]:6", "udp"},
		{"udp [::1]:5 > [::2]:6 payload=3000 frag=1400 piece=1", "udp [::1]:5 > [::2]:6", "udp"},
		{"udp [::1]:5 > [::2]:6 payload=3000 frag=1400 piece=1 ext=dest:3", "udp [::1]:5 > [::2]:6", "udp"},
		{"udp [::1]:5 > [::2]:6 payload=3000 frag=1400 piece=2", "udp [::1]:0 > [::2]:0", "udp"},
		{"ping 10.0.0.1 > 10.0.0.2 ident=77", "icmp 10.0.0.1:77 > 10.0.0.2:0", "echo"},
		{"pong ::1 > ::2 ident=78", "icmpv6 [::1]:78 > [::2]:0", "echo"},
		{"proto47 10.0.0.1 > 10.0.0.2", "47 10.0.0.1:0 > 10.0.0.2:0", "other"},
		{"toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:5000", "udp 10.0.0.1:5000 > 192.0.2.1:5684", "icmp_error"},
		{"toobig 10.9.9.9 1300 quote=28 about tcp 192.0.2.1:5684 > 10.0.0.1:5000", "tcp 10.0.0.1:5000 > 192.0.2.1:5684", "icmp_error"},
		{"unreachable 2001:db8::9 about udp [2001:db8::1]:1 > [2001:db8::2]:2 ext=dest:0", "udp [2001:db8::2]:2 > [2001:db8::1]:1", "icmp_error"},
		{"unreachable 10.9.9.9 about ping 10.0.0.2 > 10.0.0.1 ident=5", "icmp 10.0.0.1:5 > 10.0.0.2:0", "icmp_error"},
	} {
		p := parsed(t, one(t, c.line))
		if got := p.Key.String(); got != c.key || p.Kind.String() != c.kind {
			t.Errorf("%s: %s %s, want %s %s", c.line, p.Kind, got, c.kind, c.key)
		}
		if !p.Verify() {
			t.Errorf("%s: built with a wrong checksum", c.line)
		}
	}
}

func TestParseFragments(t *testing.T) {
	for line, proto := range map[string]uint8{
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=9 frag=1400":                                        flow.ProtoUDP,
		"udp [2001:db8::1]:5000 > [2001:db8::2]:5684 payload=3000 id=9 frag=1400 ext=hop:0":                     0,
		"udp [2001:db8::1]:5000 > [2001:db8::2]:5684 payload=3000 id=9 frag=1400 inner=dest:0":                  0,
		"udp [2001:db8::1]:5000 > [2001:db8::2]:5684 payload=3000 id=9 frag=1400 ext=hop:0 inner=auth:1,dest:2": 0,
	} {
		d, err := ParseText(line)
		if err != nil || len(d.Packets) != 3 {
			t.Fatal(err, len(d.Packets))
		}
		for i, b := range d.Packets {
			p := parsed(t, b)
			if p.First != (i == 0) || p.Later != (i > 0) || p.Fragment.ID != 9 || p.Fragment.Proto != proto {
				t.Errorf("%s piece %d: %+v", line, i, p)
			}
			if p.Fragment != parsed(t, d.Packets[0]).Fragment {
				t.Errorf("%s piece %d: another key", line, i)
			}
		}
	}
}

func TestAtomicFragmentIsNone(t *testing.T) {
	b := one(t, "udp [::1]:5 > [::2]:6 payload=30 frag=24 piece=1 id=5")
	b[43] &^= 1 // no more fragments: RFC 6946
	binary.BigEndian.PutUint16(b[48+4:], 24)
	if p := parsed(t, b); p.First || p.Later || p.Key.DstPort != 6 {
		t.Errorf("%+v", p)
	}
}

func TestParseRefuses(t *testing.T) {
	udp := one(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 01020304")
	udp6 := one(t, "udp [::1]:5000 > [::2]:5684 01020304")
	tcp := one(t, "tcp 10.0.0.1:5000 > 192.0.2.1:5684")
	edit := func(b []byte, at int, v byte) []byte {
		c := bytes.Clone(b)
		c[at] = v
		return c
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":              {nil, ErrTruncated},
		"version 5":          {edit(udp, 0, 0x55), ErrVersion},
		"short header":       {udp[:19], ErrTruncated},
		"ihl 4":              {edit(udp, 0, 0x44), ErrHeader},
		"ihl beyond total":   {edit(udp, 0, 0x4f), ErrHeader},
		"total 0":            {edit(edit(udp, 2, 0), 3, 0), ErrHeader},
		"no room for UDP":    {edit(udp, 3, 24), ErrTruncated},
		"UDP length 7":       {edit(udp, 25, 7), ErrHeader},
		"UDP length beyond":  {edit(udp, 25, 200), ErrHeader},
		"TCP offset 4":       {edit(tcp, 32, 0x40), ErrHeader},
		"TCP offset beyond":  {edit(tcp, 32, 0xf0), ErrHeader},
		"IPv6 short":         {udp6[:39], ErrTruncated},
		"IPv6 ext truncated": {edit(udp6[:44], 6, 0), ErrTruncated},
		"nine extensions":    {one(t, "udp [::1]:5 > [::2]:6 ext=dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0"), ErrExtensions},
		"tiny first fragment": {func() []byte {
			b := one(t, "tcp 10.0.0.1:5000 > 192.0.2.1:5684 payload=40 frag=8 piece=1")
			return b
		}(), ErrTruncated},
		"quote without ports": {one(t, "toobig 10.9.9.9 1300 quote=22 about udp 1.1.1.1:1 > 2.2.2.2:2"), ErrQuote},
		"quote cut in header": {one(t, "toobig 10.9.9.9 1300 quote=12 about udp 1.1.1.1:1 > 2.2.2.2:2"), ErrQuote},
	} {
		var p Packet
		if err := Parse(c.b, &p); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestCaptureMayBeCut(t *testing.T) {
	b := one(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=900")
	p := parsed(t, b[:128])
	if !p.Truncated || len(p.PayloadBytes()) != 100 || p.Key.DstPort != 5684 {
		t.Errorf("%+v", p)
	}
}

func TestFrames(t *testing.T) {
	for _, c := range []struct {
		line  string
		vlans int
		err   error
	}{
		{"udp 10.0.0.1:1 > 10.0.0.2:2 vlan=10", 1, nil},
		{"udp [::1]:1 > [::2]:2 vlan=10,4095", 2, nil},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 vlan=1,2,3", 0, ErrNotIP},
	} {
		var p Packet
		err := ParseFrame(one(t, c.line), &p)
		if err != c.err || err == nil && (p.VLANCount != c.vlans || p.VLANs[0] != 10 || p.Key.DstPort != 2 || p.L3() != 14+4*c.vlans) {
			t.Errorf("%s: %v %+v", c.line, err, p)
		}
	}
	var p Packet
	arp := append(make([]byte, 12), 8, 6, 0, 1)
	if err := ParseFrame(arp, &p); err != ErrNotIP {
		t.Errorf("ARP: %v", err)
	}
	if err := ParseFrame(arp[:13], &p); err != ErrTruncated {
		t.Errorf("short: %v", err)
	}
}

// The expected packet is built from scratch, so its checksums are full sums.
func TestRewrite(t *testing.T) {
	for _, c := range []struct {
		in, to, out string
		destination bool
	}{
		{"udp 10.0.0.1:5 > 192.0.2.1:6 010203", "10.1.0.1:7", "udp 10.0.0.1:5 > 10.1.0.1:7 010203", true},
		{"udp 10.0.0.1:5 > 192.0.2.1:6 010203 csum=0", "10.1.0.1:7", "udp 10.0.0.1:5 > 10.1.0.1:7 010203 csum=0", true},
		{"udp 10.0.0.1:5 > 192.0.2.1:6", "10.1.0.1:0", "udp 10.0.0.1:5 > 10.1.0.1:6", true},
		{"tcp 10.1.0.1:5 > 10.0.0.1:6 flags=ack payload=100 opt=4", "192.0.2.1:9", "tcp 192.0.2.1:9 > 10.0.0.1:6 payload=100 opt=4", false},
		{"tcp [::1]:5 > [::2]:6 ext=dest:1", "[2001:db8::7]:99", "tcp [::1]:5 > [2001:db8::7]:99 ext=dest:1", true},
		{"udp [::1]:5 > [::2]:6 0909", "[2001:db8::7]:99", "udp [::1]:5 > [2001:db8::7]:99 0909", true},
		{"sctp 10.0.0.1:5 > 10.0.0.2:6 00000000", "10.1.0.1:6", "sctp 10.0.0.1:5 > 10.1.0.1:6 00000000", true},
		{"sctp 10.0.0.1:5 > 10.0.0.2:6 00000000", "10.1.0.1:66", "sctp 10.0.0.1:5 > 10.1.0.1:66 00000000", true},
		{"ping 10.0.0.1 > 10.0.0.2 ident=4", "10.1.0.1:66", "ping 10.0.0.1 > 10.1.0.1 ident=4", true},
		{"ping ::1 > ::2 ident=4", "[::9]:0", "ping ::1 > ::9 ident=4", true},
		{"proto47 10.0.0.1 > 10.0.0.2 010203", "10.1.0.1:66", "proto47 10.0.0.1 > 10.1.0.1 010203", true},
		// The first fragment carries the checksum of the whole datagram.
		{"udp 10.0.0.1:5 > 192.0.2.1:6 payload=3000 frag=1400 piece=1", "10.1.0.1:7", "udp 10.0.0.1:5 > 10.1.0.1:7 payload=3000 frag=1400 piece=1", true},
		{"udp 10.0.0.1:5 > 192.0.2.1:6 payload=3000 frag=1400 piece=2", "10.1.0.1:7", "udp 10.0.0.1:5 > 10.1.0.1:7 payload=3000 frag=1400 piece=2", true},
		{"udp [::1]:5 > [::2]:6 payload=3000 frag=1400 piece=3", "[::9]:7", "udp [::1]:5 > [::9]:7 payload=3000 frag=1400 piece=3", true},
		// To a backend: the error's destination and the quoted source are the VIP.
		{"toobig 10.9.9.9 1300 about udp 192.0.2.1:6 > 10.0.0.1:5 0102", "10.1.0.1:7", "toobig 10.9.9.9 1300 about udp 10.1.0.1:7 > 10.0.0.1:5 0102", true},
		{"toobig 10.9.9.9 1300 about udp 192.0.2.1:6 > 10.0.0.1:5 0102 csum=0", "10.1.0.1:7", "toobig 10.9.9.9 1300 about udp 10.1.0.1:7 > 10.0.0.1:5 0102 csum=0", true},
		{"toobig 10.9.9.9 1300 about tcp 192.0.2.1:6 > 10.0.0.1:5", "10.1.0.1:7", "toobig 10.9.9.9 1300 about tcp 10.1.0.1:7 > 10.0.0.1:5", true},
		{"toobig 10.9.9.9 1300 quote=28 about tcp 192.0.2.1:6 > 10.0.0.1:5", "10.1.0.1:7", "toobig 10.9.9.9 1300 quote=28 about tcp 10.1.0.1:7 > 10.0.0.1:5", true},
		{"toobig ::99 1300 about udp [::1]:6 > [::2]:5 0102", "[::7]:7", "toobig ::99 1300 about udp [::7]:7 > [::2]:5 0102", true},
		{"toobig ::99 1300 about ping ::1 > ::2 ident=9", "[::7]:0", "toobig ::99 1300 about ping ::7 > ::2 ident=9", true},
		// To a client: only the quoted destination and an outer source that is the backend change.
		{"unreachable 10.1.0.1 about udp 10.0.0.1:5 > 10.1.0.1:7 01", "192.0.2.1:6", "unreachable 192.0.2.1 about udp 10.0.0.1:5 > 192.0.2.1:6 01", false},
		{"unreachable 10.8.8.8 about udp 10.0.0.1:5 > 10.1.0.1:7 01", "192.0.2.1:6", "unreachable 10.8.8.8 about udp 10.0.0.1:5 > 192.0.2.1:6 01", false},
		{"unreachable ::88 about tcp [::1]:5 > [::7]:7", "[::2]:6", "unreachable ::88 about tcp [::1]:5 > [::2]:6", false},
		{"toobig 10.9.9.9 1300 about udp 192.0.2.1:6 > 10.0.0.1:5 payload=3000 frag=1400 piece=2", "10.1.0.1:7", "toobig 10.9.9.9 1300 about udp 10.1.0.1:7 > 10.0.0.1:5 payload=3000 frag=1400 piece=2", true},
	} {
		p, want := parsed(t, one(t, c.in)), one(t, c.out)
		to := netip.MustParseAddrPort(c.to)
		set := p.SetSource
		if c.destination {
			set = p.SetDestination
		}
		if !set(to) {
			t.Fatalf("%s: refused", c.in)
		}
		if strings.Contains(c.in, "toobig") || strings.Contains(c.in, "unreach") {
			// The builder quotes what the rewrite made: compare sums by Verify,
			// and the bytes with the quoted checksums, which rewriting keeps right.
			if !p.Verify() {
				t.Errorf("%s: ICMP checksum wrong", c.in)
			}
		}
		if !bytes.Equal(p.Data, want) {
			t.Errorf("%s:\n got %x\nwant %x", c.in, p.Data, want)
		}
		if k := parsed(t, want).Key; p.Key != k {
			t.Errorf("%s: key %s, want %s", c.in, p.Key, k)
		}
		if f := parsed(t, want).Fragment; !strings.Contains(c.in, "about") && p.Fragment != f {
			t.Errorf("%s: fragment key %v, want %v", c.in, p.Fragment, f)
		}
	}
	if parsed(t, one(t, "udp 10.0.0.1:5 > 192.0.2.1:6")).SetDestination(netip.MustParseAddrPort("[::1]:5")) {
		t.Error("IPv4 was rewritten to IPv6")
	}
}

// A UDP checksum that becomes zero is sent as ffff.
func TestRewriteToZeroChecksum(t *testing.T) {
	for port := range 65536 {
		p := parsed(t, one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 01"))
		p.SetDestination(netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), uint16(port)))
		if c := binary.BigEndian.Uint16(p.Data[26:]); c == 0 {
			t.Fatalf("port %d: checksum zero means none", port)
		} else if c == 0xffff {
			if !p.Verify() {
				t.Fatal("ffff is not the checksum")
			}
			return
		}
	}
	t.Fatal("no port gives ffff")
}

// Random packets, rewritten, are the packets that a builder with full sums makes.
func TestRewriteAgainstBuilder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	random := func(is6 bool) netip.AddrPort {
		a := netip.AddrFrom4([4]byte{10, byte(r.Int()), byte(r.Int()), byte(r.Int())})
		if is6 {
			a = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(r.Int()), 15: byte(r.Int())})
		}
		return netip.AddrPortFrom(a, uint16(1+r.IntN(65535)))
	}
	for i := range 20_000 {
		is6 := r.IntN(2) == 1
		b := Build{
			Src: random(is6), Dst: random(is6), TTL: uint8(2 + r.IntN(250)), ID: uint32(r.IntN(65536)), ICMPRest: r.Uint32(),
			Proto:   []uint8{flow.ProtoTCP, flow.ProtoUDP, flow.ProtoUDP, flow.ProtoSCTP}[r.IntN(4)],
			Payload: make([]byte, r.IntN(60)), Flags: ACK, NoChecksum: !is6 && r.IntN(8) == 0,
		}
		for j := range b.Payload {
			b.Payload[j] = byte(r.Int())
		}
		dst, src := random(is6), random(is6)
		p := parsed(t, b.Append(nil))
		p.SetDestination(dst)
		p.SetSource(src)
		p.DecrementTTL()
		b.Src, b.Dst = src, dst
		b.TTL--
		want := b.Append(nil)
		if !bytes.Equal(p.Data, want) {
			t.Fatalf("packet %d:\n got %x\nwant %x", i, p.Data, want)
		}
		if !parsed(t, want).Verify() {
			t.Fatalf("packet %d: built wrong", i)
		}
	}
}

func TestTTL(t *testing.T) {
	for _, line := range []string{"udp 10.0.0.1:5 > 192.0.2.1:6 ttl=", "udp [::1]:5 > [::2]:6 ttl="} {
		p := parsed(t, one(t, line+"2"))
		if !p.DecrementTTL() || !bytes.Equal(p.Data, one(t, line+"1")) {
			t.Errorf("%s: %x", line, p.Data)
		}
		if p.DecrementTTL() {
			t.Error("TTL 1 travelled on")
		}
	}
}

func TestTunnels(t *testing.T) {
	a4, b4 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.1.0.1")
	a6, b6 := netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("2001:db8::1")
	for _, line := range []string{"udp 10.0.0.1:5 > 192.0.2.1:6 0102 class=184", "tcp [::1]:5 > [::2]:6 class=3"} {
		inner := one(t, line)
		for i, out := range [][]byte{
			AppendIPIP(nil, a4, b4, inner), AppendIPIP(nil, a6, b6, inner),
			AppendGUE(nil, a4, b4, 50000, inner), AppendGUE(nil, a6, b6, 50000, inner),
		} {
			got, err := Decapsulate(out)
			if err != nil || !bytes.Equal(got, inner) {
				t.Errorf("%s form %d: %x %v", line, i, got, err)
			}
			if trafficClass(out) != trafficClass(inner) {
				t.Errorf("%s form %d: DSCP not copied", line, i)
			}
		}
	}
	if AppendIPIP(nil, a4, b6, one(t, "udp 10.0.0.1:5 > 192.0.2.1:6")) != nil {
		t.Error("families mixed")
	}
	if _, err := Decapsulate(one(t, "udp 10.0.0.1:5 > 192.0.2.1:6080")); err != ErrNotTunnel {
		t.Error(err)
	}
	// Golden: RFC 2003 header, by hand.
	got := AppendIPIP(nil, a4, b4, one(t, "udp 10.0.0.1:5 > 192.0.2.1:6"))
	want := []byte{0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 4, 0x26, 0xc0, 10, 0, 0, 9, 10, 1, 0, 1}
	if !bytes.Equal(got[:20], want) {
		t.Errorf("%x, want %x", got[:20], want)
	}
}

func TestNoAllocations(t *testing.T) {
	plain, quote := one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 0102"), one(t, "toobig ::99 1300 about udp [::1]:6 > [::2]:5 0102")
	sctp := one(t, "sctp 10.0.0.1:5 > 10.0.0.2:6 00000000")
	to4, to6 := netip.MustParseAddrPort("10.1.0.1:7"), netip.MustParseAddrPort("[::7]:7")
	buf := make([]byte, 0, 2048)
	var p Packet
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range [][]byte{plain, sctp} {
			_ = Parse(b, &p)
			p.SetDestination(to4)
			p.SetSource(to4)
			_ = AppendIPIP(buf, to4.Addr(), to4.Addr(), p.Data)
		}
		_ = Parse(quote, &p)
		p.SetDestination(to6)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParse(b *testing.B) {
	data := one(b, "udp 10.0.0.1:5 > 192.0.2.1:6 payload=100")
	var p Packet
	b.ReportAllocs()
	for b.Loop() {
		_ = Parse(data, &p)
	}
}
