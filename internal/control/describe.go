package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// DescribeTier describes the tier of a snapshot; empty when there is none.
func DescribeTier(snapshot *lb.Snapshot) []v1.MemberStatus {
	tier := snapshot.Tier
	if tier == nil {
		return nil
	}
	members := make([]v1.MemberStatus, len(tier.Members))
	for i, m := range tier.Members {
		members[i] = v1.MemberStatus{Name: m.Name, Mark: m.Mark, Self: m == tier.Self, Index: index(m.Slot)}
	}
	for _, i := range tier.Maglev {
		members[i].Share += 1 / float64(len(tier.Maglev))
	}
	return members
}

// Describe describes a snapshot in words: for status, weir lb show and weir check.
func Describe(snapshot *lb.Snapshot, overrides *lb.Overrides) []v1.ServiceStatus {
	services := make([]v1.ServiceStatus, 0, len(snapshot.Services))
	for _, service := range snapshot.Services {
		s := describeService(service, overrides)
		s.Hashing = hashing(snapshot, service)
		services = append(services, s)
	}
	return services
}

func describeService(service *lb.Service, overrides *lb.Overrides) v1.ServiceStatus {
	s := v1.ServiceStatus{
		Name: service.Name, Mode: service.Mode.String(), Affinity: service.Affinity.String(), State: "up", NewFlowRate: service.NewFlowRate,
		Timeouts: map[string]string{}, VIPs: make([]string, 0, len(service.VIPs)),
	}
	if service.Mode == lb.L3DSR {
		s.Tunnel = service.Tunnel.String()
	}
	switch {
	case service.Down:
		s.State = "down"
	case len(service.Maglev) == 0:
		s.State = "no_backend"
	case service.FailOpen:
		s.State = "fail_open"
	}
	protocols := map[uint8]bool{}
	for _, vip := range service.VIPs {
		s.VIPs = append(s.VIPs, vip.String())
		protocols[vip.Protocol] = true
	}
	for _, rule := range service.Rules {
		s.Flows = append(s.Flows, v1.FlowRuleStatus{Name: rule.Name, Priority: rule.Priority, Place: rule.Index + 1, Rule: rule.String()})
		taken := rule.Protocols
		if len(taken) == 0 {
			taken = []uint8{lb.TCP, lb.UDP, lb.SCTP}
		}
		for _, p := range taken {
			protocols[p] = true
		}
	}
	if service.NoBackendMark != lb.DropMark {
		mark := uint32(service.NoBackendMark)
		s.NoBackendMark = &mark
	}
	if !service.Stateless {
		s.Timeouts = timeouts(service, protocols)
	}
	differ := false
	if service.CID != nil {
		for i := range service.CID.Layouts {
			s.CID = append(s.CID, layout(service.CID.Protocols, &service.CID.Layouts[i]))
			differ = differ || service.OwnersLike(i) > 0
		}
	}
	if snat := service.SNAT; snat != nil {
		s.SNAT = fmt.Sprintf("%v ports %d-%d", snat.Addresses, snat.First, snat.Last)
	}
	if h := service.Health; h != nil {
		s.Health = fmt.Sprintf("%s every %s, %s to answer, up after %d, down after %d", h.Probe, h.Interval, h.Timeout, h.Rise, h.Fall)
	}
	s.Backends = describeBackends(service, overrides, differ)
	s.Cluster = describeCluster(service)
	s.EarlierTables = describeEarlier(service)
	return s
}

// describeCluster lists the nodes that are queried; nothing is known of them yet.
func describeCluster(service *lb.Service) *v1.ClusterStatus {
	if service.Cluster == nil {
		return nil
	}
	status := &v1.ClusterStatus{}
	for _, b := range service.Backends {
		if b.Admin != "" {
			status.Nodes = append(status.Nodes, v1.ClusterNodeStatus{Backend: b.Name, Admin: b.Admin})
		}
	}
	return status
}

