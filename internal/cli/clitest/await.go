package clitest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// WaitFor waits until the text matches, and returns the match and its groups.
func WaitFor(t *testing.T, text *LockedBuffer, pattern string) []string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	var found []string
	netlabtest.Eventually(t, fmt.Sprintf("output that matches %q", pattern), func() bool {
		found = expression.FindStringSubmatch(text.String())
		return found != nil
	}, text.String)
	return found
}

// Must ends the test with an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// HTTPGet is the body of an answer over a Unix socket.
func HTTPGet(t *testing.T, socket, path string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get("http://localhost" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// UDPEcho is a UDP echo on 127.0.0.1.
func UDPEcho(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}
