package kernelnat

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// hop is how datagrams reach an address.
type hop struct {
	index   int // of the interface; bpf.Loopback: the address is this machine's
	mtu     uint32
	gateway netip.Addr // the neighbour
	source  netip.Addr // that the kernel takes
}

type hopKey struct{ to, from netip.Addr }

const (
	// maxHops bounds the remembered hops. Beyond it all are looked up again.
	maxHops = 1 << 14
	// noMTU is for datagrams that do not leave the machine.
	noMTU = 1 << 20
)

// hopLocked looks up how datagrams reach an address with a source address, or with the one that the kernel takes.
func (t *Table) hopLocked(routes uint32, to, from netip.Addr) (h hop, err error) {
	key := hopKey{to.Unmap(), from.Unmap()}
	if t.hopsOf != routes || len(t.hops) >= maxHops {
		clear(t.hops)
		t.hopsOf = routes
		t.pruneLocked()
	}
	if h, ok := t.hops[key]; ok {
		return h, nil
	}
	if key.to.IsMulticast() || key.to.IsLinkLocalUnicast() || key.to.Zone() != "" || key.to == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return h, unsuited("%s is no address of one machine in all networks", key.to)
	}
	options := &netlink.RouteGetOptions{}
	if key.from.IsValid() {
		options.SrcAddr = net.IP(key.from.AsSlice())
	}
	found, err := t.netlink.RouteGetWithOptions(net.IP(key.to.AsSlice()), options)
	if err != nil || len(found) == 0 {
		return h, unsuited("no route from %s to %s: %w", key.from, key.to, err)
	}
	if h, err = t.hopOf(&found[0], key.to); err != nil {
		return h, err
	}
	if h.source == (netip.Addr{}) {
		h.source = key.from
	}
	t.hops[key] = h
	return h, nil
}

// hopOf is the hop of a route to an address.
func (t *Table) hopOf(r *netlink.Route, to netip.Addr) (h hop, err error) {
	h.source, _ = netip.AddrFromSlice(r.Src)
	h.source = h.source.Unmap()
	switch r.Type {
	case unix.RTN_LOCAL:
		h.index, h.mtu, h.gateway = bpf.Loopback, noMTU, to
		return h, nil
	case unix.RTN_UNICAST:
	default:
		return h, unsuited("the route to %s is no unicast route", to)
	}
	l, err := t.netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return h, fmt.Errorf("interface of the route to %s: %w", to, err)
	}
	h.index, h.mtu, h.gateway = r.LinkIndex, uint32(l.Attrs().MTU), to
	if r.MTU > 0 {
		h.mtu = min(h.mtu, uint32(r.MTU))
	}
	gateway := r.Gw
	if via, ok := r.Via.(*netlink.Via); ok {
		gateway = via.Addr
	}
	if via, ok := netip.AddrFromSlice(gateway); ok && !via.IsUnspecified() {
		h.gateway = via.Unmap()
	}
	return h, nil
}

// forgetLocked has the hop of an entry looked up again.
func (t *Table) forgetLocked(e *bpf.UDPNATEntry) {
	to, from := maps.Address(e.Dst), maps.Address(e.Src)
	delete(t.hops, hopKey{to, from})
	delete(t.hops, hopKey{to, netip.Addr{}})
}

// attachLocked puts the program on the interface of a hop, where answers from there come in.
func (t *Table) attachLocked(h hop) error {
	a, ok := t.attached[h.index]
	if ok && a.err == nil {
		return nil
	}
	if !ok {
		a.err = attach.InNamespace(t.namespace, func() (err error) {
			l, err := t.netlink.LinkByIndex(h.index)
			if err != nil {
				return fmt.Errorf("interface %d: %w", h.index, err)
			}
			plan, err := attach.Plan([]string{l.Attrs().Name}, attach.HookTCX, nil)
			if err != nil {
				return err
			}
			a.at = plan[0]
			a.at.Why = "flows use it"
			a.link, err = a.at.Attach(t.collection.Programs[bpf.UDPNATProgWeirUdpnat], false)
			return err
		})
		t.attached[h.index] = a
		if a.err != nil {
			t.log.Warn("flows of an interface stay in user space", "interface", h.index, "because", a.err)
		} else {
			t.log.Info("established flows are forwarded in the kernel", "interface", a.at.Name)
		}
	}
	if a.err != nil {
		return &refusal{"interface", a.err}
	}
	return nil
}

// pruneLocked forgets interfaces that are gone, and those that could not be attached.
func (t *Table) pruneLocked() {
	for index, a := range t.attached {
		if a.err == nil {
			if info, err := a.link.Info(); err == nil && info.TCX() != nil && info.TCX().Ifindex != 0 {
				continue
			}
			if err := a.link.Close(); err != nil {
				t.log.Debug("close the link of an interface that is gone", "interface", a.at.Name, "error", err)
			}
		}
		delete(t.attached, index)
	}
}
