package snat

import (
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/keyerror"
)

// Bounds of a scenario, so that a file requests no more than memory and arithmetic hold.
const (
	MaxScenarios    = 1000
	MaxNodes        = 100_000
	MaxReplicas     = 1_000_000
	MaxConnections  = 100_000_000 // per replica
	MaxDestinations = 10_000
	MaxIPs          = 1024
	MaxStages       = 16
	maxZones        = 16
	maxLimit        = 1 << 40
)

// WithDefaults fills in what was left out.
func (s Scenario) WithDefaults() Scenario {
	s.Nodes, s.Replicas, s.Connections = orInt(s.Nodes, 1), orInt(s.Replicas, 1), or64(s.Connections, 10_000)
	s.Destinations, s.ServerNodes, s.Servers = orInt(s.Destinations, 1), orInt(s.ServerNodes, 1), orInt(s.Servers, 1)
	if s.DestinationIPs == 0 {
		s.DestinationIPs = s.Destinations
	}
	if s.Kind == "" {
		s.Kind = Exact
	}
	if s.Protocol == "" {
		s.Protocol = TCP
	}
	path := make([]StageSpec, len(s.Path))
	for i, p := range s.Path {
		path[i] = p.withDefaults()
	}
	s.Path = path
	s.Traffic = s.Traffic.withDefaults()
	if s.Protocol == UDP && s.Traffic.RST == 0 {
		s.Traffic.Abandoned = 1
	}
	return s
}

func (p StageSpec) withDefaults() StageSpec {
	p.IPs = orInt(p.IPs, 1)
	switch p.Kind {
	case Files:
		p.Limit = or64(p.Limit, linuxFiles)
	case Ephemeral:
		p.Ports = orInt(p.Ports, linuxEphemeral)
	case Masquerade, MasqueradeLB:
		p.Ports = orInt(p.Ports, linuxMasquerade)
	case Conntrack:
		p.Limit = or64(p.Limit, linuxConntrack)
	case VMFlows:
		p.Limit = or64(p.Limit, azureVMFlows)
	case AWSRegional:
		p.Zones = orInt(p.Zones, 1)
	case AcceptQueue:
		p.Limit = or64(p.Limit, linuxSomaxconn)
		if p.Pause == 0 {
			p.Pause = time.Second
		}
	case Memory:
		p.PerConnection = or64(p.PerConnection, kernelBytes)
	case GCPNAT:
		if p.MaxPorts > 0 {
			p.Ports = orInt(p.Ports, gcpNATMinDynamic)
		}
		p.Ports = orInt(p.Ports, gcpNATMinStatic)
		if p.Grow == 0 {
			p.Grow = time.Second
		}
	}
	return p
}

func (t Traffic) withDefaults() Traffic {
	if t.Policy == "" {
		t.Policy = Keep
	}
	if t.Rate == 0 {
		t.Rate = 1000
	}
	if t.Duration == 0 {
		t.Duration = 5 * time.Minute
	}
	if t.Heartbeat == 0 {
		t.Heartbeat = 15 * time.Second
	}
	if t.Validate == 0 {
		t.Validate = 45 * time.Second
	}
	if t.Spread == "" {
		t.Spread = "exponential"
	}
	if t.Balance == "" {
		t.Balance = "even"
	}
	if t.Seed == 0 {
		t.Seed = 1
	}
	return t
}

