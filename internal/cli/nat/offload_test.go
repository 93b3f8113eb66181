package nat

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// offloadLab is a client, a NAT that is no router, and a server in a namespace each.
func offloadLab(name string) netlab.Topology {
	return netlab.Topology{
		Name:       name,
		Namespaces: []netlab.Namespace{{Name: "client"}, {Name: "nat"}, {Name: "server"}},
		Links: []netlab.Link{
			{
				A: netlab.End{Namespace: "client", Name: "eth0", Addresses: netlab.Prefixes("10.1.0.2/24", "fd00:1::2/64")},
				B: netlab.End{Namespace: "nat", Name: "front", Addresses: netlab.Prefixes("10.1.0.1/24", "fd00:1::1/64")},
			},
			{
				A: netlab.End{Namespace: "server", Name: "eth0", Addresses: netlab.Prefixes("10.2.0.2/24", "fd00:2::2/64")},
				B: netlab.End{Namespace: "nat", Name: "back", Addresses: netlab.Prefixes("10.2.0.1/24", "fd00:2::1/64")},
			},
		},
	}
}

// echoIn answers every datagram at an address of a namespace until the test ends.
func echoIn(t *testing.T, host *netlab.Host, at string) string {
	t.Helper()
	conn := socketIn(t, host, at)
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

func socketIn(t *testing.T, host *netlab.Host, at string) (conn *net.UDPConn) {
	t.Helper()
	clitest.Must(t, host.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echoed sends until the same bytes come back from where they were sent to.
func echoed(t *testing.T, conn *net.UDPConn, to netip.AddrPort, payload string) {
	t.Helper()
	b := make([]byte, 1<<16)
	for range 20 {
		if _, err := conn.WriteToUDPAddrPort([]byte(payload), to); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if from != to {
				t.Fatalf("an answer from %s, want %s", from, to)
			}
			if string(b[:n]) == payload {
				return
			}
		}
	}
	t.Fatalf("no echo of %d bytes through %s", len(payload), to)
}

// programs names the programs on the ingress hooks of the NAT's interfaces.
func programs(t *testing.T, host *netlab.Host) (list []string) {
	t.Helper()
	clitest.Must(t, host.Do(func() error {
		for _, name := range []string{"lo", "front", "back"} {
			i, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			for _, p := range attach.TCXNeighbours(i.Index, nil) {
				list = append(list, name+": "+p)
			}
		}
		return nil
	}))
	return list
}

// TestRootNATOffload runs the NAT between two networks: flows are in the kernel after some answers, fragments and datagrams beyond
// the MTU come through, and nothing is left on any interface, whether the process is interrupted or killed.
func TestRootNATOffload(t *testing.T) {
	for family, at := range map[string][3]string{"4": {"10.1.0.2:0", "10.1.0.1:5784", "10.2.0.2:5684"}, "6": {"[fd00:1::2]:0", "[fd00:1::1]:5784", "[fd00:2::2]:5684"}} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, offloadLab("natoff"+family))
			host, to := lab.Namespace("nat"), netip.MustParseAddrPort(at[1])
			server := echoIn(t, lab.Namespace("server"), at[2])
			for _, end := range []string{"interrupt", "kill"} {
				p := clitest.StartIn(t, host, "nat "+end, "nat", at[1], "--", server, "--offload", "tcx", "--json")
				if list := programs(t, host); len(list) > 0 {
					t.Errorf("before any flow: %v", list)
				}
				conn := socketIn(t, lab.Namespace("client"), at[0])
				const n = 50
				for i := range n {
					echoed(t, conn, to, fmt.Sprint("datagram ", i))
				}
				var status v1.NATStatus
				p.Status(&status)
				c := status.NAT.Counters
				if c.Received < n || c.Forwarded != c.Received || c.Backwarded < n || c.OffloadForwarded < n-10 || c.OffloadBackwarded < n-10 {
					t.Errorf("%d exchanges: %+v, offload %+v", n, c, status.NAT.Offload)
				}
				if list := programs(t, host); len(list) != 2 {
					t.Errorf("programs %v, want one on front and one on back", list)
				}
				echoed(t, conn, to, strings.Repeat("fragment", 1000))
				for range 5 {
					echoed(t, conn, to, "in the kernel again")
				}
				if samples := clitest.HTTPGet(t, p.Socket, "/metrics"); !strings.Contains(samples, "weir_nat_offload_flows 1\n") {
					t.Errorf("no flow in the metrics: %s", samples)
				}
				if end == "interrupt" {
					p.Stop()
				} else {
					clitest.Must(t, p.Cmd.Process.Kill())
					<-p.Ended
				}
				if list := programs(t, host); len(list) > 0 {
					t.Errorf("after %s: %v", end, list)
				}
			}
		})
	}
}

// With none user space forwards everything. TestRootPrivileges has what tcx says where a capability is missing.
func TestRootNATWithoutOffload(t *testing.T) {
	lab := netlabtest.Up(t, offloadLab("natmode"))
	host, to := lab.Namespace("nat"), netip.MustParseAddrPort("10.1.0.1:5784")
	server := echoIn(t, lab.Namespace("server"), "10.2.0.2:0")
	p := clitest.StartIn(t, host, "nat", "nat", to.String(), "--", server, "--offload", "none")
	conn := socketIn(t, lab.Namespace("client"), "10.1.0.2:0")
	for range 10 {
		echoed(t, conn, to, "in user space")
	}
	var status v1.NATStatus
	p.Status(&status)
	if c := status.NAT.Counters; status.NAT.Offload != nil || c.OffloadForwarded != 0 || c.Forwarded < 10 {
		t.Errorf("%+v, offload %+v", c, status.NAT.Offload)
	}
	if list := programs(t, host); len(list) > 0 {
		t.Errorf("programs %v", list)
	}
}
