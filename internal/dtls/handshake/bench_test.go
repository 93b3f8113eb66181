package handshake_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/pion/dtls/v3/pkg/crypto/elliptic"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// BenchmarkHandshakes makes handshakes in memory, both sides on one core: Weir's with Weir's, pion's with pion's, and OpenSSL's with
// OpenSSL's over a pair of sockets, of the same suite, group (P-256) and certificates. "server" is the share of the server. Run it
// with GOMAXPROCS=1. An operation of OpenSSL's is a process with 1,000 handshakes; its processor times are those of one handshake.
func BenchmarkHandshakes(b *testing.B) {
	a := handshaketest.NewAuthority(b, "test")
	own, device := a.Issue(b, "P-256", "server.test", nil), a.Issue(b, "P-256", "device", nil)
	mine := credentials(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots})
	theirs := credentials(handshake.Credentials{Certificates: []*handshake.Certificate{own.Certificate}, Roots: a.Roots})
	groups := []handshake.Group{handshake.P256}
	key := []byte(".fornium")
	psk := func([]byte) ([]byte, bool) { return key, true }
	certificates := func(auth handshake.ClientAuth) (handshake.ClientConfig, handshake.ServerConfig) {
		suites := []record.Suite{record.ECDHEECDSAWithAES128CCM8}
		return handshake.ClientConfig{Config: handshake.Config{Suites: suites, Groups: groups, Credentials: mine}},
			handshake.ServerConfig{Config: handshake.Config{Suites: suites, Groups: groups, Credentials: theirs}, ClientAuth: auth}
	}
	withKey := func(suite record.Suite) (handshake.ClientConfig, handshake.ServerConfig) {
		c := handshake.Config{Suites: []record.Suite{suite}, Groups: groups}
		return handshake.ClientConfig{Config: c, Identity: []byte("device"), Key: key}, handshake.ServerConfig{Config: c, PSK: psk}
	}
	run := func(name string, client handshake.ClientConfig, server handshake.ServerConfig) {
		b.Run("weir/"+name, func(b *testing.B) { benchmarkOwn(b, client, server) })
	}
	client, server := withKey(record.PSKWithAES128CCM8)
	run("psk", client, server)
	resumption, err := handshake.NewResumption(handshake.ResumptionConfig{})
	if err != nil {
		b.Fatal(err)
	}
	client, server = certificates(handshake.ClientAuthNeeded)
	client.Resumable, server.Resumption = true, resumption
	c, _, err := shake(b, client, server)
	if err != nil {
		b.Fatal(err)
	}
	client.Session = c.Result().Session
	run("resumed", client, server)
	client, server = withKey(record.ECDHEPSKWithAES128CCM8SHA256)
	run("ecdhe-psk", client, server)
	client, server = certificates(handshake.ClientAuthNone)
	run("x509", client, server)
	client, server = certificates(handshake.ClientAuthNeeded)
	run("x509-mutual", client, server)

	pionPSK := dtls.WithPSK(func([]byte) ([]byte, error) { return key, nil })
	b.Run("pion/psk", func(b *testing.B) {
		suite := dtls.WithCipherSuites(dtls.TLS_PSK_WITH_AES_128_CCM_8)
		benchmarkPion(b, []dtls.ClientOption{suite, pionPSK, dtls.WithPSKIdentityHint([]byte("device"))}, []dtls.ServerOption{suite, pionPSK})
	})
	suite := dtls.WithCipherSuites(dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8)
	group := dtls.WithEllipticCurves(elliptic.P256)
	pionClient := []dtls.ClientOption{suite, group, dtls.WithRootCAs(a.Roots), dtls.WithServerName("server.test"), dtls.WithCertificates(device.TLS())}
	pionServer := []dtls.ServerOption{suite, group, dtls.WithCertificates(own.TLS())}
	b.Run("pion/x509", func(b *testing.B) { benchmarkPion(b, pionClient, pionServer) })
	pionServer = append(pionServer, dtls.WithClientAuth(dtls.RequireAndVerifyClientCert), dtls.WithClientCAs(a.Roots))
	b.Run("pion/x509-mutual", func(b *testing.B) { benchmarkPion(b, pionClient, pionServer) })

	program := buildOpenSSL(b)
	chain, chainKey := own.Files(b)
	deviceChain, deviceKey := device.Files(b)
	files := []string{chain, chainKey, deviceChain, deviceKey, a.File(b)}
	const ccm8 = "ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0"
	for _, k := range []struct {
		name, ciphers, kind, how string
		files                    []string
	}{
		{"psk", "PSK-AES128-CCM8:@SECLEVEL=0", "psk", "full", nil},
		{"resumed", ccm8, "mutual", "resumed", files},
		{"ecdhe-psk", "ECDHE-PSK-CHACHA20-POLY1305", "psk", "full", nil}, // it has none with AES-CCM or AES-GCM
		{"x509", ccm8, "x509", "full", files},
		{"x509-mutual", ccm8, "mutual", "full", files},
	} {
		b.Run("openssl/"+k.name, func(b *testing.B) { benchmarkOpenSSL(b, program, k.ciphers, k.kind, k.how, k.files) })
	}
}

