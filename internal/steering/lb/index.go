package lb

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// vipIndex finds services by destination. One map access per distinct prefix length and port form, longest first.
type vipIndex struct {
	lengths   []int // distinct prefix lengths in 16-byte terms, longest first
	exact     map[vipKey]*shared
	ranges    map[vipKey][]portRange // key without port; narrowest first
	addresses map[vipKey]*shared     // key without protocol and port
}

// shared is the service of a VIP or address, or how several divide its clients.
type shared struct {
	services []*Service // by name
	clients  *Clients   // nil: the first one serves all
}

// of returns the service of a client, and whether that serves it.
func (o *shared) of(source [16]byte) (*Service, bool) {
	if o == nil {
		return nil, false
	}
	if o.clients == nil {
		return o.services[0], true
	}
	return o.clients.Find(source)
}

// add enters a service, once.
func (o *shared) add(service *Service) {
	if !slices.Contains(o.services, service) {
		o.services = append(o.services, service)
	}
}

type vipKey struct {
	address  [16]byte
	bits     uint8
	protocol uint8
	port     uint16
}

type portRange struct {
	first, last uint16
	shared      *shared
}

func (x *vipIndex) lookup(protocol uint8, address [16]byte, port uint16) *shared {
	for _, bits := range x.lengths {
		if bits < 96 && mapped(address) {
			return nil // an IPv6 prefix as short as this contains the IPv4-mapped addresses
		}
		k := vipKey{address: mask(address, bits), bits: uint8(bits), protocol: protocol, port: port}
		if o := x.exact[k]; o != nil {
			return o
		}
		k.port = 0
		for _, r := range x.ranges[k] {
			if r.first <= port && port <= r.last {
				return r.shared
			}
		}
	}
	return nil
}

func (x *vipIndex) lookupAddress(address [16]byte) *shared {
	for _, bits := range x.lengths {
		if bits < 96 && mapped(address) {
			return nil
		}
		if o := x.addresses[vipKey{address: mask(address, bits), bits: uint8(bits)}]; o != nil {
			return o
		}
	}
	return nil
}

func (x *vipIndex) covers(address [16]byte) bool { return x.lookupAddress(address) != nil }

// newVIPIndex indexes checked services: equal VIPs have different clients, ranges of one prefix are nested, equal or disjoint.
func newVIPIndex(services []*Service) vipIndex {
	x := vipIndex{
		exact:     map[vipKey]*shared{},
		ranges:    map[vipKey][]portRange{},
		addresses: map[vipKey]*shared{},
	}
	var all []*shared
	enter := func(o *shared, service *Service) *shared {
		if o == nil {
			o = &shared{}
			all = append(all, o)
		}
		o.add(service)
		return o
	}
	for _, service := range services {
		for _, vip := range service.VIPs {
			k := vip.key()
			if !slices.Contains(x.lengths, int(k.bits)) {
				x.lengths = append(x.lengths, int(k.bits))
			}
			whole := vipKey{address: k.address, bits: k.bits}
			x.addresses[whole] = enter(x.addresses[whole], service)
			if vip.First == vip.Last {
				k.port = vip.First
				x.exact[k] = enter(x.exact[k], service)
				continue
			}
			at := slices.IndexFunc(x.ranges[k], func(r portRange) bool { return r.first == vip.First && r.last == vip.Last })
			if at >= 0 {
				x.ranges[k][at].shared.add(service)
				continue
			}
			x.ranges[k] = append(x.ranges[k], portRange{vip.First, vip.Last, enter(nil, service)})
		}
	}
	slices.SortFunc(x.lengths, func(a, b int) int { return b - a })
	for _, r := range x.ranges {
		slices.SortFunc(r, func(a, b portRange) int {
			return cmp.Or(cmp.Compare(a.last-a.first, b.last-b.first), cmp.Compare(a.first, b.first))
		})
	}
	for _, o := range all {
		o.clients = ClientsOf(o.services)
	}
	return x
}

// key returns the VIP's key in the index, without port.
func (v VIP) key() vipKey {
	return vipKey{address: flow.Address(v.Prefix.Addr()), bits: uint8(bits16(v.Prefix)), protocol: v.Protocol}
}

// bits16 is a prefix length in terms of 16-byte addresses.
func bits16(p netip.Prefix) int {
	if p.Addr().Is4() {
		return p.Bits() + 96
	}
	return p.Bits()
}

// mapped reports whether the 16 bytes are an IPv4-mapped address.
func mapped(address [16]byte) bool {
	return [12]byte(address[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

func mask(address [16]byte, bits int) [16]byte {
	if bits >= 128 {
		return address
	}
	whole := bits / 8
	address[whole] &= ^byte(0xff >> (bits % 8))
	clear(address[whole+1:])
	return address
}

// owners maps owner ids to indexes of backends: direct for small ids, by search for the rest.
type owners struct {
	dense  []int32 // by id, -1 for none
	ids    []uint32
	places []int32
}

// maxDense is the greatest owner id that is looked up directly (16-bit ids: 256 KiB per service at most).
const maxDense = 1<<16 - 1

func (o *owners) find(id uint32) (int32, bool) {
	if int64(id) < int64(len(o.dense)) {
		i := o.dense[id]
		return i, i >= 0
	}
	i, ok := slices.BinarySearch(o.ids, id)
	if !ok {
		return 0, false
	}
	return o.places[i], true
}

// ownerTables are the tables of a service's layouts; layouts of equal content share one.
func ownerTables(service *Service) []*owners {
	if service.CID == nil {
		return nil
	}
	tables := make([]*owners, len(service.CID.Layouts))
	for layout := range tables {
		if like := service.OwnersLike(layout); like < layout {
			tables[layout] = tables[like]
			continue
		}
		tables[layout] = newOwners(service.Backends, layout)
	}
	return tables
}

func newOwners(backends []*Backend, layout int) *owners {
	o := &owners{}
	type pair struct {
		id    uint32
		place int32
	}
	var large []pair
	for i, backend := range backends {
		for _, id := range backend.Nodes[layout] {
			if id > maxDense {
				large = append(large, pair{id, int32(i)})
				continue
			}
			for len(o.dense) <= int(id) {
				o.dense = append(o.dense, -1)
			}
			o.dense[id] = int32(i)
		}
	}
	slices.SortFunc(large, func(a, b pair) int { return cmp.Compare(a.id, b.id) })
	for _, p := range large {
		o.ids, o.places = append(o.ids, p.id), append(o.places, p.place)
	}
	return o
}
