package arena

import (
	"sync/atomic"
	"time"
)

const (
	// seenEvery is how often a process that serves is seen.
	seenEvery = 100 * time.Millisecond
	// clockSlack is by how much the monotonic clock may have gone further than the wall clock: it is adjusted while it runs.
	clockSlack = 10 * time.Second
)

// Seen stores that a process is at work at a time since the arena was made. The next process goes on from there if its monotonic clock has been
// moved meanwhile, because it is in another time namespace or on a machine that was restored: what was to be remembered for a
// while is neither forgotten at once nor remembered for ever. Safe from any goroutine; more calls than one in 100 ms cost a load each.
func (a *Arena) Seen(now time.Duration) {
	if last := atomic.LoadInt64(&a.header.seen); last != 0 && int64(now)-last < int64(seenEvery) {
		return
	}
	atomic.StoreInt64(&a.header.seen, int64(now)) // first: with a wall time that is too early the monotonic clock counts
	atomic.StoreInt64(&a.header.wall, time.Now().UnixNano())
}

// rebase lets the time of the arena go on where it was, if the monotonic clock has been moved since a process was last seen. Both are times of now.
func (a *Arena) rebase(monotonic, wall int64) {
	h := a.header
	if h.seen == 0 || h.wall == 0 {
		return
	}
	passed := monotonic - h.start - h.shift - h.seen
	if elapsed := elapsedBy(passed, wall-h.wall); elapsed != passed {
		atomic.StoreInt64(&h.shift, h.shift+passed-elapsed)
	}
}

// elapsedBy is how much time has passed, of which the two clocks say different things. The monotonic one is right, unless it says that time
// went back, or that much more time passed than by the wall clock. In doubt less time has passed: what is remembered for too long does no harm.
func elapsedBy(monotonic, wall int64) int64 {
	if monotonic >= 0 && monotonic-wall <= int64(clockSlack) {
		return monotonic
	}
	if monotonic < 0 {
		return max(wall, 0)
	}
	return max(min(monotonic, wall), 0)
}
