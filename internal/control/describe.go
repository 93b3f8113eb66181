package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// ServiceStatus is one compiled service in words.
type ServiceStatus struct {
	Name     string       `json:"name" label:"service"`
	Mode     lb.Mode      `json:"mode"`
	Tunnel   string       `json:"tunnel,omitempty"`
	Affinity lb.Affinity  `json:"affinity"`
	CID      []string     `json:"cid,omitempty"`
	State    string       `json:"state" metric:"weir_service_fail_open" when:"fail_open" help:"1 while every probe of the service fails and none is believed."` // up, down (override), no_backend, or fail_open (all probes fail and are not believed)
	VIPs     []string     `json:"vips"`
	Flows    []FlowStatus `json:"flows,omitempty"`
	Hashing  string       `json:"hashing,omitempty"` // differences from the default, the keyed hash of the flow with conntrack
	// NoBackendMark is the fwmark of packets that no backend can take; null: they are dropped.
	NoBackendMark *uint32           `json:"no_backend_mark,omitempty"`
	Timeouts      map[string]string `json:"timeouts"`
	NewFlowRate   int               `json:"new_flow_rate,omitempty"`
	SNAT          string            `json:"snat,omitempty"`
	Health        string            `json:"health,omitempty"`
	Backends      []BackendStatus   `json:"backends" metric:""`
}

// FlowStatus is one compiled flow rule in words.
type FlowStatus struct {
	Name     string `json:"name"`
	Priority int    `json:"priority"`
	Place    int    `json:"place"` // order of precedence over all services; 1 is first
	Rule     string `json:"rule"`
}

// MemberStatus is one balancer of the tier.
type MemberStatus struct {
	Name  string  `json:"name"`
	Mark  uint32  `json:"mark"`
	Index *int    `json:"index,omitempty"` // hash nfqlb: as of backends
	Self  bool    `json:"self,omitempty"`
	Share float64 `json:"share"` // of the fragments, 0 to 1
}

// DescribeTier describes the tier of a snapshot; empty when there is none.
func DescribeTier(snapshot *lb.Snapshot) []MemberStatus {
	tier := snapshot.Tier
	if tier == nil {
		return nil
	}
	members := make([]MemberStatus, len(tier.Members))
	for i, m := range tier.Members {
		members[i] = MemberStatus{Name: m.Name, Mark: m.Mark, Self: m == tier.Self, Index: index(m.Slot)}
	}
	for _, i := range tier.Maglev {
		members[i].Share += 1 / float64(len(tier.Maglev))
	}
	return members
}

// BackendStatus is one compiled backend in words.
type BackendStatus struct {
	Name     string   `json:"name" label:"backend"`
	Address  string   `json:"address,omitempty"`
	Address2 string   `json:"address2,omitempty"`
	Port     uint16   `json:"port,omitempty"`
	Mark     uint32   `json:"mark,omitempty"`
	Index    *int     `json:"index,omitempty"` // hash nfqlb: its slot, from the file or assigned by Weir
	Weight   int      `json:"weight"`
	State    lb.State `json:"state" metric:"weir_backend_up" when:"up" help:"1 while the backend takes new flows."`
	Override string   `json:"override,omitempty"` // what and by whom: "drain by operator"
	Nodes    []uint32 `json:"nodes,omitempty"`    // owner ids, where they are the same in each layout
	// LayoutNodes are the owner ids by layout, in the order of cid, where layouts have nodes of their own.
	LayoutNodes [][]uint32 `json:"layout_nodes,omitempty"`
	Share       float64    `json:"share" metric:"weir_backend_share" help:"Share of new flows, 0 to 1."` // of new flows, 0 to 1, counted in the Maglev table
}

// Describe describes a snapshot in words: for status, weir lb show and weir check.
func Describe(snapshot *lb.Snapshot, overrides *lb.Overrides) []ServiceStatus {
	services := make([]ServiceStatus, 0, len(snapshot.Services))
	for _, service := range snapshot.Services {
		s := describeService(service, overrides)
		s.Hashing = hashing(snapshot, service)
		services = append(services, s)
	}
	return services
}

func describeService(service *lb.Service, overrides *lb.Overrides) ServiceStatus {
	s := ServiceStatus{
		Name: service.Name, Mode: service.Mode, Affinity: service.Affinity, State: "up", NewFlowRate: service.NewFlowRate,
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
		s.Flows = append(s.Flows, FlowStatus{Name: rule.Name, Priority: rule.Priority, Place: rule.Index + 1, Rule: rule.String()})
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
	if service.Stateless {
		clear(protocols)
	}
	if protocols[lb.UDP] {
		s.Timeouts["udp"] = timeout(service.Timeouts.UDP)
	}
	if protocols[lb.TCP] {
		s.Timeouts["tcp_opening"] = timeout(service.Timeouts.TCPOpening)
		s.Timeouts["tcp_established"] = timeout(service.Timeouts.TCPEstablished)
		s.Timeouts["tcp_closing"] = timeout(service.Timeouts.TCPClosing)
	}
	if protocols[lb.SCTP] {
		s.Timeouts["sctp"] = timeout(service.Timeouts.SCTP)
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
	shares := make([]int, len(service.Backends))
	for _, i := range service.Maglev {
		shares[i]++
	}
	for i, backend := range service.Backends {
		b := BackendStatus{
			Name: backend.Name, Port: backend.Port, Mark: backend.Mark, Weight: backend.Weight, State: backend.State,
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
		if value, from := overrides.Of(lb.Target{Service: service.Name, Backend: backend.Name}); value != lb.NoOverride {
			b.Override = fmt.Sprintf("%s by %s", value, from)
		}
		s.Backends = append(s.Backends, b)
	}
	return s
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
