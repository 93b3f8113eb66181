package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// put returns the representation in the request; without a content format it answers 4.00.
func put(r *resource.Request) (stored, bool) {
	format, ok := r.Message.Format(message.ContentFormat)
	if !ok {
		r.Error(message.BadRequest, "Content-Format is missing")
		return stored{}, false
	}
	return stored{bytes.Clone(r.Body), format, true}, true
}

// tag is 00 for what is empty, else a hash of the body.
func (s *stored) tag() []byte {
	if !s.exists {
		return []byte{0}
	}
	hash := fnv.New32a()
	_, _ = hash.Write(s.body)
	return binary.BigEndian.AppendUint32(nil, hash.Sum32())
}

func (s *stored) answer(r *resource.Request) {
	if _, ok := r.Accepts(s.format); ok {
		r.Answer(message.Content, s.format, s.body)
	}
}

// locked is a method that holds p.mu.
func (p *plugtest) locked(method func(*resource.Request)) func(*resource.Request) {
	return func(r *resource.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		method(r)
	}
}

// addStored adds /validate and /create1 to /create3.
func (p *plugtest) addStored(t *resource.Tree) {
	reset := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.valid = stored{}
	}
	t.Add("/validate", &resource.Resource{
		Attributes: attributes("ct", "0"), Get: p.locked(p.getValid), Put: p.locked(p.putValid), Unmet: reset,
		Delete: func(r *resource.Request) { reset(); r.Done(message.Deleted) },
		State: func(*resource.Request) ([]byte, bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.valid.tag(), p.valid.exists
		},
	})
	for i := range p.created {
		p.addCreated(t, fmt.Sprintf("/create%d", i+1), &p.created[i])
	}
}

// getValid changes the state after a 2.03, so that the next request with this tag gets the representation.
func (p *plugtest) getValid(r *resource.Request) {
	tag := p.valid.tag()
	known := r.Knows(tag)
	r.ETag(tag)
	if p.valid.exists {
		p.valid.answer(r)
	} else {
		answerDescription(r, string(describe(r.Message)))
	}
	if known {
		p.valid = stored{}
	}
}

func (p *plugtest) putValid(r *resource.Request) {
	format, ok := r.Message.Format(message.ContentFormat)
	if !ok {
		format = message.Text
	}
	code := message.Changed
	if _, first := r.Message.Option(message.IfNoneMatch); first {
		code = message.Created
	}
	p.valid = stored{bytes.Clone(r.Body), format, true}
	r.ETag(p.valid.tag())
	r.Done(code)
}

// addCreated adds a resource that is not there until a client puts it. A second attempt to create it removes it, so that the
// test can be repeated.
func (p *plugtest) addCreated(t *resource.Tree, path string, s *stored) {
	locked := func(f func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f()
	}
	t.Add(path, &resource.Resource{
		State: func(*resource.Request) (tag []byte, exists bool) {
			locked(func() { exists = s.exists })
			return nil, exists
		},
		Unmet: func() { locked(func() { *s = stored{} }) },
		Links: func(list func(string, ...resource.Attribute)) {
			locked(func() {
				if s.exists {
					list(path, attributes("ct", strconv.Itoa(int(s.format)))...)
				}
			})
		},
		Get: p.locked(func(r *resource.Request) {
			if !s.exists {
				r.Error(message.NotFound, "not created")
				return
			}
			s.answer(r)
		}),
		Put: p.locked(func(r *resource.Request) {
			if body, ok := put(r); ok {
				code := message.Created
				if s.exists {
					code = message.Changed
				}
				*s = body
				r.Done(code)
			}
		}),
		Delete: p.locked(func(r *resource.Request) { *s = stored{}; r.Done(message.Deleted) }),
	})
}

// largeText is 1280 bytes: five blocks of four lines of 64 bytes.
func largeText() string {
	rule := strings.Repeat("-", 61)
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "/%s\\\n|%s|\n|%s|\n\\%s/\n", rule, center(fmt.Sprintf("RESOURCE BLOCK NO. %d OF 5", i+1)), center("[each line contains 64 bytes]"), rule)
	}
	return b.String()
}

