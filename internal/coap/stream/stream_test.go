package stream_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// built is a message as package message writes it.
func built(t testing.TB, code message.Code, token []byte, payload []byte) []byte {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, len(payload)+len(token)+300), message.Con, code, 0x1234, token)
	b.Text(message.URIPath, "test")
	b.Payload(payload)
	datagram, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return datagram
}

// The frames of RFC 8323 section 3.2, figures 5 and 6.
func TestFramesOfTheRFC(t *testing.T) {
	for _, c := range []struct {
		wire string
		code message.Code
	}{{"00 43", message.Valid}, {"01 43 7f", message.Valid}, {"00 e1", stream.CSM}} {
		frame := unhex(t, c.wire)
		n, err := stream.Size(frame)
		var m message.Message
		if err != nil || n != len(frame) || stream.Parse(frame, &m) != nil || m.Code != c.code || m.Type != message.Non {
			t.Errorf("%s: size %d, %v, code %s", c.wire, n, err, m.Code)
		}
		if again, err := stream.Append(nil, built0(c.code, m.Token)); err != nil || !bytes.Equal(again, frame) {
			t.Errorf("%s: written as %x, %v", c.wire, again, err)
		}
	}
}

func built0(code message.Code, token []byte) []byte {
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Ack, code, 7, token)
	datagram, _ := b.Bytes()
	return datagram
}

