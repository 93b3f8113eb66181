package client

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// scripted is a server that answers each request with what its function makes of it.
func scripted(t *testing.T, answer func(m *message.Message, send func([]byte))) (uri string) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			var m message.Message
			if message.Parse(bytes.Clone(buffer[:n]), &m) == nil {
				answer(&m, func(b []byte) { _, _ = conn.WriteToUDPAddrPort(b, from) })
			}
		}
	}()
	return "coap://" + conn.LocalAddr().String() + "/resource"
}

func answerTo(t *testing.T, m *message.Message, kind message.Type, id uint16, code message.Code, payload []byte, options ...Option) []byte {
	t.Helper()
	b, err := build(kind, code, m.Token, options, payload)
	if err != nil {
		t.Error(err)
		return nil
	}
	b[2], b[3] = byte(id>>8), byte(id)
	return b
}

// assembling is a server for payloads in blocks.
type assembling struct {
	mu       sync.Mutex
	body     []byte
	exponent uint32 // the largest it takes
	forgets  int    // so often it answers 4.08 to the second block
	tooLarge bool   // it says so by 4.13, to the first message
	ignores  bool   // it does not know Block1
	tags     map[string]bool
	sizes    []uint32
}

func (s *assembling) serve(t *testing.T, m *message.Message) (message.Code, []Option) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := m.Uint(message.Block1)
	if s.ignores {
		return message.Changed, nil
	}
	if !ok || s.tooLarge && value&7 > s.exponent {
		return message.RequestEntityTooLarge, []Option{UintOption(message.Block1, s.exponent)}
	}
	tag, _ := m.Option(message.RequestTag)
	s.tags[string(tag)] = true
	if size, ok := m.Uint(message.Size1); ok {
		s.sizes = append(s.sizes, size)
	}
	if value>>4 == 0 {
		s.body = nil
	}
	if s.forgets > 0 && value>>4 != 0 {
		s.forgets--
		return message.RequestEntityIncomplete, nil
	}
	if int(value>>4)<<(4+value&7) != len(s.body) {
		t.Errorf("block %d of 2^%d bytes behind %d bytes", value>>4, 4+value&7, len(s.body))
	}
	s.body = append(s.body, m.Payload...)
	answer := []Option{UintOption(message.Block1, value&^7|min(value&7, s.exponent))}
	if value&8 != 0 {
		return message.Continue, answer
	}
	return message.Changed, answer
}

func TestPayloadInBlocks(t *testing.T) {
	body := []byte(strings.Repeat("0123456789", 300))
	for _, test := range []struct {
		name   string
		server *assembling
		size   int
		want   string // of the error
		code   message.Code
	}{
		{"as asked", &assembling{exponent: 6}, 0, "", message.Changed},
		{"small", &assembling{exponent: 6}, 64, "", message.Changed},
		{"smaller on the way", &assembling{exponent: 2}, 512, "", message.Changed},
		{"smaller from the beginning", &assembling{exponent: 3, tooLarge: true}, 0, "", message.Changed},
		{"forgotten", &assembling{exponent: 6, forgets: 2}, 0, "", message.Changed},
		{"always forgotten", &assembling{exponent: 6, forgets: 100}, 0, "", message.RequestEntityIncomplete},
		{"not known", &assembling{ignores: true}, 0, "does not know Block1", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.server
			s.tags = map[string]bool{}
			uri := scripted(t, func(m *message.Message, send func([]byte)) {
				code, options := s.serve(t, m)
				send(answerTo(t, m, message.Ack, m.ID, code, nil, options...))
			})
			x, err := Do(t.Context(), RequestConfig{URI: uri, Request: Request{Method: message.PUT, Payload: body, BlockSize: test.size}, Timeout: 20 * time.Second})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				return
			}
			var m message.Message
			if err != nil || message.Parse(x.Response, &m) != nil || m.Code != test.code {
				t.Fatalf("%s, %v", m.Code, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if test.code == message.Changed && !bytes.Equal(s.body, body) {
				t.Errorf("%d bytes arrived, not the %d that were sent", len(s.body), len(body))
			}
			if len(s.tags) != 1 || s.tags[""] || s.sizes[0] != uint32(len(body)) {
				t.Errorf("Request-Tags %v, Size1 %v", s.tags, s.sizes)
			}
			if message.Parse(x.Request, &m) != nil || !bytes.Equal(m.Payload, body) {
				t.Errorf("the request is shown with %d bytes", len(m.Payload))
			}
		})
	}
}

// A payload that fits one message goes in blocks where the server requests it.
func TestPayloadInBlocksAfterARefusal(t *testing.T) {
	s := &assembling{exponent: 1, tags: map[string]bool{}}
	uri := scripted(t, func(m *message.Message, send func([]byte)) {
		code, options := s.serve(t, m)
		send(answerTo(t, m, message.Ack, m.ID, code, nil, options...))
	})
	x, err := Do(t.Context(), RequestConfig{URI: uri, Request: Request{Method: message.POST, Payload: make([]byte, 100)}, Timeout: 20 * time.Second})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || x.Messages != 5 || len(s.body) != 100 {
		t.Errorf("%d messages, %d bytes, %v", x.Messages, len(s.body), err)
	}
}

