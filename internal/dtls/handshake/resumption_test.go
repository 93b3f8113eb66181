package handshake_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

func newResumption(t testing.TB, cfg handshake.ResumptionConfig) *handshake.Resumption {
	t.Helper()
	r, err := handshake.NewResumption(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every kind of handshake is resumed, by ticket and by id, with the identity that was proven, and with new keys; a second time too.
func TestResumption(t *testing.T) {
	for kind, config := range kinds(t) {
		for _, tickets := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/tickets-%t", kind, tickets), func(t *testing.T) {
				client, server := config()
				server.Resumption = newResumption(t, handshake.ResumptionConfig{})
				client.Resumable = true
				var config []handshake.ConfigOption
				if !tickets {
					config = append(config, handshake.WithoutTickets)
				}
				first, s, err := shakeWith(t, client, server, config...)
				if err != nil {
					t.Fatal(err)
				}
				full := first.Result()
				if full.Session == nil || full.Resumed || s.result.Resumed || full.Final.Present() {
					t.Fatalf("%+v", full)
				}
				want := s.result
				for range 2 {
					client.Session = full.Session
					client.OfferCID, client.CID = true, []byte{7}
					again, s, err := shakeWith(t, client, server, config...)
					if err != nil {
						t.Fatal(err)
					}
					r := again.Result()
					if !r.Resumed || !s.result.Resumed || !r.Final.Present() || s.result.Final.Present() || !r.HasCID {
						t.Fatalf("client %+v, server %+v", r, s.result)
					}
					if r.Identity != full.Identity || r.Auth != full.Auth || s.result.Identity != want.Identity || s.result.Auth != want.Auth {
						t.Errorf("client %s %s, server %s %s", r.Auth, r.Identity, s.result.Auth, s.result.Identity)
					}
					exchange(t, r.Association, s.result.Association)
					exchange(t, s.result.Association, r.Association)
					client.Session = r.Session
				}
			})
		}
	}
}

// What must not be resumed ends in a full handshake, not in a failure.
func TestNotResumed(t *testing.T) {
	now := time.Now()
	shared := newResumption(t, handshake.ResumptionConfig{})
	for _, test := range []struct {
		name    string
		between func(c *handshake.ClientConfig, s *handshake.ServerConfig)
		resumed bool
	}{
		{"nothing", func(*handshake.ClientConfig, *handshake.ServerConfig) {}, true},
		{"a node without the secret", func(_ *handshake.ClientConfig, s *handshake.ServerConfig) {
			s.Resumption = newResumption(t, handshake.ResumptionConfig{})
		}, false},
		{"no resumption any more", func(_ *handshake.ClientConfig, s *handshake.ServerConfig) { s.Resumption = nil }, false},
		{"after its lifetime", func(_ *handshake.ClientConfig, s *handshake.ServerConfig) {
			s.Clock = func() time.Time { return now.Add(handshake.DefaultSessionLifetime + time.Minute) }
		}, false},
		{"shortly before", func(_ *handshake.ClientConfig, s *handshake.ServerConfig) {
			s.Clock = func() time.Time { return now.Add(handshake.DefaultSessionLifetime - time.Minute) }
		}, true},
		{"the identity has no key", func(_ *handshake.ClientConfig, s *handshake.ServerConfig) {
			before := s.PSK
			s.PSK = func(id []byte) ([]byte, bool) {
				key, _ := before(id)
				return key, string(id) == "another"
			}
		}, false},
		{"the suite is off", func(c *handshake.ClientConfig, s *handshake.ServerConfig) {
			c.Suites, s.Suites = nil, nil
			s.Suites = append(s.Suites, 0xc0a4)
		}, false},
		{"another name", func(c *handshake.ClientConfig, _ *handshake.ServerConfig) { c.ServerName = "another.test" }, true},
	} {
		for _, tickets := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/tickets-%t", test.name, tickets), func(t *testing.T) {
				client, server := kinds(t)["psk"]()
				client.Resumable, server.Resumption = true, shared
				server.Clock = func() time.Time { return now }
				var options []handshake.ConfigOption
				if !tickets {
					options = append(options, handshake.WithoutTickets)
				}
				first, _, err := shakeWith(t, client, server, options...)
				if err != nil {
					t.Fatal(err)
				}
				client.Session = first.Result().Session
				test.between(&client, &server)
				again, s, err := shakeWith(t, client, server, options...)
				if test.name == "the identity has no key" {
					if err == nil {
						t.Fatal("a removed identity is served")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if again.Result().Resumed != test.resumed || s.result.Resumed != test.resumed {
					t.Errorf("resumed: client %t, server %t", again.Result().Resumed, s.result.Resumed)
				}
			})
		}
	}
}

