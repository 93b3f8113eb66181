package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// build makes everything of the topology, in the order in which one thing needs another.
func (l *Lab) build(fullName func(lab, namespace string) string) error {
	for _, ns := range l.topology.Namespaces {
		if err := l.createHost(ns, fullName(l.topology.Name, ns.Name)); err != nil {
			return err
		}
	}
	for i, link := range l.topology.Links {
		if err := l.createLink(link, firstIndex+i); err != nil {
			return err
		}
	}
	for _, ns := range l.topology.Namespaces {
		for _, macvlan := range ns.Macvlans {
			if err := l.hosts[ns.Name].createMacvlan(macvlan); err != nil {
				return err
			}
		}
		if err := l.hosts[ns.Name].awaitCarrier(); err != nil {
			return err
		}
	}
	for _, ns := range l.topology.Namespaces {
		if err := l.hosts[ns.Name].connect(ns); err != nil {
			return fmt.Errorf("namespace %s: %w", ns.Name, err)
		}
	}
	return nil
}

func (l *Lab) createHost(ns Namespace, full string) error {
	fd, err := createNamespace(full)
	if err != nil {
		return err
	}
	if err := l.addHost(ns.Name, full, fd); err != nil {
		return err
	}
	host := l.hosts[ns.Name]
	// Before any link exists, so that each one inherits it.
	settings := []Sysctl{{"net.ipv6.conf.all.accept_dad", "0"}, {"net.ipv6.conf.default.accept_dad", "0"}}
	if ns.Forward {
		settings = append(settings, Sysctl{"net.ipv4.ip_forward", "1"}, Sysctl{"net.ipv6.conf.all.forwarding", "1"})
	}
	if err := host.sysctls(settings); err != nil {
		return err
	}
	lo, err := host.handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("namespace %s: lo: %w", ns.Name, err)
	}
	if err := host.raise(lo, ns.Loopback); err != nil {
		return err
	}
	for _, bridge := range ns.Bridges {
		attrs := linkAttrs(bridge.Name, bridge.MTU, bridge.MAC)
		if err := host.create(&netlink.Bridge{LinkAttrs: attrs}, bridge.Addresses); err != nil {
			return err
		}
	}
	return nil
}

func linkAttrs(name string, mtu int, mac net.HardwareAddr) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = name, mtu, mac
	return attrs
}

// create adds one interface, gives it its addresses and brings it up.
func (h *Host) create(link netlink.Link, addresses []netip.Prefix) error {
	if err := h.handle.LinkAdd(link); err != nil {
		return fmt.Errorf("namespace %s: create %s %s: %w", h.name, link.Type(), link.Attrs().Name, err)
	}
	return h.raise(link, addresses)
}

func (h *Host) raise(link netlink.Link, addresses []netip.Prefix) error {
	if err := h.handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("namespace %s: bring %s up: %w", h.name, link.Attrs().Name, err)
	}
	for _, prefix := range addresses {
		address := &netlink.Addr{IPNet: ipNet(prefix)}
		if prefix.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := h.handle.AddrAdd(link, address); err != nil {
			return fmt.Errorf("namespace %s: add %v to %s: %w", h.name, prefix, link.Attrs().Name, err)
		}
	}
	return nil
}

// firstIndex is the interface index of the first link's end A, far from those the kernel hands out. The kernel reports
// a new carrier at once only when the two ends of a pair have different indices, else up to a second later.
const firstIndex = 1000

func (l *Lab) createLink(link Link, index int) error {
	a, b := l.hosts[link.A.Namespace], l.hosts[link.B.Namespace]
	veth := &netlink.Veth{
		LinkAttrs:        linkAttrs(link.A.Name, link.MTU, link.A.MAC),
		PeerName:         link.B.Name,
		PeerHardwareAddr: link.B.MAC,
		PeerNamespace:    netlink.NsFd(int(b.fd)),
	}
	veth.Index = index
	veth.NumTxQueues, veth.NumRxQueues = link.Queues, link.Queues
	if err := a.handle.LinkAdd(veth); err != nil {
		return fmt.Errorf("create link %s/%s to %s/%s: %w", link.A.Namespace, link.A.Name, link.B.Namespace, link.B.Name, err)
	}
	for _, end := range []End{link.A, link.B} {
		host := l.hosts[end.Namespace]
		made, err := host.handle.LinkByName(end.Name)
		if err != nil {
			return fmt.Errorf("namespace %s: %s: %w", end.Namespace, end.Name, err)
		}
		if end.Bridge != "" {
			bridge, err := host.handle.LinkByName(end.Bridge)
			if err == nil {
				err = host.handle.LinkSetMaster(made, bridge)
			}
			if err != nil {
				return fmt.Errorf("namespace %s: put %s on bridge %s: %w", end.Namespace, end.Name, end.Bridge, err)
			}
		}
		if err := host.raise(made, end.Addresses); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) createMacvlan(m Macvlan) error {
	parent, err := h.handle.LinkByName(m.Parent)
	if err != nil {
		return fmt.Errorf("namespace %s: parent of %s: %s: %w", h.name, m.Name, m.Parent, err)
	}
	attrs := linkAttrs(m.Name, 0, m.MAC)
	attrs.ParentIndex = parent.Attrs().Index
	return h.create(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}, m.Addresses)
}

