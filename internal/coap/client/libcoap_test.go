package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// startLibcoap starts a server of libcoap (Debian's libcoap3-bin) and returns the URIs of its plain and its DTLS port.
func startLibcoap(t *testing.T, program string, args ...string) (plain, secure string) {
	t.Helper()
	port := int(netlabtest.UDPPortPair(t))
	serveLibcoap(t, program, port, fmt.Sprintf("coap://127.0.0.1:%d", port), args...)
	return fmt.Sprintf("coap://127.0.0.1:%d", port), fmt.Sprintf("coaps://127.0.0.1:%d", port+1)
}

// tcpPortPair returns the first of two adjacent ports that are free for TCP now, and are none that the kernel gives to connections.
func tcpPortPair(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := int(netlabtest.UDPPortPair(t))
		first, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		second, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		first.Close()
		if err == nil {
			second.Close()
			return port
		}
	}
	t.Fatal("no two adjacent ports are free")
	return 0
}

// serveLibcoap starts a server and waits until it answers a ping at uri.
func serveLibcoap(t *testing.T, program string, port int, uri string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip("not installed: libcoap3-bin")
	}
	var output bytes.Buffer
	process := exec.Command(path, append([]string{"-A", "127.0.0.1", "-p", fmt.Sprint(port), "-d", "10"}, args...)...)
	process.Stdout, process.Stderr = &output, &output
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s: %s: %s", program, process.ProcessState, output.String())
		}
	})
	netlabtest.Eventually(t, program+" answers", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended", program)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := Dial(ctx, uri, DialConfig{})
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Ping(ctx)
		return err == nil
	})
}

