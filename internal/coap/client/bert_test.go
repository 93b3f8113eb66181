package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
)

// stored is a server over TCP with one resource, which it takes and gives in blocks.
type stored struct {
	own      stream.Settings
	exponent uint32 // the largest of a block it takes, from the second block on
	parts    int    // blocks of 1024 bytes in a message it gives, with BERT

	mu           sync.Mutex
	body         []byte
	taken, given []string // "exponent:bytes" of the payloads
}

func (s *stored) start(t *testing.T) (uri string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(t, raw)
		}
	}()
	return "coap+tcp://" + listener.Addr().String() + "/stored"
}

func (s *stored) serve(t *testing.T, raw net.Conn) {
	conn, err := stream.NewConn(raw, s.own)
	if err != nil {
		return
	}
	defer conn.Close()
	var m message.Message
	for conn.Receive(&m) == nil {
		if m.Code == stream.Pong {
			continue
		}
		s.mu.Lock()
		code, options, payload := s.answer(t, &m)
		s.mu.Unlock()
		if err := conn.Send(answerTo(t, &m, message.Non, 0, code, payload, options...)); err != nil {
			t.Error(err)
			return
		}
	}
}

func (s *stored) answer(t *testing.T, m *message.Message) (message.Code, []Option, []byte) {
	if m.Code == message.GET {
		return s.give(t, m)
	}
	value, ok := m.Uint(message.Block1)
	if !ok {
		s.body, s.taken = bytes.Clone(m.Payload), append(s.taken, fmt.Sprint("whole:", len(m.Payload)))
		return message.Changed, nil, nil
	}
	if value>>4 == 0 {
		s.body = nil
	}
	if int(value>>4)<<shift(value&7) != len(s.body) {
		t.Errorf("block %d with exponent %d behind %d bytes", value>>4, value&7, len(s.body))
	}
	s.body, s.taken = append(s.body, m.Payload...), append(s.taken, fmt.Sprintf("%d:%d", value&7, len(m.Payload)))
	answer := []Option{UintOption(message.Block1, value&^7|min(value&7, s.exponent))}
	if value&8 != 0 {
		return message.Continue, answer, nil
	}
	return message.Changed, answer, nil
}

func (s *stored) give(t *testing.T, m *message.Message) (message.Code, []Option, []byte) {
	value, asked := m.Uint(message.Block2)
	if !asked {
		value = bert
	}
	exponent := min(value&7, s.exponent)
	size := 16 << exponent
	if exponent == bert {
		size = 1024 * s.parts
	}
	start := int(value>>4) << shift(value&7)
	if start > len(s.body) {
		t.Errorf("block %x is behind the end", value)
		return message.BadOption, nil, nil
	}
	end, more := min(start+size, len(s.body)), uint32(0)
	if end < len(s.body) {
		more = 8
	}
	s.given = append(s.given, fmt.Sprintf("%d:%d", exponent, end-start))
	return message.Content, []Option{UintOption(message.Block2, uint32(start)>>shift(exponent)<<4|more|exponent)}, s.body[start:end]
}

