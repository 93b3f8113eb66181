package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// A probe through a tunnel is a socket that is connected to a VIP, with a mark of its own:
//
//	socket ──► rule for the mark ─► table with a default route ─► tun device ─► tunnels.run ─► outer header, raw socket ─► backend
//	socket ◄── answer of the backend, from the VIP, as it reaches clients
//
// So whatever answers has opened the tunnel and serves the VIP, and the machine needs no device per backend.
type tunnels struct {
	device *os.File // of tun
	name   string
	index  int
	mark   int // of the sockets, and the number of the routing table
	rules  []*netlink.Rule
	raw    [2]int // sockets for outer packets: IPv4, IPv6
	ended  chan struct{}
	mu     sync.Mutex
	probed map[flow.Key]*tunnelled // by the source of the inner packets: those under way, and those that ended less than linger ago; at most maxProbed
}

const (
	// tunnelTables is the first number of the tables; the index of the device is added.
	tunnelTables = 0x77e10000
	tunnelRule   = 100 // priority of the rules: after that of the machine's own addresses
	tunnelMTU    = 1400
	maxProbed    = 16384 // probes of the last seconds; each has a port of this machine
)

// tunnelled is one probe through a tunnel.
type tunnelled struct {
	tunnels    *tunnels
	kind       lb.Tunnel
	inner      netip.Addr // source of the probe
	from, to   netip.Addr // outer
	registered []flow.Key
	failed     atomic.Pointer[error] // of the raw socket
}

// tunnel prepares a probe, and opens what all of them share at the first one.
func (n *Network) tunnel(p *Probe) (*tunnelled, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tunnels == nil {
		t, err := openTunnels()
		if err != nil {
			return nil, err
		}
		n.tunnels = t
		if n.Log != nil {
			n.Log.Info("probes go through tunnels", "device", t.name, "mark", fmt.Sprintf("%#x", t.mark))
		}
	}
	if err := n.tunnels.leads(p.Address.Addr()); err != nil {
		return nil, err
	}
	to := p.Through.Unmap()
	from, err := routedSource(to)
	if err != nil {
		return nil, err
	}
	inner := from
	if v4 := p.Address.Addr().Unmap().Is4(); v4 != from.Is4() {
		if inner, err = routedSource(p.Address.Addr()); err != nil {
			return nil, fmt.Errorf("this machine has no address of the VIP's family to probe from: %w", err)
		}
	}
	if to.Is4() {
		from = cmp.Or(n.Source4, from)
	} else {
		from = cmp.Or(n.Source6, from)
	}
	return &tunnelled{tunnels: n.tunnels, kind: p.Tunnel, inner: inner, from: from, to: to}, nil
}

// Close removes the device, its routes and its rules. No probe may run.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tunnels == nil {
		return nil
	}
	t := n.tunnels
	n.tunnels = nil
	return t.close()
}

// routedSource is the address from which the machine sends to another one.
func routedSource(to netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9))) // sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func openTunnels() (t *tunnels, err error) {
	t = &tunnels{raw: [2]int{-1, -1}, ended: make(chan struct{}), probed: map[flow.Key]*tunnelled{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if t.raw[i], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return t, fmt.Errorf("open a raw socket: %w (it needs CAP_NET_RAW)", err)
		}
	}
	device := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "weir-probe%d"}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI, NonPersist: true, Queues: 1}
	if err := netlink.LinkAdd(device); err != nil {
		return t, fmt.Errorf("make a tun device: %w (it needs CAP_NET_ADMIN, and that this user may open /dev/net/tun)", err)
	}
	t.device, t.name = device.Fds[0], device.Name
	go t.run()
	if err := netlink.LinkSetMTU(device, tunnelMTU); err != nil {
		return t, fmt.Errorf("%s: %w", t.name, err)
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return t, fmt.Errorf("%s: %w", t.name, err)
	}
	t.index, t.mark = device.Index, tunnelTables+device.Index
	return t, t.route()
}

// route leads packets with the mark to the device, in both families if the machine has both.
func (t *tunnels) route() error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		everything := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
		if family == unix.AF_INET6 {
			everything = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		}
		dropStaleRules(family)
		err := netlink.RouteAdd(&netlink.Route{Family: family, LinkIndex: t.index, Table: t.mark, Dst: everything, Scope: unix.RT_SCOPE_LINK})
		if family == unix.AF_INET6 && err != nil {
			continue // IPv6 is off: such a probe finds no source
		}
		if err != nil {
			return fmt.Errorf("route to %s: %w", t.name, err)
		}
		rule := netlink.NewRule()
		rule.Family, rule.Mark, rule.Table, rule.Priority = family, uint32(t.mark), t.mark, tunnelRule
		if err := netlink.RuleAdd(rule); err != nil {
			return fmt.Errorf("rule for %s: %w", t.name, err)
		}
		t.rules = append(t.rules, rule)
	}
	return nil
}

// leads checks that packets to a VIP with the mark leave by the device: else the probe would reach something else.
func (t *tunnels) leads(vip netip.Addr) error {
	routes, err := netlink.RouteGetWithOptions(vip.AsSlice(), &netlink.RouteGetOptions{Mark: uint32(t.mark)})
	if err != nil {
		return fmt.Errorf("route to %s: %w", vip, err)
	}
	if len(routes) > 0 && routes[0].LinkIndex == t.index {
		return nil
	}
	return fmt.Errorf("probes of %s do not reach the tunnel: it is an address of this machine, or a routing rule comes before priority %d; remove that, or tunnel from health", vip, tunnelRule)
}

