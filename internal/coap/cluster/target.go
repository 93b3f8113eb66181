package cluster

import (
	"hash/maphash"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Frames are authenticated by nothing but a MAC, which a cluster may do without. Therefore a frame must not make the node send to addresses that its network protects from
// strangers: loopback, the host's own addresses, instance metadata services, and broadcast and multicast addresses.

// ownEvery is how often the host's addresses are read again.
const ownEvery = 30 * time.Second

var (
	broadcast  = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	metadata6  = netip.MustParseAddr("fd00:ec2::254") // the instance metadata service of a cloud; that of IPv4 is link-local
	compatible = netip.MustParsePrefix("::/96")       // RFC 4291 section 2.5.5.1
	translated = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// targets decides which client addresses frames may name. Safe for concurrent use.
type targets struct {
	loopback atomic.Bool // the nodes talk over loopback, so that clients may be there, too
	ports    [2]uint16   // of our own sockets: public and management
	own      atomic.Pointer[map[netip.Addr]struct{}]
	read     time.Duration // when own was read; of the first worker
	list     func() []netip.Addr
	seen     seen
}

// forward reports whether an "in" frame may name client. What the node sends to that address is sealed with the session's
// keys, and mostly goes through the other node. Therefore a client on this host (behind a balancer here) is accepted.
func (t *targets) forward(client netip.AddrPort) bool {
	return t.possible(client) && !(t.isOwn(client.Addr()) && t.isOurs(client.Port()))
}

// backward reports whether bytes from an "out" frame may be sent to client. For an address of this host this holds only if
// this node has forwarded a datagram of that client before.
func (t *targets) backward(client netip.AddrPort) bool {
	return t.forward(client) && (!t.isOwn(client.Addr()) || t.seen.has(client))
}

// forwarded records that client's datagram was sent on to another node.
func (t *targets) forwarded(client netip.AddrPort) {
	if t.isOwn(client.Addr()) {
		t.seen.note(client)
	}
}

// possible reports whether an address can be that of a client at all.
func (t *targets) possible(client netip.AddrPort) bool {
	a := client.Addr()
	switch {
	case client.Port() == 0 || a.IsUnspecified() || a.IsMulticast() || a == broadcast || a == metadata6:
		return false
	case a.IsLinkLocalUnicast(): // of whichever link; 169.254.169.254 is one of them
		return false
	case a.IsLoopback():
		return t.loopback.Load() && !t.isOurs(client.Port())
	}
	if within, ok := ipv4Within(a); ok {
		return t.possible(netip.AddrPortFrom(within, client.Port()))
	}
	return true
}

// ipv4Within is the IPv4 address that an IPv6 address stands for.
func ipv4Within(a netip.Addr) (netip.Addr, bool) {
	raw := a.As16()
	switch {
	case !a.Is6():
	case compatible.Contains(a), translated.Contains(a):
		return netip.AddrFrom4([4]byte(raw[12:])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(raw[2:6])), true
	}
	return netip.Addr{}, false
}

func (t *targets) isOurs(port uint16) bool { return port == t.ports[0] || port == t.ports[1] }

func (t *targets) isOwn(a netip.Addr) bool {
	_, ok := (*t.own.Load())[a.WithZone("").Unmap()]
	return ok
}

// refresh reads the host's addresses, if it is time.
func (t *targets) refresh(now time.Duration) {
	if t.own.Load() != nil && now-t.read < ownEvery {
		return
	}
	t.read = now
	own := make(map[netip.Addr]struct{})
	for _, a := range t.list() {
		if !a.IsLoopback() {
			own[a] = struct{}{}
		}
	}
	t.own.Store(&own)
}

// hostAddresses lists the addresses of this host. It returns none where the system does not report them.
func hostAddresses() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if address, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, address.Unmap())
			}
		}
	}
	return own
}

// seenSlots is how many clients on this host are remembered; of two that share a slot the newer one stays.
const seenSlots = 1 << 14

// seen remembers clients by a fingerprint of their address. Safe for concurrent use.
type seen struct {
	seed  maphash.Seed
	slots [seenSlots]atomic.Uint64
}

func (s *seen) fingerprint(client netip.AddrPort) uint64 {
	return maphash.Comparable(s.seed, netip.AddrPortFrom(client.Addr().Unmap(), client.Port())) | 1 // 0 is none
}

func (s *seen) note(client netip.AddrPort) {
	f := s.fingerprint(client)
	if slot := &s.slots[f>>1%seenSlots]; slot.Load() != f {
		slot.Store(f)
	}
}

func (s *seen) has(client netip.AddrPort) bool {
	f := s.fingerprint(client)
	return s.slots[f>>1%seenSlots].Load() == f
}
