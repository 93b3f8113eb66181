package netlabtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
)

// UDPPort returns a UDP port that nobody has, on any address, and that stays free until somebody binds it by its number: it is
// outside the range from which the kernel serves port 0 and outgoing sockets, and other tests, of this process or another, get
// another one for the length of t. A port that was bound to 0 and closed again has none of this; where the kernel's range
// leaves nothing, it is one of those, still another one for each test.
func UDPPort(t testing.TB) uint16 {
	t.Helper()
	first, last := portsBeside(kernelPorts())
	for range 1000 {
		port := 0
		if first > 0 {
			port = first + rand.IntN(last-first+1)
		}
		probe, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		if err != nil {
			continue
		}
		port = probe.LocalAddr().(*net.UDPAddr).Port
		probe.Close()
		// Who listens here has the number among tests. It is TCP: the UDP port is free on all addresses.
		claim, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 255, 255, 254), Port: port})
		if err == nil {
			t.Cleanup(func() { claim.Close() })
			return uint16(port)
		}
	}
	t.Fatalf("no free UDP port between %d and %d", first, last)
	return 0
}

// kernelPorts is the range from which the kernel serves.
func kernelPorts() (low, high int) {
	low, high = 32768, 60999
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &low, &high) // the default stays where it does not say
	}
	return low, high
}

// portsBeside returns the ports below the kernel's own, or above, 0 where it has them all.
func portsBeside(low, high int) (first, last int) {
	const few, many = 500, 8000
	switch {
	case low-1024 >= few:
		return max(1024, low-many), low - 1
	case 65535-high >= few:
		return max(high+1, 65535-many), 65535
	}
	return 0, 0
}

// UDPAddress is 127.0.0.1 with a [UDPPort].
func UDPAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), UDPPort(t))
}
