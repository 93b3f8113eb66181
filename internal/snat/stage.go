package snat

import (
	"fmt"
	"time"
)

// level says whose stage it is: capacity is per owner, and owners of one level form a layer of the tree.
type level int

const (
	replicaLevel level = iota
	nodeLevel
	natLevel
	serverNodeLevel
	serverLevel
)

func (l level) String() string {
	return [...]string{"replica", "node", "nat", "server node", "server"}[l]
}

// stage is a StageSpec with the vendor's rules applied to a scenario.
type stage struct {
	kind      Kind
	name      string
	level     level
	key       string        // header fields it multiplexes over
	keys      int64         // values of the key that one owner has
	perKey    int64         // connections per value
	byDest    bool          // every destination tuple has its own share of keys and ports,
	byAddress bool          // or every destination address,
	byServer  bool          // or every server
	owners    int64         // replicas, nodes, 1, server nodes, servers
	perNode   []int64       // node level: each node's capacity, where nodes differ
	ports     int64         // per owner, shared with ports held down; 0: nothing is held down
	fin       time.Duration // hold-down after each way to end
	rst       time.Duration
	idle      time.Duration // after which an abandoned connection is forgotten
	rest      time.Duration // and its port held down after that
	atOnce    bool          // refuses with an error instead of silence
	arrives   int64         // accept queue: connections that stand in it together; it does not bound what is held
	growing   *growing      // dynamic allocation
	fails     string        // what a client sees
	remedy    string
}

// growing is a dynamic allocation per node and destination-independent: start, doubled up to max, out of a pool.
type growing struct {
	start, max, pool int64 // ports
	delay            time.Duration
}

// of is the capacity of owner i.
func (s *stage) of(i int64) int64 {
	if s.perNode != nil {
		return s.perNode[i]
	}
	return s.keys * s.perKey
}

// total is the capacity of all owners.
func (s *stage) total() int64 {
	if s.perNode == nil {
		return s.owners * s.keys * s.perKey
	}
	sum := int64(0)
	for _, c := range s.perNode {
		sum += c
	}
	return sum
}

// Header fields of the keys.
const (
	keyProcess     = "process"
	keyNode        = "node"
	keyLocal       = "source address, destination address, destination port"
	keyTranslated  = "NAT address, destination address, destination port"
	keySource      = "source address"
	keyAll         = "full 5-tuple"
	keyListener    = "destination address, destination port"
	silent         = "connects time out in silence"
	cannotAssign   = "connect: cannot assign requested address"
	orVendor       = "; spread over more destination tuples"
	addDestination = "dial more destination tuples, addresses or ports"
)

// stages applies the rules to every StageSpec; the scenario has its defaults and is valid.
func (s Scenario) stages() []stage {
	var all []stage
	for _, spec := range s.Path {
		all = append(all, s.stagesOf(spec)...)
	}
	return all
}

func (s Scenario) stagesOf(p StageSpec) []stage {
	d := int64(s.Destinations)
	switch p.Kind {
	case AzureLB:
		return []stage{s.azureLB(p)}
	case AzureNAT:
		perDestination := stage{
			kind: p.Kind, name: "Azure NAT gateway, to one destination", level: natLevel, key: keyTranslated, keys: int64(p.IPs) * d, perKey: azureNATPerDest,
			byDest: true, ports: int64(p.IPs) * d * azureNATPorts, owners: 1, fails: silent, remedy: fmt.Sprintf("add public addresses, up to %d%s", azureNATIPs, orVendor),
		}
		whole := stage{
			kind: p.Kind, name: "Azure NAT gateway, in all", level: natLevel, key: "gateway", keys: 1, perKey: azureNATTotal,
			owners: 1, fails: silent, remedy: "split the subnets over several gateways",
		}
		if s.Protocol == UDP {
			return []stage{p.silent(perDestination, azureNATIdle, azureNATUDP), whole}
		}
		return []stage{p.held(perDestination, azureNATFIN, azureNATRST, azureNATIdle), whole}
	case AWSNAT:
		st := stage{
			kind: p.Kind, name: "AWS NAT gateway", level: natLevel, key: keyTranslated, keys: int64(p.IPs) * d, perKey: awsNATPorts,
			byDest: true, ports: int64(p.IPs) * d * awsNATPorts, owners: 1, fails: silent + "; ErrorPortAllocation counts",
			remedy: fmt.Sprintf("add secondary addresses, up to %d, or gateways%s", awsNATIPs, orVendor),
		}
		return []stage{p.held(st, 0, 0, awsNATIdle)}
	case AWSRegional:
		st := stage{
			kind: p.Kind, name: "AWS regional NAT gateway", level: natLevel, key: keyTranslated, keys: p.addresses() * d, perKey: awsNATPorts,
			byDest: true, ports: p.addresses() * d * awsNATPorts, owners: 1, fails: silent + "; ErrorPortAllocation counts",
			remedy: fmt.Sprintf("add addresses, up to %d in each zone, or zones%s", awsRegionalIPs, orVendor),
		}
		return []stage{p.held(st, 0, 0, awsNATIdle)}
	case GCPNAT:
		return s.gcpNAT(p)
	}
	return []stage{s.host(p)}
}