func center(text string) string {
	left := (61 - len(text)) / 2
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", 61-left-len(text))
}

// addLarge adds the resources for transfer in blocks.
func (p *plugtest) addLarge(t *resource.Tree) {
	large := []byte(largeText())
	get := func(r *resource.Request) { answerText(r, string(large)) }
	sized := attributes("rt", "block", "sz", "1280", "ct", "0")
	t.Add("/large", &resource.Resource{Attributes: sized, Get: get})
	t.Add("/large-separate", &resource.Resource{Attributes: sized, Get: func(r *resource.Request) {
		if r.First() {
			r.Separate(separateDelay)
		}
		get(r)
	}})
	t.Add("/large-update", &resource.Resource{
		Links: func(list func(string, ...resource.Attribute)) {
			p.mu.Lock()
			defer p.mu.Unlock()
			list("/large-update", attributes("rt", "block", "sz", strconv.Itoa(len(p.large.body)), "ct", strconv.Itoa(int(p.large.format)))...)
		},
		Get: p.locked(func(r *resource.Request) { p.large.answer(r) }),
		Put: p.locked(func(r *resource.Request) {
			if body, ok := put(r); ok {
				p.large = body
				r.Done(message.Changed)
			}
		}),
	})
	t.Add("/large-post", &resource.Resource{
		Attributes: attributes("rt", "block"),
		Get: func(r *resource.Request) {
			if _, ok := r.Accepts(message.LinkFormat); ok {
				r.Answer(message.Content, message.LinkFormat, resource.AppendLink(nil, "/large-post", attributes("rt", "block")...))
			}
		},
		Post: func(r *resource.Request) {
			if format, ok := r.Message.Format(message.ContentFormat); ok && format != message.Text {
				r.Error(message.NotAcceptable, "") // not 4.15: as Californium
				return
			}
			r.Answer(message.Changed, message.Text, bytes.ToUpper(r.Body))
		},
	})
	t.Add("/large-create", &resource.Resource{
		Attributes: attributes("rt", "block", "ct", "40"), Below: true,
		Get: p.locked(p.getChild), Post: p.locked(p.createChild), Delete: p.locked(p.deleteChild),
	})
}

// maxChildren bounds /large-create; the oldest makes room.
const maxChildren = 64

// child is a resource below /large-create.
type child struct {
	path string
	stored
}

// child returns the index of the requested child, or answers 4.04.
func (p *plugtest) child(r *resource.Request) int {
	i := slices.IndexFunc(p.bodies, func(c child) bool { return c.path == string(r.Path) })
	if i < 0 {
		r.Error(message.NotFound, "")
	}
	return i
}

func (p *plugtest) getChild(r *resource.Request) {
	if string(r.Path) != "/large-create" {
		if i := p.child(r); i >= 0 {
			p.bodies[i].answer(r)
		}
		return
	}
	if _, ok := r.Accepts(message.LinkFormat); !ok {
		return
	}
	var links []byte
	for _, c := range p.bodies {
		links = resource.AppendLink(links, c.path, attributes("ct", strconv.Itoa(int(c.format)))...)
	}
	r.Answer(message.Content, message.LinkFormat, links)
}

func (p *plugtest) createChild(r *resource.Request) {
	if string(r.Path) != "/large-create" {
		r.Error(message.MethodNotAllowed, "")
		return
	}
	body, ok := put(r)
	if !ok {
		return
	}
	p.number++
	if len(p.bodies) >= maxChildren {
		p.bodies = slices.Delete(p.bodies, 0, 1)
	}
	name := strconv.Itoa(p.number)
	p.bodies = append(p.bodies, child{"/large-create/" + name, body})
	r.Location([]string{"large-create", name}, nil)
	r.Done(message.Created)
}

func (p *plugtest) deleteChild(r *resource.Request) {
	if string(r.Path) == "/large-create" {
		r.Error(message.MethodNotAllowed, "")
		return
	}
	if i := p.child(r); i >= 0 {
		p.bodies = slices.Delete(p.bodies, i, i+1)
		r.Done(message.Deleted)
	}
}
