package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// A handshake of each kind, with what it has negotiated, and messages of all sizes after it.
func TestHandshakes(t *testing.T) {
	for _, kind := range []record.KeyExchange{record.PSK, record.ECDHEPSK, record.ECDHEECDSA} {
		for _, suite := range record.Suites() {
			if suite.KeyExchange() != kind {
				continue
			}
			for _, certificate := range []string{"x509", "rpk"} {
				if kind != record.ECDHEECDSA && certificate == "rpk" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s", suite, certificate), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server, cfg := psk()
						cfg.Suites = []record.Suite{suite}
						want, chain, subject := handshake.AuthPSK, 0, "device"
						if kind == record.ECDHEECDSA {
							a := handshaketest.NewAuthority(t, "test")
							key := "P-256"
							if strings.Contains(suite.String(), "_RSA_") {
								key = "RSA"
							}
							own, trust := a.Issue(t, key, "server.test", nil).Certificate, handshake.Credentials{Roots: a.Roots}
							want, chain, subject = handshake.AuthX509, 2, "CN=server.test"
							if certificate == "rpk" {
								own, trust = handshaketest.RawKey(t, key), handshake.Credentials{TrustAll: true}
								want, chain, subject = handshake.AuthRawKey, 1, "ni:///sha-256;"
							}
							server.Credentials = handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{own}})
							cfg.Credentials, cfg.ServerName = handshaketest.Store(trust), "server.test"
						}
						n := newNetwork(t, server)
						c := mustDial(t, n, cfg)
						r := c.Result()
						if r.Auth != want || len(r.Chain) != chain || !strings.HasPrefix(r.Identity, subject) || r.Association.Suite() != suite {
							t.Errorf("%v %q, %d certificates, %v", r.Auth, r.Identity, len(r.Chain), r.Association.Suite())
						}
						if write := r.Association.WriteCID(); !r.HasCID || len(write) != 6 || write[0] != 7 || string(r.Association.ReadCID()) != "cli" {
							t.Errorf("connection ids %v: %x and %x", r.HasCID, r.Association.ReadCID(), write)
						}
						for _, size := range []int{1, 100, 1400, c.MaxPayload()} {
							roundTrip(t, c, bytes.Repeat([]byte{byte(size)}, size))
						}
						if _, err := c.Write(make([]byte, c.MaxPayload()+1)); !errors.Is(err, record.ErrSize) {
							t.Errorf("a message too long: %v", err)
						}
						if i := n.info; i.Suite != suite.String() || !bytes.Equal(i.WriteCID, []byte("cli")) {
							t.Errorf("the server sees %+v", i)
						}
					})
				})
			}
		}
	}
}

// Any one datagram of a handshake, or any two that follow each other, may get lost either way: it takes longer, and the session is
// of use. The last flight of a resumed handshake is the client's, and it is repeated after the handshake has ended for the client.
func TestLoss(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		for first := range 9 {
			for lost := 1; lost <= 2; lost++ {
				synctest.Test(t, func(t *testing.T) {
					server, cfg := psk()
					cfg.Resumable = true
					var err error
					if server.Resumption, err = handshake.NewResumption(handshake.ResumptionConfig{}); err != nil {
						t.Fatal(err)
					}
					n := newNetwork(t, server)
					if resumed {
						c := mustDial(t, n, cfg)
						cfg.Session = c.Result().Session
						n = reconnected(n)
					}
					seen, hits := 0, 0
					n.lose = func(bool, []byte) bool {
						seen++
						hit := seen > first && seen <= first+lost
						if hit {
							hits++
						}
						return hit
					}
					begun := time.Now()
					c, err := client.Dial(t.Context(), n, cfg)
					if err != nil {
						t.Fatalf("resumed %v, datagrams from %d: %v", resumed, first, err)
					}
					took, during := time.Since(begun), hits
					if during > 0 && took < time.Second && !(resumed && first == 4) { // the client has nothing to wait for after its last flight
						t.Errorf("resumed %v, datagrams from %d: %d lost, and it took %v", resumed, first, during, took)
					}
					if c.Result().Resumed != resumed {
						t.Errorf("resumed: %v, want %v", c.Result().Resumed, resumed)
					}
					talk(t, n, c)
				})
			}
		}
	}
}

// reconnected is the same server with a new socket of the client.
func reconnected(n *network) *network {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.from = netip.AddrPortFrom(n.from.Addr(), n.from.Port()+1)
	n.closed = false
	for len(n.in) > 0 {
		<-n.in
	}
	return n
}

