package programs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// FreeUDP returns n different UDP addresses on 127.0.0.1 that no program uses now, in the network namespace of the calling
// thread. Another process may take one before it is used; that then fails and names the address.
func FreeUDP(n int) ([]netip.AddrPort, error) {
	addresses := make([]netip.AddrPort, 0, n)
	for range n {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
		}
		defer conn.Close() // only when all are chosen
		addresses = append(addresses, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()))
	}
	return addresses, nil
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
