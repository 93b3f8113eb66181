package tcpscale

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// readable reads what a connection has and answers it.
func (s *Server) readable(fd int32) {
	c := s.conns.at(fd)
	if c.state == serverFree {
		return
	}
	if c.state == serverLeft {
		if n, err := readNow(fd, s.read[:]); n > 0 || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return // what crossed our goodbye
		}
		s.drop(fd)
		return
	}
	held := copy(s.read[:], s.partial[fd])
	n, err := readNow(fd, s.read[held:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil:
		s.lose(fd, classify(err, false))
		return
	case n == 0:
		s.lose(fd, Closed)
		return
	}
	s.count.bytes.Received += uint64(n)
	c.seen = ticks(s.now)
	rest, ok := s.consume(fd, c, s.read[:held+n])
	s.unread = nil
	switch {
	case !ok: // gone
	case len(rest) > 0:
		s.partial[fd] = append(s.partial[fd][:0], rest...)
	case held > 0:
		delete(s.partial, fd)
	}
}

// consume handles whole frames and returns the beginning of one that is not; ok is false once the connection is gone.
func (s *Server) consume(fd int32, c *serverConn, b []byte) (rest []byte, ok bool) {
	if c.state == serverFresh && b[0] == 0 {
		c.state = serverPlain
		s.established(c)
	}
	if c.state == serverPlain {
		s.count.beats.Received += uint64(len(b))
		return nil, true
	}
	for len(b) > 0 {
		if skip := min(int(c.skip), len(b)); skip > 0 {
			c.skip -= uint16(skip)
			b = b[skip:]
			continue
		}
		f, n, err := parseFrame(b)
		if err != nil {
			s.refuse(fd)
			return nil, false
		}
		if n == 0 {
			return b, true
		}
		b = b[n:]
		s.unread = b
		if !s.frame(fd, c, &f) {
			return nil, false
		}
	}
	return nil, true
}

// frame obeys one frame; false: the connection is gone.
func (s *Server) frame(fd int32, c *serverConn, f *frame) bool {
	switch {
	case f.kind == frameClientHello && c.state == serverFresh:
		c.state, c.misses = serverKnown, f.misses
		if f.mode&modeEcho != 0 {
			c.misses |= echoBit
		}
		c.period = uint16(inTicks(f.period))
		c.peer = s.join(peerKey{f.run, f.client})
		s.established(c)
		s.shortest = min(s.shortest, uint32(c.period))
		hello := frame{kind: frameServerHello, generation: s.config.Generation}
		copy(hello.id[:], s.config.ID)
		copy(hello.zone[:], s.config.Zone)
		return s.send(fd, s.write[:hello.put(s.write[:])])
	case f.kind == frameHeartbeat && c.state == serverKnown:
		s.count.beats.Received++
		c.received, c.skip = f.seq, uint16(f.payload)
		payload := 0
		if c.misses&echoBit != 0 {
			payload = f.payload
		}
		return s.beat(fd, c, f.sent, payload)
	case f.kind == frameBye && c.state == serverKnown:
		s.count.totals.Closed++
		s.drop(fd)
		return false
	}
	s.refuse(fd)
	return false
}

// quiet is how long a connection may be silent before we send a heartbeat: half a period late.
func (s *Server) quiet(c *serverConn) uint32 { return uint32(c.period) + max(uint32(c.period)/2, 1) }

// beat sends a heartbeat with the echo of the last one.
func (s *Server) beat(fd int32, c *serverConn, since uint64, payload int) bool {
	s.seq++
	f := frame{kind: frameHeartbeat, seq: s.seq, sent: uint64(s.now), echo: c.received, since: since, payload: payload}
	n := f.put(s.write[:])
	clear(s.write[n : n+payload])
	if !s.send(fd, s.write[:n+payload]) {
		return false
	}
	s.count.beats.Sent++
	return true
}