// held fills in the hold-downs, the vendor's in seconds unless the file names others.
func (p StageSpec) held(st stage, fin, rst, idle int64) stage {
	pick := func(own *time.Duration, vendor int64) time.Duration {
		if own != nil {
			return *own
		}
		return time.Duration(vendor) * time.Second
	}
	st.fin, st.rst, st.idle = pick(p.HoldFIN, fin), pick(p.HoldRST, rst), pick(p.Idle, idle)
	return st
}

// silent is held for UDP: the idle timer, and the hold-down that follows it, which a file names hold_fin.
func (p StageSpec) silent(st stage, idle, hold int64) stage {
	st = p.held(st, hold, 0, idle)
	st.rest, st.fin = st.fin, 0
	return st
}

// azureLB gives each node its ports: by the table, or as many as were requested, as far as the frontends go.
func (s Scenario) azureLB(p StageSpec) stage {
	ports := s.lbPorts(p)
	st := stage{
		kind: p.Kind, name: fmt.Sprintf("Azure LB outbound, %s ports per node", Group(ports)), level: nodeLevel,
		key: "node (NAT address, port block), destination address, destination port", keys: int64(s.Destinations), perKey: ports,
		byDest: true, ports: ports * int64(s.Destinations), owners: int64(s.Nodes), fails: silent,
		remedy: "give each node more outbound ports, or use a NAT gateway" + orVendor,
	}
	if s.Protocol == UDP { // port-restricted cone: a port serves one flow per destination address, whatever the ports there
		st.key, st.keys = "node (NAT address, port block), destination address", int64(s.DestinationIPs)
		st.byDest, st.byAddress, st.ports = false, true, ports*int64(s.DestinationIPs)
	}
	if p.Ports == 0 {
		st.remedy = "set the outbound ports by hand (the default gives few), or use a NAT gateway" + orVendor
	}
	if possible := s.lbNodes(p); possible < int64(s.Nodes) {
		st.perNode = firstNodes(s.Nodes, possible, st.keys*st.perKey)
	}
	if s.Protocol == UDP {
		return p.silent(st, azureLBIdle, 0)
	}
	return p.held(st, azureLBFIN, azureLBRST, azureLBIdle)
}

// lbPorts is what a node gets.
func (s Scenario) lbPorts(p StageSpec) int64 {
	if p.Ports > 0 {
		return int64(p.Ports)
	}
	return defaultAllocation(s.Nodes, p.IPs)
}

// defaultAllocation is Azure's default: the table times the frontends, at most 1,024; beyond the table nothing.
func defaultAllocation(nodes, ips int) int64 {
	for _, step := range defaultPorts() {
		if nodes <= step.nodes {
			return int64(min(azureLBDefaultMax, step.ports*ips))
		}
	}
	return 0
}

