package maps

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// VIPs is one generation's index of destinations, as the maps hold it.
type VIPs struct {
	Generation bpf.Generation
	Records    map[uint32]bpf.Vip // by index in its half of the map
	Ports      map[bpf.VportKey]uint16
	Ranges     map[bpf.VipRangesKey]bpf.VipRanges
	Clients    map[bpf.ClientPrefix]uint32 // of VIPs that several services share; and of tunnels

	sets map[string]uint16 // numbers of sets of clients, by the services that divide them
}

// prefixPorts is what one prefix has.
type prefixPorts struct {
	prefix   netip.Prefix
	services []*lb.Service
	ports    []sharedPort
}

// sharedPort is a port or range, and the services that divide its clients.
type sharedPort struct {
	bpf.VipPort
	services []*lb.Service
}

// enter adds a VIP of the prefix.
func (p *prefixPorts) enter(vip lb.VIP, service *lb.Service) {
	if !slices.Contains(p.services, service) {
		p.services = append(p.services, service)
	}
	port := bpf.VipPort{First: vip.First, Last: vip.Last, Proto: vip.Protocol}
	at := slices.IndexFunc(p.ports, func(other sharedPort) bool { return other.VipPort == port })
	if at < 0 {
		p.ports = append(p.ports, sharedPort{port, []*lb.Service{service}})
		return
	}
	p.ports[at].services = append(p.ports[at].services, service)
}