func orInt(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

func or64(v, otherwise int64) int64 {
	if v == 0 {
		return otherwise
	}
	return v
}

// Validate says what is wrong with a file: "scenarios[1].path[0].ports: 7 is no multiple of 8; …".
func (f File) Validate() error {
	if len(f.Scenarios) == 0 {
		return keyerror.Errorf("scenarios", "there is none; write at least one with a path")
	}
	if len(f.Scenarios) > MaxScenarios {
		return keyerror.Errorf("scenarios", "%d are more than %d; split the file", len(f.Scenarios), MaxScenarios)
	}
	var wrong keyerror.List
	for i, s := range f.Scenarios {
		wrong.Add(keyerror.At(fmt.Sprintf("scenarios[%d]", i), s.WithDefaults().Validate()))
	}
	return wrong.Err()
}

// bound is a number that must lie between two.
type bound struct {
	key                     string
	value, minimum, maximum int64
}

func within(bounds ...bound) error {
	var wrong keyerror.List
	for _, b := range bounds {
		wrong.If(b.value < b.minimum || b.value > b.maximum, b.key, "%d is not between %d and %d; write one that is", b.value, b.minimum, b.maximum)
	}
	return wrong.Err()
}

// Validate says what is wrong with a scenario that has its defaults. The error is a [keyerror.Error], or
// [keyerror.Errors].
func (s Scenario) Validate() error {
	var wrong keyerror.List
	wrong.Add(within(
		bound{"nodes", int64(s.Nodes), 1, MaxNodes}, bound{"max_nodes", int64(s.MaxNodes), 0, MaxNodes}, bound{"surge_nodes", int64(s.SurgeNodes), 0, MaxNodes},
		bound{"replicas", int64(s.Replicas), 1, MaxReplicas}, bound{"connections", s.Connections, 1, MaxConnections},
		bound{"destinations", int64(s.Destinations), 1, MaxDestinations},
		bound{"destination_ips", int64(s.DestinationIPs), 1, int64(max(s.Destinations, 1))}, bound{"server_nodes", int64(s.ServerNodes), 1, MaxNodes},
		bound{"servers", int64(s.Servers), 1, MaxReplicas}, bound{"path", int64(len(s.Path)), 0, MaxStages},
	))
	wrong.If(s.MaxNodes > 0 && s.MaxNodes < s.Nodes, "max_nodes", "%d is below nodes, %d; write at least that", s.MaxNodes, s.Nodes)
	wrong.If(len(s.Path) == 0, "path", "there is no stage; write at least one, such as path: [{kind: azure-lb}]")
	wrong.If(s.Protocol != TCP && s.Protocol != UDP, "protocol", "%q is neither tcp nor udp; write one of them", s.Protocol)
	wrong.If(s.Protocol == UDP && s.Traffic.Policy == Original, "protocol", "the original tester uses tcp; write another traffic policy")
	wrong.If(s.Protocol == UDP && s.Traffic.RST > 0, "protocol", "nothing closes a udp flow, so no share of them ends by rst; leave rst out")
	wrong.If(s.Kind != Exact && s.Kind != Ceiling && s.Kind != Transient, "kind", "%q is none of exact, ceiling and transient; write one of them", s.Kind)
	if n := s.Expect; n != nil {
		wrong.If(*n < 0 || *n > maxLimit, "expect", "%d is no count of connections; write one from 0 on", *n)
	}
	if n := s.ExpectNodes; n != nil {
		wrong.If(*n < 0 || *n > maxLimit, "expect_nodes", "%d is no count of nodes; write one from 0 on", *n)
	}
	wrong.If(s.Tolerance < 0 || s.Tolerance > 1, "tolerance", "%v is no share; write one from 0 to 1, 0.05 is 5 %%", s.Tolerance)
	for i, p := range s.Path {
		wrong.Add(keyerror.At(fmt.Sprintf("path[%d]", i), p.validate(s)))
	}
	wrong.Add(keyerror.At("traffic", s.Traffic.validate()))
	return wrong.Err()
}

func (p StageSpec) validate(s Scenario) error {
	if !known(p.Kind) {
		return keyerror.Errorf("kind", "there is no stage %q; known: %s", p.Kind, kindNames())
	}
	var wrong keyerror.List
	wrong.If(p.Side != "" && p.Side != "client" && p.Side != "server", "side", "%q is neither client nor server; write one of them", p.Side)
	wrong.Add(within(
		bound{"ips", int64(p.IPs), 1, p.maxIPs()}, bound{"zones", int64(p.Zones), 0, maxZones}, bound{"ports", int64(p.Ports), 0, 65_536}, bound{"max_ports", int64(p.MaxPorts), 0, gcpNATMaxDynamic},
		bound{"limit", p.Limit, 0, maxLimit}, bound{"bytes_per_connection", p.PerConnection, 0, 1 << 30},
	))
	for key, d := range map[string]*time.Duration{"hold_fin": p.HoldFIN, "hold_rst": p.HoldRST, "idle_timeout": p.Idle, "accept_pause": &p.Pause, "grow_delay": &p.Grow} {
		if d != nil {
			wrong.If(*d < 0 || *d > 30*24*time.Hour, key, "%v is not between 0 and 30 days; write a time such as 65s", *d)
		}
	}
	if wrong.Err() == nil { // the vendor's rules are of numbers in their bounds
		wrong.Add(p.validateVendor(s))
	}
	return wrong.Err()
}

func (p StageSpec) maxIPs() int64 {
	switch p.Kind {
	case AzureNAT:
		return azureNATIPs
	case AWSNAT:
		return awsNATIPs
	case AWSRegional:
		return awsRegionalIPs
	}
	return MaxIPs
}

func (p StageSpec) validateVendor(s Scenario) error {
	if p.Zones > 0 && p.Kind != AWSRegional {
		return keyerror.Errorf("zones", "%s has no such setting; leave it out (it is of %s)", p.Kind, AWSRegional)
	}
	switch p.Kind {
	case AzureLB:
		if p.Ports%azureLBBlock != 0 || p.Ports > azureLBPorts {
			return keyerror.Errorf("ports", "%d is no multiple of 8 up to 64000; Azure allocates nothing else, write %d", p.Ports, min(max(p.Ports/azureLBBlock, 1)*azureLBBlock, azureLBPorts))
		}
		if p.Ports == 0 && s.Nodes > azureLBDefaultPool {
			return keyerror.Errorf("ports", "the default allocation ends at %d nodes, there are %d; write the ports of each node", azureLBDefaultPool, s.Nodes)
		}
		for i, port := range p.RulePorts {
			if port < 1 || port > 65_535 {
				return keyerror.Errorf(fmt.Sprintf("rule_ports[%d]", i), "%d is no port; write one from 1 to 65535", port)
			}
		}
	case GCPNAT:
		if p.MaxPorts > 0 && p.EndpointIndependent {
			return keyerror.Errorf("endpoint_independent", "Cloud NAT allows it with static allocation only; leave it or max_ports out")
		}
		if p.MaxPorts > 0 && (p.Ports&(p.Ports-1) != 0 || p.MaxPorts&(p.MaxPorts-1) != 0 || p.Ports < gcpNATMinDynamic || p.MaxPorts < p.Ports) {
			return keyerror.Errorf("max_ports", "dynamic allocation goes from %d to %d, which are no two powers of two from 32 on in order; write such as ports: 64 and max_ports: 4096", p.Ports, p.MaxPorts)
		}
		if p.MaxPorts == 0 && p.gcpPorts() > gcpNATPorts {
			return keyerror.Errorf("ports", "Cloud NAT rounds %d up to %d, more than the %d of an address; write at most %d", p.Ports, p.gcpPorts(), gcpNATPorts, gcpNATMaxStatic)
		}
	case AcceptQueue:
		if s.Protocol == UDP {
			return keyerror.Errorf("kind", "udp has no accept-queue; leave the stage out")
		}
	case Memory:
		if p.Limit == 0 {
			return keyerror.Errorf("limit", "there is none; write the bytes that may go to sockets")
		}
	case Ephemeral, Masquerade, MasqueradeLB:
		if p.Ports > 65_535 {
			return keyerror.Errorf("ports", "%d are more than there are; write at most 65535", p.Ports)
		}
	}
	return nil
}

func (t Traffic) validate() error {
	var wrong keyerror.List
	wrong.If(t.Policy != Keep && t.Policy != Open && t.Policy != Original, "policy", "%q is none of keep, open and original; write one of them", t.Policy)
	wrong.If(t.Spread != "exponential" && t.Spread != "fixed", "spread", "%q is neither exponential nor fixed; write one of them", t.Spread)
	wrong.If(t.Balance != "even" && t.Balance != "random", "balance", "%q is neither even nor random; write one of them", t.Balance)
	wrong.If(!(t.Rate > 0 && t.Rate <= 1e8), "rate", "%v is not above 0 and up to 100000000; write connections per second", t.Rate)
	wrong.If(t.Burst < 0 || t.Burst > 10_000_000, "burst", "%d is not between 0 and 10000000; write one that is", t.Burst)
	wrong.If(t.Burst > 0 && t.BurstEvery < time.Millisecond, "burst_every", "%v; write how often a burst comes, from 1ms on", t.BurstEvery)
	wrong.If(!(t.RST >= 0 && t.Abandoned >= 0 && t.RST+t.Abandoned <= 1), "rst", "the shares rst %v and abandoned %v are no part of 1; write shares whose sum is at most 1", t.RST, t.Abandoned)
	wrong.If(t.Duration < time.Second || t.Duration > 366*24*time.Hour, "duration", "%v is not between 1s and a year; write one that is", t.Duration)
	wrong.If(t.Lifetime < 0 || t.Lifetime > 366*24*time.Hour, "lifetime", "%v is not between 0 and a year; write one that is, 0 is for ever", t.Lifetime)
	wrong.If(t.Heartbeat < time.Second || t.Heartbeat > 24*time.Hour, "heartbeat", "%v is not between 1s and a day; write one that is", t.Heartbeat)
	wrong.If(t.Validate < time.Second || t.Validate > 24*time.Hour, "validate", "%v is not between 1s and a day; write one that is", t.Validate)
	return wrong.Err()
}
