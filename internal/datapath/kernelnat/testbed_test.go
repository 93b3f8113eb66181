package kernelnat

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// natNet is a client, a NAT that is no router, and a backend, in a namespace each.
func natNet(name string) netlab.Topology {
	return netlab.Topology{
		Name:       name,
		Namespaces: []netlab.Namespace{{Name: "client"}, {Name: "nat"}, {Name: "backend"}},
		Links: []netlab.Link{
			{
				A: netlab.End{Namespace: "client", Name: "eth0", Addresses: netlab.Prefixes("10.1.0.2/24", "fd00:1::2/64")},
				B: netlab.End{Namespace: "nat", Name: "front", Addresses: netlab.Prefixes("10.1.0.1/24", "fd00:1::1/64")},
			},
			{
				A: netlab.End{Namespace: "backend", Name: "eth0", Addresses: netlab.Prefixes("10.2.0.2/24", "fd00:2::2/64")},
				B: netlab.End{Namespace: "nat", Name: "back", Addresses: netlab.Prefixes("10.2.0.1/24", "fd00:2::1/64")},
			},
		},
	}
}

// natFlow is one flow: the sockets of its ends, and a NAT in user space that forwards what reaches it.
type natFlow struct {
	t                *testing.T
	host             *netlab.Host
	client, backend  *net.UDPConn
	vip, local       *net.UDPConn
	flow             Flow
	toVIP, toLocal   chan struct{} // one for each datagram that user space forwarded
	clients, servers chan datagram
}

type datagram struct {
	payload []byte
	from    netip.AddrPort
}

// places says where client and backend are, and at which addresses: of the client, of the VIP, of the NAT towards the backend, and
// of the backend.
type places struct {
	client, backend string
	at              [4]string
}

