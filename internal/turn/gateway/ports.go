package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

// portTable records which relay ports of each address this process uses, so that bind does not try them, and holds
// the sockets of reserved ports (EVEN-PORT). All workers share it; it is used only when an allocation is created or
// ends.
type portTable struct {
	mu       sync.Mutex
	taken    map[netip.Addr]*portSet
	reserved map[netip.AddrPort]udpio.Socket
}

type portSet struct {
	bits  [1 << 16 / 64]uint64
	count int
}

func (s *portSet) has(p uint16) bool { return s.bits[p/64]&(1<<(p%64)) != 0 }

func (s *portSet) set(p uint16, on bool) {
	if s.has(p) == on {
		return
	}
	s.bits[p/64] ^= 1 << (p % 64)
	if on {
		s.count++
	} else {
		s.count--
	}
}

// bindTries is how many ports in use by other processes of this host an allocation skips.
const bindTries = 64

func (t *portTable) init() {
	t.taken = map[netip.Addr]*portSet{}
	t.reserved = map[netip.AddrPort]udpio.Socket{}
}

func (t *portTable) setLocked(addr netip.Addr) *portSet {
	s := t.taken[addr]
	if s == nil {
		s = &portSet{}
		t.taken[addr] = s
	}
	return s
}

// bind opens a socket on a free port of the range, chosen at random. With even, the port is even; with next, bind
// also reserves the next higher port.
func (t *portTable) bind(addr netip.Addr, ports PortRange, even, next bool, options udpio.SocketOptions) (udpio.Socket, netip.AddrPort, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.setLocked(addr)
	count := ports.Count()
	at := rand.IntN(count)
	tries := 0
	for range count {
		port := ports.Min + uint16(at)
		if at++; at == count {
			at = 0
		}
		if set.has(port) || even && port%2 != 0 || next && (port == ports.Max || set.has(port+1)) {
			continue
		}
		socket, err := t.bindAtLocked(netip.AddrPortFrom(addr, port), next, options)
		if err == nil {
			return socket, netip.AddrPortFrom(addr, port), nil
		}
		if tries++; !errors.Is(err, unix.EADDRINUSE) || tries == bindTries {
			return udpio.Socket{}, netip.AddrPort{}, fmt.Errorf("%w: %w", allocation.ErrNoPort, err)
		}
	}
	return udpio.Socket{}, netip.AddrPort{}, fmt.Errorf("%w: %v has none left in %v", allocation.ErrNoPort, addr, ports)
}

func (t *portTable) bindAtLocked(at netip.AddrPort, next bool, options udpio.SocketOptions) (udpio.Socket, error) {
	socket, err := udpio.Bind(at, options)
	if err != nil {
		return socket, err
	}
	set := t.setLocked(at.Addr())
	if next {
		after := netip.AddrPortFrom(at.Addr(), at.Port()+1)
		held, err := udpio.Bind(after, options)
		if err != nil {
			socket.Close()
			return udpio.Socket{}, err
		}
		t.reserved[after] = held
		set.set(after.Port(), true)
	}
	set.set(at.Port(), true)
	return socket, nil
}

// exact opens a socket on a given port.
func (t *portTable) exact(at netip.AddrPort, options udpio.SocketOptions) (udpio.Socket, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.setLocked(at.Addr()).has(at.Port()) {
		return udpio.Socket{}, fmt.Errorf("%w: %v is another allocation's", allocation.ErrNoPort, at)
	}
	socket, err := t.bindAtLocked(at, false, options)
	if err != nil {
		return socket, fmt.Errorf("%w: %w", allocation.ErrNoPort, err)
	}
	return socket, nil
}

// hold binds the reserved port of a restored allocation again. If another process has the port by now, the
// reservation token will refer to nothing.
func (t *portTable) hold(want allocation.RelayRequest, family int, options udpio.SocketOptions) {
	at, relay := want.Reserved, want.Exact[family]
	if !want.Reserve || at.Addr() != relay.Addr() || at.Port() != relay.Port()+1 {
		return
	}
	socket, err := t.exact(at, options)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved[at] = socket
}

// exactly checks that a listener may have the relay address of a record. The author of the record is not known, so
// only an address that the listener itself could have assigned is accepted.
func exactly(c *client, at netip.AddrPort) error {
	config, addr := c.listener.current(), at.Addr()
	switch {
	case at.Port() < config.RelayPorts.Min || at.Port() > config.RelayPorts.Max:
		return fmt.Errorf("%w: %v is not of the listener's relay ports %v", allocation.ErrNoPort, at, config.RelayPorts)
	case len(config.Relay) > 0 && !slices.Contains(config.Relay, addr):
		return fmt.Errorf("%w: %v is none of the listener's relay addresses", allocation.ErrNoPort, addr)
	case addr.IsUnspecified() || addr.IsMulticast():
		return fmt.Errorf("%w: %v is no host's address", allocation.ErrNoPort, addr)
	}
	return nil
}

