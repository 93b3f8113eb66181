package cid

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

func layouts() map[string]Layout {
	key := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	return map[string]Layout{
		"byte":      ByteOwner(6),
		"shortest":  {Length: 1, OwnerBits: 8},
		"odd":       {Length: 8, OwnerOffset: 3, OwnerBits: 13},
		"wide":      {Length: 20, OwnerOffset: 125, OwnerBits: 32},
		"rotation":  {Length: 8, OwnerOffset: 0, OwnerBits: 12, RotationOffset: 62, RotationBits: 2, Rotation: 2},
		"masked":    {Length: 8, OwnerOffset: 4, OwnerBits: 12, Mask: MaskSipHash, MaskKey: key},
		"masked 32": {Length: 12, OwnerOffset: 7, OwnerBits: 32, RotationBits: 3, Rotation: 5, Mask: MaskSipHash, MaskKey: key},
		"quic-lb":   QUICLB(3, 2, 8),
	}
}

func TestOwnerSurvivesNew(t *testing.T) {
	for name, l := range layouts() {
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, owner := range []uint32{0, 1, l.MaxOwner() / 3, l.MaxOwner()} {
			id := make([]byte, l.Length)
			if err := l.New(id, owner, rand.Reader); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got, ok := l.Owner(id); !ok || got != owner {
				t.Errorf("%s: owner of %x = %d, %t; want %d", name, id, got, ok, owner)
			}
		}
	}
}

// The rest of a CID is random: two CIDs of one owner differ, and masked ones also in the owner's bits.
func TestNewUsesRandomness(t *testing.T) {
	l := layouts()["masked"]
	seen := map[uint32]bool{}
	for range 64 {
		id := make([]byte, l.Length)
		if err := l.New(id, 7, rand.Reader); err != nil {
			t.Fatal(err)
		}
		seen[getBits(id, l.OwnerOffset, l.OwnerBits)] = true
	}
	if len(seen) < 32 {
		t.Errorf("the masked owner field took %d values in 64 CIDs", len(seen))
	}
}

func TestByteOwnerIsTheFirstByte(t *testing.T) {
	l := ByteOwner(6)
	id := make([]byte, 6)
	if err := l.New(id, 0xfa, bytes.NewReader([]byte{1, 2, 3, 4, 5, 6})); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0xfa, 2, 3, 4, 5, 6}; !bytes.Equal(id, want) {
		t.Errorf("CID = %x, want %x", id, want)
	}
}

// The example of draft-ietf-quic-load-balancers-21, appendix B.1: rotation 0, server id c4605e, nonce 4504cc4f.
func TestQUICLBPlaintextVector(t *testing.T) {
	l := QUICLB(0, 3, 4)
	id, _ := hex.DecodeString("07c4605e4504cc4f")
	if owner, ok := l.Owner(id); !ok || owner != 0xc4605e {
		t.Errorf("owner = %x, %t", owner, ok)
	}
	made := make([]byte, l.Length)
	if err := l.New(made, 0xc4605e, bytes.NewReader([]byte{0xff, 0, 0, 0, 0x45, 0x04, 0xcc, 0x4f})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, id) {
		t.Errorf("made %x, want %x", made, id)
	}
	id[0] = 0xe7 // rotation 7: unroutable
	if _, ok := l.Owner(id); ok {
		t.Error("an unroutable CID has an owner")
	}
}

func TestOwnerRefusesOtherLengthsAndRotations(t *testing.T) {
	l := layouts()["rotation"]
	id := make([]byte, l.Length)
	if err := l.New(id, 9, rand.Reader); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.Owner(id[:7]); ok {
		t.Error("a shorter CID has an owner")
	}
	id[7] ^= 1
	if _, ok := l.Owner(id); ok {
		t.Error("a CID with other rotation bits has an owner")
	}
}

func TestNewRefuses(t *testing.T) {
	l := ByteOwner(6)
	if err := l.New(make([]byte, 5), 1, rand.Reader); err == nil {
		t.Error("a short buffer passed")
	}
	if err := l.New(make([]byte, 6), 256, rand.Reader); err == nil {
		t.Error("owner 256 passed in 8 bits")
	}
	if err := l.New(make([]byte, 6), 1, strings.NewReader("abc")); err == nil {
		t.Error("a dry random source passed")
	}
}

