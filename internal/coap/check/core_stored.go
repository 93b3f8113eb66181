package check

import (
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// locationPath is TD_COAP_CORE_18.
func locationPath(c *conversation) error {
	_, err := c.ask(request{code: message.POST, path: "/test", options: textFormat(), payload: []byte(sample), needed: true},
		code(message.Created), values(message.LocationPath, "location1", "location2", "location3"))
	return err
}

// locationQuery is TD_COAP_CORE_19.
func locationQuery(c *conversation) error {
	_, err := c.ask(request{code: message.POST, path: "/location-query", options: textFormat(), payload: []byte(sample), needed: true},
		code(message.Created), values(message.LocationQuery, "first=1", "second=2"), formatOfPayload)
	return err
}

// accept is TD_COAP_CORE_20.
func accept(c *conversation) error {
	for _, f := range []message.Format{message.Text, message.XML} {
		r := request{code: message.GET, path: "/multi-format", needed: true, options: []client.Option{client.UintOption(message.Accept, uint32(f))}}
		if _, err := c.ask(r, code(message.Content), format(f), hasPayload); err != nil {
			return err
		}
	}
	return nil
}

// validate is TD_COAP_CORE_21: an ETag is confirmed until the representation changes.
func validate(c *conversation) error {
	if err := c.provide("/validate", []byte(sample)); err != nil {
		return err
	}
	first, err := c.ask(request{code: message.GET, path: "/validate", needed: true}, code(message.Content), hasETag, hasPayload)
	if err != nil {
		return err
	}
	known, _ := first.Option(message.ETag)
	conditional := request{code: message.GET, path: "/validate", options: []client.Option{{ID: message.ETag, Value: known}}}
	if _, err := c.ask(conditional, code(message.Valid), tag(known, true), noPayload); err != nil {
		return err
	}
	if err := c.put(sample + ", changed"); err != nil {
		return err
	}
	_, err = c.ask(conditional, code(message.Content), tag(known, false), payload(first.Payload, false), hasPayload)
	return err
}

// put changes /validate.
func (c *conversation) put(text string, conditions ...client.Option) error {
	_, err := c.ask(request{code: message.PUT, path: "/validate", options: append(textFormat(), conditions...), payload: []byte(text), needed: len(conditions) == 0},
		code(message.Changed, message.Created), formatOfPayload)
	return err
}

// ifMatch is TD_COAP_CORE_22: an update under a condition, once while it holds and once after another update.
func ifMatch(c *conversation) error {
	if err := c.provide("/validate", []byte(sample)); err != nil {
		return err
	}
	if err := c.put(sample + ", at the beginning"); err != nil {
		return err
	}
	first, err := c.ask(request{code: message.GET, path: "/validate", needed: true}, code(message.Content), hasETag, hasPayload)
	if err != nil {
		return err
	}
	before, _ := first.Option(message.ETag)
	const second, third, refused = sample + ", the second", sample + ", the third", sample + ", refused"
	if err := c.put(second, client.Option{ID: message.IfMatch, Value: before}); err != nil {
		return err
	}
	next, err := c.ask(request{code: message.GET, path: "/validate"}, code(message.Content), hasETag, tag(before, false), payload([]byte(second), true))
	if err != nil {
		return err
	}
	if err := c.put(third); err != nil {
		return err
	}
	old, _ := next.Option(message.ETag)
	r := request{code: message.PUT, path: "/validate", options: append(textFormat(), client.Option{ID: message.IfMatch, Value: old}), payload: []byte(refused)}
	if _, err := c.ask(r, code(message.PreconditionFailed)); err != nil {
		return err
	}
	_, err = c.ask(request{code: message.GET, path: "/validate"}, code(message.Content), payload([]byte(refused), false))
	return err
}

// ifNoneMatch is TD_COAP_CORE_23: a resource is created once.
func ifNoneMatch(c *conversation) error {
	remove := request{code: message.DELETE, path: "/create1"}
	if _, err := c.ask(remove); err != nil { // of an earlier run
		return err
	}
	create := request{code: message.PUT, path: "/create1", options: append(textFormat(), client.Option{ID: message.IfNoneMatch}), payload: []byte(sample), needed: true}
	if _, err := c.ask(create, code(message.Created), formatOfPayload); err != nil {
		return err
	}
	create.needed = false
	if _, err := c.ask(create, code(message.PreconditionFailed)); err != nil {
		return err
	}
	_, err := c.ask(remove)
	return err
}
