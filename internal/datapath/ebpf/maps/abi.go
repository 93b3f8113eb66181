package maps

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/flow"
)

// This file alone converts between Go values and the byte order of the maps:
// addresses and ports are in network order there, the rest is little-endian.

// Words returns an address as the maps hold it, IPv4 mapped.
func Words(a [16]byte) (w [4]uint32) {
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(a[4*i:])
	}
	return w
}

// AddressWords is words of a netip.Addr; the invalid one is all zeros.
func AddressWords(a netip.Addr) [4]uint32 {
	if !a.IsValid() {
		return [4]uint32{}
	}
	return Words(a.As16())
}

// Address is the inverse of addressWords, IPv4 unmapped.
func Address(w [4]uint32) netip.Addr {
	var a [16]byte
	for i, x := range w {
		binary.LittleEndian.PutUint32(a[4*i:], x)
	}
	return netip.AddrFrom16(a).Unmap()
}

// Swap16 turns a port from host to network order and back.
func Swap16(p uint16) uint16 { return bits.ReverseBytes16(p) }

// MaskWords returns the two 64-bit halves of a prefix mask of n of 128 bits, as
// the program loads them.
func MaskWords(n int) [2]uint64 {
	var b [16]byte
	for i := range n {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return [2]uint64{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// Uint64s joins the words of an address as the program does.
func Uint64s(w [4]uint32) (a, b uint64) {
	return uint64(w[1])<<32 | uint64(w[0]), uint64(w[3])<<32 | uint64(w[2])
}

// FlowKey is the Go form of a key in flow_entries.
func FlowKey(e *bpf.FlowEntry) flow.Key {
	src := netip.AddrPortFrom(Address(e.Key.Src), Swap16(e.Key.Sport))
	dst := netip.AddrPortFrom(Address(e.Key.Dst), Swap16(e.Key.Dport))
	return flow.NewKey(src, dst, e.Key.Proto)
}

// SetKey is the inverse of FlowKey.
func SetKey(e *bpf.FlowEntry, k flow.Key) {
	e.Key.Src, e.Key.Dst = Words(k.Src), Words(k.Dst)
	e.Key.Sport, e.Key.Dport, e.Key.Proto = Swap16(k.SrcPort), Swap16(k.DstPort), k.Proto
}

// Alive says whether an entry has not expired, as alive in flow.h does.
func Alive(meta, now uint64) bool {
	expiry := meta >> bpf.ExpiryShift
	return expiry > now || expiry == bpf.Never
}

// Proven says whether a live flow stays in a full table, as way_proven in flow.h does.
func Proven(meta uint64) bool {
	progress := meta >> bpf.StateShift
	return progress&bpf.FlowProven != 0 && progress&stateMask != bpf.FlowOpening
}

// stateMask covers enum flow_state.
const stateMask = bpf.FlowPlain | bpf.FlowOpening | bpf.FlowEstablished | bpf.FlowClosing
