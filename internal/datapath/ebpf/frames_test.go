package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// wire is a socket for whole frames on an interface.
type wire struct {
	t    *testing.T
	host *netlab.Host
	fd   int
	mac  [6]byte
}

func openWire(t *testing.T, host *netlab.Host, name string) *wire {
	t.Helper()
	w := &wire{t: t, host: host}
	index, mac, err := host.Interface(name)
	if err != nil {
		t.Fatal(err)
	}
	w.mac = mac
	ebpftest.Do(t, host, func() error {
		all := uint16(unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8)
		var err error
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		limit := unix.Timeval{Sec: 10}
		if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return err
		}
		// The kernel takes a tag off the frame; then it comes as metadata.
		if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	})
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.t.Fatal(err)
	}
}

// receive waits for a frame that comes in and that want likes, and returns its
// IP packet and its tag, 0 if none.
func (w *wire) receive(what string, want func(p *packet.Packet) bool) (packet.Packet, uint16) {
	w.t.Helper()
	b, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, cn, _, from, err := unix.Recvmsg(w.fd, b, control, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.t.Fatalf("%s: no %s: %v", w.host.Name(), what, err)
		}
		if sender, ok := from.(*unix.SockaddrLinklayer); ok && sender.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		var p packet.Packet
		frame := append([]byte(nil), b[:n]...)
		if packet.ParseFrame(frame, &p) != nil || !want(&p) {
			continue
		}
		return p, tagOf(control[:cn], frame)
	}
}

// tagOf reads the VLAN tag of a frame, in it or in its metadata.
func tagOf(control, frame []byte) uint16 {
	if frame[12] == 0x81 && frame[13] == 0 {
		return uint16(frame[14])<<8&0xf00 | uint16(frame[15])
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		// struct tpacket_auxdata: status, len, snaplen (4 bytes each), mac, net, vlan_tci, vlan_tpid
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20 && m.Data[0]&unix.TP_STATUS_VLAN_VALID != 0 {
			return uint16(m.Data[17])<<8&0xf00 | uint16(m.Data[16])
		}
	}
	return 0
}

// probeMTU sends datagrams of a size that must not be fragmented until the
// sender's kernel has learnt the MTU of the path, and returns it.
func probeMTU(t *testing.T, host *netlab.Host, to string, size int) (mtu int) {
	t.Helper()
	address := netip.MustParseAddrPort(to)
	ebpftest.Do(t, host, func() error {
		family, level, discover, get, always := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU, unix.IP_PMTUDISC_DO
		var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(address.Port()), Addr: as4(address.Addr())}
		if address.Addr().Is6() {
			family, level, discover, get, always = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU, unix.IPV6_PMTUDISC_DO
			sa = &unix.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, level, discover, always); err != nil {
			return err
		}
		if err := unix.Connect(fd, sa); err != nil {
			return err
		}
		for range 100 {
			_, err := unix.Write(fd, make([]byte, size))
			if errors.Is(err, unix.EMSGSIZE) {
				mtu, err = unix.GetsockoptInt(fd, level, get)
				return err
			}
			if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		return fmt.Errorf("%d bytes to %s: no one said that they are too many", size, to)
	})
	return mtu
}

func as4(a netip.Addr) (b [4]byte) {
	if a.Is4() {
		b = a.As4()
	}
	return b
}
