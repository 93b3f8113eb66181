package slab

// Numbers gives each entry of a table a dense number from 0 on; freed numbers are used again. Orders of eviction (package
// evict) and of time (package heap) can thereby refer to entries that are allocated elsewhere. The zero Numbers is empty.
// Not for concurrent use.
type Numbers[T any] struct {
	entries []*T
	free    []int32
}

// Put gives an entry a number.
func (n *Numbers[T]) Put(entry *T) (number int32) {
	if last := len(n.free) - 1; last >= 0 {
		number = n.free[last]
		n.free = n.free[:last]
		n.entries[number] = entry
		return number
	}
	n.entries = append(n.entries, entry)
	return int32(len(n.entries) - 1)
}

// At returns the entry of a number that Put has returned and Remove has not freed.
func (n *Numbers[T]) At(number int32) *T { return n.entries[number] }

// Remove frees a number.
func (n *Numbers[T]) Remove(number int32) {
	n.entries[number] = nil
	n.free = append(n.free, number)
}

// Len returns how many numbers are in use, and Size how many there are in all.
func (n *Numbers[T]) Len() int  { return len(n.entries) - len(n.free) }
func (n *Numbers[T]) Size() int { return len(n.entries) }
