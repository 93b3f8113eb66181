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
	// HashKey: keys every hash, the same on all load balancers of a tier. All zeros let anyone craft flows that collide.
	HashKey *HexKey `yaml:"hash_key" default:"zeros" bounds:"32 hex digits"`
	// Hash: how flows become backends; nfqlb agrees with a running tier of that balancer.
	Hash Hash `yaml:"hash" default:"siphash" values:"siphash, nfqlb"`
	// MaglevSize: slots of the table of a service, a prime. With hash nfqlb the next prime below is taken, as nfqlb does;
	// default 997.
	MaglevSize int        `yaml:"maglev_size" default:"65537" bounds:"prime; with hash nfqlb 3 to 994009"`
	Limits     LimitsSpec `yaml:"limits"` // bounds of the tables of the data path
	// Tier: the balancers of a tier: a fragment first goes to the one that sees all fragments of its datagram.
	Tier *TierSpec `yaml:"tier" default:"none"`
	// NoServiceMark: fwmark, for a reject rule, of packets that no flow rule and no VIP matches; 0 lets them pass unchanged,
	// -1 drops them.
	NoServiceMark int64 `yaml:"no_service_mark" default:"0"`
	// PromiscuousPing: a ping is matched by each flow rule whose addresses match, also by those of other protocols.
	PromiscuousPing bool `yaml:"promiscuous_ping" default:"false"`
	// Announce: who learns that the addresses of services are at this balancer.
	Announce *AnnounceSpec `yaml:"announce" default:"none"`
	// Sync: other balancers have the state of translated flows too, so that these survive a failover; data path ebpf.
	Sync *SyncSpec `yaml:"sync" default:"none"`
	// Decap: tunnels that end at this balancer; data path ebpf.
	Decap    *DecapSpec    `yaml:"decap" default:"none"`
	Services []ServiceSpec `yaml:"services" bounds:"at most 1024 services"` // what is balanced; [] for nothing
}

// LimitsSpec bounds the tables of a data path.
type LimitsSpec struct {
	Flows     int `yaml:"flows" default:"262144" range:"1 to 67108864"`   // conntrack entries; fewer where the data path cannot hold as many
	Fragments int `yaml:"fragments" default:"16384" range:"1 to 4194304"` // datagrams in fragments that are remembered
	// HeldFragments: fragments that came before their first one and wait; default 0 where the data path cannot hold any.
	HeldFragments   *int          `yaml:"held_fragments" default:"256" range:"0 to 65536"`
	HeldPerDatagram int           `yaml:"held_per_datagram" default:"16" range:"1 to 64"` // such fragments of one datagram
	FragmentTTL     time.Duration `yaml:"fragment_ttl" default:"2s" range:"10ms to 1m"`   // how long a datagram in fragments is remembered after its last fragment
}

