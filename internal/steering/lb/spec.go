package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/steering/maglev"
)

// Spec is what users write (YAML; config decodes it strictly). The zero value of an optional field means its default,
// which Compile fills in; fields where zero is a choice of its own are pointers.
type Spec struct {
	// HashKey keys every hash; 32 hex digits, the same on all load balancers of a tier. Default: all zeros, which lets
	// anyone craft colliding flows.
	HashKey *HexKey `yaml:"hash_key"`
	// Hash is how flows become backends: siphash (default), or nfqlb to agree with a running tier of that balancer.
	Hash Hash `yaml:"hash"`
	// MaglevSize is the number of slots per service, a prime. Default 65537. With hash nfqlb any number: the next prime
	// below it is taken, as nfqlb does.
	MaglevSize int        `yaml:"maglev_size"`
	Limits     LimitsSpec `yaml:"limits"`
	// Tier: fragments first go to the one balancer of the tier that sees them all.
	Tier *TierSpec `yaml:"tier"`
	// NoServiceMark is for packets that no flow rule and no VIP matches: a fwmark for a reject rule, or -1 to drop them.
	// Default 0: they pass as they came.
	NoServiceMark int64 `yaml:"no_service_mark"`
	// PromiscuousPing: a ping is matched by each flow rule whose addresses match, also by those of other protocols.
	PromiscuousPing bool          `yaml:"promiscuous_ping"`
	Services        []ServiceSpec `yaml:"services"`
}

// LimitsSpec bounds the tables of a data path.
type LimitsSpec struct {
	Flows           int           `yaml:"flows"`             // conntrack entries; default 262144
	Fragments       int           `yaml:"fragments"`         // fragment entries; default 16384
	HeldFragments   *int          `yaml:"held_fragments"`    // early fragments held; default 256 if the data path can hold, else 0
	HeldPerDatagram int           `yaml:"held_per_datagram"` // default 16
	FragmentTTL     time.Duration `yaml:"fragment_ttl"`      // default 2s
}

// ServiceSpec is one service.
type ServiceSpec struct {
	Name        string       `yaml:"name"`
	VIPs        []VIPSpec    `yaml:"vips"`     // these or flows, or both
	Flows       []FlowSpec   `yaml:"flows"`    // mode mark: rules, looked at before any VIP
	Mode        *Mode        `yaml:"mode"`     // default nat
	Tunnel      Tunnel       `yaml:"tunnel"`   // mode l3dsr only; default ipip
	Affinity    *Affinity    `yaml:"affinity"` // default flow, or cid when there is a cid section
	CID         *CIDSpec     `yaml:"cid"`
	Timeouts    TimeoutsSpec `yaml:"timeouts"`
	NewFlowRate int          `yaml:"new_flow_rate"` // entries for new flows per second; default no limit
	SNAT        *SNATSpec    `yaml:"snat"`          // mode nat only
	Outbound    bool         `yaml:"outbound"`      // mode nat: UDP flows that backends start leave with the VIP
	// Bypass: in mode mark, packets continue on the ordinary routes while no balancer listens to the queue. Default false:
	// they are dropped. `weir lb rules` sets this up.
	Bypass     bool          `yaml:"bypass"`
	Health     *HealthSpec   `yaml:"health"`
	Backends   []BackendSpec `yaml:"backends"`
	MaglevSize int           `yaml:"maglev_size"` // slots of this service; default that of the file
	SCTPHash   SCTPHash      `yaml:"sctp_hash"`   // flow or ports; default flow, with hash nfqlb ports
	// Conntrack: remember the backend of each flow. Default true; with hash nfqlb false, as in nfqlb itself.
	Conntrack *bool `yaml:"conntrack"`
	// NoBackendMark is for packets that no backend can take: a fwmark for a reject rule, or -1 (default) to drop them.
	NoBackendMark *int64 `yaml:"no_backend_mark"`
}

// VIPSpec is one address or prefix with protocol and ports.
type VIPSpec struct {
	Address  AddressPrefix `yaml:"address"`
	Protocol Protocol      `yaml:"protocol"`
	Port     PortRange     `yaml:"port"` // 5684, 5000-5999 or any
}