// send writes all of b or, when the peer's window is full, nothing; false: the connection is gone.
func (s *Server) send(fd int32, b []byte) bool {
	n, err := writeNow(fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true // its silence is judged, not its deafness
	case err != nil:
		s.lose(fd, classify(err, false))
		return false
	case n < len(b):
		s.lose(fd, Stalled) // half a frame is out: the stream is of no use any more
		return false
	}
	s.count.bytes.Sent += uint64(n)
	return true
}

func (s *Server) established(*serverConn) {
	s.count.connections.Connecting--
	s.count.connections.Unanswered--
	s.count.connections.Established++
	s.count.totals.Opened++
}

// lose ends a connection that was not meant to end.
func (s *Server) lose(fd int32, kind Failure) {
	if s.conns.at(fd).state == serverPlain && kind == Closed || kind == Reset && s.saidBye(fd) {
		s.count.totals.Closed++ // plain streams have no other goodbye
	} else {
		s.count.failures[kind]++
		if s.conns.at(fd).state != serverFresh {
			s.count.totals.Lost++
		}
	}
	s.drop(fd)
}

// saidBye looks for a goodbye in what was not read before the reset that a write has met.
func (s *Server) saidBye(fd int32) bool {
	said := s.unread
	for s.conns.at(fd).state == serverKnown {
		tail := copy(s.read[:], said[max(0, len(said)-headLength):])
		n, err := readNow(fd, s.read[tail:])
		if err != nil || n == 0 {
			break
		}
		said = s.read[:tail+n]
	}
	f, n, err := parseFrame(said[max(0, len(said)-headLength):])
	return err == nil && n > 0 && f.kind == frameBye
}

func (s *Server) refuse(fd int32) {
	s.count.totals.Refused++
	s.count.failures[Protocol]++
	s.drop(fd)
}

// drop closes and forgets.
func (s *Server) drop(fd int32) {
	c := s.conns.at(fd)
	if c.state == serverFresh {
		s.count.connections.Connecting--
		s.count.connections.Unanswered--
	} else {
		s.count.connections.Established--
	}
	s.leave(c.peer)
	*c = serverConn{}
	delete(s.partial, fd)
	if !s.draining { // there a RST could overtake our goodbye
		abort(int(fd))
	}
	unix.Close(int(fd))
	if s.paused {
		s.resume()
	}
}

// join finds the row of a client, or one that is free.
func (s *Server) join(key peerKey) uint16 {
	if i, ok := s.peerOf[key]; ok {
		s.peers[i].count++
		return i
	}
	i := len(s.peers)
	if i >= maxPeers {
		for i = 0; i < maxPeers && s.peers[i].count > 0; i++ { // rare: 4096 clients have come
		}
		if i == maxPeers {
			return otherPeers
		}
		delete(s.peerOf, s.peers[i].key)
		s.peers[i] = peerCount{key, 1}
	} else {
		s.peers = append(s.peers, peerCount{key, 1})
	}
	s.peerOf[key] = uint16(i)
	return uint16(i)
}

func (s *Server) leave(peer uint16) {
	if int(peer) < len(s.peers) {
		s.peers[peer].count--
	}
}

// advance looks for silence and drains.
func (s *Server) advance(now time.Duration) {
	s.now = now
	if at := ticks(now); at-s.swept >= s.step() {
		s.sweep(at)
	}
	if s.draining {
		s.drainSome()
	}
}

// step is how many ticks lie between sweeps: silence is found a thirty-second of the shortest period late, at most; who
// does not answer a goodbye, a second.
func (s *Server) step() uint32 {
	if s.draining {
		return max(min(s.shortest/32, uint32(time.Second/tick)), 1)
	}
	return max(s.shortest/32, 1)
}

// sweep evicts who has been silent for as long as he may, and sends a heartbeat to a peer that has missed a heartbeat: once when he is half a
// period late, and again each period. Each such moment lies in one sweep only, so nothing has to be remembered of it. 16 B
// a connection, looked through in order, cost less than a timer for each.
func (s *Server) sweep(at uint32) {
	before := s.swept
	s.swept = at
	plain := inTicks(s.config.PlainTimeout)
	for i, part := range s.conns.parts {
		for j := range part {
			if c := &part[j]; c.state != serverFree {
				s.judge(int32(i*chunkSize+j), c, at, before, plain)
			}
		}
	}
}