// A session is resumed for the name that it was made for (RFC 6066 section 3), until the certificate that proved it ends.
func TestResumedForOneName(t *testing.T) {
	a := newAuthority(t, "test")
	soon := time.Now().Add(10 * time.Minute)
	device := a.issue("P-256", "device", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), soon })
	for _, test := range []struct {
		name    string
		at      time.Duration
		resumed bool
	}{{"server.test", 0, true}, {"", 0, false}, {"server.test", 9 * time.Minute, true}, {"server.test", 11 * time.Minute, false}} {
		server := handshake.ServerConfig{
			Config: handshake.Config{Credentials: credentials(handshake.Credentials{
				Certificates: []*handshake.Certificate{a.issue("P-256", "server.test", nil)}, Roots: a.Roots,
			})},
			ClientAuth: handshake.ClientAuthNeeded, Resumption: newResumption(t, handshake.ResumptionConfig{}),
		}
		client := handshake.ClientConfig{
			Config: handshake.Config{Credentials: credentials(handshake.Credentials{
				Certificates: []*handshake.Certificate{device}, Roots: a.Roots,
			})},
			ServerName: "server.test", Resumable: true,
		}
		c, _, err := shake(t, client, server)
		if err != nil {
			t.Fatal(err)
		}
		client.Session, client.ServerName = c.Result().Session, test.name
		server.Clock = func() time.Time { return time.Now().Add(test.at) }
		c, _, err = shake(t, client, server)
		if expired := test.at > 10*time.Minute; expired != (err != nil) {
			t.Fatalf("after %v: %v", test.at, err)
		}
		if c.Result().Resumed != test.resumed {
			t.Errorf("%q after %v: resumed %t", test.name, test.at, !test.resumed)
		}
	}
}

// A session is resumed with the kind of master secret that it has, or not at all (RFC 7627 section 5.3).
func TestExtendedMasterSecretOfResumedSessions(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, second := range []bool{true, false} {
			client, server := kinds(t)["psk"]()
			client.Resumable, server.Resumption = true, newResumption(t, handshake.ResumptionConfig{})
			option := map[bool][]handshake.ConfigOption{false: {handshake.WithoutExtendedMaster}}
			c, _, err := shakeWith(t, client, server, option[first]...)
			if err != nil || c.Result().ExtendedMaster != first {
				t.Fatalf("%v, %+v", err, c.Result())
			}
			client.Session = c.Result().Session
			c, s, err := shakeWith(t, client, server, option[second]...)
			if err != nil || c.Result().Resumed != (first == second) || s.result.ExtendedMaster != second {
				t.Errorf("extended %t, then %t: %v, %+v", first, second, err, c.Result())
			}
			server.RequireExtendedMaster = true
			var alert handshake.AlertError
			if _, _, err := shakeWith(t, client, server, option[second]...); second != (err == nil) || err != nil && (!errors.As(err, &alert) || alert != 40) {
				t.Errorf("extended %t, then required: %v", second, err)
			}
		}
	}
}

// The secret rolls: tickets of the old one hold while it is known, on every node.
func TestTicketSecretsRoll(t *testing.T) {
	secret := func(b byte) []byte { return bytes.Repeat([]byte{b}, handshake.TicketSecretLength) }
	one, two := newResumption(t, handshake.ResumptionConfig{}), newResumption(t, handshake.ResumptionConfig{})
	set := func(secrets ...[]byte) {
		for _, r := range []*handshake.Resumption{one, two} {
			if err := r.SetSecrets(secrets...); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(secret(1))
	client, server := kinds(t)["mutual"]()
	client.Resumable, server.Resumption = true, one
	c, _, err := shake(t, client, server)
	if err != nil {
		t.Fatal(err)
	}
	client.Session, server.Resumption = c.Result().Session, two
	for _, step := range []struct {
		secrets [][]byte
		resumed bool
	}{
		{[][]byte{secret(1)}, true},
		{[][]byte{secret(1), secret(2)}, true},
		{[][]byte{secret(2), secret(1)}, true},
		{[][]byte{secret(2)}, false},
	} {
		set(step.secrets...)
		c, s, err := shake(t, client, server)
		if err != nil || c.Result().Resumed != step.resumed || s.result.Identity != "CN=device" {
			t.Errorf("%d secrets: %v, %+v", len(step.secrets), err, c.Result())
		}
	}
	if one.SetSecrets() == nil || one.SetSecrets([]byte("short")) == nil {
		t.Error("bad secrets are taken")
	}
}

// The sessions kept for resumption by id are bounded: the oldest makes room.
func TestSessionsByIDAreBounded(t *testing.T) {
	client, server := kinds(t)["psk"]()
	client.Resumable = true
	server.Resumption = newResumption(t, handshake.ResumptionConfig{MaxSessions: 3})
	var sessions []*handshake.Session
	for range 5 {
		c, _, err := shakeWith(t, client, server, handshake.WithoutTickets)
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, c.Result().Session)
	}
	for i := len(sessions) - 1; i >= 0; i-- {
		client.Session = sessions[i]
		c, _, err := shakeWith(t, client, server, handshake.WithoutTickets)
		if err != nil {
			t.Fatal(err)
		}
		if want := i >= 2; c.Result().Resumed != want {
			t.Errorf("session %d of 5: resumed %t", i, c.Result().Resumed)
		}
		if i == 2 {
			break // full handshakes take the place of the others
		}
	}
	client.Session = sessions[1]
	if c, _, err := shakeWith(t, client, server, handshake.WithoutTickets); err != nil || c.Result().Resumed {
		t.Errorf("the second session is resumed: %v", err)
	}
}

// Abbreviated handshakes of every kind get through bad networks too, by ticket and by id. The client's flight is the last one: whoever has its
// association repeats it.
func TestResumptionOverABadNetwork(t *testing.T) {
	for kind, config := range kinds(t) {
		for _, tickets := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/tickets-%t", kind, tickets), func(t *testing.T) {
				var change []handshake.ConfigOption
				if !tickets {
					change = append(change, handshake.WithoutTickets)
				}
				client, server := config()
				resumeOverABadNetwork(t, client, server, change)
			})
		}
	}
}

