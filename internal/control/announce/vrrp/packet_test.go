package vrrp

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestPacketsOfBothFamiliesComeBack(t *testing.T) {
	for _, c := range []struct {
		source string
		sent   Advertisement
	}{
		{"192.0.2.1", Advertisement{ID: 51, Priority: 100, Interval: 100 * time.Millisecond, Addresses: addresses("192.0.2.10", "192.0.2.11")}},
		{"fe80::1", Advertisement{ID: 255, Priority: 0, Interval: MaxInterval, Addresses: addresses("fe80::5eff:fe00:233", "2001:db8::10")}},
	} {
		source := netip.MustParseAddr(c.source)
		b := c.sent.Append([]byte("before"), source)[len("before"):]
		got, err := Parse(b, source, Group(source.Is6()))
		if err != nil || got.ID != c.sent.ID || got.Priority != c.sent.Priority || got.Interval != c.sent.Interval || !slices.Equal(got.Addresses, c.sent.Addresses) {
			t.Errorf("%+v came back as %+v, %v", c.sent, got, err)
		}
		if _, err := Parse(b, netip.MustParseAddr(c.source).Next(), Group(source.Is6())); err != ErrChecksum {
			t.Errorf("from another source: %v", err)
		}
	}
}

// RFC 5798 can be read so that IPv4 has no pseudo header.
func TestIPv4MayLeaveThePseudoHeaderOut(t *testing.T) {
	packet := []byte{0x31, 51, 100, 1, 0, 100, 0, 0, 192, 0, 2, 10}
	sum := ^fold(add(0, packet))
	packet[6], packet[7] = byte(sum>>8), byte(sum)
	if _, err := Parse(packet, netip.MustParseAddr("192.0.2.1"), Group(false)); err != nil {
		t.Error(err)
	}
}

func TestBadPacketsAreRefused(t *testing.T) {
	source := netip.MustParseAddr("192.0.2.1")
	a := Advertisement{ID: 51, Priority: 100, Interval: time.Second, Addresses: addresses("192.0.2.10")}
	good := a.Append(nil, source)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for _, c := range []struct {
		name   string
		packet []byte
		want   error
	}{
		{"good", good, nil},
		{"empty", nil, ErrShort},
		{"header only", good[:8], ErrShort},
		{"with more", append(bytes.Clone(good), 0), ErrShort},
		{"version 2", change(0, 0x21), ErrVersion},
		{"type 2", change(0, 0x32), ErrType},
		{"id", change(1, 0), ErrID},
		{"interval", change(5, 0), ErrInterval}, // and its high bits are 0
		{"priority", change(2, 101), ErrChecksum},
		{"no address", change(3, 0)[:8], ErrAddresses},
	} {
		if _, err := Parse(c.packet, source, Group(false)); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	a := Advertisement{ID: 51, Priority: 100, Interval: time.Second, Addresses: addresses("192.0.2.10")}
	f.Add(a.Append(nil, netip.MustParseAddr("192.0.2.1")), false)
	a.Addresses = addresses("fe80::1", "2001:db8::1")
	f.Add(a.Append(nil, netip.MustParseAddr("fe80::2")), true)
	f.Fuzz(func(t *testing.T, b []byte, is6 bool) {
		source := netip.MustParseAddr("192.0.2.1")
		if is6 {
			source = netip.MustParseAddr("fe80::2")
		}
		got, err := Parse(b, source, Group(is6))
		if err != nil {
			return
		}
		again, err := Parse(got.Append(nil, source), source, Group(is6))
		if err != nil || again.ID != got.ID || again.Interval != got.Interval || !slices.Equal(again.Addresses, got.Addresses) {
			t.Errorf("%+v comes back as %+v, %v", got, again, err)
		}
		m := New(Config{Self: source, Priority: 100, Interval: time.Second})
		m.Start(time.Time{})
		m.Receive(got, source.Next(), time.Time{})
	})
}
