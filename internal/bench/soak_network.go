package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// soakNetwork is where programs and load run.
type soakNetwork struct {
	name                      string
	clients, balancer, server *netlab.Host     // nil: the host's own network
	sources                   []netip.Addr     // of the clients
	nodes                     []netip.AddrPort // addresses of the CoAP cluster: public, management, ...
	coap, udp, turn           netip.AddrPort
	sink                      netip.Addr     // of what TURN relays
	service                   netip.AddrPort // TCP and UDP behind the kernel data path; invalid without root
	respond                   netip.AddrPort // where the servers of all flows listen
}

// soakTopology is the clients, the balancers and the servers, each a host.
func soakTopology() *netlab.Topology {
	return &netlab.Topology{
		Name: "benchsoak",
		Namespaces: []netlab.Namespace{
			{Name: "clients", Routes: netlab.Default("10.81.1.1")},
			{Name: "balancer", Forward: true, Loopback: netlab.Prefixes("10.81.9.1/32")},
			{Name: "server", Routes: netlab.Default("10.81.2.1")},
		},
		Links: []netlab.Link{
			netlab.Cable("clients eth0 10.81.1.2/24 10.81.1.3/24 10.81.1.4/24 10.81.1.5/24", "balancer veth0 10.81.1.1/24"),
			netlab.Cable("balancer veth1 10.81.2.1/24", "server eth0 10.81.2.2/24"),
		},
	}
}

func (n *soakNetwork) useLab(lab *netlab.Lab) {
	n.name = "network namespaces"
	server := netip.MustParseAddr("10.81.2.2")
	n.clients, n.balancer, n.server = lab.Namespace("clients"), lab.Namespace("balancer"), lab.Namespace("server")
	for i := range 4 {
		n.sources = append(n.sources, netip.AddrFrom4([4]byte{10, 81, 1, byte(2 + i)}))
	}
	for i := range 2 {
		n.nodes = append(n.nodes, netip.AddrPortFrom(server, uint16(15784+i)), netip.AddrPortFrom(server, uint16(15884+i)))
	}
	n.coap, n.udp = netip.MustParseAddrPort("10.81.9.1:5784"), netip.MustParseAddrPort("10.81.9.1:7000")
	n.turn, n.service = netip.MustParseAddrPort("10.81.1.1:3478"), netip.MustParseAddrPort("10.81.9.2:7000")
	n.sink, n.respond = netip.MustParseAddr("10.81.2.2"), netip.MustParseAddrPort("10.81.2.2:7000")
}

func (n *soakNetwork) useLoopback() error {
	n.name = "loopback of the host; without root no kernel data path and no TCP flows"
	for i := range 4 {
		n.sources = append(n.sources, netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)}))
	}
	ports, err := freePorts(nil, 7)
	if err != nil {
		return err
	}
	n.nodes, n.coap, n.udp, n.turn = ports[:4], ports[4], ports[5], ports[6]
	n.sink = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	n.respond = netip.AddrPortFrom(n.sink, 0)
	return nil
}

const (
	// soakSessions is the bound of a node at the default load. All clients have one identity, so a full table would refuse new
	// sessions until one has been silent for 30 minutes: those of clients that vanished end after soakIdle.
	soakSessions = 300
	soakIdle     = "1m"
	soakEntries  = 2000
)

// startPrograms starts what is measured.
func (s *soak) startPrograms(ctx context.Context) error {
	n := &s.network
	for i := range len(n.nodes) / 2 {
		name := "node" + strconv.Itoa(i+1)
		err := s.start(ctx, "server", name, []string{"weir_coap_engine_sessions", "weir_coap_engine_half_open"},
			"coap", "server", "--no-supervisor", "--workers", "1", "--max-sessions", strconv.Itoa(s.times(soakSessions)), "--session-idle", soakIdle, "--dtls-cluster", clusterFlag(n.nodes, i))
		if err != nil {
			return err
		}
	}
	flows := []string{`weir_table_entries{datapath="udp",table="flows"}`}
	if err := s.start(ctx, "balancer", "nat-coap", flows, "nat", n.coap.String(), "--quiet", "--workers", "1",
		"--max-entries", strconv.Itoa(soakEntries), "--", n.nodes[0].String(), n.nodes[2].String()); err != nil {
		return err
	}
	answers, err := openResponder(n.server, n.respond, "server")
	if err != nil {
		return err
	}
	s.Undo = append(s.Undo, func() error { answers.close(); return nil })
	if err := s.start(ctx, "balancer", "nat-udp", flows, "nat", n.udp.String(), "--quiet", "--workers", "1",
		"--max-entries", strconv.Itoa(soakEntries), "--", answers.at().String()); err != nil {
		return err
	}
	err = s.start(ctx, "balancer", "turn", []string{"weir_turn_listener_allocations"}, "turn", "gateway",
		fmt.Sprintf("turn://%s:%s@%v?transport=udp", turnUser, turnPassword, n.turn), "--workers", "1", "--peers", n.sink.String(), "--drain-timeout", "1s")
	if err != nil {
		return err
	}
	// The process with the admin socket is the supervisor; the child serves.
	gateway := s.watched[len(s.watched)-1]
	supervisor := newWatched("turn-supervisor", gateway.daemon, nil)
	gateway.child, supervisor.alone = servingProcess, true
	s.watched = append(s.watched, supervisor)
	if n.service.IsValid() {
		return s.startKernel(ctx)
	}
	return nil
}

// servingProcess is the process that serves below a supervisor.
func servingProcess(ctx context.Context, d *programs.Daemon) (int, error) {
	var status struct {
		PID int `json:"pid"`
	}
	err := d.Get(ctx, "/status", &status)
	if err == nil && status.PID == 0 {
		err = errors.New("no process id in its status")
	}
	return status.PID, err
}

func (s *soak) start(ctx context.Context, namespace, name string, tables []string, args ...string) error {
	return s.watch(name, tables)(s.Daemon(ctx, namespace, name, args...))
}

// watch has the gauges of a daemon sampled.
func (s *soak) watch(name string, tables []string) func(*programs.Daemon, error) error {
	return func(d *programs.Daemon, err error) error {
		if d != nil {
			s.watched = append(s.watched, newWatched(name, d, tables))
		}
		return err
	}
}

// startKernel runs the kernel data path in mode NAT, for TCP and UDP.
func (s *soak) startKernel(ctx context.Context) error {
	n := &s.network
	at := n.service
	text := serviceConfig("nat", soakEntries, "", []string{vipOf(at.Addr(), "udp", at.Port()), vipOf(at.Addr(), "tcp", at.Port())}, fmt.Sprintf("name: server, address: %q", n.respond.Addr()))
	tables := []string{`weir_table_entries{datapath="ebpf",table="flows"}`, `weir_table_entries{datapath="ebpf",table="replies"}`}
	return s.watch("lb-ebpf", tables)(s.Kernel(ctx, "balancer", "soak", text, "veth0,veth1"))
}
