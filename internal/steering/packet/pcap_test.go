package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"
)

func pcapFile(order binary.AppendByteOrder, magic uint32, link uint32, packets ...[]byte) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = order.AppendUint32(b, 262144)
	b = order.AppendUint32(b, link)
	for i, p := range packets {
		b = order.AppendUint32(b, uint32(100+i))
		b = order.AppendUint32(b, 5)
		b = order.AppendUint32(b, uint32(len(p)))
		b = order.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

func block(order binary.AppendByteOrder, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	b := order.AppendUint32(nil, kind)
	b = order.AppendUint32(b, uint32(12+len(body)))
	b = append(b, body...)
	return order.AppendUint32(b, uint32(12+len(body)))
}

func pcapngFile(order binary.AppendByteOrder, link uint16, packets ...[]byte) []byte {
	section := order.AppendUint32(nil, 0x1a2b3c4d)
	section = order.AppendUint16(section, 1)
	section = append(section, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255)
	b := block(order, 0x0a0d0d0a, section)
	iface := order.AppendUint16(nil, link)
	iface = append(iface, make([]byte, 6)...)
	iface = order.AppendUint16(iface, 9) // if_tsresol: nanoseconds
	iface = order.AppendUint16(iface, 1)
	iface = append(iface, 9, 0, 0, 0)
	b = append(b, block(order, 1, iface)...)
	b = append(b, block(order, 5, make([]byte, 12))...) // statistics: skipped
	for i, p := range packets {
		e := order.AppendUint32(nil, 0)
		ticks := uint64(100+i)*1e9 + 5
		e = order.AppendUint32(e, uint32(ticks>>32))
		e = order.AppendUint32(e, uint32(ticks))
		e = order.AppendUint32(e, uint32(len(p)))
		e = order.AppendUint32(e, uint32(len(p)))
		b = append(b, block(order, 6, append(e, p...))...)
	}
	return b
}

func readAll(b []byte) (out []Captured, err error) {
	c, err := NewCaptureReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for {
		got, err := c.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		got.Data = bytes.Clone(got.Data)
		out = append(out, got)
	}
}

func TestCaptures(t *testing.T) {
	ip := one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 010203")
	frame := one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 010203 vlan=7")
	le, be := binary.LittleEndian, binary.BigEndian
	for name, c := range map[string]struct {
		file []byte
		nano time.Duration
	}{
		"pcap":                {pcapFile(le, 0xa1b2c3d4, linkRaw, ip, ip), 5 * time.Microsecond},
		"pcap big endian":     {pcapFile(be, 0xa1b2c3d4, linkEthernet, frame, frame), 5 * time.Microsecond},
		"pcap nanoseconds":    {pcapFile(le, 0xa1b23c4d, linkNull, append([]byte{2, 0, 0, 0}, ip...), append([]byte{2, 0, 0, 0}, ip...)), 5},
		"pcapng":              {pcapngFile(le, linkEthernet, frame, frame), 5},
		"pcapng big endian":   {pcapngFile(be, linkSLL, append(append(make([]byte, 14), 8, 0), ip...), append(append(make([]byte, 14), 8, 0), ip...)), 5},
		"pcapng two sections": {append(pcapngFile(le, linkRaw, ip), pcapngFile(be, linkRaw, ip)...), 5},
	} {
		got, err := readAll(c.file)
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: %d packets, %v", name, len(got), err)
		}
		for i, g := range got {
			var p Packet
			if err := ParseCaptured(g, &p); err != nil || p.Key.DstPort != 6 {
				t.Errorf("%s: %v %v", name, err, p.Key)
			}
			want := time.Duration(100+i)*time.Second + c.nano
			if name == "pcapng two sections" {
				want = 100*time.Second + c.nano
			}
			if g.Time != want {
				t.Errorf("%s: at %s, want %s", name, g.Time, want)
			}
		}
	}
}

func TestCapturesRefused(t *testing.T) {
	ip := one(t, "udp 10.0.0.1:5 > 192.0.2.1:6 010203")
	good := pcapFile(binary.LittleEndian, 0xa1b2c3d4, linkRaw, ip)
	next := pcapngFile(binary.LittleEndian, linkRaw, ip)
	long := bytes.Clone(good)
	binary.LittleEndian.PutUint32(long[24+8:], 1<<31)
	block := bytes.Clone(next)
	binary.LittleEndian.PutUint32(block[28+4:], 1<<31)
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("services:\n- name: x"), "header cut": good[:20],
		"packet cut": good[:len(good)-1], "packet header cut": good[:24+9], "length": long,
		"block length": block, "block cut": next[:len(next)-6], "section cut": next[:9],
	} {
		if _, err := readAll(b); !errors.Is(err, ErrCapture) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCapture(f *testing.F) {
	ip := one(f, "udp 10.0.0.1:5 > 192.0.2.1:6 010203")
	f.Add(pcapFile(binary.LittleEndian, 0xa1b2c3d4, linkRaw, ip))
	f.Add(pcapFile(binary.BigEndian, 0xa1b23c4d, linkSLL2, ip))
	f.Add(pcapngFile(binary.LittleEndian, linkEthernet, ip))
	f.Add(pcapngFile(binary.BigEndian, linkRaw, ip, ip))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := readAll(b)
		for _, c := range got {
			var p Packet
			_ = ParseCaptured(c, &p)
		}
	})
}
