package check

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// request is a request to be sent.
type request struct {
	kind    message.Type // Con unless set
	code    message.Code
	path    string // of the list, with its query; Config.Paths may replace it
	options []client.Option
	payload []byte
	token   []byte // nil: a new one
	empty   bool   // the token is of length 0
	needed  bool   // without the resource or the method the case is inconclusive
}

// sent is a request that was sent.
type sent struct {
	request
	id       uint16
	datagram []byte
	text     string
	acked    bool // by an empty acknowledgement
}

// want is what an answer must be.
type want struct {
	text, reference string
	ok              func(s *sent, a *answer) bool
}

// cancels reports whether a request ends an observation (RFC 7641 section 3.6).
func (s *sent) cancels() bool {
	return slices.ContainsFunc(s.options, func(o client.Option) bool { return o.ID == message.Observe && len(o.Value) > 0 })
}

func option(id message.OptionID, value string) client.Option {
	return client.Option{ID: id, Value: []byte(value)}
}

// located is a request with the path on this server.
func (c *conversation) located(r request) request {
	path, query, _ := strings.Cut(r.path, "?")
	own := c.cfg.pathOf(path)
	if own, extra, found := strings.Cut(own, "?"); found {
		path, query = own, strings.Trim(extra+"&"+query, "&")
	} else {
		path = own
	}
	r.options = slices.Clone(r.options)
	for _, segment := range strings.Split(strings.Trim(path, "/"), "/") {
		if segment != "" {
			r.options = append(r.options, option(message.URIPath, segment))
		}
	}
	for _, argument := range strings.Split(query, "&") {
		if argument != "" {
			r.options = append(r.options, option(message.URIQuery, argument))
		}
	}
	slices.SortStableFunc(r.options, func(a, b client.Option) int { return int(a.ID) - int(b.ID) })
	return r
}

// pathOf is the path on this server of a path of the list.
func (c *Config) pathOf(path string) string {
	if own, ok := c.Paths[path]; ok {
		return own
	}
	return path
}

// send sends a request once.
func (c *conversation) send(r request) (*sent, error) {
	r = c.located(r)
	switch {
	case r.empty:
		r.token = nil
	case r.token == nil:
		r.token = binary.BigEndian.AppendUint32(nil, rand.Uint32())
	}
	if c.target.Stream {
		r.kind = message.Non
	}
	s := &sent{request: r, id: c.nextID()}
	var b message.Builder
	b.Reset(make([]byte, 0, 2048+len(r.payload)), r.kind, r.code, s.id, r.token)
	for _, o := range r.options {
		b.Option(o.ID, o.Value)
	}
	b.Payload(r.payload)
	var err error
	if s.datagram, err = b.Bytes(); err != nil {
		return nil, err
	}
	var m message.Message
	if err := message.Parse(s.datagram, &m); err != nil {
		return nil, err
	}
	s.text = describe(&m)
	return s, c.write(s.datagram)
}

// ask sends a request, waits for its response, acknowledges it and checks it.
func (c *conversation) ask(r request, wants ...want) (*answer, error) {
	s, a, err := c.exchange(r)
	if err != nil {
		return nil, err
	}
	return a, c.check(s, a, wants...)
}

// exchange sends a request, waits for its response and acknowledges it.
func (c *conversation) exchange(r request) (*sent, *answer, error) {
	s, err := c.send(r)
	if err != nil {
		return nil, nil, err
	}
	a, err := c.response(s)
	if err != nil {
		return nil, nil, err
	}
	return s, a, c.confirm(a)
}

// confirm acknowledges a confirmable message.
func (c *conversation) confirm(a *answer) error {
	if a.Type != message.Con {
		return nil
	}
	return c.acknowledge(message.Ack, a.ID)
}

