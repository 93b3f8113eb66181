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
	// DontFragment makes the kernel refuse datagrams that are longer than the path MTU (EMSGSIZE), instead of
	// fragmenting them.
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

// Adopt makes a Socket of the descriptor of a bound UDP socket, with the options that it has. The Socket then owns
// the descriptor.
func Adopt(fd int) (Socket, error) {
	local, err := localAddr(fd)
	if err != nil {
		return Socket{}, err
	}
	return Socket{fd: int32(fd) + 1, v6: local.Addr().Is6() && !local.Addr().Is4In6(), bound: true}, nil
}

// FD returns the descriptor, -1 of a closed socket. The socket still owns it.
func (s *Socket) FD() int { return int(s.fd) - 1 }

// IPv6 reports whether the socket is an IPv6 socket.
func (s *Socket) IPv6() bool { return s.v6 }

// ReadBuffer returns the size in bytes that the kernel granted; it includes the kernel's own overhead.
func (s *Socket) ReadBuffer() int { return readBuffer(s.FD()) }

// FD returns the descriptor. The Conn still owns it.
func (c *Conn) FD() int { return c.fd }

// IPv6 reports whether the socket is an IPv6 socket, which may carry IPv4 as well.
func (c *Conn) IPv6() bool { return c.v6 }

// ReadBuffer returns the size in bytes that the kernel granted; it includes the kernel's own overhead.
func (c *Conn) ReadBuffer() int { return readBuffer(c.fd) }

func readBuffer(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	return n
}

// AdoptGroup makes a Group of the descriptors of bound UDP sockets that another Weir process left, in the order in
// which they were opened. The options of config must be those with which they were opened; Addr and Sockets are taken
// from the sockets. The group then owns the descriptors; after an error the caller still owns them.
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

// ListenWith is Listen with the sockets of an earlier process, which AdoptGroup describes. If config.Sockets is another number, more
// are opened, or those that are too many are closed, with what waits in them; the steering program is that of the new number. config.Addr
// must be the address of the sockets, or have port 0. It owns the descriptors, also after an error.
func ListenWith(config Config, fds []int) (g *Group, err error) {
	config.Sockets = max(config.Sockets, 1)
	used := fds[:min(len(fds), config.Sockets)]
	for _, fd := range fds[len(used):] {
		_ = unix.Close(fd)
	}
	if g, err = AdoptGroup(config, used); err != nil {
		for _, fd := range used {
			_ = unix.Close(fd)
		}
		return nil, err
	}
	if err = g.resize(config, len(fds)); err != nil {
		_ = g.Close()
		return nil, fmt.Errorf("listen on %v with %d sockets of the process before: %w", config.Addr, len(fds), err)
	}
	return g, nil
}

// resize makes a group of adopted sockets one of config. adopted is how many sockets there were.
func (g *Group) resize(config Config, adopted int) error {
	local := g.LocalAddr()
	if bound := config.Addr; bound.Addr().IsValid() && (bound.Addr().Unmap() != local.Addr().Unmap() || bound.Port() != 0 && bound.Port() != local.Port()) {
		return fmt.Errorf("they are bound to %v", local)
	}
	config.Addr = local
	if adopted < config.Sockets {
		if err := unix.SetsockoptInt(g.conns[0].fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return fmt.Errorf("set SO_REUSEPORT: %w", err)
		}
	}
	for len(g.conns) < config.Sockets {
		conn, err := open(config, true)
		if err != nil {
			return err
		}
		g.conns = append(g.conns, conn)
	}
	if adopted != config.Sockets && config.Steer != nil {
		return g.steer(config.Steer)
	}
	return nil
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

// prepare creates the state for reads and writes.
func (c *Conn) prepare() {
	config := &c.config
	control := config.Drops || config.Coalesce || c.wildcard
	c.read = newReader(config.Batch, control)
	c.write = newConnWriter(c)
}
