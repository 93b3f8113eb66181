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
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip("not installed: libcoap3-bin")
	}
	port := netlabtest.UDPPortPair(t)
	process := exec.Command(path, append([]string{"-A", "127.0.0.1", "-p", fmt.Sprint(port), "-d", "10"}, args...)...)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	plain, secure = fmt.Sprintf("coap://127.0.0.1:%d", port), fmt.Sprintf("coaps://127.0.0.1:%d", port+1)
	netlabtest.Eventually(t, program+" answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := Dial(ctx, plain, DialConfig{})
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Ping(ctx)
		return err == nil
	})
	return plain, secure
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

func TestLibcoapServers(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		plain, _ := startLibcoap(t, "coap-server-notls")
		exercise(t, plain, Security{})
	})
	for _, program := range []string{"coap-server-openssl", "coap-server-gnutls"} {
		t.Run(program+"/psk", func(t *testing.T) {
			t.Parallel()
			_, secure := startLibcoap(t, program, "-k", "secretPSK")
			if s := exercise(t, secure, Security{Identity: "device", Secret: []byte("secretPSK")}); s.Auth != handshake.AuthPSK || s.Identity != "device" {
				t.Errorf("%+v", s)
			}
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
		})
	}
}