// buildOpenSSL compiles the program of testdata.
func buildOpenSSL(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "openssl_handshakes")
	if out, err := exec.Command("gcc", "-O2", "-o", program, "testdata/openssl_handshakes.c", "-lssl", "-lcrypto").CombinedOutput(); err != nil {
		b.Skipf("no OpenSSL to compare with; install gcc and libssl-dev: %v\n%s", err, out)
	}
	return program
}

// benchmarkOpenSSL makes handshakes with OpenSSL in a process of its own.
func benchmarkOpenSSL(b *testing.B, program, ciphers, kind, how string, files []string) {
	const count = 1000
	var server, both int64
	for b.Loop() {
		out, err := exec.Command(program, append([]string{strconv.Itoa(count), ciphers, kind, how}, files...)...).CombinedOutput()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		var s, all int64
		if _, err := fmt.Sscan(string(out), &s, &all); err != nil {
			b.Fatal(err)
		}
		server, both = server+s, both+all
	}
	b.ReportMetric(float64(server)/float64(b.N), "server-cpu-ns/op")
	b.ReportMetric(float64(both)/float64(b.N), "cpu-ns/op")
}

func benchmarkOwn(b *testing.B, client handshake.ClientConfig, config handshake.ServerConfig) {
	s := serverWith(b, nil, config)
	var spent time.Duration
	start := cpu(b)
	scratch := new(record.Scratch)
	b.ReportAllocs()
	for b.Loop() {
		c, err := handshake.NewClient(client)
		if err != nil {
			b.Fatal(err)
		}
		s.pending, s.result = nil, nil
		var queue [][]byte
		send := func(d []byte) { queue = append(queue, append([]byte(nil), d...)) }
		c.Start(0, send)
		for len(queue) > 0 {
			d := queue[0]
			queue = queue[1:]
			begin := cpu(b)
			replies := s.datagram(d, 0)
			spent += cpu(b) - begin
			for _, r := range replies {
				c.Receive(scratch, r, 0, send)
			}
		}
		if done, err := c.Done(); !done || err != nil || s.result == nil {
			b.Fatal(done, err)
		}
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "server-cpu-ns/op")
	b.ReportMetric(float64((cpu(b)-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// cpu is the processor time that this process has used. It counts on a busy machine too, where wall time says nothing.
func cpu(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// pipe is one end of a datagram connection in memory.
type pipe struct {
	net.PacketConn // the methods that are not used
	in, out        chan []byte
	once           *sync.Once
	closed         chan struct{}
}

func (p *pipe) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case d := <-p.in:
		return copy(b, d), p.LocalAddr(), nil
	case <-p.closed:
		return 0, nil, net.ErrClosed
	}
}

func (p *pipe) WriteTo(b []byte, _ net.Addr) (int, error) {
	select {
	case p.out <- append([]byte(nil), b...):
		return len(b), nil
	case <-p.closed:
		return 0, net.ErrClosed
	}
}

func (p *pipe) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipe) LocalAddr() net.Addr              { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (p *pipe) SetDeadline(time.Time) error      { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { _ = p.Close(); return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

func benchmarkPion(b *testing.B, client []dtls.ClientOption, server []dtls.ServerOption) {
	start := cpu(b)
	b.ReportAllocs()
	for b.Loop() {
		there, back := make(chan []byte, 32), make(chan []byte, 32)
		closed, once := make(chan struct{}), new(sync.Once)
		mine, theirs := &pipe{in: back, out: there, once: once, closed: closed}, &pipe{in: there, out: back, once: once, closed: closed}
		s, err := dtls.ServerWithOptions(theirs, theirs.LocalAddr(), server...)
		if err != nil {
			b.Fatal(err)
		}
		c, err := dtls.ClientWithOptions(mine, mine.LocalAddr(), client...)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		ended := make(chan error, 1)
		go func() { ended <- s.HandshakeContext(ctx) }()
		if err := c.HandshakeContext(ctx); err != nil {
			b.Fatal(err)
		}
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		_ = mine.Close()
		_ = c.Close()
		_ = s.Close()
		cancel()
	}
	b.ReportMetric(float64((cpu(b)-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
