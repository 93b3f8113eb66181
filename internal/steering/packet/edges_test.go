package packet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Where the transport header and the payload of a packet are, and how much of it a capture needs at least. Cut anywhere behind
// that, a packet is the same but for Truncated; cut before it, it is refused; with padding behind it, it is the same.
func TestPacketsCutAnywhere(t *testing.T) {
	for _, c := range []struct {
		line            string
		l4, payload     int
		needs           int
		flags           uint8
		kind            Kind
		first, later    bool
		typ, code       uint8
		quote, quoteL4  int
		fragment, proto uint8 // Proto of the fragment's name, of the packet
	}{
		{line: "udp 10.0.0.1:5000 > 192.0.2.1:5684 01020304", l4: 20, payload: 28, needs: 28, kind: KindUDP, proto: 17},
		{line: "udp 10.0.0.1:5000 > 192.0.2.1:5684 01020304 opt=8", l4: 28, payload: 36, needs: 36, kind: KindUDP, proto: 17},
		{line: "udp [2001:db8::1]:5 > [2001:db8::2]:7", l4: 40, payload: 48, needs: 48, kind: KindUDP, proto: 17},
		{line: "tcp 10.0.0.1:5000 > 192.0.2.1:80 0102 flags=syn,ack", l4: 20, payload: 40, needs: 40, flags: SYN | ACK, kind: KindTCP, proto: 6},
		{line: "tcp [2001:db8::1]:5 > [2001:db8::2]:7 0102 flags=fin ext=hop:1,dest:0", l4: 64, payload: 84, needs: 84, flags: FIN, kind: KindTCP, proto: 6},
		{line: "sctp 10.0.0.1:5000 > 192.0.2.1:80 0102", l4: 20, payload: 32, needs: 32, kind: KindSCTP, proto: 132},
		{line: "sctp [2001:db8::1]:5 > [2001:db8::2]:7 01 ext=auth:1", l4: 52, payload: 64, needs: 64, kind: KindSCTP, proto: 132},
		{line: "proto47 10.0.0.1 > 192.0.2.1 0102", l4: 20, payload: 20, needs: 20, kind: KindOther, proto: 47},
		{line: "ping 10.0.0.1 > 192.0.2.1 ident=7 0102", l4: 20, payload: 28, needs: 28, kind: KindEcho, typ: 8, proto: 1},
		{line: "pong 2001:db8::1 > 2001:db8::2 ident=7 0102", l4: 40, payload: 48, needs: 48, kind: KindEcho, typ: 129, proto: 58},
		{line: "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100 id=7 frag=40 piece=1", l4: 20, payload: 28, needs: 28, kind: KindUDP, first: true, fragment: 17, proto: 17},
		{line: "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100 id=7 frag=40 piece=2", l4: 20, payload: 20, needs: 20, kind: KindUDP, later: true, fragment: 17, proto: 17},
		{line: "udp [2001:db8::1]:5 > [2001:db8::2]:7 payload=100 id=7 frag=40 piece=1", l4: 48, payload: 56, needs: 56, kind: KindUDP, first: true, proto: 17},
		{line: "udp [2001:db8::1]:5 > [2001:db8::2]:7 payload=100 id=7 frag=40 piece=2", l4: 48, payload: 48, needs: 48, kind: KindUDP, later: true, proto: 17},
		{line: "unreachable 10.9.9.9 about udp 192.0.2.1:5684 > 10.0.0.1:5000 01", l4: 20, payload: 28, needs: 52, kind: KindICMPError, typ: 3, code: 1, quote: 28, quoteL4: 48, proto: 1},
		{line: "toobig 10.9.9.9 1300 about ping 192.0.2.1 > 10.0.0.1 ident=9", l4: 20, payload: 28, needs: 56, kind: KindICMPError, typ: 3, code: 4, quote: 28, quoteL4: 48, proto: 1},
		{line: "toobig 2001:db8::9 1300 about tcp [2001:db8::1]:5 > [2001:db8::2]:7", l4: 40, payload: 48, needs: 92, kind: KindICMPError, typ: 2, quote: 48, quoteL4: 88, proto: 58},
		{line: "unreachable 10.9.9.9 about proto47 192.0.2.1 > 10.0.0.1 0102", l4: 20, payload: 28, needs: 48, kind: KindICMPError, typ: 3, code: 1, quote: 28, quoteL4: 48, proto: 1},
	} {
		raw := one(t, c.line)
		whole := *parsed(t, bytes.Clone(raw))
		if whole.L4 != c.l4 || whole.Payload != c.payload || whole.TCPFlags != c.flags || whole.Kind != c.kind || whole.First != c.first || whole.Later != c.later || whole.Proto != c.proto ||
			whole.ICMPType != c.typ || whole.ICMPCode != c.code || whole.Quote != c.quote || whole.QuoteL4 != c.quoteL4 || whole.Fragment.Proto != c.fragment || (whole.Fragment.ID != 0) != (c.first || c.later) ||
			whole.Truncated || whole.Length != len(raw) || !bytes.Equal(whole.Data, raw) || whole.TTL != 64 {
			t.Errorf("%s: %+v", c.line, whole)
		}
		if payload := whole.PayloadBytes(); c.later != (payload == nil) || !c.later && !bytes.Equal(payload, raw[c.payload:]) {
			t.Errorf("%s: payload %x", c.line, payload)
		}
		for n := range len(raw) + 9 {
			b := append(bytes.Clone(raw), 1, 2, 3, 4, 5, 6, 7, 8, 9)[:n]
			var p Packet
			err := Parse(b, &p)
			if short := n - c.l4; whole.ICMPType|whole.ICMPCode != 0 && short >= 4 && short < 8 { // type and code are all that is used of a message so short
				if err != nil || p.Kind != KindICMPOther || p.ICMPType != c.typ || p.ICMPCode != c.code || p.Key.SrcPort != 0 {
					t.Errorf("%s, %d of %d bytes: %v, %+v", c.line, n, len(raw), err, p)
				}
				continue
			}
			if (err == nil) != (n >= c.needs) {
				t.Errorf("%s, %d of %d bytes: %v", c.line, n, len(raw), err)
				continue
			}
			if err != nil {
				if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrQuote) {
					t.Errorf("%s, %d of %d bytes: %v", c.line, n, len(raw), err)
				}
				continue
			}
			if p.Truncated != (n < len(raw)) || p.Key != whole.Key || p.Kind != whole.Kind || p.Length != len(raw) || len(p.Data) != min(n, len(raw)) || p.Payload != whole.Payload {
				t.Errorf("%s, %d of %d bytes: %+v", c.line, n, len(raw), p)
			}
			if got := p.PayloadBytes(); !c.later && len(got) != max(len(p.Data)-c.payload, 0) {
				t.Errorf("%s, %d of %d bytes: %d of payload", c.line, n, len(raw), len(got))
			}
		}
	}
}

