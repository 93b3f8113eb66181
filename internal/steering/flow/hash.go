package flow

import (
	"encoding/binary"
	"math/bits"
)

// HashKey is a SipHash key, the same on every load balancer of a tier so that
// each of them picks the same backend for a flow.
type HashKey [16]byte

// keyBytes is the length of the hashed form of a Key; the eBPF data path
// hashes the same bytes.
const keyBytes = 40

// Flow returns the SipHash-2-4 of the whole 5-tuple.
func (h HashKey) Flow(k Key) uint64 {
	var b [keyBytes]byte
	copy(b[0:16], k.Src[:])
	copy(b[16:32], k.Dst[:])
	binary.BigEndian.PutUint16(b[32:], k.SrcPort)
	binary.BigEndian.PutUint16(b[34:], k.DstPort)
	b[36] = k.Proto
	return h.Sum(b[:])
}

// Source returns the SipHash-2-4 of the source address alone: the 40-byte form
// with everything behind the source zero. All flows of one client, whatever
// their ports, protocol and destination, share it.
func (h HashKey) Source(k Key) uint64 {
	var b [keyBytes]byte
	copy(b[0:16], k.Src[:])
	return h.Sum(b[:])
}

// Sum returns the SipHash-2-4 of b (Aumasson and Bernstein, 2012).
func (h HashKey) Sum(b []byte) uint64 {
	k0 := binary.LittleEndian.Uint64(h[0:8])
	k1 := binary.LittleEndian.Uint64(h[8:16])
	v0 := k0 ^ 0x736f6d6570736575
	v1 := k1 ^ 0x646f72616e646f6d
	v2 := k0 ^ 0x6c7967656e657261
	v3 := k1 ^ 0x7465646279746573
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
