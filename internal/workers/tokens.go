package workers

import "github.com/weir-lb/weir/internal/steering/slab"

// OwnTokens is the lowest token that Tokens never returns: a worker may give the values from here on to what it
// watches all the time.
const OwnTokens = uint64(1) << 62

const generationMask = 1<<30 - 1

// Tokens gives everything that a worker's poller watches a token: a number below, a generation above. The generation
// identifies the late token of something that was removed in the same iteration. The zero Tokens is empty. It belongs
// to one goroutine.
type Tokens[T any] struct {
	slots slab.Slab[tokenSlot[T]]
	free  int32 // the first unused slot, plus 1; linked by next
}

type tokenSlot[T any] struct {
	value      T
	generation uint32
	next       int32
	used       bool
}

// Number is the token's number. Numbers are dense, and are used again after Remove.
func Number(token uint64) int32 { return int32(uint32(token)) }

// Add returns the token of a new value.
func (t *Tokens[T]) Add(value T) (token uint64) {
	number := t.free - 1
	if number < 0 {
		number = t.slots.Grow()
	} else {
		t.free = t.slots.At(number).next
	}
	s := t.slots.At(number)
	s.value, s.used = value, true
	return uint64(number) | uint64(s.generation)<<32
}

// At returns the value of a token, or the zero value if it was removed.
func (t *Tokens[T]) At(token uint64) (value T) {
	number := Number(token)
	if number < 0 || int(number) >= t.slots.Len() {
		return value
	}
	if s := t.slots.At(number); s.generation == uint32(token>>32) {
		return s.value
	}
	return value
}

// Remove frees the token of a value.
//
// There are 2^30 generations. If the same number is freed each millisecond, they repeat after twelve days; tokens
// live for one iteration.
func (t *Tokens[T]) Remove(token uint64) {
	number := Number(token)
	*t.slots.At(number) = tokenSlot[T]{generation: (uint32(token>>32) + 1) & generationMask, next: t.free}
	t.free = number + 1
}

// Size is how many numbers there are, in use or not.
func (t *Tokens[T]) Size() int { return t.slots.Len() }

// Value returns the value of a number below Size, or the zero value if it is not in use.
func (t *Tokens[T]) Value(number int32) T { return t.slots.At(number).value }

// All yields every value.
func (t *Tokens[T]) All(yield func(T) bool) {
	for n := range int32(t.slots.Len()) {
		if s := t.slots.At(n); s.used && !yield(s.value) {
			return
		}
	}
}
