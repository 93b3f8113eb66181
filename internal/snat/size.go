package snat

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Need is what a path is to carry, and what of it is given. A zero is to be found.
type Need struct {
	Connections int64   // at one time, in all
	Rate        float64 // new connections per second that must be able to go on; 0: any
	Nodes       int
	Replicas    int // 0: as many as the scenario's connections per replica make it, evenly on the nodes
	IPs         int
}

// sizing searches the sizes of one stage, the last of a path.
type sizing struct {
	s     Scenario
	need  Need
	spec  StageSpec
	ports []int   // to choose from, growing
	rate  float64 // new connections per second of a replica by itself; 0: any
}

// Size finds what the last stage of a path needs. The scenario is valid but for the numbers that are to be found.
func (s Scenario) Size(need Need) Size {
	z := sizing{s: s, need: need, spec: s.Path[len(s.Path)-1]}
	z.ports, z.rate = z.choices(), z.replicaRate()
	result := Size{Way: z.way(), Kind: string(z.spec.Kind)}
	nodes := need.Nodes
	if nodes == 0 {
		top := min(MaxNodes, int(min(need.Connections, MaxNodes)))
		if need.Replicas > 0 {
			top = min(top, need.Replicas)
		}
		if z.spec.Kind == AzureLB && z.spec.Ports == 0 && !z.manual() {
			top = min(top, azureLBDefaultPool)
		}
		nodes = z.fewest(top)
	}
	port := sort.Search(len(z.ports)-1, func(i int) bool { return z.holds(nodes, i, z.plenty()) })
	ips := need.IPs
	if ips == 0 {
		ips = 1
		if z.addressed() {
			ips = 1 + sort.Search(int(z.spec.maxIPs())-1, func(i int) bool { return z.holds(nodes, port, i+1) })
		}
	}
	found := z.scenario(nodes, port, ips)
	result.Plan = found.Plan()
	result.Possible = z.enough(found, result.Plan)
	result.Nodes, result.Replicas, result.First = nodes, found.Replicas, result.Plan.First
	result.NewPerSecond = result.Plan.NewPerSecond
	last := found.Path[len(found.Path)-1]
	switch z.spec.Kind {
	case AzureLB:
		result.Ports = int(found.lbPorts(last))
	case GCPNAT:
		result.Ports, result.MaxPorts = int(last.gcpPorts()), last.MaxPorts
	}
	if z.addressed() {
		result.IPs = ips
	}
	result.Ceiling = result.Plan.Ceiling
	if !result.Possible {
		result.Why = z.why(found, result.Plan)
	}
	return result
}

// fewest is the least number of nodes that can do it, or top. It looks from below: among far too many nodes each gets a
// connection more than its share, to make a whole number.
func (z *sizing) fewest(top int) int {
	can := func(n int) bool { return z.holds(n, len(z.ports)-1, z.plenty()) }
	below, n := 0, 1
	for n < top && !can(n) {
		below, n = n, min(2*n, top)
	}
	return below + 1 + sort.Search(n-below-1, func(i int) bool { return can(below + 1 + i) })
}

// scenario is the path with some numbers filled in.
func (z *sizing) scenario(nodes, port, ips int) Scenario {
	s := z.s
	s.Nodes, s.Replicas = nodes, z.need.Replicas
	if s.Replicas == 0 {
		perNode := (z.need.Connections + int64(nodes) - 1) / int64(nodes)
		each := (perNode + s.Connections - 1) / s.Connections
		if z.rate > 0 {
			each = max(each, int64(math.Ceil(z.need.Rate/z.rate/float64(nodes))))
		}
		s.Replicas = int(min(int64(nodes)*each, MaxReplicas))
	}
	s.Connections = (z.need.Connections + int64(s.Replicas) - 1) / int64(s.Replicas)
	s.MaxNodes = max(s.MaxNodes, s.Nodes)
	s.Traffic.Policy = Keep
	spec := z.spec
	spec.IPs = ips
	if z.spec.MaxPorts < 0 {
		spec.MaxPorts = z.ports[port]
	} else {
		spec.Ports = z.ports[port]
	}
	s.Path = append(slices.Clone(s.Path[:len(s.Path)-1]), spec)
	return s.WithDefaults()
}

