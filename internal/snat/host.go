package snat

import "fmt"

// host is a stage of a Linux machine, or of a balancer that translates no source.
func (s Scenario) host(p StageSpec) stage {
	server := p.Side == "server"
	d := int64(s.Destinations)
	st := stage{kind: p.Kind, keys: 1, perKey: p.Limit, key: keyNode, level: nodeLevel, owners: int64(s.Nodes)}
	if server {
		st.level, st.owners = serverNodeLevel, int64(s.ServerNodes)
	}
	switch p.Kind {
	case Files:
		st.name, st.key, st.level, st.owners = "files of a client process", keyProcess, replicaLevel, int64(s.Replicas)
		if server {
			st.name, st.level, st.owners = "files of a server process", serverLevel, int64(s.Servers)
		}
		st.atOnce, st.fails = true, "too many open files"
		st.remedy = "raise ulimit -n (LimitNOFILE), or run more processes"
	case Ephemeral:
		st.name, st.key, st.level, st.owners = "ephemeral ports of a replica", keyLocal, replicaLevel, int64(s.Replicas)
		st.keys, st.perKey, st.byDest = int64(p.IPs)*d, int64(p.Ports), true
		st.ports = st.keys * st.perKey
		st.atOnce, st.fails = true, cannotAssign
		st.remedy = "widen net.ipv4.ip_local_port_range, add source addresses, or " + addDestination
		st = p.held(st, linuxTimeWait, 0, 0)
		if s.Protocol == UDP { // the kernel gives out each port of an address once, whoever it is sent to
			st.key, st.keys, st.byDest, st.ports, st.fin = keySource, int64(p.IPs), false, int64(p.IPs)*int64(p.Ports), 0
			st.fails = "connect: resource temporarily unavailable"
			st.remedy = "widen net.ipv4.ip_local_port_range, add source addresses, or use one socket for many destinations"
		}
	case Masquerade:
		st.name, st.key = "masquerade of the client node", keyTranslated
		st.keys, st.perKey, st.byDest = d, int64(p.Ports), true
		st.ports = st.keys * st.perKey
		st.fails, st.remedy = silent, "add client nodes, exempt the destination from masquerade, or "+addDestination
		st = s.tracked(p, st)
	case MasqueradeLB:
		st.name, st.key = "masquerade of the server node (kube-proxy)", keyTranslated
		st.level, st.owners = serverNodeLevel, int64(s.ServerNodes)
		st.keys, st.perKey, st.byServer = int64(s.Servers), int64(p.Ports), true
		st.ports = st.keys * st.perKey
		st.fails, st.remedy = silent, "set externalTrafficPolicy: Local, or add server pods or server nodes"
		st = s.tracked(p, st)
	case Conntrack:
		st.name, st.ports = "conntrack of the "+side(server)+" node", p.Limit
		st.fails, st.remedy = silent+"; the kernel log says table full", "raise net.netfilter.nf_conntrack_max"
		st = s.tracked(p, st)
	case VMFlows:
		st.name, st.fails, st.remedy = "flow limit of the "+side(server)+" VM", silent, "use a larger VM, or more of them"
	case Memory:
		st.name, st.perKey = "kernel memory of the "+side(server)+" node", p.Limit/p.PerConnection
		st.fails, st.remedy = "connections are reset, or the kernel ends processes", "add memory"
	case DNATLB:
		st.name, st.key, st.level, st.owners, st.perKey = "balancer without source translation", keyAll, natLevel, 1, unbounded
	case AcceptQueue:
		st.name, st.key, st.level, st.owners = "accept queue of a server", keyListener, serverLevel, int64(s.Servers)
		st.arrives = int64(s.burst() * p.Pause.Seconds() / float64(s.Servers))
		st.fails, st.remedy = "connects are delayed by 1, 3, 7 … s", "raise net.core.somaxconn and the listen argument, accept in several threads, or connect more slowly"
	default:
		panic(fmt.Sprintf("snat: stage %q of an invalid scenario", p.Kind))
	}
	return st
}

// tracked fills in the time-outs of the kernel's connection tracking.
func (s Scenario) tracked(p StageSpec, st stage) stage {
	if s.Protocol == UDP {
		return p.silent(st, conntrackUDP, 0)
	}
	return p.held(st, conntrackTimeWait, conntrackClose, conntrackIdle)
}

// unbounded is a capacity that nothing reaches.
const unbounded = 1 << 40

// burst is the highest arrival rate per second.
func (s Scenario) burst() float64 {
	rate := s.Traffic.Rate
	if s.Traffic.Policy != Open {
		rate *= float64(s.Replicas)
	}
	return rate + float64(s.Traffic.Burst)
}

func side(server bool) string {
	if server {
		return "server"
	}
	return "client"
}
