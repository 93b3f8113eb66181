package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nfMessage is a netlink message, padded.
func nfMessage(kind, flags uint16, sequence uint32, body []byte) []byte {
	m := make([]byte, 16, 16+len(body)+3)
	binary.NativeEndian.PutUint32(m, uint32(16+len(body)))
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags)
	binary.NativeEndian.PutUint32(m[8:], sequence)
	m = append(m, body...)
	for len(m)%4 != 0 {
		m = append(m, 0)
	}
	return m
}

// nfAttribute is a netlink attribute, padded.
func nfAttribute(kind uint16, value []byte) []byte {
	a := make([]byte, 4, 4+len(value)+3)
	binary.NativeEndian.PutUint16(a, uint16(4+len(value)))
	binary.NativeEndian.PutUint16(a[2:], kind)
	a = append(a, value...)
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}

func (f Family) netlink() int {
	if f == IPv6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// routing is the part of the machine's rules and routes that concerns us.
type routing struct {
	rules    []Rule // ours at our priority
	outdated []netlink.Rule
	foreign  []netlink.Rule
	routes   []Route         // ours; Backend is empty
	strange  []netlink.Route // ours, but different from those that we make
	others   []netlink.Route // of others, in tables that the plan uses
}

// readRouting reads the namespace of the calling thread.
func readRouting(p *Plan) (*routing, error) {
	r := &routing{}
	for _, family := range p.here() {
		rules, err := netlink.RuleList(family.netlink())
		if err != nil {
			return nil, fmt.Errorf("read the %s routing rules: %w", family, err)
		}
		for _, rule := range rules {
			rule.Family = family.netlink() // where the kernel leaves it out
			switch {
			case int(rule.Protocol) != p.config.Protocol:
				r.foreign = append(r.foreign, rule)
			case rule.Priority == p.config.Priority && plainRule(&rule):
				r.rules = append(r.rules, Rule{family, rule.Mark, uint32(rule.Table)})
			default:
				r.outdated = append(r.outdated, rule)
			}
		}
		if err := r.readRoutes(p, family); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// here returns the families that both this kernel and the plan have.
func (p *Plan) here() []Family {
	if _, err := os.Stat("/proc/thread-self/net/if_inet6"); os.IsNotExist(err) && !slices.Contains(p.Families(), IPv6) {
		return []Family{IPv4}
	}
	return families()
}

// plainRule reports whether a rule matches the whole mark and nothing else.
func plainRule(rule *netlink.Rule) bool {
	return rule.Src == nil && rule.Dst == nil && rule.IifName == "" && rule.OifName == "" && !rule.Invert &&
		rule.IPProto == 0 && rule.Sport == nil && rule.Dport == nil && rule.UIDRange == nil && rule.Tos == 0 &&
		(rule.Mask == nil || *rule.Mask == 0xffffffff)
}

func (r *routing) readRoutes(p *Plan, family Family) error {
	tables := map[uint32]bool{}
	for _, route := range p.routes {
		tables[route.Table] = route.Family == family || tables[route.Table]
	}
	every := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	err := netlink.RouteListFilteredIter(family.netlink(), every, netlink.RT_FILTER_TABLE, func(route netlink.Route) bool {
		if int(route.Protocol) == p.config.Protocol {
			via, ok := netip.AddrFromSlice(route.Gw)
			if ok && isDefault(&route) && len(route.MultiPath) == 0 {
				r.routes = append(r.routes, Route{Family: family, Table: uint32(route.Table), Via: via.Unmap()})
			} else {
				r.strange = append(r.strange, route)
			}
		} else if tables[uint32(route.Table)] {
			r.others = append(r.others, route)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("read the %s routes: %w", family, err)
	}
	return nil
}

func isDefault(route *netlink.Route) bool {
	if route.Dst == nil {
		return true
	}
	bits, _ := route.Dst.Mask.Size()
	return bits == 0 && route.Dst.IP.IsUnspecified()
}

func (p *Plan) kernelRule(r Rule) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table = r.Family.netlink(), r.Mark, int(r.Table)
	rule.Priority, rule.Protocol = p.config.Priority, uint8(p.config.Protocol)
	return rule
}

func (p *Plan) kernelRoute(r Route) *netlink.Route {
	zero := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if r.Family == IPv6 {
		zero = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{
		Family: r.Family.netlink(), Dst: zero, Gw: r.Via.AsSlice(),
		Table: int(r.Table), Protocol: netlink.RouteProtocol(p.config.Protocol),
	}
}

// putRoute sets the default route of a table and replaces an existing one.
func (p *Plan) putRoute(r Route) error {
	err := netlink.RouteReplace(p.kernelRoute(r))
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("route of %s: %s is not on a link of this machine (%w); routing by mark needs a neighbour: give the interface an address of its network, or the backend another address", r.name(), r.Via, err)
	}
	if err != nil {
		return fmt.Errorf("route of %s: default via %s in table %d: %w", r.name(), r.Via, r.Table, err)
	}
	return nil
}

func (r Route) name() string {
	if r.Backend == "" {
		return fmt.Sprintf("table %d", r.Table)
	}
	return r.Backend
}
