package ebpf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// balancer is a running data path in a namespace.
type balancer struct {
	t    *testing.T
	host *netlab.Host
	d    *Datapath
}

// start opens a data path in a namespace, applies a spec and runs it.
func start(t *testing.T, host *netlab.Host, c Config, spec string) *balancer {
	t.Helper()
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	b := &balancer{t: t, host: host}
	ebpftest.Do(t, host, func() error {
		var err error
		b.d, err = Open(c)
		return err
	})
	b.apply(spec)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := b.d.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *balancer) apply(spec string) {
	b.t.Helper()
	decoded, _, err := config.Decode[lb.Spec]("spec.yaml", []byte(spec))
	if err != nil {
		b.t.Fatal(err)
	}
	snapshot, err := lb.Compile(decoded, nil, b.d.Caps())
	if err != nil {
		b.t.Fatal(err)
	}
	ebpftest.Do(b.t, b.host, func() error { return b.d.Apply(snapshot) })
}

// longest is how long the entry that expires last has to live.
func (b *balancer) longest() (left time.Duration) {
	for _, bucket := range b.d.tables.Flows {
		for _, w := range bucket.Slots {
			if w.Fingerprint > 1 {
				left = max(left, time.Duration(int64(w.Meta>>bpf.ExpiryShift)-int64(b.d.now()))*b.d.clock.Tick)
			}
		}
	}
	return left
}

// accept serves every TCP connection to an address of the current namespace, until the test ends.
func accept(t *testing.T, address string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return nil
}

// serve answers, in a namespace, TCP with the hash of what it got, and UDP with
// the datagram itself.
func serve(t *testing.T, host *netlab.Host, address string) {
	t.Helper()
	ebpftest.Do(t, host, func() error {
		if err := accept(t, address, func(c net.Conn) {
			h := sha256.New()
			io.Copy(h, c)
			c.Write(h.Sum(nil))
		}); err != nil {
			return err
		}
		u, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { u.Close() })
		go func() {
			b := make([]byte, 65535)
			for {
				n, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				u.WriteTo(b[:n], from)
			}
		}()
		return nil
	})
}

// sendTCP sends size bytes and checks the server's hash of them.
func sendTCP(t *testing.T, host *netlab.Host, to string, size int) {
	t.Helper()
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(data)
	ebpftest.Do(t, host, func() error {
		c, err := net.DialTimeout("tcp", to, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Write(data); err != nil {
			return err
		}
		c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil {
			return err
		}
		if want := sha256.Sum256(data); !bytes.Equal(got, want[:]) {
			return fmt.Errorf("%d bytes to %s came as others", size, to)
		}
		return nil
	})
}

// sendUDP sends one datagram and wants it back, asking again when it is lost.
func sendUDP(t *testing.T, host *netlab.Host, from, to string, size int) {
	t.Helper()
	data := bytes.Repeat([]byte{7, 1, 200}, size/3+1)[:size]
	ebpftest.Do(t, host, func() error {
		var local net.Addr
		if from != "" {
			local = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))
		}
		c, err := (&net.Dialer{LocalAddr: local}).Dial("udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 65535)
		for range 20 {
			if _, err := c.Write(data); err != nil {
				return err
			}
			c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			n, err := c.Read(b)
			if err != nil {
				continue
			}
			if !bytes.Equal(b[:n], data) {
				return fmt.Errorf("%d bytes to %s came back as %d others", size, to, n)
			}
			return nil
		}
		return fmt.Errorf("%d bytes to %s: no answer", size, to)
	})
}

const natSpec = `
services:
- name: echo
  mode: nat
  vips:
  - {address: "10.0.0.1", protocol: tcp, port: 80}
  - {address: "10.0.0.1", protocol: udp, port: 80}
  - {address: "2001:db8::1", protocol: tcp, port: 80}
  - {address: "2001:db8::1", protocol: udp, port: 80}
  backends:
  - {name: a, address: "10.2.0.2", address2: "2001:db8::2:2", port: 8080}
  - {name: b, address: "10.3.0.2", address2: "2001:db8::3:2", port: 8080}
`

