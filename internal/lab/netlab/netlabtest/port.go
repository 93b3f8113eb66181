package netlabtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
)

// ports is how many numbers below the kernel's own range UDPPort chooses from.
const ports = 8000

// UDPPort returns a UDP port that nobody has, on any address, and that stays free until somebody binds it by its number: it is
// below the range from which the kernel serves port 0 and outgoing sockets, and other tests, of this process or another, get
// another one for the length of t. A port that was bound to 0 and closed again has none of this.
func UDPPort(t testing.TB) uint16 {
	t.Helper()
	low, high := 32768, 0
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &low, &high) // the default stays where it does not say
	}
	first := max(1024, low-ports)
	if first >= low {
		t.Fatalf("the kernel's own ports begin at %d: none is left below; raise net.ipv4.ip_local_port_range", low)
	}
	for range 1000 {
		port := first + rand.IntN(low-first)
		// Who listens here has the number among tests. It is TCP: the UDP port is free on all addresses.
		claim, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 255, 255, 254), Port: port})
		if err != nil {
			continue
		}
		if probe, err := net.ListenUDP("udp", &net.UDPAddr{Port: port}); err == nil {
			probe.Close()
			t.Cleanup(func() { claim.Close() })
			return uint16(port)
		}
		claim.Close()
	}
	t.Fatalf("no free UDP port between %d and %d", first, low)
	return 0
}

// UDPAddress is 127.0.0.1 with a [UDPPort].
func UDPAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), UDPPort(t))
}
