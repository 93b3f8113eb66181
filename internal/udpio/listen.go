package udpio

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Config says how to open a Group. The zero value of every field but Addr is usable.
type Config struct {
	// Addr is the address to bind. An invalid IP address means every address of both families (or of IPv4 on a
	// host without IPv6); port 0 lets the kernel choose one, the same for the whole group.
	Addr netip.AddrPort
	// Peer, if valid, connects the socket: it then receives from this peer only. It is not for groups.
	Peer netip.AddrPort
	// Sockets is the size of the reuse-port group, default 1.
	Sockets int
	// Batch is the maximum number of datagrams that one call moves, default 64, at most MaxBatch.
	Batch int
	// ReadBuffer and WriteBuffer are the sizes of the kernel's buffers in bytes, 0 for the system's default. The
	// kernel limits them to net.core.rmem_max and wmem_max unless the process has CAP_NET_ADMIN.
	ReadBuffer, WriteBuffer int
	// Drops counts Stats.Dropped, which costs some 30 ns a datagram.
	Drops bool
	// NoSegment sends every datagram by itself.
	NoSegment bool
	// Coalesce lets the kernel deliver runs of datagrams of one flow as one Message with Segment set (UDP_GRO).
	// Buffers should then hold 65,535 bytes.
	Coalesce bool
	// OnlyIPv6 prevents an IPv6 wildcard socket from receiving IPv4.
	OnlyIPv6 bool
	// FreeBind binds to an address that this machine does not have yet.
	FreeBind bool
	// Join is the interface, by its index, on which the multicast group Addr is joined; 0: Addr is no group. The socket receives
	// what came to the group by that interface, and shares the port with sockets that are Shared, or belong to other groups.
	Join int
	// Shared lets sockets with Join, of the same user, bind the port too.
	Shared bool
	// Steer selects the socket of the group for each datagram; nil leaves it to the kernel's hash of the 4-tuple.
	Steer *Steering
}

func (c *Config) connected() bool { return c.Peer.IsValid() }

// Group is a set of sockets that share one address.
type Group struct {
	conns []*Conn
}

// Listen opens the sockets of a group and attaches the steering program, if one is configured.
func Listen(config Config) (*Group, error) {
	if config.Sockets == 0 {
		config.Sockets = 1
	}
	if config.Batch == 0 {
		config.Batch = 64
	}
	switch {
	case config.Sockets < 0 || config.Sockets > 1024:
		return nil, fmt.Errorf("listen on %v: %d sockets: want 1 to 1024", config.Addr, config.Sockets)
	case config.Batch < 1 || config.Batch > MaxBatch:
		return nil, fmt.Errorf("listen on %v: batch of %d: want 1 to %d", config.Addr, config.Batch, MaxBatch)
	case config.connected() && config.Sockets > 1:
		return nil, fmt.Errorf("listen on %v: a connected socket cannot be one of a group of %d", config.Addr, config.Sockets)
	}
	g := &Group{}
	for i := range config.Sockets {
		conn, err := open(config, i > 0)
		if err != nil {
			_ = g.Close()
			return nil, fmt.Errorf("listen on %v: %w", config.Addr, err)
		}
		g.conns = append(g.conns, conn)
		config.Addr = conn.local // the port of the first socket
	}
	if config.Steer != nil {
		if err := g.steer(config.Steer); err != nil {
			_ = g.Close()
			return nil, fmt.Errorf("steer datagrams on %v: %w", config.Addr, err)
		}
	}
	return g, nil
}

// Len is the number of sockets.
func (g *Group) Len() int { return len(g.conns) }

// Conn returns socket i.
func (g *Group) Conn(i int) *Conn { return g.conns[i] }

// LocalAddr is the address that all the sockets share.
func (g *Group) LocalAddr() netip.AddrPort { return g.conns[0].local }

// Stats sums the counters of the sockets.
func (g *Group) Stats() Stats {
	var sum Stats
	for _, c := range g.conns {
		s := c.Stats()
		sum.Received += s.Received
		sum.Sent += s.Sent
		sum.SendErrors += s.SendErrors
		sum.Segmented += s.Segmented
		sum.Unsegmented += s.Unsegmented
		sum.Truncated += s.Truncated
		sum.Dropped += s.Dropped
	}
	return sum
}

// Overflowed sums Conn.Overflowed.
func (g *Group) Overflowed() (sum uint64) {
	for _, c := range g.conns {
		sum += c.Overflowed()
	}
	return sum
}

