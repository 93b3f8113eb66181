package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// VRRPSpec is a virtual router: addresses that one of several machines on a network holds, elected by VRRP version 3 (RFC 9568).
type VRRPSpec struct {
	Interface string `yaml:"interface" bounds:"at most 15 bytes"` // network of the clients, or of the router before them
	VRID      int    `yaml:"vrid" range:"1 to 255"`               // virtual router id, the same on each machine, unique on the network
	// Priority: the highest becomes active; 255: the addresses are this machine's own, and it is active whenever it runs.
	Priority *int `yaml:"priority" default:"100" range:"1 to 255"`
	// Interval: time between two advertisements; backups take over after three to four of them. Multiples of 10ms.
	Interval time.Duration `yaml:"interval" default:"1s" range:"10ms to 40.95s"`
	// Preempt: take over from an active router of lower priority; each takeover interrupts traffic.
	Preempt      bool          `yaml:"preempt" default:"false"`
	PreemptDelay time.Duration `yaml:"preempt_delay" default:"0s" range:"0s to 1h"` // not before this time after the start
	// Hold: address: on the interface; arp: ARP requests and neighbour solicitations are answered without it, for data paths ebpf and
	// nfqueue, such as with modes l2dsr and l3dsr.
	Hold HoldBy `yaml:"hold" default:"address" values:"address, arp"`
	// Addresses: for IPv6 with a link-local one, else that of the virtual router id is added.
	Addresses []netip.Addr `yaml:"addresses" default:"those of the announced services" bounds:"at most 255 IPv4 and 90 IPv6 addresses"`
}

// VRRP is a VRRPSpec, compiled.
type VRRP struct {
	Interface    string
	ID, Priority uint8
	Interval     time.Duration
	Preempt      bool
	PreemptDelay time.Duration
	Hold         HoldBy
	Addresses    []netip.Addr // IPv4 first; the first IPv6 one is link-local
}

// HoldBy says how an active router holds its addresses.
type HoldBy uint8

const (
	HoldAddress HoldBy = iota // on the interface
	HoldARP                   // by answers to questions for them
)

func (h HoldBy) String() string { return [...]string{"address", "arp"}[h] }

// UnmarshalText reads address or arp.
func (h *HoldBy) UnmarshalText(text []byte) (err error) {
	*h, err = parseName[HoldBy]("way to hold an address", string(text), []string{HoldAddress: "address", HoldARP: "arp"})
	return err
}

// Bounds of virtual routers.
const (
	MaxVirtualRouters = 64
	maxVRRP4          = 255                  // an octet counts them
	maxVRRP6          = (1500 - 40 - 8) / 16 // they fit into one packet
	vrrpStep          = 10 * time.Millisecond
	maxVRRPInterval   = 4095 * vrrpStep
)

// vrrp compiles the virtual routers; addresses are those of the announced services.
func (c *compiler) vrrp(specs []VRRPSpec, out *Announce, addresses []netip.Prefix) error {
	if len(specs) > MaxVirtualRouters {
		return wrong("announce.vrrp", "put more addresses into one virtual router", "%d virtual routers, at most %d", len(specs), MaxVirtualRouters)
	}
	for i := range specs {
		path := fmt.Sprintf("announce.vrrp[%d]", i)
		v, err := c.virtualRouter(path, &specs[i], addresses)
		if err != nil {
			return err
		}
		for j, other := range out.VRRP {
			if other.Interface == v.Interface && other.ID == v.ID {
				return wrong(path+".vrid", "write another one, or put the addresses into one virtual router", "vrrp[%d] has virtual router id %d on interface %s already", j, v.ID, v.Interface)
			}
			for _, a := range v.Addresses {
				if slices.Contains(other.Addresses, a) && !a.IsLinkLocalUnicast() {
					return wrong(path+".addresses", "write the addresses of each virtual router", "%s is an address of vrrp[%d] too", a, j)
				}
			}
		}
		out.VRRP = append(out.VRRP, v)
	}
	return nil
}

