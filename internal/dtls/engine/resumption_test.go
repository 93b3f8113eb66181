package engine_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

// resuming is a configuration of a server whose sessions can be resumed.
func resuming(t *testing.T) (*handshaketest.Authority, engine.Config) {
	t.Helper()
	a, cfg := certified(t, "P-256", handshake.ClientAuthWanted)
	cfg.PSK = psk
	var err error
	if cfg.Resumption, err = handshake.NewResumption(handshake.ResumptionConfig{}); err != nil {
		t.Fatal(err)
	}
	return a, cfg
}

func resumed(t *testing.T, e *engine.Engine, handshakes, resumed uint64) {
	t.Helper()
	stats(t, e, "handshakes and resumed ones", func(s engine.Stats) bool {
		return s.Handshakes == handshakes && s.Resumed == resumed && s.HandshakesFailed == 0
	})
}

// A ticket of one node resumes a session on another one that has the secret, an id on every worker of its own node.
func TestResumptionOnAnyNode(t *testing.T) {
	a, cfg := resuming(t)
	cfg.Workers = 2
	device := a.Issue(t, "P-256", "device", nil)
	client := handshake.ClientConfig{
		Config:   handshake.Config{Credentials: handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots})},
		OfferCID: true, Resumable: true,
	}
	one, _ := serve(t, cfg)
	client.Session = dialOwn(t, one, client).Session
	other := cfg
	var err error
	if other.Resumption, err = handshake.NewResumption(handshake.ResumptionConfig{}); err != nil {
		t.Fatal(err)
	}
	secret := make([]byte, handshake.TicketSecretLength)
	secret[0] = 1
	two, h := serve(t, other)
	answered(t, dialOwn(t, two, client), "before")
	resumed(t, two, 1, 0)
	for _, r := range []*handshake.Resumption{cfg.Resumption, other.Resumption} {
		if err := r.SetSecrets(secret); err != nil {
			t.Fatal(err)
		}
	}
	client.Session = dialOwn(t, one, client).Session
	for range 6 {
		c := dialOwn(t, two, client)
		answered(t, c, "info")
		if i := h.last(t); !c.Resumed || i.Identity != "CN=device" || i.Auth != handshake.AuthX509 || len(i.ReadCID) != 6 {
			t.Fatalf("%+v, %+v", c.Result, i)
		}
	}
	resumed(t, two, 7, 6)
}

// store is a pion client's memory.
type store struct {
	mu       sync.Mutex
	sessions map[string]dtls.Session
}

func (s *store) Set(key []byte, session dtls.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[string(key)] = session
	return nil
}

func (s *store) Get(key []byte) (dtls.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[string(key)], nil
}

func (s *store) Del(key []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, string(key))
	return nil
}

// Without connection ids: pion seals the Finished of an abbreviated handshake without the one that was negotiated.
func TestPionClientsResume(t *testing.T) {
	a, cfg := resuming(t)
	e, _ := serve(t, cfg)
	sessions := &store{sessions: map[string]dtls.Session{}}
	for i := range uint64(3) {
		socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		c, err := dtls.ClientWithOptions(socket, net.UDPAddrFromAddrPort(e.Addr()), dtls.WithRootCAs(a.Roots), dtls.WithServerName("server.test"),
			dtls.WithSessionStore(sessions))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if err := c.HandshakeContext(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		roundTrip(t, c, []byte("hello"))
		resumed(t, e, i+1, i)
		c.Close()
	}
}

func TestOpenSSLClientsResume(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	openssl := program(t, "openssl", "openssl")
	for _, tickets := range []string{"-no_ticket", "-servername"} {
		_, cfg := resuming(t)
		cfg.CIDs = nil
		e, h := serve(t, cfg)
		file := filepath.Join(t.TempDir(), "session")
		args := []string{"s_client", "-dtls1_2", "-connect", e.Addr().String(), "-ign_eof", tickets}
		if tickets == "-servername" {
			args = append(args, "server.test")
		}
		client(t, openssl, append(args, "-sess_out", file)...)
		if b, err := os.ReadFile(file); err != nil || len(b) == 0 {
			t.Fatal("no session was written")
		}
		client(t, openssl, append(args, "-sess_in", file)...)
		resumed(t, e, 2, 1)
		h.last(t)
	}
}

func TestGnuTLSClientsResume(t *testing.T) {
	gnutls := program(t, "gnutls-cli", "gnutls-bin")
	a, cfg := resuming(t)
	cfg.CIDs = nil
	e, _ := serve(t, cfg)
	addr := e.Addr()
	for _, tickets := range []string{"", ":%NO_TICKETS"} {
		before := e.Stats()
		client(t, gnutls, "--udp", "--resume", "--port", portOf(addr), "--x509cafile", a.File(t), "--verify-hostname", "server.test",
			"--priority", "NORMAL:-VERS-ALL:+VERS-DTLS1.2"+tickets, addr.Addr().String())
		resumed(t, e, before.Handshakes+2, before.Resumed+1)
	}
}

func portOf(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }
