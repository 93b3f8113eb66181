package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// observeCon is TD_COAP_OBS_01.
func observeCon(c *conversation) error {
	o, err := c.begin("/obs", hasFormat)
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
	o, err := c.register(message.Non, "/obs-non", nil, hasFormat)
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
	reset := request{code: message.POST, path: "/obs-reset", payload: []byte("sesame"), needed: true}
	if err := c.alter(reset, code(message.Changed)); err != nil {
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

// needsConfirmable reports that the loss of a notification that is not acknowledged cannot be seen.
func (c *conversation) needsConfirmable(o *observation) error {
	if o.last.Type == message.Con {
		return nil
	}
	return lackf("the notifications of %s are not confirmable", c.cfg.pathOf(o.path))
}

// observeOff is TD_COAP_OBS_05: the client acknowledges nothing any more. The server repeats, at growing intervals, and ends.
func observeOff(c *conversation) error {
	o, err := c.begin("/obs")
	if err == nil {
		err = c.needsConfirmable(o)
	}
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
		if time.Since(begun) > c.cfg.Abandon {
			return &failure{o.sent.text + ", and acknowledged no further notification", "an end of the observation after MAX_TRANSMIT_WAIT, 93 s", fmt.Sprintf("%d messages in %v, the last one %s", len(times), c.cfg.Abandon, describe(&a.Message)), "RFC 7641 section 4.5"}
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
func observeEnd(r request, last message.Code) func(*conversation) error {
	return func(c *conversation) error {
		o, err := c.begin("/obs")
		if err != nil {
			return err
		}
		r.needed = true
		if err := c.alter(r, code(message.Deleted, message.Changed)); err != nil {
			return err
		}
		for end := time.Now().Add(c.cfg.Notify); ; { // notifications of before the change may come first
			a, err := c.next(o, end)
			if err != nil {
				return err
			}
			if a == nil {
				return &failure{o.sent.text + ", and then " + r.code.Name() + " " + r.path, "a notification with " + last.String(), fmt.Sprintf("nothing but notifications with 2.05 within %v", c.cfg.Notify), "RFC 7641 section 4.2"}
			}
			if err := c.confirm(a); err != nil {
				return err
			}
			if a.Code == message.Content {
				continue
			}
			if err := c.check(o.sent, a, append(c.confirmable(), code(last), noObserve)...); err != nil {
				return err
			}
			return c.silence(o, "a notification with "+last.String())
		}
	}
}

// alter sends the request that something is to follow from. A server that refuses it, or that makes another resource of it, has no such
// resource.
func (c *conversation) alter(r request, wants ...want) error {
	s, err := c.send(r)
	if err != nil {
		return err
	}
	a, err := c.response(s)
	if err != nil {
		return err
	}
	if err := c.confirm(a); err != nil {
		return err
	}
	if err := c.check(s, a, wants...); err != nil && (a.Code.Class() == 4 || a.Code == message.Created) {
		return lackf("the server does not take %s %s: %s %s", r.code.Name(), c.cfg.pathOf(r.path), a.Code, a.Code.Name())
	} else if err != nil {
		return err
	}
	return nil
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
	if err := c.alter(r, code(message.Changed)); err != nil {
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

// unobserved is what the response to a GET of the observed resource has that is no notification.
func (c *conversation) unobserved(o *observation) []want {
	wants := []want{code(message.Content), noObserve, sameFormat(o.first)}
	if !c.target.Stream {
		wants = append(wants, piggybacked)
	}
	return wants
}

// observeGet is TD_COAP_OBS_10: a GET request with another token does not end the observation.
func observeGet(c *conversation) error {
	o, err := c.begin("/obs")
	if err != nil {
		return err
	}
	if _, err := c.ask(request{code: message.GET, path: "/obs"}, c.unobserved(o)...); err != nil {
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
	if err == nil {
		err = c.needsConfirmable(o)
	}
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
	if _, err := c.deregister(o, c.unobserved(o)...); err != nil {
		return err
	}
	return c.silence(o, "GET with Observe 1")
}

// maxChanged is how many transfers in a row may meet a change of the state.
const maxChanged = 2

// observeLarge is TD_COAP_OBS_13 and 14: the first block of a state comes with the notification, the client fetches the others.
func observeLarge(path string) func(*conversation) error {
	return func(c *conversation) error {
		o, err := c.register(message.Con, path, nil)
		if err != nil {
			return err
		}
		blockwise, failed := 0, 0
		for i, begun := 0, time.Now(); i < 6 || time.Since(begun) < 10*time.Second; i++ { // the size of some varies at random
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
			_, err = c.rest(request{code: message.GET, path: path}, a, b, code(message.Content), noObserve)
			if wrong := (*failure)(nil); errors.As(err, &wrong) && failed < maxChanged {
				failed++ // the state may have changed between two blocks, which is no fault: the next one is fetched
				continue
			}
			if err != nil {
				return err
			}
			failed = 0
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
