package packet

import (
	"bytes"
	"net/netip"
	"testing"
)

var seeds = []string{
	"udp 10.0.0.1:5000 > 192.0.2.1:5684 0102",
	"udp 10.0.0.1:5000 > 192.0.2.1:5684 0102 opt=8 csum=0",
	"tcp [2001:db8::1]:5 > [2001:db8::2]:443 flags=syn ext=hop:1,dest:0,routing:2,auth:1",
	"sctp 10.0.0.1:1 > 10.0.0.2:2 0001020304",
	"udp [::1]:5 > [::2]:6 payload=300 frag=200 piece=1 ext=hop:0",
	"udp [::1]:5 > [::2]:6 payload=300 frag=200 piece=2",
	"ping ::1 > ::2 ident=8",
	"toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:5000 01",
	"unreachable ::99 quote=44 about tcp [::1]:6 > [::2]:5",
	"ipip 10.0.0.9 > 10.1.0.1 carrying udp [::1]:5 > [::2]:6",
	"gue 10.0.0.9:50000 > 10.1.0.1 carrying udp 10.0.0.1:5 > 10.0.0.2:6",
}

// FuzzParse: no panic, offsets inside the packet, and a rewritten packet
// parses again.
func FuzzParse(f *testing.F) {
	for _, line := range seeds {
		f.Add(one(f, line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Decapsulate(data)
		var p Packet
		_ = ParseFrame(data, &p)
		if Parse(data, &p) != nil {
			return
		}
		if p.L4 > len(p.Data) || p.Quote > len(p.Data) || p.QuoteL4 > len(p.Data) {
			t.Fatalf("offset outside: %+v", p)
		}
		_ = p.PayloadBytes()
		right := p.Verify()
		before := bytes.Clone(p.Data)
		to := netip.MustParseAddrPort("10.1.2.3:9")
		if p.Version == 6 {
			to = netip.MustParseAddrPort("[2001:db8::9]:9")
		}
		p.SetDestination(to)
		p.SetSource(to)
		var q Packet
		if err := Parse(p.Data, &q); err != nil {
			t.Fatalf("a rewritten packet does not parse: %v\n%x\n%x", err, before, p.Data)
		}
		if right && !p.Verify() {
			t.Fatalf("a rewrite broke a checksum\n%x\n%x", before, p.Data)
		}
		if p.DecrementTTL() && right && !p.Verify() {
			t.Fatal("the TTL broke a checksum")
		}
	})
}

// FuzzText: no panic, and what it builds parses or is refused by Parse itself.
func FuzzText(f *testing.F) {
	for _, line := range seeds {
		f.Add(line)
	}
	f.Add("udp ::1:5 > 10.0.0.1 ttl=999")
	f.Fuzz(func(t *testing.T, line string) {
		if len(line) > 400 {
			return
		}
		d, err := ParseText(line)
		if err != nil {
			return
		}
		for _, b := range d.Packets {
			var p Packet
			_ = Parse(b, &p)
		}
	})
}
