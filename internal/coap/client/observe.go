package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Notification is one state of an observed resource.
type Notification struct {
	*Exchange        // Response is the notification; Request is what registered
	Number    int    // of the notifications delivered, from 1; the answer to the registration is the first
	Sequence  uint32 // value of the Observe option (RFC 7641 section 3.4)
	// Registrations counts the registrations so far: more than one after a Max-Age without a notification, or after Refresh.
	Registrations int
	Stale         uint64 // notifications not delivered because they are older than one that was
}

// ObserveConfig describes an observation. The zero value of a field means its default.
type ObserveConfig struct {
	Request
	// Refresh registers again at this interval, also while notifications come; 0: only when Max-Age has passed without one.
	Refresh time.Duration
	// Reject ends the observation by a reset of the next notification, instead of a request with Observe 1.
	Reject bool
}

// ErrNotObserved: the server has answered without an Observe option, so there will be no notifications.
var ErrNotObserved = errors.New("the resource cannot be observed")

// observation is a registered request (RFC 7641).
type observation struct {
	token  []byte
	queue  chan []byte   // notifications as received; the oldest is dropped when it is full
	failed chan error    // holds one
	again  chan struct{} // holds one: register again

	open, before opener // of the newest request, and of the one before; nil: not protected
}

// observed is the state of one observation while Observe runs.
type observed struct {
	*observation
	conn     *Conn
	cfg      *ObserveConfig
	last     uint32    // Observe option of the newest notification
	at       time.Time // when it came
	expires  time.Time // register again; zero: never
	delivery Notification
}

// maxQueue bounds the notifications that wait for their delivery.
const maxQueue = 64

// expiryJitter is what is waited beyond Max-Age, 5 to 15 s (RFC 7641 section 3.3.1).
func expiryJitter() time.Duration { return 5*time.Second + mathrand.N(10*time.Second) }

// Observe registers for a resource and delivers each of its states, the first one included, until deliver returns false, ctx ends
// (no error) or the server ends the observation: by an error response, which is delivered, by an answer without an Observe option
// (ErrNotObserved), or by not answering. It fetches the blocks of long notifications. deliver is called on the caller's goroutine.
func (c *Conn) Observe(ctx context.Context, cfg ObserveConfig, deliver func(Notification) bool) error {
	if err := cfg.validateFor(c.target); err != nil {
		return err
	}
	o := &observed{conn: c, cfg: &cfg, observation: &observation{
		token: make([]byte, 8), queue: make(chan []byte, maxQueue), failed: make(chan error, 1), again: make(chan struct{}, 1),
	}}
	rand.Read(o.token) //nolint:errcheck // never fails, by its contract
	c.mu.Lock()
	c.observations[string(o.token)] = o.observation
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.observations, string(o.token))
		c.mu.Unlock()
	}()
	more, err := o.register(ctx, deliver)
	for more && err == nil {
		more, err = o.next(ctx, deliver)
	}
	if ctx.Err() != nil {
		err = nil
	}
	if err == nil && o.delivery.Number > 0 && !o.ended() {
		return o.cancel()
	}
	return err
}

// ended reports whether the newest notification was the last one.
func (o *observed) ended() bool {
	var m message.Message
	if o.delivery.Exchange == nil || message.Parse(o.delivery.Response, &m) != nil {
		return true
	}
	_, ok := m.Option(message.Observe)
	return !ok
}

// next waits for what comes next: a notification, or the time to register again.
func (o *observed) next(ctx context.Context, deliver func(Notification) bool) (more bool, err error) {
	var due <-chan time.Time
	if !o.expires.IsZero() {
		timer := time.NewTimer(time.Until(o.expires))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false, nil
	case err := <-o.failed:
		return false, err
	case datagram := <-o.queue:
		return o.notified(ctx, datagram, deliver)
	case <-due:
		return o.register(ctx, deliver)
	case <-o.again:
		return o.register(ctx, deliver)
	}
}

// message makes a request of this observation with an Observe value: 0 registers, 1 cancels.
func (o *observed) message(value uint32) ([]byte, error) {
	r := &o.cfg.Request
	kind := message.Con
	if r.NON {
		kind = message.Non
	}
	options := append(r.options(o.conn.target), UintOption(message.Observe, value))
	if r.BlockSize != 0 {
		options = append(options, UintOption(message.Block2, o.conn.exponent(r.BlockSize)))
	}
	return build(kind, r.method(), o.token, options, r.Payload)
}