// replicaRate is what the stages of a replica sustain.
func (z *sizing) replicaRate() float64 {
	one := z.s
	one.Nodes, one.Replicas, one.MaxNodes = 1, 1, 0
	one.Path = slices.DeleteFunc(slices.Clone(one.Path[:len(one.Path)-1]), func(p StageSpec) bool { return p.Kind != Ephemeral })
	if len(one.Path) == 0 {
		return 0
	}
	return one.Plan().NewPerSecond
}

func (z *sizing) holds(nodes, port, ips int) bool {
	s := z.scenario(nodes, port, ips)
	return z.enough(s, s.Plan())
}

// enough does not request what whole connections per replica add to the need.
func (z *sizing) enough(s Scenario, p Plan) bool {
	return p.Holds >= z.need.Connections && (p.NodesPossible == 0 || s.most() <= p.NodesPossible) && (p.NewPerSecond == 0 || p.NewPerSecond >= z.need.Rate)
}

// Dynamic and Manual in a StageSpec's MaxPorts and Ports ask Size to find the ports.
const (
	Dynamic = -1
	Manual  = -1
)

func (z *sizing) manual() bool { return z.spec.Ports == Manual }

// choices are the ports per node that a vendor allows.
func (z *sizing) choices() []int {
	var all []int
	switch {
	case z.spec.MaxPorts == Dynamic:
		for n := 2 * gcpNATMinDynamic; n <= gcpNATMaxDynamic; n *= 2 {
			all = append(all, n)
		}
	case z.spec.Kind == AzureLB && z.manual():
		for n := azureLBBlock; n <= azureLBPorts; n += azureLBBlock {
			all = append(all, n)
		}
	case z.spec.Kind == GCPNAT && z.manual():
		for n := gcpNATMinStatic; n <= gcpNATMaxStatic; n *= 2 {
			all = append(all, n)
		}
	default:
		all = []int{max(z.spec.Ports, 0)}
	}
	return all
}

// addressed: public addresses, or sources, are what there may be more of.
func (z *sizing) addressed() bool { return z.spec.Kind != Masquerade }

// plenty is more addresses than any pool needs, or as many as a gateway takes.
func (z *sizing) plenty() int {
	switch {
	case z.need.IPs > 0 && (z.spec.Kind == AzureNAT || z.spec.Kind == AWSNAT || z.spec.Kind == AWSRegional || z.spec.Kind == Ephemeral || !z.manual()):
		return z.need.IPs
	case z.spec.Kind == AzureLB || z.spec.Kind == GCPNAT:
		return MaxNodes * 2
	}
	return int(z.spec.maxIPs())
}

func (z *sizing) way() string {
	switch z.spec.Kind {
	case AzureLB:
		if z.spec.Ports == 0 {
			return "Azure LB, default"
		}
		return "Azure LB, manual"
	case AzureNAT:
		return "Azure NAT gateway"
	case AWSNAT:
		return "AWS NAT gateway"
	case AWSRegional:
		return "AWS regional NAT gateway"
	case GCPNAT:
		if z.spec.MaxPorts != 0 {
			return "GCP Cloud NAT, dynamic"
		}
		return "GCP Cloud NAT, static"
	case Masquerade:
		return "Linux masquerade"
	}
	return "no NAT"
}

// why says what stands in the way.
func (z *sizing) why(s Scenario, p Plan) string {
	switch {
	case p.NodesPossible > 0 && s.most() > p.NodesPossible:
		return fmt.Sprintf("%s nodes (with max_nodes and surge_nodes) need ports, %s can get them", Group(s.most()), Group(p.NodesPossible))
	case p.Holds < z.need.Connections:
		return p.Why
	}
	return fmt.Sprintf("%.0f new connections/s are more than the %.0f/s that %s gets its ports back", z.need.Rate, p.NewPerSecond, p.RateStage)
}
