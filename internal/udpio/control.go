package udpio

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Room for the control messages of one datagram: time stamp 32, packet info at most 40, drop counter 24 and segment
// size 24 bytes on 64-bit machines.
const (
	readControlSize  = 160
	writeControlSize = 64
)

const cmsgHeader = unix.SizeofCmsghdr

// cmsgSpace is the aligned size of a control message with n bytes of data.
func cmsgSpace(n int) int { return (cmsgHeader + n + 7) &^ 7 }

// parseControl reads the control messages of a received datagram into m and returns the socket's drop counter, if it
// was included. The bytes come from the kernel; the lengths are checked nevertheless.
func parseControl(control []byte, m *Message) (drops uint32, hasDrops bool) {
	for len(control) >= cmsgHeader {
		header := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		length := int(header.Len)
		if length < cmsgHeader || length > len(control) {
			return drops, hasDrops
		}
		data := control[cmsgHeader:length]
		switch {
		case header.Level == unix.SOL_SOCKET && header.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			drops, hasDrops = *(*uint32)(unsafe.Pointer(&data[0])), true
		case header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			m.Local = netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Addr)
		case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			m.Local = netip.AddrFrom16((*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0])).Addr).Unmap()
		case header.Level == unix.SOL_UDP && header.Type == unix.UDP_GRO && len(data) >= 4:
			m.Segment = int(*(*int32)(unsafe.Pointer(&data[0])))
		}
		next := (length + 7) &^ 7
		if next > len(control) {
			return drops, hasDrops
		}
		control = control[next:]
	}
	return drops, hasDrops
}

// putLocal appends the control message that sets the source address and returns its length, 0 for none.
func putLocal(control []byte, local netip.Addr, v6 bool) int {
	if !v6 {
		if local = local.Unmap(); !local.Is4() {
			return 0
		}
		putHeader(control, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&control[cmsgHeader]))
		*info = unix.Inet4Pktinfo{Spec_dst: local.As4()}
		return cmsgSpace(unix.SizeofInet4Pktinfo)
	}
	putHeader(control, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&control[cmsgHeader]))
	*info = unix.Inet6Pktinfo{Addr: local.As16()}
	return cmsgSpace(unix.SizeofInet6Pktinfo)
}

// putSegment appends the control message that splits a send into datagrams of size bytes.
func putSegment(control []byte, size int) int {
	putHeader(control, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	*(*uint16)(unsafe.Pointer(&control[cmsgHeader])) = uint16(size)
	return cmsgSpace(2)
}

func putHeader(control []byte, level, kind int32, dataLen int) {
	header := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	*header = unix.Cmsghdr{Level: level, Type: kind}
	header.SetLen(cmsgHeader + dataLen)
}

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	Hdr unix.Msghdr
	Len uint32
	_   [4]byte
}
