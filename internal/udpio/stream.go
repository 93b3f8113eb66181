package udpio

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stream is one connected TCP socket, for a worker that holds thousands of them in a Poller together with its UDP
// sockets. It is a small value and never blocks. It belongs to one goroutine. The zero Stream is not open.
type Stream struct {
	fd int32 // descriptor + 1, so that the zero value is closed
}

// Accept accepts one connection of a listening TCP socket without waiting. It returns the bare errno; EAGAIN means
// that none is pending. The socket inherits the options of the listening one (tcp(7)).
func Accept(listener uintptr) (s Stream, peer netip.AddrPort, err error) {
	var sa sockaddr
	length := uint32(sizeofInet6)
	fd, _, errno := unix.Syscall6(unix.SYS_ACCEPT4, listener, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&length)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return Stream{}, peer, errnoErr(errno)
	}
	return Stream{fd: int32(fd) + 1}, getSockaddr(&sa), nil
}

// DialStream connects to a TCP server and waits for it. The zero local address lets the kernel choose.
func DialStream(local netip.Addr, peer netip.AddrPort) (Stream, error) {
	v6 := peer.Addr().Is6() && !peer.Addr().Is4In6()
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Stream{}, err
	}
	s := Stream{fd: int32(fd) + 1}
	var sa sockaddr
	if local.IsValid() {
		err = bind(fd, &sa, putSockaddr(&sa, netip.AddrPortFrom(local, 0), v6))
	}
	if err == nil {
		err = connect(fd, &sa, putSockaddr(&sa, peer, v6))
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		s.Close()
		return Stream{}, err
	}
	return s, nil
}

// AdoptStream makes a Stream of the descriptor of a connected TCP socket. The Stream then owns the descriptor.
func AdoptStream(fd int) Stream { return Stream{fd: int32(fd) + 1} }

// DuplicateStream makes a Stream of a connection, and closes the connection.
func DuplicateStream(conn *net.TCPConn) (s Stream, err error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return s, err
	}
	var fd int
	failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(failed, err); err != nil {
		return s, err
	}
	return AdoptStream(fd), nil
}

// IsOpen reports whether the socket can be used.
func (s *Stream) IsOpen() bool { return s.fd != 0 }

// FD returns the descriptor, for a duplicate.
func (s *Stream) FD() int { return int(s.fd) - 1 }

// LocalAddr returns the socket's address from the kernel.
func (s *Stream) LocalAddr() (netip.AddrPort, error) {
	local, err := localAddr(s.FD())
	return netip.AddrPortFrom(local.Addr().Unmap(), local.Port()), err
}

// Read implements io.Reader. The error is io.EOF or a bare errno; EAGAIN means that there is nothing to read now.
func (s *Stream) Read(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd-1), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	switch {
	case errno != 0:
		return 0, errnoErr(errno)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return int(n), nil
}

// Write writes as much of b as the kernel accepts now and returns how much that is. The error is a bare errno; EAGAIN
// means that it accepts nothing now.
func (s *Stream) Write(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd-1), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errnoErr(errno)
	}
	return int(n), nil
}

// Forget gives the ownership of the descriptor to the caller.
func (s *Stream) Forget() { *s = Stream{} }

// Close closes the socket; closing it twice is harmless.
func (s *Stream) Close() {
	if s.fd != 0 {
		_ = unix.Close(int(s.fd) - 1)
		*s = Stream{}
	}
}

// Abort is Close with a reset, so that no TIME_WAIT state remains.
func (s *Stream) Abort() {
	if s.fd != 0 {
		_ = unix.SetsockoptLinger(int(s.fd)-1, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		s.Close()
	}
}
