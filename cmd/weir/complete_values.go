package main

import (
	"slices"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/bench/snatlab"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
)

// flagValues are the values that a shell offers: of a flag in every command that has it, or of one command's flag, which wins.
func flagValues() map[string][]string {
	formats := []string{"text", "json", "xml", "cbor", "octets", "link"}
	floods := slices.Concat(bench.DescribeFloods(), bench.DescribeFloodTargets())
	return map[string][]string{
		"--log":                          {"text", "json"},
		"weir turn cat --log":            {"text", "json", "all:ERROR", "all:WARN", "all:INFO", "all:DEBUG", "all:TRACE"},
		"--datapath":                     {"ebpf", "nfqueue", "udp"},
		"weir doctor --datapath":         {"nfqueue", "ebpf"},
		"weir bench coap --datapath":     {"ebpf"},
		"--hook":                         {"auto", "xdp", "tcx"},
		"weir bench ebpf --hook":         {"xdp", "tcx", "both"},
		"--tcx-order":                    {"first", "last"},
		"--fast":                         {fastAuto, "on", "off"},
		"--mode":                         {"nat", "l2dsr", "l3dsr"},
		"--protocol":                     {"tcp", "udp"},
		"weir lb flows --protocol":       {"tcp", "udp", "sctp", "icmp"},
		"weir lb flows --state":          {"plain", "opening", "established", "closing"},
		"weir lb flows --sort":           {"client", "service", "backend", "expires"},
		"weir lb trace --reason":         reasonNames(),
		"weir turn users --sort":         {"bytes", "age", "expires", "idle", "user", "client"},
		"weir turn users --transport":    {"udp", "tcp", "tls", "dtls"},
		"weir turn bench --transport":    {bench.TransportUDP, bench.TransportTCP},
		"weir turn bench --direction":    {bench.DirectionUp, bench.DirectionDown},
		"--affinity":                     {"flow", "source"},
		"--method":                       {"GET", "POST", "PUT", "DELETE", "FETCH", "PATCH", "IPATCH"},
		"--content-format":               formats,
		"--accept":                       formats,
		"--sockets":                      {"each", "shared"},
		"--close":                        {"fin", "rst"},
		"--end":                          {"both", "client", "server"},
		"--workers":                      {},
		"weir tcp client --workers":      {"auto"},
		"weir tcp server --workers":      {"auto"},
		"weir tcp bench --workers":       {"auto"},
		"--server-workers":               {"auto"},
		"--via":                          scalebench.DescribePaths(),
		"weir tcp bench --with":          scalebench.PeerNames(),
		"--nat":                          snatlab.NATs(),
		"--policy":                       {"keep", "open", "original"},
		"--spread":                       {"exponential", "fixed"},
		"--balance":                      {"even", "random"},
		"weir snat plan --with":          {"files", "conntrack", "vm-flows", "memory"},
		"weir snat simulate --with":      {"files", "conntrack", "vm-flows", "memory"},
		"--table":                        {"weir", "nfqlb"},
		"--roads":                        bench.CoapPaths(),
		"--families":                     bench.Families(),
		"--offloads":                     bench.NFQueueOffloads(),
		"weir bench run dsr --loads":     bench.DSRLoads(),
		"weir bench run dsr --only":      bench.DSRPaths(),
		"weir bench run nfqueue --loads": bench.NFQueueLoads(),
		"weir bench run nfqueue --only":  bench.NFQueuePaths(),
		"weir bench run floods --only":   floods,
		"weir bench run floods --with":   bench.FloodPeers(),
		"weir turn bench --with":         bench.TurnPeers(),
		"weir bench nat --with":          bench.NATPeers(),
		"weir bench run nfqueue --with":  bench.NFQueuePeers(),
		"weir bench run dump --only":     bench.DumpTargets(),
		"--platform":                     {"local"},
		"--road":                         {bench.TurnRoadCat, "direct-channel"},
		"--generator":                    {"iperf", "builtin", bench.GeneratorAuto},
		"--offload":                      {"none", "auto", "tcx", "xdp"},
		"--network":                      {"loopback", "veth", bench.NetworkAuto},
	}
}

func reasonNames() []string {
	var names []string
	for reason := range lb.Reason(lb.NumReasons) {
		if name := reason.String(); reason != lb.ReasonNone {
			names = append(names, name)
		}
	}
	return names
}