// Headers that contradict each other.
func TestImpossibleHeaders(t *testing.T) {
	for what, c := range map[string]struct {
		line string
		at   int
		put  string
		want error
	}{
		"header of 16 bytes":           {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 0, "44", ErrHeader},
		"total below the header":       {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 2, "0013", ErrHeader},
		"total is the header":          {"proto47 10.0.0.1 > 10.0.0.2 0102", 2, "0014", nil},
		"version 5":                    {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 0, "55", ErrVersion},
		"version 15":                   {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 0, "f5", ErrVersion},
		"TCP header of 16 bytes":       {"tcp 10.0.0.1:5 > 10.0.0.2:7 0102", 32, "40", ErrHeader},
		"TCP header beyond the packet": {"tcp 10.0.0.1:5 > 10.0.0.2:7 0102", 32, "60", ErrHeader},
		"TCP header up to the end":     {"tcp 10.0.0.1:5 > 10.0.0.2:7 01020304", 32, "60", nil},
		"UDP length below its header":  {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 24, "0007", ErrHeader},
		"UDP length is its header":     {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 24, "0008", nil},
		"UDP length beyond the packet": {"udp 10.0.0.1:5 > 10.0.0.2:7 0102", 24, "000b", ErrHeader},
		"UDP length of a fragment":     {"udp 10.0.0.1:5 > 10.0.0.2:7 payload=100 frag=40 piece=1", 24, "1000", nil},
		"mapped source in IPv6":        {"udp [2001:db8::1]:5 > [2001:db8::2]:7", 8, "00000000000000000000ffff0a000001", ErrMapped},
		"mapped destination in IPv6":   {"udp [2001:db8::1]:5 > [2001:db8::2]:7", 24, "00000000000000000000ffff0a000001", ErrMapped},
		"quote of the other family":    {"unreachable 10.9.9.9 about udp 10.0.0.1:5 > 10.0.0.2:7 payload=60", 28, "6000000000203a40", ErrQuote},
		"quote of no IP":               {"unreachable 10.9.9.9 about udp 10.0.0.1:5 > 10.0.0.2:7 payload=60", 28, "00", ErrQuote},
		"extension beyond the packet":  {"udp [2001:db8::1]:5 > [2001:db8::2]:7 ext=dest:0", 41, "02", ErrTruncated},
		"nine extensions":              {"udp [::1]:5 > [::2]:6 ext=dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0", 0, "", ErrExtensions},
		"eight extensions":             {"udp [::1]:5 > [::2]:6 ext=dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0,dest:0", 0, "", nil},
		"ICMPv6 over IPv4 is no ICMP":  {"ping 10.0.0.1 > 10.0.0.2 ident=7", 9, "3a", nil},
	} {
		b := one(t, c.line)
		put, err := hex.DecodeString(c.put)
		if err != nil {
			t.Fatal(err)
		}
		copy(b[c.at:], put)
		var p Packet
		if err := Parse(b, &p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// Which ICMP messages are echoes, which are errors, in each family.
func TestICMPTypes(t *testing.T) {
	for version, quoted := range map[uint8]string{4: "udp 10.0.0.1:5 > 10.0.0.2:7 0102", 6: "udp [2001:db8::1]:5 > [2001:db8::2]:7 0102"} {
		for typ := range 256 {
			inner := one(t, quoted)
			build := Build{Src: netip.MustParseAddrPort("10.9.9.9:0"), Dst: netip.MustParseAddrPort("10.0.0.1:0"), Proto: flow.ProtoICMP, ICMPType: uint8(typ), ICMPRest: 7 << 16, Payload: inner}
			if version == 6 {
				build.Src, build.Dst, build.Proto = netip.MustParseAddrPort("[2001:db8::9]:0"), netip.MustParseAddrPort("[2001:db8::1]:0"), flow.ProtoICMPv6
			}
			want := KindICMPOther
			switch {
			case version == 4 && (typ == 0 || typ == 8) || version == 6 && (typ == 128 || typ == 129):
				want = KindEcho
			case version == 4 && (typ == 3 || typ == 4 || typ == 5 || typ == 11 || typ == 12) || version == 6 && typ >= 1 && typ <= 4:
				want = KindICMPError
			}
			p := parsed(t, build.Append(nil))
			if p.Kind != want || int(p.ICMPType) != typ || (p.Key.SrcPort == 7 && p.Key.DstPort == 5) != (want == KindICMPError) || want == KindEcho && p.Key.SrcPort != 7 {
				t.Errorf("version %d, type %d: %s, %s", version, typ, p.Kind, p.Key)
			}
			other := build.Append(nil) // the same message under the other family's protocol number is not ICMP
			if at := map[uint8]int{4: 9, 6: 6}[version]; true {
				other[at] = flow.ProtoICMP + flow.ProtoICMPv6 - other[at]
			}
			if p := parsed(t, other); p.Kind != KindOther {
				t.Errorf("version %d, type %d with the other protocol number: %s", version, typ, p.Kind)
			}
		}
	}
}

// Blocks of pcapng, good ones and impossible ones, in both byte orders.
func TestCaptureBlocks(t *testing.T) {
	ip := one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 01020304")
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		words := func(n ...uint32) (b []byte) {
			for _, w := range n {
				b = order.AppendUint32(b, w)
			}
			return b
		}
		option := func(code, length uint16, value ...byte) []byte {
			b := order.AppendUint16(order.AppendUint16(nil, code), length)
			b = append(b, value...)
			return append(b, make([]byte, (4-len(b)%4)%4)...)
		}
		section := block(order, 0x0a0d0d0a, words(0x1a2b3c4d, 1, ^uint32(0), ^uint32(0)))
		face := func(options ...byte) []byte {
			return block(order, 1, append(append(order.AppendUint16(nil, linkRaw), make([]byte, 6)...), options...))
		}
		packet := func(on uint32, ticks uint64, length int) []byte {
			return block(order, 6, append(words(on, uint32(ticks>>32), uint32(ticks), uint32(length), uint32(length)), ip...))
		}
		whole := len(ip)
		file := func(blocks ...[]byte) []byte { return bytes.Join(append([][]byte{section}, blocks...), nil) }
		const second = 1_000_000
		for what, c := range map[string]struct {
			file []byte
			at   time.Duration // of the one packet; -1: refused
		}{
			"microseconds":                 {file(face(), packet(0, 3*second+7, whole)), 3*time.Second + 7*time.Microsecond},
			"after other options":          {file(face(append(option(2, 3, 'e', 't', 'h'), option(9, 1, 3)...)...), packet(0, 3007, whole)), 3007 * time.Millisecond},
			"powers of two":                {file(face(option(9, 1, 0x80|10)...), packet(0, 3*1024+512, whole)), 3500 * time.Millisecond},
			"seconds":                      {file(face(option(9, 1, 0)...), packet(0, 7, whole)), 7 * time.Second},
			"end of options first":         {file(face(append(option(0, 0), option(9, 1, 3)...)...), packet(0, 7*second, whole)), 7 * time.Second},
			"an option beyond the block":   {file(face(option(9, 40, 3)...), packet(0, 7*second, whole)), 7 * time.Second},
			"an option without value":      {file(face(option(9, 0)...), packet(0, 7*second, whole)), 7 * time.Second},
			"second interface":             {file(face(), face(option(9, 1, 0)...), packet(1, 7, whole)), 7 * time.Second},
			"simple packet":                {file(face(), block(order, 3, append(words(uint32(whole)), ip...))), 0},
			"simple packet, padded":        {file(face(), block(order, 3, append(words(uint32(whole)), append(bytes.Clone(ip), 1, 2, 3, 4)...))), 0},
			"simple packet, cut":           {file(face(), block(order, 3, append(words(1500), ip...))), 0},
			"block that no one knows":      {file(face(), block(order, 77, words(1, 2)), packet(0, 7*second, whole)), 7 * time.Second},
			"interfaces of a new section":  {file(face(option(9, 1, 0)...), section, face(), packet(0, 7*second, whole)), 7 * time.Second},
			"empty block":                  {file(face(), block(order, 77, nil), packet(0, 7*second, whole)), 7 * time.Second},
			"no interface":                 {file(packet(0, 7, whole)), -1},
			"interface of another section": {file(face(), section, packet(0, 7, whole)), -1},
			"interface that is not there":  {file(face(), packet(1, 7, whole)), -1},
			"packet beyond its block":      {file(face(), packet(0, 7, whole+4)), -1},
			"packet block too short":       {file(face(), block(order, 6, words(0, 0, 0, 0))), -1},
			"simple packet, no interface":  {file(block(order, 3, append(words(uint32(whole)), ip...))), -1},
			"simple packet, too short":     {file(face(), block(order, 3, nil)), -1},
			"interface too short":          {file(block(order, 1, words(1))), -1},
			"interface of eight bytes":     {file(block(order, 1, append(order.AppendUint16(nil, linkRaw), make([]byte, 6)...)), packet(0, 7*second, whole)), 7 * time.Second},
			"another magic":                {block(order, 0x0a0d0d0a, words(0x1a2b3c4e, 1, 0, 0)), -1},
			"section of 24 bytes":          {append(words(0x0a0d0d0a, 24, 0x1a2b3c4d), make([]byte, 12)...), -1},
			"section of 30 bytes":          {append(words(0x0a0d0d0a, 30, 0x1a2b3c4d), make([]byte, 18)...), -1},
			"block of 8 bytes":             {file(face(), words(77, 8, 8)), -1},
			"block of 14 bytes":            {file(face(), words(77, 14, 14, 14, 14)), -1},
			"65 interfaces":                {file(bytes.Repeat(face(), maxInterfaces+1), packet(0, 7, whole)), -1},
			"64 interfaces":                {file(bytes.Repeat(face(), maxInterfaces), packet(maxInterfaces-1, 7*second, whole)), 7 * time.Second},
		} {
			got, err := readAll(c.file)
			if c.at < 0 {
				if !errors.Is(err, ErrCapture) || len(got) > 0 {
					t.Errorf("%v, %s: %d packets, %v", order, what, len(got), err)
				}
				continue
			}
			if err != nil || len(got) != 1 || got[0].Time != c.at || got[0].Link != linkRaw || !bytes.Equal(got[0].Data, ip) {
				t.Errorf("%v, %s: %v, %v", order, what, got, err)
			}
		}
	}
	// A length that the bound of a packet admits, and one more.
	big := pcapFile(binary.LittleEndian, 0xa1b2c3d4, linkRaw, make([]byte, maxCaptured))
	if got, err := readAll(big); err != nil || len(got) != 1 || len(got[0].Data) != maxCaptured {
		t.Errorf("the largest packet: %v", err)
	}
	if _, err := readAll(pcapFile(binary.LittleEndian, 0xa1b2c3d4, linkRaw, make([]byte, maxCaptured+1))); !errors.Is(err, ErrCapture) {
		t.Errorf("one byte more: %v", err)
	}
}

// What stands before the IP packet for each link type of a capture.
func TestLinkTypes(t *testing.T) {
	four, six := one(t, "udp 10.0.0.1:5 > 192.0.2.1:6"), one(t, "udp [2001:db8::1]:5 > [2001:db8::2]:6")
	kind := func(at int, n uint16, length int) []byte {
		b := make([]byte, length)
		binary.BigEndian.PutUint16(b[at:], n)
		return b
	}
	for _, c := range []struct {
		link uint16
		head []byte
		want error
	}{
		{linkRaw, nil, nil},
		{linkRawBSD, nil, nil},
		{linkRawOpen, nil, nil},
		{linkIPv4, nil, nil},
		{linkIPv6, nil, nil},
		{linkNull, make([]byte, 4), nil},
		{linkLoop, make([]byte, 4), nil},
		{linkSLL, kind(14, etherIPv4, 16), nil},
		{linkSLL, kind(14, etherIPv6, 16), nil},
		{linkSLL, kind(14, 0x0806, 16), ErrNotIP},
		{linkSLL2, kind(0, etherIPv4, 20), nil},
		{linkSLL2, kind(0, 0x0806, 20), ErrNotIP},
		{linkEthernet, kind(12, etherIPv4, 14), nil},
		{linkEthernet, kind(12, 0x0806, 14), ErrNotIP},
		{9999, nil, ErrNotIP},
	} {
		for _, ip := range [][]byte{four, six} {
			var p Packet
			data := append(bytes.Clone(c.head), ip...)
			want := c.want
			if c.link == linkEthernet && want == nil && ip[0]>>4 == 6 {
				want = ErrVersion
			}
			if err := ParseCaptured(Captured{Data: data, Link: c.link}, &p); !errors.Is(err, want) || err == nil && p.Key.DstPort != 6 {
				t.Errorf("link %d: %v, want %v", c.link, err, want)
			}
			if c.want == nil {
				if err := ParseCaptured(Captured{Data: c.head, Link: c.link}, &p); !errors.Is(err, ErrTruncated) {
					t.Errorf("link %d, nothing but its header: %v", c.link, err)
				}
				if n := len(c.head); n > 0 {
					if err := ParseCaptured(Captured{Data: c.head[:n-1], Link: c.link}, &p); !errors.Is(err, ErrTruncated) {
						t.Errorf("link %d, not even its header: %v", c.link, err)
					}
				}
			}
		}
	}
	// Tags of frames: two are read, three are not.
	for tags, want := range map[int]error{0: nil, 1: nil, 2: nil, 3: ErrNotIP} {
		frame := make([]byte, 12)
		for i := range tags {
			frame = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(frame, []uint16{etherQinQ, etherVLAN}[i%2]), uint16(0x7000|i+10))
		}
		frame = append(binary.BigEndian.AppendUint16(frame, etherIPv4), four...)
		var p Packet
		err := ParseFrame(frame, &p)
		if !errors.Is(err, want) || err == nil && (p.VLANCount != tags || p.L3() != 14+4*tags || tags > 0 && p.VLANs[0] != 10 || tags > 1 && p.VLANs[1] != 11) {
			t.Errorf("%d tags: %v, %v", tags, err, p.VLANs)
		}
		for n := range 14 + 4*min(tags, 2) {
			if err := ParseFrame(frame[:n], &p); !errors.Is(err, ErrTruncated) {
				t.Errorf("%d tags, %d bytes: %v", tags, n, err)
			}
		}
	}
}

// What fits into a tunnel, and what comes out of one.
func TestTunnelEdges(t *testing.T) {
	parse := netip.MustParseAddr
	four, six, inner := parse("10.0.0.9"), parse("2001:db8::9"), one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 0102")
	inner6 := one(t, "udp [2001:db8::1]:5 > [2001:db8::2]:6 0102")
	long := func(n int) []byte { return append(bytes.Clone(inner[:20]), make([]byte, n-20)...) }
	append4 := func(b []byte) []byte { return AppendIPIP(nil, four, parse("10.1.0.1"), b) }
	append6 := func(b []byte) []byte { return AppendIPIP(nil, six, parse("2001:db8::1"), b) }
	gue4 := func(b []byte) []byte { return AppendGUE(nil, four, parse("10.1.0.1"), 50000, b) }
	gue6 := func(b []byte) []byte { return AppendGUE(nil, six, parse("2001:db8::1"), 50000, b) }
	for what, c := range map[string]struct {
		got  []byte
		want int // bytes; 0: refused
	}{
		"IPIP":               {append4(inner), 20 + 30},
		"the smallest inner": {append4(inner[:20]), 40},
		"too small":          {append4(inner[:19]), 0},
		"the largest":        {append4(long(65515)), 65535},
		"one more":           {append4(long(65516)), 0},
		"the largest, IPv6":  {append6(long(65535)), 65575},
		"one more, IPv6":     {append6(long(65536)), 0},
		"GUE":                {gue4(inner), 28 + 30},
		"the smallest GUE":   {gue4(inner[:20]), 48},
		"GUE too small":      {gue4(inner[:19]), 0},
		"the largest GUE":    {gue4(long(65507)), 65535},
		"one more GUE":       {gue4(long(65508)), 0},
		"the largest GUE6":   {gue6(long(65527)), 65575},
		"one more GUE6":      {gue6(long(65528)), 0},
		"two families":       {AppendIPIP(nil, four, six, inner), 0},
		"other two":          {AppendGUE(nil, six, four, 1, inner), 0},
		"no source":          {AppendIPIP(nil, netip.Addr{}, four, inner), 0},
		"no destination":     {AppendIPIP(nil, six, netip.Addr{}, inner), 0},
		"neither":            {AppendIPIP(nil, netip.Addr{}, netip.Addr{}, inner), 0},
		"mapped":             {AppendIPIP(nil, parse("::ffff:10.0.0.9"), four, inner), 50},
		"behind other bytes": {AppendIPIP([]byte{1, 2, 3}, four, four, inner)[3:], 50},
	} {
		if len(c.got) != c.want {
			t.Errorf("%s: %d bytes, want %d", what, len(c.got), c.want)
		}
	}
	for _, b := range [][]byte{append4(inner), append6(inner), gue4(inner), gue6(inner)} {
		if got, err := Decapsulate(b); err != nil || !bytes.Equal(got, inner) {
			t.Errorf("%x: %x, %v", b, got, err)
		}
		p := parsed(t, bytes.Clone(b))
		if p.Proto == flow.ProtoUDP && (p.Key.SrcPort != 50000 || p.Key.DstPort != GUEPort || binary.BigEndian.Uint16(b[p.L4+4:]) != uint16(8+len(inner))) || p.TTL != tunnelTTL {
			t.Errorf("%x: %s", b, p.Key)
		}
	}
	for _, b := range [][]byte{append4(inner6), append6(inner6), gue6(inner6)} {
		if got, err := Decapsulate(b); err != nil || !bytes.Equal(got, inner6) {
			t.Errorf("%x: %x, %v", b, got, err)
		}
	}
	change := func(b []byte, at int, to byte) []byte { b = bytes.Clone(b); b[at] = to; return b }
	for what, c := range map[string]struct {
		b    []byte
		want error
	}{
		"plain UDP":                  {inner, ErrNotTunnel},
		"TCP":                        {one(t, "tcp 10.0.0.1:5 > 192.0.2.1:6"), ErrNotTunnel},
		"a fragment":                 {one(t, "udp 10.0.0.1:5000 > 192.0.2.1:6080 payload=100 frag=40 piece=1"), ErrNotTunnel},
		"a later fragment":           {one(t, "udp 10.0.0.1:5000 > 192.0.2.1:6080 payload=100 frag=40 piece=2"), ErrNotTunnel},
		"GUE without payload":        {one(t, "udp 10.0.0.1:5000 > 192.0.2.1:6080"), ErrNotTunnel},
		"GUE variant 0":              {one(t, "udp 10.0.0.1:5000 > 192.0.2.1:6080 0004000045"), ErrNotTunnel},
		"GUE of another version":     {one(t, "udp 10.0.0.1:5000 > 192.0.2.1:6080 7500"), ErrVersion},
		"no IP":                      {nil, ErrTruncated},
		"IPIP with IPv6 in it":       {change(append4(inner6), 9, protoIPv4), ErrVersion},
		"IPv6 in IP with IPv4 in it": {change(append4(inner), 9, protoIPv6), ErrVersion},
	} {
		if got, err := Decapsulate(c.b); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: %x, %v", what, got, err)
		}
	}
}
