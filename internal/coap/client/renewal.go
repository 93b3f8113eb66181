package client

import (
	"context"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// A server that has lost a DTLS session cannot say so: without its keys everything that it could send anybody could send. So a Conn
// concludes it from authenticated silence (docs/adr/0018): when messages that want an answer have had none, it makes another session over a socket of its own,
// and keeps the old one meanwhile. It changes over once the server has proven itself in the new handshake; a record that comes in the
// old session before ends the attempt. A forger who cannot suppress the server's records can cause neither.

const (
	silentAsks   = 3   // messages without an answer: a request and two retransmissions
	silentFactor = 2.5 // times ACK_TIMEOUT without an answer, at least: the second retransmission is due after 3 to 4.5 times
	retryFactor  = 2   // the pause before another attempt, in those times; it doubles
	maxRetry     = 5 * time.Minute
)

// silence decides, by what is asked and answered, when the server has probably lost the session. Times are since the start of the
// connection.
type silence struct {
	after time.Duration // of it

	asked  int           // messages that want an answer, since the last record of the server
	since  time.Duration // when the first of them was sent
	trying bool          // an attempt is under way
	pause  time.Duration // after the latest attempt; 0: there was none since the last record
	next   time.Duration // no attempt before
}

func newSilence(ackTimeout time.Duration) silence {
	return silence{after: time.Duration(silentFactor * float64(ackTimeout))}
}

// ask notes that a message was sent that wants an answer, and reports whether an attempt is to begin.
func (s *silence) ask(now time.Duration) (begin bool) {
	if s.asked == 0 {
		s.since = now
	}
	s.asked++
	if s.trying || s.asked < silentAsks || now-s.since < s.after || now < s.next {
		return false
	}
	s.pause = min(max(2*s.pause, retryFactor*s.after), maxRetry)
	s.trying, s.next = true, now+s.pause
	return true
}

// answered notes an authentic record.
func (s *silence) answered() { s.asked, s.pause = 0, 0 }

// replaceable is the link of a connection whose session can be replaced. Its methods are those of a link.
type replaceable struct {
	mu       sync.Mutex
	current  secureLink
	deadline time.Time
	closed   bool
}

func (l *replaceable) now() secureLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Read returns the next message. When the session is replaced it goes on with the other one.
func (l *replaceable) Read(b []byte) (int, error) {
	for {
		current := l.now()
		n, err := current.Read(b)
		if err == nil || current == l.now() {
			return n, err
		}
	}
}

func (l *replaceable) Write(b []byte) (int, error) { return l.now().Write(b) }

func (l *replaceable) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	return l.current.SetReadDeadline(t)
}

func (l *replaceable) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.current.Close()
}

func (l *replaceable) room() int { return l.now().room() }

// replace ends the session with close_notify and goes on with another one, unless the link is closed: then that one is.
func (l *replaceable) replace(next secureLink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := next
	if !l.closed {
		old, l.current = l.current, next
		_ = next.SetReadDeadline(l.deadline) // Read reports it
	}
	_ = old.Close() // it is not read any more
}

// renewal is what a connection over DTLS needs for another session. Its fields are guarded by the mu of the Conn.
type renewal struct {
	link    *replaceable
	silence silence
	cancel  context.CancelFunc // of the attempt under way
	running sync.WaitGroup     // the attempt
}

// asked is to be called when a message was sent that wants an answer; with c.mu held.
func (c *Conn) asked() {
	r := c.renewal
	if r == nil || c.reading != nil || !r.silence.ask(c.now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	r.cancel = cancel
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		defer cancel()
		c.renew(ctx, c.cfg.Security)
	}()
}

// heard is to be called for every authentic message of the server; with c.mu held.
func (c *Conn) heard() {
	if c.renewal != nil {
		c.renewal.silence.answered()
		c.stopRenewal()
	}
}

// stopRenewal ends an attempt that is under way; with c.mu held.
func (c *Conn) stopRenewal() {
	if c.renewal != nil && c.renewal.silence.trying {
		c.renewal.cancel()
	}
}

// renew makes another session and, if the old one is still silent then, goes on with it. What waits for an answer is repeated at once, but for
// requests that must not be executed twice, which end with errUncertain; observations register again.
func (c *Conn) renew(ctx context.Context, own Security) {
	c.mu.Lock()
	if resumption := c.session.Resumption; resumption != nil {
		own.Resume = resumption
	}
	c.mu.Unlock()
	l, result, err := c.another(ctx, &own)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewal.silence.trying = false
	if err != nil {
		return // the old session is still there
	}
	if ctx.Err() != nil || c.reading != nil {
		_ = l.Close() // not used
		return
	}
	c.renewal.link.replace(l)
	c.session = describe(c.target, &own, result)
	for id, waiting := range c.calls {
		switch {
		case waiting.once: // the server does not recognise it in another session
			c.endpoint.Cancel(id)
			c.end(id, waiting, reply{err: errUncertain})
		case waiting.repeated != nil:
			_, _ = c.link.Write(waiting.repeated) // if it is lost, it is repeated as any other
		}
	}
	for _, o := range c.observations {
		o.restart()
	}
}

// another makes a DTLS session over a socket of its own.
func (c *Conn) another(ctx context.Context, own *Security) (l secureLink, result *handshake.Result, err error) {
	under, err := c.cfg.socket(c.target)
	if err != nil {
		return l, nil, err
	}
	if l, err = secure(ctx, under, own, c.cfg.Timeout); err != nil {
		return l, nil, err
	}
	made := l.Result()
	return l, &made, nil
}