// BackendSpec is one server.
type BackendSpec struct {
	Name     string     `yaml:"name"`
	Address  netip.Addr `yaml:"address"`  // of either family; not needed in mode mark
	Address2 netip.Addr `yaml:"address2"` // of the other family, for services with VIPs of both
	Port     *int       `yaml:"port"`     // mode nat; default: the port the client used
	Weight   *int       `yaml:"weight"`   // 0 to MaxWeight; default 100
	Nodes    []uint32   `yaml:"nodes"`    // owner ids of CIDs whose sessions live here, in layouts without nodes of their own
	Mark     uint32     `yaml:"mark"`     // fwmark, mode mark
	Index    *int       `yaml:"index"`    // hash nfqlb: the slot that nfqlb knows the backend by; default the one it has, else the first free
}

// CIDSpec says which connection ids a service's clients use.
type CIDSpec struct {
	Protocols []CIDProtocol `yaml:"protocols"` // dtls12, dtls13, quic
	Layouts   []LayoutSpec  `yaml:"layouts"`
}

// LayoutSpec is one cid.Layout: either by bits, or quic_lb.
type LayoutSpec struct {
	Length   int           `yaml:"length"` // bytes
	Owner    *BitsSpec     `yaml:"owner"`
	Rotation *RotationSpec `yaml:"rotation"`
	MaskKey  *HexKey       `yaml:"mask_key"` // set: the owner id is masked with SipHash under this key
	QUICLB   *QUICLBSpec   `yaml:"quic_lb"`
	// Nodes are the owner ids of this layout alone, by name of backend. Default: the nodes of the backends.
	Nodes map[string][]uint32 `yaml:"nodes"`
}

// BitsSpec is a field inside a CID, counted from its first bit.
type BitsSpec struct {
	Offset int `yaml:"offset"`
	Bits   int `yaml:"bits"`
}

// RotationSpec is the field that tells layouts apart.
type RotationSpec struct {
	Offset int   `yaml:"offset"`
	Bits   int   `yaml:"bits"`
	Value  uint8 `yaml:"value"`
}

// QUICLBSpec is the plaintext layout of draft-ietf-quic-load-balancers.
type QUICLBSpec struct {
	Rotation       uint8 `yaml:"rotation"`         // 0 to 6
	ServerIDLength int   `yaml:"server_id_length"` // bytes, 1 to 4
	NonceLength    int   `yaml:"nonce_length"`     // bytes, 4 to 18
}

// TimeoutsSpec holds idle times; `never` is allowed.
type TimeoutsSpec struct {
	UDP            Timeout `yaml:"udp"`             // default 120s
	TCPOpening     Timeout `yaml:"tcp_opening"`     // default 30s
	TCPEstablished Timeout `yaml:"tcp_established"` // default 2h4m (RFC 5382)
	TCPClosing     Timeout `yaml:"tcp_closing"`     // default 30s
	SCTP           Timeout `yaml:"sctp"`            // default 10m
}

// SNATSpec is what backends see as the source.
type SNATSpec struct {
	Addresses []netip.Addr `yaml:"addresses"`
	Ports     PortRange    `yaml:"ports"` // default 1024-65535
}

// HealthSpec is an active probe of every backend.
type HealthSpec struct {
	Type     Probe         `yaml:"type"`
	Port     int           `yaml:"port"`     // default: the backend's port, else the VIP's if it is a single one
	Interval time.Duration `yaml:"interval"` // default 2s
	Timeout  time.Duration `yaml:"timeout"`  // default 1s; less than the interval
	Rise     int           `yaml:"rise"`     // successes in a row until up; default 2
	Fall     int           `yaml:"fall"`     // failures in a row until down; default 3
	Path     string        `yaml:"path"`     // http: request path; default /
	Host     string        `yaml:"host"`     // http: Host header; default the address
	Status   int           `yaml:"status"`   // http: expected status; default any from 200 to 399
	Send     string        `yaml:"send"`     // udp: payload; default empty
	// FailOpen: while the probes leave no backend for new flows, they are ignored and the backends that they took out are
	// used again. Default true: a wrong probe costs less than a service that is off.
	FailOpen *bool `yaml:"fail_open"`
}

// Bounds of a spec, so that a bad file causes an error and does not exhaust the machine.
const (
	MaxServices = 1024
	MaxVIPs     = 4096 // of all services
	MaxBackends = 4096 // of one service
	MaxWeight   = 10000
	MaxNodes    = 4096    // owner ids of one backend in one layout
	MaxSlots    = 1 << 28 // Maglev slots of all services, 4 bytes each
)

