package tcpscale

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/rate"
)

// tick is the resolution of all timers.
const tick = 100 * time.Millisecond

// ticks is the tick that a time since the start lies in; the first is 1, so that 0 can mean never.
func ticks(now time.Duration) uint32 { return uint32(now/tick) + 1 }

// inTicks is a length in ticks, rounded up.
func inTicks(d time.Duration) uint32 { return uint32((d + tick - 1) / tick) }

const chunkSize = 1024

// chunks is a table that grows without moving what it holds, and so without ever needing twice its memory.
type chunks[T any] struct{ parts []*[chunkSize]T }

// at returns the entry, made if it is new.
func (c *chunks[T]) at(i int32) *T {
	for int(i)/chunkSize >= len(c.parts) {
		c.parts = append(c.parts, new([chunkSize]T))
	}
	return &c.parts[i/chunkSize][i%chunkSize]
}

// length is one more than the highest index that has memory.
func (c *chunks[T]) length() int32 { return int32(len(c.parts) * chunkSize) }

const wheelSlots = 1024

// wheel holds one timer for each id. An entry whose time is more than a turn away stays in its slot until it is due.
type wheel struct {
	heads [wheelSlots]int32 // id + 1; 0 is none
	links chunks[link]
	next  uint32 // the first tick that was not served
	fired []int32
}

type link struct {
	next, prev int32  // id + 1; 0 is none
	due        uint32 // tick; 0: not armed
}

// set arms the timer of id for a tick, at the earliest the next one that is served.
func (w *wheel) set(id int32, due uint32) {
	w.cancel(id)
	due = max(due, w.next, 1)
	l := w.links.at(id)
	head := &w.heads[due%wheelSlots]
	l.next, l.prev, l.due = *head, 0, due
	if *head != 0 {
		w.links.at(*head - 1).prev = id + 1
	}
	*head = id + 1
}

func (w *wheel) cancel(id int32) {
	l := w.links.at(id)
	if l.due == 0 {
		return
	}
	if l.prev != 0 {
		w.links.at(l.prev - 1).next = l.next
	} else {
		w.heads[l.due%wheelSlots] = l.next
	}
	if l.next != 0 {
		w.links.at(l.next - 1).prev = l.prev
	}
	*l = link{}
}

// advance calls fire for each id that is due by now. fire may set and cancel timers; an id whose timer another one's fire
// has cancelled in the same round may still fire.
func (w *wheel) advance(now uint32, fire func(id int32)) {
	if now < w.next {
		return
	}
	w.fired = w.fired[:0]
	first := w.next
	if now-first >= wheelSlots {
		first = now - wheelSlots + 1 // every slot once is enough
	}
	for t := first; t <= now; t++ {
		for id := w.heads[t%wheelSlots]; id != 0; {
			l := w.links.at(id - 1)
			following := l.next
			if l.due <= now {
				w.fired = append(w.fired, id-1)
				w.cancel(id - 1)
			}
			id = following
		}
	}
	w.next = now + 1
	for _, id := range w.fired {
		fire(id)
	}
}

// bucket bounds how often something happens. Without a rate it does not.
type bucket struct {
	rate.Bucket
	cost time.Duration // 0: no limit
}

// burst is how long tokens are saved for.
const burst = 250 * time.Millisecond

// newBucket returns one that has no token yet at now.
func newBucket(perSecond float64, now time.Duration) bucket {
	if perSecond <= 0 {
		return bucket{}
	}
	return bucket{rate.Empty(now, burst), rate.Cost(1, perSecond)}
}

// take takes up to n tokens and returns how many it got.
func (b *bucket) take(now time.Duration, n int) int {
	if b.cost == 0 {
		return n
	}
	return b.TakeUpTo(now, b.cost, burst, n)
}
