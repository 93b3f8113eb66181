package flow

import (
	"encoding/binary"

	"github.com/weir-lb/weir/internal/steering/siphash"
)

// HashKey is a SipHash key. It is the same on every load balancer of a tier, so that all of them choose the same backend for
// a flow.
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
	return siphash.Sum((*[16]byte)(&h), b[:])
}

// Source returns the SipHash-2-4 of the source address alone: the 40-byte form with zeros after the source. All flows of one
// client have this hash in common, whatever their ports, protocol and destination.
func (h HashKey) Source(k Key) uint64 {
	var b [keyBytes]byte
	copy(b[0:16], k.Src[:])
	return siphash.Sum((*[16]byte)(&h), b[:])
}

// Sum returns the SipHash-2-4 of b.
func (h HashKey) Sum(b []byte) uint64 { return siphash.Sum((*[16]byte)(&h), b) }
