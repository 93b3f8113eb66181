package coap

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// peer is a program driven over its standard input; see testdata/californium and testdata/peers.
type peer struct {
	t       testing.TB
	in      io.WriteCloser
	out     *bufio.Scanner
	process *exec.Cmd
}

// runPeer runs a program until the test ends.
func runPeer(t testing.TB, process *exec.Cmd) *peer {
	t.Helper()
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	c := &peer{t: t, in: in, out: bufio.NewScanner(out), process: process}
	t.Cleanup(func() {
		in.Close() // ends it
		dead := time.AfterFunc(30*time.Second, func() { _ = process.Process.Kill() })
		defer dead.Stop()
		_ = process.Wait()
	})
	return c
}

// ready waits until the program says so.
func (c *peer) ready() {
	c.t.Helper()
	if line := c.line(); line != "READY" {
		c.t.Fatalf("%s says %q", c.process.Path, line)
	}
}

func (c *peer) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("%s ended: %v", c.process.Path, c.out.Err())
	}
	return c.out.Text()
}

// do sends one request and returns code and payload.
func (c *peer) do(request string) (code, payload string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, request); err != nil {
		c.t.Fatal(err)
	}
	code, rest, _ := strings.Cut(c.line(), " ")
	_, payload, _ = strings.Cut(rest, " ")
	return code, strings.ReplaceAll(payload, `\n`, "\n")
}

// portNAT forwards one client's datagrams to a server and changes its outgoing port on request.
type portNAT struct {
	t      testing.TB
	inside *net.UDPConn

	mu      sync.Mutex
	server  *net.UDPAddr // guarded by mu
	client  *net.UDPAddr // guarded by mu
	outside *net.UDPConn // guarded by mu
}

func newPortNAT(t testing.TB, server string) *portNAT {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	n := &portNAT{t: t, inside: inside, server: to}
	n.rebind()
	go func() {
		var buf [2048]byte
		for {
			size, from, err := inside.ReadFromUDP(buf[:])
			if err != nil {
				return
			}
			n.mu.Lock()
			n.client = from
			_, _ = n.outside.Write(buf[:size])
			n.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		inside.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.outside.Close()
	})
	return n
}

func (n *portNAT) address() string { return n.inside.LocalAddr().String() }

// rebind forgets the mapping: from now on datagrams leave by a new port, and what comes to the old one is lost.
func (n *portNAT) rebind() {
	n.t.Helper()
	n.mu.Lock()
	server := n.server
	n.mu.Unlock()
	outside, err := net.DialUDP("udp", nil, server)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	old := n.outside
	n.outside = outside
	n.mu.Unlock()
	if old != nil {
		old.Close()
	}
	go func() {
		var buf [20000]byte
		for {
			size, err := outside.Read(buf[:])
			if err != nil {
				return
			}
			n.mu.Lock()
			client := n.client
			n.mu.Unlock()
			if client != nil {
				_, _ = n.inside.WriteToUDP(buf[:size], client)
			}
		}
	}()
}

// redirect sends what follows to another server, from a new port, as a balancer does that forgot its flows.
func (n *portNAT) redirect(server string) {
	n.t.Helper()
	to, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	n.server = to
	n.mu.Unlock()
	n.rebind()
}

func (n *portNAT) port() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, port, _ := net.SplitHostPort(n.outside.LocalAddr().String())
	return port
}

// fields reads the "name: value" lines of /mycontext.
func fields(payload string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(payload) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		all[name] = strings.TrimSpace(value)
	}
	return all
}

// Californium's client with connection ids behind a NAT that changes its port four times: one handshake, the same session,
// and the server answers to, and shows, each new port.
func TestCaliforniumMovesThroughNAT(t *testing.T) {
	clitest.TakesSeconds(t)
	page := handshaketest.SuitesOfPage(t, "Californium 3", "client", func(s record.Suite) bool { return s.KeyExchange() == record.PSK })
	client := startClusterClient(t)
	for _, c := range []struct {
		suite     string
		cidLength int
	}{
		{"TLS_PSK_WITH_AES_128_CCM_8", 0},
		{"TLS_PSK_WITH_AES_128_CCM_8", 4},
		{"TLS_PSK_WITH_AES_128_GCM_SHA256", 0},
		{"TLS_PSK_WITH_AES_128_CCM", 6},
	} {
		t.Run(fmt.Sprintf("%s/cid%d", c.suite, c.cidLength), func(t *testing.T) {
			s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--node-id", "5")
			nat := newPortNAT(t, strings.TrimPrefix(s.Uris[0], "coaps://"))
			client.session(t, strconv.Itoa(c.cidLength), "cali.nat", ".fornium", c.suite)
			base := "coaps://" + nat.address()

			ports, cid := map[string]bool{}, ""
			for move := range 5 {
				if move > 0 {
					nat.rebind()
				}
				code, payload := client.do("POST " + base + "/benchmark?rlen=64 40")
				if code != "2.04" || len(payload) != 64 {
					t.Fatalf("move %d: benchmark %s %q", move, code, payload)
				}
				code, payload = client.do("GET " + base + "/mycontext")
				seen := fields(payload)
				if code != "2.05" || seen["port"] != nat.port() || seen["node-id"] != "5" || seen["peer"] != "cali.nat" || seen["cipher-suite"] != c.suite {
					t.Fatalf("move %d: %s, NAT port %s:\n%s", move, code, nat.port(), payload)
				}
				page.Made(seen["cipher-suite"])
				if len(seen["write-cid"]) != 2*c.cidLength || len(seen["read-cid"]) != 12 || !strings.HasPrefix(seen["read-cid"], "05") {
					t.Errorf("move %d: read-cid %q write-cid %q", move, seen["read-cid"], seen["write-cid"])
				}
				if cid != "" && seen["read-cid"] != cid {
					t.Errorf("move %d: another session: read-cid %s, was %s", move, seen["read-cid"], cid)
				}
				cid, ports[seen["port"]] = seen["read-cid"], true
			}
			// Long answers to an address not yet proven: small blocks, until the answer to a ping has proven it.
			nat.rebind()
			for range 2 {
				if code, payload := client.do("POST " + base + "/benchmark?rlen=1000 40"); code != "2.04" || len(payload) != 1000 {
					t.Fatalf("long answer after a move: %s, %d bytes", code, len(payload))
				}
			}
			if n := s.Metric("weir_coap_engine_amplified_total"); n != 0 {
				t.Errorf("%v answers were withheld", n)
			}
			if n := s.Await("weir_coap_engine_addresses_proven_total", -1); n < 1 || s.Metric("weir_coap_exchange_probes_total") < n {
				t.Errorf("%v addresses proven, %v probes", n, s.Metric("weir_coap_exchange_probes_total"))
			}
			if len(ports) != 5 {
				t.Errorf("the server saw %d ports, want 5", len(ports))
			}
			if n := s.Await("weir_coap_engine_handshakes_total", 1); n != 1 {
				t.Errorf("%v handshakes, want 1", n)
			}
			if n := s.Await("weir_coap_engine_address_changes_total", 5); n != 5 {
				t.Errorf("%v address changes, want 5", n)
			}
		})
	}
}

