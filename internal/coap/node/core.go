package node

import (
	"bytes"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// link is one line of /.well-known/core.
type link struct{ path, text string }

// serveCore lists the resources; one query of the form name=value, the value with an optional trailing "*", selects among them
// (RFC 6690 section 4.1).
func (r *request) serveCore() {
	if _, ok := r.accepts(message.LinkFormat); !ok {
		return
	}
	filter, filtered := r.message.Option(message.URIQuery)
	var name, value []byte
	if filtered {
		var found bool
		if name, value, found = bytes.Cut(filter, []byte("=")); !found || len(name) == 0 {
			r.badQuery(filter, "a filter is NAME=VALUE, such as ct=0 or href=/my*")
			return
		}
	}
	var body []byte
	for _, l := range r.handler.listener.links {
		if filtered && !l.matches(string(name), string(value)) {
			continue
		}
		if len(body) > 0 {
			body = append(body, ',')
		}
		body = append(body, l.text...)
	}
	r.body(message.Content, message.LinkFormat, body)
}

// matches applies a filter: href to the path, any other name to the values of that attribute, each word of it.
func (l link) matches(name, value string) bool {
	prefix, wild := strings.CutSuffix(value, "*")
	equal := func(have string) bool { return have == value || wild && strings.HasPrefix(have, prefix) }
	if name == "href" {
		return equal(l.path)
	}
	for rest := l.text; ; {
		i := strings.Index(rest, ";"+name+"=")
		if i < 0 {
			return false
		}
		rest = rest[i+len(name)+2:]
		have := rest
		if strings.HasPrefix(rest, `"`) {
			have, _, _ = strings.Cut(rest[1:], `"`)
		} else {
			have, _, _ = strings.Cut(rest, ";")
		}
		if equal(have) {
			return true
		}
		for word := range strings.FieldsSeq(have) {
			if equal(word) {
				return true
			}
		}
	}
}
