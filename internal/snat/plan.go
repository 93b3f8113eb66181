package snat

import "math"

// Plan is the minimum cut of the scenario's path. The scenario must be valid and have its defaults.
func (s Scenario) Plan() Plan {
	s = s.atOnce()
	stages := s.stages()
	p := Plan{Name: s.Name, Demand: int64(s.Replicas) * s.Connections, Warnings: []string{}, Stages: []StageUse{}}
	nodes := s.flows(stages)
	client := int64(0)
	for _, n := range nodes {
		client += n.holds
	}
	p.Holds = min(client, wholeCapacity(stages))
	p.Ceiling = s.ceiling()
	p.WholeReplicas, p.Whole = s.whole(stages, p.Holds)
	p.NodesPossible = s.nodesPossible()
	p.PerNode = s.perNode(stages)
	s.rate(stages, &p)
	s.uses(stages, nodes, &p)
	p.Fits = p.Holds == p.Demand && !s.short(p) && !s.tooFast(p)
	p.NodesNeeded = s.nodesNeeded(stages, p)
	s.explain(stages, &p)
	p.Warnings = append(p.Warnings, s.warnings(p)...)
	return p
}

// ceiling is the cut when every replica wants more than there is.
func (s Scenario) ceiling() int64 {
	s.Connections = MaxConnections
	stages := s.stages()
	client := int64(0)
	for _, n := range s.flows(stages) {
		client += n.holds
	}
	return min(client, wholeCapacity(stages))
}

// atOnce gives a scenario of arrivals the connections that stand at one time: rate times lifetime, spread over the
// replicas, and a whole burst.
func (s Scenario) atOnce() Scenario {
	t := s.Traffic
	if t.Policy != Open {
		return s
	}
	stand := t.Rate*t.Lifetime.Seconds() + float64(t.Burst)
	s.Connections = min(max(int64(math.Ceil(stand/float64(s.Replicas))), 1), MaxConnections)
	return s
}

// nodeFlow is what one node's replicas want, and what the stages up to the node let through.
type nodeFlow struct{ wants, holds int64 }

func (s Scenario) flows(stages []stage) []nodeFlow {
	replica := s.Connections
	for _, st := range stages {
		if st.level == replicaLevel && st.arrives == 0 {
			replica = min(replica, st.of(0))
		}
	}
	nodes := make([]nodeFlow, s.Nodes)
	for i := range nodes {
		n := s.replicasOn(int64(i))
		nodes[i] = nodeFlow{n * s.Connections, n * replica}
		for _, st := range stages {
			if st.level == nodeLevel {
				nodes[i].holds = min(nodes[i].holds, st.of(int64(i)))
			}
		}
	}
	return nodes
}

// wholeCapacity is the cut behind the nodes, where all connections meet.
func wholeCapacity(stages []stage) int64 {
	lowest := int64(1) << 62
	for _, st := range stages {
		if st.level > nodeLevel && st.kind != AcceptQueue {
			lowest = min(lowest, st.total())
		}
	}
	return lowest
}

// whole counts the replicas that reach all of their connections.
func (s Scenario) whole(stages []stage, holds int64) (replicas, connections int64) {
	for _, st := range stages {
		if st.level == replicaLevel && st.of(0) < s.Connections {
			return 0, 0
		}
	}
	for i := range int64(s.Nodes) {
		n := s.replicasOn(i)
		for _, st := range stages {
			if st.level == nodeLevel {
				n = min(n, st.of(i)/s.Connections)
			}
		}
		replicas += n
	}
	replicas = min(replicas, holds/s.Connections)
	return replicas, replicas * s.Connections
}

// perNode is the ceiling of a node that has ports and as many replicas as it likes.
func (s Scenario) perNode(stages []stage) int64 {
	lowest := int64(unbounded)
	for _, st := range stages {
		if st.level == nodeLevel {
			lowest = min(lowest, st.of(0))
		}
	}
	if lowest == unbounded {
		return 0
	}
	return lowest
}

// nodesPossible is how many nodes the address pools can give their ports to; 0: no stage bounds them.
func (s Scenario) nodesPossible() int64 {
	lowest := int64(unbounded)
	for _, p := range s.Path {
		switch p.Kind {
		case AzureLB:
			lowest = min(lowest, s.lbNodes(p))
		case GCPNAT:
			lowest = min(lowest, int64(p.IPs)*gcpNATPorts/p.gcpPorts())
		}
	}
	if lowest == unbounded {
		return 0
	}
	return lowest
}

// short: some nodes get no ports at all.
func (s Scenario) short(p Plan) bool { return p.NodesPossible > 0 && int64(s.Nodes) > p.NodesPossible }

// tooFast: connections come faster than ports come back.
func (s Scenario) tooFast(p Plan) bool {
	return p.NewPerSecond > 0 && s.Traffic.Policy == Open && s.Traffic.Lifetime > 0 && s.arrivals() > p.NewPerSecond
}

// arrivals is the mean rate of policy open, in connections per second.
func (s Scenario) arrivals() float64 {
	if s.Traffic.Burst > 0 {
		return s.Traffic.Rate + float64(s.Traffic.Burst)/s.Traffic.BurstEvery.Seconds()
	}
	return s.Traffic.Rate
}

// nodesNeeded asks how many nodes would carry the demand, where a node's ceiling is what stands in the way.
func (s Scenario) nodesNeeded(stages []stage, p Plan) int64 {
	for _, st := range stages {
		if st.level == replicaLevel && st.of(0) < s.Connections {
			return 0 // more nodes change nothing
		}
	}
	if p.PerNode == 0 || wholeCapacity(stages) < p.Demand {
		return 0
	}
	perNode := min(p.PerNode/s.Connections, int64(s.Replicas)) // replicas are not cut in two
	if perNode == 0 {
		return 0
	}
	return (int64(s.Replicas) + perNode - 1) / perNode
}

// rate finds the stage whose ports come back slowest: ports / (lifetime + hold-down).
func (s Scenario) rate(stages []stage, p *Plan) {
	t := s.Traffic
	for _, st := range stages {
		if st.ports == 0 {
			continue
		}
		hold := (1-t.RST-t.Abandoned)*st.fin.Seconds() + t.RST*st.rst.Seconds() + t.Abandoned*(st.idle+st.rest).Seconds()
		busy := hold + t.Lifetime.Seconds()
		if busy == 0 {
			continue
		}
		owners := float64(s.loaded(st))
		rate := float64(st.ports) * owners / busy
		if active := t.Lifetime.Seconds() + t.Abandoned*st.idle.Seconds(); active > 0 {
			rate = min(rate, float64(st.keys*st.perKey)*owners/active)
		}
		if p.NewPerSecond == 0 || rate < p.NewPerSecond {
			p.NewPerSecond, p.RateStage = rate, st.name
		}
	}
}

// loaded is how many owners of a stage have traffic at all.
func (s Scenario) loaded(st stage) int64 {
	if st.level != nodeLevel {
		return st.owners
	}
	n := min(st.owners, int64(s.Replicas))
	if possible := s.nodesPossible(); possible > 0 {
		n = min(n, possible)
	}
	return n
}
