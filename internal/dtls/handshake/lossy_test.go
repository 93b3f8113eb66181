package handshake_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// A network that loses, repeats, delays and splits datagrams must not stop a
// handshake, only slow it down.
func TestHandshakeOverABadNetwork(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c, err := handshake.NewClient(handshake.ClientConfig{
			Identity: []byte("cali.0001"), Key: []byte(".fornium"),
			OfferCID: seed%2 == 0, CID: []byte{1, 2, 3}[:seed%3], Timeout: 50 * time.Millisecond, Repetitions: 40,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, []byte{1, 2, 3, 4, 5, 6})
		var held [2][]byte
		mangle := func(fromClient bool, d []byte) (out [][]byte) {
			side := 0
			if fromClient {
				side = 1
			}
			for _, part := range split(rng, d, s.cid) {
				switch n := rng.IntN(100); {
				case n < 15: // lost
				case n < 30: // twice
					out = append(out, part, bytes.Clone(part))
				case n < 45 && held[side] == nil: // behind what comes next
					held[side] = part
				default:
					out = append(out, part)
				}
			}
			if held[side] != nil && rng.IntN(2) == 0 {
				out = append(out, held[side])
				held[side] = nil
			}
			rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out
		}
		run(t, c, s, mangle)
		if done, err := c.Done(); !done || err != nil || s.result == nil || s.failed {
			t.Fatalf("seed %d: done %t, %v, server %t", seed, done, err, s.failed)
		}
		exchange(t, c.Result().Association, s.result.Association)
		exchange(t, s.result.Association, c.Result().Association)
	}
}

// split now and then makes a datagram of each record.
func split(rng *rand.Rand, d, cid []byte) (parts [][]byte) {
	if rng.IntN(3) > 0 {
		return [][]byte{d}
	}
	var r record.Record
	for len(d) > 0 {
		rest, err := record.Next(d, len(cid), &r)
		if err != nil { // a record of another connection id's length
			return append(parts, d)
		}
		parts = append(parts, bytes.Clone(d[:len(d)-len(rest)]))
		d = rest
	}
	return parts
}

func firstHello(t testing.TB) []byte {
	t.Helper()
	c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium"), OfferCID: true, CID: []byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	var hello []byte
	c.Start(0, func(b []byte) { hello = bytes.Clone(b) })
	return hello
}

func TestHelloVerifyRequestEchoesTheRecordSequence(t *testing.T) {
	hello := firstHello(t)
	copy(hello[5:11], []byte{1, 2, 3, 4, 5, 6})
	s := newServer(t, nil)
	replies := s.datagram(hello, time.Second)
	if len(replies) != 1 || !bytes.Equal(replies[0][3:11], []byte{0, 0, 1, 2, 3, 4, 5, 6}) {
		t.Fatalf("%x", replies)
	}
}

// A cookie holds for its address, its hello and two minutes at most.
func TestCookies(t *testing.T) {
	for _, test := range []struct {
		name   string
		from   string
		after  time.Duration
		change int // of a byte of the second hello, from its end; 0: none
		want   handshake.Outcome
	}{
		{"good", "192.0.2.1:4711", time.Second, 0, handshake.Accepted},
		{"just in time", "192.0.2.1:4711", time.Minute, 0, handshake.Accepted},
		{"old", "192.0.2.1:4711", 2 * time.Minute, 0, handshake.Verify},
		{"another port", "192.0.2.1:4712", time.Second, 0, handshake.Verify},
		{"another address", "192.0.2.2:4711", time.Second, 0, handshake.Verify},
	} {
		hs := newServer(t, nil).hs
		c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium")})
		var last []byte
		send := func(b []byte) { last = bytes.Clone(b) }
		c.Start(0, send)
		var r record.Record
		step := func(from string, now time.Duration) (handshake.Outcome, []byte) {
			if _, err := record.Next(last, -1, &r); err != nil {
				t.Fatal(err)
			}
			o, out, _ := hs.Hello(netip.MustParseAddrPort(from), &r, nil, now, nil)
			return o, out
		}
		o, reply := step("192.0.2.1:4711", 30*time.Second)
		if o != handshake.Verify {
			t.Fatalf("%s: first hello: %d", test.name, o)
		}
		c.Receive(new(record.Scratch), reply, 0, send)
		if o, _ := step(test.from, 30*time.Second+test.after); o != test.want {
			t.Errorf("%s: outcome %d, want %d", test.name, o, test.want)
		}
	}
}

