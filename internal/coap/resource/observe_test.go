package resource_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// counter is an observable resource: its state is how often it was read.
func counter(topic *resource.Topic, code *message.Code) *resource.Resource {
	n := 0
	return &resource.Resource{Topic: topic, Get: func(r *resource.Request) {
		n++
		if *code != message.Content {
			r.Error(*code, "gone")
			return
		}
		r.Answer(*code, message.Text, []byte(fmt.Sprint("state ", n)))
	}}
}

func observing(value uint32) option { return option{id: message.Observe, number: value} }

func (f *fixture) ack(s *resource.Session, kind message.Type, m *message.Message) {
	f.t.Helper()
	if reply := f.receive(s, message.AppendEmpty(nil, kind, m.ID)); reply != nil {
		f.t.Errorf("%s answered with %s", kind, reply.Code)
	}
}

// RFC 7641 sections 3 and 4: registration, ordered notifications one at a time, cancellation.
func TestObserve(t *testing.T) {
	f := newFixture(t, nil)
	topic, code := &resource.Topic{Every: 5 * time.Second, Confirmable: true}, message.Content
	f.tree.Add("/obs", counter(topic, &code))
	s := f.peer(1)
	m := f.do(s, message.GET, "/obs", "", observing(0))
	last := number(m, message.Observe)
	if last < 0 || string(m.Payload) != "state 1" {
		t.Fatalf("registration: Observe %d, %q", last, m.Payload)
	}
	for i := range 3 {
		sent := f.pass(5 * time.Second)
		if len(sent) != 1 || sent[0].Type != message.Con || sent[0].Code != message.Content || string(sent[0].Token) != "token" {
			t.Fatalf("notification %d: %+v", i, sent)
		}
		now := number(sent[0], message.Observe)
		if now <= last {
			t.Errorf("Observe %d after %d", now, last)
		}
		last = now
		topic.Changed() // two changes while the notification is not acknowledged
		topic.Changed()
		if more := f.pass(time.Second); len(more) != 0 {
			t.Errorf("%d messages before the acknowledgement", len(more))
		}
		f.ack(s, message.Ack, sent[0])
		if more := f.pass(0); len(more) != 1 {
			t.Fatalf("%d messages after it, want one", len(more))
		} else {
			last = number(more[0], message.Observe)
			f.ack(s, message.Ack, more[0])
		}
		f.now -= time.Second
	}
	expect(t, "observers", f.server.Counters().Observers, 1)
	f.do(s, message.GET, "/obs", "", observing(0)) // again: the same observation
	expect(t, "observers", f.server.Counters().Observers, 1)
	if m := f.do(s, message.GET, "/obs", "", observing(1)); number(m, message.Observe) >= 0 || m.Code != message.Content {
		t.Errorf("cancelled: %s, Observe %d", m.Code, number(m, message.Observe))
	}
	expect(t, "observers", f.server.Counters().Observers, 0)
	expect(t, "messages afterwards", len(f.pass(time.Minute)), 0)
}

// The ways in which an observation ends: reset, silence, an error of the resource, the end of the topic or of the session.
func TestObserveEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(f *fixture, s *resource.Session, topic *resource.Topic, code *message.Code)
	}{
		{"reset", func(f *fixture, s *resource.Session, _ *resource.Topic, _ *message.Code) {
			f.ack(s, message.Rst, f.pass(5 * time.Second)[0])
		}},
		{"silence", func(f *fixture, s *resource.Session, _ *resource.Topic, _ *message.Code) {
			f.do(s, message.GET, "/obs", "", observing(0))
			sent := f.pass(120 * time.Second)
			expect(f.t, "transmissions", len(sent), 5)
			expect(f.t, "lost", f.server.Counters().ObserversLost, 1)
		}},
		{"error", func(f *fixture, s *resource.Session, _ *resource.Topic, code *message.Code) {
			*code = message.NotFound
			sent := f.pass(5 * time.Second)
			expect(f.t, "code", sent[0].Code, message.NotFound)
			expect(f.t, "Observe", number(sent[0], message.Observe), -1)
			f.ack(s, message.Ack, sent[0])
		}},
		{"end", func(f *fixture, s *resource.Session, topic *resource.Topic, _ *message.Code) {
			topic.End(message.NotAcceptable)
			sent := f.pass(0)
			expect(f.t, "code", sent[0].Code, message.NotAcceptable)
			f.ack(s, message.Ack, sent[0])
		}},
		{"silent end", func(f *fixture, _ *resource.Session, topic *resource.Topic, _ *message.Code) {
			topic.End(message.Empty)
			expect(f.t, "messages", len(f.pass(0)), 0)
		}},
		{"session", func(f *fixture, s *resource.Session, _ *resource.Topic, _ *message.Code) {
			f.pass(5 * time.Second)
			f.server.Forget(s)
			f.endpoint.Forget(&s.Session)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, nil)
			topic, code := &resource.Topic{Every: 5 * time.Second, Confirmable: true}, message.Content
			f.tree.Add("/obs", counter(topic, &code))
			s := f.peer(1)
			f.do(s, message.GET, "/obs", "", observing(0))
			c.end(f, s, topic, &code)
			expect(t, "observers", f.server.Counters().Observers, 0)
			expect(t, "messages afterwards", len(f.pass(5*time.Minute)), 0)
			expect(t, "pending", f.endpoint.Pending(), 0)
		})
	}
}