// Californium's client, whose records land on the wrong node of a cluster and back on its own: the owner serves them all.
func TestCaliforniumInCluster(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	addresses := clitest.FreeAddresses(t, 4)
	var nodes []*coaptest.Server
	for i := range 2 {
		nodes = append(nodes, coaptest.Start(t, 1, "--dtls-cluster", clitest.ClusterArgs(addresses, i)))
	}
	nat := newPortNAT(t, addresses[0])
	client := startClusterClient(t)
	base := "coaps://" + nat.address()
	for move, at := range []int{0, 2, 0, 2, 2} { // index of the node's address
		if move > 0 {
			nat.redirect(addresses[at])
		}
		code, payload := client.do("GET " + base + "/mycontext")
		seen := fields(payload)
		via := ""
		if at != 0 {
			via = "dtls-cid-router"
		}
		if code != "2.05" || seen["node-id"] != "1" || seen["port"] != nat.port() || seen["via"] != via || !strings.HasPrefix(seen["read-cid"], "01") {
			t.Errorf("move %d to %s, from port %s: %s\n%s", move, addresses[at], nat.port(), code, payload)
		}
		if code, payload := client.do("POST " + base + "/benchmark?rlen=1000&ack 40"); code != "2.04" || len(payload) != 1000 {
			t.Errorf("move %d: %s, %d bytes", move, code, len(payload))
		}
	}
	for i, want := range []float64{1, 0} {
		if n := nodes[i].Metric("weir_coap_engine_handshakes_total"); n != want {
			t.Errorf("node %d: %v handshakes, want %v", i+1, n, want)
		}
	}
	if n := nodes[1].Metric("weir_coap_cluster_forwarded_total"); n < 6 {
		t.Errorf("node 2 forwarded %v records", n)
	}
	if n := nodes[1].Metric("weir_coap_cluster_sent_backwarded_total"); n < 6 {
		t.Errorf("node 2 sent %v replies of node 1", n)
	}
}

// A cluster of a Weir node and a Californium node, on the wire format of the latter: each serves its sessions through the other.
func TestClusterWithCalifornium(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	addresses := clitest.FreeAddresses(t, 4) // public and management of node 1 (Weir), of node 2 (Californium)
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	weir := coaptest.Start(t, 1, "--dtls-cluster", clitest.ClusterArgs(addresses, 0))
	startJava(t, 3, "weir.Node", port(addresses[2]), port(addresses[3]), "2", "1", addresses[1])

	client := startClusterClient(t)
	serveThrough(t, client, addresses[0], addresses[2], "1")
	serveThrough(t, client, addresses[2], addresses[0], "2")
	for name, least := range map[string]float64{"forwarded": 3, "backwarded": 3, "processed_forwarded": 3, "sent_backwarded": 3} {
		if n := weir.Metric("weir_coap_cluster_" + name + "_total"); n < least {
			t.Errorf("%s: %v frames, want at least %v", name, n, least)
		}
	}
	for _, name := range []string{"dropped_forward", "dropped_backward", "strangers", "malformed"} {
		if n := weir.Metric("weir_coap_cluster_" + name + "_total"); n != 0 {
			t.Errorf("%s: %v", name, n)
		}
	}
}

// Separate responses, blocks and errors as Californium's own client reads them.
func TestCaliforniumExchanges(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0")
	client := startCalifornium(t, -1, "Client_identity", "secretPSK", "TLS_PSK_WITH_AES_128_CCM_8")
	for request, want := range map[string]string{
		"POST " + s.Uris[0] + "/benchmark?ack&rlen=3000 40": "2.04 hello benchmark" + strings.Repeat("*", 2985),
		"GET " + s.Uris[0] + "/separate":                    "2.05 Type: 0 (CON)",
		"GET " + s.Uris[0] + "/nope":                        "4.04 no such resource",
		"POST " + s.Uris[0] + "/benchmark?ahead=1 1":        `4.02 query "ahead=1" is not supported`,
		"GET " + s.Uris[0] + "/mycontext":                   "2.05 ip: 127.0.0.1",
	} {
		code, payload := client.do(request)
		if got := code + " " + payload; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
		if strings.HasSuffix(request, "/mycontext") && strings.Contains(payload, "read-cid") {
			t.Errorf("a connection id for a client that offered none:\n%s", payload)
		}
	}
}
