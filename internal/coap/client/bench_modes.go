package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Mode is what each client of a load does.
type Mode string

// Modes of a load. Those but the first need a session of its own for each client: DTLS, or a socket each.
const (
	ModeRequest Mode = "request" // sends requests, one in flight
	// ModeObserve registers for the resource and counts notifications (RFC 7641).
	ModeObserve Mode = "observe"
	// ModeReverseRequest queries the server, by a POST to the resource, for requests of its own to /feed-CON or /feed-NON of the
	// client, and counts those it has answered. The query argument req of the URI says how many a POST brings.
	ModeReverseRequest Mode = "reverse-request"
	// ModeReverseObserve queries the server, likewise, to observe /feed-CON or /feed-NON of the client, and counts the notifications
	// sent. The query argument obs of the URI says how many a POST brings.
	ModeReverseObserve Mode = "reverse-observe"
)

// Modes are all modes.
func Modes() []Mode { return []Mode{ModeRequest, ModeObserve, ModeReverseRequest, ModeReverseObserve} }

func (m Mode) reverse() bool { return m == ModeReverseRequest || m == ModeReverseObserve }

// validateMode refuses what cannot be.
func (c *BenchConfig) validateMode(target Target) error {
	known := c.Mode == ""
	for _, m := range Modes() {
		known = known || c.Mode == m
	}
	request := Request{BlockSize: c.BlockSize}
	switch {
	case !known:
		return fmt.Errorf("mode: %q; use %s, %s, %s or %s", c.Mode, ModeRequest, ModeObserve, ModeReverseRequest, ModeReverseObserve)
	case c.Mode != "" && c.Mode != ModeRequest && c.Sockets == SocketsShared && !target.ownSession():
		return fmt.Errorf("mode %s: clients without DTLS need a socket each to be distinguished", c.Mode)
	case c.HandshakeEvery < 0 || c.NotifyEvery < 0:
		return errors.New("handshake and notification intervals must not be negative")
	case c.HandshakeEvery > 0 && !target.Secure:
		return errors.New("handshakes: the URI has neither DTLS nor TLS; write coaps:// or coaps+tcp://")
	case c.HandshakeEvery > 0 && c.Mode != "" && c.Mode != ModeRequest:
		return fmt.Errorf("mode %s: handshakes are repeated in mode %s only", c.Mode, ModeRequest)
	case c.Mode.reverse() && c.perRound(target) == 0:
		return fmt.Errorf("mode %s: the URI does not say how many; write for example /reverse-request?req=10&res=feed-CON or /reverse-observe?obs=10&res=feed-CON", c.Mode)
	}
	return request.validateFor(target)
}

// perRound is how many requests or notifications a POST brings in the reverse modes.
func (c *BenchConfig) perRound(target Target) uint32 {
	name := "req="
	if c.Mode == ModeReverseObserve {
		name = "obs="
	}
	for _, argument := range target.Query {
		if text, ok := strings.CutPrefix(argument, name); ok {
			n, _ := strconv.ParseUint(text, 10, 31)
			return uint32(n)
		}
	}
	return 0
}

// progress is how far a client is in what takes more than one message.
type progress struct {
	begun      time.Duration // of the transfer
	uploaded   uint32        // bytes of the payload that the server has
	downloaded uint32        // bytes of the response
	exponent   uint32        // of the blocks of the payload, and of the response
	observing  uint32        // 1 + count in the token of the registration; 0: none
	round      uint32        // requests or notifications since the POST of a reverse mode
	open       bool          // the round is not over
	echo       []byte        // value of the Echo option that the server has demanded in this transfer (RFC 9175 section 2.3)
	echoes     uint8         // how often the message in flight has been repeated with such a value
	feed       feed
}

// feed is what the server observes at a client.
type feed struct {
	token    []byte // nil: nothing
	kind     message.Type
	sequence uint32
}