// Non-confirmable notifications are no more than one in three seconds, a confirmable one now and then, and a reset ends them.
func TestNonConfirmableNotifications(t *testing.T) {
	f := newFixture(t, nil)
	topic, code := &resource.Topic{}, message.Content
	f.tree.Add("/obs", counter(topic, &code))
	s := f.peer(1)
	f.do(s, message.GET, "/obs", "", observing(0))
	nons, cons := 0, 0
	var newest *message.Message
	for range 300 {
		topic.Changed()
		for _, m := range f.pass(time.Second) {
			newest = m
			if m.Type == message.Con {
				cons++
				f.ack(s, message.Ack, m)
			} else {
				nons++
			}
		}
	}
	if cons != 2 || nons < 90 || nons > 100 {
		t.Errorf("%d confirmable and %d other notifications in 5 minutes", cons, nons)
	}
	for newest == nil || newest.Type != message.Non {
		topic.Changed()
		newest = f.pass(3 * time.Second)[0]
	}
	f.ack(s, message.Rst, newest)
	expect(t, "observers", f.server.Counters().Observers, 0)
}

// A long state is notified by its first block; the rest is a GET (RFC 7959 section 2.6).
func TestNotificationInBlocks(t *testing.T) {
	f := newFixture(t, nil)
	topic := &resource.Topic{Confirmable: true}
	text := strings.Repeat("0123456789", 15)
	f.tree.Add("/obs", &resource.Resource{Topic: topic, Get: func(r *resource.Request) { r.Answer(message.Content, message.Text, []byte(text)) }})
	s := f.peer(1)
	f.do(s, message.GET, "/obs", "", observing(0))
	topic.Changed()
	m := f.pass(0)[0]
	expect(t, "Block2", number(m, message.Block2), int(block(0, 1, 2)))
	expect(t, "payload", string(m.Payload), text[:64])
	rest := f.do(s, message.GET, "/obs", "", option{id: message.Block2, number: block(1, 0, 2)})
	expect(t, "rest", string(rest.Payload), text[64:128])
	expect(t, "Observe of the rest", number(rest, message.Observe), -1)
}

// The table of observers is bounded: of a peer, and in all, where an address without proof makes room and never takes it.
func TestObserversAreBounded(t *testing.T) {
	f := newFixture(t, func(c *resource.Config) { c.MaxObservers = 100 })
	topic, code := &resource.Topic{}, message.Content
	f.tree.Add("/obs", counter(topic, &code))
	s := f.peer(1)
	for i := range 80 {
		m := f.receive(s, f.build(message.Con, message.GET, "/obs", fmt.Sprint(i), "", observing(0)))
		expect(t, "registered", number(m, message.Observe) >= 0, i < resource.ObserversPerPeer)
	}
	for i := range 500 {
		flood := f.peer(2 + i)
		f.unproven[flood] = true
		f.receive(flood, f.build(message.Non, message.GET, "/obs", "t", "", observing(0)))
	}
	c := f.server.Counters()
	expect(t, "observers", c.Observers, 100)
	expect(t, "evicted", c.ObserversEvicted, 500-36)
	good := f.peer(1000)
	expect(t, "registered", number(f.do(good, message.GET, "/obs", "", observing(0)), message.Observe) >= 0, true)
	f.server.Forget(s)
	expect(t, "observers", f.server.Counters().Observers, 36)
	long := f.do(good, message.GET, "/obs", "", observing(0), option{id: message.URIQuery, text: strings.Repeat("q", 250)}, option{id: message.URIQuery, text: strings.Repeat("q", 250)})
	expect(t, "a long request is answered, not stored", number(long, message.Observe), -1)
}
