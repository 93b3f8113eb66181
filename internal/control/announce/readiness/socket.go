package readiness

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// tryBind binds a socket to an address for a moment. It does not listen: nothing reaches it.
func tryBind(kind int, at netip.AddrPort) error {
	fd, to, err := socketFor(kind, at)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, to)
}

// tryMD5 gives a socket a key of TCP MD5 for a neighbour (RFC 2385), as a connection to it has one.
func tryMD5(n *lb.Neighbour) error {
	fd, _, err := socketFor(unix.SOCK_STREAM, netip.AddrPortFrom(n.Address, n.Port))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	key := unix.TCPMD5Sig{Keylen: 4, Key: [80]uint8{'w', 'e', 'i', 'r'}}
	if address := n.Address.AsSlice(); n.Address.Is4() {
		key.Addr.Family = unix.AF_INET
		copy(key.Addr.Data[2:], address) // behind the port in struct sockaddr_in
	} else {
		key.Addr.Family = unix.AF_INET6
		copy(key.Addr.Data[6:], address) // behind the port and the flow label in struct sockaddr_in6
	}
	return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &key)
}

// socketFor returns a socket of the family of an address, which belongs to the caller, and the address as Bind wants it.
func socketFor(kind int, at netip.AddrPort) (int, unix.Sockaddr, error) {
	address := at.Addr().Unmap()
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: address.As16()})
	if address.Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: address.As4()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // as listeners have it: TIME_WAIT is no matter
	if err == nil && address.Is6() {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err != nil {
		unix.Close(fd)
		return 0, nil, err
	}
	return fd, to, nil
}
