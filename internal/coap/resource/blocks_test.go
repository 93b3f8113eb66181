package resource_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// upper is a resource whose POST answers with the upper-cased body, and counts.
func upper(calls *int) *resource.Resource {
	return &resource.Resource{Post: func(r *resource.Request) {
		*calls++
		r.Answer(message.Changed, message.Text, []byte(strings.ToUpper(string(r.Body))))
	}}
}

func block(number, more, exponent uint32) uint32 { return number<<4 | more<<3 | exponent }

// A body sent in blocks under a new token each (RFC 7959 section 3.3), its answer fetched in blocks: the method runs once.
func TestBothDirections(t *testing.T) {
	f := newFixture(t, nil)
	calls := 0
	f.tree.Add("/upper", upper(&calls))
	s := f.peer(1)
	body := strings.Repeat("abcdefghijklmnop", 12) + "end" // 195 bytes: four blocks of 64
	for i := range uint32(4) {
		part, more := body[i*64:min(len(body), int(i+1)*64)], uint32(1)
		if i == 3 {
			more = 0
		}
		m := f.receive(s, f.build(message.Con, message.POST, "/upper", fmt.Sprint("t", i), part, option{id: message.Block1, number: block(i, more, 2)}))
		want := message.Continue
		if i == 3 {
			want = message.Changed
			expect(t, "first block of the answer", number(m, message.Block2), int(block(0, 1, 2)))
			expect(t, "payload", string(m.Payload), strings.ToUpper(body[:64]))
			expect(t, "Size2", number(m, message.Size2), 195)
		}
		expect(t, "code", m.Code, want)
		expect(t, "Block1", number(m, message.Block1), int(block(i, more, 2)))
	}
	answer := strings.ToUpper(body[:64])
	for i := range uint32(3) {
		m := f.do(s, message.POST, "/upper", "", option{id: message.Block2, number: block(i+1, 0, 2)})
		expect(t, "code", m.Code, message.Changed)
		answer += string(m.Payload)
	}
	expect(t, "answer", answer, strings.ToUpper(body))
	expect(t, "executions", calls, 1)
	other := f.do(f.peer(2), message.POST, "/upper", "", option{id: message.Block2, number: block(1, 0, 2)})
	expect(t, "another peer", other.Code, message.RequestEntityIncomplete)
	f.pass(resource.TransferLifetime + time.Second)
	c := f.server.Counters()
	expect(t, "bodies", c.Bodies, 0)
	expect(t, "bytes", c.BodyBytes, 0)
	expect(t, "expired", c.BodiesExpired, 1)
}

// Two transfers to one resource at a time are distinguished by Request-Tag and query, not by token.
func TestRequestTag(t *testing.T) {
	f := newFixture(t, nil)
	calls := 0
	f.tree.Add("/upper", upper(&calls))
	s := f.peer(1)
	send := func(tag, payload string, number, more uint32) *message.Message {
		return f.do(s, message.POST, "/upper", payload, option{id: message.Block1, number: block(number, more, 0)}, option{id: message.RequestTag, text: tag})
	}
	send("a", strings.Repeat("a", 16), 0, 1)
	send("b", strings.Repeat("b", 16), 0, 1)
	expect(t, "a", string(send("a", "1", 1, 0).Payload), strings.Repeat("A", 16)+"1")
	expect(t, "b", string(send("b", "2", 1, 0).Payload), strings.Repeat("B", 16)+"2")
	expect(t, "no such transfer", send("c", "3", 1, 0).Code, message.RequestEntityIncomplete)
}