// A message of every length class comes through, however its bytes are cut.
func TestEveryLengthComesThrough(t *testing.T) {
	for _, payload := range []int{0, 1, 6, 7, 8, 262, 263, 264, 1024, 60000, 65790, 65799, 65800, 70000} {
		for _, token := range []int{0, 1, 8, 12, 13, 64} {
			want := bytes.Repeat([]byte{'p'}, payload)
			frame, err := stream.Append(nil, built(t, message.POST, bytes.Repeat([]byte{7}, token), want))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := stream.Size(frame); n != len(frame) || err != nil {
				t.Fatalf("payload %d, token %d: size %d of %d, %v", payload, token, n, len(frame), err)
			}
			for _, cut := range []int{1, 2, 7, 1000, len(frame)} {
				if payload > 2000 && cut < 1000 {
					continue
				}
				decoder := stream.Decoder{Max: 80000}
				twice := append(bytes.Clone(frame), frame...)
				count := 0
				for start := 0; start < len(twice); start += cut {
					decoder.Feed(twice[start:min(start+cut, len(twice))])
					for {
						var m message.Message
						ok, err := decoder.Next(&m)
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							break
						}
						count++
						if !bytes.Equal(m.Payload, want) || len(m.Token) != token || m.Code != message.POST {
							t.Fatalf("payload %d, token %d, cut %d: %d bytes", payload, token, cut, len(m.Payload))
						}
					}
				}
				if count != 2 || decoder.Held() != 0 {
					t.Fatalf("payload %d, token %d, cut %d: %d messages, %d bytes held", payload, token, cut, count, decoder.Held())
				}
			}
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	for wire, want := range map[string]error{
		"0f":                 stream.ErrToken,
		"ff":                 stream.ErrToken,
		"f0 ffffffff 01":     stream.ErrLength,
		"f0 00000000 01":     stream.ErrLength, // 65,805 bytes
		"0e 01 ffff":         stream.ErrLength,
		"0e 01 0000":         nil, // 269 bytes of token: waits, then refuses
		"10 01 ff":           message.ErrPayload,
		"10 01 f0":           message.ErrOption,
		"0d 01 34" + hex65(): message.ErrToken,
	} {
		var decoder stream.Decoder
		decoder.Feed(unhex(t, wire))
		var m message.Message
		if ok, err := decoder.Next(&m); !errors.Is(err, want) || ok && err == nil {
			t.Errorf("%s: %t %v, want %v", wire, ok, err, want)
		}
	}
}

// hex65 is a token that is longer than message.MaxToken.
func hex65() string { return strings.Repeat("aa", 65) }

// What a peer announces but does not send takes no memory.
func TestDecoderTakesMemoryAsBytesArrive(t *testing.T) {
	var decoder stream.Decoder
	decoder.Feed(unhex(t, "e0 f000 02 ff 01020304"))
	var m message.Message
	if ok, err := decoder.Next(&m); ok || err != nil {
		t.Fatal(ok, err)
	}
	if decoder.Held() > 64 {
		t.Errorf("%d bytes held", decoder.Held())
	}
}

// session runs frames through a Session and returns the last event.
func session(t *testing.T, s *stream.Session, wires ...string) (event stream.Event, out []byte) {
	t.Helper()
	for _, wire := range wires {
		var m message.Message
		if err := stream.Parse(unhex(t, wire), &m); err != nil {
			t.Fatalf("%s: %v", wire, err)
		}
		event, out = s.Receive(&m, nil)
	}
	return event, out
}

func TestSignals(t *testing.T) {
	const csm = "00 e1"
	for name, c := range map[string]struct {
		wires []string
		want  stream.Event
		out   string // prefix of what is sent in return
	}{
		"CSM with base values":            {[]string{csm}, stream.Updated, ""},
		"CSM, twice":                      {[]string{csm, "40 e1 22 1000 20"}, stream.Updated, ""},
		"CSM with an elective option":     {[]string{"20 e1 81 05"}, stream.Updated, ""},
		"CSM with a critical option":      {[]string{"20 e1 91 05"}, stream.Failed, "d0"},
		"CSM with a size of 0":            {[]string{"10 e1 20"}, stream.Failed, "d0"},
		"a request without a CSM":         {[]string{"01 01 aa"}, stream.Plain, ""},
		"a response without a CSM":        {[]string{"01 45 aa"}, stream.Plain, ""},
		"a CSM after a request":           {[]string{"01 01 aa", csm}, stream.Updated, ""},
		"another protocol":                {[]string{"00 01"}, stream.Failed, "d0"},
		"a ping before the CSM":           {[]string{"00 e2"}, stream.Failed, "d0"},
		"a ping after a request":          {[]string{"01 01 aa", "00 e2"}, stream.Pinged, "00 e3"},
		"an empty message before the CSM": {[]string{"00 00"}, stream.Ignored, ""},
		"an unknown code before the CSM":  {[]string{"00 21"}, stream.Failed, "d0"},
		"empty message":                   {[]string{csm, "00 00"}, stream.Ignored, ""},
		"request":                         {[]string{csm, "01 01 aa"}, stream.Plain, ""},
		"response":                        {[]string{csm, "01 45 aa"}, stream.Plain, ""},
		"ping":                            {[]string{csm, "02 e2 aabb"}, stream.Pinged, "02 e3 aabb"},
		"ping with custody":               {[]string{csm, "12 e2 aabb 20"}, stream.Pinged, "12 e3 aabb 20"},
		"ping with a critical option":     {[]string{csm, "10 e2 10"}, stream.Failed, "d0"},
		"pong":                            {[]string{csm, "01 e3 aa"}, stream.Ponged, ""},
		"release":                         {[]string{csm, "00 e4"}, stream.Released, ""},
		"abort":                           {[]string{csm, "30 e5 ff 6869"}, stream.Aborted, ""},
		"a code of class 1":               {[]string{csm, "00 21"}, stream.Failed, "d0"},
		"a signal of RFC to come":         {[]string{csm, "00 e9"}, stream.Failed, "d0"},
	} {
		t.Run(name, func(t *testing.T) {
			var s stream.Session
			event, out := session(t, &s, c.wires...)
			if want := unhex(t, c.out); event != c.want || len(want) == 0 && len(out) > 0 || !bytes.HasPrefix(out, want) {
				t.Errorf("event %d, want %d; out %x, want %s", event, c.want, out, c.out)
			}
			if event == stream.Failed && s.Reason == "" {
				t.Error("failed without a reason")
			}
		})
	}
}

func TestSettingsAreCumulative(t *testing.T) {
	var s stream.Session
	session(t, &s, "30 e1 22 1000", "10 e1 40")
	if s.Peer != (stream.Settings{MaxMessageSize: 4096, BlockWise: true, MaxToken: 8}) {
		t.Errorf("%+v", s.Peer)
	}
	if n := s.Peer.BERT(100); n != 3072 {
		t.Errorf("BERT: %d bytes", n)
	}
	if n := (stream.Settings{BlockWise: true}).BERT(100); n != 0 {
		t.Errorf("BERT with base values: %d bytes", n)
	}
}

func TestCSMIsRead(t *testing.T) {
	var s stream.Session
	var m message.Message
	if err := stream.Parse(stream.AppendCSM(nil, stream.Announced()), &m); err != nil {
		t.Fatal(err)
	}
	if event, _ := s.Receive(&m, nil); event != stream.Updated || s.Peer != stream.Announced() || !s.Begun() {
		t.Errorf("%d %+v", event, s.Peer)
	}
}

// ends returns a client and the far end of its connection, behind the CSM.
func ends(t *testing.T) (*stream.Conn, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := stream.Dial(t.Context(), listener.Addr().String(), nil, stream.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close(); _ = c.Close() })
	deadline := time.Now().Add(20 * time.Second)
	_, _ = peer.SetDeadline(deadline), c.SetDeadline(deadline)
	expect(t, peer, hex.EncodeToString(stream.AppendCSM(nil, stream.Announced())))
	return c, peer
}

