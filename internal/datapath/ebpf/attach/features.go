package attach

import (
	"encoding/binary"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Bits of enum netdev_xdp_act (linux/netdev.h).
const xdpRedirects = 1 | 2 // native programs, and redirect from them

// XDPFeatures queries the kernel what a driver can do with XDP (generic netlink
// family netdev, Linux 6.3). known is false where it does not say.
func XDPFeatures(index int) (bits uint64, known bool) {
	const (
		devGet      = 1 // NETDEV_CMD_DEV_GET
		ifindex     = 1 // NETDEV_A_DEV_IFINDEX
		xdpFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
	)
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return 0, false
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	request.AddData(&nl.Genlmsg{Command: devGet, Version: 1})
	request.AddData(nl.NewRtAttr(ifindex, nl.Uint32Attr(uint32(index))))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, false
	}
	for _, answer := range answers {
		if len(answer) < nl.SizeofGenlmsg {
			continue
		}
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, false
		}
		for _, a := range attributes {
			if a.Attr.Type == xdpFeatures && len(a.Value) == 8 {
				return binary.NativeEndian.Uint64(a.Value), true
			}
		}
	}
	return 0, false
}