// exercise tries what libcoap's example server has: blocks both ways, observation, a separate answer, discovery, deletion.
func exercise(t *testing.T, uri string, security Security) Session {
	t.Helper()
	conn, err := Dial(t.Context(), uri, DialConfig{Security: security, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	do := func(code message.Code, r Request) *message.Message {
		t.Helper()
		x, err := conn.Do(t.Context(), &r)
		m := new(message.Message)
		if err != nil || message.Parse(x.Response, m) != nil || m.Code != code {
			t.Fatalf("%+v: %s, %v", r, m.Code, err)
		}
		return m
	}
	for _, size := range []int{0, 64} {
		name := []string{fmt.Sprint("dynamic", size)}
		body := []byte(strings.Repeat("a long body in blocks ", 200))
		do(message.Created, Request{Method: message.PUT, Path: name, Payload: body, BlockSize: size, Options: []Option{UintOption(message.ContentFormat, 0)}})
		if m := do(message.Content, Request{Path: name, BlockSize: size}); !bytes.Equal(m.Payload, body) {
			t.Errorf("%d of %d bytes came back", len(m.Payload), len(body))
		}
		do(message.Deleted, Request{Method: message.DELETE, Path: name})
	}
	if m := do(message.Content, Request{Path: []string{"async"}, Query: []string{"1"}}); string(m.Payload) != "done" {
		t.Errorf("a separate answer: %q", m.Payload)
	}
	links, err := ParseLinks(string(do(message.Content, Request{Path: []string{".well-known", "core"}}).Payload))
	if err != nil || len(links) < 3 {
		t.Errorf("%+v, %v", links, err)
	}
	last := Notification{}
	err = conn.Observe(t.Context(), ObserveConfig{Request: Request{Path: []string{"time"}}}, func(n Notification) bool {
		last = n
		return n.Number < 3
	})
	if err != nil || last.Number != 3 {
		t.Errorf("observe: %+v, %v", last, err)
	}
	return conn.Session()
}

// exerciseBERT stores a body that takes several messages, and fetches it in several blocks of 1024 bytes each (RFC 8323 section 6).
// libcoap on GnuTLS cannot send a message that is longer than a TLS record, not to its own client either: of it single blocks are
// requested.
func exerciseBERT(t *testing.T, uri string, security Security, longAnswers bool) {
	t.Helper()
	conn, err := Dial(t.Context(), uri, DialConfig{Security: security, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := []byte(strings.Repeat("a body in blocks of BERT ", 4000))
	var m message.Message
	for _, size := range []int{0, 4096} {
		r := Request{Method: message.PUT, Path: []string{fmt.Sprint("bert", size)}, Payload: body, BlockSize: size}
		x, err := conn.Do(t.Context(), &r)
		if err != nil || message.Parse(x.Response, &m) != nil || m.Code != message.Created {
			t.Fatalf("%s, %v", m.Code, err)
		}
		if want := map[int]int{0: 4, 4096: 25}[size]; x.Messages != want {
			t.Errorf("size %d: %d messages there, want %d", size, x.Messages, want)
		}
		if !longAnswers {
			size = 1024
		}
		x, err = conn.Do(t.Context(), &Request{Path: r.Path, BlockSize: size})
		if err != nil || message.Parse(x.Response, &m) != nil || !bytes.Equal(m.Payload, body) {
			t.Fatalf("%s, %d of %d bytes, %v", m.Code, len(m.Payload), len(body), err)
		}
		if longAnswers && x.Messages > 4 {
			t.Errorf("size %d: %d messages back", size, x.Messages)
		}
	}
}

func TestLibcoapServers(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		plain, _ := startLibcoap(t, "coap-server-notls")
		exercise(t, plain, Security{})
	})
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		port := tcpPortPair(t)
		uri := fmt.Sprintf("coap+tcp://127.0.0.1:%d", port)
		serveLibcoap(t, "coap-server-notls", port, uri)
		if s := exercise(t, uri, Security{}); s.Suite != "" {
			t.Errorf("%+v", s)
		}
		exerciseBERT(t, uri, Security{}, true)
		benchLibcoap(t, uri, nil)
	})
	for program, peer := range map[string]string{"coap-server-openssl": "libcoap on OpenSSL", "coap-server-gnutls": "libcoap on GnuTLS"} {
		page := handshaketest.SuitesOfPage(t, peer, "server", nil)
		t.Run(program+"/tls", func(t *testing.T) {
			t.Parallel()
			authority := handshaketest.NewAuthority(t, "test")
			server := authority.Issue(t, "P-256", "server.test", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
			device := authority.Issue(t, "P-256", "device", nil)
			chain, key := server.Files(t)
			port := tcpPortPair(t)
			serveLibcoap(t, program, port, fmt.Sprintf("coap+tcp://127.0.0.1:%d", port), "-c", chain, "-j", key, "-C", authority.File(t))
			authority.Roots.AddCert(authority.CA)
			uri := fmt.Sprintf("coaps+tcp://127.0.0.1:%d", port+1)
			security := Security{Credentials: &handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: authority.Roots}}
			s := exercise(t, uri, security)
			exerciseBERT(t, uri, security, program != "coap-server-gnutls")
			benchLibcoap(t, uri, security.Credentials)
			if !s.TLS || s.Identity != "CN=server.test" {
				t.Errorf("%+v", s)
			}
			_, err := Dial(t.Context(), uri, DialConfig{Security: Security{Credentials: &handshake.Credentials{Roots: handshaketest.NewAuthority(t, "stranger").Roots}}})
			if err == nil || !strings.Contains(err.Error(), "certificate not trusted") {
				t.Errorf("%v", err)
			}
		})
		t.Run(program+"/psk", func(t *testing.T) {
			t.Parallel()
			_, secure := startLibcoap(t, program, "-k", "secretPSK")
			s := exercise(t, secure, Security{Identity: "device", Secret: []byte("secretPSK")})
			if s.Auth != handshake.AuthPSK || s.Identity != "device" {
				t.Errorf("%+v", s)
			}
			page.Made(s.Suite)
		})
		t.Run(program+"/certificates", func(t *testing.T) {
			t.Parallel()
			authority := handshaketest.NewAuthority(t, "test")
			server := authority.Issue(t, "P-256", "server.test", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
			device := authority.Issue(t, "P-256", "device", nil)
			chain, key := server.Files(t)
			_, secure := startLibcoap(t, program, "-c", chain, "-j", key, "-C", authority.File(t))
			authority.Roots.AddCert(authority.CA) // with OpenSSL libcoap sends its own certificate without those that sign it
			s := exercise(t, secure, Security{Credentials: &handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: authority.Roots}})
			if s.Auth != handshake.AuthX509 || s.Identity != "CN=server.test" {
				t.Errorf("%+v", s)
			}
			page.Made(s.Suite)
		})
	}
}
