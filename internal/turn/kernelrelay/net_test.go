package kernelrelay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// relayNet is a client, a gateway that is no router, and a peer, in a namespace each.
func relayNet(name string) netlab.Topology {
	return netlab.Topology{
		Name:       name,
		Namespaces: []netlab.Namespace{{Name: "client"}, {Name: "gateway"}, {Name: "peer"}},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.1.0.2/24 fd00:1::2/64", "gateway front 10.1.0.1/24 fd00:1::1/64"),
			netlab.Cable("peer eth0 10.2.0.2/24 fd00:2::2/64", "gateway back 10.2.0.1/24 fd00:2::1/64"),
		},
	}
}

// relayTestbed is one bound channel: the sockets at both ends, and a gateway in user space that relays what reaches it.
type relayTestbed struct {
	t            *testing.T
	client, peer *net.UDPConn
	channel      Channel
	listener     *net.UDPConn
	relay        *net.UDPConn
	slow         chan string // what went through user space: up or down
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

// newRelayTestbed opens the sockets at addresses of the client, the listener, the relay and the peer.
func newRelayTestbed(t *testing.T, client, gateway, peer *netlab.Host, at [4]string) *relayTestbed {
	t.Helper()
	r := &relayTestbed{t: t, slow: make(chan string, 4096)}
	r.client, r.listener = listenUDP(t, client, at[0]), listenUDP(t, gateway, at[1])
	r.relay, r.peer = listenUDP(t, gateway, at[2]), listenUDP(t, peer, at[3])
	r.channel = Channel{Client: address(r.client), Listener: address(r.listener), Relay: address(r.relay), Peer: address(r.peer), Number: 0x4abc}
	go r.serve(r.listener, "up", func(b []byte) []byte {
		if len(b) < 4 || binary.BigEndian.Uint16(b) != r.channel.Number || int(binary.BigEndian.Uint16(b[2:]))+4 > len(b) {
			return nil
		}
		return b[4 : 4+binary.BigEndian.Uint16(b[2:])]
	}, r.relay, r.channel.Peer)
	go r.serve(r.relay, "down", func(b []byte) []byte { return channelData(r.channel.Number, b) }, r.listener, r.channel.Client)
	return r
}

func channelData(number uint16, b []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, number)
	return append(binary.BigEndian.AppendUint16(out, uint16(len(b))), b...)
}

func (r *relayTestbed) serve(from *net.UDPConn, direction string, shift func([]byte) []byte, by *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 1<<16)
	for {
		n, _, err := from.ReadFromUDPAddrPort(b)
		if err != nil {
			return // closed
		}
		if out := shift(b[:n]); out != nil {
			r.slow <- direction // before it leaves: who received it knows that it is here
			by.WriteToUDPAddrPort(out, to)
		}
	}
}

// exchange sends one datagram in each direction and wants it unchanged. It says how many went through user space.
func (r *relayTestbed) exchange(data, padding []byte) (up, down int) {
	r.t.Helper()
	sent := append(channelData(r.channel.Number, data), padding...)
	if got, from := r.pass(r.client, sent, r.channel.Listener, r.peer); !bytes.Equal(got, data) || from != r.channel.Relay {
		r.t.Fatalf("the peer got %d bytes from %s, want %d from %s", len(got), from, len(data), r.channel.Relay)
	}
	want := channelData(r.channel.Number, data)
	if got, from := r.pass(r.peer, data, r.channel.Relay, r.client); !bytes.Equal(got, want) || from != r.channel.Listener {
		r.t.Fatalf("the client got %d bytes from %s, want %d from %s", len(got), from, len(want), r.channel.Listener)
	}
	for {
		select {
		case direction := <-r.slow:
			if direction == "up" {
				up++
			} else {
				down++
			}
		default:
			return up, down
		}
	}
}