// describeEarlier describes the earlier Maglev tables in use; nil: the service keeps none.
func describeEarlier(service *lb.Service) *v1.EarlierTables {
	if service.KeepGenerations == 0 {
		return nil
	}
	all := &v1.EarlierTables{Count: len(service.Generations), Share: service.Moved(), Tables: []v1.EarlierTable{}}
	for i := range service.Generations {
		g := &service.Generations[i]
		table := v1.EarlierTable{Replaced: g.Replaced, Until: service.Until(g), Weights: map[string]int{}}
		for _, b := range g.Backends {
			if b.Weight > 0 {
				table.Weights[b.Name] = b.Weight
			}
		}
		all.Tables = append(all.Tables, table)
	}
	return all
}

// timeouts returns those of the protocols that a service takes, by name.
func timeouts(service *lb.Service, protocols map[uint8]bool) map[string]string {
	all := map[string]string{}
	if protocols[lb.UDP] {
		all["udp"] = timeout(service.Timeouts.UDP)
	}
	if protocols[lb.TCP] {
		all["tcp_opening"] = timeout(service.Timeouts.TCPOpening)
		all["tcp_established"] = timeout(service.Timeouts.TCPEstablished)
		all["tcp_closing"] = timeout(service.Timeouts.TCPClosing)
	}
	if protocols[lb.SCTP] {
		all["sctp"] = timeout(service.Timeouts.SCTP)
	}
	return all
}

// describeBackends describes the backends of a service. If layouts differ, they have different owner ids for a backend.
func describeBackends(service *lb.Service, overrides *lb.Overrides, differ bool) []v1.BackendStatus {
	var backends []v1.BackendStatus
	shares := make([]int, len(service.Backends))
	for _, i := range service.Maglev {
		shares[i]++
	}
	for i, backend := range service.Backends {
		b := v1.BackendStatus{
			Name: backend.Name, Port: backend.Port, Mark: backend.Mark, Weight: backend.Weight, State: backend.State.String(),
			Address: text(backend.Address4), Address2: text(backend.Address6), Index: index(backend.Slot),
		}
		switch {
		case differ:
			b.LayoutNodes = backend.Nodes
		case service.CID != nil:
			b.Nodes = backend.Nodes[0]
		}
		if b.Address == "" {
			b.Address, b.Address2 = b.Address2, ""
		}
		if len(service.Maglev) > 0 {
			b.Share = float64(shares[i]) / float64(len(service.Maglev))
		}
		if backend.Refuses() {
			b.Action = backend.Action.String()
		}
		if value, from := overrides.Of(lb.Target{Service: service.Name, Backend: backend.Name}); value != lb.NoOverride {
			b.Override = fmt.Sprintf("%s by %s", value, from)
		}
		backends = append(backends, b)
	}
	return backends
}

// hashing describes how a service's hash differs from the default.
func hashing(snapshot *lb.Snapshot, service *lb.Service) string {
	var parts []string
	if snapshot.Hash != lb.SipHash {
		parts = append(parts, fmt.Sprintf("%s with %d slots", snapshot.Hash, len(service.Maglev)))
	}
	if service.SCTPHash == lb.SCTPPorts {
		parts = append(parts, "sctp by ports")
	}
	if service.Stateless {
		parts = append(parts, "no conntrack")
	}
	return strings.Join(parts, ", ")
}

// index returns a slot of nfqlb's table; nil for -1, which means none.
func index(slot int) *int {
	if slot < 0 {
		return nil
	}
	return &slot
}

func text(address interface {
	IsValid() bool
	String() string
},
) string {
	if !address.IsValid() {
		return ""
	}
	return address.String()
}

func timeout(d time.Duration) string {
	if d == lb.Never {
		return "never"
	}
	return d.String()
}

func layout(protocols cid.Protocols, l *cid.Layout) string {
	out := ""
	for _, p := range []struct {
		bit  cid.Protocols
		name string
	}{{cid.DTLS12, "dtls12"}, {cid.DTLS13, "dtls13"}, {cid.QUIC, "quic"}} {
		if protocols&p.bit != 0 {
			out += p.name + " "
		}
	}
	out += fmt.Sprintf("%d bytes, owner bits %d-%d", l.Length, l.OwnerOffset, l.OwnerOffset+l.OwnerBits-1)
	if l.RotationBits > 0 {
		out += fmt.Sprintf(", rotation %d in bits %d-%d", l.Rotation, l.RotationOffset, l.RotationOffset+l.RotationBits-1)
	}
	if l.Mask != cid.MaskNone {
		out += ", masked"
	}
	return out
}