func resumeOverABadNetwork(t *testing.T, client handshake.ClientConfig, server handshake.ServerConfig, change []handshake.ConfigOption) {
	client.Resumable, server.Resumption = true, newResumption(t, handshake.ResumptionConfig{})
	first, _, err := shakeWith(t, client, server, change...)
	if err != nil {
		t.Fatal(err)
	}
	client.Session = first.Result().Session
	client.Timeout, client.Repetitions = 50*time.Millisecond, 60
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 9))
		client.MTU, server.MTU = 128+rng.IntN(1200), 128+rng.IntN(1200)
		client.OfferCID, client.CID = seed%2 == 0, []byte{1, 2, 3}[:seed%3]
		c, err := handshake.NewClient(client)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range change {
			f(c)
		}
		s := serverWith(t, []byte{1, 2, 3, 4, 5, 6}, server)
		run(t, c, s, badNetwork(rng, s))
		if done, err := c.Done(); !done || err != nil || s.failed || !c.Result().Resumed {
			t.Fatalf("seed %d: done %t, %v, server %t, %+v", seed, done, err, s.failed, c.Result())
		}
		repeatFinal(t, c, s)
		if s.result == nil {
			t.Fatalf("seed %d: the server has no session", seed)
		}
		r := c.Result()
		exchange(t, r.Association, s.result.Association)
		exchange(t, s.result.Association, r.Association)
	}
}

// repeatFinal does what the owner of a client's association does: it answers the server's repeated flight.
func repeatFinal(t *testing.T, c *handshake.Client, s *server) {
	t.Helper()
	r := c.Result()
	for try := 0; s.result == nil && try < 4; try++ {
		if len(s.timeout(s.pending.Deadline())) == 0 {
			t.Fatal("the server does not repeat its flight")
		}
		out, err := r.Final.Append(r.Association, s.scratch, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.datagram(out, s.pending.Deadline())
	}
}

// FuzzTickets: no ticket but a sealed one opens.
func FuzzTickets(f *testing.F) {
	client, server := kinds(f)["psk"]()
	client.Resumable, server.Resumption = true, newResumption(f, handshake.ResumptionConfig{})
	first, _, err := shake(f, client, server)
	if err != nil {
		f.Fatal(err)
	}
	good := handshake.TicketOf(first.Result().Session)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, ticket []byte) {
		if len(ticket) > 4096 {
			return // never offered
		}
		client := client
		client.Session = handshake.WithTicket(first.Result().Session, ticket)
		c, s, err := shake(t, client, server)
		if err != nil {
			t.Fatal(err)
		}
		if c.Result().Resumed != bytes.Equal(ticket, good) || s.result.Resumed != c.Result().Resumed {
			t.Fatalf("ticket %x: client %t, server %t", ticket, c.Result().Resumed, s.result.Resumed)
		}
	})
}

// An identity that does not fit a ticket, and a client that has no certificate where one is needed now, make full handshakes.
func TestFullHandshakeInstead(t *testing.T) {
	client, server := kinds(t)["psk"]()
	client.Identity = bytes.Repeat([]byte("x"), 300)
	client.Resumable, server.Resumption = true, newResumption(t, handshake.ResumptionConfig{})
	c, s, err := shake(t, client, server)
	if err != nil || s.result == nil || c.Result().Session != nil {
		t.Errorf("a long identity: %v, %+v", err, c.Result())
	}
	client, server = kinds(t)["empty"]()
	client.Resumable, server.Resumption = true, newResumption(t, handshake.ResumptionConfig{})
	if c, _, err = shake(t, client, server); err != nil {
		t.Fatal(err)
	}
	client.Session, server.ClientAuth = c.Result().Session, handshake.ClientAuthNeeded
	if _, _, err := shake(t, client, server); err == nil {
		t.Error("an anonymous session is resumed where a certificate is needed")
	}
}
