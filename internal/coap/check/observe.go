package check

import (
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// observation is a registration at the server (RFC 7641).
type observation struct {
	path    string
	token   []byte
	sent    *sent
	first   *answer // the response to the registration
	last    *answer // the newest notification
	gap     time.Duration
	seen    map[uint16]bool // message ids of notifications
	waiting []*answer       // that came while a response was awaited; acknowledged
}

// observationOf is the observation that a message belongs to; nil: none.
func (c *conversation) observationOf(a *answer) *observation {
	for _, o := range c.observed {
		if string(o.token) == string(a.Token) {
			return o
		}
	}
	return nil
}

// register begins to observe a resource.
func (c *conversation) register(t message.Type, path string, token []byte, wants ...want) (*observation, error) {
	r := request{kind: t, code: message.GET, path: path, token: token, needed: true, options: []client.Option{client.UintOption(message.Observe, 0)}}
	s, err := c.send(r)
	if err != nil {
		return nil, err
	}
	a, err := c.response(s)
	if err != nil {
		return nil, err
	}
	if err := c.confirm(a); err != nil {
		return nil, err
	}
	if err := c.check(s, a, append([]want{code(message.Content), hasObserve, hasFormat}, wants...)...); err != nil {
		return nil, err
	}
	if s.kind == message.Con {
		if err := c.check(s, a, kind(message.Ack, "ETSI list; RFC 7641 section 4.1")); err != nil {
			return nil, err
		}
	}
	o := &observation{path: path, token: s.token, sent: s, first: a, last: a, seen: map[uint16]bool{a.ID: a.Type != message.Ack}}
	c.observed = append(c.observed, o)
	return o, nil
}

// next returns the next message of an observation that is not a repetition of an earlier one, or nil. It acknowledges repetitions,
// but not the message that it returns.
func (c *conversation) next(o *observation, until time.Time) (*answer, error) {
	for {
		var a *answer
		if len(o.waiting) > 0 {
			a, o.waiting = o.waiting[0], o.waiting[1:]
		} else {
			var err error
			if a, err = c.receive(until); err != nil || a == nil {
				return nil, err
			}
		}
		switch {
		case string(a.Token) != string(o.token):
			if a.Type == message.Con {
				if err := c.acknowledge(message.Rst, a.ID); err != nil {
					return nil, err
				}
				return nil, &failure{o.sent.text, fmt.Sprintf("notifications with the token %x of the registration", o.token), describe(&a.Message), "RFC 7641 section 4.2"}
			}
		case a.Code == message.Empty:
		case o.seen[a.ID] && !c.target.Stream:
			if err := c.confirm(a); err != nil {
				return nil, err
			}
		default:
			o.seen[a.ID] = true
			return a, nil
		}
	}
}

// notification waits for the next notification, acknowledges it and checks it.
func (c *conversation) notification(o *observation, wants ...want) (*answer, error) {
	a, err := c.unconfirmed(o, wants...)
	if err != nil {
		return nil, err
	}
	return a, c.confirm(a)
}

// unconfirmed is notification without the acknowledgement.
func (c *conversation) unconfirmed(o *observation, wants ...want) (*answer, error) {
	a, err := c.next(o, time.Now().Add(c.cfg.Notify))
	if err != nil {
		return nil, err
	}
	if a == nil {
		return nil, &failure{o.sent.text, "a notification", fmt.Sprintf("nothing within %v", c.cfg.Notify), "RFC 7641 section 4.2"}
	}
	wants = append([]want{code(message.Content), hasObserve, newer(o.last), sameFormat(o.first)}, wants...)
	if err := c.check(o.sent, a, wants...); err != nil {
		return nil, err
	}
	o.gap = max(o.gap, a.at.Sub(o.last.at))
	o.last = a
	return a, nil
}

// newer wants a larger sequence number, modulo 2^24 (RFC 7641 section 3.4).
func newer(before *answer) want {
	v1, _ := before.Uint(message.Observe)
	return want{fmt.Sprintf("an Observe option that is newer than %d", v1), "RFC 7641 section 3.4", func(_ *sent, a *answer) bool {
		v2, _ := a.Uint(message.Observe)
		return v1 < v2 && v2-v1 < 1<<23 || v1 > v2 && v1-v2 > 1<<23 || a.at.Sub(before.at) > 128*time.Second
	}}
}

// sameFormat wants the content format of the first response.
func sameFormat(first *answer) want {
	f, _ := first.Format(message.ContentFormat)
	w := format(f)
	w.reference = "RFC 7641 section 4.2"
	return w
}

// silence wants no message of an observation for two periods and a half of it.
func (c *conversation) silence(o *observation, after string) error {
	wait := min(2*o.gap+o.gap/2+time.Second, c.cfg.Notify)
	a, err := c.next(o, time.Now().Add(wait))
	if err != nil || a == nil {
		return err
	}
	if err := c.confirm(a); err != nil {
		return err
	}
	return &failure{o.sent.text + ", and then " + after, "no further notification", describe(&a.Message), "RFC 7641 section 3.6"}
}

// observed registers and takes the first notification, as most cases begin.
func (c *conversation) begin(path string) (*observation, error) {
	o, err := c.register(message.Con, path, nil)
	if err != nil {
		return nil, err
	}
	_, err = c.notification(o, c.confirmable()...)
	return o, err
}

// confirmable wants a notification to be confirmable, except over TCP.
func (c *conversation) confirmable() []want {
	if c.target.Stream {
		return nil
	}
	return []want{kind(message.Con, "ETSI list; RFC 7641 section 4.5")}
}

// cancel ends an observation, so that the server does not go on: part of no check.
func (c *conversation) cancel(o *observation) error {
	_, err := c.deregister(o)
	return err
}

// deregister sends GET with Observe 1 (RFC 7641 section 3.6).
func (c *conversation) deregister(o *observation, wants ...want) (*answer, error) {
	r := request{code: message.GET, path: o.path, token: o.token, options: []client.Option{client.UintOption(message.Observe, 1)}}
	a, err := c.ask(r, wants...)
	o.waiting = nil
	return a, err
}

// observeCon is TD_COAP_OBS_01.
func observeCon(c *conversation) error {
	o, err := c.begin("/obs")
	for i := 0; i < 2 && err == nil; i++ {
		_, err = c.notification(o, c.confirmable()...)
	}
	if err != nil {
		return err
	}
	return c.cancel(o)
}

// observeNon is TD_COAP_OBS_02. A server may send a notification as confirmable now and then (RFC 7641 section 4.5): not all of three.
func observeNon(c *conversation) error {
	o, err := c.register(message.Non, "/obs-non", nil)
	if err != nil {
		return err
	}
	confirmable := 0
	for range 3 {
		a, err := c.notification(o)
		if err != nil {
			return err
		}
		if a.Type == message.Con {
			confirmable++
		}
	}
	if confirmable == 3 {
		return &failure{o.sent.text, "non-confirmable notifications", "three confirmable ones", "ETSI list; RFC 7641 section 4.5"}
	}
	return c.cancel(o)
}

// observeAgain is TD_COAP_OBS_04: the server loses the registration, which /obs-reset does instead of a reboot, and the client
// registers with the same token again, as it would after Max-Age.
func observeAgain(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	if _, err := c.ask(request{code: message.POST, path: "/obs-reset", payload: []byte("sesame"), needed: true}, code(message.Changed)); err != nil {
		return err
	}
	o.waiting = nil
	if err := c.silence(o, "POST /obs-reset"); err != nil {
		return err
	}
	c.observed = nil
	again, err := c.register(message.Con, "/obs", o.token)
	if err != nil {
		return err
	}
	if _, err := c.notification(again, c.confirmable()...); err != nil {
		return err
	}
	return c.cancel(again)
}

// observeOff is TD_COAP_OBS_05: the client acknowledges nothing any more. The server repeats, at growing intervals, and ends.
func observeOff(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	var times []time.Time
	for begun := time.Now(); ; {
		wait := c.cfg.Notify
		if n := len(times); n > 1 {
			wait = max(2*o.gap, 5*times[n-1].Sub(times[n-2])/2) + time.Second
		}
		a, err := c.receive(time.Now().Add(wait))
		switch {
		case err != nil:
			return err
		case a == nil && len(times) == 0:
			return &failure{o.sent.text, "a notification", fmt.Sprintf("nothing within %v", wait), "RFC 7641 section 4.2"}
		case a == nil && len(times) == 1:
			return &failure{o.sent.text + ", and acknowledged no further notification", "the notification again", fmt.Sprintf("nothing within %v", wait), "RFC 7641 section 4.5.2"}
		case a == nil:
			return nil
		case string(a.Token) == string(o.token):
			times = append(times, a.at)
		}
		if time.Since(begun) > 3*time.Minute {
			return &failure{o.sent.text + ", and acknowledged no further notification", "an end of the observation after MAX_TRANSMIT_WAIT, 93 s", fmt.Sprintf("%d messages in 3 minutes, the last one %s", len(times), describe(&a.Message)), "RFC 7641 section 4.5"}
		}
	}
}

// observeReset is TD_COAP_OBS_06.
func observeReset(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	a, err := c.unconfirmed(o, c.confirmable()...)
	if err != nil {
		return err
	}
	if err := c.acknowledge(message.Rst, a.ID); err != nil {
		return err
	}
	return c.silence(o, fmt.Sprintf("RST MID %d", a.ID))
}

// observeEnd is TD_COAP_OBS_07 and 08: something ends the observation with a last notification of an error.
func observeEnd(r request, want_ message.Code) func(*conversation) error {
	return func(c *conversation) error {
		o, err := c.begin("/obs")
		if err != nil {
			return err
		}
		r.needed = true
		if _, err := c.ask(r, code(message.Deleted, message.Changed, message.Created)); err != nil {
			return err
		}
		for end := time.Now().Add(c.cfg.Notify); ; { // notifications of before the change may come first
			a, err := c.next(o, end)
			if err != nil {
				return err
			}
			if a == nil {
				return &failure{o.sent.text + ", and then " + r.code.Name() + " " + r.path, "a notification with " + want_.String(), fmt.Sprintf("nothing but notifications with 2.05 within %v", c.cfg.Notify), "RFC 7641 section 4.2"}
			}
			if err := c.confirm(a); err != nil {
				return err
			}
			if a.Code == message.Content && a.at.Sub(o.last.at) < c.cfg.Notify && len(o.waiting) > 0 {
				continue
			}
			if err := c.check(o.sent, a, append(c.confirmable(), code(want_), noObserve)...); err != nil {
				return err
			}
			return c.silence(o, "a notification with "+want_.String())
		}
	}
}

// observeUpdate is TD_COAP_OBS_09: a change reaches the observer.
func observeUpdate(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	f, _ := o.first.Uint(message.ContentFormat)
	text := fmt.Sprintf("changed at %d", time.Now().UnixNano())
	r := request{code: message.PUT, path: "/obs", payload: []byte(text), needed: true, options: []client.Option{client.UintOption(message.ContentFormat, f)}}
	if _, err := c.ask(r, code(message.Changed)); err != nil {
		return err
	}
	for end := time.Now().Add(c.cfg.Notify); time.Now().Before(end); { // those of before the change may come first
		a, err := c.notification(o, c.confirmable()...)
		if err != nil {
			return err
		}
		if string(a.Payload) == text {
			return c.cancel(o)
		}
	}
	return &failure{o.sent.text + ", and then PUT " + text, "a notification with that payload", describe(&o.last.Message), "RFC 7641 section 4.2"}
}

// observeGet is TD_COAP_OBS_10: a GET request with another token does not end the observation.
func observeGet(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	wants := []want{code(message.Content), noObserve, sameFormat(o.first)}
	if !c.target.Stream {
		wants = append(wants, piggybacked)
	}
	if _, err := c.ask(request{code: message.GET, path: "/obs"}, wants...); err != nil {
		return err
	}
	for range 2 { // one may have come before the GET
		if _, err := c.notification(o, c.confirmable()...); err != nil {
			return err
		}
	}
	return c.cancel(o)
}

// observeLossy is TD_COAP_OBS_11: a notification is taken as lost. The server repeats it, or sends a newer state in its place, and has
// only one on the way at a time.
func observeLossy(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	lost, err := c.unconfirmed(o, c.confirmable()...)
	if err != nil {
		return err
	}
	current := lost
	var repeated *answer
	for end := time.Now().Add(c.cfg.Notify); repeated == nil; {
		a, err := c.receive(end)
		switch {
		case err != nil:
			return err
		case a == nil:
			return &failure{o.sent.text + fmt.Sprintf(", and did not acknowledge MID %d", lost.ID), "the notification again", fmt.Sprintf("nothing within %v", c.cfg.Notify), "RFC 7641 section 4.5.2"}
		case string(a.Token) != string(o.token):
		case a.at.Sub(lost.at) < time.Second: // RFC 7252 section 4.8: not before ACK_TIMEOUT; some servers have a shorter one
			return &failure{o.sent.text + fmt.Sprintf(", and did not acknowledge MID %d", lost.ID), "no other notification before that one is given up or repeated", describe(&a.Message), "RFC 7641 section 4.5.1"}
		default:
			repeated = a
		}
	}
	if repeated.ID != current.ID {
		if err := c.check(o.sent, repeated, newer(current)); err != nil {
			return err
		}
	}
	o.seen[repeated.ID], o.last = true, repeated
	if err := c.confirm(repeated); err != nil {
		return err
	}
	if _, err := c.notification(o, c.confirmable()...); err != nil {
		return err
	}
	return c.cancel(o)
}

// observeCancel is TD_COAP_OBS_12.
func observeCancel(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	wants := []want{code(message.Content), noObserve, sameFormat(o.first)}
	if !c.target.Stream {
		wants = append(wants, piggybacked)
	}
	if _, err := c.deregister(o, wants...); err != nil {
		return err
	}
	return c.silence(o, "GET with Observe 1")
}

// observeLarge is TD_COAP_OBS_13 and 14: the first block of a state comes with the notification, the client fetches the others.
func observeLarge(path string) func(*conversation) error {
	return func(c *conversation) error {
		o, err := c.register(message.Con, path, nil)
		if err != nil {
			return err
		}
		blockwise := 0
		for range 6 {
			a, err := c.notification(o)
			if err != nil {
				return err
			}
			b, ok := of(a, message.Block2)
			if !ok {
				continue
			}
			if err := c.check(o.sent, a, blockIs(message.Block2, block{szx: 6}, true)); err != nil {
				return err
			}
			if !b.more {
				continue
			}
			if _, err := c.rest(request{code: message.GET, path: path}, a, b, code(message.Content), noObserve); err != nil {
				return err
			}
			if blockwise++; blockwise == 2 {
				return c.cancel(o)
			}
		}
		if blockwise == 0 {
			return lackf("no notification of %s is in blocks", c.cfg.pathOf(path))
		}
		return c.cancel(o)
	}
}
