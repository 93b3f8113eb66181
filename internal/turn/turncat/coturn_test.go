package turncat

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// coturn is a real TURN server that runs during the test.
type coturn struct {
	t       *testing.T
	ip      string
	port    uint16 // UDP and TCP
	tlsPort uint16 // TLS and DTLS
	dir     string
	extra   []string
	cmd     *exec.Cmd
	out     *lockedBuffer
	roots   *x509.CertPool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startCoturn(t *testing.T, ip string, extra ...string) *coturn {
	t.Helper()
	netlabtest.Tools(t, "turnserver")
	s := &coturn{t: t, ip: ip, port: netlabtest.UDPPort(t), tlsPort: netlabtest.UDPPort(t), dir: t.TempDir(), extra: extra}
	s.certificate()
	s.start()
	t.Cleanup(func() {
		s.stop(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("turnserver said:\n%s", s.out)
		}
	})
	return s
}

func (s *coturn) start() {
	s.t.Helper()
	s.out = new(lockedBuffer)
	args := append([]string{
		"-n", "--listening-ip=" + s.ip, "--relay-ip=" + s.ip, fmt.Sprintf("--listening-port=%d", s.port), fmt.Sprintf("--tls-listening-port=%d", s.tlsPort),
		"--realm=weir.test", "--allow-loopback-peers", "--no-cli", "--no-rfc5780", "--log-file=stdout", "--simple-log", "--verbose",
		"--cert=" + filepath.Join(s.dir, "cert.pem"), "--pkey=" + filepath.Join(s.dir, "key.pem"),
		"--pidfile=" + filepath.Join(s.dir, "pid"), "--userdb=" + filepath.Join(s.dir, "db"),
	}, s.extra...)
	if !strings.Contains(strings.Join(s.extra, " "), "auth-secret") {
		args = append(args, "--lt-cred-mech", "--user=user1:passwd1")
	}
	s.cmd = exec.Command("turnserver", args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.awaitUDP()
	for _, port := range []uint16{s.port, s.tlsPort} {
		netlabtest.Eventually(s.t, "a TCP port of turnserver", func() bool {
			conn, err := net.Dial("tcp", net.JoinHostPort(s.ip, fmt.Sprint(port)))
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
}

// awaitUDP requests a Binding until it is answered.
func (s *coturn) awaitUDP() {
	s.t.Helper()
	netlabtest.Eventually(s.t, "an answer of turnserver", func() bool {
		conn, err := net.Dial("udp", net.JoinHostPort(s.ip, fmt.Sprint(s.port)))
		if err != nil {
			return false
		}
		defer conn.Close()
		conn.Write(stun.MustBuild(stun.TransactionID, stun.BindingRequest).Raw)
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = conn.Read(make([]byte, 1500))
		return err == nil
	})
}

func (s *coturn) stop(signal os.Signal) {
	if s.cmd != nil {
		s.cmd.Process.Signal(signal)
		s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *coturn) certificate() {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "turn.test"}, DNSNames: []string{"turn.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		s.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(certPEM)
	for name, data := range map[string][]byte{"cert.pem": certPEM, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *coturn) config(transport Transport, peer string) Config {
	s.t.Helper()
	port := s.port
	if transport == TLS || transport == DTLS {
		port = s.tlsPort
	}
	e, err := ParsePeer(peer)
	if err != nil {
		s.t.Fatal(err)
	}
	return Config{
		Listen: Endpoint{Kind: KindUDP, Host: "127.0.0.1"}, Server: Server{Host: s.ip, Port: port, Transport: transport}, Peer: e,
		Credentials: Static("user1", "passwd1"), ServerName: "turn.test", Roots: s.roots,
	}
}

// running is a tunnel in use.
type running struct {
	*Tunnel
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	log    *lockedBuffer
}

func startTunnel(t *testing.T, c Config) *running {
	t.Helper()
	r := &running{t: t, ended: make(chan error, 1), log: new(lockedBuffer)}
	c.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tunnel, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r.Tunnel = tunnel
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- tunnel.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("tunnel said:\n%s%+v", r.log, tunnel.Stats())
		}
	})
	return r
}

// stop ends the tunnel, which must end well.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(time.Minute):
		r.t.Fatal("the tunnel does not end")
	}
	if s := r.Stats(); s.Clients != 0 || s.Sessions != 0 {
		r.t.Errorf("left at the end: %+v", s)
	}
}

// dial is a local client.
func (r *running) dial() net.Conn {
	r.t.Helper()
	network, address, _ := strings.Cut(r.Addr(), "://")
	conn, err := net.Dial(network, address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends until the answer to this very text comes: datagrams may be lost.
func exchange(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	buffer := make([]byte, 65536)
	netlabtest.Eventually(t, "the answer to "+text[:min(len(text), 40)], func() bool {
		if _, err := conn.Write([]byte(text)); err != nil {
			return false
		}
		for {
			conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			n, err := conn.Read(buffer)
			if err != nil {
				return false
			}
			if string(buffer[:n]) == "echo:"+text {
				return true
			}
		}
	})
}

// udpEcho answers each datagram with "echo:" before it.
func udpEcho(t *testing.T, ip string) string {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 65536)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer[5:])
			if err != nil {
				return
			}
			copy(buffer, "echo:")
			conn.WriteToUDPAddrPort(buffer[:5+n], from)
		}
	}()
	return "udp://" + conn.LocalAddr().String()
}

// tcpEcho sends every byte back and ends when its client does.
func tcpEcho(t *testing.T, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return "tcp://" + l.Addr().String()
}