// Payloads and responses over TCP go in several blocks of 1024 bytes for each message, as many as the server takes, and go on in
// smaller ones where it wants that (RFC 8323 section 6).
func TestBERT(t *testing.T) {
	knows := func(size int) stream.Settings { return stream.Settings{MaxMessageSize: size, BlockWise: true} }
	for _, test := range []struct {
		name         string
		server       *stored
		size, length int    // of blocks requested; of the body
		taken, given string // the first and last messages each way
		messages     int    // of the upload
	}{
		{"as much as fits", &stored{own: knows(5000), exponent: bert, parts: 4}, 0, 20000, "7:4096 7:3616", "7:4096 7:3616", 5},
		{"a whole number of blocks", &stored{own: knows(5000), exponent: bert, parts: 1}, 0, 8192, "7:4096 7:4096", "7:1024 7:1024", 2},
		{"our own bound", &stored{own: knows(1 << 20), exponent: bert, parts: 31}, 0, 100000, "7:31744 7:4768", "7:31744 7:4768", 4},
		{"requested", &stored{own: knows(1 << 20), exponent: bert, parts: 2}, 2048, 5000, "7:2048 7:904", "7:2048 7:904", 3},
		{"one message", &stored{own: knows(1 << 20), exponent: bert, parts: 31}, 0, 20000, "whole:20000 whole:20000", "7:20000 7:20000", 1},
		{"smaller on the way", &stored{own: knows(5000), exponent: 5}, 0, 10000, "7:4096 5:272", "5:512 5:272", 13},
		{"no BERT", &stored{own: stream.Settings{MaxMessageSize: 1152, BlockWise: true}, exponent: 6}, 4096, 5000, "6:1024 6:904", "6:1024 6:904", 5},
		{"no blocks announced", &stored{own: stream.Settings{MaxMessageSize: 3000}, exponent: 6}, 0, 5000, "6:1024 6:904", "6:1024 6:904", 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.server
			conn, err := Dial(t.Context(), s.start(t), DialConfig{Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			body := make([]byte, test.length)
			for i := range body {
				body[i] = byte(rand.Uint32())
			}
			var m message.Message
			x, err := conn.Do(t.Context(), &Request{Method: message.PUT, Payload: body, BlockSize: test.size})
			if err != nil || message.Parse(x.Response, &m) != nil || m.Code != message.Changed || x.Messages != test.messages {
				t.Fatalf("%s after %d messages, %v", m.Code, x.Messages, err)
			}
			if !bytes.Equal(s.body, body) {
				t.Errorf("%d bytes arrived, not the %d that were sent", len(s.body), len(body))
			}
			x, err = conn.Do(t.Context(), &Request{BlockSize: test.size})
			if err != nil || message.Parse(x.Response, &m) != nil || m.Code != message.Content || !bytes.Equal(m.Payload, body) {
				t.Fatalf("%s, %d bytes, %v", m.Code, len(m.Payload), err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if ends(s.taken) != test.taken || ends(s.given) != test.given {
				t.Errorf("it took %v and gave %v", s.taken, s.given)
			}
		})
	}
}

// ends are the first and the last.
func ends(list []string) string { return list[0] + " " + list[len(list)-1] }

// What breaks the rules of BERT is an error, and none of it is asked of a server over UDP.
func TestBERTRefused(t *testing.T) {
	for name, answer := range map[string]func(number uint32) (uint32, int){
		"not a multiple of 1024": func(n uint32) (uint32, int) { return n<<4 | 8 | bert, 1500 },
		"empty":                  func(n uint32) (uint32, int) { return n<<4 | 8 | bert, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			uri := "coap+tcp://" + accepting(t, listenTCP(t), func(raw net.Conn) {
				requestsOf(raw, func(conn *stream.Conn, m *message.Message) bool {
					value, _ := m.Uint(message.Block2)
					block, n := answer(value >> 4)
					return conn.Send(answerTo(t, m, message.Non, 0, message.Content, make([]byte, n), UintOption(message.Block2, block))) == nil
				})
			})
			_, err := Do(t.Context(), RequestConfig{URI: uri, Timeout: 20 * time.Second})
			if err == nil || !strings.Contains(err.Error(), "makes no sense") {
				t.Errorf("%v", err)
			}
		})
	}
	_, err := Do(t.Context(), RequestConfig{URI: "coap://127.0.0.1:9", Request: Request{BlockSize: 2048}})
	if err == nil || !strings.Contains(err.Error(), "write coap+tcp://") {
		t.Errorf("%v", err)
	}
	for _, size := range []int{1500, 32768, 8, -16} {
		if err := (&Request{BlockSize: size}).Validate(); err == nil {
			t.Errorf("%d is taken", size)
		}
	}
	uri := scripted(t, func(m *message.Message, send func([]byte)) { // over UDP the exponent is reserved
		send(answerTo(t, m, message.Ack, m.ID, message.Content, make([]byte, 1024), UintOption(message.Block2, 8|bert)))
	})
	if _, err = Do(t.Context(), RequestConfig{URI: uri, Timeout: 20 * time.Second}); err == nil || !strings.Contains(err.Error(), "makes no sense") {
		t.Errorf("%v", err)
	}
}
