package readiness

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/bgp"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/sockets"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// bfdPort is the UDP port of BFD for neighbours on the same network (RFC 5881 section 4).
const bfdPort = 3784

// routes looks for neighbours that no packet reaches.
func (e *examination) routes() error {
	before := len(e.Findings)
	for i := range e.Announce.BGP.Neighbours {
		if err := e.route(&e.Announce.BGP.Neighbours[i]); err != nil {
			return err
		}
	}
	if e.Silent(before) {
		e.OK("each of %d neighbours is reached by a route", len(e.Announce.BGP.Neighbours))
	}
	return nil
}

func (e *examination) route(n *lb.Neighbour) error {
	options := &netlink.RouteGetOptions{}
	if n.LocalAddress.IsValid() && tryBind(unix.SOCK_DGRAM, netip.AddrPortFrom(n.LocalAddress, 0)) == nil { // else another check reports it
		options.SrcAddr = net.IP(n.LocalAddress.AsSlice())
	}
	found, err := netlink.RouteGetWithOptions(net.IP(n.Address.AsSlice()), options)
	if err == nil && (len(found) == 0 || refuses(&found[0])) { // IPv6 has a route for what has none
		err = unix.ENETUNREACH
	}
	if err != nil {
		e.Bad(finding.Fail, fmt.Sprintf("ip route add %s via ADDRESS", netip.PrefixFrom(n.Address, n.Address.BitLen())),
			"no route leads to neighbour %s: %v", n.Address, err)
		return nil
	}
	r := &found[0]
	if r.Type == unix.RTN_LOCAL { // a router on this machine
		return nil
	}
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return fmt.Errorf("the interface to neighbour %s: %w", n.Address, err)
	}
	name, next := link.Attrs().Name, n.Address
	if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
		next = gateway.Unmap()
	}
	sameNetwork := n.Multihop == 0 && n.AS != e.Announce.BGP.AS || n.TTLSecurity || n.BFD.Multiplier > 0
	switch {
	case link.Attrs().RawFlags&unix.IFF_RUNNING == 0:
		e.Bad(finding.Fail, "look at the cable, and at the port at its other end",
			"interface %s, which leads to neighbour %s, has no carrier", name, n.Address)
	case next != n.Address && sameNetwork:
		e.Bad(finding.Warn, "write multihop: 2 for the neighbour, without ttl_security and bfd",
			"neighbour %s is reached through the router %s on %s: the packets of this session end there, unless it is the neighbour itself",
			n.Address, next, name)
	default:
		return e.silentNeighbour(n, link, next)
	}
	return nil
}

// refuses reports whether a route is there to say that there is none.
func refuses(r *netlink.Route) bool {
	return r.Type == unix.RTN_UNREACHABLE || r.Type == unix.RTN_BLACKHOLE || r.Type == unix.RTN_PROHIBIT
}

// silentNeighbour looks whether the next hop to a neighbour left the kernel's last requests for its MAC address unanswered.
func (e *examination) silentNeighbour(n *lb.Neighbour, link netlink.Link, next netip.Addr) error {
	family, protocol := netlink.FAMILY_V6, "neighbour discovery"
	if next.Is4() {
		family, protocol = netlink.FAMILY_V4, "ARP"
	}
	entries, err := netlink.NeighList(link.Attrs().Index, family)
	if err != nil {
		return fmt.Errorf("neighbours on %s: %w", link.Attrs().Name, err)
	}
	for i := range entries {
		address, _ := netip.AddrFromSlice(entries[i].IP)
		if address.Unmap() == next && entries[i].State&netlink.NUD_FAILED != 0 {
			who := "neighbour " + n.Address.String()
			if next != n.Address {
				who = fmt.Sprintf("%s, the router to %s,", next, who)
			}
			e.Bad(finding.Warn, fmt.Sprintf("ping -c 1 -I %s %s: it is off, has another address, or is on another network or VLAN", link.Attrs().Name, next),
				"%s did not answer %s on %s", who, protocol, link.Attrs().Name)
		}
	}
	return nil
}

// sources looks for own addresses of sessions that this machine does not have.
func (e *examination) sources() error {
	before, looked := len(e.Findings), map[netip.Addr]bool{}
	look := func(address netip.Addr, key string) error {
		if !address.IsValid() || address.IsUnspecified() || looked[address] {
			return nil
		}
		looked[address] = true
		switch err := tryBind(unix.SOCK_DGRAM, netip.AddrPortFrom(address, 0)); {
		case errors.Is(err, unix.EADDRNOTAVAIL):
			return e.absent(address, key)
		case err != nil:
			return fmt.Errorf("use %s: %w", address, err)
		}
		return nil
	}
	if err := look(e.Announce.BGP.Listen.Addr().Unmap(), "listen"); err != nil {
		return err
	}
	for i := range e.Announce.BGP.Neighbours {
		n := &e.Announce.BGP.Neighbours[i]
		if err := look(n.LocalAddress, "local_address of neighbour "+n.Address.String()); err != nil {
			return err
		}
	}
	if e.Silent(before) && len(looked) > 0 {
		e.OK("the own addresses of the sessions are there")
	}
	return nil
}