// Close closes every socket and ends blocked reads.
func (g *Group) Close() error {
	var errs []error
	for _, c := range g.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// open creates one socket. The first socket of an exclusive group binds without SO_REUSEPORT, to detect whether
// another process has the address, and sets it afterwards.
func open(config Config, reusePort bool) (_ *Conn, err error) {
	addr := config.Addr
	v6 := addr.Addr().Is6() && !addr.Addr().Is4In6()
	if !addr.Addr().IsValid() {
		v6 = hasIPv6()
		addr = netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port())
		if v6 {
			addr = netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port())
		}
	}
	fd, err := newSocket(v6)
	if err != nil {
		return nil, err
	}
	c := &Conn{fd: fd, v6: v6, config: config}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	c.wildcard = addr.Addr().IsUnspecified() && !config.connected()
	if err := c.setOptions(reusePort); err != nil {
		return nil, err
	}
	var sa sockaddr
	if err := bind(fd, &sa, putSockaddr(&sa, addr, v6)); err != nil {
		return nil, err
	}
	if config.Join != 0 {
		if err := join(fd, addr.Addr(), config.Join); err != nil {
			return nil, err
		}
	}
	if (config.Sockets > 1 || config.Shared) && !reusePort {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return nil, fmt.Errorf("set SO_REUSEPORT: %w", err)
		}
	}
	if config.connected() {
		if err := connect(fd, &sa, putSockaddr(&sa, config.Peer, v6)); err != nil {
			return nil, err
		}
	}
	if c.local, err = localAddr(fd); err != nil {
		return nil, err
	}
	c.prepare()
	if err := c.wake.open(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Conn) setOptions(reusePort bool) error {
	config := &c.config
	options := []struct {
		on           bool
		what         string
		level, name  int
		value        int
		optionalFail bool
	}{
		{c.config.Join != 0, "SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, false},
		{c.config.Join != 0, "SO_BINDTOIFINDEX", unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, c.config.Join, false},
		{reusePort || c.config.Join != 0, "SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, false},
		{c.v6, "IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, boolInt(config.OnlyIPv6 || !c.wildcard), false},
		{config.FreeBind && !c.v6, "IP_FREEBIND", unix.IPPROTO_IP, unix.IP_FREEBIND, 1, false},
		{config.FreeBind && c.v6, "IPV6_FREEBIND", unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1, false},
		{config.Drops, "SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, false},
		{config.Coalesce, "UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 1, false},
		{c.wildcard && !c.v6, "IP_PKTINFO", unix.IPPROTO_IP, unix.IP_PKTINFO, 1, false},
		{c.wildcard && c.v6, "IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1, false},
		// Without these, a socket bound to every address receives what comes to the groups that any other program has joined.
		{c.wildcard || config.Join != 0, "IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0, false},
		{(c.wildcard || config.Join != 0) && c.v6, "IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0, false},
		{config.ReadBuffer > 0, "SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, config.ReadBuffer, false},
		{config.WriteBuffer > 0, "SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, config.WriteBuffer, false},
		// Beyond the system's limit; needs a privilege, but may fail.
		{config.ReadBuffer > 0, "SO_RCVBUFFORCE", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, config.ReadBuffer, true},
		{config.WriteBuffer > 0, "SO_SNDBUFFORCE", unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, config.WriteBuffer, true},
	}
	for _, o := range options {
		if !o.on {
			continue
		}
		if err := unix.SetsockoptInt(c.fd, o.level, o.name, o.value); err != nil && !o.optionalFail {
			return fmt.Errorf("set %s to %d: %w", o.what, o.value, err)
		}
	}
	return nil
}

// join makes the socket a member of a multicast group on an interface.
func join(fd int, group netip.Addr, device int) (err error) {
	if group.Is4() {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(device)})
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(device)})
	}
	if err != nil {
		return fmt.Errorf("join multicast group %s on interface %d: %w", group.WithZone(""), device, err)
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hasIPv6 reports whether the host can open IPv6 sockets.
func hasIPv6() bool {
	fd, err := newSocket(true)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var sa sockaddr
	return bind(fd, &sa, putSockaddr(&sa, netip.AddrPortFrom(netip.IPv6Unspecified(), 0), true)) == nil
}

// milliseconds rounds up, so that a wait never ends too early; -1 means without limit.
func milliseconds(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int(min((d+time.Millisecond-1)/time.Millisecond, 1<<30))
}