func TestValidateRefuses(t *testing.T) {
	for want, l := range map[string]Layout{
		"length 0":                     {OwnerBits: 8},
		"length 21":                    {Length: 21, OwnerBits: 8},
		"owner width 0":                {Length: 6},
		"owner width 33":               {Length: 6, OwnerBits: 33},
		"owner bits 41 to 48 do not":   {Length: 6, OwnerOffset: 41, OwnerBits: 8},
		"owner bits -1":                {Length: 6, OwnerOffset: -1, OwnerBits: 8},
		"do not fit in 6 bytes":        {Length: 6, OwnerOffset: 1<<63 - 4, OwnerBits: 8},
		"rotation width 9":             {Length: 6, OwnerBits: 8, RotationBits: 9, RotationOffset: 16},
		"rotation bits 47 to 48 do":    {Length: 6, OwnerBits: 8, RotationBits: 2, RotationOffset: 47},
		"rotation value 4":             {Length: 6, OwnerBits: 8, RotationBits: 2, RotationOffset: 16, Rotation: 4},
		"rotation bits and owner bits": {Length: 6, OwnerBits: 8, RotationBits: 2, RotationOffset: 7},
		"the length in the first byte": {Length: 6, OwnerBits: 8, SelfLength: true},
		"masking needs at least 32":    {Length: 4, OwnerBits: 8, Mask: MaskSipHash},
		"unknown mask":                 {Length: 6, OwnerBits: 8, Mask: 9},
		"rotation width -1":            {Length: 6, OwnerBits: 8, RotationBits: -1},
		"rotation bits -1":             {Length: 6, OwnerBits: 8, RotationBits: 2, RotationOffset: -1},
		"in the first byte overlaps":   {Length: 6, OwnerOffset: 8, OwnerBits: 8, SelfLength: true, RotationBits: 2, RotationOffset: 2},
		"masking needs at least 32 r":  {Length: 5, OwnerBits: 8, RotationBits: 1, RotationOffset: 8, Mask: MaskSipHash},
	} {
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", l, err, want)
		}
	}
}

// The greatest and the smallest of what Validate lets pass.
func TestValidateAccepts(t *testing.T) {
	for name, l := range map[string]Layout{
		"one owner bit":                  {Length: 1, OwnerBits: 1},
		"eight rotation bits":            {Length: 2, OwnerBits: 8, RotationOffset: 8, RotationBits: 8, Rotation: 255},
		"rotation before the owner":      {Length: 2, OwnerOffset: 8, OwnerBits: 8, RotationBits: 8},
		"32 random bits":                 {Length: 5, OwnerBits: 7, RotationOffset: 7, RotationBits: 1, Mask: MaskSipHash},
		"length between rotation, owner": {Length: 5, OwnerOffset: 8, OwnerBits: 8, RotationBits: 3, SelfLength: true},
		"no rotation, offset unused":     {Length: 5, OwnerOffset: 8, OwnerBits: 8, RotationOffset: -5, Rotation: 3, SelfLength: true},
		"no rotation, offset in length":  {Length: 5, OwnerOffset: 8, OwnerBits: 8, RotationOffset: 4, SelfLength: true},
	} {
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without rotation bits the rotation's value and place mean nothing.
func TestRotationWithoutBits(t *testing.T) {
	l := Layout{Length: 2, OwnerBits: 8, RotationOffset: 99, Rotation: 1}
	id := make([]byte, 2)
	if err := l.New(id, 7, bytes.NewReader([]byte{0, 0x55})); err != nil || !bytes.Equal(id, []byte{7, 0x55}) {
		t.Errorf("CID %x, error %v", id, err)
	}
	if owner, ok := l.Owner(id); !ok || owner != 7 {
		t.Errorf("owner %d, %t", owner, ok)
	}
}

func TestOwnerAllocatesNothing(t *testing.T) {
	for name, l := range layouts() {
		id := make([]byte, l.Length)
		if err := l.New(id, 1, rand.Reader); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { l.Owner(id) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
