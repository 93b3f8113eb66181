package programs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"
)

// lowestPort is where FreeUDP begins: below it are the ports of well-known services.
const lowestPort = 10000

// FreeUDP returns n different UDP addresses on 127.0.0.1 that no program uses now, in the network namespace of the calling
// thread. They are below net.ipv4.ip_local_port_range where there is room, so that no socket that lets the kernel choose its
// port takes one before it is used. Another program may still bind one by number; the later bind then fails and names the address.
func FreeUDP(n int) ([]netip.AddrPort, error) {
	addresses := make([]netip.AddrPort, 0, n)
	room := chosenByKernelFrom() - lowestPort
	for tries := 0; len(addresses) < n; tries++ {
		port := 0 // the kernel's choice
		if room >= 100*n && tries < 10*n {
			port = lowestPort + rand.IntN(room)
		}
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil && port != 0 {
			continue // in use
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
		}
		defer conn.Close() // only when all are chosen
		addresses = append(addresses, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()))
	}
	return addresses, nil
}

// chosenByKernelFrom is the lowest port that the kernel gives to sockets without one; 0 where it is not known.
func chosenByKernelFrom() (low int) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(string(text), &low) // unreadable: 0
	return low
}

// Sleep waits; the error is the context's, which ends it early.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