// request makes the next message of a client's transfer, without its message id and token.
func (w *worker) message(c *simulated) ([]byte, error) {
	cfg := &w.b.cfg
	if cfg.BlockSize == 0 && cfg.Mode != ModeObserve && len(c.progress.echo) == 0 {
		return w.sending[:copy(w.sending[:len(w.request)], w.request)], nil
	}
	p := &c.progress
	payload := cfg.Payload[p.uploaded:]
	more := uint32(0)
	if size := c.blockBytes(); cfg.BlockSize > 0 && len(payload) > size {
		payload, more = payload[:size], 8
	}
	var b message.Builder
	b.Reset(w.sending[:0], w.b.kind(), w.b.method(), 0, w.zero[:])
	register := cfg.Mode == ModeObserve && p.downloaded == 0
	if cfg.Mode == ModeObserve {
		payload = nil
	}
	for _, o := range w.b.options {
		if o.ID == message.ContentFormat && len(payload) == 0 {
			continue
		}
		if register && o.ID > message.Observe {
			b.Uint(message.Observe, 0)
			register = false
		}
		b.Option(o.ID, o.Value)
	}
	if register {
		b.Uint(message.Observe, 0)
	}
	switch {
	case p.downloaded > 0:
		b.Uint(message.Block2, p.downloaded>>shift(p.exponent)<<4|p.exponent)
	case more != 0 || p.uploaded > 0:
		b.Uint(message.Block1, p.uploaded>>shift(p.exponent)<<4|more|p.exponent)
		if p.uploaded == 0 {
			b.Uint(message.Size1, uint32(len(cfg.Payload)))
		}
	}
	if len(p.echo) > 0 {
		b.Option(message.Echo, p.echo)
	}
	b.Payload(payload)
	return b.Bytes()
}

// blockBytes is how many bytes of the payload a message carries: several blocks with BERT.
func (c *simulated) blockBytes() int {
	if c.progress.exponent == bert {
		return min(c.socket.stream.session.Peer.BERT(headers), c.w.b.cfg.BlockSize)
	}
	return 16 << c.progress.exponent
}

// kind is that of the load's requests: over TCP there are no kinds.
func (b *bench) kind() message.Type {
	if b.cfg.NON || b.target.Stream {
		return message.Non
	}
	return message.Con
}

// method is that of the load's requests.
func (b *bench) method() message.Code {
	if b.cfg.Mode == ModeObserve {
		return message.GET
	}
	return message.POST
}

// repeats takes a response and reports whether its message is to be sent again with the Echo option that the server demands (RFC 9175
// section 2.3). A server that demands the value it was just sent refuses the request; one with ever new values is given up.
func (c *simulated) repeats(m *message.Message) bool {
	p := &c.progress
	value, demanded := m.Option(message.Echo)
	if !demanded || m.Code != message.Unauthorized || p.echoes == maxEchoes || p.echoes > 0 && bytes.Equal(value, p.echo) {
		p.echoes = 0
		return false
	}
	p.echo = append(p.echo[:0], value...)
	p.echoes++
	c.w.stats.Echoes++
	return true
}

// goesOn takes a response and reports whether the transfer needs another message.
func (c *simulated) goesOn(m *message.Message) bool {
	w, p := c.w, &c.progress
	if w.b.cfg.BlockSize == 0 || m.Code.Class() != 2 {
		return false
	}
	if block, ok := m.Uint(message.Block1); ok && int(p.uploaded) < len(w.b.cfg.Payload) {
		p.uploaded += min(uint32(c.blockBytes()), uint32(len(w.b.cfg.Payload))-p.uploaded)
		p.exponent = min(p.exponent, block&7)
		if int(p.uploaded) < len(w.b.cfg.Payload) {
			w.stats.Blocks++
			return true
		}
	}
	block, ok := m.Uint(message.Block2)
	if !ok || block&8 == 0 || !fits(block, len(m.Payload), w.b.target.Stream) || block>>4<<shift(block&7) != p.downloaded || p.downloaded > maxBody {
		return false
	}
	p.uploaded = uint32(len(w.b.cfg.Payload))
	p.downloaded += uint32(len(m.Payload))
	p.exponent = block & 7
	w.stats.Blocks++
	return true
}

// again ends the session in order, and begins another one.
func (c *simulated) again() {
	if c.w.phase == phaseDrain {
		return
	}
	c.hangUp()
	c.w.stats.Clients--
	c.w.endpoint.Forget(&c.exchange)
	c.connect()
}

// registered takes the answer to a registration.
func (c *simulated) registered(m *message.Message) error {
	if _, ok := m.Option(message.Observe); !ok {
		return ErrNotObserved
	}
	c.progress.observing = c.count // the count of the token, plus 1
	return nil
}

// unmatched takes notifications, and rejects those of registrations that are over.
func (w *worker) unmatched(_ *exchange.Session, m *message.Message) bool {
	if w.b.cfg.Mode != ModeObserve || len(m.Token) != tokenLength {
		return false
	}
	i := binary.BigEndian.Uint32(m.Token) - uint32(w.first)
	if i >= uint32(len(w.clients)) {
		return false
	}
	c := w.clients[i]
	if c.state != stateReady || c.progress.observing != binary.BigEndian.Uint32(m.Token[4:])+1 {
		return false
	}
	if m.Code.Class() != 2 {
		c.progress.observing = 0
		w.stats.Failed++
		w.stats.Errors++
		c.pauseOrEnd()
		return true
	}
	w.stats.Notifications++
	c.counted()
	return true
}

