package node_test

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/node"
)

// put sends a body in blocks of 64 bytes and returns the last answer.
func (p *peer) put(code message.Code, uri, body string, format message.Format) message.Message {
	p.t.Helper()
	for start := 0; ; start += 64 {
		end, more := min(start+64, len(body)), uint32(8)
		if end == len(body) {
			more = 0
		}
		p.send(p.request(code, uri, body[start:end], option{message.ContentFormat, uint32(format)}, option{message.Block1, uint32(start/64)<<4 | more | 2}))
		m := p.receive()
		if more == 0 || m.Code != message.Continue {
			return m
		}
	}
}

// fetch gets all blocks.
func (p *peer) fetch(uri string, options ...option) (body string, first message.Message) {
	p.t.Helper()
	m := p.do(message.GET, uri, options...)
	first, body = m, string(m.Payload)
	for number := uint32(1); ; number++ {
		block, ok := m.Uint(message.Block2)
		if !ok || block&8 == 0 {
			return body, first
		}
		m = p.do(message.GET, uri, append(options, option{message.Block2, number<<4 | 2})...)
		body += string(m.Payload)
	}
}

// The resources of the plugtest profile, request by request: a payload never exceeds 64 bytes.
func TestPlugtestResources(t *testing.T) {
	p := dial(t, serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, Plugtest: true}))
	for _, c := range []struct {
		name    string
		code    message.Code
		uri     string
		payload string
		options []option
		want    message.Code
		body    string // a prefix
	}{
		{"test GET", message.GET, "/test", "", nil, message.Content, "Type: 0 (CON)\nCode: 1 (GET)"},
		{"test POST", message.POST, "/test", "x", nil, message.Created, ""},
		{"test PUT", message.PUT, "/test", "x", nil, message.Changed, ""},
		{"test DELETE", message.DELETE, "/test", "", nil, message.Deleted, ""},
		{"long path", message.GET, "/seg1/seg2/seg3", "", nil, message.Content, "Long path resource\nType"},
		{"query", message.GET, "/query?first=1&second=2", "", nil, message.Content, "Type"},
		{"location query", message.POST, "/location-query", "", nil, message.Created, ""},
		{"XML", message.GET, "/multi-format", "", []option{{message.Accept, 41}}, message.Content, `<msg type="CON" code="GET"`},
		{"no such format", message.GET, "/multi-format", "", []option{{message.Accept, 40}}, message.NotAcceptable, ""},
		{"a link only", message.GET, "/link1", "", nil, message.MethodNotAllowed, ""},
		{"sub-path", message.GET, "/path/sub2", "", nil, message.Content, "/path/sub2"},
		{"shutdown", message.POST, "/shutdown", "sesame", nil, message.Forbidden, ""},
		{"obs-reset without the word", message.POST, "/obs-reset", "x", nil, message.Forbidden, ""},
		{"not created", message.GET, "/create1", "", nil, message.NotFound, ""},
		{"created without format", message.PUT, "/create1", "x", nil, message.BadRequest, ""},
		{"created", message.PUT, "/create1", "x", []option{{message.ContentFormat, 0}}, message.Created, ""},
		{"created GET", message.GET, "/create1", "", nil, message.Content, "x"},
		{"created DELETE", message.DELETE, "/create1", "", nil, message.Deleted, ""},
		{"link filter", message.GET, "/.well-known/core?rt=Type3&if=foo", "", nil, message.Content, `</link3>;if="foo";rt="Type1 Type3"`},
		{"update without format", message.PUT, "/large-update", "x", nil, message.BadRequest, ""},
		{"obs PUT without format", message.PUT, "/obs", "x", nil, message.BadRequest, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.t = t
			p.send(p.request(c.code, c.uri, c.payload, c.options...))
			m := p.receive()
			if m.Code != c.want || len(m.Payload) > 64 || c.want.Class() == 2 && !strings.HasPrefix(string(m.Payload), c.body) {
				t.Errorf("%s %q, want %s %q", m.Code, m.Payload, c.want, c.body)
			}
		})
	}
}

