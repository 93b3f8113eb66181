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

// natStats is the state of the data path.
func natStats(p *clitest.Process) v1.NATStats {
	p.T.Helper()
	var status v1.NATStatus
	p.Status(&status)
	return status.NAT
}

// inKernel exchanges datagrams until the kernel forwards them both ways.
func inKernel(t *testing.T, p *clitest.Process, conn *net.UDPConn, to netip.AddrPort) {
	t.Helper()
	netlabtest.Eventually(t, "the kernel forwards", func() bool {
		before := natStats(p).Counters
		echoed(t, conn, to, "until the kernel has it")
		after := natStats(p).Counters
		return after.OffloadForwarded > before.OffloadForwarded && after.OffloadBackwarded > before.OffloadBackwarded
	}, func() string { return fmt.Sprintf("%+v", natStats(p).Offload) })
}

// TestRootNATOffloadPathMTU: behind a router whose next link is smaller, a flow of large datagrams returns to user space, which sends them in
// fragments; its small ones are forwarded in the kernel again.
func TestRootNATOffloadPathMTU(t *testing.T) {
	t.Parallel()
	topology := offloadLab("natmtu")
	topology.Namespaces = append(topology.Namespaces, netlab.Namespace{Name: "far", Routes: []netlab.Route{{To: netip.MustParsePrefix("10.2.0.0/24"), Via: netip.MustParseAddr("10.3.0.1")}}})
	topology.Namespaces[1].Routes = []netlab.Route{{To: netip.MustParsePrefix("10.3.0.0/24"), Via: netip.MustParseAddr("10.2.0.2")}}
	topology.Namespaces[2].Forward = true
	topology.Links = append(topology.Links, netlab.Link{
		A:   netlab.End{Namespace: "server", Name: "next", Addresses: netlab.Prefixes("10.3.0.1/24")},
		B:   netlab.End{Namespace: "far", Name: "eth0", Addresses: netlab.Prefixes("10.3.0.2/24")},
		MTU: 1300,
	})
	lab := netlabtest.Up(t, topology)
	to := netip.MustParseAddrPort("10.1.0.1:5784")
	server := echoIn(t, lab.Namespace("far"), "10.3.0.2:0")
	p := clitest.StartIn(t, lab.Namespace("nat"), "nat", "nat", to.String(), "--", server, "--offload", "tcx")
	conn := socketIn(t, lab.Namespace("client"), "10.1.0.2:0")
	inKernel(t, p, conn, to)
	large := strings.Repeat("1400 bytes..", 1400/12)
	for range 3 {
		echoed(t, conn, to, large)
	}
	inKernel(t, p, conn, to)
	before := natStats(p)
	echoed(t, conn, to, large)
	after := natStats(p)
	if after.Offload.Packets["too_big"] == before.Offload.Packets["too_big"] || after.Offload.Flows != 1 {
		t.Errorf("the MTU of the path is not known: %+v", after.Offload)
	}
}

// TestRootNATOffloadInterfaceComesBack: an interface that is made again is used, and has the program, again.
func TestRootNATOffloadInterfaceComesBack(t *testing.T) {
	t.Parallel()
	lab := netlabtest.Up(t, offloadLab("natback"))
	host, to := lab.Namespace("nat"), netip.MustParseAddrPort("10.1.0.1:5784")
	server := echoIn(t, lab.Namespace("server"), "10.2.0.2:0")
	p := clitest.StartIn(t, host, "nat", "nat", ":5784", "--", server, "--offload", "tcx")
	conn := socketIn(t, lab.Namespace("client"), "10.1.0.2:0")
	inKernel(t, p, conn, to)
	run := func(host *netlab.Host, command string) {
		t.Helper()
		if out, err := host.Exec(t.Context(), "ip", strings.Fields(command)...); err != nil {
			t.Fatalf("ip %s: %v\n%s", command, err, out)
		}
	}
	run(host, "link del front")
	run(host, "link add front type veth peer name eth9")
	run(host, "addr add 10.1.0.1/24 dev front")
	run(host, "link set eth9 netns "+lab.Namespace("client").NetNS())
	run(host, "link set front up")
	run(lab.Namespace("client"), "addr add 10.1.0.2/24 dev eth9")
	run(lab.Namespace("client"), "link set eth9 up")
	inKernel(t, p, conn, to)
	if list := programs(t, host); len(list) != 2 {
		t.Errorf("programs %v, want one on front and one on back", list)
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
