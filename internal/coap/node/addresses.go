package node

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"

	"github.com/weir-lb/weir/internal/keyerror"
)

// wildcard returns the address that stands for every address of this host: of both families if the kernel has IPv6.
func wildcard() netip.Addr {
	probe, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		return netip.IPv4Unspecified()
	}
	_ = probe.Close() // nothing was sent
	return netip.IPv6Unspecified()
}

// resolve turns HOST:PORT into an address, IPv4 first; an empty host is the wildcard.
func resolve(s string) (netip.AddrPort, error) {
	if err := checkAddress(s); err != nil {
		return netip.AddrPort{}, err
	}
	udp, err := net.ResolveUDPAddr("udp", s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", s, err)
	}
	if udp.IP == nil {
		return netip.AddrPortFrom(wildcard(), uint16(udp.Port)), nil
	}
	ap := udp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// restricted reports whether an address without a host stands for less than every address.
func (c *Config) restricted() bool {
	return !isOn(c.External) || !isOn(c.Loopback) || !isOn(c.IPv4) || !isOn(c.IPv6) || len(c.Interfaces)+len(c.InterfacePatterns) > 0
}

func isOn(b *bool) bool { return b == nil || *b }

// hosts returns the addresses that one without a host stands for; nil: the wildcard.
func (c *Config) hosts() ([]netip.Addr, error) {
	if !c.restricted() {
		return nil, nil
	}
	var patterns []*regexp.Regexp
	for i, text := range c.InterfacePatterns {
		pattern, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return nil, keyerror.Errorf(fmt.Sprintf("interfaces_pattern[%d]", i), "%q is no regular expression", text)
		}
		patterns = append(patterns, pattern)
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil, keyerror.At("interfaces", err)
	}
	for i, name := range c.Interfaces {
		if !slices.ContainsFunc(all, func(n net.Interface) bool { return n.Name == name }) {
			return nil, keyerror.Errorf(fmt.Sprintf("interfaces[%d]", i), "there is no interface %q", name)
		}
	}
	var hosts []netip.Addr
	for _, n := range all {
		named := len(c.Interfaces)+len(patterns) == 0 || slices.Contains(c.Interfaces, n.Name) ||
			slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(n.Name) })
		if named {
			hosts = append(hosts, c.chosen(n)...)
		}
	}
	if len(hosts) == 0 {
		return nil, keyerror.Errorf("interfaces", "no address is left of external, loopback, ipv4, ipv6, interfaces and interfaces_pattern")
	}
	return hosts, nil
}

// chosen returns the addresses of an interface that the configuration allows.
func (c *Config) chosen(n net.Interface) (hosts []netip.Addr) {
	addresses, err := n.Addrs()
	if err != nil { // the interface went away
		return nil
	}
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(network.IP)
		if ip = ip.Unmap(); !ok || ip.IsLinkLocalUnicast() && ip.Is6() {
			continue
		}
		if ip.IsLoopback() && isOn(c.Loopback) || !ip.IsLoopback() && isOn(c.External) {
			if ip.Is4() && isOn(c.IPv4) || ip.Is6() && isOn(c.IPv6) {
				hosts = append(hosts, ip)
			}
		}
	}
	return hosts
}

// expand turns HOST:PORT into the addresses that it stands for.
func (c *Config) expand(s string) ([]netip.AddrPort, error) {
	address, err := resolve(s)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(s) // resolve has read it
	hosts, err := c.hosts()
	if err != nil || host != "" || hosts == nil {
		return []netip.AddrPort{address}, err
	}
	var all []netip.AddrPort
	for _, h := range hosts {
		all = append(all, netip.AddrPortFrom(h, address.Port()))
	}
	return all, nil
}
