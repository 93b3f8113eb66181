package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/neighbour"
	"github.com/weir-lb/weir/internal/control/announce/vrrp"
)

// networkControl is the traffic class of routing protocols: CS6.
const networkControl = 0xc0

// arrival is a packet from the VRRP socket.
type arrival struct {
	bytes       []byte
	source      netip.Addr
	destination netip.Addr
	hopLimit    int
}

// conn is the raw socket of a router, on one interface.
type conn struct {
	is6 bool
	net.PacketConn
	four   *ipv4.PacketConn
	six    *ipv6.PacketConn
	index  int
	source net.IP
}

func openVRRP(name string, s station) (*conn, error) {
	c := &conn{is6: s.self.Is6(), index: s.index, source: net.IP(s.self.AsSlice())}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, name) }); e != nil {
			return e
		}
		return err
	}}
	network, address := fmt.Sprintf("ip4:%d", vrrp.Protocol), "0.0.0.0"
	if c.is6 {
		network, address = fmt.Sprintf("ip6:%d", vrrp.Protocol), "::"
	}
	var err error
	if c.PacketConn, err = config.ListenPacket(context.Background(), network, address); err != nil {
		return nil, fmt.Errorf("open a VRRP socket on %s: %w", name, err)
	}
	if err := c.setUp(&net.Interface{Index: s.index, Name: name}); err != nil {
		c.Close()
		return nil, fmt.Errorf("set up the VRRP socket on %s: %w", name, err)
	}
	return c, nil
}

func (c *conn) setUp(on *net.Interface) error {
	group := &net.IPAddr{IP: net.IP(vrrp.Group(c.is6).AsSlice())}
	if c.is6 {
		c.six = ipv6.NewPacketConn(c.PacketConn)
		return errors.Join(c.six.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagDst, true), c.six.JoinGroup(on, group), c.six.SetMulticastInterface(on),
			c.six.SetMulticastHopLimit(vrrp.HopLimit), c.six.SetMulticastLoopback(false), c.six.SetTrafficClass(networkControl))
	}
	c.four = ipv4.NewPacketConn(c.PacketConn)
	return errors.Join(c.four.SetControlMessage(ipv4.FlagTTL|ipv4.FlagDst, true), c.four.JoinGroup(on, group), c.four.SetMulticastInterface(on),
		c.four.SetMulticastTTL(vrrp.HopLimit), c.four.SetMulticastLoopback(false), c.four.SetTOS(networkControl))
}

// join receives questions for an IPv6 address also where switches and the card filter multicast.
func (c *conn) join(on *net.Interface, address netip.Addr) error {
	return c.six.JoinGroup(on, &net.IPAddr{IP: net.IP(neighbour.SolicitedNode(address).AsSlice())})
}

func (c *conn) leave(on *net.Interface, address netip.Addr) error {
	return c.six.LeaveGroup(on, &net.IPAddr{IP: net.IP(neighbour.SolicitedNode(address).AsSlice())})
}

// send sends to the group.
func (c *conn) send(b []byte) error {
	to := &net.IPAddr{IP: net.IP(vrrp.Group(c.is6).AsSlice())}
	var err error
	if c.is6 {
		_, err = c.six.WriteTo(b, &ipv6.ControlMessage{Src: c.source, IfIndex: c.index}, to)
	} else {
		_, err = c.four.WriteTo(b, &ipv4.ControlMessage{Src: c.source, IfIndex: c.index}, to)
	}
	return err
}

// receive waits for a packet and reads it into b.
func (c *conn) receive(b []byte) (a arrival, err error) {
	var n int
	var from net.Addr
	var to net.IP
	if c.is6 {
		var m *ipv6.ControlMessage
		if n, m, from, err = c.six.ReadFrom(b); err == nil && m != nil {
			to, a.hopLimit = m.Dst, m.HopLimit
		}
	} else {
		var m *ipv4.ControlMessage
		if n, m, from, err = c.four.ReadFrom(b); err == nil && m != nil {
			to, a.hopLimit = m.Dst, m.TTL
		}
	}
	if err != nil {
		return a, err
	}
	a.bytes = b[:n]
	if sender, ok := from.(*net.IPAddr); ok {
		a.source, _ = netip.AddrFromSlice(sender.IP)
	}
	a.destination, _ = netip.AddrFromSlice(to)
	a.source, a.destination = a.source.Unmap(), a.destination.Unmap()
	return a, nil
}

// frames is the packet socket of a router: ARP, or neighbour discovery.
type frames struct {
	file   *os.File
	raw    syscall.RawConn
	index  int
	closed atomic.Bool
}

func openFrames(name string, s station) (*frames, error) {
	kind := uint16(neighbour.TypeARP)
	if s.self.Is6() {
		kind = neighbour.TypeIPv6
	}
	f, err := packetSocket(kind, s.index)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket on %s: %w", name, err)
	}
	return f, nil
}

func packetSocket(kind uint16, index int) (*frames, error) {
	// It takes nothing before its filter is there.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := &frames{file: os.NewFile(uintptr(fd), "packet"), index: index}
	f.raw, err = f.file.SyscallConn()
	if err == nil && kind == neighbour.TypeIPv6 {
		err = filterDiscovery(fd)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: index})
	}
	if err != nil {
		f.file.Close()
		return nil, err
	}
	return f, nil
}

// filterDiscovery lets the kernel drop what is not a neighbour solicitation or advertisement: the rest is the traffic of the services.
func filterDiscovery(fd int) error {
	const ether, ip6 = 14, 40
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: ether + 6, Size: 1}, // next header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 58, SkipTrue: 4},
		bpf.LoadAbsolute{Off: ether + ip6, Size: 1}, // ICMPv6 type
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 135, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: 136, SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	raw := make([]unix.SockFilter, len(program))
	for i, p := range program {
		raw[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]})
}

const maxFrame = 512 // of the messages that are read

func (f *frames) close() {
	f.closed.Store(true)
	f.file.Close()
}

func (f *frames) send(b []byte) (err error) {
	if e := f.raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, &unix.SockaddrLinklayer{Ifindex: f.index, Halen: 6, Addr: [8]byte(append(b[:6:6], 0, 0))})
	}); e != nil {
		return e
	}
	return err
}

func (f *frames) receive(b []byte) (n int, err error) {
	if e := f.raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), b, 0)
		return err != unix.EAGAIN
	}); e != nil {
		return 0, e
	}
	return n, err
}
