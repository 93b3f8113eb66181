package neighbour

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

var (
	mac    = MAC{2, 0, 0, 0, 0, 1}
	other  = MAC{2, 0, 0, 0, 0, 2}
	four   = netip.MustParseAddr("192.0.2.10")
	six    = netip.MustParseAddr("2001:db8::10")
	asker4 = netip.MustParseAddr("192.0.2.1")
	asker6 = netip.MustParseAddr("fe80::1")
)

// The bytes of RFC 826 and 5227, and of RFC 4861 section 4.4.
func TestAnnouncements(t *testing.T) {
	for _, c := range []struct {
		address netip.Addr
		want    []string
	}{
		{four, []string{
			"ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 c000020a ffffffffffff c000020a",
			"ffffffffffff 020000000001 0806 0001 0800 06 04 0002 020000000001 c000020a 020000000001 c000020a",
		}},
		{six, []string{
			"333300000001 020000000001 86dd 60000000 0020 3a ff 20010db8000000000000000000000010 ff020000000000000000000000000001" +
				" 88 00 f90c 20000000 20010db8000000000000000000000010 02 01 020000000001",
		}},
	} {
		frames := Announcement(mac, c.address)
		if len(frames) != len(c.want) {
			t.Fatalf("%s: %d frames", c.address, len(frames))
		}
		for i, want := range c.want {
			if got := hex.EncodeToString(frames[i]); got != strings.ReplaceAll(want, " ", "") {
				t.Errorf("%s: %s\nwant %s", c.address, got, want)
			}
			if f, ok := Parse(frames[i]); !ok || f.Claimed != c.address || f.MAC != mac {
				t.Errorf("%s: read as %+v, %v", c.address, f, ok)
			}
		}
	}
}

func TestProbesClaimNothing(t *testing.T) {
	for _, c := range []struct{ address, self, from netip.Addr }{{four, asker4, netip.IPv4Unspecified()}, {six, asker6, asker6}} {
		f, ok := Parse(Probe(mac, c.self, c.address))
		if !ok || f.Claimed.IsValid() || f.Address != c.address || f.From != c.from || f.MAC != mac {
			t.Errorf("%s: %+v, %v", c.address, f, ok)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, q := range []Frame{
		{Address: four, From: asker4, MAC: other},
		{Address: six, From: asker6, MAC: other},
		{Address: six, From: netip.IPv6Unspecified(), MAC: other},
		{Address: four, From: netip.IPv4Unspecified(), MAC: other},
	} {
		b := Answer(mac, q)
		f, ok := Parse(b)
		if !ok || f.Claimed != q.Address || f.Address.IsValid() || f.MAC != mac {
			t.Errorf("%+v: %+v, %v", q, f, ok)
		}
		if unicast := MAC(b[:6]) == other; unicast != (q.Address.Is4() || q.From == asker6) {
			t.Errorf("%+v: sent to %x", q, b[:6])
		}
	}
}

func TestDamagedFramesAreRefused(t *testing.T) {
	frames := append(Announcement(mac, four), append(Announcement(mac, six), Probe(mac, asker4, four), Probe(mac, asker6, six))...)
	for _, frame := range frames {
		for n := range frame {
			if _, ok := Parse(frame[:n]); ok {
				t.Errorf("%d bytes of %x are read", n, frame)
			}
		}
	}
	for _, at := range []int{12, 14, 20, 21} { // EtherType, version, next header, hop limit
		frame := Announcement(mac, six)[0]
		frame[at] ^= 0x10
		if _, ok := Parse(frame); ok {
			t.Errorf("with byte %d changed", at)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, frame := range append(Announcement(mac, four), Announcement(mac, six)[0], Probe(mac, asker4, four), Probe(mac, asker6, six)) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, ok := Parse(b)
		if !ok || !frame.Address.IsValid() {
			return
		}
		if back, ok := Parse(Answer(mac, frame)); !ok || back.Claimed != frame.Address {
			t.Errorf("the answer to %+v is read as %+v, %v", frame, back, ok)
		}
	})
}
