package netlabtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
)

// UDPPort returns a UDP port that no one has, on any address, and that stays free until somebody binds it by its number: it is
// outside the range from which the kernel serves port 0 and outgoing sockets, and other tests, of this process or another, get
// another one for the length of t. A port that was bound to 0 and closed again has none of this; where the kernel's range
// leaves nothing, it is one of those, still another one for each test.
func UDPPort(t testing.TB) uint16 {
	t.Helper()
	return udpPorts(t, 1)
}

// UDPPortPair returns the first of two adjacent ports as of [UDPPort], for programs that bind the next port as well, such as
// coturn's turnutils_peer.
func UDPPortPair(t testing.TB) uint16 {
	t.Helper()
	return udpPorts(t, 2)
}

func udpPorts(t testing.TB, count int) uint16 {
	t.Helper()
	first, last := portsBeside(kernelPorts())
	for range 1000 {
		port := 0
		if first > 0 {
			port = first + rand.IntN(last-first+2-count)
		}
		claims := make([]net.Listener, 0, count)
		for len(claims) < count {
			free, claim := claimUDP(port)
			if claim == nil {
				break
			}
			claims, port = append(claims, claim), free+1
		}
		if len(claims) == count {
			t.Cleanup(func() { release(claims) })
			return uint16(port - count)
		}
		release(claims)
	}
	t.Fatalf("no free UDP port between %d and %d", first, last)
	return 0
}

func release(claims []net.Listener) {
	for _, claim := range claims {
		claim.Close()
	}
}

// claimUDP has a free port for a test, or no claim: somebody has it.
func claimUDP(want int) (port int, claim net.Listener) {
	probe, err := net.ListenUDP("udp", &net.UDPAddr{Port: want})
	if err != nil {
		return 0, nil
	}
	port = probe.LocalAddr().(*net.UDPAddr).Port
	probe.Close()
	// Who listens here has the number among tests. It is TCP: the UDP port is free on all addresses.
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 255, 255, 254), Port: port})
	if err != nil {
		return 0, nil
	}
	return port, listener
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