// IndexVIPs indexes the VIPs of a snapshot. number gives a service its stable
// number; lastSet is the last number given to a prefix with many ports, and is
// advanced. mult are the factors of the hash to begin with; zero: random ones. The lowest bit of generation is in the numbers
// of sets of clients.
func IndexVIPs(s *lb.Snapshot, number func(*lb.Service) uint16, size int, generation uint32, lastSet *uint32, mult [3]uint64) (*VIPs, error) {
	t := &VIPs{
		Ports: map[bpf.VportKey]uint16{}, Ranges: map[bpf.VipRangesKey]bpf.VipRanges{},
		Clients: map[bpf.ClientPrefix]uint32{}, sets: map[string]uint16{},
	}
	prefixes := map[netip.Prefix]*prefixPorts{}
	var order []*prefixPorts
	for _, service := range s.Services {
		for _, vip := range service.VIPs {
			p := prefixes[vip.Prefix]
			if p == nil {
				p = &prefixPorts{prefix: vip.Prefix}
				prefixes[vip.Prefix] = p
				order = append(order, p)
			}
			p.enter(vip, service)
		}
	}
	if err := t.lengths(order); err != nil {
		return nil, err
	}
	records := make([]bpf.Vip, len(order))
	for i, p := range order {
		var err error
		if records[i], err = t.record(p, number, generation&1, lastSet); err != nil {
			return nil, err
		}
	}
	t.tunnels(s.Decap, generation&1)
	if len(t.Clients) > bpf.ClientPrefixes/2 {
		return nil, fmt.Errorf("the sources of services that share VIPs, counted once for each set of services, and the prefixes of decap are %d; the kernel data path holds %d", len(t.Clients), bpf.ClientPrefixes/2)
	}
	// A random hash until no one is too far from its home; at the load that
	// Compile allows, the first one nearly always does.
	for range 100 {
		if t.Generation.Mult = mult; mult != [3]uint64{} && t.fit(records, size) {
			return t, nil
		}
		mult = [3]uint64{}
		for i := range t.Generation.Mult {
			t.Generation.Mult[i] = rand.Uint64() | 1
		}
		if t.fit(records, size) {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%d VIP prefixes do not fit into %d places", len(records), size)
}

// lengths enters the distinct prefix lengths, longest first.
func (t *VIPs) lengths(order []*prefixPorts) error {
	var lengths []int
	for _, p := range order {
		if n := PrefixBits(p.prefix); !slices.Contains(lengths, n) {
			lengths = append(lengths, n)
		}
	}
	if len(lengths) > bpf.MaxLengths {
		return fmt.Errorf("VIPs of %d different prefix lengths; the kernel data path looks through %d at most", len(lengths), bpf.MaxLengths)
	}
	slices.SortFunc(lengths, func(a, b int) int { return b - a })
	t.Generation.Lengths = uint32(len(lengths))
	for i, n := range lengths {
		t.Generation.Length[i].Mask = MaskWords(n)
		t.Generation.Length[i].Bits = uint32(n + 1)
	}
	return nil
}

// record makes a prefix's line: exact ports before ranges, narrow ranges before
// wide ones, and what does not fit into the maps for more.
func (t *VIPs) record(p *prefixPorts, number func(*lb.Service) uint16, generation uint32, lastSet *uint32) (bpf.Vip, error) {
	slices.SortStableFunc(p.ports, func(a, b sharedPort) int { return int(a.Last-a.First) - int(b.Last-b.First) })
	v := bpf.Vip{Addr: AddressWords(p.prefix.Addr()), Bits: uint8(PrefixBits(p.prefix) + 1), Echo: t.served(p.services, number, generation)}
	ports := make([]bpf.VipPort, len(p.ports))
	for i, port := range p.ports {
		ports[i] = port.VipPort
		ports[i].Service = t.served(port.services, number, generation)
	}
	if len(ports) <= bpf.VipPorts {
		v.Ports = uint8(copy(v.Port[:], ports))
		return v, nil
	}
	*lastSet++
	v.More = *lastSet
	for _, port := range ports {
		if port.First == port.Last {
			t.Ports[bpf.VportKey{Vip: v.More, Port: port.First, Proto: port.Proto}] = port.Service
			continue
		}
		key := bpf.VipRangesKey{Vip: v.More, Proto: uint32(port.Proto)}
		r := t.Ranges[key]
		if r.Count == bpf.MaxRanges {
			return v, fmt.Errorf("VIP %s: more than %d port ranges of one protocol", p.prefix, bpf.MaxRanges)
		}
		r.Range[r.Count].First, r.Range[r.Count].Last, r.Range[r.Count].Service = port.First, port.Last, port.Service
		r.Count++
		t.Ranges[key] = r
	}
	return v, nil
}

// served returns the number of the service that serves all clients, or the number of the set of clients that these services divide.
func (t *VIPs) served(services []*lb.Service, number func(*lb.Service) uint16, generation uint32) uint16 {
	clients := lb.ClientsOf(services)
	if clients == nil {
		return number(services[0])
	}
	var key []byte
	for _, service := range services {
		key = binary.LittleEndian.AppendUint16(key, number(service))
	}
	if set, ok := t.sets[string(key)]; ok {
		return set
	}
	set := uint16(bpf.MaxServices + 2*len(t.sets) + int(generation))
	t.sets[string(key)] = set
	rest := uint32(number(clients.Rest))
	if clients.Refused {
		rest |= bpf.ClientRefused
	}
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		t.Clients[clientPrefix(uint32(set), netip.PrefixFrom(all, 0))] = rest
	}
	for _, p := range clients.Prefixes {
		t.Clients[clientPrefix(uint32(set), p.Prefix)] = uint32(number(p.Service))
	}
	return set
}

// clientPrefix is the key of a prefix in a set.
func clientPrefix(set uint32, p netip.Prefix) bpf.ClientPrefix {
	k := bpf.ClientPrefix{Bits: uint32(32 + PrefixBits(p)), Set: set << 1, Addr: AddressWords(p.Addr())}
	if p.Addr().Is6() {
		k.Set |= 1
	}
	return k
}

// tunnels enters which tunnels end here, as two sets: where they end, and from where they may come.
func (t *VIPs) tunnels(d *lb.Decap, generation uint32) {
	if d == nil {
		return
	}
	for _, p := range d.Addresses {
		t.Clients[clientPrefix(bpf.TunnelTo+generation, p)] = 1
	}
	for _, p := range d.From {
		t.Clients[clientPrefix(bpf.TunnelFrom+generation, p)] = 1
	}
}

// home is the hash of a prefix, as vip_search computes it.
func home(mult [3]uint64, a, b uint64, bits uint32) uint32 {
	return uint32((a*mult[0] ^ b*mult[1] ^ uint64(bits)*mult[2]) >> bpf.VipShift)
}

// fit puts every record at most bpf.MaxProbe places behind where its hash says.
func (t *VIPs) fit(records []bpf.Vip, size int) bool {
	t.Records = make(map[uint32]bpf.Vip, len(records))
	mult := t.Generation.Mult
	for _, v := range records {
		a, b := Uint64s(v.Addr)
		home := home(mult, a, b, uint32(v.Bits))
		placed := false
		for probe := range uint32(bpf.MaxProbe) {
			at := (home + probe) & uint32(size-1)
			if _, taken := t.Records[at]; !taken {
				t.Records[at] = v
				placed = true
				break
			}
		}
		if !placed {
			return false
		}
	}
	return true
}

// AddNATBackend enters a backend's address into the generation's Bloom filter.
func (t *VIPs) AddNATBackend(address netip.Addr) {
	a, b := Uint64s(AddressWords(address))
	bit := (a*t.Generation.Mult[0] ^ b*t.Generation.Mult[1]) >> 52
	t.Generation.NatBackends[bit/64%uint64(len(t.Generation.NatBackends))] |= 1 << (bit % 64)
}

// PrefixBits is a prefix length in terms of 16-byte addresses.
func PrefixBits(p netip.Prefix) int {
	if p.Addr().Is4() {
		return p.Bits() + 96
	}
	return p.Bits()
}
