package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// through is a route to everything by a gateway.
func through(gateway string) []netlab.Route {
	return []netlab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr(gateway)}}
}

// cable joins an interface of one namespace to one of another.
func cable(namespace, device string, addresses []netip.Prefix, to, toDevice, toAddress string) netlab.Link {
	return netlab.Link{
		A: netlab.End{Namespace: namespace, Name: device, Addresses: addresses},
		B: netlab.End{Namespace: to, Name: toDevice, Addresses: netlab.Prefixes(toAddress)},
	}
}

// freePorts finds UDP ports on 127.0.0.1 of a namespace, nil: of ours. They are free a moment later too unless somebody else is
// fast.
func freePorts(host *netlab.Host, n int) (ports []netip.AddrPort, err error) {
	err = within(host, func() error {
		for range n {
			conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				return fmt.Errorf("find a free port: %w", err)
			}
			defer conn.Close() // only when all are chosen: each is another one
			ports = append(ports, conn.LocalAddr().(*net.UDPAddr).AddrPort())
		}
		return nil
	})
	return ports, err
}

// within calls f in a namespace, nil: here.
func within(host *netlab.Host, f func() error) error {
	if host == nil {
		return f()
	}
	return host.Do(f)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// until repeats what must succeed before a run goes on. After the timeout it returns the last error.
func until(ctx context.Context, timeout time.Duration, ready func() error) (err error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if err = ready(); err == nil {
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}
