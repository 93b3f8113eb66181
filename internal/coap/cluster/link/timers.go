package link

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// Send seals a message for a node and passes the record to send, which must not keep it. It returns false if there is no session.
func (l *Links) Send(p *Peer, message []byte, send func(datagram []byte)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p.sessions) == 0 {
		return false
	}
	a := p.current().association
	start := a.HeadRoom()
	if start+len(message)+a.TailRoom() > len(l.buffer) {
		return false
	}
	copy(l.buffer[start:], message)
	sealed, err := a.Seal(&l.scratch, applicationData, l.buffer[:], start, len(message))
	if err != nil {
		return false
	}
	send(sealed)
	return true
}

// Tick repeats flights, begins handshakes and ends sessions that are due, and passes datagrams to send, which must not keep them. Call
// it every TickEvery.
func (l *Links) Tick(now time.Duration, send func(to netip.AddrPort, datagram []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock = now
	for addr, p := range l.pendings {
		switch {
		case now >= p.ends:
			l.fail(addr, "the node has not finished its handshake: is its secret the same?")
			l.dropPending(addr)
		case now >= p.Deadline() && p.Timeout(now, func(d []byte) { send(addr, d) }) == handshake.Failed:
			l.fail(addr, "the node's secret is another one")
			l.dropPending(addr)
		}
	}
	for addr, p := range l.peers {
		l.review(p, now)
		l.attempt(p, now, func(d []byte) { send(addr, d) })
		if !p.kept && len(p.sessions) == 0 {
			delete(l.peers, addr)
		}
	}
}

// review takes into use the sessions in which something has come, and ends those that are replaced or too old.
func (l *Links) review(p *Peer, now time.Duration) {
	p.collect()
	changed := false
	var other *session // in which the node sends, unlike us
	for i, s := range p.sessions {
		if !s.received {
			continue
		}
		changed = changed || !s.used
		s.used, s.lastReceived = true, now
		if i > 0 {
			other = s
		}
	}
	// After simultaneous handshakes the nodes may prefer different sessions. One of the two soon follows the other.
	if other != nil && !p.current().received && l.random(2) == 0 {
		p.sessions = append([]*session{other}, slices.DeleteFunc(p.sessions, func(s *session) bool { return s == other })...)
		changed = true
	}
	before := len(p.sessions)
	if before > 0 {
		current := p.current()
		p.sessions = slices.DeleteFunc(p.sessions, func(s *session) bool {
			s.received = false
			return now >= s.ends || s != current && now-s.lastReceived >= overlap
		})
	}
	if p.before != nil && now >= p.before.ends {
		p.before, changed = nil, true
		delete(l.left, p.addr)
	}
	if changed || len(p.sessions) < before {
		l.publish(p)
	}
}

// attempt begins a handshake with a node if one is due, and goes on with one that is under way.
func (l *Links) attempt(p *Peer, now time.Duration, send func([]byte)) {
	switch {
	case p.client == nil:
		if p.wanted && p.due(now) && l.pendings[p.addr] == nil {
			l.begin(p, now, send)
		}
	case now >= p.client.repeatAt:
		p.client.repeatAt = now + TickEvery
		p.client.client.Timeout(&l.scratch, now, send)
		l.conclude(p, now)
	}
}

// due reports whether a new session is wanted.
func (p *Peer) due(now time.Duration) bool {
	if now < p.retryAt {
		return false
	}
	if len(p.sessions) == 0 || p.silent {
		return true
	}
	newest := p.sessions[0]
	return now >= newest.rollAt || newest.association.Forged() >= forgedLimit
}

func (l *Links) begin(p *Peer, now time.Duration, send func([]byte)) {
	id, err := l.newCID()
	if err != nil {
		return
	}
	c, err := handshake.NewClient(handshake.ClientConfig{
		Config: l.handshake(), Identity: l.cfg.Identity, Key: l.cfg.Secret, OfferCID: true, CID: id, Repetitions: repetitions,
	})
	if err != nil {
		l.fail(p.addr, err.Error())
		p.retryAt = now + retryAfter
		return
	}
	p.client = &attempt{client: c, cid: id, repeatAt: now + TickEvery}
	c.Start(now, send)
}

// conclude takes the result of our handshake, if it has ended.
func (l *Links) conclude(p *Peer, now time.Duration) (established bool) {
	done, err := p.client.client.Done()
	if !done {
		return false
	}
	result := p.client.client.Result
	p.client = nil
	if err != nil {
		p.retryAt = now + retryAfter + l.random(retryAfter)
		l.fail(p.addr, err.Error())
		return false
	}
	r := result()
	l.add(p, &session{
		association: r.Association, write: newMACKey(r.ClientMAC), read: newMACKey(r.ServerMAC), writeKey: r.ClientMAC, readKey: r.ServerMAC, used: true,
	}, now)
	return true
}

// add makes s the newest session of p.
func (l *Links) add(p *Peer, s *session, now time.Duration) {
	s.lastReceived, s.ends, s.rollAt = now, now+keyLife, now+keyLife-rollBefore-l.random(rollBefore)
	s.used = s.used || len(p.sessions) == 0
	p.sessions = append([]*session{s}, p.sessions...)
	if len(p.sessions) > maxSessions {
		p.sessions = p.sessions[:maxSessions]
	}
	if p.failed || len(p.sessions) == 1 {
		l.cfg.Log.Info("cluster link is secured", "address", p.addr, "suite", s.association.Suite())
	}
	p.silent, p.failed, p.retryAt = false, false, now+l.random(spread)
	l.stats.Handshakes++
	l.publish(p)
}

// fail counts a handshake that has failed, and logs the first one of a node. About other addresses it warns rarely.
func (l *Links) fail(addr netip.AddrPort, cause string) {
	l.stats.Failed++
	p := l.peers[addr]
	if p == nil && l.clock-l.complained < complainGap || p != nil && p.failed {
		return
	}
	if p == nil {
		l.complained = l.clock
	} else {
		p.failed = true
	}
	l.cfg.Log.Warn("cluster link cannot be secured", "address", addr, "cause", cause)
}

func (l *Links) dropPending(addr netip.AddrPort) {
	if p := l.pendings[addr]; p != nil {
		p.Release()
		delete(l.pendings, addr)
	}
}