// ServiceSpec is one service.
type ServiceSpec struct {
	Name     string       `yaml:"name" bounds:"1 to 63 characters"`                                                     // unique: letters, digits and - _ . : [ ]
	VIPs     []VIPSpec    `yaml:"vips" bounds:"at most 4096 in all"`                                                    // what clients address: these or flows, or both
	Flows    []FlowSpec   `yaml:"flows" bounds:"at most 4096 in all"`                                                   // mode mark: rules, which are looked at before any VIP
	Mode     *Mode        `yaml:"mode" default:"nat" values:"nat, l2dsr, l3dsr, mark"`                                  // how packets reach backends
	Tunnel   Tunnel       `yaml:"tunnel" default:"ipip" values:"ipip, gue"`                                             // encapsulation of mode l3dsr
	Affinity *Affinity    `yaml:"affinity" default:"flow" values:"flow, source, cid, no_source_port, destination_port"` // what keeps to one backend; default cid where there is a cid section
	CID      *CIDSpec     `yaml:"cid" default:"none"`                                                                   // how connection ids name backends
	Timeouts TimeoutsSpec `yaml:"timeouts"`                                                                             // idle times of flows
	// NewFlowRate: entries for new flows per second; beyond it mode nat drops new flows, the others forward them without an
	// entry.
	NewFlowRate int       `yaml:"new_flow_rate" default:"no limit"`
	SNAT        *SNATSpec `yaml:"snat" default:"the client's address"` // mode nat: what backends see as the source
	// Outbound: mode nat: UDP flows that backends start leave with the VIP; data path ebpf.
	Outbound bool `yaml:"outbound" default:"false"`
	// Bypass: mode mark: packets continue on the ordinary routes while no balancer serves the queue, instead of being dropped;
	// `weir lb rules` sets this up.
	Bypass bool        `yaml:"bypass" default:"false"`
	Health *HealthSpec `yaml:"health" default:"none"` // active probe of every backend
	// Cluster: the backends are nodes of a CoAP cluster and are queried for their owner ids.
	Cluster    *ClusterSpec  `yaml:"cluster" default:"none"`
	Backends   []BackendSpec `yaml:"backends" bounds:"at most 4096"`         // who answers
	MaglevSize int           `yaml:"maglev_size" default:"that of the file"` // slots of this service
	// Generations: how many earlier Maglev tables are kept after a change of backends, so that flows of another balancer, which
	// has failed, keep their backend; not with snat, conntrack: false or hash nfqlb.
	Generations *int `yaml:"generations" default:"0" range:"0 to 4"`
	// GenerationTime: how long an earlier table is used, at most; about as long as a connection lives. A table that was in force for a shorter
	// time is used as long as that.
	GenerationTime time.Duration `yaml:"generation_time" default:"5m" range:"1s to 24h"`
	// UDPMigration: flows of a backend that probes report as down move to others at once; false: they stay, and only new flows
	// go elsewhere, until an operator writes down. For services of udp alone.
	UDPMigration *bool `yaml:"udp_migration" default:"true"`
	// Sources: addresses or prefixes of the clients that the service has; other services may have the same VIPs for other clients, the
	// longest prefix decides. Packets of clients that no service of a VIP has are dropped.
	Sources []AddressPrefix `yaml:"sources" default:"all clients" bounds:"1 to 256"`
	// Ping: who answers pings of the VIPs: a backend, as for other packets, or the balancer itself. With nfqueue and udp it is the
	// kernel of this machine, if it has the address.
	Ping PingAnswer `yaml:"ping" default:"backend" values:"backend, balancer"`
	// SCTPHash: what of an SCTP packet chooses the backend; default ports with hash nfqlb.
	SCTPHash SCTPHash `yaml:"sctp_hash" default:"flow" values:"flow, ports"`
	// Conntrack: remember the backend of each flow; default false with hash nfqlb, as in nfqlb itself.
	Conntrack *bool `yaml:"conntrack" default:"true"`
	// NoBackendMark: fwmark, for a reject rule, of packets that no backend can take; -1 drops them.
	NoBackendMark *int64 `yaml:"no_backend_mark" default:"-1"`
}

// VIPSpec is one address or prefix with protocol and ports.
type VIPSpec struct {
	Address  AddressPrefix `yaml:"address"`                                                     // address or prefix
	Protocol Protocol      `yaml:"protocol" values:"tcp, udp, sctp"`                            // transport protocol
	Port     PortRange     `yaml:"port" bounds:"1 to 65535, a range such as 5000-5999, or any"` // port or ports
}

