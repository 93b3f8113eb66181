package tcpscale

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// handle serves what the kernel has reported.
func (c *Client) handle(events []unix.EpollEvent, now time.Duration) {
	c.now = now
	for i := range events {
		e := &events[i]
		s := c.slots.at(e.Fd)
		if s.generation != e.Pad || s.state < slotConnecting {
			continue // of a descriptor that is closed
		}
		if s.state == slotConnecting && !c.connected(e.Fd, s, e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0) {
			continue
		}
		if e.Events&^unix.EPOLLOUT != 0 {
			c.readable(e.Fd, s)
		}
	}
}

// connected says hello once TCP is up; false: it is not, or not any more.
func (c *Client) connected(i int32, s *slot, broken bool) bool {
	if broken {
		errno, err := unix.GetsockoptInt(int(s.fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err != nil {
			c.fail(i, classify(err, true), err)
			return false
		}
	}
	s.state = slotHello
	c.count.connections.Unanswered++
	s.seq, s.echo, s.skip = 0, 0, 0
	if c.config.Plain {
		c.established(i, s)
		return true
	}
	hello := frame{
		kind: frameClientHello, run: c.config.Run, client: c.config.Client, connection: uint32(i),
		period: c.config.Heartbeat, misses: uint8(c.config.Misses),
	}
	if c.config.Payload > 0 {
		hello.mode = modeEcho
	}
	return c.send(i, c.write[:hello.put(c.write[:])])
}

// readable reads until nothing is left: the kernel reports an edge only once. A read that does not fill its room has
// taken all (epoll(7)), and what comes after it is another edge.
func (c *Client) readable(i int32, s *slot) {
	for s.state >= slotHello {
		held := copy(c.read[:], c.partial[i])
		n, err := readNow(s.fd, c.read[held:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			c.fail(i, c.broken(s, err), err)
			return
		case n == 0:
			c.fail(i, Closed, nil)
			return
		}
		c.count.bytes.Received += uint64(n)
		s.received = ticks(c.now)
		all := held+n < len(c.read)
		if c.config.Plain {
			if all {
				return
			}
			continue
		}
		rest, ok := c.consume(i, s, c.read[:held+n])
		switch {
		case !ok:
			return
		case len(rest) > 0:
			c.partial[i] = append(c.partial[i][:0], rest...)
		case held > 0:
			delete(c.partial, i)
		}
		if all {
			return
		}
	}
}

// consume handles whole frames and returns the beginning of one that is not; ok is false once the connection is gone.
func (c *Client) consume(i int32, s *slot, b []byte) (rest []byte, ok bool) {
	for len(b) > 0 {
		if skip := min(int(s.skip), len(b)); skip > 0 {
			s.skip -= uint16(skip)
			b = b[skip:]
			continue
		}
		f, n, err := parseFrame(b)
		if err != nil {
			c.fail(i, Protocol, err)
			return nil, false
		}
		if n == 0 {
			return b, true
		}
		b = b[n:]
		if !c.frame(i, s, &f) {
			return nil, false
		}
	}
	return nil, true
}

// frame obeys one frame; false: the connection is gone.
func (c *Client) frame(i int32, s *slot, f *frame) bool {
	switch {
	case f.kind == frameServerHello && s.state == slotHello:
		s.server = c.meet(serverKey{f.id, f.zone, f.generation})
		c.established(i, s)
		return true
	case f.kind == frameHeartbeat && s.state == slotUp:
		c.count.beats.Received++
		s.skip = uint16(f.payload)
		if f.echo > s.echo && f.echo <= s.seq {
			s.echo, s.echoed = f.echo, ticks(c.now)
			if f.since > 0 && f.since <= uint64(c.now) {
				c.latencies.rtt.record(c.now - time.Duration(f.since))
			}
		}
		return true
	case f.kind == frameBye && s.state >= slotHello:
		if s.state == slotUp {
			c.count.totals.Closed++
			c.marks.moved()
		}
		c.release(i, false)
		c.elsewhere(s) // this server is leaving
		c.ready = append(c.ready, i)
		return false
	}
	if f.kind == frameEvicted && s.state == slotUp {
		kind := Evicted
		if f.seq >= s.seq || c.starved(s) {
			kind = Starved
		}
		c.fail(i, kind, nil)
		return false
	}
	c.fail(i, Protocol, errProtocol)
	return false
}

// starved says whether we ourselves were too late with heartbeats for the server's timeout.
func (c *Client) starved(s *slot) bool {
	now, timeout := ticks(c.now), uint32(c.config.Misses)*inTicks(c.config.Heartbeat)
	if now > s.beat && 2*(now-s.beat) >= timeout {
		return true
	}
	return 2*c.stop.after(now-min(now, 2*timeout), now) >= timeout
}

// lastWord obeys what a peer has sent before the reset that a write has met; true: that has ended the connection.
func (c *Client) lastWord(i int32, s *slot) bool {
	for s.state >= slotHello {
		held := copy(c.read[:], c.partial[i])
		n, err := readNow(s.fd, c.read[held:])
		if err != nil || n == 0 {
			return false
		}
		rest, ok := c.consume(i, s, c.read[:held+n])
		if !ok {
			return true
		}
		c.partial[i] = append(c.partial[i][:0], rest...)
	}
	return true
}

// broken names the kind of an error of an established connection. A reset comes over the path to us: where what we sent has not
// been acknowledged for half of the timeout, it is the path from us that drops, and the server has given us up.
func (c *Client) broken(s *slot, err error) Failure {
	kind := classify(err, false)
	if kind != Reset || s.state != slotUp || c.config.Plain || c.starved(s) {
		return kind
	}
	timeout := uint32(c.config.Misses) * inTicks(c.config.Heartbeat)
	if info, err := unix.GetsockoptTCPInfo(int(s.fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil &&
		2*(ticks(c.now)-s.echoed) >= timeout && info.Bytes_sent > info.Bytes_retrans+info.Bytes_acked { // acked counts the SYN too
		return OneWay
	}
	return Reset
}

// silence distinguishes a peer whose kernel acknowledges what we send, and whose program is silent, from a path that is.
func silence(fd int32) Failure {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err == nil && info.Unacked == 0 {
		return Hung
	}
	return Silent
}

// established counts a connection that both programs know of, and begins with its heartbeats somewhere in the period.
func (c *Client) established(i int32, s *slot) {
	c.count.connections.Connecting--
	c.count.connections.Unanswered--
	c.open[s.target]--
	c.bad[s.target] = false
	c.count.connections.Established++
	c.count.totals.Opened++
	if c.full.IsZero() && c.count.connections.Established == c.config.Connections {
		c.full, c.news = c.wall(), true
	}
	c.latencies.connect.record(c.now - s.began)
	if s.lost > 0 {
		c.count.totals.Reconnected++
		c.latencies.back.record(c.now - s.lost)
		c.marks.back(s.lost, c.now)
	}
	if c.count.connections.Established == c.config.Connections {
		c.marks.full(c.now)
	}
	s.state, s.tries, s.lost = slotUp, 0, 0
	now := ticks(c.now)
	s.received, s.echoed = now, now
	s.beat = now + 1 + uint32(rand.Int32N(int32(inTicks(c.config.Heartbeat))))
	c.wheel.set(i, s.beat)
}

// send writes all of b or, when the peer's window is full, nothing; false: the connection is gone.
func (c *Client) send(i int32, b []byte) bool {
	n, err := writeNow(c.slots.at(i).fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true
	case err != nil:
		if s := c.slots.at(i); c.config.Plain || !c.lastWord(i, s) {
			c.fail(i, c.broken(s, err), err)
		}
		return false
	case n < len(b):
		c.fail(i, Stalled, fmt.Errorf("%d of %d bytes written", n, len(b)))
		return false
	}
	c.count.bytes.Sent += uint64(n)
	return true
}

// expire is a slot's timer.
func (c *Client) expire(i int32) {
	s := c.slots.at(i)
	now := ticks(c.now)
	switch s.state {
	case slotWaiting:
		c.count.connections.Waiting--
		s.state = slotIdle
		c.ready = append(c.ready, i)
	case slotConnecting:
		c.fail(i, Timeout, nil)
	case slotHello:
		c.fail(i, Unanswered, nil)
	case slotUp:
		if now > s.beat { // the peer is not silent for as long as we were late with the question
			s.echoed = min(s.echoed+now-s.beat-c.stop.after(s.beat, now), now)
		}
		timeout := uint32(c.config.Misses) * inTicks(c.config.Heartbeat)
		if !c.config.Plain && now >= s.echoed+timeout {
			if c.readable(i, s); s.state != slotUp { // its last word was there
				return
			}
		}
		end := s.echoed + timeout
		if !c.config.Plain && now >= end {
			kind := OneWay
			if s.received <= s.echoed {
				kind = silence(s.fd)
			}
			c.fail(i, kind, nil)
			return
		}
		if now >= s.beat && !c.heartbeat(i, s, now) {
			return
		}
		if c.config.Plain {
			end = s.beat
		}
		c.wheel.set(i, min(s.beat, end))
	}
}

// heartbeat sends one; false: the connection is gone.
func (c *Client) heartbeat(i int32, s *slot, now uint32) bool {
	due, period := s.beat, inTicks(c.config.Heartbeat)
	if s.beat += period; s.beat < now { // its successors were due, too: each would have been answered now at the earliest
		skipped := (now - s.beat + period - 1) / period
		for range skipped {
			c.latencies.rtt.record(c.now - time.Duration(s.beat-1)*tick)
			s.beat += period
		}
		c.count.beats.Unsent += uint64(skipped)
	}
	s.beat = max(s.beat, now+1)
	c.count.beats.Sent++
	if c.config.Plain {
		c.write[0] = 0
		return c.send(i, c.write[:1])
	}
	if s.seq > s.echo {
		c.count.beats.Missed++
	}
	// Latency counts from the moment that the heartbeat was due, whenever we came to send it.
	f := frame{kind: frameHeartbeat, seq: s.seq + 1, sent: uint64(max(min(time.Duration(due-1)*tick, c.now), 1)), payload: c.config.Payload}
	n := f.put(c.write[:])
	clear(c.write[n : n+f.payload])
	if !c.send(i, c.write[:n+f.payload]) {
		return false
	}
	s.seq++
	return true
}

// release closes a slot's socket.
func (c *Client) release(i int32, reset bool) {
	s := c.slots.at(i)
	switch s.state {
	case slotUp:
		c.count.connections.Established--
		if !c.config.Plain {
			c.counts[s.server]--
		}
	case slotHello:
		c.count.connections.Unanswered--
		c.count.connections.Connecting--
	case slotConnecting:
		c.count.connections.Connecting--
	}
	if s.state == slotHello || s.state == slotConnecting {
		c.open[s.target]--
	}
	if reset {
		abort(int(s.fd))
	}
	unix.Close(int(s.fd))
	s.fd, s.state = -1, slotIdle
	c.wheel.cancel(i)
	delete(c.partial, i)
}

// serverID is the id of the server that a connection is with; empty if it has not sent it.
func (c *Client) serverID(s *slot) string {
	if c.config.Plain || int(s.server) >= len(c.servers) {
		return ""
	}
	return word(c.servers[s.server].id[:])
}

// meet counts one more connection of a server. Beyond 4096 of them the last row stands for all others.
func (c *Client) meet(key serverKey) uint16 {
	i, ok := c.serverOf[key]
	if !ok {
		if len(c.servers) >= maxPeers {
			i = maxPeers - 1
		} else {
			i = uint16(len(c.servers))
			c.servers, c.counts = append(c.servers, key), append(c.counts, 0)
			c.serverOf[key] = i
		}
	}
	c.counts[i]++
	return i
}

// fill writes what the client knows into a report.
func (c *Client) fill(r *Report) {
	r.Role, r.ID, r.Worker, r.Run = RoleClient, c.config.ID, c.config.Worker, runName(c.config.Run)
	c.count.fill(r)
	r.BeganAt, r.FullAt = c.began, c.full
	r.Marks = c.marks.all
	for i, s := range c.servers {
		if c.counts[i] > 0 {
			r.Peers = append(r.Peers, Peer{ID: word(s.id[:]), Zone: word(s.zone[:]), Generation: runName(s.generation), Connections: c.counts[i]})
		}
	}
	r.TableBytes = uint64(c.slots.length())*sizeOf[slot]() + uint64(c.wheel.links.length())*sizeOf[link]()
}