// talk repeats a message until it is answered, as CoAP does.
func talk(t *testing.T, n *network, c *client.Conn) {
	t.Helper()
	b := make([]byte, 100)
	for range 5 {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Read(b); err == nil {
			if string(b[:got]) != "hello" {
				t.Fatalf("%q", b[:got])
			}
			return
		}
		n.onServer(func(*engine.Worker) {}) // its timers
	}
	t.Fatal("no answer")
}

// What a server refuses is distinguished from silence.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(t *testing.T, server *engine.Config, cfg *handshake.ClientConfig)
		want string
		is   func(err error) bool
	}{
		{"suite", func(_ *testing.T, s *engine.Config, c *handshake.ClientConfig) {
			s.Suites, c.Suites = []record.Suite{record.PSKWithAES128CCM8}, []record.Suite{record.PSKWithAES256CCM8}
		}, "no cipher suite, group or certificate in common", isAlert(40)},
		{"identity", func(_ *testing.T, _ *engine.Config, c *handshake.ClientConfig) { c.Identity = []byte("other") }, "", isRefusedKey},
		{"key", func(_ *testing.T, _ *engine.Config, c *handshake.ClientConfig) { c.Key = []byte("wrong") }, "", isRefusedKey},
		{"authority", func(t *testing.T, s *engine.Config, c *handshake.ClientConfig) {
			certificates(t, s, c)
			c.Credentials = handshaketest.Store(handshake.Credentials{Roots: handshaketest.NewAuthority(t, "other").Roots})
		}, "certificate not trusted: x509: certificate signed by unknown authority", isUntrusted},
		{"name", func(t *testing.T, s *engine.Config, c *handshake.ClientConfig) {
			certificates(t, s, c)
			c.ServerName = "other.test"
		}, "certificate not trusted: x509: certificate is valid for server.test", isUntrusted},
		{"no certificate of ours", func(t *testing.T, s *engine.Config, c *handshake.ClientConfig) {
			certificates(t, s, c)
			s.ClientAuth = handshake.ClientAuthNeeded
		}, "", func(err error) bool { return isAlert(40)(err) || isAlert(42)(err) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, cfg := psk()
				test.edit(t, &server, &cfg)
				n := newNetwork(t, server)
				_, err := client.Dial(t.Context(), n, cfg)
				var cause *client.Error
				if !errors.As(err, &cause) || cause.Cause == "" || !strings.Contains(err.Error(), test.want) || !test.is(err) || errors.Is(err, handshake.ErrNoAnswer) {
					t.Errorf("%v", err)
				}
				if !n.closed {
					t.Error("the socket is open")
				}
			})
		})
	}
}

func certificates(t *testing.T, server *engine.Config, cfg *handshake.ClientConfig) {
	t.Helper()
	a := handshaketest.NewAuthority(t, "test")
	own := a.Issue(t, "P-256", "server.test", nil)
	server.Credentials = handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{own.Certificate}, Roots: a.Roots})
	cfg.Credentials, cfg.ServerName, cfg.Suites = handshaketest.Store(handshake.Credentials{Roots: a.Roots}), "server.test", record.CertificateSuites()
}

func isAlert(n handshake.AlertError) func(error) bool {
	return func(err error) bool {
		var alert handshake.AlertError
		return errors.As(err, &alert) && alert == n
	}
}

// isRefusedKey: Weir's server names no cause of its own, so that it does not tell which identities exist.
func isRefusedKey(err error) bool {
	return isAlert(51)(err) || isAlert(20)(err) || errors.Is(err, handshake.ErrNoFinished)
}

func isUntrusted(err error) bool {
	var untrusted handshake.UntrustedError
	return errors.As(err, &untrusted)
}

// Silence ends with the repetitions, or with ctx's deadline; a cancelled ctx ends a handshake at once.
func TestUnanswered(t *testing.T) {
	silence := func(bool, []byte) bool { return true }
	half := func() func(bool, []byte) bool { // the hellos are answered, then nothing
		seen := 0
		return func(bool, []byte) bool { seen++; return seen > 4 }
	}
	for _, test := range []struct {
		name        string
		lose        func(bool, []byte) bool
		deadline    time.Duration
		repetitions int
		want        string
		is          error
		took        time.Duration
	}{
		{"repetitions", silence, time.Hour, 2, "no answer within 7s; is a DTLS server there?", handshake.ErrNoAnswer, 7 * time.Second},
		{"deadline", silence, 2500 * time.Millisecond, 0, "no answer within 2.5s; is a DTLS server there?", handshake.ErrNoAnswer, 2500 * time.Millisecond},
		{"keys", half(), 3 * time.Second, 0, "no answer within 3s to the keys of this client", handshake.ErrNoFinished, 3 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, cfg := psk()
				cfg.Repetitions = test.repetitions
				n := newNetwork(t, server)
				n.lose = test.lose
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				begun := time.Now()
				_, err := client.Dial(ctx, n, cfg)
				if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, test.is) {
					t.Errorf("%v, want %q", err, test.want)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, cfg := psk()
			n := newNetwork(t, server)
			n.lose = silence
			ctx, cancel := context.WithCancel(t.Context())
			begun := time.Now()
			time.AfterFunc(1234*time.Millisecond, cancel)
			_, err := client.Dial(ctx, n, cfg)
			if took := time.Since(begun); err != context.Canceled || took != 1234*time.Millisecond || !n.closed { //nolint:errorlint // the very error
				t.Errorf("%v after %v, closed %v", err, took, n.closed)
			}
		})
	})
}

