package cid

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	all       = DTLS12 | DTLS13 | QUIC
	cidRecord = "19 fefd 0001 000000000009 02aabbccddee 0002 beef"
	handshake = "16 fefd 0000 000000000001 0003 010203"
	change    = "14 fefd 0000 000000000002 0001 01"
)

func TestLocate(t *testing.T) {
	for _, c := range []struct {
		name      string
		datagram  string
		protocols Protocols
		length    int
		want      string
		kind      Kind
	}{
		{"DTLS 1.2 CID record", cidRecord, DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"after a client's last flight", handshake + change + cidRecord, DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"two CID records, the first counts", cidRecord + strings.Replace(cidRecord, "02aa", "07aa", 1), DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"handshake only", handshake, DTLS12, 6, "", KindNone},
		{"nine records, the last with a CID", strings.Repeat(handshake, 8) + cidRecord, DTLS12, 6, "", KindNone},
		{"eight records, the last with a CID", strings.Repeat(handshake, 7) + cidRecord, DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"record cut short", strings.TrimSuffix(cidRecord, " beef"), DTLS12, 6, "", KindNone},
		{"header cut short", "19 fefd 0001 000000000009 02aabb", DTLS12, 6, "", KindNone},
		{"plain record that lies about its length", "16 fefd 0000 000000000001 ffff 01", DTLS12, 6, "", KindNone},
		{"DTLS 1.0 cannot have a CID", "19 feff 0001 000000000009 02aabbccddee 0002 beef", DTLS12, 6, "", KindNone},
		{"CID record where DTLS 1.3 and QUIC are spoken", cidRecord, DTLS13 | QUIC, 6, "", KindNone},
		{"where only QUIC is spoken, all is QUIC", cidRecord, QUIC, 6, "fefd00010000", KindQUICShort},
		{"no CID in use", cidRecord, DTLS12, 0, "", KindNone},
		{"DTLS 1.3, short sequence", "30 0102030405 ff 0000", DTLS13, 5, "0102030405", KindDTLS13},
		{"DTLS 1.3, all fields", "3f 0102030405 ffff 0001 00", DTLS13, 5, "0102030405", KindDTLS13},
		{"DTLS 1.3 without CID", "2c ffff 0001 00", DTLS13, 5, "", KindNone},
		{"DTLS 1.3 after plaintext", handshake + "3f 0102030405 ffff 0001 00", DTLS13, 5, "0102030405", KindDTLS13},
		{"DTLS 1.3 cut short", "30 01020304", DTLS13, 5, "", KindNone},
		{"QUIC short", "40 c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"QUIC short, cut", "40 c460", QUIC, 5, "", KindNone},
		{"QUIC Handshake", "e0 00000001 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICLong},
		{"QUIC Initial", "c3 00000001 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICInitial},
		{"QUIC version 2 Initial", "d3 6b3343cf 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICInitial},
		{"QUIC version 2 Handshake", "f3 6b3343cf 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICLong},
		{"QUIC version 2 Retry", "c0 6b3343cf 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICLong},
		{"QUIC of the future", "e0 0000abcd 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICOther},
		{"QUIC of the future beside DTLS", "80 faceb001 08 0102030405060708 00", all, 5, "0102030405060708", KindQUICOther},
		{"QUIC version negotiation", "e0 00000000 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICInitial},
		{"QUIC Handshake, fixed bit greased", "a0 00000001 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICLong},
		{"QUIC short, fixed bit greased", "00 c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"the same, like a DTLS record", "19 c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"the same, like DTLS 1.3", "3f c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"QUIC short, greased beside DTLS 1.2", "00 c4605e4504 ffff", QUIC | DTLS12, 5, "", KindNone},
		{"QUIC short, greased beside DTLS 1.2, above its records", "3f c4605e4504 ffff", QUIC | DTLS12, 5, "", KindNone},
		{"QUIC CID too long", "e0 00000001 15 " + strings.Repeat("aa", 21), QUIC, 5, "", KindNone},
		{"QUIC CID beyond the end", "e0 00000001 08 010203", QUIC, 5, "", KindNone},
		{"QUIC after a DTLS record is nonsense", handshake + "40 c4605e4504", all, 5, "", KindNone},
		{"CoAP", "40 01 1234", DTLS12 | DTLS13, 6, "", KindNone},
		{"Californium forward frame", "3e 738f 04 7f000001", DTLS12, 6, "", KindNone},
		{"nothing", "", all, 6, "", KindNone},
	} {
		id, kind, ok := Locate(unhex(t, c.datagram), c.protocols, c.length)
		if hex.EncodeToString(id) != c.want || kind != c.kind || ok != (c.kind != KindNone) {
			t.Errorf("%s: %x, %v, %t; want %s, %v", c.name, id, kind, ok, c.want, c.kind)
		}
	}
}

func TestSetFind(t *testing.T) {
	set := Set{Protocols: DTLS12, Layouts: []Layout{
		{Length: 6, OwnerBits: 8, RotationOffset: 46, RotationBits: 2, Rotation: 1},
		{Length: 8, OwnerOffset: 8, OwnerBits: 8, RotationOffset: 46, RotationBits: 2, Rotation: 2},
	}}
	if i, err := set.Validate(); err != nil {
		t.Fatalf("layout %d: %v", i, err)
	}
	for _, c := range []struct {
		name     string
		datagram string
		layout   int
		owner    uint32
		found    bool
	}{
		{"first layout", "19 fefd 0001 000000000009 05aabbccdded 0002 beef", 0, 5, true},
		{"second layout", "19 fefd 0001 000000000009 0007bbccddee1122 0002 beef", 1, 7, true},
		{"neither", "19 fefd 0001 000000000009 05aabbccddef 0002 beef", -1, 0, true},
		{"no CID", handshake, -1, 0, false},
	} {
		layout, owner, found := set.Find(unhex(t, c.datagram))
		if layout != c.layout || owner != c.owner || found != c.found {
			t.Errorf("%s: %d, %d, %t; want %d, %d, %t", c.name, layout, owner, found, c.layout, c.owner, c.found)
		}
	}
}

func TestSetRefusesAmbiguity(t *testing.T) {
	rotated := Layout{Length: 6, OwnerBits: 8, RotationOffset: 46, RotationBits: 2, Rotation: 1}
	elsewhere := rotated
	elsewhere.RotationOffset, elsewhere.Rotation = 44, 2
	for want, set := range map[string]Set{
		"no protocol":                       {Layouts: []Layout{ByteOwner(6)}},
		"no layout":                         {Protocols: QUIC},
		"several layouts need rotation":     {Protocols: QUIC, Layouts: []Layout{ByteOwner(6), rotated}},
		"rotation value 1 is taken":         {Protocols: QUIC, Layouts: []Layout{rotated, rotated}},
		"rotation bits are not at the same": {Protocols: QUIC, Layouts: []Layout{rotated, elsewhere}},
		"length 0":                          {Protocols: QUIC, Layouts: []Layout{{}}},
	} {
		if _, err := set.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	set := Set{Protocols: all, Layouts: []Layout{ByteOwner(6)}}
	datagram := unhex(t, handshake+change+cidRecord)
	if n := testing.AllocsPerRun(100, func() { set.Find(datagram) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzLocate(f *testing.F) {
	for _, seed := range []string{
		cidRecord, handshake + change + cidRecord, "3f 0102030405 ffff 0001 00", "40 c4605e4504 ffff",
		"e0 00000001 08 0102030405060708 00", "16 fefd 0000 000000000001 ffff 01", "", "80 faceb001 08 0102030405060708 00",
		"00 c4605e450401 ffff",
	} {
		f.Add(unhex(f, seed), uint8(all), 6)
		f.Add(unhex(f, seed), uint8(QUIC), 6)
	}
	f.Fuzz(func(t *testing.T, datagram []byte, protocols uint8, length int) {
		id, kind, ok := Locate(datagram, Protocols(protocols), length)
		if ok != (kind != KindNone) || ok != (id != nil) {
			t.Fatalf("ok %t, kind %v, id %x", ok, kind, id)
		}
		if !ok {
			return
		}
		if !bytes.Contains(datagram, id) || len(id) > MaxLength || len(id) == 0 {
			t.Fatalf("id %x is not a part of the datagram", id)
		}
		if kind != KindQUICLong && kind != KindQUICInitial && kind != KindQUICOther && len(id) != length {
			t.Fatalf("%v: %d bytes, want %d", kind, len(id), length)
		}
		dtls := kind == KindDTLS12 || kind == KindDTLS13
		if shared := Protocols(protocols)&(DTLS12|DTLS13) != 0; dtls != (shared && datagram[0] < 0x40) {
			t.Fatalf("%v where the first byte is %#x, protocols %d", kind, datagram[0], protocols)
		}
		set := Set{Protocols: Protocols(protocols), Layouts: []Layout{ByteOwner(6), QUICLB(1, 2, 5)}}
		set.Find(datagram)
	})
}

// Any layout that Validate lets pass reads back what it wrote and never reads out of bounds.
func FuzzLayout(f *testing.F) {
	for _, l := range layouts() {
		f.Add(l.Length, l.OwnerOffset, l.OwnerBits, l.RotationOffset, l.RotationBits, l.Rotation, l.SelfLength, l.Mask == MaskSipHash, uint32(5), []byte("0123456789abcdefghij"))
	}
	f.Fuzz(func(t *testing.T, length, offset, bits, rotationOffset, rotationBits int, rotation uint8, self, masked bool, owner uint32, random []byte) {
		l := Layout{Length: length, OwnerOffset: offset, OwnerBits: bits, RotationOffset: rotationOffset, RotationBits: rotationBits, Rotation: rotation, SelfLength: self}
		if masked {
			l.Mask = MaskSipHash
		}
		if l.Validate() != nil {
			return
		}
		owner &= l.MaxOwner()
		id := make([]byte, l.Length)
		if l.New(id, owner, bytes.NewReader(random)) != nil {
			return // too little randomness
		}
		if got, ok := l.Owner(id); !ok || got != owner {
			t.Fatalf("%+v: owner of %x = %d, %t; want %d", l, id, got, ok, owner)
		}
	})
}
