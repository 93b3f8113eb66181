package ebpf

import (
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// state is what Apply keeps between snapshots.
type state struct {
	services    *maps.Numbers[string]
	slots       *maps.Numbers[maps.Identity]
	maglev      *maps.Ranges
	owners      *maps.Ranges
	active      uint32 // the generation that programs read, 0 or 1
	generations [2]generation
	lastSet     uint32       // last number given to a prefix with many ports, or to a set of outbounds
	mult        [3]uint64    // of the last index of VIPs: where the hash stays, so do most of its records
	snat        []netip.Addr // never moved, so that entries can name them by index
	inForce     map[string]*maps.Service
	natBackends map[netip.Addr]bool      // addresses whose packets may be replies
	names       [bpf.MaxServices]string  // by number, in force or last
	backends    map[uint16]maps.Identity // by slot
}

// generation is what one of the two generations has in maps that both share.
type generation struct {
	services  map[uint16]bpf.Service // by number, as they are in its half of the map; those that were read back are not here
	vips      map[uint32]bpf.Vip     // by record in its half of the map
	clients   map[bpf.ClientPrefix]uint32
	ports     map[bpf.VportKey]uint16
	ranges    map[bpf.VipRangesKey]bpf.VipRanges
	outbounds map[bpf.OutboundKey]bpf.Outbound // flows of backends
}

func newState(t *maps.Tables) state {
	var none [2]generation
	for i := range none {
		none[i] = generation{services: map[uint16]bpf.Service{}, vips: map[uint32]bpf.Vip{}, clients: map[bpf.ClientPrefix]uint32{}}
	}
	return state{
		generations: none,
		services:    maps.NewNumbers[string]("services", 1, bpf.MaxServices),
		slots:       maps.NewNumbers[maps.Identity]("backends", 0, bpf.SlotReject),
		maglev:      maps.NewRanges(t.Maglev),
		owners:      maps.NewRanges(t.Owners),
		inForce:     map[string]*maps.Service{},
		natBackends: map[netip.Addr]bool{},
		backends:    map[uint16]maps.Identity{},
	}
}

// indexOfRun returns where part stands in all, -1 if nowhere.
func indexOfRun(all, part []netip.Addr) int {
	for i := 0; i+len(part) <= len(all); i++ {
		if slices.Equal(all[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

// natBackends are the addresses of backends in mode NAT.
func natBackends(s *lb.Snapshot) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, service := range s.Services {
		if service.Mode != lb.NAT {
			continue
		}
		for _, b := range service.Backends {
			for _, a := range []netip.Addr{b.Address4, b.Address6} {
				if a.IsValid() {
					all[a] = true
				}
			}
		}
	}
	return all
}
