package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/flow"
)

// Snapshot is one compiled generation: immutable, shared by all workers, ordered by name. Only Generation is set
// after Compile, by control, before anyone else sees the snapshot.
type Snapshot struct {
	Generation uint64
	HashKey    flow.HashKey
	Hash       Hash
	Limits     Limits
	Services   []*Service // ordered by name; Service.Index is the index here
	// Rules are the flow rules of all services in order of precedence. FlowRule.Index is the index here.
	Rules           []*FlowRule
	PromiscuousPing bool
	Tier            *Tier // nil: this balancer takes every fragment itself
	// NoServiceMark is the fwmark of packets of no service; DropMark drops them, 0 lets them pass as they came.
	NoServiceMark int64
	Announce      *Announce // nil: addresses are not announced
	Sync          *Sync     // nil: no other balancer has the state of flows
	Decap         *Decap    // nil: no tunnel ends here

	rules    ruleIndex
	vips     vipIndex
	outbound map[endpoint]Outbound
}

// Limits bound the tables of a data path.
type Limits struct {
	Flows           int           // conntrack entries, per data path
	Fragments       int           // fragment entries
	HeldFragments   int           // early fragments held at one time
	HeldPerDatagram int           // early fragments held of one datagram
	FragmentTTL     time.Duration // life of a fragment entry and of a held fragment
}

// Mode is how packets reach a backend.
type Mode uint8

const (
	NAT   Mode = iota // rewrite both ways
	L2DSR             // new link address only; the backend owns the VIP and answers directly
	L3DSR             // encapsulated to the backend, which answers directly
	Mark              // fwmark, the rest is routing
)

// Tunnel is the encapsulation of L3DSR.
type Tunnel uint8

const (
	NoTunnel Tunnel = iota
	IPIP            // RFC 2003, RFC 2473, RFC 4213: IP in IP, any family in any
	GUE             // UDP port 6080, variant 1: IP directly in UDP
)

// Affinity is what keeps packets together on one backend.
type Affinity uint8

const (
	ByFlow          Affinity = iota // the 5-tuple
	BySource                        // the client's address: all its flows go to one backend
	ByCID                           // the owner id in the connection id; flows without one go by the 5-tuple
	NoSourcePort                    // the 5-tuple without the source port: the client's address and the VIP's address, protocol and port
	DestinationPort                 // the destination alone: all clients of an address, protocol and port
)

// State says what a backend gets.
type State uint8

const (
	Up       State = iota // its share of new flows
	Draining              // its old flows, and CIDs it owns
	Down                  // nothing
)

// BackendAction is what a backend's share of new flows gets.
type BackendAction uint8

const (
	ActForward BackendAction = iota // the server
	ActDrop                         // nothing: the packets are dropped
	ActReject                       // the packets are dropped, and their senders get a TCP reset, or an ICMP error for other protocols
)

// PingAnswer is who answers the pings of a service's VIPs.
type PingAnswer uint8

const (
	PingBackend  PingAnswer = iota // a backend: pings are steered
	PingBalancer                   // this machine
)

// EchoRate is how many pings of one service the balancer answers in a second.
const EchoRate = 1000

// Service is what clients address, compiled.
type Service struct {
	Index    int
	Name     string
	VIPs     []VIP // ordered: most specific first
	Mode     Mode
	Tunnel   Tunnel
	Affinity Affinity
	CID      *cid.Set // nil unless ByCID
	Down     bool     // by an override: drop everything
	FailOpen bool     // every backend that could take new flows failed its probes, so the probes are ignored
	Timeouts Timeouts
	// NewFlowRate is the allowed number of new flows per second; 0 means no limit.
	NewFlowRate int
	SNAT        *SNAT // NAT mode: what backends see as the source; nil keeps the client's address
	Outbound    bool  // NAT mode: UDP flows that a backend starts leave with the VIP
	Ping        PingAnswer
	Sources     []netip.Prefix // masked: the clients that it serves; empty: all that no other service with its VIPs has
	Bypass      bool           // mark mode: packets pass while no balancer listens; else they are dropped
	Health      *Health        // nil: not probed
	Cluster     *Cluster       // nil: owner ids are those of the spec
	Backends    []*Backend
	Rules       []*FlowRule // in the order of the spec
	SCTPHash    SCTPHash
	Stateless   bool // no conntrack entries: the hash decides each packet
	// NoBackendMark is the fwmark of packets that no backend can take; DropMark drops them.
	NoBackendMark int64
	// Maglev maps hash % len to an index in Backends. Empty when no backend takes new flows.
	Maglev []int32
	// Generations are the tables before Maglev that are still used, newest first; Earlier is what they say, nil: nothing.
	Generations     []Generation
	Earlier         *Earlier
	KeepGenerations int // how many are kept at most; 0: none

	owners         []*owners // by layout of CID
	stays          bool      // udp_migration: false
	tableSize      int
	generationTime time.Duration
	tableSince     time.Time // Generation.Since of Maglev
}

// VIP is an address or prefix, a protocol and a port or port range that clients use.
type VIP struct {
	Prefix      netip.Prefix // masked; IPv4 as IPv4
	Protocol    uint8        // TCP, UDP or SCTP
	First, Last uint16       // inclusive; 0 and 65535 for any port
}

