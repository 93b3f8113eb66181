package resource

import (
	"bytes"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Attribute is one target attribute of a link (RFC 6690 section 2): ct, rt, if, sz, title and others. Value is without quotes, its
// words separated by a space; without a value only the name is written, as for obs.
type Attribute struct{ Name, Value string }

// link is one line of /.well-known/core.
type link struct {
	path       string
	attributes []Attribute
}

// AppendLink appends a link in link-format, behind a comma if dst holds one already.
func AppendLink(dst []byte, path string, attributes ...Attribute) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = append(append(append(dst, '<'), path...), '>')
	for _, a := range attributes {
		dst = append(append(dst, ';'), a.Name...)
		switch {
		case a.Value == "":
		case strings.Trim(a.Value, "0123456789") == "":
			dst = append(append(dst, '='), a.Value...)
		default:
			dst = append(append(append(dst, '=', '"'), strings.ReplaceAll(a.Value, `"`, "'")...), '"')
		}
	}
	return dst
}

// links returns the listed resources, ordered by path.
func (t *Tree) links() []link {
	var all []link
	for path, r := range t.resources {
		switch {
		case r.Hidden:
		case r.Links != nil:
			r.Links(func(path string, attributes ...Attribute) { all = append(all, link{path, attributes}) })
		default:
			all = append(all, link{path, r.Attributes})
		}
	}
	slices.SortFunc(all, func(a, b link) int { return strings.Compare(a.path, b.path) })
	return all
}

// serveCore lists the resources. Queries of the form name=value, the value with an optional trailing "*", select among them
// (RFC 6690 section 4.1); of several, all must match.
func (t *Tree) serveCore(r *Request) {
	if _, ok := r.Accepts(message.LinkFormat); !ok {
		return
	}
	links := t.links()
	for options := r.Message.Options(); options.Next() && options.ID() <= message.URIQuery; {
		if options.ID() != message.URIQuery {
			continue
		}
		name, value, found := bytes.Cut(options.Value(), []byte("="))
		if !found || len(name) == 0 {
			r.BadQuery(options.Value(), "a filter is NAME=VALUE, such as ct=0 or href=/my*")
			return
		}
		links = slices.DeleteFunc(links, func(l link) bool { return !l.matches(string(name), string(value)) })
	}
	var body []byte
	for _, l := range links {
		body = AppendLink(body, l.path, l.attributes...)
	}
	r.Answer(message.Content, message.LinkFormat, body)
}

// IsDiscovery reports whether a request is a GET of /.well-known/core.
func IsDiscovery(m *message.Message) bool {
	var path [maxPath]byte
	return m.Code == message.GET && string(appendPath(path[:0], m)) == "/.well-known/core"
}

// matches applies a filter: href to the path, any other name to the value of that attribute and to each word of it.
func (l *link) matches(name, value string) bool {
	prefix, wild := strings.CutSuffix(value, "*")
	equal := func(have string) bool { return have == value || wild && strings.HasPrefix(have, prefix) }
	if name == "href" {
		return equal(l.path)
	}
	return slices.ContainsFunc(l.attributes, func(a Attribute) bool {
		return a.Name == name && (equal(a.Value) || slices.ContainsFunc(strings.Fields(a.Value), equal))
	})
}
