package tcpscale

import "time"

// pause is a time in which the process was stopped, in ticks.
type pause struct{ from, to uint32 }

// after is how much of the pause lies between since and now.
func (p pause) after(since, now uint32) uint32 {
	from, to := max(p.from, since), min(p.to, now)
	return max(to, from) - from
}

// stood has no connection pay for a time in which the process was stopped: neither as silence nor as a timeout. What is
// measured goes on in real time.
func (c *Client) stood(from, to time.Duration) {
	c.stop = pause{ticks(from), ticks(to)}
	length := c.stop.after(0, c.stop.to)
	for i := range min(c.fresh, c.slots.length()) {
		switch s := c.slots.at(i); s.state {
		case slotConnecting, slotHello:
			c.wheel.set(i, c.wheel.links.at(i).due+length)
		case slotUp:
			s.echoed, s.received = min(s.echoed+length, c.stop.to), min(s.received+length, c.stop.to)
		}
	}
}

// stood is as that of a client.
func (s *Server) stood(from, to time.Duration) {
	stop := pause{ticks(from), ticks(to)}
	length := stop.after(0, stop.to)
	s.swept = min(s.swept+length, stop.to)
	for _, part := range s.conns.parts {
		for i := range part {
			if c := &part[i]; c.state != serverFree {
				c.seen = min(c.seen+length, stop.to)
			}
		}
	}
}
