package packet

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// slowChecksum is RFC 1071 section 4.1, word by word.
func slowChecksum(b []byte, initial uint32) uint16 {
	total := uint64(initial)
	for i := 0; i < len(b); i += 2 {
		total += uint64(b[i]) << 8
		if i+1 < len(b) {
			total += uint64(b[i+1])
		}
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}

// The fast sum agrees with the slow one at every length, for bytes that carry as often as they can and for random ones.
func TestChecksumAgainstTheRFC(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for length := range 200 {
		for round := range 20 {
			b := make([]byte, length)
			for i := range b {
				if b[i] = byte(r.Uint32()); round < 10 && r.IntN(8) > 0 {
					b[i] = 0xff
				}
			}
			initial := []uint32{0, 1, 0xffff, 0x10000, 0xffffffff, r.Uint32()}[round%6]
			if got, want := Checksum(b, initial), slowChecksum(b, initial); got != want {
				t.Fatalf("%d bytes %x, initial %#x: %#04x, want %#04x", length, b, initial, got, want)
			}
		}
	}
}

// The sum of the pseudo-header is that of RFC 768 and of RFC 8200 section 8.1, whose length has 32 bits.
func TestPseudoSum(t *testing.T) {
	for _, a := range [][2]string{{"10.255.0.1", "192.0.2.255"}, {"2001:db8::ffff:1", "2001:db8:ffff::2"}} {
		src, dst := netip.MustParseAddr(a[0]), netip.MustParseAddr(a[1])
		for _, length := range []int{0, 8, 65535, 65536, 70000} {
			header := append(src.AsSlice(), dst.AsSlice()...)
			header = binary.BigEndian.AppendUint32(header, uint32(length))
			header = append(header, 0, 0, 0, 17)
			if got, want := Checksum(nil, PseudoSum(src.As16(), dst.As16(), 17, length)), slowChecksum(header, 0); got != want {
				t.Errorf("%s > %s, %d bytes: %#04x, want %#04x", src, dst, length, got, want)
			}
		}
	}
}

// Verify notices any changed bit of a payload, for every protocol with a checksum, and not the padding behind a packet.
func TestVerifyNoticesEveryBit(t *testing.T) {
	for _, line := range []string{
		"udp 10.0.0.1:1 > 192.0.2.1:2 0102030405", "udp [2001:db8::1]:1 > [2001:db8::2]:2 0102030405",
		"tcp 10.0.0.1:1 > 192.0.2.1:2 0102030405", "sctp 10.0.0.1:1 > 192.0.2.1:2 0102030405",
		"ping 10.0.0.1 > 192.0.2.1 0102030405", "ping 2001:db8::1 > 2001:db8::2 0102030405",
	} {
		made, err := ParseText(line)
		if err != nil {
			t.Fatal(err)
		}
		verify := func(b []byte) bool {
			var p Packet
			if err := Parse(b, &p); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return p.Verify()
		}
		b := made.Packets[0]
		if !verify(b) {
			t.Errorf("%s: the checksum is wrong", line)
		}
		for bit := range 8 * 5 {
			b[len(b)-1-bit/8] ^= 1 << (bit % 8)
			if verify(b) {
				t.Errorf("%s: bit %d of the payload may change", line, bit)
			}
			b[len(b)-1-bit/8] ^= 1 << (bit % 8)
		}
	}
	free, _ := ParseText("udp 10.0.0.1:1 > 192.0.2.1:2 0102 csum=0")
	var p Packet
	if err := Parse(free.Packets[0], &p); err != nil || !p.Verify() {
		t.Error("UDP without a checksum is refused (RFC 768 allows it in IPv4)")
	}
}

// ICMP errors carry the type, code and MTU of RFC 792, 1191 and 4443.
func TestQuotesHaveTheirMTU(t *testing.T) {
	for line, want := range map[string][8]byte{
		"toobig 192.0.2.9 1300 about udp 10.0.0.1:1 > 192.0.2.1:2":                 {3, 4, 0, 0, 0, 0, 5, 20},
		"unreachable 192.0.2.9 about udp 10.0.0.1:1 > 192.0.2.1:2":                 {3, 1, 0, 0, 0, 0, 0, 0},
		"toobig 2001:db8::9 1300 about udp [2001:db8::1]:1 > [2001:db8::2]:2":      {2, 0, 0, 0, 0, 0, 5, 20},
		"unreachable 2001:db8::9 about udp [2001:db8::1]:1 > [2001:db8::2]:2 0102": {1, 3, 0, 0, 0, 0, 0, 0},
	} {
		made, err := ParseText(line)
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		if err := Parse(made.Packets[0], &p); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got := [8]byte(made.Packets[0][p.L4:])
		got[2], got[3] = 0, 0 // the checksum
		if got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}
