package evict

import (
	"testing"
	"time"
)

// A table becomes full once however long it stays so, and again only after a minute in which nothing had to make room.
func TestBecomesFull(t *testing.T) {
	var f Full
	for _, step := range []struct {
		at    time.Duration
		total uint64
		want  bool
	}{
		{0, 7, false}, // of an earlier process
		{1 * time.Second, 7, false},
		{2 * time.Second, 8, true},
		{3 * time.Second, 900, false},
		{62 * time.Second, 901, false},
		{100 * time.Second, 901, false},
		{121 * time.Second, 902, false}, // 59 s after the last one
		{181 * time.Second, 903, true},
		{300 * time.Second, 903, false},
		{301 * time.Second, 904, true},
		{302 * time.Second, 0, false}, // the counters begin again
		{303 * time.Second, 1, false},
	} {
		if got := f.Becomes(step.total, step.at); got != step.want {
			t.Errorf("at %s, total %d: %t", step.at, step.total, got)
		}
	}
}
