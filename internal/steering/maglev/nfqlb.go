package maglev

import "slices"

// BuildNFQLB returns the table that nfqlb builds. slots are the numbers of its active targets, and each element of the table
// is an index in slots. Row n of the permutation consists of two numbers from the GNU C library's rand() with seed 1, so it
// depends only on the number of the slot. size is a prime above the number of targets.
func BuildNFQLB(slots []int, size int) []int32 {
	table := make([]int32, size)
	for i := range table {
		table[i] = -1
	}
	if len(slots) == 0 {
		return table
	}
	order := make([]int, len(slots)) // rows take turns by slot number
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return slots[a] - slots[b] })
	rows := make([]row, len(slots))
	random := newRandom()
	drawn := 0
	for i, place := range order {
		var offset, skip int
		for ; drawn <= slots[place]; drawn++ {
			offset, skip = random.next(), random.next()
		}
		rows[i] = row{entry: int32(place), slot: offset % size, skip: skip%(size-1) + 1}
	}
	for filled := 0; filled < size; filled++ {
		r := &rows[filled%len(rows)]
		table[r.claim(table)] = r.entry
	}
	return table
}

// PrimeBelow returns the greatest prime up to n, or 2.
func PrimeBelow(n int) int {
	for ; n > 2; n-- {
		if IsPrime(n) {
			return n
		}
	}
	return 2
}

// random is the GNU C library's rand() with seed 1: an additive feedback
// generator (its TYPE_3) over the last 31 numbers.
type random struct {
	last [31]uint32
	at   int
}

func newRandom() *random {
	r := &random{at: 3}
	r.last[0] = 1
	for i := 1; i < len(r.last); i++ {
		r.last[i] = uint32(uint64(r.last[i-1]) * 16807 % (1<<31 - 1))
	}
	for range 310 {
		r.next()
	}
	return r
}

// next returns a number of 31 bits.
func (r *random) next() int {
	v := r.last[r.at] + r.last[(r.at+28)%31] // 31 and 3 numbers ago
	r.last[r.at] = v
	r.at = (r.at + 1) % 31
	return int(v >> 1)
}
