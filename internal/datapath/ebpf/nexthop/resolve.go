package nexthop

import (
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Which routes a pass over what is watched looks up: those of all addresses, of none, or of one in so many. The others stay as
// they were; their neighbours are looked up in any case.
const (
	noRoutes  = 0
	allRoutes = 1
)

// routesAtOnce is of how many addresses the routes are looked up by the clock. Events tell of all changes of routes and links, but not
// of those of rules or path MTUs.
const routesAtOnce = 1024

// someRoutes is allRoutes where there are few.
func (t *Table) someRoutes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(1, (len(t.watched)+routesAtOnce-1)/routesAtOnce)
}

func (t *Table) refresh(routes int, event bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.beginLocked()()
	t.passes++
	for a, w := range t.watched {
		if routes != noRoutes && (t.passes+w.number)%routes == 0 {
			w.path = t.pathLocked(a)
		}
		hop := t.resolveLocked(w)
		if hop == w.hop {
			continue
		}
		if w.logs(hop.State) {
			t.log.Info("next hop", "of", a, "state", hop.State.String(), "neighbour", hop.Neighbor)
		}
		t.setLocked(w, hop)
		w.report(hop)
	}
	if event && t.onRoute != nil {
		t.onRoute()
	}
}

// logs reports whether the log has to name a state: one that fails is tried again all the time, which is no news.
func (w *watch) logs(now State) bool {
	if now == w.logged || now == Unknown && w.logged == Failed {
		return false
	}
	w.logged = now
	return true
}

func (s State) String() string { return [...]string{"unknown", "ready", "failed"}[s] }

// beginLocked begins a pass, in which no link and no list of neighbours is read twice, and returns what ends it.
func (t *Table) beginLocked() (end func()) {
	t.seen, t.links = map[listing]map[netip.Addr]netlink.Neigh{}, map[int]netlink.Link{}
	return func() { t.seen, t.links = nil, nil }
}

// linkLocked reads a link, once in each pass.
func (t *Table) linkLocked(index int) (netlink.Link, error) {
	if link, ok := t.links[index]; ok {
		return link, nil
	}
	link, err := t.handle.LinkByIndex(index)
	if err == nil {
		t.links[index] = link
	}
	return link, err
}

// pathLocked queries the kernel's routes and links. Nothing is known of the neighbour yet.
func (t *Table) pathLocked(a netip.Addr) Hop {
	routes, err := t.handle.RouteGet(net.IP(a.AsSlice()))
	if err != nil || len(routes) == 0 || routes[0].LinkIndex == 0 {
		return Hop{State: Failed}
	}
	r := routes[0]
	link, err := t.linkLocked(r.LinkIndex)
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
	return hop
}

// resolveLocked completes the path of a watch with its neighbour.
func (t *Table) resolveLocked(w *watch) Hop {
	hop := w.path
	if hop.State != Failed {
		t.neighbour(&hop, w)
	}
	return hop
}

// neighbours reads those of an interface, once in each pass over what is watched.
func (t *Table) neighbours(at listing) map[netip.Addr]netlink.Neigh {
	if all, ok := t.seen[at]; ok {
		return all
	}
	list, err := t.handle.NeighList(at.index, at.family)
	if err != nil {
		return nil
	}
	all := make(map[netip.Addr]netlink.Neigh, len(list))
	for i := range list {
		if a, ok := netip.AddrFromSlice(list[i].IP); ok {
			if _, twice := all[a.Unmap()]; !twice {
				all[a.Unmap()] = list[i]
			}
		}
	}
	t.seen[at] = all
	return all
}

// neighbour fills in the link address, and requests it where it is missing.
func (t *Table) neighbour(hop *Hop, w *watch) {
	family := unix.AF_INET
	if hop.Neighbor.Is6() {
		family = unix.AF_INET6
	}
	if n, ok := t.neighbours(listing{hop.IfIndex, family})[hop.Neighbor]; ok {
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
