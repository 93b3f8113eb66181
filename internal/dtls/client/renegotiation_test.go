package client_test

import (
	"bytes"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// bareServer makes one handshake with the client at the other end of the Wire, and then has the keys.
type bareServer struct {
	t           *testing.T
	server      *handshake.Server
	pending     *handshake.Pending
	association *record.Association
	scratch     record.Scratch
	out         [][]byte
}

func (b *bareServer) Send(datagram []byte) {
	send := func(d []byte) { b.out = append(b.out, bytes.Clone(d)) }
	var r record.Record
	for d := bytes.Clone(datagram); len(d) > 0; {
		rest, err := record.Next(d, -1, &r)
		if err != nil {
			b.t.Fatal(err)
		}
		d = rest
		if handshake.IsHello(&r) {
			_, b.pending = b.server.Hello(netip.MustParseAddrPort("192.0.2.1:5000"), &r, b.pending, 0, send)
			continue
		}
		if b.pending.Receive(&b.scratch, &r, 0, send) == handshake.Established {
			result := b.pending.Result()
			b.association = result.Association
			out, err := result.Final.Append(result.Association, &b.scratch, nil)
			if err != nil {
				b.t.Fatal(err)
			}
			b.out = append(b.out, out)
		}
	}
}

func (b *bareServer) Receive(_ time.Time, handle func([]byte)) error {
	if len(b.out) == 0 {
		return os.ErrDeadlineExceeded
	}
	d := b.out[0]
	b.out = b.out[1:]
	handle(d)
	return nil
}

// seal makes a record of the server.
func (b *bareServer) seal(typ record.ContentType, payload string) []byte {
	buf := make([]byte, record.MaxHeadRoom+len(payload)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], payload)
	out, err := b.association.Seal(&b.scratch, typ, buf, record.MaxHeadRoom, len(payload))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// A server that requests new keys gets the alert no_renegotiation, and the session goes on.
func TestServersRenegotiationIsRefused(t *testing.T) {
	s, err := handshake.NewServer(handshake.ServerConfig{PSK: func([]byte) ([]byte, bool) { return []byte("key"), true }})
	if err != nil {
		t.Fatal(err)
	}
	b := &bareServer{t: t, server: s}
	session, err := client.Shake(t.Context(), handshake.ClientConfig{Identity: []byte("device"), Key: []byte("key")}, b)
	if err != nil {
		t.Fatal(err)
	}
	var replies [][]byte
	var messages []string
	open := func(datagram []byte) {
		t.Helper()
		err := session.Open(datagram, func(m []byte) { messages = append(messages, string(m)) }, func(d []byte) { replies = append(replies, bytes.Clone(d)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	open(b.seal(record.Handshake, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")) // a HelloRequest
	open(b.seal(record.ApplicationData, "after"))
	if len(replies) != 1 || len(messages) != 1 || messages[0] != "after" {
		t.Fatalf("%d replies, messages %q", len(replies), messages)
	}
	var r record.Record
	if _, err := record.Next(replies[0], -1, &r); err != nil {
		t.Fatal(err)
	}
	typ, alert, _, verdict := b.association.Open(&b.scratch, &r)
	if verdict != record.Opened || typ != record.Alert || !bytes.Equal(alert, []byte{1, 100}) {
		t.Errorf("type %d, %x, %v", typ, alert, verdict)
	}
}
