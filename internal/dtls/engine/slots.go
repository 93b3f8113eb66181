package engine

// slots numbers the entries of a bounded table, for evict.Order. Numbers that have become free are used again.
type slots[T any] struct {
	entries []*T
	free    []int32
}

func (s *slots[T]) put(entry *T) int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		s.entries[slot] = entry
		return slot
	}
	s.entries = append(s.entries, entry)
	return int32(len(s.entries) - 1)
}

func (s *slots[T]) remove(slot int32) {
	s.entries[slot] = nil
	s.free = append(s.free, slot)
}
