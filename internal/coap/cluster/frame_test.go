package cluster

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/coap/cluster/membership"
)

// The bytes are what a Californium node was observed to send: client 127.0.0.1:36723, without and with MAC.
func TestFrameBytesObserved(t *testing.T) {
	record := unhex(t, "19fefd000100000000000902aabbccddee0018112233445566778899aabbccddeeff0011")
	peer := netip.MustParseAddrPort("127.0.0.1:36723")
	frame := append(AppendHeader(nil, TypeIn, peer), record...)
	if want := append(unhex(t, "3f738f047f000001"), record...); !bytes.Equal(frame, want) {
		t.Fatalf("frame\n %x, want\n %x", frame, want)
	}
	f, err := ParseFrame(frame, false)
	if err != nil || f.Type != TypeIn || f.Peer != peer || !bytes.Equal(f.Body, record) || f.MAC != nil {
		t.Fatalf("parsed %+v, %v", f, err)
	}

	secured := append(unhex(t, "3ff8ed047f000001c167c9da1dc20da5"), record...)
	f, err = ParseFrame(secured, true)
	if err != nil || f.Peer != netip.MustParseAddrPort("127.0.0.1:60920") || hex.EncodeToString(f.MAC) != "c167c9da1dc20da5" || !bytes.Equal(f.Body, record) {
		t.Fatalf("parsed with MAC %+v, %v", f, err)
	}
}

func TestFrameIPv6(t *testing.T) {
	peer := netip.MustParseAddrPort("[2001:db8::7]:5684")
	frame := append(AppendHeader(nil, TypeOut, peer), make([]byte, MinBody)...)
	if want := "3e" + "3416" + "10" + "20010db8000000000000000000000007"; hex.EncodeToString(frame[:20]) != want {
		t.Fatalf("header %x, want %s", frame[:20], want)
	}
	if f, err := ParseFrame(frame, false); err != nil || f.Peer != peer {
		t.Fatalf("parsed %+v, %v", f, err)
	}
	mapped := netip.MustParseAddrPort("[::ffff:192.0.2.1]:1")
	if b := AppendHeader(nil, TypeIn, mapped); len(b) != 8 || HeaderLength(mapped) != 8 {
		t.Fatalf("a mapped IPv4 address travels as %x, want 4 raw bytes", b)
	}
}

// A body of 25 bytes is refused, one of 26 passes, with and without MAC, for both families.
func TestFrameMinimum(t *testing.T) {
	for _, peer := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		for _, mac := range []int{0, macLength} {
			head := append(AppendHeader(nil, TypeIn, netip.MustParseAddrPort(peer)), make([]byte, mac)...)
			if _, err := ParseFrame(append(head, make([]byte, 25)...), mac > 0); !errors.Is(err, ErrFrameShort) {
				t.Errorf("%s, MAC %d: 25 bytes: %v, want %v", peer, mac, err, ErrFrameShort)
			}
			if _, err := ParseFrame(append(head, make([]byte, 26)...), mac > 0); err != nil {
				t.Errorf("%s, MAC %d: 26 bytes: %v", peer, mac, err)
			}
		}
	}
}

func TestPing(t *testing.T) {
	b := AppendPing(nil, Ping{Type: TypePing, Node: 0x01020304, State: membership.StateUp})
	if hex.EncodeToString(b) != "3d0403020101" {
		t.Fatalf("ping %x", b)
	}
	for _, test := range []struct {
		hex  string
		want Ping
		ok   bool
	}{
		{"3d0200000001", Ping{TypePing, 2, membership.StateUp}, true},
		{"3c0200000002", Ping{TypePong, 2, membership.StateInitialized}, true},
		{"3d02000000", Ping{TypePing, 2, membership.StateStart}, true}, // 2.5.0
		{"3d020000000199", Ping{TypePing, 2, membership.StateUp}, true},
		{"3d020000", Ping{}, false},
		{"3e0200000001", Ping{}, false},
		{"", Ping{}, false},
	} {
		got, ok := ParsePing(unhex(t, test.hex))
		if ok != test.ok || got != test.want {
			t.Errorf("%s: %+v %v, want %+v %v", test.hex, got, ok, test.want, test.ok)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		"3f738f047f00000119fefd000100000000000902aabbccddee0018112233445566778899aabbccddeeff0011",
		"3ff8ed047f000001c167c9da1dc20da519fefd000100000000000902aabbccddee0018112233445566778899aabbccddeeff0011",
		"3e34161020010db800000000000000000000000719fefd0001000000000009001811223344556677889900112233445566",
		"3d0200000001", "3c02000000", "3f", "3f000005", "3e0000ff", "",
	} {
		b, _ := hex.DecodeString(seed)
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, withMAC bool) {
		frame, err := ParseFrame(b, withMAC)
		if err == nil {
			if len(frame.Body) < MinBody {
				t.Fatalf("body of %d bytes", len(frame.Body))
			}
			again := AppendHeader(nil, frame.Type, frame.Peer)
			again = append(append(again, frame.MAC...), frame.Body...)
			back, err := ParseFrame(again, withMAC)
			if err != nil || back.Peer != frame.Peer || !bytes.Equal(back.Body, frame.Body) {
				t.Fatalf("%+v became %+v, %v", frame, back, err)
			}
		}
		if p, ok := ParsePing(b); ok {
			if back, ok := ParsePing(AppendPing(nil, p)); !ok || back != p {
				t.Fatalf("%+v became %+v", p, back)
			}
		}
	})
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