// RFC 7959 sections 2.5, 2.9.2, 2.9.3: blocks that do not fit.
func TestBlock1Errors(t *testing.T) {
	f := newFixture(t, func(c *resource.Config) { c.MaxBody = 100 })
	calls := 0
	f.tree.Add("/upper", upper(&calls))
	for _, c := range []struct {
		name    string
		payload int
		options []option
		want    message.Code
	}{
		{"gap", 16, []option{{id: message.Block1, number: block(2, 1, 0)}}, message.RequestEntityIncomplete},
		{"other format", 16, []option{{id: message.ContentFormat, number: 50}, {id: message.Block1, number: block(1, 1, 0)}}, message.RequestEntityIncomplete},
		{"short", 15, []option{{id: message.Block1, number: block(1, 1, 0)}}, message.BadRequest},
		{"long", 17, []option{{id: message.Block1, number: block(1, 0, 0)}}, message.BadRequest},
		{"reserved size", 16, []option{{id: message.Block1, number: block(1, 1, 7)}}, message.BadRequest},
		{"announced too large", 16, []option{{id: message.Block1, number: block(0, 1, 0)}, {id: message.Size1, number: 101}}, message.RequestEntityTooLarge},
		{"too large", 16, []option{{id: message.Block1, number: block(6, 1, 0)}}, message.RequestEntityTooLarge},
		{"no such method", 16, []option{{id: message.Block1, number: block(0, 1, 0)}}, message.MethodNotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.t = t
			s := f.peer(1)
			f.do(s, message.POST, "/upper", strings.Repeat("x", 16), option{id: message.Block1, number: block(0, 1, 0)})
			method := message.POST
			if c.want == message.MethodNotAllowed {
				method = message.PUT
			}
			m := f.do(s, method, "/upper", strings.Repeat("y", c.payload), c.options...)
			expect(t, "code", m.Code, c.want)
			if c.want == message.RequestEntityTooLarge {
				expect(t, "Size1", number(m, message.Size1), 100)
			}
			f.server.Forget(s)
		})
	}
	expect(t, "executions", calls, 0)
	expect(t, "bodies", f.server.Counters().Bodies, 0)
}

// A flood of first blocks from addresses without proof does not take the place of a client with proof, nor fill the memory.
func TestBodiesAreBounded(t *testing.T) {
	f := newFixture(t, func(c *resource.Config) { c.MaxBytes = 4096 })
	calls := 0
	f.tree.Add("/upper", upper(&calls))
	first := option{id: message.Block1, number: block(0, 1, 2)}
	payload := strings.Repeat("x", 64)
	good := f.peer(1)
	f.do(good, message.POST, "/upper", payload, first)
	for i := range 1000 {
		s := f.peer(2 + i%3)
		f.unproven[s] = true
		m := f.receive(s, f.build(message.Non, message.POST, "/upper", "t", payload, first))
		expect(t, "flood", m.Code, message.Continue)
	}
	c := f.server.Counters()
	expect(t, "bytes", c.BodyBytes, 4096)
	expect(t, "evicted", c.BodiesEvicted, 1001-64)
	m := f.do(good, message.POST, "/upper", "end", option{id: message.Block1, number: block(1, 0, 2)})
	expect(t, "the client with proof", m.Code, message.Changed)
	for i := range 20 { // one peer has its share
		f.do(good, message.POST, "/upper", payload, first, option{id: message.RequestTag, text: fmt.Sprint(i)})
	}
	f.server.Forget(good)
	// Its first body evicted one of the flood, for the last block; it has ended.
	expect(t, "bytes without the client", f.server.Counters().BodyBytes, c.BodyBytes-(1+resource.TransfersPerPeer)*64)
}

type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, io.ErrUnexpectedEOF }

// A representation that is read from a source, a block at a time (RFC 7959 section 2.4), at the size that the client names.
func TestAnswerFrom(t *testing.T) {
	f := newFixture(t, func(c *resource.Config) { c.Exponent = 6 })
	text := strings.Repeat("0123456789abcdef", 500)
	get := func(from io.ReaderAt) func(*resource.Request) {
		return func(r *resource.Request) {
			r.ETag([]byte("v1"))
			r.AnswerFrom(message.Content, message.OctetStream, from, len(text))
		}
	}
	f.tree.Add("/file", &resource.Resource{Get: get(strings.NewReader(text))})
	f.tree.Add("/broken", &resource.Resource{Get: get(broken{})})
	s := f.peer(1)
	var body string
	for i := uint32(0); ; i++ {
		m := f.do(s, message.GET, "/file", "", option{id: message.Block2, number: block(i, 0, 5)})
		tag, _ := m.Option(message.ETag)
		expect(t, "ETag", string(tag), "v1")
		body += string(m.Payload)
		if number(m, message.Block2)&8 == 0 {
			break
		}
	}
	expect(t, "body", body, text)
	expect(t, "known", f.do(s, message.GET, "/file", "", option{id: message.ETag, text: "v1"}).Code, message.Valid)
	expect(t, "behind the end", f.do(s, message.GET, "/file", "", option{id: message.Block2, number: block(1000, 0, 5)}).Code, message.BadOption)
	expect(t, "broken", f.do(s, message.GET, "/broken", "").Code, message.InternalServerError)
}
