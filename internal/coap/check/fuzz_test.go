package check

import (
	"io"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// script is a link over which a hostile server answers each message with the next of its datagrams: message id and token are those of
// the client's message where the first byte of a datagram says so.
type script struct {
	data []byte
	last message.Message
	asks int // messages of the client that are not answered yet
}

func (s *script) Write(b []byte) (int, error) {
	if message.Parse(append([]byte(nil), b...), &s.last) == nil {
		s.asks++
	}
	return len(b), nil
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.data) < 2 {
		return 0, io.EOF
	}
	how, n := s.data[0], min(int(s.data[1]), len(s.data)-2)
	datagram := s.data[2 : 2+n]
	s.data = s.data[2+n:]
	if how&1 == 0 || len(datagram) < 2 {
		return copy(b, datagram), nil
	}
	b = append(b[:0], 1<<6|datagram[0]&0x30|byte(len(s.last.Token)), datagram[1], byte(s.last.ID>>8), byte(s.last.ID))
	b = append(b, s.last.Token...)
	b = append(b, datagram[2:]...)
	return len(b), nil
}

func (s *script) SetReadDeadline(time.Time) error { return nil }
func (s *script) Close() error                    { return nil }

// No case panics or runs on for whatever a server answers, over datagrams and over a stream.
func FuzzAnswers(f *testing.F) {
	content := []byte{1, 8, 0x60, 0x45, 0xc1, 0x02, 0xd1, 0x0a, 0x0a, 'x'}
	link := []byte{1, 11, 0x60, 0x45, 0xc1, 40, 0xff, '<', '/', 'a', '>', ';', 'b'}
	block := []byte{1, 21, 0x60, 0x45, 0xd1, 10, 0x08, 0xff}
	for i := range Cases() {
		f.Add(uint8(i), false, append(append(append([]byte{}, content...), link...), append(block, make([]byte, 15)...)...))
		f.Add(uint8(i), true, append(append([]byte{}, link...), content...))
	}
	f.Fuzz(func(t *testing.T, number uint8, stream bool, data []byte) {
		all := Cases()
		one := all[int(number)%len(all)]
		if one.dtls || stream && one.datagram {
			return
		}
		cfg := Config{URI: "coap://192.0.2.1"}
		cfg.defaults()
		c := &conversation{ctx: t.Context(), cfg: &cfg, target: client.Target{Stream: stream}, link: &script{data: data}, stop: func() bool { return true }, buffer: make([]byte, maxDatagram)}
		_ = one.run(c) // any verdict
		if len(c.trace) > maxTrace {
			t.Errorf("%d lines of trace", len(c.trace))
		}
	})
}