func expect(t *testing.T, peer net.Conn, wire string) {
	t.Helper()
	want := unhex(t, wire)
	got := make([]byte, len(want))
	if _, err := readFull(peer, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %x, %v; want %x", got, err, want)
	}
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = c.Read(b[n:])
		n += more
	}
	return n, err
}

func TestConn(t *testing.T) {
	c, peer := ends(t)
	if err := c.Send(built0(message.GET, []byte{1})); err != nil {
		t.Fatal(err)
	}
	expect(t, peer, "01 01 01")
	if err := c.Ping([]byte{9}, true); err != nil {
		t.Fatal(err)
	}
	expect(t, peer, "11 e2 09 20")
	_, _ = peer.Write(unhex(t, "30 e1 22 1000  01 e2 aa  00 00  01 45 01  11 e3 09 20"))
	var m message.Message
	if err := c.Receive(&m); err != nil || m.Code != message.Content || string(m.Token) != "\x01" {
		t.Fatal(m, err)
	}
	expect(t, peer, "01 e3 aa")
	if err := c.Receive(&m); err != nil || m.Code != stream.Pong {
		t.Fatal(m, err)
	}
	if c.Peer().MaxMessageSize != 4096 {
		t.Errorf("%+v", c.Peer())
	}
	if err := c.Send(built(t, message.POST, nil, make([]byte, 4096))); !errors.Is(err, stream.ErrLength) {
		t.Errorf("a message beyond the peer's limit: %v", err)
	}
	_, _ = peer.Write(unhex(t, "00 e4"))
	if err := c.Receive(&m); !errors.Is(err, stream.ErrReleased) {
		t.Errorf("%v", err)
	}
}

func TestConnEndsWithReason(t *testing.T) {
	for wire, want := range map[string]string{
		"00 e1 30 e5 ff 6869": "aborted the connection: hi",
		"00 e2":               "broke the protocol: the first message must be a CSM",
		"0f":                  "reserved token length",
		"f0 ffffffff 01":      "too long",
	} {
		c, peer := ends(t)
		_, _ = peer.Write(unhex(t, wire))
		var m message.Message
		err := c.Receive(&m)
		var aborted *stream.AbortError
		if !errors.As(err, &aborted) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wire, err)
			continue
		}
		if aborted.Own {
			var answer stream.Decoder
			buf := make([]byte, 200)
			n, _ := peer.Read(buf)
			answer.Feed(buf[:n])
			if ok, err := answer.Next(&m); !ok || err != nil || m.Code != stream.Abort {
				t.Errorf("%s: no Abort: %x", wire, buf[:n])
			}
		}
	}
}
