package nexthop

import (
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (t *Table) refresh(event bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = map[listing][]netlink.Neigh{}
	defer func() { t.seen = nil }()
	for a, w := range t.watched {
		hop := t.resolveLocked(a, w)
		if hop == w.hop {
			continue
		}
		if hop.State != w.hop.State {
			t.log.Info("next hop", "of", a, "state", hop.State.String(), "neighbour", hop.Neighbor)
		}
		w.hop = hop
		w.report(hop)
	}
	if event && t.onRoute != nil {
		t.onRoute()
	}
}

func (s State) String() string { return [...]string{"unknown", "ready", "failed"}[s] }

// resolveLocked queries the kernel's routes and neighbours.
func (t *Table) resolveLocked(a netip.Addr, w *watch) Hop {
	routes, err := t.handle.RouteGet(net.IP(a.AsSlice()))
	if err != nil || len(routes) == 0 || routes[0].LinkIndex == 0 {
		return Hop{State: Failed}
	}
	r := routes[0]
	link, err := t.handle.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Hop{State: Failed}
	}
	attrs := link.Attrs()
	hop := Hop{IfIndex: r.LinkIndex, MTU: attrs.MTU, Neighbor: a}
	if r.MTU > 0 && r.MTU < hop.MTU {
		hop.MTU = r.MTU
	}
	copy(hop.From[:], attrs.HardwareAddr)
	if via, ok := netip.AddrFromSlice(r.Gw); ok && !via.IsUnspecified() {
		hop.Neighbor = via.Unmap()
	} else if r.Via != nil {
		if v, ok := r.Via.(*netlink.Via); ok {
			if via, ok := netip.AddrFromSlice(v.Addr); ok {
				hop.Neighbor = via.Unmap()
			}
		}
	}
	if attrs.Flags&net.FlagUp == 0 {
		hop.State = Failed
		return hop
	}
	if attrs.Flags&net.FlagLoopback != 0 {
		hop.State = Failed // a backend on this very machine: not by redirect
		return hop
	}
	t.neighbour(&hop, w)
	return hop
}

// neighbours lists those of an interface, once in each pass over what is watched.
func (t *Table) neighbours(at listing) ([]netlink.Neigh, error) {
	if list, ok := t.seen[at]; ok {
		return list, nil
	}
	list, err := t.handle.NeighList(at.index, at.family)
	if err == nil && t.seen != nil {
		t.seen[at] = list
	}
	return list, err
}

// neighbour fills in the link address, and requests it where it is missing.
func (t *Table) neighbour(hop *Hop, w *watch) {
	family := unix.AF_INET
	if hop.Neighbor.Is6() {
		family = unix.AF_INET6
	}
	list, err := t.neighbours(listing{hop.IfIndex, family})
	if err == nil {
		for _, n := range list {
			a, _ := netip.AddrFromSlice(n.IP)
			if a.Unmap() != hop.Neighbor {
				continue
			}
			switch {
			case n.State&(unix.NUD_FAILED|unix.NUD_INCOMPLETE) != 0 || len(n.HardwareAddr) != 6:
				if n.State&unix.NUD_FAILED != 0 {
					hop.State = Failed
				}
			default:
				copy(hop.Link[:], n.HardwareAddr)
				hop.State = Ready
				if n.State&unix.NUD_PERMANENT != 0 || n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
					return
				}
			}
			break
		}
	}
	if now := time.Now(); now.Sub(w.requested) >= Retry {
		w.requested = now
		t.manage(hop, family)
	}
}

// manage makes the kernel keep a neighbour resolved by itself.
func (t *Table) manage(hop *Hop, family int) {
	n := &netlink.Neigh{
		LinkIndex: hop.IfIndex, Family: family, IP: net.IP(hop.Neighbor.AsSlice()),
		State: unix.NUD_NONE, FlagsExt: netlink.NTF_EXT_MANAGED,
	}
	if t.onManage != nil {
		if err := t.onManage(hop.IfIndex, hop.Neighbor); err != nil {
			t.log.Warn("note neighbour", "address", hop.Neighbor, "error", err)
			return
		}
	}
	if err := t.handle.NeighSet(n); err != nil {
		// Older kernels: probe once; the ticker asks again.
		n.FlagsExt, n.Flags, n.State = 0, netlink.NTF_USE, unix.NUD_NONE
		if err := t.handle.NeighSet(n); err != nil {
			t.log.Warn("resolve neighbour", "address", hop.Neighbor, "error", err)
		}
	}
}
