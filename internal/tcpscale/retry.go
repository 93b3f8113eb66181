package tcpscale

import (
	"math"
	"math/rand/v2"
	"time"
)

// fail ends a connection or a try, and has it tried again.
func (c *Client) fail(i int32, kind Failure, why error) {
	s := c.slots.at(i)
	fd := s.fd
	if s.state == slotUp {
		c.bad[s.target] = true
		c.count.totals.Lost++
		s.lost = max(c.now, 1)
		after := c.now - s.began
		if kind == Silent || kind == OneWay || kind == Hung {
			after = time.Duration(ticks(c.now)-s.echoed) * tick
			c.latencies.detected.record(after)
		}
		c.sample(i, fd, kind, why, after)
		c.marks.lost(c.serverID(s), kind, c.now)
		c.count.failures[kind]++
		c.release(i, true)
		c.later(i)
		return
	}
	c.failed(i, fd, kind, why)
}

// failed is a try that has failed; fd is -1 if it had no socket.
func (c *Client) failed(i, fd int32, kind Failure, why error) {
	s := c.slots.at(i)
	if kind != OutOfPorts && kind != OutOfFiles && kind != OutOfMemory { // which are our own
		c.bad[s.target] = true
	}
	c.count.totals.Failed++
	c.count.failures[kind]++
	c.sample(i, fd, kind, why, c.now-s.began)
	if fd >= 0 {
		c.release(i, true)
	}
	c.later(i)
}

// later has a slot tried again elsewhere, after a wait with a share of chance, so that those who lost together do not come
// back together. It doubles once the slot has failed as often as there are targets: one that was not asked yet is worth the
// shortest wait.
func (c *Client) later(i int32) {
	s := c.slots.at(i)
	wait := c.config.BackoffMin << min(int(s.tries)/min(len(c.targets), backoffTargets), 16)
	if wait > c.config.BackoffMax || wait < 0 {
		wait = c.config.BackoffMax
	}
	c.elsewhere(s)
	s.state = slotWaiting
	c.count.connections.Waiting++
	wait += time.Duration(rand.Int64N(int64(wait/2) + 1))
	c.wheel.set(i, ticks(c.now)+inTicks(wait))
}

const (
	backoffTargets = 8 // where there are more, waits double as if there were so many
	draws          = 6
)

// elsewhere chooses the target of the next try: any but the last one, by chance, so that all others share what one has lost.
// One that has failed since it last answered is passed over if another is drawn, and so is one that has its share of
// unfinished connects already: a full server answers none, and would hold up everybody.
func (c *Client) elsewhere(s *slot) {
	s.tries += uint16(min(1, math.MaxUint16-int(s.tries)))
	n := len(c.targets)
	if n == 1 {
		return
	}
	share := int32(c.config.InFlight/n + 1)
	last := int(s.target)
	for range draws {
		s.target = uint16((last + 1 + rand.IntN(n-1)) % n)
		if !c.bad[s.target] && c.open[s.target] < share {
			return
		}
	}
}

func (c *Client) sample(i, fd int32, kind Failure, why error, after time.Duration) {
	if len(c.count.samples) >= maxSamples {
		return
	}
	s := c.slots.at(i)
	t := FailedTuple{At: c.wall(), Kind: kind.String(), Remote: c.targets[s.target].text, AfterMS: float64(after.Microseconds()) / 1000}
	if fd >= 0 {
		t.Local = localName(int(fd))
	}
	if why != nil {
		t.Error = why.Error()
	}
	c.count.samples = append(c.count.samples, t)
}