// counted counts what a client does in the modes other than ModeRequest, and ends it where it has done enough.
func (c *simulated) counted() {
	w := c.w
	c.answeredAt = w.now
	if w.phase < phaseLoad || c.state != stateReady {
		return
	}
	w.stats.Requests++
	if c.success++; w.b.cfg.Requests > 0 && c.success >= uint32(w.b.cfg.Requests) {
		c.progress.observing = 0
		c.progress.feed.token = nil
		c.end()
	}
}

// Serve implements exchange.Handler: it answers the requests of the server in the reverse modes.
func (w *worker) Serve(session *exchange.Session, m *message.Message, reply *exchange.Reply, now time.Duration) {
	c := w.only(session)
	if c == nil || !w.b.cfg.Mode.reverse() || m.Code != message.GET {
		reply.Begin(message.NotFound)
		return
	}
	if w.b.cfg.Mode == ModeReverseObserve && c.state == stateEnded {
		reply.Begin(message.NotFound) // the server observes it no more
		return
	}
	b := reply.Begin(message.Content)
	value, observe := m.Uint(message.Observe)
	f := &c.progress.feed
	switch {
	case w.b.cfg.Mode == ModeReverseRequest:
		defer c.served()
	case observe && value == 0:
		if f.token == nil { // else it registers again
			c.setTimer(now + w.b.cfg.NotifyEvery)
		}
		f.token, f.kind = append(f.token[:0], m.Token...), message.Con
		if path, _ := m.Option(message.URIPath); string(path) == "feed-NON" || w.b.target.Stream {
			f.kind = message.Non
		}
		f.sequence++
		b.Uint(message.Observe, f.sequence&0xffffff)
	default:
		c.unobserved()
	}
	b.Uint(message.ContentFormat, uint32(message.Text))
	copy(b.Grow(min(len(w.b.cfg.Payload), b.Room())), w.b.cfg.Payload)
}

// served counts one request answered, or one notification sent, and opens the next round when this one is over.
func (c *simulated) served() {
	c.w.stats.Served++
	p := &c.progress
	if p.round++; p.round >= c.w.b.perRound {
		p.round, p.open = 0, false
		if c.w.b.cfg.Mode == ModeReverseRequest {
			c.setTimer(c.w.now)
		}
	}
	c.counted()
}

// unobserved ends the observation of this client, and requests another one.
func (c *simulated) unobserved() {
	c.progress.feed.token = nil
	c.progress.round, c.progress.open = 0, false
	if c.state == stateReady {
		c.setTimer(c.w.now)
	}
}

// notify sends one notification.
func (c *simulated) notify() {
	w, f := c.w, &c.progress.feed
	f.sequence++
	var b message.Builder
	b.Reset(w.sending[:0], f.kind, message.Content, 0, f.token)
	b.Uint(message.Observe, f.sequence&0xffffff)
	b.Uint(message.ContentFormat, uint32(message.Text))
	b.Payload(w.b.cfg.Payload)
	datagram, err := b.Bytes()
	if err != nil {
		w.fail(err)
		return
	}
	if _, ok := w.endpoint.Notify(c.session(), datagram, false, w.now); !ok || f.kind == message.Non {
		if ok {
			c.served()
		}
		if f.token != nil {
			c.setTimer(w.now + max(w.b.cfg.NotifyEvery, time.Millisecond))
		}
	}
}

// notified takes the end of a confirmable notification.
func (w *worker) notified(session *exchange.Session, _ uint16, outcome exchange.Outcome) {
	c := w.only(session)
	if c == nil || c.progress.feed.token == nil {
		return
	}
	switch outcome {
	case exchange.NotifyDelivered:
		c.served()
		if c.progress.feed.token != nil {
			c.setTimer(w.now + w.b.cfg.NotifyEvery)
		}
	case exchange.NotifyRejected:
		c.unobserved()
	default:
		w.stats.Lost++
		w.stats.Errors++
		c.unobserved()
	}
}

// only returns the client of a session that is not shared, or nil.
func (w *worker) only(session *exchange.Session) *simulated {
	if c, ok := session.Peer.(*simulated); ok {
		return c
	}
	if s := session.Peer.(*socket); len(s.clients) == 1 {
		return s.clients[0]
	}
	return nil
}

// session is the client's, or, over plain UDP, its socket's.
func (c *simulated) session() *exchange.Session {
	if c.w.b.target.ownSession() {
		return &c.exchange
	}
	return &c.socket.exchange
}