// pass sends from one socket until the other has received, for the kernel may drop datagrams.
func (r *relayTestbed) pass(from *net.UDPConn, b []byte, to netip.AddrPort, at *net.UDPConn) ([]byte, netip.AddrPort) {
	r.t.Helper()
	in := make([]byte, 1<<16)
	for range 20 {
		if _, err := from.WriteToUDPAddrPort(b, to); err != nil {
			r.t.Fatal(err)
		}
		at.SetReadDeadline(time.Now().Add(3 * time.Second))
		n, source, err := at.ReadFromUDPAddrPort(in)
		if err == nil {
			return in[:n], netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			r.t.Fatal(err)
		}
	}
	r.t.Fatalf("%d bytes to %s do not come through", len(b), to)
	return nil, netip.AddrPort{}
}

// startRelay opens a Relay in a namespace, ended with the test.
func startRelay(t *testing.T, host *netlab.Host, c Config) (o *Relay) {
	t.Helper()
	ebpftest.Do(t, host, func() (err error) {
		o, err = Open(c)
		return err
	})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// families are the addresses of client, listener, relay and peer.
func families() map[string][4]string {
	client4, listener4, relay4, peer4 := "10.1.0.2:0", "10.1.0.1:0", "10.2.0.1:0", "10.2.0.2:0"
	client6, listener6, relay6, peer6 := "[fd00:1::2]:0", "[fd00:1::1]:0", "[fd00:2::1]:0", "[fd00:2::2]:0"
	return map[string][4]string{
		"4to4": {client4, listener4, relay4, peer4}, "6to6": {client6, listener6, relay6, peer6},
		"4to6": {client4, listener4, relay6, peer6}, "6to4": {client6, listener6, relay4, peer4},
	}
}

// TestRootOffloadRelays sends datagrams of many sizes both ways, through user space alone and through the kernel on both
// hooks: what arrives is the same, and the kernel relays all that it can.
func TestRootOffloadRelays(t *testing.T) {
	t.Parallel()
	for _, hook := range []attach.Hook{attach.HookAuto, attach.HookXDP, attach.HookTCX} {
		for name, at := range families() {
			t.Run(hook.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				lab := netlabtest.Up(t, relayNet("turnoff"+hook.String()+name))
				gateway := lab.Namespace("gateway")
				r := newRelayTestbed(t, lab.Namespace("client"), gateway, lab.Namespace("peer"), at)
				want := sizesThrough(r) // hook auto stands for none here
				if hook == attach.HookAuto {
					return
				}
				o := startRelay(t, gateway, Config{Interfaces: []string{"front", "back"}, Hook: hook})
				id, err := o.Add(r.channel)
				if err != nil {
					t.Fatal(err)
				}
				got := sizesThrough(r)
				up, down, err := o.Remove(id)
				if err != nil {
					t.Fatal(err)
				}
				report := o.Report()
				t.Log(report, up, down)
				if unresolved := int(report.Packets["no_next_hop"]); got[0]+got[1] > unresolved || unresolved > 8 {
					t.Errorf("through user space %v, of %v without the kernel; %d before the neighbour was known", got, want, unresolved)
				}
				if int(up.Packets)+got[0] < exchanges || int(down.Packets)+got[1] < exchanges {
					t.Errorf("the kernel relayed %d and %d, user space %v, want %d in all", up.Packets, down.Packets, got, exchanges)
				}
				if up.Last.IsZero() || time.Since(up.Last) > time.Minute || time.Since(up.Last) < -time.Second {
					t.Errorf("last seen %s", up.Last)
				}
			})
		}
	}
}

// exchanges is how many datagrams in one piece sizesThrough has each way, but for those that were sent again.
const exchanges = 15 * 4

// sizesThrough exchanges datagrams of all kinds of sizes, and says how many user space relayed.
func sizesThrough(r *relayTestbed) (slow [2]int) {
	for _, n := range []int{0, 1, 2, 3, 4, 5, 17, 18, 63, 100, 101, 555, 1200, 1400, 1440, 3000} {
		for padding := range 4 {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i + n)
			}
			up, down := r.exchange(data, []byte{0, 7, 9}[:min(padding, 3)])
			if n == 3000 { // in fragments: always user space
				up, down = 0, 0
			}
			slow[0] += up
			slow[1] += down
		}
	}
	return slow
}

