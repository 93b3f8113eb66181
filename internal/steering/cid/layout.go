package cid

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-lb/weir/internal/steering/siphash"
)

// MaxLength is the longest connection id a layout can describe, in bytes (the limit of QUIC version 1, RFC 9000 section 17.2).
const MaxLength = 20

// Mask says how the owner id is hidden inside the CID.
type Mask uint8

const (
	// MaskNone leaves the owner id readable: any steering program can extract it.
	MaskNone Mask = iota
	// MaskSipHash stores owner XOR SipHash-2-4(MaskKey, CID with the owner bits cleared). It hides node ids from
	// onlookers; it authenticates nothing.
	MaskSipHash
)

// Layout says where the owner id sits in a connection id of fixed length. Bits are counted from the most significant
// bit of the first byte. The zero Layout is invalid; call Validate once before use. A Layout is a plain value, safe
// for concurrent use.
type Layout struct {
	Length int // bytes, 1 to MaxLength

	OwnerOffset int // bits
	OwnerBits   int // bits, 1 to 32

	// RotationBits is the width of a field that names the layout, so that layouts and keys can be changed while old
	// CIDs live. 0: no such field. A CID whose field differs from Rotation is not of this layout.
	RotationOffset int   // bits
	RotationBits   int   // bits, 0 to 8
	Rotation       uint8 // value of the field

	// SelfLength makes the low five bits of the first byte carry Length-1 (QUIC-LB, draft-ietf-quic-load-balancers
	// section 3); it is written by New and not checked when reading.
	SelfLength bool

	Mask    Mask
	MaskKey [16]byte // read by MaskSipHash only
}

// ByteOwner is the layout of Californium clusters: the first byte is the owner id, the rest is random.
func ByteOwner(length int) Layout { return Layout{Length: length, OwnerBits: 8} }

// QUICLB is the plaintext layout of draft-ietf-quic-load-balancers: three rotation bits, five bits of length, the
// server id, the nonce. Lengths in bytes; rotation 0 to 6 (7 means unroutable). The server id is read as an owner
// id, hence at most four bytes.
func QUICLB(rotation uint8, serverIDLength, nonceLength int) Layout {
	return Layout{
		Length:       1 + serverIDLength + nonceLength,
		OwnerOffset:  8,
		OwnerBits:    8 * serverIDLength,
		RotationBits: 3,
		Rotation:     rotation,
		SelfLength:   true,
	}
}

// MaxOwner is the greatest owner id the layout can carry.
func (l *Layout) MaxOwner() uint32 {
	if l.OwnerBits >= 32 {
		return 1<<32 - 1
	}
	return 1<<l.OwnerBits - 1
}

// Owner reads the owner id of a CID. False: another length, or another layout's rotation bits.
func (l *Layout) Owner(id []byte) (owner uint32, ok bool) {
	if len(id) != l.Length {
		return 0, false
	}
	if l.RotationBits > 0 && getBits(id, l.RotationOffset, l.RotationBits) != uint32(l.Rotation) {
		return 0, false
	}
	owner = getBits(id, l.OwnerOffset, l.OwnerBits)
	if l.Mask == MaskSipHash {
		owner ^= l.mask(id)
	}
	return owner, true
}

// New fills id, which must be Length bytes long, with a fresh CID of the owner; random supplies the other bits.
// Errors: a wrong length, an owner id beyond MaxOwner, or what random returned.
func (l *Layout) New(id []byte, owner uint32, random io.Reader) error {
	if len(id) != l.Length {
		return fmt.Errorf("CID buffer is %d bytes, the layout has %d", len(id), l.Length)
	}
	if owner > l.MaxOwner() {
		return fmt.Errorf("owner id %d does not fit in %d bits", owner, l.OwnerBits)
	}
	if _, err := io.ReadFull(random, id); err != nil {
		return fmt.Errorf("random bytes of a CID: %w", err)
	}
	if l.SelfLength {
		id[0] = id[0]&0xe0 | uint8(l.Length-1)&0x1f
	}
	if l.RotationBits > 0 {
		setBits(id, l.RotationOffset, l.RotationBits, uint32(l.Rotation))
	}
	if l.Mask == MaskSipHash {
		owner ^= l.mask(id)
	}
	setBits(id, l.OwnerOffset, l.OwnerBits, owner)
	return nil
}

