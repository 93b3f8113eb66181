package turncat

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
)

// Retransmission over UDP and DTLS (RFC 8489 section 6.2.1), shortened: after some 8 s the server counts as unreachable. Over a reliable
// transport nothing is retransmitted, and the timeout is the whole time.
const (
	firstTimeout   = 500 * time.Millisecond
	maxTries       = 4
	requestTimeout = 7500 * time.Millisecond
	farewell       = 250 * time.Millisecond // first timeout of the last Refresh
)

const (
	// channelRefresh also refreshes the permission, which lasts 300 s (RFC 8656 section 12).
	channelRefresh = 4 * time.Minute
	maxChallenges  = 4 // answers 401 and 438 to one request
)

// stage of a session.
type stage uint8

const (
	idle       stage = iota
	allocating       // Allocate is in progress
	binding          // the first ChannelBind is in progress
	ready            // data may flow
	closing          // Refresh with lifetime 0 is in progress
	ended            // the allocation is released, or the failure cannot be repaired
)

// verdict is what the owner of a session has to do.
type verdict uint8

const (
	proceed verdict = iota
	opened          // ready now
	lost            // session.err says why; begin another session
	expired         // still ready, but its credentials have expired: begin another session in parallel
	closed          // the allocation was released
)

// session is the TURN client of one allocation: messages and the time go in, messages come out. One goroutine owns it.
type session struct {
	peer        netip.AddrPort
	tcp         bool // reliable transport, so there is no retransmission
	credentials Source
	lifetime    time.Duration
	checkEvery  time.Duration
	send        func(message []byte)

	stage     stage
	err       error
	relay     netip.AddrPort
	alternate netip.AddrPort // the server that we were redirected to (RFC 8656 section 9.3, 300 Try Alternate)
	used      bool           // set by the owner when there is traffic: the allocation is then checked

	current, next    Credentials   // next is tried in the request in progress
	stuck            bool          // the server accepts no other user for this allocation (441)
	auth             requests.Auth // of current, or of next while next is tried
	refreshAt        int64
	bindAt           int64
	checkAt          int64
	renewAt          int64 // 0: never
	allocationEndsAt int64

	// the request in progress
	method     stun.Method
	message    *stun.Message
	pending    bool
	stop       bool // close as soon as Allocate is answered
	tries      int
	challenges int
	interval   time.Duration
	deadline   int64
}

// start sends an Allocate without credentials, to receive realm and nonce.
func (s *session) start(now int64) verdict {
	c, err := s.credentials(time.Unix(0, now))
	if err != nil {
		return s.fail(err)
	}
	s.current, s.stage, s.message = c, allocating, stun.New()
	s.setUser()
	return s.request(stun.MethodAllocate, now)
}

// close releases the allocation. It ends at once if there is none.
func (s *session) close(now int64) verdict {
	switch s.stage {
	case closing:
		return proceed
	case allocating:
		s.stop = true // the answer to Allocate decides what follows
		return proceed
	case binding, ready:
		s.stage = closing
		return s.request(stun.MethodRefresh, now)
	}
	s.stage = ended
	return closed
}

func (s *session) fail(err error) verdict {
	s.pending = false
	if s.stage == closing || s.stop {
		s.stage = ended
		return closed
	}
	s.stage, s.err = ended, err
	return lost
}

// request builds a message and sends it for the first time.
func (s *session) request(method stun.Method, now int64) verdict {
	s.challenges = 0
	return s.again(method, now)
}

func (s *session) again(method stun.Method, now int64) verdict {
	if err := s.build(method); err != nil {
		return s.fail(fmt.Errorf("build %v: %w", method, err))
	}
	s.method, s.pending, s.tries, s.interval = method, true, 1, firstTimeout
	switch {
	case s.stage == closing:
		s.interval = farewell
	case s.tcp:
		s.interval = requestTimeout
	}
	s.deadline = now + int64(s.interval)
	s.send(s.message.Raw)
	return proceed
}

func (s *session) build(method stun.Method) error {
	r := requests.Request{Method: method, Peer: s.peer, Channel: requests.Channel, Lifetime: s.lifetime}
	if s.stage == closing {
		r.Lifetime = 0
	}
	return r.Build(s.message, &s.auth)
}

// trial returns the credentials of the request in progress.
func (s *session) trial() Credentials {
	if s.next.User != "" {
		return s.next
	}
	return s.current
}

func (s *session) setUser() {
	c := s.trial()
	s.auth.SetUser(c.User, c.Password)
}

// receive handles one STUN message of the server. Messages that do not answer the request in progress are ignored.
func (s *session) receive(raw []byte, now int64) verdict {
	if !s.pending {
		return proceed
	}
	m, outcome := requests.Response(raw, s.message, &s.auth)
	switch {
	case outcome == requests.Granted && s.auth.Challenged():
		s.pending = false
		return s.granted(m, now)
	case outcome == requests.Refused:
		s.pending = false
		return s.refused(m, now)
	}
	return proceed // of a Forged response: the genuine one may still arrive
}

