package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootTraceroute: each router on the way to a backend, and the balancer
// itself, reports where a hop limit ended; the next one up arrives.
func TestRootTraceroute(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, narrowChain(3, hook))
			serve(t, lab.Namespace("backend"), ":8080")
			b := start(t, lab.Namespace("lb"), Config{Interfaces: []string{"left", "right"}, Hook: hook}, chainSpec("nat"))
			for i, vip := range bothVIPs {
				// r2 is seen by the address that it has toward the balancer.
				want := [][]string{{"10.1.0.1", "10.2.0.2", "10.3.0.2"}, {"2001:db8:1::1", "2001:db8:2::2", "2001:db8:3::2"}}[i]
				for hop, address := range want {
					if got := hopAt(t, lab.Namespace("client"), vip, hop+1); got != netip.MustParseAddr(address) {
						t.Errorf("%s: hop %d is %s, want %s", vip, hop+1, got, address)
					}
				}
				if got := hopAt(t, lab.Namespace("client"), vip, len(want)+1); got != netip.MustParseAddrPort(vip).Addr() {
					t.Errorf("%s: the last hop is %s", vip, got)
				}
			}
			if counted(t, b, "ttl_expired") == 0 {
				t.Error("nothing counted as ttl_expired")
			}
		})
	}
}

// hopAt sends UDP with a hop limit and returns who answers: a router that it
// ended at, or the VIP.
func hopAt(t *testing.T, host *netlab.Host, to string, limit int) (from netip.Addr) {
	t.Helper()
	target := netip.MustParseAddrPort(to)
	ebpftest.Do(t, host, func() error {
		family, level, ttl, errors4 := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TTL, unix.IP_RECVERR
		var address unix.Sockaddr = &unix.SockaddrInet4{Port: int(target.Port()), Addr: as4(target.Addr())}
		if target.Addr().Is6() {
			family, level, ttl, errors4 = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_RECVERR
			address = &unix.SockaddrInet6{Port: int(target.Port()), Addr: target.Addr().As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.SetsockoptInt(fd, level, ttl, limit), unix.SetsockoptInt(fd, level, errors4, 1), unix.Connect(fd, address)); err != nil {
			return err
		}
		b, oob := make([]byte, 512), make([]byte, 512)
		for range 40 { // routers limit how many errors they send
			if _, err := unix.Write(fd, []byte("hop")); err != nil && !errors.Is(err, unix.EHOSTUNREACH) {
				return err
			}
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 500); err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			if n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT); err == nil && n > 0 {
				from = target.Addr()
				return nil
			}
			_, n, _, _, err := unix.Recvmsg(fd, b, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				continue
			}
			messages, err := unix.ParseSocketControlMessage(oob[:n])
			if err != nil {
				return err
			}
			for _, m := range messages {
				// struct sock_extended_err, 16 bytes, and the address of who complains.
				switch {
				case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR && len(m.Data) >= 24 && m.Data[5] == 11:
					from, _ = netip.AddrFromSlice(m.Data[20:24])
					return nil
				case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR && len(m.Data) >= 40 && m.Data[5] == 3:
					from, _ = netip.AddrFromSlice(m.Data[24:40])
					return nil
				}
			}
		}
		return fmt.Errorf("hop %d to %s: no program answers", limit, to)
	})
	return from
}

// TestRootWantedNeighbours: replies to clients whose neighbours are not known
// request each once a second, and for a thousand of them, so that held
// fragments keep their place in the ring.
func TestRootWantedNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	ebpftest.Do(t, w.host, func() error {
		w.there = true
		wire, err := netlink.LinkByName("lb0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(wire, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 254, 255, 254), Mask: net.CIDRMask(16, 32)}}); err != nil {
			return err
		}
		d := w.serving(t, attach.HookXDP, `
limits: {flows: 65536}
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}]
`)
		reply := func(client int, now time.Duration) error {
			a, _ := neighbourOf(client)
			for _, line := range []string{fmt.Sprintf("udp %s:5000 > 192.0.2.2:80", a), fmt.Sprintf("udp 10.2.0.1:80 > %s:5000", a)} {
				if _, _, _, err := w.run(d, frameOf(text(t, line)), now); err != nil {
					return err
				}
			}
			return nil
		}
		wanted := func() (n int, err error) {
			r, err := ringbuf.NewReader(d.tables.Maps[bpf.MapEvents])
			if err != nil {
				return 0, err
			}
			defer r.Close()
			r.SetDeadline(time.Unix(1, 0))
			for {
				if _, err := r.Read(); err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						err = nil
					}
					return n, err
				}
				n++
			}
		}
		for second := range 3 {
			for range 500 {
				if err := reply(1, time.Duration(second)*time.Second); err != nil {
					return err
				}
			}
		}
		if n, err := wanted(); n != 3 || err != nil {
			t.Errorf("requested one neighbour %d times in three seconds, %v", n, err)
		}
		for i := range manyClients {
			if err := reply(i, 10*time.Second); err != nil {
				return err
			}
		}
		if n, err := wanted(); n != 1000 || err != nil {
			t.Errorf("requested %d neighbours at once, %v", n, err)
		}
		return nil
	})
}
