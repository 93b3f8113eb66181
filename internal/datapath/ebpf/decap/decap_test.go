package decap

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// backend is an attached program whose runs one can count.
type backend struct {
	t    *testing.T
	host *netlab.Host
	d    *Decap
	seen map[string]v1.Count
}

func newBackend(t *testing.T, hook Hook) *backend {
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "ebdecap",
		Namespaces: []netlab.Namespace{{Name: "a"}, {
			Name: "b", Sysctls: []netlab.Sysctl{{Key: "net.ipv6.conf.all.disable_ipv6", Value: "1"}}, // sends nothing
		}},
		Links: []netlab.Link{netlab.Cable("a eth0 10.2.0.2/24 2001:db8::2:2/112", "b eth0")},
	})
	b := &backend{t: t, host: lab.Namespace("a")}
	err := b.host.Do(func() (err error) {
		b.d, err = Open(Config{Interface: "eth0", Hook: hook, From: netlab.Prefixes("10.2.0.0/30", "2001:db8::2:1/128")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.d.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run gives the program one frame. It returns the outcome counted and the frame after it.
func (b *backend) run(frame []byte) (outcome string, out []byte) {
	b.t.Helper()
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Repeat: 1}
	name, pass := "weir_decap_xdp", uint32(2)
	if b.d.hook == TCX {
		name, pass = "weir_decap_tcx", ^uint32(0)
	}
	var verdict uint32
	err := b.host.Do(func() (err error) {
		verdict, err = b.d.collection.Programs[name].Run(&options)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	counts, err := b.d.Counters()
	if err != nil {
		b.t.Fatal(err)
	}
	for name, c := range counts {
		if c.Packets != b.seen[name].Packets {
			outcome += name
		}
	}
	b.seen = counts
	dropped := map[string]bool{"refused": true, "malformed": true, "congested": true, "failed": true}[outcome]
	if dropped == (verdict == pass) {
		b.t.Errorf("%s: the program returned %d", outcome, int32(verdict))
	}
	return outcome, options.DataOut
}

var (
	from4, from6 = netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("2001:db8::2:1")
	to4, to6     = netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("2001:db8::2:2")
	inner4       = (&packet.Build{Src: netip.MustParseAddrPort("192.0.2.7:4000"), Dst: netip.MustParseAddrPort("10.0.0.1:80"), Proto: flow.ProtoUDP, Payload: []byte("hello")}).Append(nil)
	inner6       = (&packet.Build{Src: netip.MustParseAddrPort("[2001:db8:9::7]:4000"), Dst: netip.MustParseAddrPort("[2001:db8::1]:80"), Proto: flow.ProtoUDP, Payload: []byte("hello")}).Append(nil)
)

// frame puts link headers with so many tags before an IP packet.
func frame(tags int, ip []byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 5}
	for range tags {
		b = append(b, 0x81, 0, 0, 7)
	}
	kind := []byte{8, 0}
	if ip[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return append(append(b, kind...), ip...)
}

// with returns a changed copy, with the IPv4 header's checksum right again.
func with(b []byte, change func(b []byte)) []byte {
	b = bytes.Clone(b)
	change(b)
	if b[0] == 0x45 {
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], packet.Checksum(b[:20], 0))
	}
	return b
}

func TestRootOpensWhatTheBalancerSends(t *testing.T) {
	for _, hook := range []Hook{TCX, XDP} {
		t.Run(hook.String(), func(t *testing.T) {
			b := newBackend(t, hook)
			for _, inner := range [][]byte{inner4, inner6} {
				for outer, made := range map[string][]byte{
					"ipip v4": packet.AppendIPIP(nil, from4, to4, inner),
					"ipip v6": packet.AppendIPIP(nil, from6, to6, inner),
					"gue v4":  packet.AppendGUE(nil, from4, to4, 50000, inner),
					"gue v6":  packet.AppendGUE(nil, from6, to6, 50000, inner),
				} {
					for tags := range 3 {
						if hook == TCX && tags > 0 {
							continue // the kernel takes tags off before this hook
						}
						outcome, out := b.run(frame(tags, made))
						if outcome != outer[:len(outer)-3] || !bytes.Equal(out, frame(tags, inner)) {
							t.Errorf("%s, %d tags: %s\n%x, want\n%x", outer, tags, outcome, out, frame(tags, inner))
						}
					}
				}
			}
		})
	}
}

func TestRootRefusesAndPasses(t *testing.T) {
	ipip4, ipip6 := packet.AppendIPIP(nil, from4, to4, inner4), packet.AppendIPIP(nil, from6, to6, inner6)
	gue := packet.AppendGUE(nil, from4, to4, 50000, inner4)
	stranger, elsewhere := netip.MustParseAddr("10.2.0.4"), netip.MustParseAddr("10.2.0.3")
	cases := []struct {
		name, want string
		ip         []byte
	}{
		{"a stranger's source", "refused", packet.AppendIPIP(nil, stranger, to4, inner4)},
		{"a stranger's source, GUE", "refused", packet.AppendGUE(nil, stranger, to4, 50000, inner4)},
		{"a stranger's source, v6", "refused", packet.AppendIPIP(nil, netip.MustParseAddr("2001:db8::2:9"), to6, inner4)},
		{"another machine's address", "not_local", packet.AppendIPIP(nil, from4, elsewhere, inner4)},
		{"no tunnel", "not_tunnel", inner4},
		{"no tunnel, v6", "not_tunnel", inner6},
		{"UDP to another port", "not_tunnel", with(gue, func(b []byte) { b[23]++ })},
		{"a wrong checksum", "not_tunnel", func() []byte { b := bytes.Clone(ipip4); b[10]++; return b }()},
		{"options", "not_tunnel", with(ipip4, func(b []byte) { b[0] = 0x46 })},
		{"first fragment", "outer_fragment", with(ipip4, func(b []byte) { b[6] = 0x20 })},
		{"later fragment", "outer_fragment", with(ipip4, func(b []byte) { b[6], b[7] = 0, 1 })},
		{"fragment of GUE", "not_tunnel", with(gue, func(b []byte) { b[6] = 0x20 })},
		{"ends within the inner header", "malformed", with(ipip4[:39], func(b []byte) { b[3] = 39 })},
		{"inner header longer than its packet", "malformed", with(ipip4, func(b []byte) { b[20] = 0x4f; b[23] = 40 })},
		{"inner length beyond the outer", "malformed", with(ipip4, func(b []byte) { b[23]++ })},
		{"inner length beyond the outer, v6", "malformed", with(ipip6, func(b []byte) { b[45]++ })},
		{"inner header too short", "malformed", with(ipip4, func(b []byte) { b[20] = 0x44 })},
		{"inner version 5", "malformed", with(ipip4, func(b []byte) { b[20] = 0x55 })},
		{"protocol and version differ", "malformed", with(ipip4, func(b []byte) { b[9] = 41 })},
		{"GUE control message", "malformed", with(gue, func(b []byte) { b[28] = 0x20 })},
		{"GUE, UDP length beyond", "malformed", with(gue, func(b []byte) { b[25]++ })},
		{"congested, inner cannot say so", "congested", with(ipip4, func(b []byte) { b[1] |= 3 })},
		{"congested, inner cannot say so, v6", "congested", with(ipip6, func(b []byte) { b[1] |= 0x30 })},
	}
	for _, hook := range []Hook{TCX, XDP} {
		t.Run(hook.String(), func(t *testing.T) {
			b := newBackend(t, hook)
			for _, c := range cases {
				in := frame(0, c.ip)
				if outcome, out := b.run(in); outcome != c.want || !bytes.Equal(out, in) {
					t.Errorf("%s: %s, want %s; changed: %v", c.name, outcome, c.want, !bytes.Equal(out, in))
				}
			}
			if outcome, _ := b.run(append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 5, 8, 6}, make([]byte, 46)...)); outcome != "not_tunnel" {
				t.Errorf("ARP: %s", outcome)
			}
		})
	}
}

// TestRootCarriesCongestion: a mark on the way shows in the inner header (RFC 6040).
func TestRootCarriesCongestion(t *testing.T) {
	for _, hook := range []Hook{TCX, XDP} {
		b := newBackend(t, hook)
		for ecn := byte(1); ecn <= 3; ecn++ {
			v4 := with(inner4, func(b []byte) { b[1] |= ecn })
			_, out := b.run(frame(0, with(packet.AppendIPIP(nil, from4, to4, v4), func(b []byte) { b[1] |= 3 })))
			if want := with(inner4, func(b []byte) { b[1] |= 3 }); !bytes.Equal(out, frame(0, want)) {
				t.Errorf("%s, ECN %d:\n%x, want\n%x", hook, ecn, out, frame(0, want))
			}
			v6 := with(inner6, func(b []byte) { b[1] |= ecn << 4 })
			_, out = b.run(frame(0, with(packet.AppendIPIP(nil, from6, to6, v6), func(b []byte) { b[1] |= 0x30 })))
			if want := with(inner6, func(b []byte) { b[1] |= 0x30 }); !bytes.Equal(out, frame(0, want)) {
				t.Errorf("%s, ECN %d:\n%x, want\n%x", hook, ecn, out, frame(0, want))
			}
		}
	}
}

func TestOpenNeedsSources(t *testing.T) {
	if _, err := Open(Config{Interface: "lo"}); err == nil {
		t.Error("opened for anyone")
	}
}
