package ebpf

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// twoClients has two clients and one backend. Routed: the backend's replies
// come back through the balancer; else it knows its own wire only.
func twoClients(name string, routed bool) netlab.Topology {
	backend := netlab.Namespace{Name: "zone1"}
	if routed {
		backend.Routes = netlab.Default("10.2.0.1", "2001:db8::2:1")
	}
	link := func(from, gateway, net4, net6 string) netlab.Link {
		return netlab.Cable(from+" eth0 "+net4+".2/24 "+net6+":2/112", "gateway "+gateway+" "+net4+".1/24 "+net6+":1/112")
	}
	return netlab.Topology{
		Name: name,
		Namespaces: []netlab.Namespace{
			{Name: "gateway", Forward: true},
			backend,
			{Name: "client1", Routes: netlab.Default("10.1.1.1", "2001:db8:1:1::1")},
			{Name: "client2", Routes: netlab.Default("10.1.2.1", "2001:db8:1:2::1")},
		},
		Links: []netlab.Link{
			link("client1", "veth1", "10.1.1", "2001:db8:1:1:"), link("client2", "veth2", "10.1.2", "2001:db8:1:2:"),
			link("zone1", "veth3", "10.2.0", "2001:db8::2"),
		},
	}
}

const oneBackend = `
  backends:
  - {name: a, address: "10.2.0.2", address2: "2001:db8::2:2", port: 8080}
`

var threeVeths = []string{"veth1", "veth2", "veth3"}

// TestRootZonDefectSameSourcePort: two clients that use one source port at the same
// time, TCP and UDP, with their own addresses toward the backend and with the
// balancer's.
func TestRootZonDefectSameSourcePort(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		for _, snat := range []string{"", `  snat: {addresses: ["10.2.0.1", "2001:db8::2:1"]}` + "\n"} {
			t.Run(fmt.Sprint(hook, "/snat=", snat != ""), func(t *testing.T) {
				t.Parallel()
				lab := netlabtest.Up(t, twoClients("ebtwo"+hook.String(), snat == ""))
				serve(t, lab.Namespace("zone1"), ":8080")
				start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
					"services:\n- name: echo\n  mode: nat\n"+snat+vips[1:]+oneBackend[1:])
				for _, vip := range bothVIPs {
					var open []net.Conn
					for _, network := range []string{"tcp", "udp"} {
						for i := range 2 {
							host := lab.Namespace([]string{"client1", "client2"}[i])
							c := dialFrom(t, host, network, fmt.Sprintf(localOf(vip), i+1), vip)
							open = append(open, c)
						}
					}
					// All are open by now; each gets its own answer.
					for i, c := range open {
						ask(t, c, fmt.Sprintf("client %d of %s", i, vip))
					}
				}
			})
		}
	}
}

// localOf is the form of a client's address in the VIP's family.
func localOf(vip string) string {
	if vip[0] == '[' {
		return "[2001:db8:1:%d::2]:40000"
	}
	return "10.1.%d.2:40000"
}

// dialFrom opens a connection from a given local address.
func dialFrom(t *testing.T, host *netlab.Host, network, from, to string) net.Conn {
	t.Helper()
	var c net.Conn
	ebpftest.Do(t, host, func() error {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		local := net.Addr(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)))
		if network == "udp" {
			local = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))
		}
		dialer.LocalAddr = local
		var err error
		c, err = dialer.Dial(network, to)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a text that serve answers, and checks that: UDP gets it back, and is asked again when the machine drops it;
// TCP gets its hash.
func ask(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, 2048)
	if tcp, ok := c.(*net.TCPConn); ok {
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		tcp.CloseWrite()
		want := sha256.Sum256([]byte(text))
		if n, err := io.ReadFull(c, b[:len(want)]); err != nil || !bytes.Equal(b[:n], want[:]) {
			t.Errorf("%s: %x, %v", text, b[:n], err)
		}
		return
	}
	other := ""
	for try := range 20 {
		if _, err := fmt.Fprintf(c, "%s/%d", text, try); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		for {
			n, err := c.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if strings.HasPrefix(string(b[:n]), text+"/") {
				return
			}
			other = string(b[:n]) // late, of an earlier question; never the answer to this one
		}
	}
	t.Errorf("%s: no answer; the last datagram was %q", text, other)
}

// TestRootZonDefectZeroChecksum: UDP without a checksum (RFC 768) passes NAT as it came.
func TestRootZonDefectZeroChecksum(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, twoClients("ebzero"+hook.String(), true))
			serve(t, lab.Namespace("zone1"), ":8080")
			start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			zeroChecksum(t, lab.Namespace("client1"))
		})
	}
}

// zeroChecksum sends ten datagrams without a checksum; each comes back.
func zeroChecksum(t *testing.T, client *netlab.Host) {
	t.Helper()
	c := dialFrom(t, client, "udp", "10.1.1.2:0", "10.0.0.1:80").(*net.UDPConn)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var option error
	if err := raw.Control(func(fd uintptr) {
		option = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	}); err != nil || option != nil {
		t.Fatal(err, option)
	}
	for i := range 10 {
		ask(t, c, fmt.Sprint("without a checksum ", i))
	}
}

// TestRootHopLimit: each way through the balancer costs one.
func TestRootHopLimit(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, twoClients("ebttl"+hook.String(), true))
			hops := serveHops(t, lab.Namespace("zone1"))
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			send := func(ttl int) {
				t.Helper()
				ebpftest.Do(t, lab.Namespace("client1"), func() error {
					c, err := net.Dial("udp4", "10.0.0.1:80")
					if err != nil {
						return err
					}
					defer c.Close()
					raw, err := c.(syscall.Conn).SyscallConn()
					if err != nil {
						return err
					}
					var option error
					err = raw.Control(func(fd uintptr) { option = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) })
					_, sent := c.Write([]byte{byte(ttl)})
					return errors.Join(err, option, sent)
				})
			}
			send(1) // dies at the balancer
			send(2)
			send(64)
			for _, want := range []int{2, 64} {
				select {
				case got := <-hops:
					if got != [2]int{want, want - 1} {
						t.Errorf("sent with %d, came with %d", got[0], got[1])
					}
				case <-time.After(10 * time.Second):
					t.Fatal("nothing came")
				}
			}
			if n := counted(t, b, "ttl_expired"); n != 1 {
				t.Errorf("%d counted as ttl_expired, want 1", n)
			}
		})
	}
}

// serveHops reports the first byte and the TTL of each datagram.
func serveHops(t *testing.T, host *netlab.Host) <-chan [2]int {
	t.Helper()
	hops := make(chan [2]int, 16)
	ebpftest.Do(t, host, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 8080})
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var option error
		if err := raw.Control(func(fd uintptr) {
			option = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
		}); err != nil || option != nil {
			return errors.Join(err, option)
		}
		go func() {
			b, control := make([]byte, 16), make([]byte, 128)
			for {
				_, n, _, _, err := c.ReadMsgUDP(b, control)
				if err != nil {
					return
				}
				messages, _ := unix.ParseSocketControlMessage(control[:n])
				for _, m := range messages {
					if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL {
						hops <- [2]int{int(b[0]), int(m.Data[0])}
					}
				}
			}
		}()
		return nil
	})
	return hops
}
