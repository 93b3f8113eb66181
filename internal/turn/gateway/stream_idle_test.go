package gateway_test

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/udpio"
)

// A TCP client that says nothing costs little memory and no goroutine, and others are served with thousands of them.
func TestIdleTCPClients(t *testing.T) {
	const idle, sources = 5000, 4
	server := netlabtest.UDPAddress(t)
	c := streamConfig(gateway.TCP, "127.0.0.1", server.Port())
	c.Limits.Connections = 4 * idle // a quarter of them may be without an allocation, a sixteenth of one source
	g := start(t, c, gateway.Options{Workers: 2})
	connections := func() int { return g.Stats().Listeners[0].Connections }
	binding(t, connectStream(t, server, false))
	memory, goroutines := inUse(), runtime.NumGoroutine()
	clients := make([]udpio.Stream, 0, idle)
	defer func() {
		for i := range clients {
			clients[i].Close()
		}
	}()
	for i := range idle - 1 {
		conn, err := udpio.DialStream(netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i%sources)}), server)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, conn)
	}
	netlabtest.Eventually(t, "all are accepted", func() bool { return connections() == idle })
	each := float64(inUse()-memory) / idle
	if more := runtime.NumGoroutine() - goroutines; more > 10 || each > 2048 {
		t.Errorf("%.0f bytes and %.2f goroutines for each idle client, want at most 2048 and none", each, float64(more)/idle)
	}
	t.Logf("%.0f bytes for each idle client", each)
	binding(t, connectStream(t, server, false))
}

// inUse is the memory of heap and stacks after a collection, with what the runtime has taken for goroutines.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools give up what they have in two
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Connections without an allocation that fill the limit keep no one out: those of the source that holds most give way.
func TestTCPGuestFlood(t *testing.T) {
	const limit = 64
	server := netlabtest.UDPAddress(t)
	c := streamConfig(gateway.TCP, "127.0.0.1", server.Port())
	c.Limits.Connections = 4 * limit
	g := start(t, c, gateway.Options{Workers: 2})
	owner := newClient(t, framedConn{connectStream(t, server, false)})
	owner.allocate()
	for i := range 5 * limit {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%8))} // few sources with many each
		conn, err := net.DialTCP("tcp", from, net.TCPAddrFromAddrPort(server))
		if errors.Is(err, syscall.ECONNRESET) {
			continue // turned away before this process has seen that it was let in
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	netlabtest.Eventually(t, "the flood is turned away", func() bool {
		reasons := g.Stats().Reasons
		return reasons["guest_refused"]+reasons["guest_evicted"]+reasons["connection_refused"] >= 4*limit
	})
	netlabtest.Eventually(t, "no more are left than allowed", func() bool { return g.Stats().Listeners[0].Connections <= limit+1 })
	for range 3 {
		conn := connectStream(t, server, false)
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		binding(t, conn)
	}
	owner.must(0x004, lifetime(600)) // Refresh
}
