package tcpscale

import (
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ipBindAddressNoPort = 24
	ipLocalPortRange    = 51 // since Linux 6.3
	reserveFiles        = 500
)

// RaiseFiles raises the soft limit of open files of this process to the hard one and returns it.
func RaiseFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return 0, fmt.Errorf("raise the limit of open files to %d: %w", limit.Max, err)
		}
	}
	return limit.Cur, nil
}

// sockaddr is an address in the kernel's form, made once and used for many calls.
type sockaddr struct {
	family int
	raw    unix.Sockaddr
	text   string
}

func newSockaddr(a netip.AddrPort) sockaddr {
	addr := a.Addr().Unmap()
	if addr.Is4() {
		return sockaddr{unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: addr.As4()}, netip.AddrPortFrom(addr, a.Port()).String()}
	}
	raw := &unix.SockaddrInet6{Port: int(a.Port()), Addr: addr.As16()}
	if zone := addr.Zone(); zone != "" {
		_, _ = fmt.Sscan(zone, &raw.ZoneId) // a name of an interface is refused where targets are resolved
	}
	return sockaddr{unix.AF_INET6, raw, a.String()}
}

func tcpSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	return fd, nil
}

// bound returns a socket with the address; shared: with others of this user (SO_REUSEPORT).
func bound(a netip.AddrPort, shared bool) (int, error) {
	address := newSockaddr(a)
	fd, err := tcpSocket(address.family)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && shared {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil && address.family == unix.AF_INET6 && !a.Addr().IsUnspecified() {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, address.raw)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind %v: %w", a, err)
	}
	return fd, nil
}

// listen opens a listener that shares its port with the other workers'.
func listen(a netip.AddrPort, backlog int) (int, error) {
	fd, err := bound(a, true)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // connections inherit it; a delay would only show in the times
	if err := unix.Listen(fd, backlog); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen on %v: %w", a, err)
	}
	return fd, nil
}

// readNow reads from a non-blocking socket. It cannot block, so the scheduler is not informed: at a million connections its
// hand-over of the processor around each call would show.
func readNow(fd int32, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// writeNow writes to a non-blocking socket, as readNow reads.
func writeNow(fd int32, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// accept takes the next connection, without its address: there are getpeername and samples for that.
func accept(listener int) (int, error) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Reserve finds out the port of a, if it is 0, and keeps the address from others until release: workers share it.
// It fails if somebody else listens there.
func Reserve(a netip.AddrPort) (real netip.AddrPort, release func(), err error) {
	if a.Port() != 0 {
		if err := unshared(a); err != nil {
			return a, nil, err
		}
	}
	fd, err := bound(a, true) // for port 0, the kernel chooses one that no socket has, not even with SO_REUSEPORT
	if err != nil {
		return a, nil, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return a, nil, os.NewSyscallError("getsockname", err)
	}
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		a = netip.AddrPortFrom(a.Addr(), uint16(n.Port))
	case *unix.SockaddrInet6:
		a = netip.AddrPortFrom(a.Addr(), uint16(n.Port))
	}
	return a, func() { unix.Close(fd) }, nil
}

// unshared fails if a server listens on a: SO_REUSEPORT alone would let us bind with another server of this user.
func unshared(a netip.AddrPort) error {
	alone, err := bound(a, false)
	if err != nil {
		return err
	}
	defer unix.Close(alone)
	if err := unix.Listen(alone, 1); err != nil {
		return fmt.Errorf("listen on %v: %w", a, err)
	}
	return nil
}

// localName is the own address of a socket.
func localName(fd int) string {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return ""
	}
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(n.Addr), uint16(n.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(n.Addr), uint16(n.Port)).String()
	}
	return ""
}

// abort makes the close of fd a RST: no TIME_WAIT, no FIN.
func abort(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // the close is a FIN then
}

func epollAdd(epoll, fd int, events uint32, id, mark int32) error {
	event := unix.EpollEvent{Events: events, Fd: id, Pad: mark}
	return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event)
}

// epollWait is epoll_wait with a timeout in nanoseconds; a kernel before 5.11 has milliseconds.
func epollWait(epoll int, events []unix.EpollEvent, wait time.Duration) (int, error) {
	timeout := [2]int64{int64(max(wait, 0) / time.Second), int64(max(wait, 0) % time.Second)} // struct __kernel_timespec
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.ENOSYS:
		return unix.EpollWait(epoll, events, int((wait+time.Millisecond-1)/time.Millisecond))
	}
	return -1, errno
}

// sizeOf is what one entry of a table takes.
func sizeOf[T any]() uint64 {
	var zero T
	return uint64(unsafe.Sizeof(zero))
}
