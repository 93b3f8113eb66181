package udpio

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A socket that has joined a group receives what comes to it; one bound to every address of the same port does not, also while its host
// is a member.
func TestOnlyMembersReceiveMulticast(t *testing.T) {
	device, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for name, all := range map[string]netip.Addr{"both families": {}, "IPv4": netip.IPv4Unspecified()} {
		t.Run(name, func(t *testing.T) {
			wild, err := Listen(Config{Addr: netip.AddrPortFrom(all, 0), Shared: true})
			if err != nil {
				t.Fatal(err)
			}
			defer wild.Close()
			to := netip.AddrPortFrom(netip.MustParseAddr("224.0.1.187"), wild.LocalAddr().Port())
			member, err := Listen(Config{Addr: to, Join: device.Index})
			if err != nil {
				t.Fatal(err)
			}
			defer member.Close()
			sender, err := Bind(netip.MustParseAddrPort("127.0.0.1:0"), SocketOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer sender.Close()
			if err := unix.SetsockoptIPMreqn(sender.FD(), unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(device.Index)}); err != nil {
				t.Fatal(err)
			}
			if err := sender.SendTo([]byte("group"), to); err != nil {
				t.Fatal(err)
			}
			messages := NewMessages(4, 100)
			n, err := member.Conn(0).ReadBatch(messages, 30*time.Second)
			if err != nil || n != 1 || string(messages[0].Buf[:messages[0].N]) != "group" {
				t.Fatalf("the member: %d, %v", n, err)
			}
			// The kernel gives a datagram to all sockets before the first of them is read.
			if n, err := wild.Conn(0).ReadBatch(messages, 0); n != 0 || err != nil && !errors.Is(err, ErrWoken) {
				t.Errorf("a socket that joined nothing received %d datagrams to %s, %v", n, messages[0].Local, err)
			}
		})
	}
}
