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
	s, a, err := c.exchange(r)
	if err != nil {
		return nil, err
	}
	if err := c.check(s, a, append([]want{code(message.Content), hasObserve}, wants...)...); err != nil {
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

// sameFormat wants the content format of the first response, or none where it had none.
func sameFormat(first *answer) want {
	f, ok := first.Format(message.ContentFormat)
	text := "no Content-Format, as before"
	if ok {
		text = fmt.Sprintf("Content-Format %d, as before", f)
	}
	return want{text, "RFC 7641 section 4.2", func(_ *sent, a *answer) bool {
		got, has := a.Format(message.ContentFormat)
		return has == ok && got == f
	}}
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

// begin registers and takes the first notification, as most cases begin.
func (c *conversation) begin(path string, wants ...want) (*observation, error) {
	o, err := c.register(message.Con, path, nil, wants...)
	if err != nil {
		return nil, err
	}
	_, err = c.notification(o, c.confirmable()...)
	return o, err
}

// confirmable wants a notification to be confirmable, except over TCP, and except where the user has named another resource than /obs:
// either type is right then.
func (c *conversation) confirmable() []want {
	if _, another := c.cfg.Paths["/obs"]; another || c.target.Stream {
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
