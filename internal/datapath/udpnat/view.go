package udpnat

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// view is a snapshot with what this data path derives from it; immutable, shared by the workers.
type view struct {
	snapshot     *lb.Snapshot
	listen       []netip.AddrPort              // where to bind
	byAddr       map[backendAddr][]*lb.Backend // in the order of the service
	shortestIdle time.Duration
}

type backendAddr struct {
	service string
	addr    netip.AddrPort
}

// maxListeners bounds the VIP sockets of one worker.
const maxListeners = 1024

func newView(s *lb.Snapshot) (*view, error) {
	v := &view{snapshot: s, byAddr: map[backendAddr][]*lb.Backend{}, shortestIdle: lb.Never}
	for _, service := range s.Services {
		v.shortestIdle = min(v.shortestIdle, service.Timeouts.UDP)
		for _, vip := range service.VIPs {
			addr := vip.Prefix.Addr()
			if !vip.Prefix.IsSingleIP() {
				addr = unspecified(addr)
			}
			at := netip.AddrPortFrom(addr, vip.First)
			if !slices.Contains(v.listen, at) {
				v.listen = append(v.listen, at)
			}
			for _, b := range service.Backends {
				v.enter(b, vip)
			}
		}
	}
	// A socket on every address also serves the ports of single addresses. With both, the kernel would distribute the
	// datagrams over them.
	v.listen = slices.DeleteFunc(v.listen, func(at netip.AddrPort) bool {
		return !at.Addr().IsUnspecified() && slices.Contains(v.listen, netip.AddrPortFrom(unspecified(at.Addr()), at.Port()))
	})
	if len(v.listen) > maxListeners {
		return nil, fmt.Errorf("%d VIPs with sockets of their own: at most %d", len(v.listen), maxListeners)
	}
	return v, nil
}

func (v *view) enter(b *lb.Backend, vip lb.VIP) {
	port := b.Port
	if port == 0 {
		port = vip.First
	}
	for _, a := range []netip.Addr{b.Address4, b.Address6} {
		at := backendAddr{b.Service.Name, netip.AddrPortFrom(a, port)}
		if a.IsValid() && !slices.Contains(v.byAddr[at], b) {
			v.byAddr[at] = append(v.byAddr[at], b)
		}
	}
}

// backendAt returns the backend of a service at an address, nil for strangers. Of several it is the first by name that is not
// down, else the first.
func (v *view) backendAt(service string, addr netip.AddrPort) *lb.Backend {
	all := v.byAddr[backendAddr{service, addr}]
	for _, b := range all {
		if b.State != lb.Down {
			return b
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return nil
}

// serving returns the backend that a destination is an address of in this snapshot; nil if it no longer is one.
func (v *view) serving(d *destination) *lb.Backend {
	for _, b := range v.byAddr[backendAddr{d.target.Service, d.addr}] {
		if b.Name == d.target.Backend {
			return b
		}
	}
	return nil
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
