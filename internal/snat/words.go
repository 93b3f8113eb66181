package snat

import (
	"fmt"
	"strings"
)

// explain says in words why the plan is what it is, and what helps.
func (s Scenario) explain(stages []stage, p *Plan) {
	find := func(name string) stage {
		for _, st := range stages {
			if st.name == name {
				return st
			}
		}
		return stage{}
	}
	var why []string
	order := ranked(p.Stages)
	switch {
	case len(order) == 0:
		why = append(why, "no stage of this path bounds what it holds")
	case p.Holds < p.Demand:
		first := find(p.First)
		why = append(why, fmt.Sprintf("%s is full at %s: %s per (%s)", first.name, Group(p.Holds), Group(first.perKey), first.key))
		if first.fails != "" {
			why = append(why, "beyond it "+first.fails)
		}
		if p.Whole < p.Holds && p.Whole > 0 {
			why = append(why, fmt.Sprintf("only %s replicas get all of their %s, the rest share %s", Group(p.WholeReplicas), Group(s.Connections), Group(p.Holds-p.Whole)))
		}
		p.Remedy = first.remedy
	default:
		why = append(why, fmt.Sprintf("the demand of %s fits; the first stage to fill is %s, at %s", Group(p.Demand), p.First, Group(order[0].BreaksAt)))
	}
	if s.short(*p) {
		why = append([]string{fmt.Sprintf("only %s of %d nodes can get ports", Group(p.NodesPossible), s.Nodes)}, why...)
		p.Remedy = "add public addresses, or give each node fewer ports"
	}
	if s.tooFast(*p) {
		why = append(why, fmt.Sprintf("%.0f new connections/s are more than the %.0f/s that %s gets its ports back", s.arrivals(), p.NewPerSecond, p.RateStage))
		if p.Remedy == "" {
			p.Remedy = "reuse connections, close them by RST where that is held shorter, or add ports or destinations"
		}
	}
	p.Why = strings.Join(why, "; ")
}

// warnings are what does not break today.
func (s Scenario) warnings(p Plan) []string {
	var all []string
	for i, spec := range s.Path {
		switch spec.Kind {
		case AzureLB:
			all = append(all, s.lbWarnings(spec)...)
		case AWSNAT:
			if spec.IPs > awsNATQuota {
				all = append(all, fmt.Sprintf("%d addresses are more than the %d that AWS gives a gateway by default: ask AWS for a larger quota first", spec.IPs, awsNATQuota))
			}
		case GCPNAT:
			ports := spec.gcpPorts()
			if ports != int64(spec.Ports) {
				all = append(all, fmt.Sprintf("Cloud NAT rounds %s ports per VM up to %s, the next power of two", Group(int64(spec.Ports)), Group(ports)))
			}
			if possible := int64(spec.IPs) * gcpNATPorts / ports; s.peakNodes() > possible {
				all = append(all, fmt.Sprintf("%d nodes (with max_nodes and surge_nodes) are more than the %s that get %s ports each", s.peakNodes(), Group(possible), Group(ports)))
			}
		case Masquerade:
			if later := s.later(i); later != "" {
				all = append(all, fmt.Sprintf("the node's masquerade lets at most %s connections per node and destination through, whatever %s has", Group(int64(spec.Ports)), later))
			}
		}
	}
	for _, u := range p.Stages {
		switch {
		case u.Transient && u.Pressure > 1:
			all = append(all, fmt.Sprintf("%s: %.0f connections arrive during accept_pause, it holds %s; the rest is delayed by SYN retries", u.Name, u.Pressure*float64(u.PerKey), Group(u.PerKey)))
		case !u.Transient && u.Pressure > 0.9 && u.Pressure <= 1:
			all = append(all, fmt.Sprintf("%s: %.0f %% used", u.Name, 100*u.Pressure))
		}
	}
	return all
}

// later is the name of an address translator behind stage i.
func (s Scenario) later(i int) string {
	for _, p := range s.Path[i+1:] {
		switch p.Kind {
		case AzureLB, AzureNAT, AWSNAT, AWSRegional, GCPNAT:
			return string(p.Kind)
		}
	}
	return ""
}

// peakNodes is the number of nodes at the worst moment.
func (s Scenario) peakNodes() int64 { return int64(max(s.Nodes, s.MaxNodes) + s.SurgeNodes) }

func (s Scenario) lbWarnings(p StageSpec) []string {
	var all []string
	peakNodes := s.peakNodes()
	if p.Ports > 0 {
		possible := s.lbNodes(p)
		if peakNodes > possible {
			all = append(all, fmt.Sprintf("%d nodes (with max_nodes and surge_nodes) are more than the %s that %d addresses can give %s ports each", peakNodes, Group(possible), p.IPs, Group(int64(p.Ports))))
		}
		one := p
		one.IPs = 1
		if p.IPs > 1 {
			all = append(all, fmt.Sprintf("%d addresses add nodes (%s instead of %s), not ports: a node keeps %s", p.IPs, Group(possible), Group(s.lbNodes(one)), Group(int64(p.Ports))))
		}
	} else {
		all = append(all, s.stepWarnings(p, peakNodes)...)
	}
	if len(p.RulePorts) > 0 {
		with, without := s.lbNodes(p), p
		without.RulePorts = nil
		blocks := map[int]bool{}
		for _, port := range p.RulePorts {
			blocks[port/azureLBBlock] = true
		}
		all = append(all, fmt.Sprintf("the ports of %d rules take %d ports in blocks of 8: %s nodes instead of %s", len(p.RulePorts), len(blocks)*azureLBBlock, Group(with), Group(s.lbNodes(without))))
	}
	return all
}

// stepWarnings warns of the default table's next step: crossing it halves what every node has.
func (s Scenario) stepWarnings(p StageSpec, peakNodes int64) []string {
	now := defaultAllocation(s.Nodes, p.IPs)
	if peakNodes > azureLBDefaultPool {
		return []string{fmt.Sprintf("%d nodes (with max_nodes and surge_nodes) are more than the default allocation's %d", peakNodes, azureLBDefaultPool)}
	}
	if then := defaultAllocation(int(peakNodes), p.IPs); then < now {
		return []string{fmt.Sprintf("at %d nodes (with max_nodes and surge_nodes) every node has %s ports instead of %s", peakNodes, Group(then), Group(now))}
	}
	for _, step := range defaultPorts() {
		if s.Nodes <= step.nodes {
			if then := defaultAllocation(step.nodes+1, p.IPs); then < now && s.Nodes*10 >= step.nodes*9 {
				return []string{fmt.Sprintf("%d nodes are near the pool step at %d: one node more than that, and every node has %s ports instead of %s", s.Nodes, step.nodes, Group(then), Group(now))}
			}
			break
		}
	}
	return nil
}
