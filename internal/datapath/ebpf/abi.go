package ebpf

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/flow"
)

// This file alone converts between Go values and the byte order of the maps:
// addresses and ports are in network order there, the rest is little-endian.

// words returns an address as the maps hold it, IPv4 mapped.
func words(a [16]byte) (w [4]uint32) {
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(a[4*i:])
	}
	return w
}

// addressWords is words of a netip.Addr; the invalid one is all zeros.
func addressWords(a netip.Addr) [4]uint32 {
	if !a.IsValid() {
		return [4]uint32{}
	}
	return words(a.As16())
}

// fromWords is the inverse of addressWords, IPv4 unmapped.
func fromWords(w [4]uint32) netip.Addr {
	var a [16]byte
	for i, x := range w {
		binary.LittleEndian.PutUint32(a[4*i:], x)
	}
	return netip.AddrFrom16(a).Unmap()
}

// swap16 turns a port from host to network order and back.
func swap16(p uint16) uint16 { return bits.ReverseBytes16(p) }

// maskWords returns the two 64-bit halves of a prefix mask of n of 128 bits, as
// the program loads them.
func maskWords(n int) [2]uint64 {
	var b [16]byte
	for i := range n {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return [2]uint64{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// halves joins the words of an address as the program does.
func halves(w [4]uint32) (a, b uint64) {
	return uint64(w[1])<<32 | uint64(w[0]), uint64(w[3])<<32 | uint64(w[2])
}

// flowKey is the Go form of a key in flow_entries.
func flowKey(e *bpf.FlowEntry) flow.Key {
	src := netip.AddrPortFrom(fromWords(e.Key.Src), swap16(e.Key.Sport))
	dst := netip.AddrPortFrom(fromWords(e.Key.Dst), swap16(e.Key.Dport))
	return flow.NewKey(src, dst, e.Key.Proto)
}

// Layout of way.meta; see types.h.
const (
	expiryShift = 27
	expiryNever = 1<<37 - 1
	noSlot      = 0xffff
)

// ticks turns a duration into ticks of the data path's clock, rounded up; the
// greatest value stands for ever.
func (c clock) ticks(d time.Duration) uint32 {
	n := (d + c.tick - 1) / c.tick
	if d > math.MaxInt64-c.tick || n >= math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

// hopShift makes stretches of time of up to eight seconds out of ticks: how
// long a flow remembers the way to its client.
func (c clock) hopShift() uint32 { return uint32(bits.Len32(c.ticks(8*time.Second)) - 1) }

// clock is the data path's: the kernel's tick, or a counter of milliseconds
// that tests set.
type clock struct {
	tick   time.Duration
	manual bool
}