func TestRootNATCarriesBytes(t *testing.T) {
	t.Parallel()
	for _, hook := range []attach.Hook{attach.HookTCX, attach.HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := netlab.NAT()
			topology.Name = "ebnat" + hook.String()
			lab := netlabtest.Up(t, topology)
			for _, zone := range []string{"zone1", "zone2"} {
				serve(t, lab.Namespace(zone), ":8080")
			}
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2", "veth3"}, Hook: hook}, natSpec)
			client := lab.Namespace("zone0")
			sendUDP(t, client, "", "10.0.0.1:80", 10)
			if left := b.longest(); left < 110*time.Second || left > 121*time.Second {
				t.Errorf("the entry of a flow of now lives %s more, want the 2m of udp: user space reads another clock than the program", left)
			}
			for _, vip := range []string{"10.0.0.1:80", "[2001:db8::1]:80"} {
				for range 4 {
					sendTCP(t, client, vip, 1<<20)
				}
				for _, size := range []int{0, 1, 1200, 1472} {
					sendUDP(t, client, "", vip, size)
				}
			}
		})
	}
}

// shuffled sends a datagram as fragments in a random order, from a raw socket.
func shuffled(t *testing.T, host *netlab.Host, from, to netip.AddrPort, size int, id int) {
	t.Helper()
	line := fmt.Sprintf("udp %s > %s payload=%d id=%d frag=1400", from, to, size, id)
	d, err := packet.ParseText(line)
	if err != nil {
		t.Fatal(err)
	}
	ebpftest.Do(t, host, func() error {
		family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: to.Addr().As4()})
		if to.Addr().Is6() {
			return fmt.Errorf("IPv4 only")
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, i := range rand.Perm(len(d.Packets)) {
			if err := unix.Sendto(fd, d.Packets[i], 0, sa); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestRootShuffledFragmentsArriveWhole(t *testing.T) {
	t.Parallel()
	for _, hook := range []attach.Hook{attach.HookTCX, attach.HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := netlab.NAT()
			topology.Name = "ebfrag" + hook.String()
			lab := netlabtest.Up(t, topology)
			for _, zone := range []string{"zone1", "zone2"} {
				serve(t, lab.Namespace(zone), ":8080")
			}
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2", "veth3"}, Hook: hook}, "limits: {held_per_datagram: 64}\n"+natSpec)
			client := lab.Namespace("zone0")
			// In order, as the kernel sends them, both ways and both families.
			sendUDP(t, client, "", "10.0.0.1:80", 30000)
			sendUDP(t, client, "", "[2001:db8::1]:80", 30000)
			vip := netip.MustParseAddrPort("10.0.0.1:80")
			ebpftest.Do(t, client, func() error {
				c, err := net.ListenPacket("udp", "10.0.0.2:7777")
				if err != nil {
					return err
				}
				defer c.Close()
				buffer := make([]byte, 65535)
				for i := range 5 {
					for try := range 10 { // a busy machine may drop a fragment
						shuffled(t, client, netip.MustParseAddrPort("10.0.0.2:7777"), vip, 30000, 100+10*i+try)
						c.SetReadDeadline(time.Now().Add(2 * time.Second))
						n, _, err := c.ReadFrom(buffer)
						if err == nil && n != 30000 {
							return fmt.Errorf("datagram %d came back as %d bytes", i, n)
						}
						if err == nil {
							break
						}
						if try == 9 {
							return fmt.Errorf("datagram %d: %w; %+v", i, err, b.d.Counters().Other)
						}
					}
				}
				return nil
			})
			if n := b.d.Counters().Other[lb.ReasonFragmentEarly].Packets; n == 0 {
				t.Error("no fragment came early: the test shows nothing")
			}
		})
	}
}

func TestRootTwoClientsWithOnePortAndZeroChecksums(t *testing.T) {
	t.Parallel()
	for _, hook := range []attach.Hook{attach.HookTCX, attach.HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := netlab.NAT()
			topology.Name = "ebport" + hook.String()
			topology.Links[0].A.Addresses = append(topology.Links[0].A.Addresses, netlab.Prefixes("10.0.0.3/24")...)
			lab := netlabtest.Up(t, topology)
			serve(t, lab.Namespace("zone1"), ":8080")
			spec := natSpec[:strings.LastIndex(natSpec, "  - {name: b")]
			spec = strings.Replace(spec, "  backends:", "  snat: {addresses: [\"10.2.0.1\", \"2001:db8::2:1\"], ports: 20000-20999}\n  backends:", 1)
			start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2"}, Hook: hook}, spec)
			client := lab.Namespace("zone0")
			for _, from := range []string{"10.0.0.2:5555", "10.0.0.3:5555"} {
				sendUDP(t, client, from, "10.0.0.1:80", 100)
			}
			c := dialFrom(t, client, "udp", "10.0.0.2:0", "10.0.0.1:80")
			raw, err := c.(*net.UDPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var option error
			err = raw.Control(func(fd uintptr) { option = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
			if err != nil || option != nil {
				t.Fatal(err, option)
			}
			for i := range 10 {
				ask(t, c, fmt.Sprint("zero ", i))
			}
		})
	}
}
