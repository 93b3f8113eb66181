package flowfile

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weir-lb/weir/internal/steering/steer"
)

// recordSize is a cache line.
const recordSize = 64

// Bits of a record's flags.
const flagProven = 1

// check is the hash of a record's bytes after the first eight; never zero. It finds writes that were cut short, not forgeries.
func check(record []byte) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for i := 8; i < recordSize; i += 8 {
		h = (h ^ binary.LittleEndian.Uint64(record[i:])) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return max(h, 1)
}

// checkOf is where a record's check is, for stores in order.
func checkOf(record []byte) *uint64 { return (*uint64)(unsafe.Pointer(&record[0])) }

// write writes a record. until is by the clock of the file.
func write(record []byte, f *steer.KeptFlow, until time.Duration) {
	_ = record[recordSize-1]
	atomic.StoreUint64(checkOf(record), 0)
	binary.LittleEndian.PutUint64(record[8:], f.Backend)
	binary.LittleEndian.PutUint64(record[16:], uint64(until))
	copy(record[24:40], f.Key.Src[:])
	copy(record[40:56], f.Key.Dst[:])
	binary.LittleEndian.PutUint16(record[56:], f.Key.SrcPort)
	binary.LittleEndian.PutUint16(record[58:], f.Key.DstPort)
	flags := byte(0)
	if f.Proven {
		flags = flagProven
	}
	record[60], record[61], record[62], record[63] = f.Key.Proto, f.State, flags, 0
	atomic.StoreUint64(checkOf(record), check(record))
}

// read reads a record. used is false if there is no entry; ok is false if it is damaged.
func read(record []byte) (f steer.KeptFlow, used, ok bool) {
	sum := binary.LittleEndian.Uint64(record)
	if sum == 0 {
		return f, false, true
	}
	if sum != check(record) || record[62]&^flagProven != 0 || record[63] != 0 {
		return f, true, false
	}
	f.Backend = binary.LittleEndian.Uint64(record[8:])
	f.Until = time.Duration(binary.LittleEndian.Uint64(record[16:]))
	copy(f.Key.Src[:], record[24:40])
	copy(f.Key.Dst[:], record[40:56])
	f.Key.SrcPort, f.Key.DstPort = binary.LittleEndian.Uint16(record[56:]), binary.LittleEndian.Uint16(record[58:])
	f.Key.Proto, f.State, f.Proven = record[60], record[61], record[62]&flagProven != 0
	return f, true, f.Until >= 0
}
