package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// OwnSource looks for DSR services whose replies this machine would drop, for a warning when a balancer starts. It returns
// only findings that are not ok.
func OwnSource(snapshot *lb.Snapshot) ([]finding.Finding, error) {
	e := &examiner{Config: Config{Snapshot: snapshot}, proc: "/proc"}
	if err := e.lostReplies(); err != nil {
		return nil, err
	}
	return e.Findings, nil
}

// ownSource calls lostReplies and adds an ok finding if it finds nothing.
func (e *examiner) ownSource() error {
	if e.Snapshot == nil {
		return nil
	}
	before := len(e.Findings)
	if err := e.lostReplies(); err != nil {
		return err
	}
	if e.Silent(before) {
		e.OK("no reply of a DSR backend is dropped for its source address")
	}
	return nil
}

// lostReplies looks for IPv4 VIPs of DSR services that are addresses of this machine. Replies then have an address of this
// machine as their source. If they pass through this machine, the kernel drops them on the incoming interface, which is the
// one towards the backend, unless accept_local is on there and the reverse path filter is not strict. IPv6 has no such
// check.
func (e *examiner) lostReplies() error {
	seen := map[string]bool{} // interfaces that a finding names
	for _, service := range e.Snapshot.Services {
		if service.Mode != lb.L2DSR && service.Mode != lb.L3DSR {
			continue
		}
		vip, ok, err := ownVIP4(service)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		for _, backend := range service.Backends {
			if backend.Refuses() {
				continue
			}
			name := outgoingInterface(backend.Address4)
			if name == "" || seen[name] {
				continue
			}
			if err := e.acceptsOwnSource(service, vip, name); err != nil {
				return err
			}
			seen[name] = true
		}
	}
	return nil
}

// acceptsOwnSource checks the settings of one interface.
func (e *examiner) acceptsOwnSource(service *lb.Service, vip netip.Addr, name string) error {
	values := map[string]int{}
	for _, key := range []string{"accept_local", "rp_filter"} {
		for _, of := range []string{"all", name} {
			value, _, err := e.sysctl("ipv4/conf/" + of + "/" + key)
			if err != nil {
				return err
			}
			values[key] = max(values[key], value)
		}
	}
	path := "ipv4/conf/" + name + "/"
	var remedies []string
	if values["accept_local"] == 0 {
		remedies = append(remedies, set(path+"accept_local", 1))
	}
	if values["rp_filter"] == 1 {
		remedies = append(remedies, set(path+"rp_filter", 2))
	}
	if len(remedies) > 0 {
		e.Bad(finding.Warn, strings.Join(remedies, " && "), "the VIP %s of service %s (mode %s) is an address of this machine: IPv4 replies of backends that come in on %s have it as their source and are dropped", vip, service.Name, service.Mode, name)
	}
	return nil
}

// ownVIP4 returns an IPv4 VIP that is an address of this machine.
func ownVIP4(service *lb.Service) (netip.Addr, bool, error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("list addresses: %w", err)
	}
	for _, vip := range service.VIPs {
		if !vip.Prefix.Addr().Is4() {
			continue
		}
		i := slices.IndexFunc(addresses, func(a netlink.Addr) bool {
			address, ok := netip.AddrFromSlice(a.IP.To4())
			return ok && vip.Prefix.Contains(address)
		})
		if i >= 0 {
			address, _ := netip.AddrFromSlice(addresses[i].IP.To4())
			return address, true, nil
		}
		routes, err := netlink.RouteGet(net.IP(vip.Prefix.Addr().AsSlice())) // an error: there is no route
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return vip.Prefix.Addr(), true, nil
		}
	}
	return netip.Addr{}, false, nil
}

// outgoingInterface returns the interface on which packets to an address leave; empty: there is none, or the address is
// local.
func outgoingInterface(address netip.Addr) string {
	if !address.IsValid() {
		return ""
	}
	routes, err := netlink.RouteGet(net.IP(address.AsSlice()))
	if err != nil || len(routes) == 0 || routes[0].Type == unix.RTN_LOCAL {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil || link.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
		return ""
	}
	return link.Attrs().Name
}
