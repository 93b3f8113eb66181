package maglev

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
)

// DefaultSize is the table size of the Maglev paper's small set-up: a prime that is large enough to spread hundreds of
// entries evenly to within 1 %.
const DefaultSize = 65537

// MaxSize bounds a table; larger sizes are refused by the configuration.
const MaxSize = 1 << 24

// Entry is one backend that may own slots.
type Entry struct {
	Name   string // seeds the permutation; unique
	Weight int    // share of slots; below 1: none
}

// Build returns a table of size slots, each the index in entries of its owner,
// or -1 in every slot if no entry has weight. Size should be a prime well above
// the number of entries (IsPrime); other sizes work but spread less evenly. The
// result depends on the set of entries only, not on their order.
func Build(entries []Entry, size int) []int32 {
	if size < 1 {
		return nil
	}
	table := make([]int32, size)
	for i := range table {
		table[i] = -1
	}
	rows := permutations(entries, size)
	if len(rows) == 0 {
		return table
	}
	heaviest := 0
	for i := range rows {
		heaviest = max(heaviest, rows[i].weight)
	}
	for filled := 0; ; {
		for i := range rows {
			r := &rows[i]
			// Each round adds the weight to the credit, and a turn costs the largest weight. These are integers, so no
			// rounding differs between machines.
			for r.credit += r.weight; r.credit >= heaviest; r.credit -= heaviest {
				table[r.claim(table)] = r.entry
				if filled++; filled == size {
					return table
				}
			}
		}
	}
}

// row walks one entry's permutation: slot = (offset + n*skip) mod size.
type row struct {
	name           string
	entry          int32
	weight, credit int
	slot, skip     int
}

func permutations(entries []Entry, size int) []row {
	var rows []row
	for i, e := range entries {
		if e.Weight < 1 {
			continue
		}
		offset, skip := seeds(e.Name, size)
		rows = append(rows, row{
			name: e.Name, entry: int32(i), weight: e.Weight, slot: offset, skip: skip,
		})
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	return rows
}

// claim returns the next free slot of the permutation.
func (r *row) claim(table []int32) int {
	for steps := 0; ; steps++ {
		s := r.slot
		r.slot = (r.slot + r.skip) % len(table)
		if table[s] < 0 {
			return s
		}
		// If size shares a factor with skip, the permutation visits only a part of the slots: go through the rest one by
		// one.
		if steps > len(table) {
			r.skip, steps = 1, 0
		}
	}
}

// seeds computes offset and skip from the name.
func seeds(name string, size int) (offset, skip int) {
	h1, h2 := mix(name, 0x9ae16a3b2f90404f), mix(name, 0xc949d7c7509e6557)
	offset = int(h1 % uint64(size))
	skip = 1
	if size > 2 {
		skip = int(h2%uint64(size-1)) + 1
	}
	return offset, skip
}

// mix is a fixed 64-bit hash (FNV-1a over 8-byte words, finished by the SplitMix64 finaliser). It defines the table:
// changing it moves flows.
func mix(name string, seed uint64) uint64 {
	h := seed ^ uint64(len(name))*0x100000001b3
	var word [8]byte
	for len(name) > 0 {
		word = [8]byte{}
		name = name[copy(word[:], name):]
		h = bits.RotateLeft64((h^binary.LittleEndian.Uint64(word[:]))*0x9fb21c651e98df25, 29)
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// IsPrime reports whether n is a prime number; for configuration checks.
func IsPrime(n int) bool {
	if n < 2 {
		return false
	}
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}
