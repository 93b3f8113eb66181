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
		{"QUIC of the future and DTLS", "80 faceb001 08 0102030405060708 00", all, 5, "0102030405060708", KindQUICOther},
		{"QUIC version negotiation", "e0 00000000 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICInitial},
		{"QUIC Handshake, fixed bit greased", "a0 00000001 08 0102030405060708 00", QUIC, 5, "0102030405060708", KindQUICLong},
		{"QUIC short, fixed bit greased", "00 c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"the same, like a DTLS record", "19 c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"the same, like DTLS 1.3", "3f c4605e4504 ffff", QUIC, 5, "c4605e4504", KindQUICShort},
		{"QUIC short, greased and DTLS 1.2", "00 c4605e4504 ffff", QUIC | DTLS12, 5, "", KindNone},
		{"QUIC short, greased and DTLS 1.2, above its records", "3f c4605e4504 ffff", QUIC | DTLS12, 5, "", KindNone},
		{"QUIC CID too long", "e0 00000001 15 " + strings.Repeat("aa", 21), QUIC, 5, "", KindNone},
		{"QUIC CID beyond the end", "e0 00000001 08 010203", QUIC, 5, "", KindNone},
		{"QUIC after a DTLS record is nonsense", handshake + "40 c4605e4504", all, 5, "", KindNone},
		{"CoAP", "40 01 1234", DTLS12 | DTLS13, 6, "", KindNone},
		{"Californium forward frame", "3e 738f 04 7f000001", DTLS12, 6, "", KindNone},
		{"nothing", "", all, 6, "", KindNone},
		{"nothing where only QUIC is spoken", "", QUIC, 6, "", KindNone},
		{"length below 0", cidRecord, DTLS12, -1, "", KindNone},
		{"length below 0, DTLS 1.3", "30 0102030405", DTLS13, -1, "", KindNone},
		{"CID record of half a version", "19 03fd 0001 000000000009 02aabbccddee 0002 beef", DTLS12, 6, "", KindNone},
		{"record of type 25 without CID where none is in use", "19 fefd 0001 000000000009 0002 beef", DTLS12, 0, "", KindNone},
		{"length of the longest CID", "40" + strings.Repeat("aa", 20), QUIC, 20, strings.Repeat("aa", 20), KindQUICShort},
		{"length above it", "40" + strings.Repeat("aa", 21), QUIC, 21, "", KindNone},
		{"length 0 and a long header", "e0 00000001 01 07", QUIC, 0, "07", KindQUICLong},
		{"like QUIC where only DTLS is spoken", "40 c4605e4504 ffff", DTLS12 | DTLS13, 5, "", KindNone},
		{"like a QUIC long header where only DTLS is spoken", "e0 00000001 08 0102030405060708 00", DTLS12 | DTLS13, 5, "", KindNone},
		{"the first byte that is QUIC and DTLS", "40 c4605e4504", all, 5, "c4605e4504", KindQUICShort},
		{"the last byte that is not", "3f c4605e4504", QUIC | DTLS12, 5, "", KindNone},
		{"a record type below the plaintext ones", "13 fefd 0000 000000000001 0001 01" + cidRecord, DTLS12, 6, "", KindNone},
		{"after an ACK", "1a fefd 0000 000000000001 0001 01" + cidRecord, DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"a record type above them", "1b fefd 0000 000000000001 0001 01" + cidRecord, DTLS12, 6, "", KindNone},
		{"plain record of another version", "16 0303 0000 000000000001 0001 01" + cidRecord, DTLS12, 6, "", KindNone},
		{"plain record, header cut", "16 fefd 0000 000000000001 00", DTLS12, 6, "", KindNone},
		{"plain record of no bytes", "16 fefd 0000 000000000001 0000" + cidRecord, DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"plain record of no bytes alone", "16 fefd 0000 000000000001 0000", DTLS12, 6, "", KindNone},
		{"plain record of 256 bytes", "16 fefd 0000 000000000001 0100" + strings.Repeat("00", 256) + cidRecord, DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"plain records where no DTLS is spoken", handshake + cidRecord, 0, 6, "", KindNone},
		{"CID record of another version", "19 0303 0001 000000000009 02aabbccddee 0002 beef", DTLS12, 6, "", KindNone},
		{"CID record of no bytes", "19 fefd 0001 000000000009 02aabbccddee 0000", DTLS12, 6, "02aabbccddee", KindDTLS12},
		{"CID record that says 256 bytes more", strings.Replace(cidRecord, "0002", "0102", 1), DTLS12, 6, "", KindNone},
		{"DTLS 1.3 that ends with its CID", "30 0102030405", DTLS13, 5, "0102030405", KindDTLS13},
		{"DTLS 1.3 with a CID where none is in use", "30 0102030405", DTLS13, 0, "", KindNone},
		{"DTLS 1.3 where only 1.2 is spoken", "30 0102030405", DTLS12, 5, "", KindNone},
		{"QUIC short where no CID is in use", "40 c4605e4504", QUIC, 0, "", KindNone},
		{"QUIC short that ends with its CID", "40 c4605e4504", QUIC, 5, "c4605e4504", KindQUICShort},
		{"QUIC long, header cut", "e0 00000001", QUIC, 5, "", KindNone},
		{"QUIC long without CID", "e0 00000001 00 ffff", QUIC, 5, "", KindNone},
		{"QUIC long that ends with its CID", "e0 00000001 02 0102", QUIC, 5, "0102", KindQUICLong},
		{"QUIC long, the longest CID", "e0 00000001 14" + strings.Repeat("aa", 20), QUIC, 5, strings.Repeat("aa", 20), KindQUICLong},
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

// The CID of an Initial may be the client's choice, even where it looks like one of ours; that of an unknown version counts
// if it matches a layout.
func TestSetFindInQUIC(t *testing.T) {
	l := Layout{Length: 6, OwnerBits: 8, RotationOffset: 46, RotationBits: 2, Rotation: 1}
	set := Set{Protocols: QUIC, Layouts: []Layout{l}}
	for _, c := range []struct {
		name     string
		datagram string
		layout   int
		owner    uint32
		found    bool
	}{
		{"Handshake", "e0 00000001 06 05aabbccddcd", 0, 5, true},
		{"Handshake, another rotation", "e0 00000001 06 05aabbccddcf", -1, 0, true},
		{"Initial", "c0 00000001 06 05aabbccddcd", -1, 0, false},
		{"unknown version", "c0 0000abcd 06 05aabbccddcd", 0, 5, true},
		{"unknown version, another rotation", "c0 0000abcd 06 05aabbccddcf", -1, 0, false},
	} {
		layout, owner, found := set.Find(unhex(t, c.datagram))
		if layout != c.layout || owner != c.owner || found != c.found {
			t.Errorf("%s: %d, %d, %t; want %d, %d, %t", c.name, layout, owner, found, c.layout, c.owner, c.found)
		}
	}
}

// A CID that one layout locates and does not know is found, though the next layout's length fits no record.
func TestSetFindRemembersTheFirstLayout(t *testing.T) {
	set := Set{Protocols: QUIC, Layouts: []Layout{
		{Length: 2, OwnerBits: 4, RotationOffset: 14, RotationBits: 2, Rotation: 1},
		{Length: 8, OwnerBits: 8, RotationOffset: 14, RotationBits: 2, Rotation: 2},
	}}
	if layout, _, found := set.Find(unhex(t, "40 0000 00")); layout != -1 || !found {
		t.Errorf("layout %d, found %t; want -1, true", layout, found)
	}
}

func TestKindNames(t *testing.T) {
	want := []string{"none", "dtls12", "dtls13", "quic_short", "quic_long", "quic_initial", "quic_other"}
	for kind, name := range want {
		if got := Kind(kind).String(); got != name {
			t.Errorf("kind %d is %q, want %q", kind, got, name)
		}
	}
}

func TestSetRefusesAmbiguity(t *testing.T) {
	rotated := Layout{Length: 6, OwnerBits: 8, RotationOffset: 46, RotationBits: 2, Rotation: 1}
	wider := rotated
	wider.RotationBits, wider.Rotation = 1, 0
	plain := ByteOwner(6)
	elsewhere := rotated
	elsewhere.RotationOffset, elsewhere.Rotation = 44, 2
	for _, c := range []struct {
		second Layout
		want   string
	}{{plain, "several layouts need rotation"}, {wider, "rotation bits are not at the same"}} {
		set := Set{Protocols: QUIC, Layouts: []Layout{rotated, c.second}}
		if i, err := set.Validate(); i != 1 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: layout %d, error %v; want layout 1, %q", c.second, i, err, c.want)
		}
	}
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
