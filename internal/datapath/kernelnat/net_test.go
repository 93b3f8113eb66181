package kernelnat

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootForwards sends datagrams of many sizes both ways: the kernel forwards all that fit into one packet, unchanged.
func TestRootForwards(t *testing.T) {
	t.Parallel()
	for name, p := range allPlaces() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, natNet("knat"+name))
			n := newFlow(t, lab, p)
			n.exchange([]byte("through user space"))
			table := open(t, lab.Namespace("nat"), Config{})
			id := n.mustAdd(table)
			sizes := []int{0, 1, 2, 3, 17, 18, 63, 100, 555, 1200, 1400}
			wantBytes := uint64(0)
			for _, size := range sizes {
				payload := make([]byte, size)
				for i := range payload {
					payload[i] = byte(i + size)
				}
				if forward, backward := n.exchangeIn(table, id, payload); forward+backward > 0 {
					t.Errorf("%d bytes: user space forwarded %d and %d: %+v", size, forward, backward, table.Report())
				}
				wantBytes += uint64(size)
			}
			to, back := table.Traffic(1)
			if to.Packets < uint64(len(sizes)) || back.Packets < uint64(len(sizes)) || to.Bytes < wantBytes || back.Bytes < wantBytes {
				t.Errorf("counted %+v and %+v, want %d datagrams of %d bytes", to, back, len(sizes), wantBytes)
			}
			// In fragments, both ways: user space forwards them.
			if p.client != "nat" {
				if forward, _ := n.exchange(make([]byte, 3000)); forward == 0 {
					t.Error("the kernel forwarded fragments")
				}
			}
			table.Remove(id)
			if forward, backward := n.exchange([]byte("after Remove")); forward == 0 || backward == 0 {
				t.Error("the kernel forwards a flow that was removed")
			}
		})
	}
}

// TestRootPortIsUsedAgain: the port of a flow that is gone belongs to the next one at once: what its old backend still sends there goes
// by the new flow, and what the old client sends reaches the socket.
func TestRootPortIsUsedAgain(t *testing.T) {
	t.Parallel()
	lab := netlabtest.Up(t, natNet("knatport"))
	n := newFlow(t, lab, allPlaces()["veth-veth-4"])
	table := open(t, lab.Namespace("nat"), Config{})
	id := n.mustAdd(table)
	n.exchange([]byte("first flow"))
	if _, err := n.add(table); err == nil {
		t.Fatal("the same flow twice")
	}
	n.exchange([]byte("still the first flow"))
	table.Remove(id)
	second := *n
	second.client, second.clients = listenUDP(t, lab.Namespace("client"), "10.1.0.2:0"), make(chan datagram, 4096)
	go read(second.client, func(d datagram) { second.clients <- d })
	second.flow.Client = address(second.client)
	id = second.mustAdd(table)
	if forward, backward := second.exchangeIn(table, id, []byte("second flow")); forward+backward > 0 {
		t.Errorf("user space forwarded %d and %d of the second flow", forward, backward)
	}
	if len(n.clients) > 0 {
		t.Error("the first client got an answer to the second")
	}
	n.pass(n.client, n.flow.VIP, n.servers, []byte("from the first client"), n.flow.Local)
	if drain(n.toVIP) == 0 {
		t.Error("the kernel forwards for a client whose flow is gone")
	}
	if n := table.Report().Flows; n != 1 {
		t.Errorf("%d flows, want 1", n)
	}
}

// TestRootTrains: datagrams that a sender hands over as one buffer (UDP_SEGMENT) are forwarded as such, and counted one by one.
func TestRootTrains(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"veth-veth-4", "veth-veth-6", "lo-lo-4", "veth-lo-4", "lo-veth-6"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, natNet("knattrain"+name))
			n := newFlow(t, lab, allPlaces()[name])
			n.exchange([]byte("neighbours are resolved"))
			table := open(t, lab.Namespace("nat"), Config{})
			id := n.mustAdd(table)
			const segments, size = 10, 100
			setSegment(t, n.client, size)
			train := make([]byte, segments*size)
			for i := range train {
				train[i] = byte(i / size)
			}
			var before, after Traffic
			n.steady(table, id, func() {
				before, _ = table.Traffic(1)
				if _, err := n.client.WriteToUDPAddrPort(train, n.flow.VIP); err != nil {
					t.Fatal(err)
				}
				for i := range segments {
					d := <-n.servers
					if d.from != n.flow.Local || !bytes.Equal(d.payload, train[i*size:(i+1)*size]) {
						t.Fatalf("segment %d: %d bytes from %s", i, len(d.payload), d.from)
					}
				}
				after, _ = table.Traffic(1)
			})
			if got := after.Packets - before.Packets; got != segments || after.Bytes-before.Bytes != segments*size || drain(n.toVIP) > 0 {
				t.Errorf("counted %d datagrams of %d bytes: %+v", got, after.Bytes-before.Bytes, table.Report())
			}
		})
	}
}

func setSegment(t *testing.T, c *net.UDPConn, size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// TestRootRoutesChange: a change of routes, addresses or links ends the epoch. A flow whose path is the same is renewed, any other one
// has to be added again.
func TestRootRoutesChange(t *testing.T) {
	t.Parallel()
	lab := netlabtest.Up(t, natNet("knatroute"))
	nat := lab.Namespace("nat")
	n := newFlow(t, lab, allPlaces()["veth-veth-4"])
	table := open(t, nat, Config{})
	id := n.mustAdd(table)
	payload := make([]byte, 1400)
	if forward, backward := n.exchangeIn(table, id, payload); forward+backward > 0 {
		t.Fatalf("user space forwarded %d and %d", forward, backward)
	}
	again := func(what string, renewed bool, commands ...string) {
		t.Helper()
		epoch := table.Epoch()
		for _, command := range commands {
			if _, err := nat.Exec(t.Context(), "ip", strings.Fields(command)...); err != nil {
				t.Fatal(err)
			}
		}
		netlabtest.Eventually(t, what+" ends the epoch", func() bool { return table.Epoch() != epoch && n.renew(table, id) == renewed })
		n.exchange([]byte(what))
		if !renewed {
			table.Remove(id)
			id = n.mustAdd(table)
		}
	}
	again("another address, the same path", true, "addr add 10.3.0.1/24 dev back")
	if forward, backward := n.exchangeIn(table, id, payload); forward+backward > 0 {
		t.Errorf("user space forwarded %d and %d", forward, backward)
	}
	again("smaller MTU", false, "link set back mtu 1300")
	n.pass(n.client, n.flow.VIP, n.servers, payload, n.flow.Local) // in fragments, by user space
	if drain(n.toVIP) == 0 || table.Report().Packets["too_big"] == 0 {
		t.Errorf("the kernel forwards beyond the MTU: %+v", table.Report())
	}
	again("MTU", false, "link set back mtu 1500")
	if forward, backward := n.exchangeIn(table, id, payload); forward+backward > 0 {
		t.Errorf("user space forwarded %d and %d", forward, backward)
	}
}
