package maps

import "fmt"

// Ranges hands out runs of a element array: Maglev tables and owner tables. Runs
// start at multiples of four, so that no two share a map value.
type Ranges struct {
	memory []uint16
	Free   []Range // ordered, never adjacent
}

// Range is a part of a element array.
type Range struct{ Start, Length int }

func NewRanges(memory []uint16) *Ranges {
	return &Ranges{memory: memory, Free: []Range{{0, len(memory)}}}
}

// Take returns a run that holds n elements, or an error that says how to get more.
func (c *Ranges) Take(what string, n int) (Range, error) {
	want := (n + 3) &^ 3
	for i, f := range c.Free {
		if f.Length < want {
			continue
		}
		if f.Length == want {
			c.Free = append(c.Free[:i], c.Free[i+1:]...)
		} else {
			c.Free[i] = Range{f.Start + want, f.Length - want}
		}
		return Range{f.Start, want}, nil
	}
	return Range{}, fmt.Errorf("%s: %d elements do not fit into what is free of %d; use a smaller maglev_size or fewer services, or restart with room for more", what, n, len(c.memory))
}

// Give returns a run.
func (c *Ranges) Give(r Range) {
	if r.Length == 0 {
		return
	}
	at := len(c.Free)
	for i, f := range c.Free {
		if f.Start > r.Start {
			at = i
			break
		}
	}
	c.Free = append(c.Free, Range{})
	copy(c.Free[at+1:], c.Free[at:])
	c.Free[at] = r
	if at+1 < len(c.Free) && r.Start+r.Length == c.Free[at+1].Start {
		c.Free[at].Length += c.Free[at+1].Length
		c.Free = append(c.Free[:at+1], c.Free[at+2:]...)
	}
	if at > 0 && c.Free[at-1].Start+c.Free[at-1].Length == c.Free[at].Start {
		c.Free[at-1].Length += c.Free[at].Length
		c.Free = append(c.Free[:at], c.Free[at+1:]...)
	}
}

// Reserve marks a run as taken, for tables found in pinned maps. False: it is
// not free.
func (c *Ranges) Reserve(r Range) bool {
	for i, f := range c.Free {
		if r.Start < f.Start || r.Start+r.Length > f.Start+f.Length {
			continue
		}
		var parts []Range
		if r.Start > f.Start {
			parts = append(parts, Range{f.Start, r.Start - f.Start})
		}
		if end := r.Start + r.Length; end < f.Start+f.Length {
			parts = append(parts, Range{end, f.Start + f.Length - end})
		}
		c.Free = append(c.Free[:i], append(parts, c.Free[i+1:]...)...)
		return true
	}
	return false
}

// Of returns the elements of a run.
func (c *Ranges) Of(r Range) []uint16 { return c.memory[r.Start : r.Start+r.Length] }

// Used is how many elements are taken.
func (c *Ranges) Used() int {
	n := len(c.memory)
	for _, f := range c.Free {
		n -= f.Length
	}
	return n
}
