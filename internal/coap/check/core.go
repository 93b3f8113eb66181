package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// sample is what the cases of CORE put.
const sample = "weir coap check"

func textFormat() []client.Option {
	return []client.Option{client.UintOption(message.ContentFormat, uint32(message.Text))}
}

// provide makes sure that a resource is there: where it is not, the server may let clients create it.
func (c *conversation) provide(path string, body []byte) error {
	a, err := c.ask(request{code: message.GET, path: path})
	if err != nil || a.Code != message.NotFound || c.listed[c.cfg.pathOf(path)] {
		return err
	}
	r := request{code: message.PUT, path: path, options: textFormat()}
	if len(body) > 1024 {
		_, err = c.upload(r, body, true)
	} else {
		r.payload = body
		_, err = c.ask(r)
	}
	var failed *failure
	if err != nil && !errors.As(err, &failed) { // a failure is that of another case
		return err
	}
	if a, err = c.ask(request{code: message.GET, path: path}); err == nil && a.Code == message.NotFound {
		return lackf("the server has no %s, and does not let a client create it", c.cfg.pathOf(path))
	}
	return err
}

// simple is TD_COAP_CORE_01 to 08: one request to /test.
func simple(kindOf message.Type, method message.Code, codes ...message.Code) func(*conversation) error {
	return func(c *conversation) error {
		if method != message.PUT {
			if err := c.provide("/test", []byte(sample)); err != nil {
				return err
			}
		}
		r := request{kind: kindOf, code: method, path: "/test", needed: true}
		if method == message.PUT || method == message.POST {
			r.options, r.payload = textFormat(), []byte(sample)
		}
		wants := []want{code(codes...)}
		if method == message.GET {
			wants = append(wants, hasFormat, hasPayload)
		} else {
			wants = append(wants, formatOfPayload)
		}
		if kindOf == message.Non {
			wants = append(wants, kind(message.Non, "ETSI list; RFC 7252 section 5.2.3"))
		}
		_, err := c.ask(r, wants...)
		return err
	}
}

// get is TD_COAP_CORE_10 and 12 to 14: a GET request.
func get(path string, empty bool) func(*conversation) error {
	return func(c *conversation) error {
		if path == "/test" {
			if err := c.provide(path, []byte(sample)); err != nil {
				return err
			}
		}
		_, err := c.ask(request{code: message.GET, path: path, empty: empty, needed: true}, code(message.Content), hasFormat, hasPayload)
		return err
	}
}

// separate is TD_COAP_CORE_09 and 11: an empty acknowledgement, then a confirmable response.
func separate(c *conversation) error {
	s, a, err := c.separate(message.Con)
	if err != nil {
		return err
	}
	if err := c.confirm(a); err != nil {
		return err
	}
	return c.check(s, a, code(message.Content), acknowledgedFirst, kind(message.Con, "ETSI list; RFC 7252 section 5.2.2"), hasFormat, hasPayload)
}

// acknowledgedFirst wants an empty acknowledgement before a separate response; it may be lost, but not on a path without loss.
var acknowledgedFirst = want{"an empty acknowledgement before the separate response", "RFC 7252 section 5.2.2", func(s *sent, _ *answer) bool { return s.acked }}

// separate requests /separate. The response is not acknowledged yet.
func (c *conversation) separate(t message.Type) (*sent, *answer, error) {
	s, err := c.send(request{kind: t, code: message.GET, path: "/separate", needed: true})
	if err != nil {
		return nil, nil, err
	}
	a, err := c.response(s)
	if err != nil {
		return nil, nil, err
	}
	if err := c.lacks(s, a, []want{code(message.Content)}); err != nil {
		return nil, nil, err
	}
	if a.Type == message.Ack && a.Code.Class() == 2 {
		return nil, nil, &failure{s.text, "an empty acknowledgement and then a separate response, as /separate is there for", describe(&a.Message), "ETSI list; RFC 7252 section 5.2.2"}
	}
	return s, a, nil
}

// separateNon is TD_COAP_CORE_17: a non-confirmable request is not acknowledged; matches fails where it is.
func separateNon(c *conversation) error {
	s, a, err := c.separate(message.Non)
	if err != nil {
		return err
	}
	if err := c.confirm(a); err != nil {
		return err
	}
	return c.check(s, a, code(message.Content), kind(message.Non, "ETSI list; RFC 7252 section 5.2.3"), hasFormat, hasPayload)
}

// lossy is TD_COAP_CORE_15: the response is taken as lost, and the request sent again. The repetition must get an equal
// acknowledgement; a request that is not safe must not be executed again.
func lossy(c *conversation) error {
	if err := c.provide("/test", []byte(sample)); err != nil {
		return err
	}
	s, a, err := c.twice(request{code: message.GET, path: "/test", needed: true}, code(message.Content), hasPayload)
	if err != nil {
		return err
	}
	if err := c.check(s, a, code(message.Content)); err != nil {
		return err
	}
	return c.deduplicates()
}

// twice sends a request, checks its response, sends the same message again and returns the second response.
func (c *conversation) twice(r request, wants ...want) (*sent, *answer, error) {
	s, err := c.send(r)
	if err != nil {
		return nil, nil, err
	}
	first, err := c.response(s)
	if err != nil {
		return nil, nil, err
	}
	if err := c.check(s, first, wants...); err != nil {
		return nil, nil, err
	}
	if err := c.confirm(first); err != nil {
		return nil, nil, err
	}
	if first.Type != message.Ack {
		return nil, nil, lackf("the response is not in the acknowledgement: %s", describe(&first.Message))
	}
	if err := c.write(s.datagram); err != nil {
		return nil, nil, err
	}
	again, err := c.response(s)
	if err != nil {
		return nil, nil, err
	}
	s.text = "again, as after a loss: " + s.text
	return s, again, c.check(s, again, piggybacked)
}

