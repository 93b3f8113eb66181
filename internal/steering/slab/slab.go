// Package slab is an array that grows by one small block at a time, so that an insertion into a large table never copies
// the table. Elements keep their address.
//
//	var s slab.Slab[entry]
//	number := s.Grow() // the number of a new zero element
//	s.At(number).key = k
//
// The package is pure.
package slab

const (
	blockBits = 9
	blockSize = 1 << blockBits
)

// Slab is an array of elements, numbered from 0. The zero Slab is empty. Not for concurrent use.
type Slab[T any] struct {
	blocks []*[blockSize]T
	count  int32
}

// Grow appends a zero element and returns its number. It allocates once in 512 calls.
func (s *Slab[T]) Grow() int32 {
	n := s.count
	if int(n>>blockBits) == len(s.blocks) {
		s.blocks = append(s.blocks, new([blockSize]T))
	}
	s.count++
	return n
}

// At returns an element. n must be below Len.
func (s *Slab[T]) At(n int32) *T { return &s.blocks[n>>blockBits][n&(blockSize-1)] }

// Len returns how many elements there are.
func (s *Slab[T]) Len() int { return int(s.count) }

// Clear removes all elements and frees their memory.
func (s *Slab[T]) Clear() { *s = Slab[T]{} }
