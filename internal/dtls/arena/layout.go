package arena

import (
	"hash/crc32"
	"sync/atomic"
	"unsafe"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// version is that of the layout of header and slot. Whoever changes one of them increments it, and converts what the version
// before has written.
const version = 1

const (
	headerSize = 4096
	fixedSize  = int(unsafe.Sizeof(fixed{}))
	alignment  = 64 // of slots and blocks: a cache line

	// MaxIdentity is the longest identity of a session that can be kept, in bytes. RFC 4279 section 5.3 requires servers to support 128.
	MaxIdentity = 128
)

// header is the first page.
type header struct {
	magic       [8]byte
	version     uint32
	fixedSize   uint32 // bytes of a slot that this package knows
	slots       uint64
	blocks      uint64
	blockSize   uint64
	application uint32 // Config.Version

	applicationSize uint32
	start           int64    // CLOCK_MONOTONIC in nanoseconds
	boot            [36]byte // boot id of the machine: monotonic clocks of two boots have nothing in common
	sum             uint32   // CRC-32C of what stands before

	high       uint64 // slots that were ever used
	generation uint64 // of the newest session

	shift int64 // added to start: see rebase
	seen  int64 // time since the arena was made when a process was last seen; 0: not known
	wall  int64 // the same moment, or an earlier one, by the wall clock, in nanoseconds since 1970
}

// The words that every record changes share one cache line.
const _ = -(unsafe.Offsetof(fixed{}.sent) % alignment)

// fixed is the part of a slot that this package knows; the application's bytes follow.
type fixed struct {
	generation word // 0: the slot is free
	sum        uint32
	static     static

	worker word
	path   selector

	// One cache line of what every record changes.
	sent     word
	forged   word
	active   word // milliseconds
	received selector
	windows  [2]window

	paths [2]path
}

// static is what never changes.
type static struct {
	suite       uint16
	auth        uint8
	flags       uint8
	limit       uint16
	readLength  uint8
	writeLength uint8
	identity    uint8 // length
	_           [3]byte
	established int64
	keys        record.Keys
	readCID     [record.MaxCID]byte
	writeCID    [record.MaxCID]byte
	name        [MaxIdentity]byte
}

type window struct{ next, bits uint64 }

type path struct {
	addr, local [16]byte
	port        uint16
	flags       uint8
	_           [5]byte
}

// Flags of a path. An address of IPv4 is stored as IPv4 mapped; pathMapped says that it was one of IPv6.
const (
	pathProven = 1 << iota
	pathLocal
	pathMapped
	pathLocalMapped
)

const (
	valueBits = 48
	valueMask = 1<<valueBits - 1
)

// word is a value of 48 bits and, above it, 16 bits that tell whether the value is one that was stored for this generation.
type word uint64

// mix spreads the bits of two values (the multiplication and shifts of splitmix64).
func mix(a, b uint64) uint64 {
	a ^= b * 0x9e3779b97f4a7c15
	a = (a ^ a>>30) * 0xbf58476d1ce4e5b9
	a = (a ^ a>>27) * 0x94d049bb133111eb
	return a ^ a>>31
}

// set stores a value. salt is different for every word of the arena that must not be taken for this one.
func (w *word) set(value, salt uint64) {
	atomic.StoreUint64((*uint64)(w), value&valueMask|mix(value, salt)<<valueBits)
}

// get returns the value, and whether it is one that set has stored with this salt.
func (w *word) get(salt uint64) (value uint64, ok bool) {
	v := atomic.LoadUint64((*uint64)(w))
	value = v & valueMask
	return value, v>>valueBits == mix(value, salt)&0xffff
}

// selector counts the changes of something that exists twice: the copy in use is number count modulo 2. Its check covers that
// copy.
type selector struct{ word }

// Salts of the words of a slot, added to the generation.
const (
	saltGeneration = iota << valueBits
	saltWorker
	saltSent
	saltForged
	saltActive
	saltReceived
	saltPath
	saltNote // alone: the note is copied with the application's bytes
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the library makes the table once

// bytesOf returns the memory of v.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func (s *static) checksum() uint32 { return crc32.Checksum(bytesOf(s), castagnoli()) }

func (h *header) checksum() uint32 {
	return crc32.Checksum(bytesOf(h)[:unsafe.Offsetof(h.sum)], castagnoli())
}

func (w *window) check() uint64 { return mix(w.next, w.bits) }

func (p *path) check() uint64 { return uint64(crc32.Checksum(bytesOf(p), castagnoli())) }
