package privilege

// Need is a capability and what a command does with it.
type Need struct {
	Capability, For string
}

// Command is one row of the table.
type Command struct {
	Name  string // as typed, with the flag or key that makes the difference
	Needs []Need // none: any user
	Keys  bool   // holds keys or passwords: no core dumps
}

// Names of the commands that check themselves.
const (
	LBRunEBPF    = "weir lb run --datapath ebpf"
	LBRunNFQueue = "weir lb run --datapath nfqueue"
	LBRunFast    = "weir lb run --datapath nfqueue --interface"
	LBRunVRRP    = "weir lb run with announce.vrrp"
	LBRunTunnel  = "weir lb run with health.tunnel"
	LBStop       = "weir lb stop"
	LBTrace      = "weir lb trace"
	LBRules      = "weir lb rules --apply, --remove"
	LBDecap      = "weir lb decap"
	NATOffload   = "weir nat --offload tcx"
	TurnOffload  = "weir turn gateway with offload"
	Doctor       = "weir doctor"

	LabUp         = "weir lab up"
	LabExec       = "weir lab exec"
	LabDown       = "weir lab down"
	SNATLab       = "weir snat lab"
	SNATKernel    = "weir snat lab --nat kernel"
	TCPNamespace  = "weir tcp bench --via direct, nfqueue, nft-dnat, iptables-dnat"
	TCPKernel     = "weir tcp bench --via tcx, xdp, l2dsr, nfqueue-fast"
	TCPPeers      = "weir tcp bench --with"
	BenchEBPF     = "weir bench ebpf"
	BenchLive     = "weir bench ebpf --live"
	BenchMoved    = "weir bench coap --datapath ebpf"
	BenchDSR      = "weir bench run dsr, floods, chaos, idle-crash, kube-sessions, kube-scale"
	BenchFailover = "weir bench run failover"
	BenchNFQueue  = "weir bench run nfqueue"
	BenchDump     = "weir bench run dump"
)

// Commands lists what each command needs. A listener on a port below net.ipv4.ip_unprivileged_port_start (1024) needs
// CAP_NET_BIND_SERVICE as well.
func Commands() []Command {
	const (
		bpf     = "CAP_BPF"
		network = "CAP_NET_ADMIN"
		perfmon = "CAP_PERFMON"
	)
	load := Need{bpf, "load programs, make and read their tables"}
	pointers := Need{perfmon, "let programs compute with addresses of packets"}
	attach := Need{network, "attach programs, keep neighbours resolved"}
	names := Need{"CAP_DAC_OVERRIDE", "name namespaces in /run/netns, lock iptables, pin programs"}
	inside := Need{"CAP_SYS_ADMIN", "make and enter network namespaces"}
	build := Need{network, "set up interfaces, routes and rules in namespaces"}
	lab := []Need{names, build, inside}
	programs := append([]Need{load, pointers}, lab...)
	frames := append([]Need{{"CAP_NET_RAW", "send whole frames"}}, programs...)
	return []Command{
		{Name: "weir lb run --datapath udp"},
		{Name: LBRunNFQueue, Needs: []Need{{network, "take queues"}}},
		{Name: LBRunFast, Needs: []Need{load, {network, "take queues, attach programs"}, pointers}},
		{Name: LBRunEBPF, Needs: []Need{load, attach, pointers}},
		{Name: LBRunVRRP, Needs: []Need{{"CAP_NET_RAW", "send and receive advertisements, ARP and neighbour discovery"}, {network, "put addresses on an interface"}}},
		{Name: LBRunTunnel, Needs: []Need{{"CAP_NET_RAW", "send probes"}, load, attach, pointers}},
		{Name: LBStop, Needs: []Need{{bpf, "open what is pinned"}, {network, "give neighbours back to the kernel"}}},
		{Name: LBTrace, Needs: []Need{{bpf, "read the pinned tables"}}},
		{Name: LBRules, Needs: []Need{{network, "change iptables rules, routing rules and routes"}}},
		{Name: LBDecap, Needs: []Need{load, {network, "attach programs"}}},
		{Name: "weir lb status, show, flows, drain, undrain, down, up"},
		{Name: "weir lb rules --print"},
		{Name: "weir nat"},
		{Name: NATOffload, Needs: []Need{load, {network, "attach programs"}, pointers}},
		{Name: "weir coap server", Keys: true},
		{Name: "weir coap get", Keys: true},
		{Name: "weir coap bench", Keys: true},
		{Name: "weir turn gateway", Keys: true},
		{Name: TurnOffload, Needs: []Need{load, {network, "attach programs, request routes"}, pointers}, Keys: true},
		{Name: "weir turn cat", Keys: true},
		{Name: "weir tcp server, client, stats"},
		{Name: "weir tcp bench --namespace=false"},
		{Name: "weir check, explain, sim"},
		{Name: "weir snat plan, simulate, rules"},
		{Name: Doctor, Needs: []Need{{network, "read iptables rules"}, {"CAP_DAC_READ_SEARCH", "read the kernel's list of queues"}}},
		{Name: "weir demo"},
		{Name: LabUp, Needs: lab},
		{Name: LabExec, Needs: []Need{{"CAP_SYS_ADMIN", "enter a network namespace"}}},
		{Name: LabDown, Needs: []Need{{"CAP_DAC_OVERRIDE", "remove names from /run/netns"}, {"CAP_SYS_ADMIN", "unbind network namespaces"}}},
		{Name: SNATLab, Needs: programs},
		{Name: SNATKernel, Needs: lab},
		{Name: TCPNamespace, Needs: lab},
		{Name: TCPKernel, Needs: programs},
		{Name: TCPPeers, Needs: lab},
		{Name: BenchNFQueue, Needs: programs},
		{Name: BenchDSR, Needs: frames},
		{Name: BenchFailover, Needs: append([]Need{{"CAP_NET_BIND_SERVICE", "let BIRD listen on port 179"}}, frames...)},
		{Name: BenchDump, Needs: frames},
		{Name: "weir bench run soak, restart"},
		{Name: BenchEBPF, Needs: []Need{load, build, inside}},
		{Name: BenchLive, Needs: frames},
		{Name: BenchMoved, Needs: programs},
	}
}

// Of returns a command's row.
func Of(name string) (Command, bool) {
	for _, c := range Commands() {
		if c.Name == name {
			return c, true
		}
	}
	return Command{}, false
}

// HoldsKeys reports whether a command, named as typed without flags, holds keys or passwords.
func HoldsKeys(command string) bool {
	c, _ := Of(command)
	return c.Keys
}
