package resource_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// fixture is a Server with its endpoint in virtual time, and what it has sent.
type fixture struct {
	t        *testing.T
	tree     *resource.Tree
	server   *resource.Server
	endpoint *exchange.Endpoint
	now      time.Duration
	unproven map[*resource.Session]bool
	sent     [][]byte
	mid      uint16
	posts    []func()
}

func newFixture(t *testing.T, change func(*resource.Config)) *fixture {
	f := &fixture{t: t, tree: resource.NewTree(), now: time.Hour, unproven: map[*resource.Session]bool{}}
	cfg := resource.Config{
		Tree: f.tree, Guard: f, Exponent: 2, Wake: func(time.Duration) {},
		Post: func(call func()) bool { f.posts = append(f.posts, call); return true },
	}
	if change != nil {
		change(&cfg)
	}
	f.server = resource.New(cfg)
	f.endpoint = exchange.New(exchange.Config{Supported: resource.Supported, Notified: f.server.Notified}, f, f.server, nil)
	f.server.Bind(f.endpoint)
	return f
}

func (f *fixture) Proven(s *resource.Session) bool { return !f.unproven[s] }
func (f *fixture) Source(s *resource.Session) evict.Source {
	source, _ := s.Owner.(int)
	return evict.Source(source)
}
func (f *fixture) Empty(*resource.Session) int                  { return 4 }
func (f *fixture) Room(*resource.Session) int                   { return 1280 }
func (f *fixture) Probe(*resource.Session, *exchange.Reply)     {}
func (f *fixture) Echo(*resource.Session, time.Duration) []byte { return []byte("echoes") }
func (f *fixture) SendTo(_ *exchange.Session, d []byte, _ time.Duration) {
	f.sent = append(f.sent, bytes.Clone(d))
}

func (f *fixture) peer(source int) *resource.Session {
	s := &resource.Session{Owner: source}
	s.Peer = s
	return s
}

// option is an option of a request; number is its value unless text is set.
type option struct {
	id     message.OptionID
	number uint32
	text   string
}

// build returns a request; options must ascend.
func (f *fixture) build(kind message.Type, code message.Code, path, token, payload string, options ...option) []byte {
	f.t.Helper()
	f.mid++
	var b message.Builder
	b.Reset(make([]byte, 0, 2048), kind, code, f.mid, []byte(token))
	added := false
	segments := func() {
		if added {
			return
		}
		added = true
		for _, segment := range bytes.Split([]byte(path[1:]), []byte("/")) {
			b.Option(message.URIPath, segment)
		}
	}
	for _, o := range options {
		if o.id > message.URIPath {
			segments()
		}
		if o.text != "" {
			b.Text(o.id, o.text)
		} else {
			b.Uint(o.id, o.number)
		}
	}
	segments()
	b.Payload([]byte(payload))
	wire, err := b.Bytes()
	if err != nil {
		f.t.Fatal(err)
	}
	return wire
}

// receive hands a datagram in and returns the reply, nil if there is none.
func (f *fixture) receive(s *resource.Session, datagram []byte) *message.Message {
	f.t.Helper()
	reply := f.endpoint.Receive(&s.Session, datagram, make([]byte, 0, 2048), f.now)
	if len(reply) == 0 {
		return nil
	}
	return f.parse(reply)
}

func (f *fixture) parse(datagram []byte) *message.Message {
	f.t.Helper()
	m := new(message.Message)
	if err := message.Parse(datagram, m); err != nil {
		f.t.Fatalf("%x: %v", datagram, err)
	}
	return m
}

func (f *fixture) do(s *resource.Session, code message.Code, path, payload string, options ...option) *message.Message {
	f.t.Helper()
	m := f.receive(s, f.build(message.Con, code, path, "token", payload, options...))
	if m == nil {
		f.t.Fatalf("%s %s: no answer", code.Name(), path)
	}
	return m
}

// pass lets time pass and returns what was sent meanwhile.
func (f *fixture) pass(span time.Duration) []*message.Message {
	f.t.Helper()
	f.sent = nil
	for end := f.now + span; ; {
		for _, call := range f.posts {
			call()
		}
		f.posts = nil
		next := f.server.Tick(f.now)
		f.endpoint.Tick(f.now)
		if due, ok := f.endpoint.Next(); ok {
			next = min(next, due)
		}
		if next > end {
			f.now = end
			break
		}
		f.now = max(f.now, next)
	}
	var all []*message.Message
	for _, d := range f.sent {
		all = append(all, f.parse(d))
	}
	return all
}

// uint is an option's value; -1 if it is absent.
func number(m *message.Message, id message.OptionID) int {
	if n, ok := m.Uint(id); ok {
		return int(n)
	}
	return -1
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
