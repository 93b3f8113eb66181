package snatplan_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/lab/netlab"
	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/lab/snatplan"
)

// The kernel's own NAT, told to give each node a block of ports as Azure's balancer does, lets through what the planner
// says, to the connection.
func TestRootKernelNATMeetsThePlan(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "nft")
	for _, s := range []snatplan.Scenario{
		{Name: "1,024", Connections: 1500, Path: []snatplan.StageSpec{{Kind: snatplan.AzureLB}}},
		{Name: "8,000", Connections: 9000, Path: []snatplan.StageSpec{{Kind: snatplan.AzureLB, Ports: 8000}}},
		{Name: "16,000", Nodes: 2, Replicas: 2, Connections: 8500, Path: []snatplan.StageSpec{{Kind: snatplan.AzureLB, Ports: 8000, IPs: 2}}},
	} {
		t.Run(s.Name, func(t *testing.T) {
			s = s.WithDefaults()
			plan := s.Plan()
			lab := netlabtest.Up(t, natRig())
			var rules strings.Builder
			rules.WriteString("table ip weir {\n chain post {\n type nat hook postrouting priority 100;\n")
			for i := range s.Nodes {
				fmt.Fprintf(&rules, " ip saddr 10.9.1.%d meta l4proto tcp snat to 10.9.2.%d:1024-%d\n", 11+i, 11+i, 1023+plan.PerNode)
			}
			rules.WriteString(" }\n}\n")
			nft := exec.Command("nft", "-f", "-")
			nft.Stdin = strings.NewReader(rules.String())
			if err := lab.Namespace("router").Run(nft); err != nil {
				t.Fatal(err)
			}
			server := listen(t, lab.Namespace("server"))
			defer unix.Close(server)
			got := offer(t, lab.Namespace("client"), s, plan.Holds)
			if got != plan.Holds {
				t.Errorf("the kernel let %d through, the plan says %d", got, plan.Holds)
			}
		})
	}
}

// natRig is client – router – server. The client's two addresses are two nodes.
func natRig() netlab.Topology {
	return netlab.Topology{
		Name: "snatplan",
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: []netlab.Route{{To: netip.MustParsePrefix("10.9.2.0/24"), Via: netip.MustParseAddr("10.9.1.1")}}},
			{Name: "router", Forward: true},
			// The kernel finishes handshakes up to the queue's length: nobody has to accept, and descriptors are spared.
			{Name: "server", Sysctls: []netlab.Sysctl{{Key: "net.core.somaxconn", Value: "65535"}, {Key: "net.ipv4.tcp_max_syn_backlog", Value: "65535"}}},
		},
		Links: []netlab.Link{
			{A: netlab.End{Namespace: "client", Name: "eth0", Addresses: netlab.Prefixes("10.9.1.11/24", "10.9.1.12/24")}, B: netlab.End{Namespace: "router", Name: "eth0", Addresses: netlab.Prefixes("10.9.1.1/24")}},
			{A: netlab.End{Namespace: "router", Name: "eth1", Addresses: netlab.Prefixes("10.9.2.1/24", "10.9.2.11/24", "10.9.2.12/24")}, B: netlab.End{Namespace: "server", Name: "eth0", Addresses: netlab.Prefixes("10.9.2.2/24")}},
		},
	}
}

func listen(t *testing.T, server *netlab.Host) (fd int) {
	t.Helper()
	err := server.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 2, 2}, Port: 10000}); err != nil {
			return err
		}
		return unix.Listen(fd, 65535)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// offer connects as many sockets as the scenario wants without blocking, and counts those that get through until the
// wanted number has and SYNs were sent again after that, or half a minute is over.
func offer(t *testing.T, client *netlab.Host, s snatplan.Scenario, want int64) (open int64) {
	t.Helper()
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // RST: nothing stays in TIME_WAIT
			unix.Close(fd)
		}
	}()
	err := client.Do(func() error {
		for i := range s.Connections {
			for node := range s.Nodes {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return fmt.Errorf("socket %d: %w", i, err)
				}
				fds = append(fds, fd)
				_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
				if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 1, byte(11 + node)}}); err != nil {
					return err
				}
				if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 2, 2}, Port: 10000}); err != unix.EINPROGRESS && err != nil {
					return fmt.Errorf("connect %d: %w", i, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	again := 0
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && again < 4; {
		if open = established(fds); open >= want {
			again++ // the others' SYNs come again meanwhile: at 1, 3, 7 s
		}
		time.Sleep(time.Second)
	}
	return open
}

// established counts the sockets whose handshake is over.
func established(fds []int) (n int64) {
	for _, fd := range fds {
		if _, err := unix.Getpeername(fd); err == nil {
			n++
		}
	}
	return n
}