// What is stored: bodies in blocks both ways, entity tags and conditions (ETSI TD_COAP_CORE_21 to 23, TD_COAP_BLOCK_01 to 06).
func TestPlugtestStores(t *testing.T) {
	p := dial(t, serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, Plugtest: true}))
	large, first := p.fetch("/large")
	if size, _ := first.Uint(message.Size2); len(large) != 1280 || size != 1280 || strings.Count(large, "\n") != 20 || !strings.Contains(large, "NO. 5 OF 5") {
		t.Errorf("%d bytes, Size2 %d", len(large), size)
	}
	text := strings.Repeat("0123456789", 30)
	if m := p.put(message.PUT, "/large-update", text, message.JSON); m.Code != message.Changed {
		t.Errorf("PUT %s", m.Code)
	}
	if body, first := p.fetch("/large-update"); body != text {
		t.Errorf("%s %q", first.Code, body)
	}
	created := p.put(message.POST, "/large-create", text, message.Text)
	var path string
	for options := created.Options(); options.Next(); {
		if options.ID() == message.LocationPath {
			path += "/" + string(options.Value())
		}
	}
	if body, _ := p.fetch(path); created.Code != message.Created || body != text {
		t.Errorf("%s at %q: %q", created.Code, path, body)
	}
	if body, _ := p.fetch("/large-create"); !strings.Contains(body, "<"+path+">") {
		t.Errorf("children %q", body)
	}
	answer := p.put(message.POST, "/large-post", strings.Repeat("abcde", 40), message.Text)
	if answer.Code != message.Changed || string(answer.Payload) != strings.Repeat("ABCDE", 12)+"ABCD" {
		t.Errorf("%s %q", answer.Code, answer.Payload)
	}
	if m := p.put(message.PUT, "/large-update", strings.Repeat("x", 9000), message.Text); m.Code != message.RequestEntityTooLarge {
		t.Errorf("too large: %s", m.Code)
	}
	tagOf := func(m message.Message) uint32 { n, _ := m.Uint(message.ETag); return n }
	p.put(message.PUT, "/validate", "one", message.Text)
	tag := tagOf(p.do(message.GET, "/validate"))
	conditional := func(code message.Code, id message.OptionID, value uint32, payload string) message.Message {
		var b message.Builder
		p.mid++
		b.Reset(make([]byte, 0, 200), message.Con, code, p.mid, []byte("t"))
		b.Uint(id, value)
		b.Text(message.URIPath, "validate")
		b.Payload([]byte(payload))
		wire, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		p.send(wire)
		return p.receive()
	}
	for i, c := range []struct {
		code    message.Code
		id      message.OptionID
		value   uint32
		payload string
		want    message.Code
	}{
		{message.PUT, message.IfMatch, tag, "two", message.Changed},
		{message.PUT, message.IfMatch, tag, "three", message.PreconditionFailed},
		{message.PUT, message.IfNoneMatch, 0, "one", message.Created},
		{message.GET, message.ETag, tag, "", message.Valid},
		{message.GET, message.ETag, tag, "", message.Content},
		{message.PUT, message.IfNoneMatch, 0, "one", message.Created},
		{message.PUT, message.IfNoneMatch, 0, "one", message.PreconditionFailed},
	} {
		if m := conditional(c.code, c.id, c.value, c.payload); m.Code != c.want {
			t.Errorf("step %d: %s, want %s", i, m.Code, c.want)
		}
	}
}

// A change by another client, on another worker or listener, reaches the observer; a new format ends the observation.
func TestPlugtestObserve(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0", "127.0.0.1:0"}, Workers: 2, Plugtest: true})
	for i := range n.Addresses() {
		p, other := dialAt(t, n, i), dialAt(t, n, 1-i)
		register := p.request(message.GET, "/obs", "")
		observe := append([]byte{register[0], register[1], register[2], register[3], 0xca, 0xfe, 0x60}, 0x53, 'o', 'b', 's')
		p.send(observe)
		if m := p.receive(); m.Code != message.Content {
			t.Fatalf("%s", m.Code)
		}
		next := func(what string, ok func(m *message.Message) bool) {
			t.Helper()
			for range 4 { // the time may come between
				m := p.receive()
				p.send(message.AppendEmpty(nil, message.Ack, m.ID))
				if ok(&m) {
					return
				}
			}
			t.Errorf("listener %d: no notification of %s", i, what)
		}
		other.put(message.PUT, "/obs", "changed", message.Text)
		next("the change", func(m *message.Message) bool { return string(m.Payload) == "changed" && m.Type == message.Con })
		other.put(message.PUT, "/obs", "{}", message.JSON)
		next("the other format", func(m *message.Message) bool { return m.Code == message.NotAcceptable })
		other.do(message.DELETE, "/obs")
	}
}

// A client ends the Node only where the configuration permits it, and with the public word; the client gets its answer first.
func TestShutdown(t *testing.T) {
	n, err := node.Open(node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, Plugtest: true, Shutdown: true, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(t.Context()) }()
	p := dial(t, n)
	p.send(p.request(message.POST, "/shutdown", "please"))
	if m := p.receive(); m.Code != message.Forbidden {
		t.Errorf("without the word: %s", m.Code)
	}
	select {
	case err := <-done:
		t.Fatal("ended without the word", err)
	default:
	}
	p.send(p.request(message.POST, "/shutdown", "sesame"))
	if m := p.receive(); m.Code != message.Changed {
		t.Errorf("with the word: %s", m.Code)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
