package readiness

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/holder"
	"github.com/weir-lb/weir/internal/control/announce/vrrp"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// privileges says what this user lacks.
func (e *examination) privileges() error {
	if e.Privilege != nil {
		e.Bad(finding.Warn, `sudo setcap cap_net_raw,cap_net_admin+ep "$(command -v weir)", or run weir lb run as root (docs/privileges.md)`,
			"this user cannot announce by VRRP, nor look for other machines that do: %v", e.Privilege)
		return nil
	}
	e.OK("this user may announce by VRRP")
	return nil
}

// families calls do for the families in which a virtual router has addresses.
func families(v *lb.VRRP, do func(is6 bool) error) error {
	for _, is6 := range []bool{false, true} {
		if !slices.ContainsFunc(v.Addresses, func(a netip.Addr) bool { return a.Is6() == is6 }) {
			continue
		}
		if err := do(is6); err != nil {
			return err
		}
	}
	return nil
}

// interfaces asks what a virtual router asks before it runs.
func (e *examination) interfaces() error {
	before := len(e.Findings)
	for i := range e.Announce.VRRP {
		v, said := &e.Announce.VRRP[i], ""
		err := families(v, func(is6 bool) error {
			err, fault := holder.Ready(v, is6), (*holder.Fault)(nil)
			switch {
			case err == nil:
				return nil
			case !errors.As(err, &fault):
				return err
			case fault.Reason == said: // of both families
				return nil
			}
			said, e.unfit[v.Interface] = fault.Reason, true
			path := "ipv6/conf/" + v.Interface + "/disable_ipv6"
			if off, err := e.sysctl(path); err != nil {
				return err
			} else if is6 && off == 1 {
				fault = &holder.Fault{Reason: "IPv6 is off on interface " + v.Interface, Remedy: set(path, 0)}
			}
			e.Bad(finding.Fail, fault.Remedy, "virtual router %d: %s", v.ID, fault.Reason)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if e.Silent(before) {
		e.OK("the interfaces of %d virtual routers can be used", len(e.Announce.VRRP))
	}
	return nil
}

// arp looks for settings by which the kernel answers ARP for a virtual address when it must not, or does not answer when it must.
func (e *examination) arp() error {
	before := len(e.Findings)
	for i := range e.Announce.VRRP {
		v := &e.Announce.VRRP[i]
		link, err := netlink.LinkByName(v.Interface)
		if err != nil {
			continue // another check reports it
		}
		ignore, err := e.highest(v.Interface, "arp_ignore")
		if err != nil {
			return err
		}
		is4 := v.Addresses[0].Is4()
		if v.Hold == lb.HoldAddress && link.Attrs().RawFlags&unix.IFF_NOARP != 0 {
			e.Bad(finding.Fail, "ip link set dev "+v.Interface+" arp on",
				"interface %s has no ARP: no host finds the addresses of virtual router %d", v.Interface, v.ID)
		}
		if v.Hold == lb.HoldAddress && is4 && ignore.value == ignoreAll {
			e.Bad(finding.Fail, set(ignore.path, 1),
				"arp_ignore is %d: the kernel answers no ARP request for the addresses of virtual router %d on %s", ignoreAll, v.ID, v.Interface)
		}
		if ignore.value == 0 && v.Priority != vrrp.Owner {
			if err := e.elsewhere(v, link.Attrs().Index); err != nil {
				return err
			}
		}
	}
	if e.Silent(before) {
		e.OK("ARP requests for virtual addresses are answered by the active router alone")
	}
	return nil
}

// ignoreAll is the value of arp_ignore that answers no request.
const ignoreAll = 8

// elsewhere looks for virtual IPv4 addresses on other interfaces: with arp_ignore 0 the kernel answers for them on each interface. For IPv6 it
// answers only on the interface that has the address.
func (e *examination) elsewhere(v *lb.VRRP, index int) error {
	all, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for i := range all {
		address, _ := netip.AddrFromSlice(all[i].IP.To4())
		if all[i].LinkIndex == index || !slices.Contains(v.Addresses, address) {
			continue
		}
		name := fmt.Sprint(all[i].LinkIndex)
		if link, err := netlink.LinkByIndex(all[i].LinkIndex); err == nil {
			name = link.Attrs().Name
		}
		e.Bad(finding.Fail, set("ipv4/conf/"+v.Interface+"/arp_ignore", 1),
			"%s is an address of %s: this machine answers ARP requests for it on %s also while another one is active (virtual router %d)",
			address, name, v.Interface, v.ID)
	}
	return nil
}

// reversePath looks for strict reverse path filters that drop the advertisements of other machines: this one does not see that another is active.
func (e *examination) reversePath() error {
	before := len(e.Findings)
	for i := range e.Announce.VRRP {
		v := &e.Announce.VRRP[i]
		link, err := netlink.LinkByName(v.Interface)
		if err != nil || !v.Addresses[0].Is4() {
			continue
		}
		filter, err := e.highest(v.Interface, "rp_filter")
		if err != nil {
			return err
		}
		if filter.value != strict {
			continue
		}
		own, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("addresses of %s: %w", v.Interface, err)
		}
		for _, a := range own {
			prefix, other := otherHost(a.IPNet)
			if !other.IsValid() || slices.Contains(v.Addresses, prefix.Addr()) {
				continue
			}
			if by := outgoing(other); by != "" && by != v.Interface {
				e.Bad(finding.Fail, set(filter.path, 2),
					"the strict reverse path filter of %s drops advertisements from %s, as packets to it leave by %s: it becomes active although another is",
					v.Interface, prefix.Masked(), by)
			}
			break // the kernel sends from the first one
		}
	}
	if e.Silent(before) {
		e.OK("no reverse path filter drops advertisements")
	}
	return nil
}

// strict is the value of rp_filter.
const strict = 1

// otherHost returns the prefix of an address and another host in it: invalid if there is none.
func otherHost(n *net.IPNet) (netip.Prefix, netip.Addr) {
	own, _ := netip.AddrFromSlice(n.IP.To4())
	bits, _ := n.Mask.Size()
	prefix := netip.PrefixFrom(own, bits)
	for _, other := range []netip.Addr{own.Next(), own.Prev()} {
		first, last := prefix.Masked().Addr(), !prefix.Contains(other.Next())
		if prefix.Contains(other) && (bits == 31 || other != first && !last) {
			return prefix, other
		}
	}
	return prefix, netip.Addr{}
}

// outgoing returns the interface by which packets to an address leave; empty: none, or this machine has the address.
func outgoing(to netip.Addr) string {
	found, err := netlink.RouteGet(net.IP(to.AsSlice()))
	if err != nil || len(found) == 0 || found[0].Type == unix.RTN_LOCAL {
		return ""
	}
	link, err := netlink.LinkByIndex(found[0].LinkIndex)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}