func (c *compiler) virtualRouter(path string, s *VRRPSpec, addresses []netip.Prefix) (v VRRP, err error) {
	priority := 100
	if s.Priority != nil {
		priority = *s.Priority
	}
	v = VRRP{
		Interface: s.Interface, ID: uint8(s.VRID), Priority: uint8(priority), Interval: cmp.Or(s.Interval, time.Second), Preempt: s.Preempt,
		PreemptDelay: s.PreemptDelay, Hold: s.Hold,
	}
	switch {
	case s.Interface == "" || len(s.Interface) > 15:
		return v, wrong(path+".interface", "write the name of an interface, such as eth0", "%q is no name of an interface", s.Interface)
	case s.VRID < 1 || s.VRID > 255:
		return v, wrong(path+".vrid", "write 1 to 255, the same on each machine", "virtual router id %d is out of range", s.VRID)
	case priority < 1 || priority > 255:
		return v, wrong(path+".priority", "write 1 to 255, such as 100", "%d is out of range", priority)
	case v.Interval < vrrpStep || v.Interval > maxVRRPInterval:
		return v, wrong(path+".interval", "write 10ms to 40.95s, such as 1s", "%s is out of range", v.Interval)
	case v.Interval%vrrpStep != 0:
		return v, wrong(path+".interval", fmt.Sprintf("write %s", max(v.Interval.Truncate(vrrpStep), vrrpStep)), "%s is no multiple of 10ms, the unit in packets", v.Interval)
	case s.PreemptDelay < 0 || s.PreemptDelay > time.Hour:
		return v, wrong(path+".preempt_delay", "write 0s to 1h", "%s is out of range", s.PreemptDelay)
	case s.PreemptDelay > 0 && !s.Preempt:
		return v, wrong(path+".preempt_delay", "add preempt: true, or remove it", "this router never pre-empts")
	case v.Hold == HoldARP && c.caps.LocalVIPs:
		return v, wrong(path+".hold", "write address, or use another data path", "data path %s needs its VIPs on an interface", c.caps.Name)
	}
	v.Addresses, err = virtualAddresses(path+".addresses", s, addresses)
	return v, err
}

// virtualAddresses returns the addresses of a virtual router in the order of packets.
func virtualAddresses(path string, s *VRRPSpec, announced []netip.Prefix) ([]netip.Addr, error) {
	list := s.Addresses
	for _, prefix := range announced {
		switch {
		case s.Addresses != nil:
		case !prefix.IsSingleIP():
			return nil, wrong(path, "write the addresses in it that clients use", "the VIP %s is a prefix, and VRRP announces single addresses", prefix)
		case !slices.Contains(list, prefix.Addr()):
			list = append(list, prefix.Addr())
		}
	}
	var four, six []netip.Addr
	serves := false
	for i, a := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		a = a.Unmap()
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "":
			return nil, wrong(at, "write an address that hosts of the network can use", "%s cannot be a virtual address", a)
		case slices.Contains(four, a) || slices.Contains(six, a):
			return nil, wrong(at, "remove one", "%s is there twice", a)
		}
		serves = serves || slices.ContainsFunc(announced, func(p netip.Prefix) bool { return p.Contains(a) })
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	if first := slices.IndexFunc(six, netip.Addr.IsLinkLocalUnicast); first > 0 {
		six[0], six[first] = six[first], six[0]
	} else if first < 0 && len(six) > 0 {
		six = slices.Insert(six, 0, virtualLinkLocal(uint8(s.VRID)))
	}
	switch {
	case !serves:
		return nil, wrong(path, "write addresses of announced services", "no announced service has one of these addresses, so they would never be held")
	case len(four) > maxVRRP4 || len(six) > maxVRRP6:
		return nil, wrong(path, "make several virtual routers", "%d IPv4 and %d IPv6 addresses, at most %d and %d", len(four), len(six), maxVRRP4, maxVRRP6)
	}
	return append(four, six...), nil
}

// virtualLinkLocal is the link-local address of a virtual router (RFC 9568 section 7.4), by which peers must know it too.
func virtualLinkLocal(id uint8) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: 0x02, 10: 0x5e, 11: 0xff, 12: 0xfe, 14: 0x02, 15: id})
}