// response waits for the response to a request and repeats the request until it is acknowledged (RFC 7252 section 4.2). A
// confirmable response is not acknowledged yet.
func (c *conversation) response(s *sent) (*answer, error) {
	end := time.Now().Add(c.cfg.Timeout)
	wait := c.cfg.AckTimeout
	repeat := time.Now().Add(wait)
	var others []string
	for {
		until := end
		if s.kind == message.Con && !s.acked && repeat.Before(end) {
			until = repeat
		}
		a, err := c.receive(until)
		switch {
		case err != nil:
			return nil, err
		case a == nil && until.Equal(end):
			return nil, &failure{s.text, "a response", c.nothing(others), "RFC 7252 section 5.2"}
		case a == nil:
			wait *= 2
			repeat = time.Now().Add(wait)
			if err := c.write(s.datagram); err != nil {
				return nil, err
			}
			continue
		}
		done, err := c.matches(s, a)
		if done || err != nil {
			return a, err
		}
		if (!s.acked || a.Code != message.Empty) && len(others) < maxOthers {
			others = append(others, describe(&a.Message))
		}
	}
}

// maxOthers bounds the messages that a failure shows instead of a response.
const maxOthers = 4

// nothing says that what was awaited did not come, and what came instead.
func (c *conversation) nothing(others []string) string {
	text := fmt.Sprintf("nothing within %v", c.cfg.Timeout)
	if len(others) > 0 {
		text += " but " + strings.Join(others, " | ")
	}
	return text
}

// matches reports whether a message is the response to a request. It takes acknowledgements and notifications on the way.
func (c *conversation) matches(s *sent, a *answer) (bool, error) {
	fail := func(expected, reference string) (bool, error) {
		return false, &failure{s.text, expected, describe(&a.Message), reference}
	}
	ours := a.ID == s.id && (a.Type == message.Ack || a.Type == message.Rst) && !c.target.Stream
	same := bytes.Equal(a.Token, s.token)
	switch {
	case a.Type == message.Rst && ours:
		return fail("no reset of a request that is well formed", "RFC 7252 section 4.2")
	case a.Type == message.Rst:
		return false, nil
	case a.Type == message.Ack && s.kind != message.Con && (ours || same && a.Code != message.Empty):
		return fail("no acknowledgement of a non-confirmable message", "RFC 7252 section 4.3")
	case a.Type == message.Ack && a.Code == message.Empty:
		s.acked = s.acked || ours
		return false, nil
	case a.Type == message.Ack && ours && !same:
		return fail(fmt.Sprintf("the token %x of the request", s.token), "RFC 7252 section 5.3.2")
	case a.Type == message.Ack && !ours && same && len(s.token) > 0:
		return fail(fmt.Sprintf("an acknowledgement with the message id %d of the request", s.id), "RFC 7252 section 4.2")
	case a.Type == message.Ack:
		return ours, nil
	}
	if o := c.observationOf(a); o != nil && (!same || hasObserve.ok(s, a) && (s.cancels() || !c.target.Stream)) {
		if len(o.waiting) < maxTrace {
			o.waiting = append(o.waiting, a)
		}
		return false, c.confirm(a)
	}
	if !same { // of no request: RFC 7252 section 4.2
		if a.Type == message.Con {
			return false, c.acknowledge(message.Rst, a.ID)
		}
		return false, nil
	}
	return true, nil
}

// check looks at a response: what every response must be, then what is wanted.
func (c *conversation) check(s *sent, a *answer, wants ...want) error {
	if s.needed {
		if err := c.lacks(s, a, wants); err != nil {
			return err
		}
	}
	for _, w := range append([]want{wellFormed}, wants...) {
		if !w.ok(s, a) {
			return &failure{s.text, w.text, describe(&a.Message), w.reference}
		}
	}
	return nil
}

// lacks reports that the server has no such resource, or not this method of it. A resource that its discovery document lists must
// be there.
func (c *conversation) lacks(s *sent, a *answer, wants []want) error {
	for _, w := range wants {
		if w.ok(s, a) && strings.HasPrefix(w.text, "code") {
			return nil
		}
	}
	path, _, _ := strings.Cut(s.path, "?")
	own := c.cfg.pathOf(path)
	switch {
	case a.Code == message.NotFound && !c.listed[own], a.Code == message.MethodNotAllowed, a.Code == message.NotImplemented,
		a.Code == message.Unauthorized, a.Code == message.Forbidden:
		return lackf("the server has no %s for %s: it answers %s %s", own, s.code.Name(), a.Code, a.Code.Name())
	}
	return nil
}