// adopt marks the port of a socket that was opened elsewhere as used.
func (t *portTable) adopt(at netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setLocked(at.Addr()).set(at.Port(), true)
}

// claim returns the socket of a reserved port.
func (t *portTable) claim(at netip.AddrPort) (udpio.Socket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	socket, ok := t.reserved[at]
	delete(t.reserved, at)
	return socket, ok
}

// drop releases a reserved port that no request claimed.
func (t *portTable) drop(at netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if socket, ok := t.reserved[at]; ok {
		socket.Close()
		delete(t.reserved, at)
		t.setLocked(at.Addr()).set(at.Port(), false)
	}
}

// release marks a port as free.
func (t *portTable) release(at netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setLocked(at.Addr()).set(at.Port(), false)
}

func (t *portTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, socket := range t.reserved {
		socket.Close()
		delete(t.reserved, at)
	}
}

// bindRelay opens the socket of one relay address.
func (w *worker) bindRelay(c *client, want allocation.RelayRequest, family int) (udpio.Socket, netip.AddrPort, error) {
	options := udpio.SocketOptions{ReadBuffer: relayBuffer, WriteBuffer: relayBuffer, Coalesce: !w.gateway.options.NoCoalesce, DontFragment: c.a.DontFragment}
	ports := &w.gateway.ports
	if at := want.Exact[family]; at.IsValid() {
		if socket, ok := w.storedRelay(at); ok {
			ports.adopt(at)
			ports.hold(want, family, options)
			return socket, at, nil
		}
		if err := exactly(c, at); err != nil {
			return udpio.Socket{}, at, err
		}
		socket, err := ports.exact(at, options)
		if err == nil {
			ports.hold(want, family, options)
		}
		return socket, at, err
	}
	if want.Reserved.IsValid() {
		socket, ok := ports.claim(want.Reserved)
		if !ok {
			return socket, want.Reserved, fmt.Errorf("%w: %v is not held any more", allocation.ErrNoPort, want.Reserved)
		}
		return socket, want.Reserved, nil
	}
	addr, err := relayAddress(c, family)
	if err != nil {
		return udpio.Socket{}, netip.AddrPort{}, err
	}
	return ports.bind(addr, c.listener.current().RelayPorts, want.Even, want.Reserve, options)
}

// storedRelay takes a relay socket that an earlier process stored.
func (w *worker) storedRelay(at netip.AddrPort) (udpio.Socket, bool) {
	k := w.gateway.options.Store
	if k == nil {
		return udpio.Socket{}, false
	}
	fd, ok := k.Take(relayName(at))
	if !ok {
		return udpio.Socket{}, false
	}
	socket, err := udpio.Adopt(fd)
	if err == nil {
		if local, failed := socket.LocalAddr(); failed == nil && local == at {
			return socket, true
		}
	}
	_ = unix.Close(fd)
	k.Drop(relayName(at))
	return udpio.Socket{}, false
}

// relayAddress returns the address of a family for a listener's allocations: the configured address, else the address
// that the client sent to, else the host's source address towards the internet.
func relayAddress(c *client, family int) (netip.Addr, error) {
	v4 := family == allocation.V4
	for _, a := range c.listener.current().Relay {
		if a.Is4() == v4 {
			return a, nil
		}
	}
	if len(c.listener.current().Relay) > 0 {
		return netip.Addr{}, allocation.ErrFamily
	}
	if a := c.a.Path.Server.Addr(); a.Is4() == v4 {
		return a, nil
	}
	if !c.listener.config.Address.IsUnspecified() {
		return netip.Addr{}, allocation.ErrFamily // a listener with one address has one family
	}
	world := netip.MustParseAddrPort("198.51.100.1:9") // only for the choice of the source address; nothing is sent there
	if !v4 {
		world = netip.MustParseAddrPort("[2001:db8::1]:9")
	}
	probe, err := udpio.Dial(world, true)
	if err != nil {
		return netip.Addr{}, allocation.ErrFamily
	}
	defer probe.Close()
	local, err := probe.LocalAddr()
	if err != nil {
		return netip.Addr{}, allocation.ErrFamily
	}
	return local.Addr(), nil
}
