package packet

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// Each faulty line is refused with one error that says what to write.
func TestTextErrors(t *testing.T) {
	const udp = "udp 10.0.0.1:5000 > 192.0.2.1:5684"
	for _, c := range []struct{ line, want string }{
		{"", "empty packet; write udp"},
		{"udp 10.0.0.1:5000", "write PROTOCOL SOURCE > DESTINATION"},
		{"udp 10.0.0.1:5000 < 192.0.2.1:5684", "write PROTOCOL SOURCE > DESTINATION"},
		{"quic 10.0.0.1:5000 > 192.0.2.1:5684", `unknown protocol "quic"`},
		{"proto256 10.0.0.1 > 192.0.2.1", `unknown protocol "proto256"`},
		{"udp 10.0.0.1 > 192.0.2.1:5684", "udp needs a port; write 10.0.0.1:5684"},
		{"udp [2001:db8::1] > [2001:db8::2]:1", "udp needs a port; write [2001:db8::1]:5684"},
		{"udp 2001:db8::1 > [2001:db8::2]:1", "write [2001:db8::1]:5684, or [2001:db8:]:1"},
		{"udp 2001:db8::1:50000 > [::2]:1", "needs brackets: [2001:db8::1]:50000"},
		{"udp host:80 > 192.0.2.1:5684", `"host:80" is no address with port; write 10.0.0.1:5684`},
		{"udp :80 > 192.0.2.1:5684", `":80" is no address with port; write 10.0.0.1:5684`},
		{"ping 10.0.0.1:1 > 192.0.2.1", "ping has no ports; write 10.0.0.1 instead of 10.0.0.1:1"},
		{"ping 10.0.0.1 > host", `"host" is no address`},
		{"udp 10.0.0.1:1 > [2001:db8::1]:1", "are of different families"},
		{udp + " xyz", `"xyz" is neither hex payload nor option=value`},
		{udp + " color=1", `unknown option "color"; known: payload`},
		{udp + " ttl=256", "ttl=256: write a number from 0 to 255"},
		{udp + " ttl=-1", "ttl=-1: write a number from 0 to 255"},
		{udp + " ttl=x", "ttl=x: write a number from 0 to 255"},
		{udp + " frag=7", "frag=7: write a number from 8 to 65528"},
		{udp + " csum=1", "csum=1: write a number from 0 to 0"},
		{udp + " vlan=4096", "vlan=4096: write a number from 0 to 4095"},
		{udp + " vlan=1,2,3,4", "at most three tags"},
		{udp + " payload=65000", ""},
		{udp + " flags=syn,fast", `unknown TCP flag "fast"`},
		{udp + " ext=jump:0", `unknown extension header "jump"`},
		{udp + " ext=hop:256", "ext hop=256: write a number from 0 to 255"},
		{"toobig 192.0.2.9 1300", "toobig lacks its quoted packet; write toobig ROUTER about udp"},
		{"toobig about " + udp, "toobig lacks the address of the router"},
		{"toobig host 1300 about " + udp, `"host" is no router address`},
		{"toobig 2001:db8::9 1300 about " + udp, "are of different families"},
		{"toobig 192.0.2.9 about " + udp, "toobig lacks the MTU; write toobig 192.0.2.9 1300"},
		{"toobig 192.0.2.9 0 about " + udp, `"0" is no MTU; write 1 to 65535`},
		{"toobig 192.0.2.9 x about " + udp, `"x" is no MTU; write 1 to 65535`},
		{"toobig 192.0.2.9 65536 about " + udp, `"65536" is no MTU; write 1 to 65535`},
		{"unreachable 192.0.2.9 ttl=1 about " + udp, `"ttl=1" is not known here; quote=BYTES is`},
		{"unreachable 192.0.2.9 quote=-1 about " + udp, "quote=-1 is no number of bytes"},
		{"unreachable 192.0.2.9 quote=x about " + udp, "quote=x is no number of bytes"},
		{"unreachable 192.0.2.9 about udp", "write PROTOCOL SOURCE > DESTINATION"},
		{"unreachable 192.0.2.9 about " + udp + " vlan=1", "must be one packet without vlan"},
		{"unreachable 192.0.2.9 about " + udp + " frag=8 payload=20", "must be one packet without vlan"},
		{"ipip 10.0.0.9 > 10.1.0.1", "write ipip SRC > DST carrying udp"},
		{"ipip 10.0.0.9 10.1.0.1 carrying " + udp, "write ipip SRC > DST carrying udp"},
		{"ipip 10.0.0.9 < 10.1.0.1 carrying " + udp, "write ipip SRC > DST carrying udp"},
		{"ipip 10.0.0.9 > 10.1.0.1 carrying udp", "write PROTOCOL SOURCE > DESTINATION"},
		{"ipip 10.0.0.9 > 10.1.0.1 carrying " + udp + " vlan=1", "a tunnel carries IP, not frames"},
		{"ipip 10.0.0.9 > host carrying " + udp, `"host" is no address`},
		{"ipip host > 10.1.0.1 carrying " + udp, `"host" is no address`},
		{"gue 10.0.0.9 > 10.1.0.1 carrying " + udp, `"10.0.0.9" is no address with port`},
		{"ipip 10.0.0.9 > 2001:db8::1 carrying " + udp, "the packet does not fit into that tunnel"},
		{"gue 10.0.0.9:1 > 2001:db8::1 carrying " + udp, "the packet does not fit into that tunnel"},
		{udp + " ext=" + strings.TrimSuffix(strings.Repeat("hop:0,", 17), ","), "more than 16 extension headers"},
		{udp + " piece=2", "piece"},
		{"tcp 10.0.0.1:1 > 192.0.2.1:1 flags=syn,ack,fin,rst,psh,urg payload=100", ""},
	} {
		line, want := c.line, c.want
		got, err := ParseText(line)
		switch {
		case want == "" && (err != nil || len(got.Packets) != 1):
			t.Errorf("%q: %d packets, error %v", line, len(got.Packets), err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v, want %q", line, err, want)
		case want != "" && len(got.Packets) != 0:
			t.Errorf("%q: packets and an error", line)
		}
	}
}

// Each option is in its field of the packet. The bytes are written by hand from RFC 791, 768, 792 and 8200.
func TestTextOptions(t *testing.T) {
	for line, want := range map[string]string{
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 0xbeef csum=0 ttl=9 class=3 id=7 df": "4503001e00074000 0911.... 0a000001 c0000201 1388 1634 000a 0000 beef",
		"udp 10.0.0.1:1 > 192.0.2.1:2 csum=0 ttl=1 opt=5":                        "4700002400000000 0111.... 0a000001 c0000201 0101010101010101 0001 0002 0008 0000",
		"udp [2001:db8::1]:1 > [2001:db8::2]:2 00 ttl=4 class=1 ext=hop:0":       "6010000000110004 20010db8000000000000000000000001 20010db8000000000000000000000002 1100............ 0001 0002 0009 .... 00",
		"ping 10.0.0.1 > 192.0.2.1 ident=258 seq=3 ttl=1":                        "4500001c00000000 0101.... 0a000001 c0000201 0800.... 0102 0003",
		"pong 10.0.0.1 > 192.0.2.1 ident=258 seq=3 ttl=1":                        "4500001c00000000 0101.... 0a000001 c0000201 0000.... 0102 0003",
		"ping 2001:db8::1 > 2001:db8::2 ttl=1":                                   "6000000000083a01 20010db8000000000000000000000001 20010db8000000000000000000000002 8000.... 0000 0000",
		"pong 2001:db8::1 > 2001:db8::2 ttl=1":                                   "6000000000083a01 20010db8000000000000000000000001 20010db8000000000000000000000002 8100.... 0000 0000",
		"proto47 10.0.0.1 > 192.0.2.1 aa bb ttl=1 ":                              "4500001600000000 012f.... 0a000001 c0000201 aabb",
	} {
		got, err := ParseText(line)
		if err != nil || len(got.Packets) != 1 || got.Frame {
			t.Errorf("%q: %d packets, error %v", line, len(got.Packets), err)
			continue
		}
		text := hex.EncodeToString(got.Packets[0])
		want = strings.ReplaceAll(want, " ", "")
		match := len(text) == len(want)
		for i := 0; match && i < len(want); i++ {
			match = want[i] == '.' || want[i] == text[i]
		}
		if !match {
			t.Errorf("%q is\n%s, want\n%s", line, text, want)
		}
	}
}

// payload=N is N counted bytes, frag= cuts at that many bytes, piece= takes one of the pieces, vlan= makes frames.
func TestTextPieces(t *testing.T) {
	const line = "udp 10.0.0.1:1 > 192.0.2.1:2 payload=40 frag=16"
	all, err := ParseText(line)
	if err != nil || len(all.Packets) != 3 {
		t.Fatalf("%d packets, error %v", len(all.Packets), err)
	}
	for i, piece := range []string{" piece=1", " piece=2", " piece=3"} {
		one, err := ParseText(line + piece)
		if err != nil || len(one.Packets) != 1 || !bytes.Equal(one.Packets[0], all.Packets[i]) {
			t.Errorf("%s: %d packets, error %v", piece, len(one.Packets), err)
		}
	}
	if _, err := ParseText(line + " piece=4"); err == nil {
		t.Error("piece=4 of three passed")
	}
	frame, err := ParseText("udp 10.0.0.1:1 > 192.0.2.1:2 vlan=5,6")
	if err != nil || !frame.Frame || !bytes.Contains(frame.Packets[0], []byte{0, 5}) || !bytes.Contains(frame.Packets[0], []byte{0, 6, 8, 0}) {
		t.Errorf("%x, error %v", frame.Packets, err)
	}
	for quote, want := range map[string]int{"quote=28": 20 + 8 + 28, "quote=0": 20 + 8} {
		got, err := ParseText("unreachable 192.0.2.9 " + quote + " about udp 10.0.0.1:1 > 192.0.2.1:2 payload=40")
		if err != nil || len(got.Packets[0]) != want {
			t.Errorf("%s: %x, error %v", quote, got.Packets, err)
		}
	}
}
