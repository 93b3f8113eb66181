package maps

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Service is what a service in force owns in the maps.
type Service struct {
	Spec        *lb.Service
	Number      uint16
	Slots       []uint16 // by lb.Backend.Index
	Maglev      Range
	Earlier     Range          // lb.Service.Earlier
	Owners      []Range        // by layout; empty where it shares the one of an earlier layout (lb.Service.OwnersLike)
	LargeOwners []bpf.OwnerKey // owner ids beyond those that have an element
}

// ServiceRecord is a service as the program reads it: outer4 and outer6 are the sources of its tunnels, snat is where its SNAT
// addresses begin in their table.
func (t *Tables) ServiceRecord(a *Service, c Clock, outer4, outer6 netip.Addr, snat int) bpf.Service {
	s := a.Spec
	timeouts := s.Timeouts
	r := bpf.Service{
		Maglev: uint32(a.Maglev.Start), MaglevSize: uint32(TableSize(s)),
		TtlUdp: c.Ticks(timeouts.UDP), TtlOpening: c.Ticks(timeouts.TCPOpening),
		TtlOpen: c.Ticks(timeouts.TCPEstablished), TtlClosing: c.Ticks(timeouts.TCPClosing),
		TtlSctp: c.Ticks(timeouts.SCTP),
		Id:      a.Number, Mode: uint8(s.Mode), Tunnel: uint8(s.Tunnel), Affinity: uint8(s.Affinity),
		Down:   boolByte(s.Down),
		Outer4: AddressWords(outer4)[3], Outer6: AddressWords(outer6),
	}
	if a.Earlier.Length > 0 {
		r.Earlier = uint32(a.Earlier.Start) + 1
	}
	if s.NewFlowRate > 0 {
		r.FlowCost = uint32(max(time.Second/time.Duration(s.NewFlowRate), 1))
	}
	r.CrowdedCost = t.crowdedCost(timeouts.UDP)
	if s.CID != nil {
		r.CidProtocols = uint8(s.CID.Protocols)
		r.Layouts = uint8(len(s.CID.Layouts))
		for i, l := range s.CID.Layouts {
			owners := a.Owners[s.OwnersLike(i)]
			r.Layout[i] = bpf.CidLayout{
				Owners: uint32(owners.Start), OwnersSize: uint32(owners.Length),
				Length: uint8(l.Length), OwnerOffset: uint8(l.OwnerOffset), OwnerBits: uint8(l.OwnerBits), Rotation: l.Rotation,
			}
			r.RotationOffset, r.RotationBits = uint8(l.RotationOffset), uint8(l.RotationBits)
		}
		if len(a.LargeOwners) > 0 {
			r.Flags |= bpf.ServiceMoreOwners
		}
	}
	if s.Ping == lb.PingBalancer {
		r.Flags |= bpf.ServiceAnswers
	}
	if s.SNAT != nil {
		r.HasSnat, r.SnatFirst, r.SnatLast = 1, s.SNAT.First, s.SNAT.Last
		r.Snat = uint16(snat)
		for _, address := range s.SNAT.Addresses {
			if address.Is4() {
				r.Snat4++
			} else {
				r.Snat6++
			}
		}
	}
	return r
}

// crowdedCost is the credit in ns of an entry in a crowded table: limits.flows of them last for the time-out of UDP
// flows. One in a second is let in whatever that is.
func (t *Tables) crowdedCost(udp time.Duration) uint32 {
	return uint32(max(min(udp, time.Second*time.Duration(t.Sizes.flows))/time.Duration(t.Sizes.flows), 1))
}

func boolByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// BackendRecord is what packets of a family need to know of a backend.
func BackendRecord(b *lb.Backend, is6 bool) bpf.Backend {
	r := bpf.Backend{Port: Swap16(b.Port), State: uint8(b.State)}
	if b.Service.Mode == lb.Mark {
		r.Addr[0] = b.Mark
		return r
	}
	address, ok := b.Address(is6)
	if !ok && b.Service.Mode != lb.NAT {
		address, ok = b.Address(!is6) // the tunnel's, or the server's on the link
	}
	if !ok {
		return r
	}
	r.Addr = AddressWords(address)
	r.Family = 4
	if address.Is6() {
		r.Family = 6
	}
	return r
}

// SetHop writes the next hop into the record of a backend: the copy that no program reads, and then names it. The
// interval between two changes of one backend is many times a program's run.
func (t *Tables) SetHop(record int, h nexthop.Hop) {
	r := &t.Backends[record]
	if h.State == nexthop.Unknown && r.Hop[r.Cur&1].State == bpf.HopReady {
		return // being requested again, as after a restart: the last answer serves until there is another
	}
	hop := bpf.NextHop{
		Dmac: h.Link, Smac: h.From, Ifindex: uint32(h.IfIndex), Mtu: mtuOf(h.MTU), State: uint8(h.State),
	}
	if hop == r.Hop[r.Cur&1] {
		return
	}
	next := 1 - r.Cur&1
	r.Hop[next] = hop
	StoreByte(&r.Cur, next)
}

// StoreByte is one plain store, behind all before it.
func StoreByte(at *uint8, v uint8) {
	var fence atomic.Uint32
	fence.Add(1)
	*at = v
}

// mtuOf fits an MTU into a record.
func mtuOf(mtu int) uint16 { return uint16(min(mtu, math.MaxUint16)) }

// WriteBackend fills both families' records of a slot; their next hops come later.
func (t *Tables) WriteBackend(slot uint16, b *lb.Backend, service uint16) {
	for family := range 2 {
		r := &t.Backends[2*int(slot)+family]
		epoch, hops, cur := r.Epoch, r.Hop, r.Cur
		*r = BackendRecord(b, family == 1)
		r.Service, r.Epoch = service, epoch
		if b.Service.Mode == lb.Mark {
			continue
		}
		r.Hop, r.Cur = hops, cur
		r.Hop[r.Cur&1].State = bpf.HopNone
	}
}

// UpdateBackend brings both families' records of a backend that stays up to date.
func (t *Tables) UpdateBackend(slot uint16, b *lb.Backend, service uint16) {
	for family := range 2 {
		r, want := &t.Backends[2*int(slot)+family], BackendRecord(b, family == 1)
		r.State, r.Service = want.State, service
		if r.Addr != want.Addr || r.Family != want.Family {
			r.Addr, r.Family = want.Addr, want.Family // the mode changed
		}
	}
}

// RetireBackend makes every entry of a slot stale. ForgetSlots comes after it.
func (t *Tables) RetireBackend(slot uint16) {
	for family := range 2 {
		r := &t.Backends[2*int(slot)+family]
		r.Epoch++ // first: a process that ends in between is not seen to have finished
		r.State = uint8(lb.Down)
	}
}
