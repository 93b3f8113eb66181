package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

const discovery = "/.well-known/core"

// discover gets the links of the server, or those that a filter leaves.
func (c *conversation) discover(filter string) ([]client.Link, error) {
	path := discovery
	if filter != "" {
		path += "?" + filter
	}
	return c.links(request{code: message.GET, path: path, needed: true})
}

// links gets a document in link format.
func (c *conversation) links(r request) ([]client.Link, error) {
	text, first, err := c.whole(r, code(message.Content), format(message.LinkFormat))
	if err != nil {
		return nil, err
	}
	links, err := client.ParseLinks(string(text))
	if err != nil {
		return nil, &failure{"GET " + r.path, "a document in link format", fmt.Sprintf("%v: %s", err, describe(&first.Message)), "RFC 6690 section 2"}
	}
	return links, nil
}

// linkAll is TD_COAP_LINK_01.
func linkAll(c *conversation) error {
	links, err := c.discover("")
	if err == nil && len(links) == 0 {
		return &failure{"GET " + discovery, "the links of the server", "none", "RFC 6690 section 4"}
	}
	return err
}

// filtered is TD_COAP_LINK_02 to 08: the server leaves out what does not match. choose returns the filter for the links that there
// are, and which ones match it.
func filtered(choose func(*conversation, []client.Link) (filter string, matches func(*client.Link) bool)) func(*conversation) error {
	return func(c *conversation) error {
		links, err := c.discover("")
		if err != nil {
			return err
		}
		filter, matches := choose(c, links)
		if filter == "" {
			return lack("the server lists no links that such a filter could tell apart")
		}
		expected := map[string]bool{}
		for i := range links {
			if matches(&links[i]) {
				expected[links[i].Target] = true
			}
		}
		if len(expected) == len(links) {
			return lackf("the filter %s leaves out none of the %d links of this server", filter, len(links))
		}
		got, err := c.discover(filter)
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for _, l := range got {
			found[l.Target] = true
		}
		if maps.Equal(expected, found) {
			return nil
		}
		return &failure{"GET " + discovery + "?" + filter, fmt.Sprintf("the links %q", slices.Sorted(maps.Keys(expected))), fmt.Sprintf("%q", slices.Sorted(maps.Keys(found))), "ETSI list; RFC 6690 section 4.1"}
	}
}

// words are the values of an attribute that is a list of words (RFC 6690 section 3.1).
func words(l *client.Link, name string) []string { return strings.Fields(l.Attribute(name)) }

// byType filters by a resource type: several demands a link with more than one.
func byType(several bool) func(*conversation, []client.Link) (string, func(*client.Link) bool) {
	return func(_ *conversation, links []client.Link) (string, func(*client.Link) bool) {
		for i := range links {
			types := words(&links[i], "rt")
			if len(types) == 0 || several && len(types) < 2 {
				continue
			}
			chosen := types[len(types)-1]
			return "rt=" + chosen, func(l *client.Link) bool { return slices.Contains(words(l, "rt"), chosen) }
		}
		return "", nil
	}
}

// having filters by the presence of an attribute.
func having(name string) func(*conversation, []client.Link) (string, func(*client.Link) bool) {
	return func(_ *conversation, links []client.Link) (string, func(*client.Link) bool) {
		has := func(l *client.Link) bool { return l.Has(name) }
		for i := range links {
			if has(&links[i]) {
				return name + "=*", has
			}
		}
		return "", nil
	}
}

// byInterface filters by the beginning of an interface: If, or that of the first one there is.
func byInterface(_ *conversation, links []client.Link) (string, func(*client.Link) bool) {
	prefix := ""
	for i := range links {
		for _, word := range words(&links[i], "if") {
			if prefix == "" || strings.HasPrefix(word, "If") {
				prefix = word[:1]
			}
			if strings.HasPrefix(word, "If") {
				prefix = "If"
			}
		}
		if prefix == "If" {
			break
		}
	}
	if prefix == "" {
		return "", nil
	}
	return "if=" + prefix + "*", func(l *client.Link) bool {
		return slices.ContainsFunc(words(l, "if"), func(word string) bool { return strings.HasPrefix(word, prefix) })
	}
}

// byTarget filters by a path, or by the beginning of one: /link1 and /link, or another one that there is.
func byTarget(prefix bool) func(*conversation, []client.Link) (string, func(*client.Link) bool) {
	return func(c *conversation, links []client.Link) (string, func(*client.Link) bool) {
		if len(links) == 0 {
			return "", nil
		}
		chosen := links[len(links)-1].Target
		if own := c.cfg.pathOf("/link1"); c.listed[own] {
			chosen = own
		}
		if !prefix {
			return "href=" + chosen, func(l *client.Link) bool { return l.Target == chosen }
		}
		if len(chosen) < 3 {
			return "", nil
		}
		beginning := chosen[:len(chosen)-1]
		return "href=" + beginning + "*", func(l *client.Link) bool { return strings.HasPrefix(l.Target, beginning) }
	}
}

// linkHierarchy is TD_COAP_LINK_09: a resource lists those below it.
func linkHierarchy(c *conversation) error {
	links, err := c.discover("")
	if err != nil {
		return err
	}
	path := c.cfg.pathOf("/path")
	i := slices.IndexFunc(links, func(l client.Link) bool { return l.Target == path })
	if i < 0 {
		return lackf("the server lists no %s", path)
	}
	if !slices.Contains(words(&links[i], "ct"), "40") {
		return &failure{"GET " + discovery, path + " with ct=40", links[i].String(), "RFC 6690 section 5"}
	}
	below, err := c.links(request{code: message.GET, path: "/path", needed: true})
	if err != nil {
		return err
	}
	if len(below) == 0 {
		return &failure{"GET " + path, "links of sub-resources", "none", "RFC 6690 section 5"}
	}
	for _, l := range below {
		if !strings.HasPrefix(l.Target, path+"/") {
			return &failure{"GET " + path, "links below " + path, l.Target, "RFC 6690 section 5"}
		}
	}
	_, err = c.ask(request{code: message.GET, path: below[0].Target}, code(message.Content), hasPayload)
	return err
}
