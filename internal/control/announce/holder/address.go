package holder

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/neighbour"
)

const (
	// protocol marks the addresses of this program (IFA_PROTO, Linux 5.18).
	protocol = 0x77
	ifaProto = 11 // IFA_PROTO, which x/sys does not have

)

// station is what a router needs to know of its interface. It is comparable: a change begins a new session.
type station struct {
	index int
	mac   neighbour.MAC
	self  netip.Addr // source of advertisements
}

// held is an address of the interface.
type held struct {
	address netip.Addr
	flags   uint32
	own     bool // of this program: it has its protocol
}

// inspect returns what the interface is now; the error says why a router cannot run on it.
func inspect(name string, is6 bool, virtual []netip.Addr) (station, []held, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			return station{}, nil, fault("write the name of an interface of this machine, as in ip -brief link", "there is no interface %s", name)
		}
		return station{}, nil, fmt.Errorf("look at interface %s: %w", name, err)
	}
	attributes := link.Attrs()
	s := station{index: attributes.Index}
	switch {
	case len(attributes.HardwareAddr) != len(s.mac) || attributes.Flags&net.FlagLoopback != 0:
		return s, nil, fault("write an Ethernet interface, as in ip -brief link", "interface %s is not Ethernet", name)
	case attributes.Flags&net.FlagUp == 0:
		return s, nil, fault("ip link set dev "+name+" up", "interface %s is down", name)
	case attributes.RawFlags&unix.IFF_RUNNING == 0:
		return s, nil, fault("look at the cable, and at the port at its other end", "interface %s has no carrier", name)
	}
	copy(s.mac[:], attributes.HardwareAddr)
	all, err := list(s.index, is6)
	if err != nil {
		return s, nil, fmt.Errorf("list the addresses of %s: %w", name, err)
	}
	for _, h := range all {
		usable := !is6 || h.address.IsLinkLocalUnicast() && h.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
		if usable && !slices.Contains(virtual, h.address) {
			s.self = h.address
			return s, all, nil
		}
	}
	if is6 {
		return s, all, fault("ip -6 address add fe80::ADDRESS/64 dev "+name, "interface %s has no link-local IPv6 address of its own", name)
	}
	return s, all, fault("ip address add ADDRESS/LENGTH dev "+name, "interface %s has no IPv4 address of its own", name)
}

func family(is6 bool) int {
	if is6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// list returns the addresses of an interface, in the kernel's order.
func list(index int, is6 bool) (all []held, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfAddrmsg(family(is6)))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		header := nl.DeserializeIfAddrmsg(m)
		if int(header.Index) != index || int(header.Family) != family(is6) {
			continue
		}
		attributes, err := nl.ParseRouteAttr(m[header.Len():])
		if err != nil {
			return nil, err
		}
		h := read(attributes)
		if h.address.IsValid() {
			all = append(all, h)
		}
	}
	return all, nil
}

func read(attributes []syscall.NetlinkRouteAttr) (h held) {
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			h.address, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			if !h.address.IsValid() {
				h.address, _ = netip.AddrFromSlice(a.Value)
			}
		case unix.IFA_FLAGS:
			h.flags = nl.NativeEndian().Uint32(a.Value)
		case ifaProto:
			h.own = h.own || a.Value[0] == protocol
		}
	}
	return h
}

// add puts an address on an interface, or renews its lifetime.
func add(index int, address netip.Addr, lifetime time.Duration) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	flags := nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE))
	times := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: uint32(lifetime / time.Second)}} // deprecated from the start
	addTo(request, index, address, flags, nl.NewRtAttr(unix.IFA_CACHEINFO, times.Serialize()), nl.NewRtAttr(ifaProto, []byte{protocol}))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// remove takes it away; an address that is not there is no error.
func remove(index int, address netip.Addr) error {
	request := nl.NewNetlinkRequest(unix.RTM_DELADDR, unix.NLM_F_ACK)
	addTo(request, index, address)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

func addTo(request *nl.NetlinkRequest, index int, address netip.Addr, attributes ...*nl.RtAttr) {
	header := nl.NewIfAddrmsg(family(address.Is6()))
	header.Index, header.Prefixlen = uint32(index), uint8(address.BitLen())
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, address.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, address.AsSlice()))
	for _, a := range attributes {
		request.AddData(a)
	}
}