// dropStaleRules removes the rules of processes that were killed: their devices are gone.
func dropStaleRules(family int) {
	rules, err := netlink.RuleList(family)
	if err != nil {
		return
	}
	for i := range rules {
		if index := rules[i].Table - tunnelTables; index > 0 && index < 1<<16 && rules[i].Mark == uint32(rules[i].Table) {
			if _, err := netlink.LinkByIndex(index); errors.As(err, &netlink.LinkNotFoundError{}) {
				_ = netlink.RuleDel(&rules[i])
			}
		}
	}
}

func (t *tunnels) close() (err error) {
	for _, rule := range t.rules {
		err = errors.Join(err, netlink.RuleDel(rule))
	}
	if t.device != nil {
		err = errors.Join(err, t.device.Close())
		<-t.ended
	}
	for _, raw := range t.raw {
		if raw >= 0 {
			err = errors.Join(err, unix.Close(raw))
		}
	}
	return err
}

// run sends what comes out of the device through the tunnel of its probe, until the device is closed.
func (t *tunnels) run() {
	defer close(t.ended)
	inner, outer := make([]byte, 65535), make([]byte, 0, 65535)
	var p packet.Packet
	for {
		n, err := t.device.Read(inner)
		if err != nil {
			return
		}
		if packet.Parse(inner[:n], &p) != nil {
			continue
		}
		t.mu.Lock()
		probe := t.probed[sourceKey(p.Key.Source(), p.Proto)]
		t.mu.Unlock()
		if probe == nil {
			continue // the kernel's own, such as router solicitations
		}
		if err := probe.send(outer[:0], p.Data, p.Key.SrcPort); err != nil {
			probe.failed.Store(&err)
		}
	}
}

func sourceKey(source netip.AddrPort, protocol uint8) flow.Key {
	return flow.NewKey(source, netip.AddrPort{}, protocol)
}

func (p *tunnelled) send(buf, inner []byte, port uint16) error {
	if p.kind == lb.GUE {
		buf = packet.AppendGUE(buf, p.from, p.to, 0xc000|port&0x3fff, inner)
	} else {
		buf = packet.AppendIPIP(buf, p.from, p.to, inner)
	}
	if buf == nil {
		return fmt.Errorf("the outer source %s is of another family than %s", p.from, p.to)
	}
	if p.to.Is4() {
		return unix.Sendto(p.tunnels.raw[0], buf, 0, &unix.SockaddrInet4{Addr: p.to.As4()})
	}
	return unix.Sendto(p.tunnels.raw[1], buf, 0, &unix.SockaddrInet6{Addr: p.to.As16()})
}

// control is net.Dialer.ControlContext: it marks the socket, and registers its source before anything is sent.
func (p *tunnelled) control(_ context.Context, network, _ string, raw syscall.RawConn) error {
	protocol := uint8(unix.IPPROTO_UDP)
	if network == "tcp4" || network == "tcp6" {
		protocol = unix.IPPROTO_TCP
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = p.bind(int(fd), protocol) }); err != nil {
		return err
	}
	return failed
}

func (p *tunnelled) bind(fd int, protocol uint8) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, p.tunnels.mark); err != nil {
		return fmt.Errorf("mark the socket: %w", err)
	}
	var address unix.Sockaddr = &unix.SockaddrInet6{Addr: p.inner.As16()}
	if p.inner.Is4() {
		address = &unix.SockaddrInet4{Addr: p.inner.As4()}
	}
	if err := unix.Bind(fd, address); err != nil {
		return fmt.Errorf("bind to %s: %w", p.inner, err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	port := 0
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		port = b.Port
	case *unix.SockaddrInet6:
		port = b.Port
	}
	key := sourceKey(netip.AddrPortFrom(p.inner, uint16(port)), protocol)
	p.registered = append(p.registered, key)
	return p.tunnels.register(key, p)
}

// register has the packets of a source sent through the tunnel of a probe.
func (t *tunnels) register(source flow.Key, p *tunnelled) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.probed) >= maxProbed && t.probed[source] == nil {
		return fmt.Errorf("more than %d probes through tunnels within %v; make the interval of health longer", maxProbed, linger)
	}
	t.probed[source] = p
	return nil
}

// explain adds to a failure why nothing was sent.
func (p *tunnelled) explain(err error) error {
	if failed := p.failed.Load(); failed != nil && err != nil {
		return fmt.Errorf("send through the tunnel to %s: %w", p.to, *failed)
	}
	return err
}

// linger is how long a closed connection may still send: its last acknowledgement and its FIN, which the backend waits for.
const linger = 5 * time.Second

// end forgets the sockets of the probe, once nothing is sent from them.
func (p *tunnelled) end() {
	if len(p.registered) > 0 {
		time.AfterFunc(linger, p.forget)
	}
}

func (p *tunnelled) forget() {
	p.tunnels.mu.Lock()
	defer p.tunnels.mu.Unlock()
	for _, key := range p.registered {
		if p.tunnels.probed[key] == p { // no later probe has the port
			delete(p.tunnels.probed, key)
		}
	}
}
