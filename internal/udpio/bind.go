package udpio

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// SocketOptions are what Bind sets.
type SocketOptions struct {
	// ReadBuffer and WriteBuffer are as in Config.
	ReadBuffer, WriteBuffer int
	// Coalesce is as in Config.
	Coalesce bool
	// DontFragment has the kernel refuse what is longer than the path takes (EMSGSIZE), instead of cutting it up.
	DontFragment bool
}

// Bind opens an unconnected Socket at a local address; port 0 lets the kernel choose one. The error wraps a bare
// errno: EADDRINUSE, EADDRNOTAVAIL (also: no port left), EMFILE, ENFILE.
func Bind(local netip.AddrPort, options SocketOptions) (Socket, error) {
	v6 := local.Addr().Is6() && !local.Addr().Is4In6()
	fd, err := newSocket(v6)
	if err != nil {
		return Socket{}, err
	}
	s := Socket{fd: int32(fd) + 1, v6: v6, bound: true}
	if err := s.set(options); err != nil {
		s.Close()
		return Socket{}, err
	}
	var sa sockaddr
	if err := bind(fd, &sa, putSockaddr(&sa, local, v6)); err != nil {
		s.Close()
		return Socket{}, err
	}
	return s, nil
}

func (s *Socket) set(options SocketOptions) error {
	c := Conn{fd: s.FD(), v6: s.v6, config: Config{
		ReadBuffer: options.ReadBuffer, WriteBuffer: options.WriteBuffer, Coalesce: options.Coalesce, OnlyIPv6: true,
	}}
	if err := c.setOptions(false); err != nil || !options.DontFragment {
		return err
	}
	level, name, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if s.v6 {
		level, name, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	if err := unix.SetsockoptInt(s.FD(), level, name, value); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	return nil
}

// Adopt makes a Socket of a descriptor of a bound UDP socket, which then belongs to the Socket, with its options.
func Adopt(fd int) (Socket, error) {
	local, err := localAddr(fd)
	if err != nil {
		return Socket{}, err
	}
	return Socket{fd: int32(fd) + 1, v6: local.Addr().Is6() && !local.Addr().Is4In6(), bound: true}, nil
}

// FD is the descriptor, -1 of a closed socket. It stays the socket's.
func (s *Socket) FD() int { return int(s.fd) - 1 }

// IPv6 says that the socket is one of IPv6.
func (s *Socket) IPv6() bool { return s.v6 }

// ReadBuffer is the size in bytes that the kernel granted; it counts its own overhead in.
func (s *Socket) ReadBuffer() int { return readBuffer(s.FD()) }

// FD is the descriptor. It stays the Conn's.
func (c *Conn) FD() int { return c.fd }

// IPv6 says that the socket is one of IPv6, which may carry IPv4 as well.
func (c *Conn) IPv6() bool { return c.v6 }

// ReadBuffer is the size in bytes that the kernel granted; it counts its own overhead in.
func (c *Conn) ReadBuffer() int { return readBuffer(c.fd) }

func readBuffer(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	return n
}

// AdoptGroup makes a Group of the descriptors of bound UDP sockets, in the order in which they were opened: those
// that another process of ours left. The options of config must be the ones that they were opened with; Addr and
// Sockets are theirs. The descriptors belong to the group; with an error they are still the caller's.
func AdoptGroup(config Config, fds []int) (*Group, error) {
	if config.Batch == 0 {
		config.Batch = 64
	}
	g := &Group{}
	for i, fd := range fds {
		c, err := adoptConn(config, fd)
		if err == nil && i > 0 && c.local != g.conns[0].local {
			err = fmt.Errorf("bound to %v, the first one to %v", c.local, g.conns[0].local)
		}
		if err != nil {
			for _, c := range g.conns {
				c.wake.close()
			}
			return nil, fmt.Errorf("adopt socket %d of a group: %w", i, err)
		}
		g.conns = append(g.conns, c)
	}
	return g, nil
}

func adoptConn(config Config, fd int) (*Conn, error) {
	local, err := localAddr(fd)
	if err != nil {
		return nil, err
	}
	c := &Conn{fd: fd, v6: local.Addr().Is6() && !local.Addr().Is4In6(), local: local}
	config.Addr = local
	c.wildcard = local.Addr().IsUnspecified()
	c.config = config
	c.prepare()
	if err := c.wake.open(); err != nil {
		return nil, err
	}
	return c, nil
}

// prepare makes the state for reads and writes.
func (c *Conn) prepare() {
	config := &c.config
	control := config.Timestamps || config.Drops || config.Coalesce || c.wildcard && !config.NoLocal
	c.read = newReadState(config.Batch, control)
	c.write = newWriteState(config.Batch)
}
