package client

import (
	"errors"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Link is one link of a document in link format (RFC 6690).
type Link struct {
	Target     string
	Attributes []Attribute
}

// Attribute is one attribute of a link; without a value Value is empty.
type Attribute struct{ Name, Value string }

// maxLinks bounds the links of a document, and maxAttributes the attributes of one.
const (
	maxLinks      = 65536
	maxAttributes = 256
)

var errLinks = errors.New("the document is not in link format (RFC 6690)")

// ParseLinks reads a document in link format.
func ParseLinks(text string) (links []Link, err error) {
	for text = strings.TrimSpace(text); text != ""; {
		if len(links) == maxLinks {
			return nil, errLinks
		}
		var l Link
		if text, err = l.parse(text); err != nil {
			return nil, err
		}
		links = append(links, l)
		if text == "" {
			break
		}
		if text = strings.TrimSpace(text[1:]); text == "" { // a comma with nothing behind
			return nil, errLinks
		}
	}
	return links, nil
}

// parse reads one link and returns what follows it, which is empty or begins with a comma.
func (l *Link) parse(text string) (rest string, err error) {
	end := strings.IndexByte(text, '>')
	if text[0] != '<' || end < 0 {
		return "", errLinks
	}
	l.Target, rest = text[1:end], strings.TrimSpace(text[end+1:])
	for rest != "" && rest[0] != ',' {
		if rest[0] != ';' || len(l.Attributes) == maxAttributes {
			return "", errLinks
		}
		rest = strings.TrimSpace(rest[1:])
		end := strings.IndexAny(rest, "=;,")
		if end < 0 {
			end = len(rest)
		}
		a := Attribute{Name: strings.TrimSpace(rest[:end])}
		if a.Name == "" {
			return "", errLinks
		}
		if rest = rest[end:]; rest != "" && rest[0] == '=' {
			if a.Value, rest, err = value(strings.TrimSpace(rest[1:])); err != nil {
				return "", err
			}
		}
		l.Attributes = append(l.Attributes, a)
	}
	return rest, nil
}

// value reads the value of an attribute, quoted or not.
func value(text string) (v, rest string, err error) {
	if text == "" || text[0] != '"' {
		end := strings.IndexAny(text, ";,")
		if end < 0 {
			end = len(text)
		}
		return strings.TrimSpace(text[:end]), text[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), strings.TrimSpace(text[i+1:]), nil
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errLinks
}

// Attribute returns the values of the attributes with a name, separated by spaces.
func (l *Link) Attribute(name string) string {
	var values []string
	for _, a := range l.Attributes {
		if a.Name == name {
			values = append(values, a.Value)
		}
	}
	return strings.Join(values, " ")
}

// Has reports whether the link has an attribute, with or without a value.
func (l *Link) Has(name string) bool {
	for _, a := range l.Attributes {
		if a.Name == name {
			return true
		}
	}
	return false
}

// Formats are the names of the content formats that the ct attribute lists (RFC 7252 section 7.2.1).
func (l *Link) Formats() string {
	var names []string
	for _, word := range strings.Fields(l.Attribute("ct")) {
		if n, err := strconv.ParseUint(word, 10, 16); err == nil {
			word = message.Format(n).String()
		}
		names = append(names, word)
	}
	return strings.Join(names, " ")
}

// String is the link as in a document, its values quoted.
func (l *Link) String() string {
	var b strings.Builder
	b.WriteString("<" + l.Target + ">")
	for _, a := range l.Attributes {
		b.WriteString("; " + a.Name)
		if a.Value != "" {
			b.WriteString(`="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a.Value) + `"`)
		}
	}
	return b.String()
}
