package tcpscale

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A client that closes waits so long for its peers' last word, after the last one that came, and in all.
const (
	farewellPause = 2 * time.Second
	farewellLimit = 8 * time.Second
)

// Close says goodbye and waits until the peers have received it, for a few seconds at most, and resets what is left then. A
// reset at once could reach a server before it has read the goodbye, or has answered a heartbeat before that. Our servers
// answer a goodbye with a reset, so nothing is left in TIME_WAIT.
func (c *Client) Close() {
	waiting := 0
	bye := frame{kind: frameBye}
	n := bye.put(c.write[:])
	for i := range min(c.fresh, c.slots.length()) {
		s := c.slots.at(i)
		switch {
		case s.state < slotConnecting:
		case s.state == slotConnecting || c.config.Plain: // a foreign server would leave us in TIME_WAIT
			c.release(i, true)
		default:
			if _, err := writeNow(s.fd, c.write[:n]); err != nil || unix.Shutdown(int(s.fd), unix.SHUT_WR) != nil {
				c.release(i, true)
				continue
			}
			waiting++
		}
	}
	c.farewell(waiting)
	for i := range min(c.fresh, c.slots.length()) {
		if c.slots.at(i).state >= slotConnecting {
			c.release(i, true)
		}
	}
	unix.Close(c.epoll)
}

// farewell closes each of so many connections once its peer has closed it.
func (c *Client) farewell(waiting int) {
	events := make([]unix.EpollEvent, maxEvents)
	began := time.Now()
	for last := began; waiting > 0; {
		n, err := unix.EpollWait(c.epoll, events, int(tick/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		now := time.Now()
		for _, e := range events[:max(n, 0)] {
			s := c.slots.at(e.Fd)
			if s.generation == e.Pad && s.state >= slotConnecting && e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
				c.release(e.Fd, true)
				waiting--
				last = now
			}
		}
		if now.Sub(last) > farewellPause || now.Sub(began) > farewellLimit {
			return
		}
	}
}