// Notifications are delivered in the order of their sequence numbers; the answers are acknowledged; the server is notified of the end.
func TestObserve(t *testing.T) {
	type event struct {
		observe uint32
		kind    message.Type
		id      uint16
	}
	events := make(chan event, 100)
	uri := scripted(t, func(m *message.Message, send func([]byte)) {
		observe, ok := m.Uint(message.Observe)
		switch {
		case !m.Code.IsRequest():
			events <- event{99, m.Type, m.ID}
		case !ok:
			t.Error("a request without Observe")
		case observe == 0:
			events <- event{0, m.Type, m.ID}
			state := func(kind message.Type, id uint16, sequence uint32, text string) {
				send(answerTo(t, m, kind, id, message.Content, []byte(text), UintOption(message.Observe, sequence), UintOption(message.MaxAge, 60)))
			}
			state(message.Ack, m.ID, 1<<24-2, "one")
			state(message.Con, 7001, 1<<24-1, "two")
			state(message.Con, 7001, 1<<24-1, "two")   // a duplicate
			state(message.Non, 7002, 1<<24-2, "stale") // older
			state(message.Non, 7003, 1, "three")       // beyond the wrap
			state(message.Con, 7004, 5, "four")
		default:
			events <- event{observe, m.Type, m.ID}
			send(answerTo(t, m, message.Ack, m.ID, message.Content, []byte("end")))
		}
	})
	conn, err := Dial(t.Context(), uri, DialConfig{Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var seen []string
	var last Notification
	err = conn.Observe(t.Context(), ObserveConfig{}, func(n Notification) bool {
		var m message.Message
		if err := message.Parse(n.Response, &m); err != nil {
			t.Error(err)
		}
		seen, last = append(seen, string(m.Payload)), n
		return n.Number < 4
	})
	if got := strings.Join(seen, " "); err != nil || got != "one two three four" || last.Stale != 1 || last.Registrations != 1 {
		t.Errorf("%s, %+v, %v", got, last, err)
	}
	acks := map[uint16]int{}
	for cancelled := false; !cancelled; {
		select {
		case e := <-events:
			if e.observe == 99 && e.kind == message.Ack {
				acks[e.id]++
			}
			cancelled = e.observe == 1
		case <-time.After(20 * time.Second):
			t.Fatal("no cancellation")
		}
	}
	if acks[7001] != 2 || acks[7004] != 1 {
		t.Errorf("acknowledgements %v", acks)
	}
}

// The server ends an observation by an error, or never begins it.
func TestObserveEndsByTheServer(t *testing.T) {
	for _, test := range []struct {
		name    string
		observe bool
		want    error
		seen    int
	}{{"error", true, nil, 2}, {"not observable", false, ErrNotObserved, 1}} {
		t.Run(test.name, func(t *testing.T) {
			uri := scripted(t, func(m *message.Message, send func([]byte)) {
				if !m.Code.IsRequest() {
					return
				}
				var options []Option
				if test.observe {
					options = []Option{UintOption(message.Observe, 3)}
				}
				send(answerTo(t, m, message.Ack, m.ID, message.Content, []byte("state"), options...))
				if test.observe {
					send(answerTo(t, m, message.Con, 9, message.NotFound, nil))
				}
			})
			conn, err := Dial(t.Context(), uri, DialConfig{Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			seen := 0
			if err := conn.Observe(t.Context(), ObserveConfig{}, func(Notification) bool { seen++; return true }); err != test.want || seen != test.seen {
				t.Errorf("%d states, %v", seen, err)
			}
		})
	}
}

// An empty acknowledgement is enough for a request that wants no response, and a Non needs nothing at all.
func TestNoResponse(t *testing.T) {
	for _, non := range []bool{false, true} {
		uri := scripted(t, func(m *message.Message, send func([]byte)) {
			if m.Type == message.Con {
				send(message.AppendEmpty(nil, message.Ack, m.ID))
			}
		})
		x, err := Do(t.Context(), RequestConfig{URI: uri, Request: Request{Method: message.PUT, NON: non, Options: []Option{UintOption(message.NoResponse, 26)}}, Timeout: 20 * time.Second})
		if err != nil || !x.Unwanted || x.Response != nil {
			t.Errorf("%+v, %v", x, err)
		}
	}
}

func TestPing(t *testing.T) {
	uri := scripted(t, func(m *message.Message, send func([]byte)) {
		if m.Type == message.Con && m.Code == message.Empty {
			send(message.AppendEmpty(nil, message.Rst, m.ID))
		}
	})
	conn, err := Dial(t.Context(), uri, DialConfig{Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if rtt, err := conn.Ping(t.Context()); err != nil || rtt <= 0 {
		t.Error(rtt, err)
	}
}
