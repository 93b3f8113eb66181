package client

import "time"

// timers is a heap of the clients' due times. A client has at most one; an older entry of it is recognised and skipped.
type timers struct {
	heap []timer
}

type timer struct {
	at time.Duration
	c  *simulated
}

// set makes c due at a time, in place of any earlier setting.
func (t *timers) set(c *simulated, at time.Duration) {
	if c.timer == at {
		return
	}
	c.timer = at
	t.heap = append(t.heap, timer{at, c})
	for i := len(t.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if t.heap[parent].at <= t.heap[i].at {
			break
		}
		t.heap[parent], t.heap[i] = t.heap[i], t.heap[parent]
		i = parent
	}
}

func (t *timers) clear(c *simulated) { c.timer = 0 }

// next is the time of the earliest entry.
func (t *timers) next() (time.Duration, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].at, true
}

// run calls due for every client whose time has come.
func (t *timers) run(now time.Duration) {
	for len(t.heap) > 0 && t.heap[0].at <= now {
		first := t.heap[0]
		t.pop()
		if first.c.timer == first.at {
			first.c.timer = 0
			first.c.due()
		}
	}
}

func (t *timers) pop() {
	last := len(t.heap) - 1
	t.heap[0] = t.heap[last]
	t.heap[last] = timer{}
	t.heap = t.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return
		}
		if child+1 < last && t.heap[child+1].at < t.heap[child].at {
			child++
		}
		if t.heap[i].at <= t.heap[child].at {
			return
		}
		t.heap[i], t.heap[child] = t.heap[child], t.heap[i]
		i = child
	}
}