// A ctx that is cancelled in the moment in which the handshake begins to wait ends it all the same.
func TestCancelledBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, cfg := psk()
		n := newNetwork(t, server)
		n.lose = func(bool, []byte) bool { return true }
		ctx, cancel := context.WithCancel(t.Context())
		n.before = func() {
			cancel()
			synctest.Wait() // its own deadline is set, and is about to be replaced
		}
		begun := time.Now()
		_, err := client.Dial(ctx, n, cfg)
		if took := time.Since(begun); err != context.Canceled || took != 0 { //nolint:errorlint // the very error
			t.Errorf("%v after %v", err, took)
		}
	})
}

// What the kernel refuses to send ends a handshake, but for a lack of buffers, which passes.
func TestRefusedWrites(t *testing.T) {
	for _, test := range []struct {
		err  syscall.Errno
		took time.Duration
	}{{syscall.ECONNREFUSED, 0}, {syscall.EMSGSIZE, 0}, {syscall.ENOBUFS, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			server, cfg := psk()
			n := newNetwork(t, server)
			refused := false
			n.refuse = func() error {
				if refused {
					return nil
				}
				refused = true
				return test.err
			}
			begun := time.Now()
			_, err := client.Dial(t.Context(), n, cfg)
			if want := test.took == 0; errors.Is(err, test.err) != want || (err != nil) != want || time.Since(begun) != test.took {
				t.Errorf("%v: %v after %v", test.err, err, time.Since(begun))
			}
		})
	}
}

// A host that refuses datagrams is distinguished from one that is silent. Over a socket of the kernel, whose reader wakes when ctx ends.
func TestKernelSockets(t *testing.T) {
	_, cfg := psk()
	taken, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context) error {
		socket, err := net.DialUDP("udp4", nil, taken.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Dial(ctx, socket, cfg)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		b := make([]byte, 2000)
		_, _, _ = taken.ReadFrom(b) // it waits
		cancel()
	}()
	if err := dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	taken.Close()
	var cause *client.Error
	if err := dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &cause) || cause.Cause != "nothing listens there" {
		t.Errorf("nothing listens: %v", err)
	}
}

// A session ends with close_notify of either side; what came before it is delivered.
func TestCloseNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, cfg := psk()
		n := newNetwork(t, server)
		c := mustDial(t, n, cfg)
		roundTrip(t, c, []byte("hello"))
		if _, err := c.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		n.onServer(func(w *engine.Worker) { w.Close(n.peer) })
		b := make([]byte, 100)
		if got, err := c.Read(b); err != nil || string(b[:got]) != "last" {
			t.Errorf("%q, %v", b[:got], err)
		}
		for range 2 {
			if _, err := c.Read(b); err != io.EOF { //nolint:errorlint // what io.Reader says
				t.Errorf("after close_notify: %v", err)
			}
		}

		n = reconnected(n)
		c = mustDial(t, n, cfg)
		if n.sessions != 1 {
			t.Fatalf("%d sessions", n.sessions)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Read(b); !errors.Is(err, net.ErrClosed) || n.sessions != 0 {
			t.Errorf("after the client's end: %v, %d sessions of the server", err, n.sessions)
		}
	})
}

// A client with a connection id goes on from another address, which the server checks first.
func TestMove(t *testing.T) {
	for _, routability := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, cfg := psk()
			cfg.OfferRoutability = routability
			n := newNetwork(t, server)
			c := mustDial(t, n, cfg)
			roundTrip(t, c, []byte("before"))
			for i := range 3 {
				n.from = netip.AddrPortFrom(n.from.Addr(), n.from.Port()+1)
				roundTrip(t, c, []byte("after"))
				roundTrip(t, c, []byte("proven"))
				if n.info.Addr != n.from || n.info.Validated != routability || c.Result().Routability != routability {
					t.Errorf("move %d, routability %v: the server sees %+v", i, routability, n.info)
				}
			}
			if n.sessions != 1 {
				t.Errorf("%d sessions", n.sessions)
			}
		})
	}
}
