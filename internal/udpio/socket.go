package udpio

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is one outgoing UDP socket, for a worker that holds thousands of them in a Poller. It is a small value,
// never blocks, and belongs to one goroutine. The zero Socket is not open.
type Socket struct {
	fd        int32 // descriptor + 1, so that the zero value is closed
	v6        bool
	connected bool
	bound     bool // the port was requested, so disconnecting keeps it
}

// Dial opens a socket of the family of peer. A connected socket sends without a route look-up, receives from peer
// only, and learns from the network that no program listens there (ECONNREFUSED from Send or Receive). An unconnected
// socket receives from all addresses. Dial returns the bare errno: EMFILE, ENFILE, EAGAIN (no port left),
// EADDRNOTAVAIL, ENETUNREACH.
func Dial(peer netip.AddrPort, connected bool) (Socket, error) {
	return DialFrom(netip.Addr{}, peer, connected)
}

// DialFrom is Dial with a local address of peer's family; with the zero Addr the kernel chooses. EAFNOSUPPORT means
// that the families differ.
func DialFrom(local netip.Addr, peer netip.AddrPort, connected bool) (Socket, error) {
	v6 := peer.Addr().Is6() && !peer.Addr().Is4In6()
	fd, err := newSocket(v6)
	if err != nil {
		return Socket{}, err
	}
	s := Socket{fd: int32(fd) + 1, v6: v6}
	if !connected && !local.IsValid() {
		local = netip.IPv4Unspecified()
		if v6 {
			local = netip.IPv6Unspecified()
		}
	}
	if local.IsValid() {
		var sa sockaddr
		err = bind(fd, &sa, putSockaddr(&sa, netip.AddrPortFrom(local, 0), v6))
	}
	if err == nil && connected {
		err = s.Connect(peer)
	}
	if err != nil {
		s.Close()
		return Socket{}, err
	}
	return s, nil
}

// IsOpen reports whether the socket can be used.
func (s *Socket) IsOpen() bool { return s.fd != 0 }

// Reaches reports whether the family of the socket can reach addr.
func (s *Socket) Reaches(addr netip.AddrPort) bool {
	return s.v6 == (addr.Addr().Is6() && !addr.Addr().Is4In6())
}

// Connect connects the socket to another peer; its local port stays.
func (s *Socket) Connect(peer netip.AddrPort) error {
	var sa sockaddr
	err := connect(int(s.fd)-1, &sa, putSockaddr(&sa, peer, s.v6))
	s.connected = err == nil
	return err
}

// Retarget connects the socket to another peer, or disconnects it, and keeps its port. Unlike Connect it lets the
// kernel choose the source address again. For a moment the socket receives nothing.
func (s *Socket) Retarget(peer netip.AddrPort, connected bool) error {
	local, err := s.LocalAddr()
	if err != nil {
		return err
	}
	fd := int(s.fd) - 1
	var sa sockaddr
	sa.Family = unix.AF_UNSPEC
	if !s.connected {
		s.bound = true // the port that the kernel chose stays bound until Close
	} else {
		if err := connect(fd, &sa, sizeofInet6); err != nil {
			return err
		}
		s.connected = false
	}
	if !s.bound {
		any := netip.IPv4Unspecified()
		if s.v6 {
			any = netip.IPv6Unspecified()
		}
		// Disconnecting has released a port that the kernel chose.
		if err := bind(fd, &sa, putSockaddr(&sa, netip.AddrPortFrom(any, local.Port()), s.v6)); err != nil {
			return err
		}
		s.bound = true
	}
	if !connected {
		return nil
	}
	return s.Connect(peer)
}

// Connected reports whether the socket is connected to a peer.
func (s *Socket) Connected() bool { return s.connected }

// LocalAddr returns the socket's address from the kernel.
func (s *Socket) LocalAddr() (netip.AddrPort, error) { return localAddr(int(s.fd) - 1) }

// Send sends one datagram to the connected peer. The error is a bare errno, including EAGAIN.
func (s *Socket) Send(b []byte) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd-1), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return errnoErr(errno)
}

// SendTo sends one datagram to addr from an unconnected socket.
func (s *Socket) SendTo(b []byte, addr netip.AddrPort) error {
	var sa sockaddr
	length := putSockaddr(&sa, addr, s.v6)
	if length == 0 {
		return unix.EAFNOSUPPORT
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd-1), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(&sa)), uintptr(length))
	return errnoErr(errno)
}

// Receive reads one datagram into b without waiting. EAGAIN means that there is none. If the datagram is longer, its
// rest is lost and n is len(b).
func (s *Socket) Receive(b []byte) (n int, err error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd-1), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errnoErr(errno)
	}
	return int(r), nil
}

// ReceiveFrom is Receive with the sender's address.
func (s *Socket) ReceiveFrom(b []byte) (n int, from netip.AddrPort, err error) {
	var sa sockaddr
	length := uint32(sizeofInet6)
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd-1), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&length)))
	if errno != 0 {
		return 0, from, errnoErr(errno)
	}
	return int(r), getSockaddr(&sa), nil
}

// Close closes the socket; closing it twice is harmless.
func (s *Socket) Close() {
	if s.fd != 0 {
		_ = unix.Close(int(s.fd) - 1)
		*s = Socket{}
	}
}

// errnoErr avoids an allocation for the errors that a worker sees often.
func errnoErr(errno unix.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.EAGAIN:
		return errAgain
	case unix.ECONNREFUSED:
		return errRefused
	}
	return errno
}

var (
	errAgain   error = unix.EAGAIN
	errRefused error = unix.ECONNREFUSED
)

func newSocket(v6 bool) (int, error) {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a UDP socket: %w", err)
	}
	return fd, nil
}

func bind(fd int, sa *sockaddr, length uint32) error {
	if length == 0 {
		return unix.EAFNOSUPPORT
	}
	_, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(sa)), uintptr(length))
	if errno != 0 {
		return fmt.Errorf("bind: %w", errno)
	}
	return nil
}

func connect(fd int, sa *sockaddr, length uint32) error {
	if length == 0 {
		return unix.EAFNOSUPPORT
	}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(sa)), uintptr(length))
	if errno != 0 {
		return fmt.Errorf("connect: %w", errno)
	}
	return nil
}

func localAddr(fd int) (netip.AddrPort, error) {
	var sa sockaddr
	length := uint32(sizeofInet6)
	_, _, errno := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&length)))
	if errno != 0 {
		return netip.AddrPort{}, fmt.Errorf("read the local address: %w", errno)
	}
	if sa.Family == unix.AF_INET6 { // an unspecified address keeps its family
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), getPort(&sa.Port)), nil
	}
	return getSockaddr(&sa), nil
}
