package gateway_test

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// dialDTLS makes a DTLS connection from a socket of the caller.
func dialDTLS(t testing.TB, from net.PacketConn, server netip.AddrPort) *dtls.Conn {
	t.Helper()
	conn, err := dtls.ClientWithOptions(from, net.UDPAddrFromAddrPort(server), dtls.WithInsecureSkipVerify(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// binding requests the address that the server sees and returns it.
func binding(t testing.TB, conn net.Conn) netip.AddrPort {
	t.Helper()
	request := stun.MustBuild(stun.TransactionID, stun.BindingRequest)
	if _, err := conn.Write(request.Raw); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 1500)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	answer := &stun.Message{Raw: buf[:n]}
	var mapped stun.XORMappedAddress
	if err := answer.Decode(); err != nil || answer.TransactionID != request.TransactionID || mapped.GetFrom(answer) != nil {
		t.Fatalf("the answer is %v: %v", answer, err)
	}
	addr, _ := netip.AddrFromSlice(mapped.IP)
	return netip.AddrPortFrom(addr.Unmap(), uint16(mapped.Port))
}

func TestDTLSHandshake(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.DTLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
	from := listenUDP(t, "127.0.0.1")
	conn := dialDTLS(t, from, server)
	if got := binding(t, conn); got != addrOf(from) {
		t.Errorf("the server sees %v, want %v", got, addrOf(from))
	}
	_ = conn.Close()
	netlabtest.Eventually(t, "the session ends with the client's", func() bool { return g.Stats().Listeners[0].Connections == 0 })
}

// TestDTLSReboot: a client that starts again from the same address, without a word, gets a new session.
func TestDTLSReboot(t *testing.T) {
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.DTLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
	from := listenUDP(t, "127.0.0.1")
	for range 3 {
		client := &vanishingConn{PacketConn: from}
		conn := dialDTLS(t, client, server)
		binding(t, conn)
		client.vanish()
		_ = conn.Close()
		_ = from.SetReadDeadline(time.Time{})
	}
	if s := g.Stats().Listeners[0]; s.Reasons["dtls_replaced"] != 2 || s.Reasons["connection_accepted"] != 3 {
		t.Errorf("counted %v", s.Reasons)
	}
	netlabtest.Eventually(t, "only the last session is left", func() bool { return g.Stats().Listeners[0].Connections == 1 })
}

// vanishingConn is a socket that survives its user, who leaves without a word.
type vanishingConn struct {
	net.PacketConn
	gone atomic.Bool
}

func (c *vanishingConn) vanish() {
	c.gone.Store(true)
	_ = c.PacketConn.SetReadDeadline(time.Now())
}

func (c *vanishingConn) Close() error { return nil }

func (c *vanishingConn) SetReadDeadline(at time.Time) error {
	if c.gone.Load() {
		return nil
	}
	return c.PacketConn.SetReadDeadline(at)
}

func (c *vanishingConn) ReadFrom(b []byte) (int, net.Addr, error) {
	if c.gone.Load() {
		return 0, nil, net.ErrClosed
	}
	return c.PacketConn.ReadFrom(b)
}

func (c *vanishingConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if c.gone.Load() {
		return len(b), nil
	}
	return c.PacketConn.WriteTo(b, to)
}

// TestDTLSOpenSSL: OpenSSL's client completes its handshake and sees an end of its connection where it sends junk.
func TestDTLSOpenSSL(t *testing.T) {
	netlabtest.Tools(t, "openssl")
	server := netlabtest.UDPAddress(t)
	g := start(t, streamConfig(gateway.DTLS, "127.0.0.1", server.Port()), gateway.Options{Workers: 2})
	cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-dtls1_2", "-connect", server.String())
	cmd.Stdin = strings.NewReader("\xff\xff\xff\xff this is no TURN\n")
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "Protocol  : DTLSv1.2") || !strings.Contains(string(out), "Cipher    : ECDHE-ECDSA-AES") {
		t.Errorf("openssl says:\n%s", out)
	}
	netlabtest.Eventually(t, "the session ends", func() bool { return g.Stats().Listeners[0].Connections == 0 })
}
