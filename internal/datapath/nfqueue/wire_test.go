package nfqueue

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// packetMessage is an NFQNL_MSG_PACKET as the kernel writes it.
func packetMessage(id uint32, ether uint16, data []byte, more ...attr) []byte {
	header := binary.BigEndian.AppendUint32(nil, id)
	header = append(binary.BigEndian.AppendUint16(header, ether), 0)
	attrs := append([]attr{{attrPacketHeader, header}}, more...)
	if data != nil {
		attrs = append(attrs, attr{attrPayload, data})
	}
	b := configMessage(7, 0, attrs...)
	binary.NativeEndian.PutUint16(b[4:], messagePacket)
	return b
}

func TestParsePacket(t *testing.T) {
	data := []byte{0x45, 1, 2, 3, 4}
	b := packetMessage(42, etherIPv4, data, attr32(attrMark, 0x65), attr32(attrCapLen, 65000), attr32(attrSKBInfo, infoGSO|1))
	m, rest, ok := nextMessage(b)
	if !ok || m.kind != messagePacket || len(rest) != 0 {
		t.Fatalf("%+v, %d bytes left, %v", m, len(rest), ok)
	}
	var p Packet
	if !parsePacket(m.body, &p) || p.ID != 42 || p.Mark != 0x65 || p.Length != 65000 || !p.Large || p.NotIP || !bytes.Equal(p.Data, data) {
		t.Errorf("%+v", p)
	}
	// Cut off by a receive buffer too small: the number is there still, so the packet can be answered.
	m, _, ok = nextMessage(b[:len(b)-4])
	if !ok || !parsePacket(m.body, &p) || p.ID != 42 {
		t.Errorf("cut off: %+v, %v", p, ok)
	}
	if m, _, _ = nextMessage(packetMessage(1, 0x0806, data)); !parsePacket(m.body, &p) || !p.NotIP {
		t.Errorf("ARP: %+v", p)
	}
	if m, _, _ = nextMessage(packetMessage(1, etherIPv6, nil)); !parsePacket(m.body, &p) || p.Data != nil || p.Length != 0 {
		t.Errorf("no payload: %+v", p)
	}
	headless := configMessage(7, 0, attr{attrPayload, data})
	if m, _, _ = nextMessage(headless); parsePacket(m.body, &p) {
		t.Error("a packet without a number was taken")
	}
}

// The bytes of verdicts, as linux/netfilter/nfnetlink_queue.h has them on a little-endian machine.
func TestVerdictBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("written for little-endian machines")
	}
	for _, c := range []struct {
		verdict Verdict
		want    string
	}{
		{Verdict{ID: 0x01020304, Mark: 0x65, Marked: true}, "28000000 0103 0100 00000000 00000000 00 00 0007 0c000200 00000001 01020304 08000300 00000065"},
		{Verdict{ID: 5}, "20000000 0103 0100 00000000 00000000 00 00 0007 0c000200 00000001 00000005"},
		{Verdict{ID: 6, Drop: true, Mark: 1, Marked: true}, "20000000 0103 0100 00000000 00000000 00 00 0007 0c000200 00000000 00000006"},
	} {
		want, _ := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		if got := appendVerdict(nil, 7, c.verdict); !bytes.Equal(got, want) {
			t.Errorf("%+v:\n got %x\nwant %x", c.verdict, got, want)
		}
	}
}

// Messages that are no packets of ours are counted, acknowledgements are nothing, and the rest of a batch goes on.
func TestOddMessages(t *testing.T) {
	q := &kernelQueue{}
	errorMessage := func(errno unix.Errno) []byte {
		b := configMessage(7, 9, attr32(0, 0))
		binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_ERROR)
		binary.NativeEndian.PutUint32(b[headerLength:], uint32(-int32(errno)))
		return b
	}
	strange := packetMessage(3, etherIPv4, nil)
	binary.NativeEndian.PutUint16(strange[4:], 0x7777)
	datagram := bytes.Join([][]byte{
		packetMessage(1, etherIPv4, []byte{1}), errorMessage(0), errorMessage(unix.ENOENT), strange,
		packetMessage(2, etherIPv4, []byte{2}),
		{1, 2, 3},
	}, nil)
	into := make([]Packet, 8)
	if n := q.parse(datagram, into); n != 2 || into[0].ID != 1 || into[1].ID != 2 {
		t.Errorf("%d packets: %+v", n, into[:n])
	}
	if q.refused.Load() != 1 || q.odd.Load() != 2 {
		t.Errorf("%d refused, want 1; %d odd, want the strange one and the tail", q.refused.Load(), q.odd.Load())
	}
}

func TestParseTable(t *testing.T) {
	rows, err := parseTable("    2  24931     5 2  1500     3     4   1234  1\n65535 4294963200 0 1 0 0 0 4294967295 1\n")
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if got := rows[2]; got != (KernelQueue{24931, 5, 1500, 3, 4, 1234, true}) {
		t.Errorf("%+v", got)
	}
	if got := rows[65535]; got.PortID != 4294963200 || got.CopyPackets || got.LastID != 4294967295 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"1 2 3\n", "70000 1 1 1 1 1 1 1 1\n", "a b c\n"} {
		if _, err := parseTable(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// FuzzDatagram: whatever a socket delivers, parsing ends, stays within the bytes, and gives no more packets than fit.
func FuzzDatagram(f *testing.F) {
	f.Add(packetMessage(42, etherIPv4, []byte{0x45, 0, 0, 20}, attr32(attrMark, 1), attr32(attrCapLen, 9000), attr32(attrSKBInfo, 3)))
	f.Add(append(packetMessage(1, etherIPv6, []byte{0x60}), packetMessage(2, 0x0806, nil)...))
	f.Add(configMessage(7, wakeSequence))
	f.Add([]byte{16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 3, 0, 1, 0})
	f.Add(packetMessage(9, etherIPv4, []byte{1, 2, 3})[:37])
	f.Fuzz(func(t *testing.T, datagram []byte) {
		q := &kernelQueue{}
		into := make([]Packet, 2)
		n := q.parse(datagram, into)
		for i := range into[:n] {
			p := &into[i]
			if len(p.Data) > len(datagram) || p.Length < len(p.Data) {
				t.Fatalf("%d bytes of a datagram of %d, length %d", len(p.Data), len(datagram), p.Length)
			}
			fitLength(p)
		}
		_, _ = parseTable(string(datagram))
	})
}

// FuzzWorker: a worker answers each packet of random bytes once.
func FuzzWorker(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 28}, uint16(28), true)
	f.Add(bytes.Repeat([]byte{0x60}, 80), uint16(65535), false)
	f.Add([]byte{}, uint16(0), true)
	f.Fuzz(func(t *testing.T, data []byte, length uint16, large bool) {
		d, q := one(t, threeBackends, (&clock{}).Now)
		q.mu.Lock()
		for range 2 {
			q.pushLocked(Packet{Data: bytes.Clone(data), Length: max(int(length)*2, len(data)), Large: large})
		}
		q.mu.Unlock()
		step(t, d)
		if err := d.workers[0].finish(); err != nil || len(q.unknown) > 0 {
			t.Fatalf("%d packets without a verdict: %v", len(q.unknown), err)
		}
	})
}
