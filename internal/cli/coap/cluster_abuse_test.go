package coap

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// abuser sends datagrams with any source, and has read those that nodes sent each other.
type abuser struct {
	t        *testing.T
	fd       int // raw socket
	random   *rand.Rand
	captured []linkDatagram
}

type linkDatagram struct {
	from, to netip.AddrPort
	payload  []byte
}

func (a *abuser) send(from, to netip.AddrPort, payload []byte) {
	a.t.Helper()
	build := packet.Build{Src: from, Dst: to, Proto: flow.ProtoUDP, Payload: payload}
	if err := unix.Sendto(a.fd, build.Append(nil), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
		a.t.Fatal(err)
	}
}

// capture reads n datagrams between ports from the loopback interface, forwarded ones of both directions among them.
func (a *abuser) capture(fd, n int, ports map[uint16]bool) {
	a.t.Helper()
	kinds := map[byte]bool{}
	buffer := make([]byte, 1<<16)
	for len(a.captured) < n || !kinds[cluster.TypeIn] || !kinds[cluster.TypeOut] {
		size, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			a.t.Fatalf("no traffic between the nodes: %v", err)
		}
		b := buffer[:size]
		if len(b) < 29 || b[0] != 0x45 || b[9] != flow.ProtoUDP {
			continue
		}
		from, to := binary.BigEndian.Uint16(b[20:]), binary.BigEndian.Uint16(b[22:])
		if !ports[from] || !ports[to] || len(a.captured) > 20*n {
			continue
		}
		kinds[b[28]] = true
		a.captured = append(a.captured, linkDatagram{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:16])), from), netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), to), bytes.Clone(b[28:]),
		})
	}
}

// round sends each kind of abuse: what strangers send, what a node seems to send, and what a node has sent.
func (a *abuser) round(victim netip.AddrPort) {
	stranger := netip.MustParseAddrPort("127.0.0.77:7777")
	records := unhexAll(a.t, cidRecord, ownRecord, plainRecord, alertRecord, finishRecord)
	for range 200 {
		d := a.captured[a.random.IntN(len(a.captured))]
		a.send(d.from, d.to, d.payload)                                   // repeated
		a.send(stranger, d.to, d.payload)                                 // by somebody else
		a.send(victim, d.to, d.payload)                                   // as if the victim were a node
		a.send(d.from, d.to, d.payload[:a.random.IntN(len(d.payload)+1)]) // truncated
		a.send(d.from, d.to, append(bytes.Clone(d.payload), make([]byte, 60000)...))
		forged := bytes.Clone(d.payload)
		forged[a.random.IntN(len(forged))] ^= byte(1 + a.random.IntN(255))
		a.send(d.from, d.to, forged)
		if kind := d.payload[0]; kind == cluster.TypeIn || kind == cluster.TypeOut { // sent to the victim instead
			a.send(d.from, d.to, append(cluster.AppendHeader(nil, cluster.TypeOut, victim), d.payload[8:]...))
			a.send(d.from, d.to, append(cluster.AppendHeader(nil, cluster.TypeIn, victim), d.payload[8:]...))
		}
		for _, kind := range []byte{cluster.TypeIn, cluster.TypeOut} { // without a code, as to a cluster that is not secured
			a.send(d.from, d.to, append(cluster.AppendHeader(nil, kind, victim), bytes.Repeat([]byte{0x19}, 40)...))
		}
		a.send(d.from, d.to, records[a.random.IntN(len(records))])
		a.send(d.from, d.to, cluster.AppendPing(nil, cluster.Ping{Type: cluster.TypePing, Node: uint32(a.random.IntN(4))}))
	}
}