// awaitCarrier waits until no interface is down any more: the kernel raises the operational state a moment after the
// second end of a pair is up, and routes over a link without carrier are dead until then.
func (h *Host) awaitCarrier() error {
	deadline := time.Now().Add(30 * time.Second) // milliseconds, but for a busy machine
	for {
		links, err := h.handle.LinkList()
		if err != nil {
			return fmt.Errorf("namespace %s: list links: %w", h.name, err)
		}
		waiting := ""
		for _, link := range links {
			// A bridge without ports has no carrier and never will.
			if state := link.Attrs().OperState; link.Type() != "bridge" && (state == netlink.OperDown || state == netlink.OperLowerLayerDown) {
				waiting = link.Attrs().Name
			}
		}
		if waiting == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("namespace %s: %s has no carrier after 30 s", h.name, waiting)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// connect adds what needs the links: routes, rules, neighbours, sysctls.
func (h *Host) connect(ns Namespace) error {
	var errs []error
	for _, route := range ns.Routes {
		errs = append(errs, h.addRoute(route))
	}
	for _, rule := range ns.Rules {
		errs = append(errs, h.addRule(rule))
	}
	for _, neighbour := range ns.Neighbours {
		errs = append(errs, h.addNeighbour(neighbour))
	}
	errs = append(errs, h.sysctls(ns.Sysctls))
	return errors.Join(errs...)
}

func (h *Host) addRoute(r Route) error {
	route := &netlink.Route{Dst: ipNet(r.To.Masked()), Table: r.Table}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	}
	for _, gateway := range r.Spread {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: gateway.AsSlice()})
	}
	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}
	if r.Local {
		route.Type, route.Scope = unix.RTN_LOCAL, netlink.SCOPE_HOST
		if r.Table == 0 {
			route.Table = unix.RT_TABLE_LOCAL
		}
	} else if !r.Via.IsValid() && len(r.Spread) == 0 && r.To.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	if r.Dev != "" {
		link, err := h.handle.LinkByName(r.Dev)
		if err != nil {
			return fmt.Errorf("route to %v: %s: %w", r.To, r.Dev, err)
		}
		route.LinkIndex = link.Attrs().Index
	}
	if err := h.handle.RouteAdd(route); err != nil {
		return fmt.Errorf("route to %v via %v%v: %w", r.To, r.Via, r.Spread, err)
	}
	return nil
}

func (h *Host) addRule(r Rule) error {
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Mark = netlink.FAMILY_V4, r.Table, r.Mark
	if r.IPv6 {
		rule.Family = netlink.FAMILY_V6
	}
	if r.Priority != 0 {
		rule.Priority = r.Priority
	}
	if r.From.IsValid() {
		rule.Src = ipNet(r.From)
	}
	if r.To.IsValid() {
		rule.Dst = ipNet(r.To)
	}
	if err := h.handle.RuleAdd(rule); err != nil {
		return fmt.Errorf("rule %+v: %w", r, err)
	}
	return nil
}

func (h *Host) addNeighbour(n Neighbour) error {
	link, err := h.handle.LinkByName(n.Dev)
	if err == nil {
		err = h.handle.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: n.Address.AsSlice(), HardwareAddr: n.MAC,
		})
	}
	if err != nil {
		return fmt.Errorf("neighbour %v on %s: %w", n.Address, n.Dev, err)
	}
	return nil
}

// sysctls writes settings. /proc/sys/net shows the namespace of the thread that opens it.
func (h *Host) sysctls(settings []Sysctl) error {
	return h.Do(func() error {
		for _, setting := range settings {
			path := "/proc/sys/" + strings.Map(func(r rune) rune {
				switch r {
				case '.':
					return '/'
				case '/':
					return '.'
				}
				return r
			}, setting.Key)
			if err := os.WriteFile(path, []byte(setting.Value), 0); err != nil {
				return fmt.Errorf("set %s to %s in %s: %w", setting.Key, setting.Value, h.name, err)
			}
		}
		return nil
	})
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