func TestNothingInCommon(t *testing.T) {
	c, _ := handshake.NewClient(handshake.ClientConfig{
		Identity: []byte("cali.1"), Key: []byte(".fornium"),
		Suites: []record.Suite{record.PSKWithAES128GCMSHA256},
	})
	run(t, c, newServer(t, nil, record.PSKWithAES128CCM8), asIs)
	if _, err := c.Done(); err == nil || err.Error() != "handshake: the server's alert 40" {
		t.Error(err)
	}
}

// Application data that overtakes the Finished is kept; a Finished that overtakes
// the ClientKeyExchange as well.
func TestRecordsThatOvertake(t *testing.T) {
	c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium"), OfferCID: true})
	s := newServer(t, []byte{1, 2, 3, 4, 5, 6})
	scratch := new(record.Scratch)
	var last []byte
	send := func(b []byte) { last = bytes.Clone(b) }
	c.Start(0, send)
	for range 2 {
		for _, reply := range s.datagram(last, 0) {
			c.Receive(scratch, reply, 0, send)
		}
	}
	var records [][]byte
	var r record.Record
	for d := last; len(d) > 0; {
		rest, err := record.Next(d, 6, &r)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, bytes.Clone(d[:len(d)-len(rest)]))
		d = rest
	}
	if len(records) != 3 {
		t.Fatalf("%d records in the client's last flight", len(records))
	}
	association := c.Result().Association
	var early [][]byte
	for range 20 {
		buf := make([]byte, 100)
		copy(buf[record.MaxHeadRoom:], "early")
		b, err := association.Seal(scratch, record.ApplicationData, buf, record.MaxHeadRoom, 5)
		if err != nil {
			t.Fatal(err)
		}
		early = append(early, bytes.Clone(b))
	}
	s.datagram(early[0], 0)
	s.datagram(records[2], 0) // Finished
	s.datagram(records[1], 0) // ChangeCipherSpec
	for _, e := range early[1:] {
		s.datagram(e, 0)
	}
	s.datagram(records[0], 0) // ClientKeyExchange
	if s.result == nil {
		t.Fatal("not established")
	}
	if n := len(s.result.Early); n < 10 || n > 16 {
		t.Fatalf("%d early requests kept, of 20", n)
	}
	for _, e := range s.result.Early {
		if string(e) != "early" {
			t.Fatalf("early request %q", e)
		}
	}
}

func FuzzServer(f *testing.F) {
	f.Add(firstHello(f))
	f.Add([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 3, 0, 16, 16, 0, 0, 4, 0, 2, 0, 0, 0, 0, 0, 4, 0, 2, 'a', 'b'})
	f.Add(append([]byte{22, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40}, make([]byte, 40)...))
	f.Add([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 3, 0, 14, 16, 0, 8, 0, 0, 2, 0, 0, 1, 0, 0, 2, 1, 2})
	f.Fuzz(func(t *testing.T, d []byte) {
		s := newServer(t, []byte{1, 2, 3, 4, 5, 6})
		c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium"), OfferCID: true})
		var last []byte
		send := func(b []byte) { last = bytes.Clone(b) }
		c.Start(0, send)
		scratch := new(record.Scratch)
		s.datagram(bytes.Clone(d), 0)
		for range 3 {
			for _, reply := range s.datagram(last, 0) {
				c.Receive(scratch, reply, 0, send)
			}
			s.datagram(bytes.Clone(d), 0)
		}
		if done, _ := c.Done(); !done && s.result != nil && !s.failed {
			t.Fatal("the server has a session, the client none")
		}
	})
}

func FuzzClient(f *testing.F) {
	s := newServer(f, []byte{1, 2, 3, 4, 5, 6})
	for _, reply := range s.datagram(firstHello(f), 0) {
		f.Add(reply)
	}
	f.Add([]byte{21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 3, 0, 2, 2, 40})
	f.Add(append([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 3, 0, 62, 2, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 50, 0xfe, 0xfd}, make([]byte, 48)...))
	f.Fuzz(func(t *testing.T, d []byte) {
		c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium"), OfferCID: true})
		scratch := new(record.Scratch)
		n := 0
		send := func([]byte) { n++ }
		c.Start(0, send)
		for range 3 {
			c.Receive(scratch, bytes.Clone(d), 0, send)
		}
		if n > 4 {
			t.Fatalf("%d datagrams for 3", n)
		}
		if done, err := c.Done(); done && err == nil {
			t.Fatal("established by bytes from nowhere")
		}
	})
}