// register sends the registration and delivers its answer.
func (o *observed) register(ctx context.Context, deliver func(Notification) bool) (more bool, err error) {
	request, err := o.message(0)
	if err != nil {
		return false, err
	}
	begun := time.Now()
	r, err := o.conn.roundTrip(ctx, request)
	if err != nil {
		return false, err
	}
	if o.delivery.Registrations++; o.conn.cfg.Protector != nil {
		o.conn.registered(o.observation)
		o.last = 0 // the numbers of each registration are its own (RFC 8613 section 7.4.1)
		o.at = time.Time{}
	}
	o.delivery.Exchange = &Exchange{
		Target: o.conn.target, Session: o.conn.Session(), Request: request, RTT: time.Since(begun), Elapsed: time.Since(begun), Retransmissions: r.repeats, Messages: 1,
	}
	return o.notified(ctx, r.datagram, deliver)
}

// notified delivers one notification, if it is fresh.
func (o *observed) notified(ctx context.Context, datagram []byte, deliver func(Notification) bool) (more bool, err error) {
	var m message.Message
	if err := message.Parse(datagram, &m); err != nil {
		return false, err
	}
	sequence, ok := m.Uint(message.Observe)
	switch {
	case m.Code.Class() != 2:
		o.deliver(datagram, 0, deliver)
		return false, nil
	case !ok:
		o.deliver(datagram, 0, deliver)
		return false, ErrNotObserved
	case o.delivery.Number > 0 && !o.conn.target.Stream && !exchange.Newer(sequence, o.last, time.Since(o.at)):
		o.delivery.Stale++
		o.schedule(&m) // the answer to a registration may be stale, too: the next one must not follow at once
		return true, nil
	}
	o.last, o.at = sequence, time.Now()
	o.schedule(&m)
	t := &transfer{conn: o.conn, request: &o.cfg.Request, x: &Exchange{Response: datagram}, exponent: o.conn.exponent(o.cfg.BlockSize)}
	if err := t.download(ctx, &m); err != nil {
		if errors.Is(err, ErrNoResponse) {
			return true, nil // the next notification may come whole
		}
		return false, err
	}
	return o.deliver(t.x.Response, sequence, deliver), nil
}

func (o *observed) deliver(datagram []byte, sequence uint32, deliver func(Notification) bool) bool {
	x := *o.delivery.Exchange
	x.Response = datagram
	o.delivery.Exchange, o.delivery.Sequence = &x, sequence
	o.delivery.Number++
	return deliver(o.delivery)
}

// schedule sets the time of the next registration by a notification's Max-Age.
func (o *observed) schedule(m *message.Message) {
	age, ok := m.Uint(message.MaxAge)
	if !ok {
		age = 60 // RFC 7252 section 5.10.5
	}
	o.expires = time.Now().Add(time.Duration(age)*time.Second + expiryJitter())
	if r := o.cfg.Refresh; r > 0 && time.Until(o.expires) > r {
		o.expires = time.Now().Add(r)
	}
}

// cancel ends the observation at the server: by a request with Observe 1, or, with Reject, by rejecting what comes from now on.
func (o *observed) cancel() error {
	if o.cfg.Reject {
		return nil
	}
	request, err := o.message(1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := o.conn.roundTrip(ctx, request); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cancel the observation: %w", err)
	}
	return nil
}

// unmatched takes notifications, for the endpoint; with c.mu held. false: no one observes this, and a reset notifies the server.
func (c *Conn) unmatched(_ *exchange.Session, m *message.Message) bool {
	o := c.observations[string(m.Token)]
	if o == nil {
		return false
	}
	datagram := c.notification(o)
	if datagram == nil {
		return true // an old one, or not from the server: a reset would end the observation
	}
	for {
		select {
		case o.queue <- datagram:
			return true
		default:
		}
		select {
		case <-o.queue: // the oldest makes room: the newest state counts
		default:
		}
	}
}

// restart makes an observation register again, in another session.
func (o *observation) restart() {
	select {
	case o.again <- struct{}{}:
	default:
	}
}

// stop ends an observation with an error.
func (o *observation) stop(err error) {
	select {
	case o.failed <- err:
	default:
	}
}
