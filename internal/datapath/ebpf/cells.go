package ebpf

import "fmt"

// cells hands out runs of a cell array: Maglev tables and owner tables. Runs
// start at multiples of four, so that no two share a map value.
type cells struct {
	memory []uint16
	free   []run // ordered, never adjacent
}

// run is a part of a cell array.
type run struct{ start, length int }

func newCells(memory []uint16) *cells {
	return &cells{memory: memory, free: []run{{0, len(memory)}}}
}

// take returns a run that holds n cells, or an error that says how to get more.
func (c *cells) take(what string, n int) (run, error) {
	want := (n + 3) &^ 3
	for i, f := range c.free {
		if f.length < want {
			continue
		}
		if f.length == want {
			c.free = append(c.free[:i], c.free[i+1:]...)
		} else {
			c.free[i] = run{f.start + want, f.length - want}
		}
		return run{f.start, want}, nil
	}
	return run{}, fmt.Errorf("%s: %d cells do not fit into what is free of %d; use a smaller maglev_size or fewer services, or restart with room for more", what, n, len(c.memory))
}

// give returns a run.
func (c *cells) give(r run) {
	if r.length == 0 {
		return
	}
	at := len(c.free)
	for i, f := range c.free {
		if f.start > r.start {
			at = i
			break
		}
	}
	c.free = append(c.free, run{})
	copy(c.free[at+1:], c.free[at:])
	c.free[at] = r
	if at+1 < len(c.free) && r.start+r.length == c.free[at+1].start {
		c.free[at].length += c.free[at+1].length
		c.free = append(c.free[:at+1], c.free[at+2:]...)
	}
	if at > 0 && c.free[at-1].start+c.free[at-1].length == c.free[at].start {
		c.free[at-1].length += c.free[at].length
		c.free = append(c.free[:at], c.free[at+1:]...)
	}
}

// reserve marks a run as taken, for tables found in pinned maps. False: it is
// not free.
func (c *cells) reserve(r run) bool {
	for i, f := range c.free {
		if r.start < f.start || r.start+r.length > f.start+f.length {
			continue
		}
		var parts []run
		if r.start > f.start {
			parts = append(parts, run{f.start, r.start - f.start})
		}
		if end := r.start + r.length; end < f.start+f.length {
			parts = append(parts, run{end, f.start + f.length - end})
		}
		c.free = append(c.free[:i], append(parts, c.free[i+1:]...)...)
		return true
	}
	return false
}

// of returns the cells of a run.
func (c *cells) of(r run) []uint16 { return c.memory[r.start : r.start+r.length] }