// TestRootOffloadEnds: without permission the peer's packets end, with it they come again; once a channel is removed user
// space relays; a bandwidth that is used up ends packets; Close leaves nothing.
func TestRootOffloadEnds(t *testing.T) {
	t.Parallel()
	for _, hook := range ebpftest.Hooks() {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, relayNet("turnend"+hook.String()))
			gateway := lab.Namespace("gateway")
			r := newRelayTestbed(t, lab.Namespace("client"), gateway, lab.Namespace("peer"), families()["4to4"])
			o := startRelay(t, gateway, Config{Interfaces: []string{"front", "back"}, Hook: hook})
			id, err := o.Add(r.channel)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.Add(r.channel); !errors.Is(err, ErrUnsuited) {
				t.Errorf("the same channel twice: %v", err)
			}
			r.exchange([]byte("first"), nil)
			r.exchange([]byte("first"), nil)
			if err := o.Permit(id, false); err != nil {
				t.Fatal(err)
			}
			refused := o.Report().Packets["permission"]
			if _, err := r.peer.WriteToUDPAddrPort([]byte("refused"), r.channel.Relay); err != nil {
				t.Fatal(err)
			}
			netlabtest.Eventually(t, "a packet without permission", func() bool { return o.Report().Packets["permission"] > refused })
			if err := o.Permit(id, true); err != nil {
				t.Fatal(err)
			}
			r.exchange([]byte("permitted again"), nil)
			before := o.Report().Packets
			if _, _, err := o.Remove(id); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if up, down := r.exchange([]byte("by user space"), nil); up == 0 || down == 0 {
					t.Error("the kernel relays a channel that was removed")
				}
			}
			if after := o.Report().Packets; after["up"] != before["up"] || after["down"] != before["down"] {
				t.Errorf("relayed %v before Remove, %v after", before, after)
			}
			if _, _, err := o.Remove(id); err == nil {
				t.Error("removed twice")
			}
			limited := r.channel
			limited.BytesPerSecond, limited.Burst = 1, 5000
			if _, err = o.Add(limited); err != nil {
				t.Fatal(err)
			}
			netlabtest.Eventually(t, "a packet beyond the bandwidth", func() bool {
				_, err := r.client.WriteToUDPAddrPort(channelData(limited.Number, make([]byte, 1000)), limited.Listener)
				return err != nil || o.Report().Packets["bandwidth"] > 0
			})
			if err := o.Counters(func(_ uint32, up, down Traffic) {
				if up.Bytes+down.Bytes > 5000 {
					t.Errorf("%d bytes went through, with a credit of 5000", up.Bytes+down.Bytes)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
			newRelayTestbed(t, lab.Namespace("client"), gateway, lab.Namespace("peer"), families()["4to4"]).exchange([]byte("after the end"), nil)
			ebpftest.Do(t, gateway, func() error { return nothingLeft("front", "back") })
		})
	}
}

// nothingLeft wants interfaces without programs, and lo as it was.
func nothingLeft(interfaces ...string) error {
	for _, family := range []string{"ipv4", "ipv6"} {
		b, err := os.ReadFile("/proc/sys/net/" + family + "/conf/lo/forwarding")
		if err != nil || string(b) != "0\n" {
			return fmt.Errorf("lo forwards %s: %q, %w", family, b, err)
		}
	}
	for _, name := range interfaces {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if list := attach.TCXNeighbours(i.Index, nil); len(list) > 0 {
			return fmt.Errorf("%s still has %v", name, list)
		}
	}
	return nil
}

