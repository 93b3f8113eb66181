package resource_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// later is a resource whose methods leave their answers to the test.
func later(waiting *[]*resource.Deferred) *resource.Resource {
	method := func(r *resource.Request) { *waiting = append(*waiting, r.Defer()) }
	return &resource.Resource{Get: method, Post: method}
}

// An answer that comes later is sent in blocks if it is long: that of a POST is stored for the further ones, that of a GET made again.
func TestLongAnswersLater(t *testing.T) {
	for _, method := range []message.Code{message.POST, message.GET} {
		t.Run(method.Name(), func(t *testing.T) {
			f := newFixture(t, nil)
			var waiting []*resource.Deferred
			f.tree.Add("/later", later(&waiting))
			s := f.peer(1)
			body := strings.Repeat("0123456789", 15) // three blocks of 64 bytes
			answer := func() *message.Message {
				t.Helper()
				for _, d := range waiting {
					d.Answer(message.Content, message.Text, []byte(body), f.now)
				}
				waiting = nil
				all := f.pass(time.Second)
				if len(all) != 1 || all[0].Type != message.Con {
					t.Fatalf("%d messages sent: %+v", len(all), all)
				}
				f.receive(s, []byte{0x60, 0, byte(all[0].ID >> 8), byte(all[0].ID)})
				return all[0]
			}
			got := ""
			for number := range uint32(3) {
				m := f.receive(s, f.build(message.Con, method, "/later", "token", "", option{id: message.Block2, number: block(number, 0, 2)}))
				if m.Code == message.Empty {
					m = answer()
				} else if method == message.GET || number == 0 {
					t.Fatalf("block %d is answered at once: %s", number, m.Code)
				}
				expect(t, "code", m.Code, message.Content)
				expect(t, "token", string(m.Token), "token")
				last := uint32(1)
				if number == 2 {
					last = 0
				}
				v, _ := m.Uint(message.Block2)
				expect(t, "Block2", v, block(number, last, 2))
				got += string(m.Payload)
			}
			expect(t, "answer", got, body)
		})
	}
}

// A request in blocks that is answered later gets its Block1 option then; and none at all if the client wants none.
func TestAnswersLater(t *testing.T) {
	f := newFixture(t, nil)
	var waiting []*resource.Deferred
	f.tree.Add("/later", later(&waiting))
	s := f.peer(1)
	f.do(s, message.POST, "/later", strings.Repeat("a", 16), option{id: message.Block1, number: block(0, 1, 0)})
	m := f.do(s, message.POST, "/later", "a", option{id: message.Block1, number: block(1, 0, 0)})
	expect(t, "acknowledgement", m.Code, message.Empty)
	waiting[0].Answer(message.Changed, 0, nil, f.now)
	all := f.pass(time.Second)
	if len(all) != 1 {
		t.Fatalf("%d messages", len(all))
	}
	expect(t, "code", all[0].Code, message.Changed)
	expect(t, "Block1", number(all[0], message.Block1), int(block(1, 0, 0)))
	expect(t, "Content-Format", number(all[0], message.ContentFormat), -1)

	f = newFixture(t, nil)
	waiting, s = nil, f.peer(1)
	f.tree.Add("/later", later(&waiting))
	f.do(s, message.POST, "/later", "a", option{id: message.NoResponse, number: 2})
	waiting[0].Answer(message.Changed, message.Text, []byte("x"), f.now)
	expect(t, "messages without interest", len(f.pass(time.Second)), 0)
	waiting[0].Answer(message.NotFound, message.Text, nil, f.now)
	expect(t, "errors", len(f.pass(time.Second)), 1)
}

// A session whose answer is to come is not idle, however long that takes: the answer needs it.
func TestDeferredKeepsItsSession(t *testing.T) {
	f := newFixture(t, nil)
	var waiting []*resource.Deferred
	f.tree.Add("/later", later(&waiting))
	s := f.peer(1)
	f.receive(s, f.build(message.Non, message.GET, "/later", "token", ""))
	f.pass(time.Hour)
	if s.Idle(f.now) {
		t.Error("idle while an answer is to come")
	}
	waiting[0].Answer(message.Content, message.Text, []byte("done"), f.now)
	f.pass(time.Hour)
	if !s.Idle(f.now) {
		t.Error("not idle after the answer")
	}
}