// Warnings lists what is allowed but seldom meant, for people who check a spec.
func (s *Spec) Warnings() []string {
	var all []string
	switch {
	case s.Hash == NFQLB:
		all = append(all, "hash nfqlb has no key: anyone can craft flows that all hit one backend; go back to siphash once the last nfqlb of the tier is gone")
		if m := s.MaglevSize; m >= minNFQLBSize && m <= maxNFQLBSize && maglev.PrimeBelow(m) != m {
			all = append(all, fmt.Sprintf("maglev_size %d becomes %d, the prime below it, as with nfqlb", m, maglev.PrimeBelow(m)))
		}
	case s.HashKey == nil:
		all = append(all, "hash_key is not set: anyone can craft flows that all hit one backend; write 32 hex digits from `openssl rand -hex 16`, the same on each load balancer of the tier")
	}
	if s.Hash == NFQLB && s.Tier != nil {
		all = append(all, withoutIndex("tier: members", s.Tier.Members, func(m *MemberSpec) (string, *int) { return m.Name, m.Index })...)
	}
	all = append(all, s.shadowed()...)
	for i := range s.Services {
		service := &s.Services[i]
		weight := 0
		for j := range service.Backends {
			if w := service.Backends[j].Weight; w == nil || *w > 0 {
				weight++
			}
		}
		if s.Hash == NFQLB {
			all = append(all, withoutIndex(fmt.Sprintf("services[%d] %q: backends", i, service.Name), service.Backends, func(b *BackendSpec) (string, *int) { return b.Name, b.Index })...)
		}
		switch {
		case len(service.Backends) == 0:
			all = append(all, fmt.Sprintf("services[%d] %q has no backend: its packets are dropped", i, service.Name))
		case weight == 0:
			all = append(all, fmt.Sprintf("services[%d] %q has no backend with weight: new flows are dropped", i, service.Name))
		}
		if len(service.Backends) > 0 {
			for _, layout := range service.withoutNodes() {
				all = append(all, fmt.Sprintf("services[%d] %q: no backend has nodes in CID layout %d: each of its CIDs is unknown", i, service.Name, layout))
			}
		}
	}
	return all
}

// withoutNodes lists the CID layouts in which no backend has an owner id.
func (s *ServiceSpec) withoutNodes() (layouts []int) {
	if s.CID == nil {
		return nil
	}
	for i := range s.CID.Layouts {
		own := s.CID.Layouts[i].Nodes
		if !slices.ContainsFunc(s.Backends, func(b BackendSpec) bool {
			return own == nil && len(b.Nodes) > 0 || len(own[b.Name]) > 0
		}) {
			layouts = append(layouts, i)
		}
	}
	return layouts
}

// withoutIndex warns of owners of nfqlb slots whose slots follow from the order of the file and from its history.
func withoutIndex[T any](of string, owners []T, slot func(*T) (name string, index *int)) []string {
	var names []string
	for i := range owners {
		if name, index := slot(&owners[i]); index == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 || len(owners) < 2 {
		return nil
	}
	text := strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		text += fmt.Sprintf(" and %d more", len(names)-5)
	}
	return []string{fmt.Sprintf("%s without index: %s; a restart, or another balancer of the tier, numbers them in the order of its file, so that most flows move once one was removed; write the index of each, as nfqlb show prints it: MARK(INDEX)", of, text)}
}

// shadowed warns of flow rules that match only what another one matches already, so that only one of them ever wins.
func (s *Spec) shadowed() (all []string) {
	type seen struct {
		path     string
		priority int
	}
	first := map[string]seen{}
	for i := range s.Services {
		for j, rule := range s.Services[i].Flows {
			now := seen{fmt.Sprintf("services[%d].flows[%d]", i, j), rule.Priority}
			rule.Name, rule.Priority = "", 0
			key := fmt.Sprint(rule)
			other, ok := first[key]
			switch {
			case !ok:
				first[key] = now
			case now.priority > other.priority:
				all = append(all, fmt.Sprintf("%s matches everything that %s matches: the latter never wins", now.path, other.path))
				first[key] = now
			default:
				all = append(all, fmt.Sprintf("%s matches only what %s matches already: it never wins", now.path, other.path))
			}
		}
	}
	return all
}
