package ebpf

import (
	"math"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// record is a service as the program reads it.
func (c *change) record(a *applied) bpf.Service {
	s := a.service
	t := s.Timeouts
	r := bpf.Service{
		Maglev: uint32(a.maglev.start), MaglevSize: uint32(len(s.Maglev)),
		TtlUdp: c.d.clock.ticks(t.UDP), TtlOpening: c.d.clock.ticks(t.TCPOpening),
		TtlOpen: c.d.clock.ticks(t.TCPEstablished), TtlClosing: c.d.clock.ticks(t.TCPClosing),
		TtlSctp: c.d.clock.ticks(t.SCTP),
		Id:      a.number, Mode: uint8(s.Mode), Tunnel: uint8(s.Tunnel), Affinity: uint8(s.Affinity),
		Down:   boolByte(s.Down),
		Outer4: addressWords(c.d.source(s, false))[3], Outer6: addressWords(c.d.source(s, true)),
	}
	if s.NewFlowRate > 0 {
		r.FlowCost = uint32(max(time.Second/time.Duration(s.NewFlowRate), 1))
	}
	r.CrowdedCost = c.crowdedCost(t.UDP)
	if s.CID != nil {
		r.CidProtocols = uint8(s.CID.Protocols)
		r.Layouts = uint8(len(s.CID.Layouts))
		for i, l := range s.CID.Layouts {
			owners := a.owners[s.OwnersLike(i)]
			r.Layout[i] = bpf.CidLayout{
				Owners: uint32(owners.start), OwnersSize: uint32(owners.length),
				Length: uint8(l.Length), OwnerOffset: uint8(l.OwnerOffset), OwnerBits: uint8(l.OwnerBits), Rotation: l.Rotation,
			}
			r.RotationOffset, r.RotationBits = uint8(l.RotationOffset), uint8(l.RotationBits)
		}
		r.MoreOwners = boolByte(len(a.far) > 0)
	}
	if s.SNAT != nil {
		r.HasSnat, r.SnatFirst, r.SnatLast = 1, s.SNAT.First, s.SNAT.Last
		r.Snat = uint16(findRun(c.snat, s.SNAT.Addresses))
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
func (c *change) crowdedCost(udp time.Duration) uint32 {
	return uint32(max(min(udp, time.Second*time.Duration(c.t.sizes.flows))/time.Duration(c.t.sizes.flows), 1))
}

func boolByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// backendRecord is what packets of a family need to know of a backend.
func backendRecord(b *lb.Backend, is6 bool) bpf.Backend {
	r := bpf.Backend{Port: swap16(b.Port), State: uint8(b.State)}
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
	r.Addr = addressWords(address)
	r.Family = 4
	if address.Is6() {
		r.Family = 6
	}
	return r
}

// source is the outer source of a service's tunnels of a family.
func (d *Datapath) source(s *lb.Service, is6 bool) netip.Addr {
	configured := d.config.Source4
	if is6 {
		configured = d.config.Source6
	}
	if configured.IsValid() || s.Mode != lb.L3DSR {
		return configured
	}
	for _, b := range s.Backends {
		if address, ok := b.Address(is6); ok {
			if from, ok := d.hops.Source(address); ok {
				return from
			}
		}
	}
	return netip.Addr{}
}

const hopNone, hopReady, hopFailed = 0, 1, 2

// mtuOf fits an MTU into a record.
func mtuOf(mtu int) uint16 { return uint16(min(mtu, math.MaxUint16)) }
