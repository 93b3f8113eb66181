package handshake_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// kinds are the handshakes that the tests of bad networks make, by name.
func kinds(t testing.TB) map[string]func() (handshake.ClientConfig, handshake.ServerConfig) {
	a := newAuthority(t, "test")
	server, device := a.issue("P-256", "server.test", nil), a.issue("P-384", "device", nil)
	rawServer, rawDevice := handshaketest.RawKey(t, "Ed25519"), handshaketest.RawKey(t, "P-256")
	psk := func(suite record.Suite) func() (handshake.ClientConfig, handshake.ServerConfig) {
		return func() (handshake.ClientConfig, handshake.ServerConfig) {
			suites := handshake.Config{Suites: []record.Suite{suite}}
			return handshake.ClientConfig{Config: suites, Identity: []byte("cali.0001"), Key: []byte(".fornium")},
				handshake.ServerConfig{Config: suites, PSK: func([]byte) ([]byte, bool) { return []byte(".fornium"), true }}
		}
	}
	certificates := func(auth handshake.ClientAuth, mine, theirs handshake.Credentials) func() (handshake.ClientConfig, handshake.ServerConfig) {
		return func() (handshake.ClientConfig, handshake.ServerConfig) {
			return handshake.ClientConfig{Config: handshake.Config{Credentials: credentials(mine)}},
				handshake.ServerConfig{Config: handshake.Config{Credentials: credentials(theirs)}, ClientAuth: auth}
		}
	}
	own := func(c *handshake.Certificate) handshake.Credentials {
		return handshake.Credentials{Certificates: []*handshake.Certificate{c}, Roots: a.Roots, RawKey: trusted}
	}
	return map[string]func() (handshake.ClientConfig, handshake.ServerConfig){
		"psk":       psk(record.PSKWithAES128CCM8),
		"ecdhe-psk": psk(record.ECDHEPSKWithAES128CCMSHA256),
		"x509":      certificates(handshake.ClientAuthNone, own(device), own(server)),
		"mutual":    certificates(handshake.ClientAuthNeeded, own(device), own(server)),
		"empty":     certificates(handshake.ClientAuthWanted, handshake.Credentials{Roots: a.Roots}, own(server)),
		"rpk":       certificates(handshake.ClientAuthNeeded, own(rawDevice), own(rawServer)),
	}
}

// A network that loses, repeats, delays and splits datagrams must not stop a
// handshake, only slow it down, whatever its datagrams' length, also where the last flight
// carries a ticket.
func TestHandshakeOverABadNetwork(t *testing.T) {
	resumption := newResumption(t, handshake.ResumptionConfig{})
	for kind, config := range kinds(t) {
		seeds := uint64(60)
		if kind == "psk" {
			seeds = 300
		}
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(seed, 7))
			client, server := config()
			client.OfferCID, client.CID = seed%2 == 0, []byte{1, 2, 3}[:seed%3]
			client.Timeout, client.Repetitions = 50*time.Millisecond, 60
			client.MTU, server.MTU = 128+rng.IntN(1200), 128+rng.IntN(1200)
			client.Resumable, server.Resumption = seed%4 < 2, resumption
			c, err := handshake.NewClient(client)
			if err != nil {
				t.Fatal(err)
			}
			s := serverWith(t, []byte{1, 2, 3, 4, 5, 6}, server)
			run(t, c, s, badNetwork(rng, s))
			if done, err := c.Done(); !done || err != nil || s.result == nil || s.failed {
				t.Fatalf("%s, seed %d, MTU %d and %d: done %t, %v, server %t", kind, seed, client.MTU, server.MTU, done, err, s.failed)
			}
			if ticket := c.Result().Session; (ticket != nil) != client.Resumable {
				t.Fatalf("%s, seed %d: a session to resume %t, requested %t", kind, seed, ticket != nil, client.Resumable)
			}
			exchange(t, c.Result().Association, s.result.Association)
			exchange(t, s.result.Association, c.Result().Association)
			if s.pending.Release(); s.hs.Held() != 0 {
				t.Fatalf("%s, seed %d: %d bytes are still held", kind, seed, s.hs.Held())
			}
		}
	}
}