// BackendSpec is one server.
type BackendSpec struct {
	Name     string     `yaml:"name" bounds:"1 to 63 characters"` // unique in the service: letters, digits and - _ . : [ ]
	Address  netip.Addr `yaml:"address"`                          // address of either family; not needed in mode mark
	Address2 netip.Addr `yaml:"address2" default:"none"`          // address of the other family, for services with VIPs of both
	// Host: instead of address: a DNS name, each of whose addresses becomes a backend of its own, named NAME:ADDRESS.
	Host string `yaml:"host" default:"none" bounds:"at most 16 addresses are used"`
	Port *int   `yaml:"port" default:"the client's" range:"1 to 65535"` // mode nat: destination port
	// Weight: share of new flows, compared with other backends; 0 keeps old flows only.
	Weight *int `yaml:"weight" default:"100" range:"0 to 10000"`
	// Action: what the backend's share of new flows gets: drop and reject stand for a server that is not there, so that its share
	// goes to no other one; they need no address. reject answers with a TCP reset or an ICMP error; in mode mark it sets no_backend_mark.
	Action BackendAction `yaml:"action" default:"forward" values:"forward, drop, reject"`
	// Nodes: owner ids in connection ids whose sessions are here, in layouts without nodes of their own.
	Nodes []uint32 `yaml:"nodes" default:"none" bounds:"at most 4096"`
	// Admin: services with a cluster: admin address of the node, HOST:PORT or unix:/path, which is queried for the owner ids.
	Admin string `yaml:"admin" default:"none"`
	Mark  uint32 `yaml:"mark"`                                                // mode mark: fwmark, whose route leads to the backend
	Index *int   `yaml:"index" default:"the one it has, else the first free"` // hash nfqlb: the slot by which nfqlb knows the backend
}

// CIDSpec says which connection ids a service's clients use.
type CIDSpec struct {
	Protocols []CIDProtocol `yaml:"protocols" values:"dtls12, dtls13, quic"` // whose connection ids are read
	Layouts   []LayoutSpec  `yaml:"layouts"`                                 // where the owner id is; the rotation field distinguishes several
}

// LayoutSpec is one cid.Layout: either by bits, or quic_lb.
type LayoutSpec struct {
	Length   int           `yaml:"length" bounds:"bytes"`                          // length of a connection id
	Owner    *BitsSpec     `yaml:"owner"`                                          // where the owner id is
	Rotation *RotationSpec `yaml:"rotation" default:"none"`                        // the field that distinguishes layouts
	MaskKey  *HexKey       `yaml:"mask_key" default:"none" bounds:"32 hex digits"` // the owner id is masked with SipHash under this key
	// QUICLB: instead of length, owner and rotation: the plaintext layout of draft-ietf-quic-load-balancers.
	QUICLB *QUICLBSpec         `yaml:"quic_lb" default:"none"`
	Nodes  map[string][]uint32 `yaml:"nodes" default:"the nodes of the backends"` // owner ids of this layout alone, by the name of the backend
}

// BitsSpec is a field inside a CID, counted from its first bit.
type BitsSpec struct {
	Offset int `yaml:"offset" default:"0" bounds:"bits"` // from the first bit of the connection id
	Bits   int `yaml:"bits" bounds:"bits"`               // width
}

// RotationSpec is the field that distinguishes layouts.
type RotationSpec struct {
	Offset int   `yaml:"offset" default:"0" bounds:"bits"` // from the first bit of the connection id
	Bits   int   `yaml:"bits" bounds:"1 to 8 bits"`        // width
	Value  uint8 `yaml:"value" default:"0"`                // value in connection ids of this layout
}

// QUICLBSpec is the plaintext layout of draft-ietf-quic-load-balancers.
type QUICLBSpec struct {
	Rotation       uint8 `yaml:"rotation" default:"0" range:"0 to 6"`    // configuration rotation bits
	ServerIDLength int   `yaml:"server_id_length" bounds:"1 to 4 bytes"` // length of the server id
	NonceLength    int   `yaml:"nonce_length" bounds:"4 to 18 bytes"`    // length of the nonce; at most 19 bytes with the server id
}

