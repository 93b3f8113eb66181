package client

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// careful is a server that wants to know who asks: it demands an Echo option, sends a ping, and answers in blocks of 16 bytes.
type careful struct {
	uri     string
	body    []byte
	changes bool     // the ETag does, from the third block on
	proofs  []string // values of Echo that are requested one after the other; the last one is accepted
	pinged  chan bool
}

func newCareful(t *testing.T, changes bool, proofs ...string) *careful {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &careful{
		uri: "coap://" + conn.LocalAddr().String() + "/long", body: []byte(strings.Repeat("0123456789", 10)), changes: changes,
		proofs: proofs, pinged: make(chan bool, 100),
	}
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			for _, reply := range s.serve(buffer[:n]) {
				conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	return s
}

func (s *careful) serve(in []byte) [][]byte {
	var m message.Message
	if message.Parse(in, &m) != nil {
		return nil
	}
	if m.Type == message.Rst && m.ID == 0x7777 {
		s.pinged <- true
	}
	if !m.Code.IsRequest() {
		return nil
	}
	var b message.Builder
	value, _ := m.Option(message.Echo)
	if known := slices.Index(s.proofs, string(value)); known < len(s.proofs)-1 {
		b.Reset(make([]byte, 0, 64), message.Ack, message.Unauthorized, m.ID, m.Token)
		b.Option(message.Echo, []byte(s.proofs[known+1]))
		reply, _ := b.Bytes()
		return [][]byte{reply}
	}
	block, _ := m.Uint(message.Block2)
	start := min(int(block>>4)*16, len(s.body))
	end := min(start+16, len(s.body))
	tag := byte(1)
	if s.changes && start >= 32 {
		tag = 2
	}
	b.Reset(make([]byte, 0, 64), message.Ack, message.Content, m.ID, m.Token)
	b.Option(message.ETag, []byte{tag})
	b.Uint(message.ContentFormat, uint32(message.Text))
	more := uint32(0)
	if end < len(s.body) {
		more = 8
	}
	b.Uint(message.Block2, block&^15|more)
	b.Payload(s.body[start:end])
	reply, _ := b.Bytes()
	return [][]byte{message.AppendEmpty(nil, message.Con, 0x7777), reply}
}

// A request goes on until its response is whole, and answers what a server does to know that it is there.
func TestRequestFollowsEchoAndBlocks(t *testing.T) {
	s := newCareful(t, false, "proof")
	x, err := Do(t.Context(), RequestConfig{URI: s.uri, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var m message.Message
	if err := message.Parse(x.Response, &m); err != nil || m.Code != message.Content || !bytes.Equal(m.Payload, s.body) {
		t.Errorf("%v, %s %q", err, m.Code, m.Payload)
	}
	if _, ok := m.Option(message.Block2); ok {
		t.Error("the whole response is said to be a block")
	}
	select {
	case <-s.pinged:
	case <-time.After(20 * time.Second):
		t.Error("the ping was not answered")
	}
}

// A session that moves between nodes of a cluster meets a value of Echo at each of them; a server that never accepts one is given up.
func TestRequestAnswersSeveralEchoes(t *testing.T) {
	for proofs, want := range map[int]message.Code{3: message.Content, 4: message.Unauthorized} {
		s := newCareful(t, false, []string{"first", "second", "third", "fourth"}[:proofs]...)
		x, err := Do(t.Context(), RequestConfig{URI: s.uri, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var m message.Message
		if err := message.Parse(x.Response, &m); err != nil || m.Code != want {
			t.Errorf("%d values: %v, %s, want %s", proofs, err, m.Code, want)
		}
	}
}

func TestRequestRefusesMixedBlocks(t *testing.T) {
	s := newCareful(t, true, "proof")
	if _, err := Do(t.Context(), RequestConfig{URI: s.uri, Timeout: 20 * time.Second}); err == nil || !strings.Contains(err.Error(), "changed between two blocks") {
		t.Errorf("got %v", err)
	}
}