// TestRootOffloadLoopback relays where client, gateway and peer are one machine.
func TestRootOffloadLoopback(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]string{"4": "127.0.0.1:0", "6": "[::1]:0", "own": "10.1.0.1:0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, relayNet("turnlo"+name))
			gateway := lab.Namespace("gateway")
			r := newRelayTestbed(t, gateway, gateway, gateway, [4]string{a, a, a, a})
			o := startRelay(t, gateway, Config{Interfaces: []string{"lo"}})
			if _, err := o.Add(r.channel); err != nil {
				t.Fatal(err)
			}
			if slow := sizesThrough(r); slow != [2]int{} {
				t.Errorf("user space relayed %v: %v", slow, o.Report())
			}
		})
	}
}

// TestRootOffloadFollowsNeighbour gives the peer another link address, which no one says: relaying goes on.
func TestRootOffloadFollowsNeighbour(t *testing.T) {
	t.Parallel()
	topology := relayNet("turnneigh")
	topology.Namespaces[1].Sysctls = []netlab.Sysctl{
		{Key: "net.ipv4.neigh.back.base_reachable_time_ms", Value: "500"},
		{Key: "net.ipv4.neigh.back.delay_first_probe_time", Value: "1"},
		{Key: "net.ipv4.neigh.back.retrans_time_ms", Value: "100"},
	}
	lab := netlabtest.Up(t, topology)
	peer := lab.Namespace("peer")
	r := newRelayTestbed(t, lab.Namespace("client"), lab.Namespace("gateway"), peer, families()["4to4"])
	o := startRelay(t, lab.Namespace("gateway"), Config{Interfaces: []string{"front", "back"}, Hook: attach.HookTCX})
	if _, err := o.Add(r.channel); err != nil {
		t.Fatal(err)
	}
	netlabtest.Eventually(t, "a packet relayed in the kernel", func() bool {
		up, _ := r.exchange([]byte("before"), nil)
		return up == 0
	})
	ebpftest.Do(t, peer, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 9, 9})
	})
	netlabtest.Eventually(t, "a packet to the new link address, relayed in the kernel", func() bool {
		if _, err := r.client.WriteToUDPAddrPort(channelData(r.channel.Number, []byte("after")), r.channel.Listener); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		r.peer.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := r.peer.Read(b)
		return err == nil && string(b[:n]) == "after"
	})
}

// TestRootOffloadSegments sends many datagrams in one buffer (UDP_SEGMENT): TCX leaves them to user space, XDP sees them one
// by one; all arrive.
func TestRootOffloadSegments(t *testing.T) {
	t.Parallel()
	for _, hook := range ebpftest.Hooks() {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, relayNet("turnseg"+hook.String()))
			r := newRelayTestbed(t, lab.Namespace("client"), lab.Namespace("gateway"), lab.Namespace("peer"), families()["4to4"])
			o := startRelay(t, lab.Namespace("gateway"), Config{Interfaces: []string{"front", "back"}, Hook: hook})
			if _, err := o.Add(r.channel); err != nil {
				t.Fatal(err)
			}
			r.exchange([]byte("first"), nil)
			raw, err := r.client.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			const size, count = 504, 10
			raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) })
			if err != nil {
				t.Fatal(err)
			}
			var burst []byte
			for i := range count {
				burst = append(burst, channelData(r.channel.Number, bytes.Repeat([]byte{byte(i)}, size-4))...)
			}
			if _, err := r.client.WriteToUDPAddrPort(burst, r.channel.Listener); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1<<16)
			r.peer.SetReadDeadline(time.Now().Add(20 * time.Second))
			for i := range count {
				n, err := r.peer.Read(b)
				if err != nil || n != size-4 || b[0] != byte(i) {
					t.Fatalf("datagram %d: %d bytes, of number %d, %v", i, n, b[0], err)
				}
			}
			if n := o.Report().Packets["segments"]; (n > 0) != (hook == attach.HookTCX) {
				t.Errorf("%d buffers of several datagrams", n)
			}
		})
	}
}