// mask is the pad of MaskSipHash: a keyed hash over everything in the CID but the owner bits.
func (l *Layout) mask(id []byte) uint32 {
	var clear [MaxLength]byte
	n := copy(clear[:], id)
	setBits(clear[:n], l.OwnerOffset, l.OwnerBits, 0)
	return uint32(siphash.Sum(&l.MaskKey, clear[:n])) & l.MaxOwner()
}

// Validate reports the first thing wrong with the layout, in words a config author understands.
func (l *Layout) Validate() error {
	switch {
	case l.Length < 1 || l.Length > MaxLength:
		return fmt.Errorf("length %d is outside 1 to %d bytes", l.Length, MaxLength)
	case l.OwnerBits < 1 || l.OwnerBits > 32:
		return fmt.Errorf("owner width %d is outside 1 to 32 bits", l.OwnerBits)
	case l.OwnerOffset < 0 || l.OwnerOffset > 8*l.Length-l.OwnerBits:
		return fmt.Errorf("owner bits %d to %d do not fit in %d bytes", l.OwnerOffset, l.OwnerOffset+l.OwnerBits-1, l.Length)
	case l.RotationBits < 0 || l.RotationBits > 8:
		return fmt.Errorf("rotation width %d is outside 0 to 8 bits", l.RotationBits)
	case l.Mask > MaskSipHash:
		return errors.New("unknown mask")
	}
	if l.RotationBits > 0 {
		switch {
		case l.RotationOffset < 0 || l.RotationOffset > 8*l.Length-l.RotationBits:
			return fmt.Errorf("rotation bits %d to %d do not fit in %d bytes", l.RotationOffset, l.RotationOffset+l.RotationBits-1, l.Length)
		case uint32(l.Rotation) >= 1<<l.RotationBits:
			return fmt.Errorf("rotation value %d does not fit in %d bits", l.Rotation, l.RotationBits)
		case overlap(l.RotationOffset, l.RotationBits, l.OwnerOffset, l.OwnerBits):
			return errors.New("rotation bits and owner bits overlap")
		}
	}
	if l.SelfLength && (overlap(3, 5, l.OwnerOffset, l.OwnerBits) || overlap(3, 5, l.RotationOffset, l.RotationBits)) {
		return errors.New("the length in the first byte overlaps other bits")
	}
	if l.Mask == MaskSipHash && 8*l.Length-l.OwnerBits-l.RotationBits < 32 {
		return errors.New("masking needs at least 32 random bits in addition to the owner id")
	}
	return nil
}

// overlap reports whether an bits from a and bn bits from b share one. Only bn may be 0.
func overlap(a, an, b, bn int) bool { return bn > 0 && a < b+bn && b < a+an }

// getBits reads n (at most 32) bits from offset; the caller has checked that they lie inside b.
func getBits(b []byte, offset, n int) uint32 {
	var word uint64
	first, last := offset/8, (offset+n+7)/8
	for _, x := range b[first:last] {
		word = word<<8 | uint64(x)
	}
	word >>= last*8 - offset - n
	return uint32(word & (1<<n - 1))
}

// setBits writes the low n (at most 32) bits of value at offset; the caller has checked the bounds.
func setBits(b []byte, offset, n int, value uint32) {
	first, last := offset/8, (offset+n+7)/8
	var word uint64
	for _, x := range b[first:last] {
		word = word<<8 | uint64(x)
	}
	shift := last*8 - offset - n
	field := uint64(1<<n-1) << shift
	word = word&^field | uint64(value)<<shift&field
	for i := last - 1; i >= first; i-- {
		b[i] = byte(word)
		word >>= 8
	}
}