// absent says why no socket can have an address: it is not there, or duplicate address detection has not found it unique.
func (e *examination) absent(address netip.Addr, key string) error {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for i := range all {
		if have, _ := netip.AddrFromSlice(all[i].IP); have.Unmap() != address {
			continue
		}
		name := fmt.Sprint(all[i].LinkIndex)
		if link, err := netlink.LinkByIndex(all[i].LinkIndex); err == nil {
			name = link.Attrs().Name
		}
		again := fmt.Sprintf("ip address del %[1]s dev %[2]s && ip address add %[1]s dev %[2]s nodad # if no other machine has it", all[i].IPNet, name)
		e.Bad(finding.Fail, again,
			"%s (%s) cannot be used: duplicate address detection on %s has failed, or has not ended, such as without a carrier", address, key, name)
		return nil
	}
	e.Bad(finding.Fail, fmt.Sprintf("ip address add %s dev INTERFACE", netip.PrefixFrom(address, address.BitLen())),
		"%s (%s) is no address of this machine", address, key)
	return nil
}

// listen checks whether neighbours' connections can be accepted.
func (e *examination) listen() error {
	at := e.Announce.BGP.Listen
	if !at.IsValid() {
		return nil
	}
	err := tryBind(unix.SOCK_STREAM, at)
	if errors.Is(err, unix.EACCES) {
		e.Bad(finding.Warn, `sudo setcap cap_net_bind_service+ep "$(command -v weir)", or run weir lb run as root (docs/privileges.md)`,
			"this user cannot listen on TCP port %d: CAP_NET_BIND_SERVICE is missing", at.Port())
		return nil
	}
	weir, others, err2 := e.taken("tcp", at.Port(), func(s sockets.Socket) bool {
		local := s.Local.Addr()
		return local.Unmap() == at.Addr().Unmap() || local.IsUnspecified() || at.Addr().IsUnspecified()
	})
	switch {
	case err2 != nil:
		return err2
	case err == nil || errors.Is(err, unix.EADDRNOTAVAIL): // another check reports the address
		e.OK("no other program listens at %s", at)
	case errors.Is(err, unix.EADDRINUSE) && len(others) > 0:
		e.conflict(others[0], "%s listens on TCP port %d, so weir cannot listen at %s", others[0], at.Port(), at)
	case errors.Is(err, unix.EADDRINUSE) && len(weir) > 0:
		e.OK("%s listens at %s", weir[0], at)
	default:
		return fmt.Errorf("listen at %s: %w", at, err)
	}
	return nil
}

// passwords checks those of neighbours, and whether the kernel can use them.
func (e *examination) passwords() error {
	before, wanted := len(e.Findings), 0
	for i := range e.Announce.BGP.Neighbours {
		n := &e.Announce.BGP.Neighbours[i]
		password, err := bgp.Password(n)
		switch {
		case err != nil && n.PasswordEnv != "":
			wanted++
			e.Bad(finding.Warn, "export "+n.PasswordEnv+"=PASSWORD, where weir lb run is started",
				"in the environment of this command: %v", err)
			continue
		case err != nil:
			wanted++
			e.Bad(finding.Fail, "write the password, as neighbour "+n.Address.String()+" has it, into "+n.PasswordFile, "%v", err)
			continue
		case password == "":
			continue
		}
		wanted++
		switch err := e.md5(n); {
		case errors.Is(err, unix.ENOPROTOOPT):
			e.Bad(finding.Fail, "boot a kernel with CONFIG_TCP_MD5SIG=y",
				"this kernel has no TCP MD5, which the password of neighbour %s needs", n.Address)
		case err != nil:
			e.Bad(finding.Fail, "cat /proc/sys/crypto/fips_enabled: in FIPS mode MD5 is off; remove the password on both sides",
				"the kernel refuses TCP MD5 for neighbour %s: %v", n.Address, err)
		}
	}
	if e.Silent(before) && wanted > 0 {
		e.OK("the passwords can be read, and the kernel takes them for TCP MD5")
	}
	return nil
}

// bfd looks for another program that receives the packets of BFD. The port can be shared, but each packet reaches one socket only.
func (e *examination) bfd() error {
	wanted := false
	for i := range e.Announce.BGP.Neighbours {
		wanted = wanted || e.Announce.BGP.Neighbours[i].BFD.Multiplier > 0
	}
	if !wanted {
		return nil
	}
	weir, others, err := e.taken("udp", bfdPort, func(sockets.Socket) bool { return true })
	switch {
	case err != nil:
		return err
	case len(others) > 0:
		e.conflict(others[0], "%s has UDP port %d: it receives BFD packets in the place of weir; end it, or remove bfd", others[0], bfdPort)
	case len(weir) > 0:
		e.OK("%s receives BFD packets on UDP port %d", weir[0], bfdPort)
	default:
		e.OK("UDP port %d is free for BFD", bfdPort)
	}
	return nil
}