// TimeoutsSpec holds idle times; `never` is allowed.
type TimeoutsSpec struct {
	UDP            Timeout `yaml:"udp" default:"2m" bounds:"from 1s, or never"`               // UDP flows
	TCPOpening     Timeout `yaml:"tcp_opening" default:"30s" bounds:"from 1s, or never"`      // TCP handshakes
	TCPEstablished Timeout `yaml:"tcp_established" default:"2h4m" bounds:"from 1s, or never"` // established TCP connections (RFC 5382)
	TCPClosing     Timeout `yaml:"tcp_closing" default:"30s" bounds:"from 1s, or never"`      // TCP connections after a FIN or RST
	SCTP           Timeout `yaml:"sctp" default:"10m" bounds:"from 1s, or never"`             // SCTP associations
}

// SNATSpec is what backends see as the source.
type SNATSpec struct {
	Addresses []netip.Addr `yaml:"addresses"`                                             // addresses of this machine
	Ports     PortRange    `yaml:"ports" default:"1024-65535" bounds:"at least 64 ports"` // source ports
}

// HealthSpec is an active probe of every backend.
type HealthSpec struct {
	Type     Probe         `yaml:"type" values:"tcp, udp, http, coap_ping, stun_binding"`           // what is sent
	Port     int           `yaml:"port" default:"the backend's, else the VIP's" range:"1 to 65535"` // port to probe
	Interval time.Duration `yaml:"interval" default:"2s" range:"100ms to 1h"`                       // time between two probes
	// Timeout: time until a probe has failed; default half the interval, if that is less.
	Timeout time.Duration `yaml:"timeout" default:"1s" bounds:"from 10ms, less than the interval"`
	Rise    int           `yaml:"rise" default:"2" range:"1 to 100"`              // successes in a row until a backend is up
	Fall    int           `yaml:"fall" default:"3" range:"1 to 100"`              // failures in a row until a backend is down
	Path    string        `yaml:"path" default:"/"`                               // http: path of the request
	Host    string        `yaml:"host" default:"the address"`                     // http: Host header
	Status  int           `yaml:"status" default:"200 to 399" range:"100 to 599"` // http: expected status
	Send    string        `yaml:"send" default:"empty"`                           // udp: payload
	// Tunnel: mode l3dsr: the probe goes to the VIP, through the tunnel, as packets of clients do. A backend that does not open the tunnel, or does
	// not serve the VIP, is then down.
	Tunnel bool `yaml:"tunnel" default:"false"`
	// FailOpen: while the probes leave no backend for new flows, they are ignored and the backends that they took out are used
	// again: a wrong probe costs less than a service that is off.
	FailOpen *bool `yaml:"fail_open" default:"true"`
}

// Bounds of a spec, so that a bad file causes an error and does not exhaust the machine.
const (
	MaxServices = 1024
	MaxVIPs     = 4096 // of all services
	MaxBackends = 4096 // of one service
	MaxWeight   = 10000
	MaxHosts    = 1024    // DNS names of all services
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
		if first, second, ok := service.sameDestination(); ok {
			all = append(all, fmt.Sprintf("services[%d] %q: backends %s and %s have the same destination: the weights of both count", i, service.Name, first, second))
		}
		if len(service.Backends) > 0 && service.Cluster == nil {
			for _, layout := range service.withoutNodes() {
				all = append(all, fmt.Sprintf("services[%d] %q: no backend has nodes in CID layout %d: each of its CIDs is unknown", i, service.Name, layout))
			}
		}
	}
	return all
}

// sameDestination returns two backends of the service whose packets go to one address and port.
func (s *ServiceSpec) sameDestination() (first, second string, found bool) {
	seen := map[netip.AddrPort]string{}
	for i := range s.Backends {
		b := &s.Backends[i]
		port := 0
		if b.Port != nil {
			port = *b.Port
		}
		for _, address := range []netip.Addr{b.Address.Unmap(), b.Address2.Unmap()} {
			at := netip.AddrPortFrom(address, uint16(port))
			if other, ok := seen[at]; ok && other != b.Name {
				return other, b.Name, true
			}
			if address.IsValid() && (s.Mode == nil || *s.Mode != Mark) {
				seen[at] = b.Name
			}
		}
	}
	return "", "", false
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
