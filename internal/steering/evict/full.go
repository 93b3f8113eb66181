package evict

import "time"

// quiet is how long nothing may have had to make room in a table until the table counts as full no more.
const quiet = time.Minute

// Full finds out when a table becomes full. The zero Full has seen no table. Not for concurrent use.
type Full struct {
	total uint64        // as seen last
	until time.Duration // the table counts as full
	seen  bool
	full  bool
}

// Becomes reports whether the table has become full since the last call: total, the running total of entries that made room or found none,
// has grown, and had not grown for a minute. The first call notes the total only.
func (f *Full) Becomes(total uint64, now time.Duration) bool {
	grown := f.seen && total > f.total
	f.total, f.seen = total, true
	if f.full && now >= f.until {
		f.full = false
	}
	if !grown {
		return false
	}
	became := !f.full
	f.full, f.until = true, now+quiet
	return became
}