// deduplicates creates a resource with a request that comes twice, where the server has /large-create: both acknowledgements name the
// same one (RFC 7252 section 4.5). Without it nothing is checked.
func (c *conversation) deduplicates() error {
	var location []string
	r := request{code: message.POST, path: "/large-create", options: textFormat(), payload: []byte(sample)}
	s, a, err := c.twice(r, want{"", "", func(_ *sent, a *answer) bool {
		location = all(&a.Message, message.LocationPath)
		return true
	}})
	if err != nil || len(location) == 0 {
		return err
	}
	if err := c.check(s, a, code(message.Created), want{fmt.Sprintf("Location-Path options %q as the first time: the request is not executed again", location), "RFC 7252 section 4.5", values(message.LocationPath, location...).ok}); err != nil {
		return err
	}
	path := ""
	for _, segment := range location {
		path += "/" + segment
	}
	_, err = c.ask(request{code: message.DELETE, path: path}) // to tidy up
	return err
}

// lossySeparate is TD_COAP_CORE_16. The acknowledgement of the request is taken as lost: the request comes again. The first separate
// response is taken as lost, too: the server must repeat it until it is acknowledged, and not longer.
func lossySeparate(c *conversation) error {
	s, a, err := c.separate(message.Con)
	if err != nil {
		return err
	}
	if err := c.check(s, a, code(message.Content), kind(message.Con, "ETSI list; RFC 7252 section 5.2.2"), hasPayload); err != nil {
		return err
	}
	again, err := c.repetition(s, a, time.Now().Add(c.cfg.Timeout))
	if err != nil {
		return err
	}
	if again == nil {
		return &failure{s.text, "the separate response again, because it was not acknowledged", fmt.Sprintf("nothing within %v after %s", c.cfg.Timeout, describe(&a.Message)), "RFC 7252 section 4.2"}
	}
	gap := again.at.Sub(a.at)
	if err := c.confirm(again); err != nil {
		return err
	}
	// The first copy may have waited here: the gap is then longer than it looks.
	after, err := c.repetition(s, a, time.Now().Add(max(gap, c.cfg.AckTimeout)*5/2))
	if err == nil && after != nil {
		err = &failure{s.text + ", and acknowledged the response", "no further repetition", describe(&after.Message), "RFC 7252 section 4.2"}
	}
	if err != nil {
		return err
	}
	return c.repeatedRequest()
}

// repetition waits for a message again.
func (c *conversation) repetition(s *sent, first *answer, until time.Time) (*answer, error) {
	for {
		a, err := c.receive(until)
		if err != nil || a == nil {
			return nil, err
		}
		if a.ID == first.ID && a.Type == first.Type {
			if err := c.check(s, a, code(first.Code), want{fmt.Sprintf("the token %x of the request", s.token), "RFC 7252 section 5.3.2", func(s *sent, a *answer) bool { return string(a.Token) == string(s.token) }}); err != nil {
				return nil, err
			}
			return a, nil
		}
	}
}

// repeatedRequest sends a request for a separate response again after its acknowledgement, as if that was lost: the copy is
// acknowledged, too (RFC 7252 section 4.2).
func (c *conversation) repeatedRequest() error {
	s, err := c.send(request{code: message.GET, path: "/separate"})
	if err != nil {
		return err
	}
	acknowledged, answered := 0, false
	for end := time.Now().Add(c.cfg.Timeout); acknowledged < 2 || !answered; {
		a, err := c.receive(end)
		switch {
		case err != nil:
			return err
		case a == nil:
			return &failure{"twice " + s.text, "an acknowledgement of each copy and a response", fmt.Sprintf("%d acknowledgements, response: %t, within %v", acknowledged, answered, c.cfg.Timeout), "RFC 7252 sections 4.2 and 5.2.2"}
		case a.Type == message.Ack && a.ID == s.id:
			if acknowledged++; acknowledged == 1 {
				err = c.write(s.datagram)
			}
		case a.Type == message.Con:
			if err := c.confirm(a); err != nil {
				return err
			}
			answered = answered || string(a.Token) == string(s.token) // which may come before the second copy does
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ping is TD_COAP_CORE_31.
func ping(c *conversation) error {
	id := c.nextID()
	datagram := message.AppendEmpty(nil, message.Con, id)
	for end, wait := time.Now().Add(c.cfg.Timeout), c.cfg.AckTimeout; ; wait *= 2 {
		if err := c.write(datagram); err != nil {
			return err
		}
		until := time.Now().Add(wait)
		if until.After(end) {
			until = end
		}
		a, err := c.receive(until)
		switch {
		case err != nil:
			return err
		case a == nil && until.Equal(end):
			return &failure{fmt.Sprintf("CON 0.00 EMPTY MID %d", id), "a reset", fmt.Sprintf("nothing within %v", c.cfg.Timeout), "RFC 7252 section 4.3"}
		case a != nil && a.Type == message.Rst && a.ID == id:
			return nil
		case a != nil:
			return &failure{fmt.Sprintf("CON 0.00 EMPTY MID %d", id), fmt.Sprintf("RST 0.00 EMPTY MID %d", id), describe(&a.Message), "RFC 7252 section 4.3"}
		}
	}
}