// Backend is one server behind a service.
type Backend struct {
	Index int
	Name  string
	// Address4 and Address6 are invalid where the backend has none of that family.
	Address4, Address6 netip.Addr
	Port               uint16 // 0: the port the client used
	Weight             int    // share of new flows, 0 to MaxWeight
	State              State
	Failing            bool // its probe fails, or the data path sees it silent, whatever State became of that
	// Action other than ActForward: there is no server, and no address; the share of the backend is dropped or rejected.
	Action BackendAction
	// Nodes are the owner ids whose sessions live here, ascending, by layout of the service's CID.
	Nodes   [][]uint32
	Mark    uint32 // fwmark, mode Mark
	Slot    int    // hash nfqlb: the row of its permutation; else -1
	Admin   string // address that is queried for owner ids; empty: none
	Service *Service
}

// Timeouts are how long a silent flow keeps its conntrack entry. Never is the maximum duration.
type Timeouts struct {
	UDP            time.Duration
	TCPOpening     time.Duration // SYN seen, not yet both ways
	TCPEstablished time.Duration
	TCPClosing     time.Duration // FIN or RST seen
	SCTP           time.Duration
}

// Never is a timeout that never expires.
const Never = time.Duration(1<<63 - 1)

// SNAT is what backends see as the source of a client's packets.
type SNAT struct {
	Addresses   []netip.Addr // ordered; each family a service has needs one
	First, Last uint16       // source ports, inclusive
}

// Address returns the backend's address of a family.
func (b *Backend) Address(is6 bool) (netip.Addr, bool) {
	a := b.Address4
	if is6 {
		a = b.Address6
	}
	return a, a.IsValid()
}

// TakesNew reports whether the backend gets new flows.
func (b *Backend) TakesNew() bool { return b.State == Up && b.Weight > 0 }

// Refuses reports whether the backend stands for a server that is not there: its packets go nowhere.
func (b *Backend) Refuses() bool { return b.Action != ActForward }

// Select returns the backend of a hash, nil when none takes new flows.
func (s *Service) Select(hash uint64) *Backend {
	if len(s.Maglev) == 0 {
		return nil
	}
	return s.Backends[s.Maglev[hash%uint64(len(s.Maglev))]]
}

// Owner returns the backend that holds the sessions of an owner id in a layout of CID, whatever its state; nil when
// unknown, or layout is -1.
func (s *Service) Owner(layout int, id uint32) *Backend {
	if layout < 0 {
		return nil
	}
	i, ok := s.owners[layout].find(id)
	if !ok {
		return nil
	}
	return s.Backends[i]
}

// OwnersLike returns the first layout of CID in which each backend has the owner ids that it has in this one: they can
// share a table.
func (s *Service) OwnersLike(layout int) int {
	for first := range layout {
		if !slices.ContainsFunc(s.Backends, func(b *Backend) bool { return !slices.Equal(b.Nodes[first], b.Nodes[layout]) }) {
			return first
		}
	}
	return layout
}

// Lookup finds the service of a packet: the longest prefix with a matching port wins, then the exact port or the narrowest
// range. Nil: none. Of services that share a VIP it is the one that serves the source; false: none does, and the service is the
// one that counts the packet. Port is in host order.
func (s *Snapshot) Lookup(protocol uint8, source, address [16]byte, port uint16) (*Service, bool) {
	return s.vips.lookup(protocol, address, port).of(source)
}

// HasAddress reports whether any VIP or flow rule covers the address, whatever the protocol or port. ICMP and fragments for
// such an address must be examined.
func (s *Snapshot) HasAddress(address [16]byte) bool {
	return s.vips.covers(address) || s.rules.covers(address)
}

// LookupAddress finds the service that answers for an address as such (ICMP echo): the longest prefix, then the first
// service by name of those that serve the source. Nil and false as in Lookup.
func (s *Snapshot) LookupAddress(source, address [16]byte) (*Service, bool) {
	return s.vips.lookupAddress(address).of(source)
}

// Service returns the service of a name, nil when there is none.
func (s *Snapshot) Service(name string) *Service {
	for _, service := range s.Services {
		if service.Name == name {
			return service
		}
	}
	return nil
}

// Backend returns the backend of a name, nil when there is none.
func (s *Service) Backend(name string) *Backend {
	for _, backend := range s.Backends {
		if backend.Name == name {
			return backend
		}
	}
	return nil
}

// Timeout is the idle time-out of a protocol's established flow.
func (s *Service) Timeout(protocol uint8) time.Duration {
	switch protocol {
	case TCP:
		return s.Timeouts.TCPEstablished
	case SCTP:
		return s.Timeouts.SCTP
	default:
		return s.Timeouts.UDP
	}
}

// IP protocol numbers of the balanced protocols.
const (
	TCP  = flow.ProtoTCP
	UDP  = flow.ProtoUDP
	SCTP = flow.ProtoSCTP
)

// String writes the VIP as protocol, address or prefix, and ports: udp 192.0.2.1:5684.
func (v VIP) String() string {
	address := v.Prefix.String()
	if v.Prefix.IsSingleIP() {
		address = v.Prefix.Addr().String()
	}
	if v.Prefix.Addr().Is6() {
		address = "[" + address + "]"
	}
	return fmt.Sprintf("%s %s:%s", Protocol(v.Protocol), address, PortRange{v.First, v.Last})
}