func (s *session) granted(m *stun.Message, now int64) verdict {
	if s.stage == closing {
		s.stage = ended
		return closed
	}
	if s.next.User != "" {
		s.current, s.next = s.next, Credentials{}
	}
	switch m.Type.Method {
	case stun.MethodAllocate:
		g, err := requests.ParseGrant(m)
		if err != nil {
			return s.fail(err)
		}
		s.relay = g.Relay
		s.extend(g.Lifetime, now)
		if s.stop {
			s.stop, s.stage = false, closing
			return s.request(stun.MethodRefresh, now)
		}
		s.stage = binding
		return s.request(stun.MethodChannelBind, now)
	case stun.MethodRefresh:
		g, err := requests.ParseGrant(m)
		if err != nil || g.Lifetime <= 0 {
			return s.fail(errors.New("the server ended the allocation"))
		}
		s.extend(g.Lifetime, now)
	case stun.MethodChannelBind:
		s.bindAt = now + int64(channelRefresh)
		if s.stage == binding {
			s.stage = ready
			return opened
		}
	}
	return proceed
}

// extend schedules the next requests after the server granted a lifetime: at half of it, early enough for
// retransmissions.
func (s *session) extend(lifetime time.Duration, now int64) {
	s.allocationEndsAt = now + int64(lifetime)
	s.refreshAt = now + int64(lifetime)/2
	s.checkAt = now + int64(s.checkEvery)
	s.renewAt = 0
	if end := s.current.Expires; !end.IsZero() && !s.stuck {
		left := end.UnixNano() - now
		s.renewAt = max(now+left-left/5, now+int64(time.Second)) // a fifth of the time remains for retries
	}
}

// refused handles an error response. Those that request a changed request are answered with one; all others end the
// session.
func (s *session) refused(m *stun.Message, now int64) verdict {
	r := parseRefusal(m)
	switch {
	case s.challenges >= maxChallenges:
	case r.Code == 401 && !s.auth.Challenged(), r.Code == 438 && s.auth.Challenged():
		if !s.auth.Challenge(m) {
			break
		}
		s.challenges++
		return s.again(s.method, now)
	case r.Code == 300 && s.stage == allocating:
		if to, err := alternateServer(m); err == nil {
			s.alternate = to
			return s.fail(fmt.Errorf("the TURN server sends its clients to %v", to))
		}
	}
	if s.auth.Challenged() {
		r.User = s.trial().User
	}
	if s.stage == ready && s.next.User != "" && r.Credentials() {
		// This allocation belongs to the old user name (RFC 8656 section 7.2): use that name as long as the server accepts it.
		s.next, s.stuck, s.renewAt = Credentials{}, true, 0
		s.setUser()
		s.refreshAt = min(s.refreshAt, s.current.Expires.UnixNano())
		return proceed
	}
	if s.stage == ready && r.Credentials() && s.method == stun.MethodRefresh && now < s.allocationEndsAt {
		s.stuck, s.renewAt, s.refreshAt, s.checkAt = true, 0, s.allocationEndsAt, s.allocationEndsAt
		return expired
	}
	return s.fail(r)
}

func alternateServer(m *stun.Message) (netip.AddrPort, error) {
	var a stun.AlternateServer
	if err := a.GetFrom(m); err != nil {
		return netip.AddrPort{}, err
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok || a.Port < 1 || a.Port > 65535 {
		return netip.AddrPort{}, errors.New("not an address")
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(a.Port)), nil
}

// unreachable is called when the network reports that no program listens at the server's port.
func (s *session) unreachable(now int64) verdict {
	switch {
	case s.stage == ended:
		return proceed
	case s.stage == ready && !s.pending:
		return s.request(stun.MethodRefresh, now) // the first report; the next one ends the session
	case s.stage == ready && s.tries < 2:
		return proceed
	}
	return s.fail(errors.New("no program listens at the TURN server's port"))
}

// tick runs the due timers and returns when it must be called again.
func (s *session) tick(now int64) (next int64, v verdict) {
	switch {
	case s.pending && now >= s.deadline:
		v = s.retransmit(now)
	case s.pending || s.stage != ready:
	case s.renewAt != 0 && now >= s.renewAt:
		v = s.renew(now)
	case now >= s.refreshAt, s.checkEvery > 0 && s.used && now >= s.checkAt:
		s.used = false
		v = s.request(stun.MethodRefresh, now)
	case now >= s.bindAt:
		v = s.request(stun.MethodChannelBind, now)
	case s.checkEvery > 0 && now >= s.checkAt: // not in use
		s.checkAt = now + int64(s.checkEvery)
	}
	return s.due(), v
}

func (s *session) due() int64 {
	switch {
	case s.pending:
		return s.deadline
	case s.stage != ready:
		return never
	}
	at := min(s.bindAt, s.refreshAt)
	if s.checkEvery > 0 {
		at = min(at, s.checkAt)
	}
	if s.renewAt != 0 {
		at = min(at, s.renewAt)
	}
	return at
}

const never = int64(1) << 62

func (s *session) retransmit(now int64) verdict {
	limit := maxTries
	if s.stage == closing {
		limit = 3
	}
	if s.tcp || s.tries >= limit {
		return s.fail(fmt.Errorf("no answer from the TURN server to %v", s.method))
	}
	s.tries++
	s.interval *= 2
	s.deadline = now + int64(s.interval)
	s.send(s.message.Raw)
	return proceed
}

// renew tries new credentials on the existing allocation.
func (s *session) renew(now int64) verdict {
	c, err := s.credentials(time.Unix(0, now))
	if err != nil || c.User == s.current.User && c.Password == s.current.Password || !c.Expires.After(s.current.Expires) && !c.Expires.IsZero() {
		s.renewAt = now + int64(time.Minute) // a credentials file may be updated late
		return proceed
	}
	s.next = c
	s.setUser()
	return s.request(stun.MethodRefresh, now)
}
