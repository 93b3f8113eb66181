package udpio

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockaddr is room for either family; the kernel reads and writes it.
type sockaddr = unix.RawSockaddrInet6

const (
	sizeofInet4 = unix.SizeofSockaddrInet4
	sizeofInet6 = unix.SizeofSockaddrInet6
)

// putSockaddr writes addr in the form that a socket of the given family requires and returns its length. 0 means that
// the family cannot reach it, or that no interface has the name of its zone.
func putSockaddr(sa *sockaddr, addr netip.AddrPort, v6 bool) uint32 {
	ip := addr.Addr()
	if !v6 {
		ip = ip.Unmap()
		if !ip.Is4() {
			return 0
		}
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*sa4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		putPort(&sa4.Port, addr.Port())
		return sizeofInet4
	}
	if !ip.IsValid() {
		return 0
	}
	*sa = sockaddr{Family: unix.AF_INET6, Addr: ip.As16()}
	putPort(&sa.Port, addr.Port())
	if zone := ip.Zone(); zone != "" {
		id, ok := scope(zone)
		if !ok {
			return 0
		}
		sa.Scope_id = id
	}
	return sizeofInet6
}

// scope returns the number of a zone. getSockaddr writes zones as numbers; people write the interface's name, which
// needs a look-up.
func scope(zone string) (uint32, bool) {
	if id, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(id), true
	}
	device, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, false
	}
	return uint32(device.Index), true
}

// getSockaddr parses the address that the kernel wrote.
func getSockaddr(sa *sockaddr) netip.AddrPort {
	switch sa.Family {
	case unix.AF_INET:
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), getPort(&sa4.Port))
	case unix.AF_INET6:
		ip := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.Scope_id != 0 && ip.IsLinkLocalUnicast() {
			ip = ip.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
		}
		return netip.AddrPortFrom(ip, getPort(&sa.Port))
	}
	return netip.AddrPort{}
}

// Ports are in network byte order, independent of the machine's byte order.
func putPort(field *uint16, port uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(field))[:], port)
}

func getPort(field *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(field))[:])
}