// badNetwork loses, repeats, delays, reorders and splits datagrams.
func badNetwork(rng *rand.Rand, s *server) func(fromClient bool, d []byte) [][]byte {
	var held [2][]byte
	return func(fromClient bool, d []byte) (out [][]byte) {
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
	const version, random, sessionID = 25, 27, 59 // in a datagram of one ClientHello
	renegotiation := []byte{0xff, 0x01, 0, 1, 0}
	for _, test := range []struct {
		name  string
		from  string
		after time.Duration
		edit  func(hello []byte) []byte // of the second hello
		want  handshake.Outcome
	}{
		{"good", "192.0.2.1:4711", time.Second, nil, handshake.Accepted},
		{"just in time", "192.0.2.1:4711", time.Minute, nil, handshake.Accepted},
		{"old", "192.0.2.1:4711", 2 * time.Minute, nil, handshake.Verify},
		{"another port", "192.0.2.1:4712", time.Second, nil, handshake.Verify},
		{"another address", "192.0.2.2:4711", time.Second, nil, handshake.Verify},
		{"another version", "192.0.2.1:4711", time.Second, set(version+1, 0xfc), handshake.Verify},
		{"another random", "192.0.2.1:4711", time.Second, set(random, 0x55), handshake.Verify},
		{"another session id", "192.0.2.1:4711", time.Second, func(b []byte) []byte {
			b[sessionID] = 1
			return insert(b, sessionID+1, 7)
		}, handshake.Verify},
		{"renegotiation", "192.0.2.1:4711", time.Second, func(b []byte) []byte {
			at := bytes.Index(b, renegotiation)
			copy(b[at:], []byte{0xff, 0x01, 0, 2, 1})
			b = insert(b, at+len(renegotiation), 9)
			b[extensionsLength(b)+1]++
			return b
		}, handshake.Refused},
	} {
		t.Run(test.name, func(t *testing.T) {
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
				var out []byte
				o, _ := hs.Hello(netip.MustParseAddrPort(from), &r, nil, now, func(d []byte) { out = bytes.Clone(d) })
				return o, out
			}
			o, reply := step("192.0.2.1:4711", 30*time.Second)
			if o != handshake.Verify {
				t.Fatalf("first hello: %d", o)
			}
			c.Receive(new(record.Scratch), reply, 0, send)
			if test.edit != nil {
				last = test.edit(last)
			}
			if o, _ := step(test.from, 30*time.Second+test.after); o != test.want {
				t.Errorf("outcome %d, want %d", o, test.want)
			}
		})
	}
}

func set(at int, value byte) func([]byte) []byte {
	return func(b []byte) []byte {
		b[at] = value
		return b
	}
}

// insert puts one byte into a datagram of one whole handshake message and corrects the lengths of record and message.
func insert(b []byte, at int, value byte) []byte {
	b = slices.Insert(b, at, value)
	for _, length := range []int{12, 16, 24} { // the last byte of each
		b[length]++ // no carry: the lengths are far below 255
	}
	return b
}

// extensionsLength is where the length of a ClientHello's extensions stands.
func extensionsLength(b []byte) int {
	at := 59
	at += 1 + int(b[at])                   // session id
	at += 1 + int(b[at])                   // cookie
	at += 2 + int(b[at])<<8 + int(b[at+1]) // suites
	return at + 1 + int(b[at])             // compression methods
}

func TestNothingInCommon(t *testing.T) {
	c, _ := handshake.NewClient(handshake.ClientConfig{
		Identity: []byte("cali.1"), Key: []byte(".fornium"),
		Config: handshake.Config{Suites: []record.Suite{record.PSKWithAES128GCMSHA256}},
	})
	run(t, c, newServer(t, nil, record.PSKWithAES128CCM8), asIs)
	if _, err := c.Done(); err == nil || err.Error() != "handshake: the server's alert 40" {
		t.Error(err)
	}
}

// Application data that overtakes the Finished is kept; a Finished that overtakes
// the ClientKeyExchange as well. Small records are bounded by their number, large ones by their bytes (8192).
func TestRecordsThatOvertake(t *testing.T) {
	t.Run("small", func(t *testing.T) { overtake(t, 5, 10, 16) })
	t.Run("large", func(t *testing.T) { overtake(t, 1200, 5, 6) })
}

// overtake sends 20 early records of so many bytes, of which at least and at most so many are kept.
func overtake(t *testing.T, length, atLeast, atMost int) {
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
		buf := make([]byte, record.MaxHeadRoom+length+64)
		copy(buf[record.MaxHeadRoom:], "early")
		b, err := association.Seal(scratch, record.ApplicationData, buf, record.MaxHeadRoom, length)
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
	if n := len(s.result.Early); n < atLeast || n > atMost {
		t.Fatalf("%d early requests of %d bytes kept, of 20; want %d to %d", n, length, atLeast, atMost)
	}
	for _, e := range s.result.Early {
		if !bytes.HasPrefix(e, []byte("early")) {
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
