package allocation

import (
	"bytes"
	"testing"

	"github.com/pion/stun/v4"
)

func TestChannelData(t *testing.T) {
	frame := make([]byte, ChannelHeaderSize)
	PutChannelHeader(frame, 0x4fff, 5)
	frame = append(frame, "hello\x00\x00\x00"...)
	for _, end := range []int{9, 12} {
		if n, payload, r := ParseChannelData(frame[:end]); n != 0x4fff || string(payload) != "hello" || r != OK {
			t.Errorf("%#x %q %v", n, payload, r)
		}
	}
	for _, bad := range [][]byte{nil, frame[:3], frame[:8], {0x80, 0, 0, 0}, {0x3f, 0xff, 0, 0}, {0xff, 0xff, 0, 0}} {
		if _, _, r := ParseChannelData(bad); r != Malformed {
			t.Errorf("%x: %v", bad, r)
		}
	}
	if size, ok := FrameSize(frame); size != 12 || !ok {
		t.Errorf("frame of %d, %v", size, ok)
	}
}

func TestFrameSize(t *testing.T) {
	for _, test := range []struct {
		head []byte
		size int
		ok   bool
	}{
		{[]byte{0, 1, 0, 8}, 28, true},
		{[]byte{0, 1, 0, 9}, 0, false},
		{[]byte{0x40, 0, 0, 0}, 4, true},
		{[]byte{0x40, 0, 0xff, 0xff}, 65540, true},
		{[]byte{0x7f, 0xff, 0, 1}, 8, true},
		{[]byte{0x16, 3, 1, 0}, 276, true},
		{[]byte{0x80, 0, 0, 0}, 0, false},
		{[]byte{0}, 0, false},
	} {
		if size, ok := FrameSize(test.head); size != test.size || ok != test.ok {
			t.Errorf("%x: %d %v, want %d %v", test.head, size, ok, test.size, test.ok)
		}
	}
}

// Data indications are what the library reads, of every length and both families.
func TestDataIndication(t *testing.T) {
	id := [12]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	for _, peer := range []string{"192.0.2.7:4242", "[2001:db8::7]:4242"} {
		for size := range 9 {
			payload := bytes.Repeat([]byte{'x'}, size)
			raw := AppendData([]byte("head"), address(peer), payload, id)[4:]
			m := &stun.Message{}
			if err := stun.Decode(raw, m); err != nil || m.Type != stun.NewType(stun.MethodData, stun.ClassIndication) || m.TransactionID != id {
				t.Fatalf("%d: %v %v", size, m, err)
			}
			if len(raw) != 20+int(m.Length) {
				t.Errorf("%d bytes, length says %d", len(raw), m.Length)
			}
			data, err := m.Get(stun.AttrData)
			if err != nil || string(data) != string(payload) || relayOf(t, m, stun.AttrXORPeerAddress) != address(peer) {
				t.Errorf("%q, %v", data, err)
			}
		}
	}
	if n := len(AppendDataHeader(nil, address("192.0.2.7:1"), 100, id)); n != 36 {
		t.Errorf("IPv4 header of %d bytes", n)
	}
	if n := len(AppendDataHeader(nil, address("[::7]:1"), 100, id)); n != DataHeaderMax {
		t.Errorf("IPv6 header of %d bytes", n)
	}
}