// Datagrams that are forged in the name of nodes, truncated, too long, repeated and many reach a secured cluster under load, of which
// everything on the link is known to the attacker: no third party receives anything, the sessions of the link stay, and no client
// loses a request or its session.
func TestRootClusterAbuse(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := netlabtest.Up(t, netlab.Topology{Name: "clusterabuse", Namespaces: []netlab.Namespace{{Name: "host"}}})
	host := lab.Namespace("host")
	addresses := []string{"127.0.0.1:15784", "127.0.0.1:15884", "127.0.0.1:25784", "127.0.0.1:25884"}
	var nodes []*clitest.Process
	for i := range 2 {
		nodes = append(nodes, clitest.StartIn(t, host, fmt.Sprintf("node %d", i+1), "coap", "server", "--no-supervisor", "--workers", "1",
			"--dtls-cluster", clitest.ClusterArgs(addresses, i), "--dtls-cluster-group-security", testSecret))
	}
	for _, n := range nodes {
		awaitNodesUp(n)
	}
	nat := clitest.StartIn(t, host, "nat", "nat", "127.0.0.1:5784", "--", addresses[0], addresses[2])
	a := &abuser{t: t, random: rand.New(rand.NewPCG(1, 2))}
	var capture int
	var victim *net.UDPConn
	if err := host.Do(func() (err error) {
		if a.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
			return err
		}
		if capture, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0x0008); err != nil { // ETH_P_IP in network order
			return err
		}
		victim, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 9999})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = unix.Close(a.fd), unix.Close(capture), victim.Close() })
	if err := unix.SetsockoptTimeval(capture, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		t.Fatal(err)
	}

	load := exec.Command(os.Args[0], "coap", "bench", "coaps://127.0.0.1:5784/benchmark?rlen=40", "--clients", "20", "--requests", "1000000", "--duration", "3s", "--interval", "5ms", "--json", "--quiet")
	var out clitest.LockedBuffer
	load.Stdout, load.Stderr = &out, os.Stderr
	if err := host.Start(load); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- load.Wait() }()
	awaitSessions(t, nodes, 20)
	nat.Console("clear")
	a.capture(capture, 300, map[uint16]bool{15884: true, 25884: true})
	rounds, deadline := 0, time.After(60*time.Second)
	for running := true; running; rounds++ {
		a.round(victim.LocalAddr().(*net.UDPAddr).AddrPort())
		select {
		case err := <-ended:
			if running = false; err != nil {
				t.Errorf("load: %v", err)
			}
		case <-deadline:
			_ = load.Process.Kill()
			t.Fatal("the load does not end")
		case <-time.After(20 * time.Millisecond): // the abuse leaves time for the load
		}
	}
	checkAbused(t, nodes, out.String()) // which awaits the nodes, so that whatever they send has been sent
	queue, err := victim.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Control(func(fd uintptr) {
		if n, _, err := unix.Recvfrom(int(fd), make([]byte, 2048), unix.MSG_DONTWAIT); err == nil {
			t.Errorf("the victim received %d bytes", n)
		}
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d rounds of 200", rounds)
}

// awaitSessions waits until the nodes have sessions of so many clients.
func awaitSessions(t *testing.T, nodes []*clitest.Process, want uint64) {
	t.Helper()
	netlabtest.Eventually(t, "every client has a session", func() bool {
		sessions := uint64(0)
		for _, n := range nodes {
			var status node.Status
			n.Status(&status)
			sessions += status.Listeners[0].Engine.Sessions
		}
		return sessions >= want
	})
}

// checkAbused checks the nodes, and the load's report, after the abuse.
func checkAbused(t *testing.T, nodes []*clitest.Process, report string) {
	t.Helper()
	var result struct {
		Stats struct {
			Requests     int `json:"requests"`
			Lost         int `json:"lost"`
			Failed       int `json:"failed"`
			Rehandshakes int `json:"rehandshakes"`
			Repeated     int `json:"retransmissions"`
		} `json:"stats"`
	}
	if err := json.Unmarshal([]byte(report), &result); err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	if s := result.Stats; s.Requests == 0 || s.Lost != 0 || s.Failed != 0 || s.Rehandshakes != 0 {
		t.Errorf("load: %+v", s)
	}
	t.Logf("load: %+v", result.Stats)
	var reached cluster.Stats // both nodes: one may have received nothing of a kind
	for i, n := range nodes {
		n.Alive()
		awaitNodesUp(n)
		status := nodeStatus(n)
		c := status.Cluster
		if c.LinkSessions != 1 || c.LinkFailed != 0 || status.Engine.Handshakes == 0 {
			t.Errorf("node %d: %+v", i+1, *c)
		}
		t.Logf("node %d: %+v, %d replayed records, %d datagrams dropped by the kernel", i+1, *c, status.Engine.Replays, status.Engine.KernelDrops)
		reached.BadForward += c.BadForward
		reached.BadBackward += c.BadBackward
		reached.DroppedForward += c.DroppedForward + c.DroppedBackward
		reached.Strangers += c.Strangers
		reached.Malformed += c.Malformed
		reached.LinkRefused += c.LinkRefused
		reached.ProcessedForwarded += status.Engine.Replays
	}
	if c := reached; c.BadForward == 0 || c.BadBackward == 0 || c.DroppedForward == 0 || c.Strangers == 0 || c.Malformed == 0 || c.LinkRefused == 0 || c.ProcessedForwarded == 0 {
		t.Errorf("the abuse did not get through: %+v", c)
	}
}