// allPlaces are a client and a backend on this and on other machines, in both families.
func allPlaces() map[string]places {
	return map[string]places{
		"veth-veth-4": {"client", "backend", [4]string{"10.1.0.2:0", "10.1.0.1:0", "10.2.0.1:0", "10.2.0.2:0"}},
		"veth-veth-6": {"client", "backend", [4]string{"[fd00:1::2]:0", "[fd00:1::1]:0", "[fd00:2::1]:0", "[fd00:2::2]:0"}},
		"lo-lo-4":     {"nat", "nat", [4]string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}},
		"lo-lo-6":     {"nat", "nat", [4]string{"[::1]:0", "[::1]:0", "[::1]:0", "[::1]:0"}},
		"own-own-4":   {"nat", "nat", [4]string{"10.1.0.1:0", "10.1.0.1:0", "10.2.0.1:0", "10.2.0.1:0"}},
		"veth-lo-4":   {"client", "nat", [4]string{"10.1.0.2:0", "10.1.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}},
		"veth-lo-6":   {"client", "nat", [4]string{"[fd00:1::2]:0", "[fd00:1::1]:0", "[::1]:0", "[::1]:0"}},
		"lo-veth-4":   {"nat", "backend", [4]string{"10.1.0.1:0", "10.1.0.1:0", "10.2.0.1:0", "10.2.0.2:0"}},
		"lo-veth-6":   {"nat", "backend", [4]string{"[fd00:1::1]:0", "[fd00:1::1]:0", "[fd00:2::1]:0", "[fd00:2::2]:0"}},
	}
}

func listenUDP(t *testing.T, host *netlab.Host, at string) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	ebpftest.Do(t, host, func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func address(c *net.UDPConn) netip.AddrPort {
	a := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func newFlow(t *testing.T, lab *netlab.Lab, p places) *natFlow {
	t.Helper()
	nat := lab.Namespace("nat")
	n := &natFlow{
		t: t, host: nat, toVIP: make(chan struct{}, 4096), toLocal: make(chan struct{}, 4096),
		clients: make(chan datagram, 4096), servers: make(chan datagram, 4096),
	}
	n.client, n.vip = listenUDP(t, lab.Namespace(p.client), p.at[0]), listenUDP(t, nat, p.at[1])
	n.local, n.backend = listenUDP(t, nat, p.at[2]), listenUDP(t, lab.Namespace(p.backend), p.at[3])
	n.flow = Flow{Client: address(n.client), VIP: address(n.vip), Local: address(n.local), Backend: address(n.backend), Target: 1}
	forward := func(from *net.UDPConn, passed chan struct{}, by *net.UDPConn, to netip.AddrPort) {
		read(from, func(d datagram) {
			passed <- struct{}{} // before it leaves: who received it knows that it is here
			_, _ = by.WriteToUDPAddrPort(d.payload, to)
		})
	}
	go forward(n.vip, n.toVIP, n.local, n.flow.Backend)
	go forward(n.local, n.toLocal, n.vip, n.flow.Client)
	go read(n.client, func(d datagram) { n.clients <- d })
	go read(n.backend, func(d datagram) { n.servers <- d })
	return n
}

func read(c *net.UDPConn, each func(datagram)) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			each(datagram{bytes.Clone(b[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())})
		}
	}
}

// exchange sends one datagram each way and wants it unchanged, from the NAT's addresses. It returns how many went through user
// space.
func (n *natFlow) exchange(payload []byte) (forward, backward int) {
	n.t.Helper()
	n.pass(n.client, n.flow.VIP, n.servers, payload, n.flow.Local)
	n.pass(n.backend, n.flow.Local, n.clients, payload, n.flow.VIP)
	return drain(n.toVIP), drain(n.toLocal)
}

// steady calls f in one epoch: new addresses of a network end epochs for some seconds.
func (n *natFlow) steady(table *Table, id uint32, f func()) {
	n.t.Helper()
	for {
		if !n.renew(table, id) {
			n.t.Fatal("the flow's path is another one")
		}
		epoch := table.Epoch()
		drain(n.toVIP)
		drain(n.toLocal)
		if f(); table.Epoch() == epoch {
			return
		}
	}
}

// exchangeIn is exchange in one epoch.
func (n *natFlow) exchangeIn(table *Table, id uint32, payload []byte) (forward, backward int) {
	n.t.Helper()
	n.steady(table, id, func() { forward, backward = n.exchange(payload) })
	return forward, backward
}

func drain(c chan struct{}) (n int) {
	for {
		select {
		case <-c:
			n++
		default:
			return n
		}
	}
}

// pass sends until the datagram has arrived, for the kernel may drop some.
func (n *natFlow) pass(by *net.UDPConn, to netip.AddrPort, arrives chan datagram, payload []byte, from netip.AddrPort) {
	n.t.Helper()
	for range 20 {
		if _, err := by.WriteToUDPAddrPort(payload, to); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			n.t.Fatal(err)
		}
		again := time.After(3 * time.Second)
		for waiting := true; waiting; {
			select {
			case d := <-arrives:
				if bytes.Equal(d.payload, payload) {
					if d.from != from {
						n.t.Fatalf("%d bytes came from %s, want %s", len(payload), d.from, from)
					}
					return
				}
			case <-again:
				waiting = false
			}
		}
	}
	n.t.Fatalf("%d bytes to %s do not come through", len(payload), to)
}

func open(t testing.TB, host *netlab.Host, c Config) (table *Table) {
	t.Helper()
	ebpftest.Do(t, host, func() (err error) {
		table, err = Open(c)
		return err
	})
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	before := table.Epoch()
	// The first look at the routes ends the first epoch.
	netlabtest.Eventually(t, "routes are followed", func() bool { return table.Epoch() > before || table.routes.Load() > 0 })
	return table
}

// add enters the flow in the present epoch.
func (n *natFlow) add(table *Table) (id uint32, err error) {
	n.flow.Epoch = table.Epoch()
	ebpftest.Do(n.t, n.host, func() error {
		id, err = table.Add(n.flow)
		return nil
	})
	return id, err
}

// renew renews a flow in the present epoch, and reports whether that was possible.
func (n *natFlow) renew(table *Table, id uint32) (ok bool) {
	ebpftest.Do(n.t, n.host, func() error {
		ok = table.Renew(id, table.Epoch())
		return nil
	})
	return ok
}

func (n *natFlow) mustAdd(table *Table) uint32 {
	n.t.Helper()
	id, err := n.add(table)
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}
