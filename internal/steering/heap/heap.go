// Package heap orders the entries of a table by the time at which each is due.
//
// A table numbers its entries from 0, densely, as a slab with a list of free slots does. The heap stores the time together
// with the number, so that comparing two entries does not touch the table. It also stores the index of each number in the
// heap, so that a time can be changed or removed.
//
//	h.Set(slot, expiry)      // enter, or move to another time
//	slot, at, ok := h.First() // the entry that is due first
//	h.Remove(slot)
//
// Set and Remove take O(log n) and allocate nothing once the heap has reached its size. An entry takes 20 bytes. The package
// is pure: no clock, no goroutine, no lock.
package heap

import "github.com/weir-lb/weir/internal/steering/slab"

// fanout is the number of children of a node. Four children of 16 bytes share a cache line or two: a third fewer cache
// misses than with two children.
const fanout = 4

// Heap holds numbers ordered by a time of type T. The zero Heap is empty and ready to use. Not for concurrent use.
type Heap[T ~int64] struct {
	items   []item[T]
	indexes slab.Slab[int32] // by number: the index in items, plus 1; 0: not in the heap
}

type item[T ~int64] struct {
	at     T
	number int32
}

// New returns an empty heap with memory for n entries, so that growing to n never copies the heap.
func New[T ~int64](n int) Heap[T] { return Heap[T]{items: make([]item[T], 0, n)} }

// Len returns how many entries there are.
func (h *Heap[T]) Len() int { return len(h.items) }

// First returns the entry with the earliest time. ok is false when the heap is empty.
func (h *Heap[T]) First() (number int32, at T, ok bool) {
	if len(h.items) == 0 {
		return 0, 0, false
	}
	return h.items[0].number, h.items[0].at, true
}

// Set makes an entry due at a time and replaces an earlier time of the same number. number must not be negative.
func (h *Heap[T]) Set(number int32, at T) {
	for h.indexes.Len() <= int(number) {
		h.indexes.Grow()
	}
	index := int(*h.indexes.At(number)) - 1
	if index < 0 {
		h.items = append(h.items, item[T]{})
		h.up(len(h.items)-1, item[T]{at, number})
		return
	}
	h.fix(index, item[T]{at, number})
}

// Remove takes an entry out, if it is in the heap.
func (h *Heap[T]) Remove(number int32) {
	if int(number) >= h.indexes.Len() {
		return
	}
	index := int(*h.indexes.At(number)) - 1
	if index < 0 {
		return
	}
	*h.indexes.At(number) = 0
	end := len(h.items) - 1
	moved := h.items[end]
	h.items = h.items[:end]
	if index < end {
		h.fix(index, moved)
	}
}

// Clear removes all entries. The memory of the order is kept, that of the numbers is freed.
func (h *Heap[T]) Clear() {
	h.items = h.items[:0]
	h.indexes.Clear()
}

// fix puts i at an index whose item is no longer needed, or moves it to where the order requires it.
func (h *Heap[T]) fix(index int, i item[T]) {
	if index > 0 && i.at < h.items[(index-1)/fanout].at {
		h.up(index, i)
		return
	}
	h.down(index, i)
}

func (h *Heap[T]) up(index int, i item[T]) {
	for index > 0 {
		parent := (index - 1) / fanout
		if h.items[parent].at <= i.at {
			break
		}
		h.put(index, h.items[parent])
		index = parent
	}
	h.put(index, i)
}

func (h *Heap[T]) down(index int, i item[T]) {
	for {
		first := index*fanout + 1
		if first >= len(h.items) {
			break
		}
		earliest := first
		for c := first + 1; c < min(first+fanout, len(h.items)); c++ {
			if h.items[c].at < h.items[earliest].at {
				earliest = c
			}
		}
		if h.items[earliest].at >= i.at {
			break
		}
		h.put(index, h.items[earliest])
		index = earliest
	}
	h.put(index, i)
}

func (h *Heap[T]) put(index int, i item[T]) {
	h.items[index] = i
	*h.indexes.At(i.number) = int32(index) + 1
}
