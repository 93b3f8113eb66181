package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// wellFormed is what every response must be: of a response class, without a critical option that a client cannot know.
var wellFormed = want{"a response code, and no unknown critical option", "RFC 7252 sections 5.2 and 5.4.1", func(_ *sent, a *answer) bool {
	_, bad := a.BadOption(func(id message.OptionID) bool {
		return id == message.Block1 || id == message.Block2 || id == message.OSCORE
	})
	return a.Code.IsResponse() && !bad
}}

// code wants one of some codes.
func code(codes ...message.Code) want {
	var names []string
	for _, c := range codes {
		names = append(names, c.String()+" "+c.Name())
	}
	return want{"code " + strings.Join(names, " or "), "RFC 7252 section 5.8", func(_ *sent, a *answer) bool { return slices.Contains(codes, a.Code) }}
}

// kind wants a message type.
func kind(t message.Type, reference string) want {
	return want{"type " + t.String(), reference, func(_ *sent, a *answer) bool { return a.Type == t }}
}

var (
	hasFormat = want{"a Content-Format option", "RFC 7252 section 5.10.3", func(_ *sent, a *answer) bool {
		_, ok := a.Format(message.ContentFormat)
		return ok
	}}
	hasPayload = want{"a payload", "RFC 7252 section 5.5", func(_ *sent, a *answer) bool { return len(a.Payload) > 0 }}
	noPayload  = want{"no payload", "RFC 7252 section 5.9.1.3", func(_ *sent, a *answer) bool { return len(a.Payload) == 0 }}
	// formatOfPayload: the list wants a content format with a payload; the RFC calls for one, with exceptions.
	formatOfPayload = want{"a Content-Format option with a payload", "ETSI list; RFC 7252 section 5.5.1", func(s *sent, a *answer) bool {
		return len(a.Payload) == 0 || hasFormat.ok(s, a)
	}}
	hasETag = want{"an ETag of 1 to 8 bytes", "RFC 7252 section 5.10.6", func(_ *sent, a *answer) bool {
		tag, ok := a.Option(message.ETag)
		return ok && len(tag) > 0 && len(tag) <= 8
	}}
	hasObserve = want{"an Observe option of at most 3 bytes", "RFC 7641 section 4.1", func(_ *sent, a *answer) bool {
		value, ok := a.Option(message.Observe)
		return ok && len(value) <= 3
	}}
	noObserve = want{"no Observe option", "RFC 7641 sections 4.1 and 4.2", func(_ *sent, a *answer) bool {
		_, ok := a.Option(message.Observe)
		return !ok
	}}
	piggybacked = want{"the response in the acknowledgement", "RFC 7252 section 5.2.1", func(_ *sent, a *answer) bool { return a.Type == message.Ack }}
)

// format wants a content format.
func format(f message.Format) want {
	return want{fmt.Sprintf("Content-Format %d", f), "RFC 7252 section 5.10.3", func(_ *sent, a *answer) bool {
		got, ok := a.Format(message.ContentFormat)
		return ok && got == f
	}}
}

// tag wants an entity tag, or any but it.
func tag(value []byte, same bool) want {
	text := "ETag"
	if !same {
		text = "an ETag other than"
	}
	return want{fmt.Sprintf("%s %x", text, value), "RFC 7252 section 5.10.6", func(_ *sent, a *answer) bool {
		got, ok := a.Option(message.ETag)
		return ok && bytes.Equal(got, value) == same
	}}
}

// payload wants a payload, or any but it.
func payload(value []byte, same bool) want {
	text := "the payload"
	if !same {
		text = "a payload other than"
	}
	return want{fmt.Sprintf("%s %.40q", text, value), "RFC 7252 section 5.8", func(_ *sent, a *answer) bool { return bytes.Equal(a.Payload, value) == same }}
}

// all returns the values of an option that may be repeated.
func all(m *message.Message, id message.OptionID) (values []string) {
	for options := m.Options(); options.Next(); {
		if options.ID() == id {
			values = append(values, string(options.Value()))
		}
	}
	return values
}

// values wants exactly these values of an option that may be repeated.
func values(id message.OptionID, want_ ...string) want {
	return want{fmt.Sprintf("%s options %q", id, want_), "RFC 7252 section 5.10.7", func(_ *sent, a *answer) bool { return slices.Equal(all(&a.Message, id), want_) }}
}