func (s *Server) judge(fd int32, c *serverConn, at, before, plain uint32) {
	silent := at - c.seen
	if c.state == serverLeft {
		if silent >= inTicks(goodbye) {
			s.drop(fd)
		}
		return
	}
	if c.state != serverKnown {
		if plain > 0 && silent >= plain {
			s.evict(fd)
		}
		return
	}
	quiet := s.quiet(c)
	switch {
	case silent >= uint32(c.misses&^echoBit)*uint32(c.period):
		s.evict(fd)
	case silent >= quiet && (before < c.seen+quiet || (silent-quiet)/uint32(c.period) != (before-c.seen-quiet)/uint32(c.period)):
		s.count.beats.Missed++
		s.beat(fd, c, 0, 0)
	}
}

// evict gives up a connection, and says so to a client of ours as well as it can: the reset follows at once.
func (s *Server) evict(fd int32) {
	c := s.conns.at(fd)
	if c.state != serverFresh {
		s.count.totals.Evicted++
		s.count.totals.Lost++
	}
	if c.state == serverKnown {
		f := frame{kind: frameEvicted, reason: reasonSilent, seq: c.received}
		_, _ = writeNow(fd, s.write[:f.put(s.write[:])]) // the path may be dead
	}
	s.count.failures[Silent]++
	s.drop(fd)
}

// drainBurst is how many connections are sent away in a tick.
const drainBurst = 500

// goodbye is how long a client has to close after ours. A server that closed at once would answer the heartbeats that are
// under way with a RST, and the client whose write meets that has lost a connection.
const goodbye = 5 * time.Second

func (s *Server) drainSome() {
	for n := 0; n < drainBurst && s.drainAt < s.conns.length(); s.drainAt++ {
		c := s.conns.at(s.drainAt)
		if c.state == serverFree {
			continue
		}
		n++
		bye := frame{kind: frameBye}
		switch {
		case c.state != serverKnown:
			s.count.totals.Closed++
			s.drop(s.drainAt)
		case s.send(s.drainAt, s.write[:bye.put(s.write[:])]):
			s.count.totals.Closed++
			c.state, c.seen = serverLeft, ticks(s.now)
			delete(s.partial, s.drainAt)
			if err := unix.Shutdown(int(s.drainAt), unix.SHUT_WR); err != nil {
				s.drop(s.drainAt) // the client was faster
			}
		}
	}
}

// fill writes what the server knows into a report.
func (s *Server) fill(r *Report) {
	r.Role, r.ID, r.Zone, r.Worker = RoleServer, s.config.ID, s.config.Zone, s.config.Worker
	s.count.fill(r)
	if s.draining {
		r.Connections.Draining = r.Connections.Established
	}
	known := 0
	for _, p := range s.peers {
		if p.count > 0 {
			r.Peers = append(r.Peers, Peer{ID: fmt.Sprintf("%s/%d", runName(p.key.run), p.key.client), Connections: p.count})
			known += p.count
		}
	}
	r.OtherPeers = r.Connections.Established - known
	r.TableBytes = uint64(s.conns.length()) * sizeOf[serverConn]()
}

func runName(run uint64) string { return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, run)) }

func (c *counts) fill(r *Report) {
	r.Connections, r.Totals, r.Heartbeats, r.Bytes = c.connections, c.totals, c.beats, c.bytes
	r.Failures = map[string]uint64{}
	for kind, n := range c.failures {
		if n > 0 {
			r.Failures[Failure(kind).String()] = n
		}
	}
	for limit := range c.limits {
		r.LimitsHit = append(r.LimitsHit, limit)
	}
	r.Samples = append(r.Samples, c.samples...)
}