// lbNodes is how many nodes the frontends can serve.
func (s Scenario) lbNodes(p StageSpec) int64 {
	if p.Ports == 0 {
		return azureLBDefaultPool
	}
	blocks := map[int]bool{}
	for _, port := range p.RulePorts {
		blocks[port/azureLBBlock] = true
	}
	usable := int64(p.IPs)*azureLBPorts - int64(len(blocks))*azureLBBlock
	return max(usable, 0) / int64(p.Ports)
}

func firstNodes(nodes int, served, capacity int64) []int64 {
	all := make([]int64, nodes)
	for i := range min(int64(nodes), served) {
		all[i] = capacity
	}
	return all
}

// addresses is how many public addresses a translator has in all.
func (p StageSpec) addresses() int64 { return int64(p.IPs) * int64(max(p.Zones, 1)) }

// gcpPorts is what Cloud NAT makes of ports: the next power of two (minPortsPerVm of its routers resource).
func (p StageSpec) gcpPorts() int64 {
	ports := int64(1)
	for ports < int64(p.Ports) {
		ports *= 2
	}
	return ports
}

// gcpNAT is the share of a node and the pool that the shares are cut from.
func (s Scenario) gcpNAT(p StageSpec) []stage {
	d := int64(s.Destinations)
	if p.EndpointIndependent {
		d = 1
	}
	pool := int64(p.IPs) * gcpNATPorts
	ports := p.gcpPorts()
	possible := pool / ports
	st := stage{
		kind: p.Kind, level: nodeLevel, key: "node (NAT address, ports), destination address, destination port", keys: d, byDest: !p.EndpointIndependent, owners: int64(s.Nodes),
		fails: silent + "; the log says OUT_OF_RESOURCES", remedy: "raise the minimum ports per VM, or allocate dynamically" + orVendor,
	}
	if p.EndpointIndependent {
		st.key = keySource
		st.remedy = "switch endpoint-independent mapping off, or raise the minimum ports per VM"
	}
	if p.MaxPorts == 0 {
		st.name, st.perKey, st.ports = fmt.Sprintf("GCP Cloud NAT, %s ports per VM", Group(ports)), ports, ports*d
		if possible < int64(s.Nodes) {
			st.perNode = firstNodes(s.Nodes, possible, st.keys*st.perKey)
		}
		return []stage{s.gcpHeld(p, st)}
	}
	st.name = fmt.Sprintf("GCP Cloud NAT, %s to %s ports per VM", Group(int64(p.Ports)), Group(int64(p.MaxPorts)))
	st.perKey, st.ports = int64(p.MaxPorts), int64(p.MaxPorts)*d
	st.remedy = "raise the maximum ports per VM, or add addresses" + orVendor
	st.growing = &growing{start: int64(p.Ports), max: int64(p.MaxPorts), pool: pool, delay: p.Grow}
	st.perNode = s.grown(*st.growing, d)
	return []stage{s.gcpHeld(p, st)}
}

func (s Scenario) gcpHeld(p StageSpec, st stage) stage {
	if s.Protocol == UDP {
		return p.silent(st, gcpNATUDPIdle, 0)
	}
	return p.held(st, gcpNATTimeWait, gcpNATTransitory, gcpNATIdle)
}

// grown is what each node's allocation comes to when the demand is there: in rounds each
// doubles once while the pool has room. A node that needs less stays smaller.
func (s Scenario) grown(g growing, keys int64) []int64 {
	share := make([]int64, s.Nodes)
	left := g.pool
	for i := range share {
		if left >= g.start {
			share[i] = g.start
			left -= g.start
		}
	}
	for again := true; again; {
		again = false
		for i, ports := range share {
			want := s.replicasOn(int64(i)) * s.Connections
			if more := min(2*ports, g.max) - ports; ports > 0 && more > 0 && more <= left && want > ports*keys {
				share[i] += more
				left -= more
				again = true
			}
		}
	}
	for i := range share {
		share[i] *= keys
	}
	return share
}

// replicasOn is how many replicas run on node i: they are spread evenly.
func (s Scenario) replicasOn(i int64) int64 {
	n, r := int64(s.Nodes), int64(s.Replicas)
	if i < r%n {
		return r/n + 1
	}
	return r / n
}
