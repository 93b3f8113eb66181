package handshake_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

var clientAddr = netip.MustParseAddrPort("192.0.2.1:4711")

// server is a Server with one client, as an engine would drive it.
type server struct {
	t       testing.TB
	hs      *handshake.Server
	pending *handshake.Pending
	result  *handshake.Result
	scratch *record.Scratch
	cid     []byte
	failed  bool
	verify  int
	corrupt bool // the Finished is wrong
}

func newServer(t testing.TB, cid []byte, suites ...record.Suite) *server {
	t.Helper()
	return serverWith(t, cid, handshake.ServerConfig{Config: handshake.Config{Suites: suites}, PSK: func(id []byte) ([]byte, bool) {
		return []byte(".fornium"), bytes.HasPrefix(id, []byte("cali."))
	}})
}

func serverWith(t testing.TB, cid []byte, cfg handshake.ServerConfig) *server {
	t.Helper()
	if cid != nil {
		cfg.NewCID = func() ([]byte, error) { return bytes.Clone(cid), nil }
	}
	hs, err := handshake.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &server{t: t, hs: hs, scratch: new(record.Scratch), cid: cid}
}

// datagram handles one datagram and returns the replies.
func (s *server) datagram(d []byte, now time.Duration) (replies [][]byte) {
	var r record.Record
	for rest := d; len(rest) > 0; {
		var err error
		if rest, err = record.Next(rest, len(s.cid), &r); err != nil {
			return replies
		}
		send := func(d []byte) { replies = append(replies, bytes.Clone(d)) }
		switch {
		case handshake.IsHello(&r):
			var o handshake.Outcome
			var p *handshake.Pending
			o, p = s.hs.Hello(clientAddr, &r, s.pending, now, send)
			switch o {
			case handshake.Accepted:
				if s.pending != nil {
					s.pending.Release()
				}
				s.pending, s.result = p, nil
			case handshake.Refused:
				s.pending = nil
			}
			if o == handshake.Verify {
				s.verify++
			}
		case s.result != nil:
			// The Finished again: the final flight again.
			if r.Epoch == 1 && s.result.Final.Present() {
				out, _ := s.result.Final.Append(s.result.Association, s.scratch, nil)
				send(out)
			}
		case s.pending != nil:
			switch s.pending.Receive(s.scratch, &r, now, send) {
			case handshake.Established:
				result := s.pending.Result()
				if s.corrupt {
					handshake.CorruptFinal(&result.Final)
				}
				s.result = &result
				out, err := result.Final.Append(result.Association, s.scratch, nil)
				if err != nil {
					s.t.Fatal(err)
				}
				send(out)
			case handshake.Failed:
				s.failed = true
			}
		}
	}
	return replies
}

// timeout runs the server's timer.
func (s *server) timeout(now time.Duration) (replies [][]byte) {
	st := s.pending.Timeout(now, func(d []byte) { replies = append(replies, bytes.Clone(d)) })
	s.failed = s.failed || st == handshake.Failed
	return replies
}

// run carries datagrams both ways; mangle decides what arrives.
func run(t testing.TB, c *handshake.Client, s *server, mangle func(fromClient bool, d []byte) [][]byte) time.Duration {
	t.Helper()
	scratch := new(record.Scratch)
	now := time.Second
	var toServer, toClient [][]byte
	send := func(d []byte) { toServer = append(toServer, mangle(true, bytes.Clone(d))...) }
	c.Start(now, send)
	for range 1000 {
		done, _ := c.Done()
		if done && len(toServer) == 0 {
			break
		}
		if len(toServer) == 0 && len(toClient) == 0 {
			if s.pending != nil && s.result == nil && s.pending.Deadline() < c.Deadline() {
				now = s.pending.Deadline()
				toClient = append(toClient, s.timeout(now)...)
			} else {
				now = c.Deadline()
				c.Timeout(scratch, now, send)
			}
		}
		in := toServer
		toServer = nil
		for _, d := range in {
			for _, reply := range s.datagram(d, now) {
				toClient = append(toClient, mangle(false, reply)...)
			}
		}
		in = toClient
		toClient = nil
		for _, d := range in {
			c.Receive(scratch, d, now, send)
		}
	}
	return now
}

func asIs(_ bool, d []byte) [][]byte { return [][]byte{d} }

func TestHandshake(t *testing.T) {
	for _, suite := range record.Suites() {
		if suite.KeyExchange() == record.ECDHEECDSA {
			continue // see certificates_test.go
		}
		for _, serverCID := range [][]byte{nil, {1, 2, 3, 4, 5, 6}} {
			for _, clientCID := range [][]byte{{}, {9, 9, 9, 9}} {
				for _, offer := range []bool{false, true} {
					name := fmt.Sprintf("%s/server-%d/client-%d-%t", suite, len(serverCID), len(clientCID), offer)
					t.Run(name, func(t *testing.T) {
						c, err := handshake.NewClient(handshake.ClientConfig{
							Identity: []byte("cali.0001"),
							Key:      []byte(".fornium"), OfferCID: offer, CID: clientCID,
						})
						if err != nil {
							t.Fatal(err)
						}
						s := newServer(t, serverCID, suite)
						run(t, c, s, asIs)
						if done, err := c.Done(); !done || err != nil {
							t.Fatalf("done %t, %v", done, err)
						}
						if s.result == nil || s.result.Identity != "cali.0001" || !s.result.ExtendedMaster || !s.result.Renegotiation {
							t.Fatalf("server's result: %+v", s.result)
						}
						result := c.Result()
						if want := offer && serverCID != nil; result.HasCID != want || s.result.HasCID != want {
							t.Fatalf("connection ids: client %t, server %t, want %t", result.HasCID, s.result.HasCID, want)
						}
						exchange(t, result.Association, s.result.Association)
						exchange(t, s.result.Association, result.Association)
					})
				}
			}
		}
	}
}

// exchange sends payloads of many lengths from a to b.
func exchange(t *testing.T, a, b *record.Association) {
	t.Helper()
	s := new(record.Scratch)
	for _, n := range []int{0, 1, 15, 16, 17, 100, 1200} {
		payload := bytes.Repeat([]byte{0xab}, n)
		buf := make([]byte, a.HeadRoom()+n+a.TailRoom())
		copy(buf[a.HeadRoom():], payload)
		out, err := a.Seal(s, record.ApplicationData, buf, a.HeadRoom(), n)
		if err != nil {
			t.Fatal(err)
		}
		var r record.Record
		if rest, err := record.Next(out, len(b.ReadCID()), &r); err != nil || len(rest) != 0 {
			t.Fatalf("%d bytes: %v, %d left", n, err, len(rest))
		}
		typ, got, newest, verdict := b.Open(s, &r)
		if verdict != record.Opened || typ != record.ApplicationData || !newest || !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes: verdict %d, type %d, newest %t", n, verdict, typ, newest)
		}
	}
}

func TestWrongKeyAndUnknownIdentityLookTheSame(t *testing.T) {
	for _, cfg := range []handshake.ClientConfig{
		{Identity: []byte("cali.1"), Key: []byte("wrong")},
		{Identity: []byte("nobody"), Key: []byte(".fornium")},
	} {
		c, err := handshake.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, nil)
		run(t, c, s, asIs)
		if _, err := c.Done(); err == nil || err.Error() != "handshake: the server's alert 51" {
			t.Errorf("identity %s: %v", cfg.Identity, err)
		}
		if !s.failed || s.result != nil {
			t.Errorf("identity %s: the server did not fail", cfg.Identity)
		}
	}
}
