package programcost

import (
	"github.com/weir-lb/weir/internal/datapath/ebpf/generator"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// scenario is one thing to measure.
type scenario struct {
	name     string
	flows    int
	spec     func() lb.Spec
	packet   generator.Packet
	before   *generator.Packet // sent once for each flow before
	tunnel   bool              // not on TCX: there the kernel does not let a test take the header off again
	aged     bool              // every packet is a new flow, for a table in use: as many are alive as limits.flows says, as many expire as come
	flood    bool              // every packet is a new flow, and four times limits.flows were sent before: the table is full
	fill     int               // every packet is a new flow, and that many were sent before: the source ports are used up
	proven   bool              // and each source port's flow was answered: none can be taken
	compared lruCase           // what an LRU table would do for these packets
	room     bool              // no program of ours: inserting into an LRU table that has room
}

// known says how many flows the tables must have room for.
func (c *scenario) known() int {
	if c.before != nil || c.compared == lruHit {
		return c.flows
	}
	return 0
}

func scenarios() []scenario {
	request, fragment := generator.Packet{ToVIP: true}, generator.Packet{ToVIP: true, Fragment: 1}
	dsr := func() lb.Spec { return generator.Spec(lb.L2DSR, 8, false, false) }
	tunnel := func() lb.Spec { return generator.Spec(lb.L3DSR, 8, false, false) }
	nat := func() lb.Spec { return generator.Spec(lb.NAT, 1, false, false) }
	snat := func() lb.Spec { return generator.Spec(lb.NAT, 1, true, false) }
	byCID := func() lb.Spec { return generator.Spec(lb.L2DSR, 8, false, true) }
	return []scenario{
		{name: "no match", flows: 1 << 16, spec: dsr, packet: generator.Packet{Elsewhere: true}},
		{name: "no match, with nat", flows: 1 << 16, spec: nat, packet: generator.Packet{Elsewhere: true}},
		{name: "l2dsr hit", flows: 1, spec: dsr, packet: request, before: &request, compared: lruHit},
		{name: "l2dsr hit", flows: 1 << 16, spec: dsr, packet: request, before: &request, compared: lruHit},
		{name: "l2dsr hit", flows: 1 << 19, spec: dsr, packet: request, before: &request, compared: lruHit},
		{name: "l2dsr new flow", flows: 1 << 24, spec: dsr, packet: request, aged: true, compared: lruEvict},
		{name: "cid", flows: 1 << 16, spec: byCID, packet: generator.Packet{ToVIP: true, CID: true}, compared: lruHit},
		{name: "fragment", flows: 1 << 12, spec: dsr, packet: generator.Packet{ToVIP: true, Fragment: 2}, before: &fragment},
		{name: "l3dsr hit", tunnel: true, flows: 1 << 16, spec: tunnel, packet: request, before: &request, compared: lruHit},
		{name: "nat hit", flows: 1 << 16, spec: nat, packet: request, before: &request, compared: lruHit},
		{name: "nat reply", flows: 1 << 16, spec: nat, packet: generator.Packet{}, before: &request, compared: lruHit},
		{name: "nat new flow", flows: 1 << 24, spec: nat, packet: request, aged: true, compared: lruEvict},
		{name: "l2dsr flood", flows: 1 << 24, spec: dsr, packet: request, flood: true},
		{name: "nat flood", flows: 1 << 24, spec: nat, packet: request, flood: true},
		{name: "snat exhausted", flows: 1 << 24, spec: snat, packet: request, fill: 1 << 18, proven: true},
		{name: "snat port taken", flows: 1 << 24, spec: snat, packet: request, fill: 1 << 18},
		{name: "snat hit", flows: 1 << 15, spec: snat, packet: request, before: &request, compared: lruHit},
		{name: "lru insert, room left", flows: 1 << 24, packet: request, room: true},
	}
}
